#include "standin/cuda/standin_internal.h"

#include <stdlib.h>
#include <sys/queue.h>

/* The context that a stream was made in. Guarded by standin_lock. */
typedef struct origin {
    LIST_ENTRY(origin) link;
    CUstream stream;
    CUcontext context;
    int device;
    bool blocking; /* synchronises with the default stream */
} origin;

static LIST_HEAD(, origin) origins = LIST_HEAD_INITIALIZER(origins);

/* ---- streams ----------------------------------------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    int device;
    void *made;
    TRY(standin_enter(STANDIN_cuStreamCreateWithPriority, &device));
    if (flags > WR_CU_STREAM_NON_BLOCKING) return WR_CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    origin *o = malloc(sizeof *o);
    if (o == NULL) return WR_CUDA_ERROR_OUT_OF_MEMORY;
    CUresult code = standin_code(wr_backend_host.stream_create(device, priority, &made));
    if (code != WR_CUDA_SUCCESS) {
        free(o);
        return code;
    }
    *o = (origin){
        .stream = made, .context = standin_current(), .device = device, .blocking = flags != WR_CU_STREAM_NON_BLOCKING
    };
    pthread_mutex_lock(&standin_lock);
    LIST_INSERT_HEAD(&origins, o, link);
    pthread_mutex_unlock(&standin_lock);
    *stream = made;
    return WR_CUDA_SUCCESS;
}

static origin *find_origin_locked(CUstream stream)
{
    origin *o;
    LIST_FOREACH(o, &origins, link)
        if (o->stream == stream) break;
    return o;
}

bool standin_is_blocking(CUstream stream)
{
    pthread_mutex_lock(&standin_lock);
    const origin *o = find_origin_locked(stream);
    const bool blocking = o != NULL && o->blocking;
    pthread_mutex_unlock(&standin_lock);
    return blocking;
}

static CUstream next_of(CUcontext context)
{
    CUstream found = NULL;
    origin *o;
    pthread_mutex_lock(&standin_lock);
    LIST_FOREACH(o, &origins, link) {
        if (o->context != context) continue;
        o->context = NULL;
        found = o->stream;
        break;
    }
    pthread_mutex_unlock(&standin_lock);
    return found;
}

/* Their captures end with them. */
void standin_end_streams(CUcontext context, int device)
{
    void *graph = NULL;
    for (CUstream stream; (stream = next_of(context)) != NULL; graph = NULL) {
        if (standin_capture_end(device, stream, &graph) != WR_CUDA_SUCCESS || graph == NULL) continue;
        (void)wr_backend_host.graph_destroy(device, graph);
    }
}

CUresult standin_enter_on(CUstream stream, enum standin_call call, int *device)
{
    TRY(standin_enter(call, device));
    pthread_mutex_lock(&standin_lock);
    const origin *o = find_origin_locked(stream);
    const bool ended = o != NULL && o->context == NULL;
    pthread_mutex_unlock(&standin_lock);
    return ended ? WR_CUDA_ERROR_CONTEXT_IS_DESTROYED : WR_CUDA_SUCCESS;
}

static void forget_origin(CUstream stream)
{
    pthread_mutex_lock(&standin_lock);
    origin *o = find_origin_locked(stream);
    if (o != NULL) LIST_REMOVE(o, link);
    pthread_mutex_unlock(&standin_lock);
    free(o);
}

void standin_forget_streams(int device)
{
    origin *o, *next;
    for (o = LIST_FIRST(&origins); o != NULL; o = next) {
        next = LIST_NEXT(o, link);
        if (o->device != device) continue;
        LIST_REMOVE(o, link);
        free(o);
    }
}

static CUresult context_of(CUstream stream, CUcontext *context)
{
    if (standin_stream(stream) == NULL) {
        *context = standin_current();
        return WR_CUDA_SUCCESS;
    }
    pthread_mutex_lock(&standin_lock);
    const origin *o = find_origin_locked(stream);
    if (o != NULL) *context = o->context;
    pthread_mutex_unlock(&standin_lock);
    return o != NULL ? WR_CUDA_SUCCESS : WR_CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuStreamGetCtx, &device));
    return context_of(stream, context);
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    CUcontext found = NULL;
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuStreamGetCtx_v2, &device));
    TRY(context_of(stream, &found));
    *context = standin_whole_context(found);
    *green = *context == found ? NULL : (CUgreenCtx)(void *)found;
    return WR_CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    int device;
    TRY(standin_enter(STANDIN_cuStreamDestroy, &device));
    forget_origin(stream);
    return standin_code(wr_backend_host.stream_destroy(device, standin_stream(stream)));
}

/* A query of the capturing stream itself is illegal in every mode. */
CUresult cuStreamQuery(CUstream stream)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuStreamQuery, &device));
    if (!standin_capturing(device, stream)) TRY(standin_unsafe());
    return standin_code(wr_backend_host.stream_query(device, standin_stream(stream)));
}

CUresult cuStreamSynchronize(CUstream stream)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuStreamSynchronize, &device));
    if (!standin_capturing(device, stream)) TRY(standin_unsafe());
    return standin_code(wr_backend_host.stream_synchronize(device, standin_stream(stream)));
}

CUresult cuCtxSynchronize(void)
{
    int device;
    TRY(standin_enter(STANDIN_cuCtxSynchronize, &device));
    TRY(standin_unsafe());
    return standin_code(wr_backend_host.device_synchronize(device));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuStreamWaitEvent, &device));
    if (flags > 1) return WR_CUDA_ERROR_INVALID_VALUE;
    weir_status status = wr_backend_host.stream_wait(device, standin_stream(stream), event);
    return status == WEIR_ERR_CAPTURE ? WR_CUDA_ERROR_STREAM_CAPTURE_ISOLATION : standin_code(status);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuLaunchHostFunc, &device));
    return standin_work_code(wr_backend_host.stream_callback(device, standin_stream(stream), function, argument));
}

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuMemcpyAsync, &device));
    return standin_work_code(wr_backend_host.copy(device, standin_stream(stream), (void *)(uintptr_t)destination,
                                                  (void *)(uintptr_t)source, bytes));
}

CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value, size_t bytes, CUstream stream)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuMemsetD8Async, &device));
    return standin_work_code(
        wr_backend_host.fill(device, standin_stream(stream), (void *)(uintptr_t)destination, value, bytes));
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    int device;
    void *made;
    TRY(standin_enter(STANDIN_cuEventCreate, &device));
    if (flags != WR_CU_EVENT_DISABLE_TIMING) return WR_CUDA_ERROR_INVALID_VALUE;
    TRY(standin_code(wr_backend_host.event_create(device, &made)));
    *event = made;
    return WR_CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    int device;
    TRY(standin_enter(STANDIN_cuEventDestroy, &device));
    return standin_code(wr_backend_host.event_destroy(device, event));
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuEventRecord, &device));
    TRY(standin_implicit(device, stream, true));
    return standin_work_code(wr_backend_host.event_record(device, event, standin_stream(stream)));
}

CUresult cuEventQuery(CUevent event)
{
    int device;
    TRY(standin_enter(STANDIN_cuEventQuery, &device));
    TRY(standin_unsafe());
    return standin_event_code(wr_backend_host.event_query(device, event));
}

CUresult cuEventSynchronize(CUevent event)
{
    int device;
    TRY(standin_enter(STANDIN_cuEventSynchronize, &device));
    TRY(standin_unsafe());
    return standin_event_code(wr_backend_host.event_synchronize(device, event));
}
