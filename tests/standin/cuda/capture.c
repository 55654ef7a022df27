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
    uint64_t id;
    void **tips; /* what was told last, the driver's own array */
} capture;

static LIST_HEAD(, capture) captures = LIST_HEAD_INITIALIZER(captures);
static _Thread_local CUstreamCaptureMode thread_mode = WR_CU_STREAM_CAPTURE_MODE_GLOBAL;

static void drop(capture *c)
{
    LIST_REMOVE(c, link);
    free(c->tips);
    free(c);
}

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
        if (c->device == device) drop(c);
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
    CUresult code = standin_code(status);
    if (code == WR_CUDA_SUCCESS) {
        LIST_INSERT_HEAD(&captures, made, link);
        code = state_of(device, stream, &state, &made->id);
    }
    pthread_mutex_unlock(&standin_lock);
    if (status != WEIR_OK) free(made);
    return code;
}

static CUresult end_locked(int device, CUstream stream, weir_capture_state state, void **graph)
{
    capture *c;
    LIST_FOREACH(c, &captures, link)
        if (c->origin == stream) break;
    if (c == NULL) return WR_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    weir_status status = wr_backend_host.capture_end(device, stream, graph);
    if (status == WEIR_ERR_WRONG_THREAD) return standin_code(status);
    drop(c);
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

/* The array is good until it is asked for again, by any stream of the capture. Lock held. */
static CUresult tell_tips(int device, CUstream stream, uint64_t id, const CUgraphNode **dependencies, size_t *count)
{
    capture *c;
    size_t found;
    LIST_FOREACH(c, &captures, link)
        if (c->id == id) break;
    if (c == NULL) return WR_CUDA_ERROR_ILLEGAL_STATE;
    TRY(standin_code(wr_backend_host.capture_tips(device, standin_stream(stream), NULL, 0, &found)));
    void **tips = realloc(c->tips, (found + 1) * sizeof *tips);
    if (tips == NULL) return WR_CUDA_ERROR_OUT_OF_MEMORY;
    c->tips = tips;
    TRY(standin_code(wr_backend_host.capture_tips(device, standin_stream(stream), tips, found, &found)));
    *dependencies = (const CUgraphNode *)tips;
    if (count != NULL) *count = found;
    return WR_CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count)
{
    int device;
    weir_capture_state state;
    uint64_t number = 0;
    TRY(standin_enter(STANDIN_cuStreamGetCaptureInfo, &device));
    if (graph != NULL) return WR_CUDA_ERROR_NOT_SUPPORTED;
    TRY(state_of(device, stream, &state, &number));
    *status = (CUstreamCaptureStatus)state;
    if (state != WEIR_CAPTURE_ACTIVE) return WR_CUDA_SUCCESS;
    if (id != NULL) *id = number;
    if (dependencies == NULL) return WR_CUDA_SUCCESS;
    pthread_mutex_lock(&standin_lock);
    CUresult code = tell_tips(device, stream, number, dependencies, count);
    pthread_mutex_unlock(&standin_lock);
    return code;
}

/* With room to spare, the rest of it becomes NULL; without, the number is of those told. */
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count)
{
    int device;
    size_t found;
    TRY(standin_enter(STANDIN_cuGraphNodeGetDependencies, &device));
    if (dependencies == NULL) return standin_code(wr_backend_host.node_dependencies(device, node, NULL, 0, count));
    const size_t room = *count;
    TRY(standin_code(wr_backend_host.node_dependencies(device, node, (void **)dependencies, room, &found)));
    for (size_t i = found; i < room; i++) dependencies[i] = NULL;
    if (found < room) *count = found;
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
