#include "standin/cuda/standin_internal.h"

#include <stdlib.h>
#include <sys/queue.h>

/* A capture from its beginning to its end, invalidated or not. Guarded by standin_lock. */
typedef struct capture {
    LIST_ENTRY(capture) link;
    CUstream origin;
    int device;
    CUstreamCaptureMode mode;
    pthread_t thread;
} capture;

static LIST_HEAD(, capture) captures = LIST_HEAD_INITIALIZER(captures);
static _Thread_local CUstreamCaptureMode thread_mode = WR_CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- what goes with a capture --------------------------------------------------------------------------------- */

/* As cuThreadExchangeStreamCaptureMode() is documented: what the calling thread's mode forbids it to do beside `c`. */
static bool forbids(const capture *c)
{
    if (thread_mode == WR_CU_STREAM_CAPTURE_MODE_RELAXED || c->mode == WR_CU_STREAM_CAPTURE_MODE_RELAXED) return false;
    if (pthread_equal(c->thread, pthread_self())) return true;
    return thread_mode == WR_CU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == WR_CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult standin_unsafe(void)
{
    CUresult code = WR_CUDA_SUCCESS;
    capture *c;
    pthread_mutex_lock(&standin_lock);
    LIST_FOREACH(c, &captures, link) {
        if (!forbids(c)) continue;
        /* A query of the capturing stream is what invalidates a capture of the host back end. */
        weir_status status = wr_backend_host.stream_query(c->device, c->origin);
        if (status != WEIR_ERR_CAPTURE) abort();
        code = WR_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&standin_lock);
    return code;
}

void standin_forget_captures(int device)
{
    capture *c, *next;
    for (c = LIST_FIRST(&captures); c != NULL; c = next) {
        next = LIST_NEXT(c, link);
        if (c->device != device) continue;
        LIST_REMOVE(c, link);
        free(c);
    }
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    TRY(standin_begin(STANDIN_cuThreadExchangeStreamCaptureMode));
    if (*mode < 0 || *mode > WR_CU_STREAM_CAPTURE_MODE_RELAXED) return WR_CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return WR_CUDA_SUCCESS;
}

/* ---- capture -------------------------------------------------------------------------------------------------- */

static CUresult state_of(int device, CUstream stream, weir_capture_state *state, uint64_t *id)
{
    *state = WEIR_CAPTURE_NONE;
    return standin_code(wr_backend_host.capture_status(device, standin_stream(stream), state, id));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    int device;
    weir_capture_state state;
    uint64_t id;
    TRY(standin_enter(STANDIN_cuStreamBeginCapture, &device));
    if (mode < 0 || mode > WR_CU_STREAM_CAPTURE_MODE_RELAXED) return WR_CUDA_ERROR_INVALID_VALUE;
    if (standin_stream(stream) == NULL) return WR_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TRY(state_of(device, stream, &state, &id));
    if (state != WEIR_CAPTURE_NONE) return WR_CUDA_ERROR_ILLEGAL_STATE;

    capture *made = malloc(sizeof *made);
    if (made == NULL) return WR_CUDA_ERROR_OUT_OF_MEMORY;
    *made = (capture){ .origin = stream, .device = device, .mode = mode, .thread = pthread_self() };
    pthread_mutex_lock(&standin_lock);
    weir_status status = wr_backend_host.capture_begin(device, stream, (weir_capture_mode)mode);
    if (status == WEIR_OK) LIST_INSERT_HEAD(&captures, made, link);
    pthread_mutex_unlock(&standin_lock);
    if (status != WEIR_OK) free(made);
    return standin_code(status);
}

static CUresult end_locked(int device, CUstream stream, weir_capture_state state, void **graph)
{
    capture *c;
    LIST_FOREACH(c, &captures, link)
        if (c->origin == stream) break;
    if (c == NULL) return WR_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    weir_status status = wr_backend_host.capture_end(device, stream, graph);
    if (status == WEIR_ERR_WRONG_THREAD) return standin_code(status);
    LIST_REMOVE(c, link);
    free(c);
    if (status == WEIR_OK) return WR_CUDA_SUCCESS;
    return state == WEIR_CAPTURE_INVALIDATED ? WR_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                             : WR_CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    int device;
    weir_capture_state state;
    uint64_t id;
    void *made = NULL;
    TRY(standin_enter(STANDIN_cuStreamEndCapture, &device));
    TRY(state_of(device, stream, &state, &id));
    if (state == WEIR_CAPTURE_NONE) return WR_CUDA_ERROR_ILLEGAL_STATE;
    pthread_mutex_lock(&standin_lock);
    CUresult code = end_locked(device, stream, state, &made);
    pthread_mutex_unlock(&standin_lock);
    *graph = made;
    return code;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count)
{
    int device;
    weir_capture_state state;
    uint64_t number = 0;
    TRY(standin_enter(STANDIN_cuStreamGetCaptureInfo, &device));
    if (graph != NULL || dependencies != NULL || count != NULL) return WR_CUDA_ERROR_NOT_SUPPORTED;
    TRY(state_of(device, stream, &state, &number));
    *status = (CUstreamCaptureStatus)state;
    if (state == WEIR_CAPTURE_ACTIVE && id != NULL) *id = number;
    return WR_CUDA_SUCCESS;
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    int device;
    void *made;
    TRY(standin_enter(STANDIN_cuGraphInstantiateWithFlags, &device));
    if (flags != 0) return WR_CUDA_ERROR_INVALID_VALUE;
    TRY(standin_code(wr_backend_host.graph_instantiate(device, graph, &made)));
    *exec = made;
    return WR_CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    int device;
    TRY(standin_enter(STANDIN_cuGraphLaunch, &device));
    return standin_work_code(wr_backend_host.graph_launch(device, exec, standin_stream(stream)));
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    int device;
    TRY(standin_enter(STANDIN_cuGraphExecDestroy, &device));
    return standin_code(wr_backend_host.graph_exec_destroy(device, exec));
}

CUresult cuGraphDestroy(CUgraph graph)
{
    int device;
    TRY(standin_enter(STANDIN_cuGraphDestroy, &device));
    return standin_code(wr_backend_host.graph_destroy(device, graph));
}
