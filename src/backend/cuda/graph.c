#include "backend/cuda/cuda_internal.h"

/* The default stream, for which the driver has a second name, 1. It cannot capture. */
static bool is_default(const void *stream)
{
    return stream == NULL || stream == (const void *)1;
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

WR_ENTRY(cuda, capture_begin, (int ordinal, void *stream, weir_capture_mode mode), cuStreamBeginCapture, stream,
         (CUstreamCaptureMode)mode)

weir_status wr_cuda_capture_end(int ordinal, void *stream, void **graph)
{
    wr_cuda_frame frame;
    CUgraph made = NULL;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuStreamEndCapture, stream, &made));
    *graph = made;
    return WEIR_OK;
}

/* Only active captures have an id. For the default stream the driver reports the capture of a stream that synchronises
 * with it by an error, which harms nothing. */
weir_status wr_cuda_capture_status(int ordinal, void *stream, weir_capture_state *state, uint64_t *id)
{
    wr_cuda_frame frame;
    CUstreamCaptureStatus now = WR_CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    const CUresult code = wr_cu.cuStreamGetCaptureInfo(stream, &now, &number, NULL, NULL, NULL);
    const bool implicit = is_default(stream) && code == WR_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    WR_TRY(wr_cuda_leave(&frame, "cuStreamGetCaptureInfo", implicit ? WR_CUDA_SUCCESS : code));
    *state = implicit ? WEIR_CAPTURE_IMPLICIT : (weir_capture_state)now;
    if (now == WR_CU_STREAM_CAPTURE_STATUS_ACTIVE) *id = number;
    return WEIR_OK;
}

/* ---- the order inside a capture ---------------------------------------------------------------------------------- */

/* The nodes are copied before leaving the driver, because the array is the driver's. */
weir_status wr_cuda_capture_tips(int ordinal, void *stream, void **nodes, size_t capacity, size_t *count)
{
    wr_cuda_frame frame;
    CUstreamCaptureStatus now = WR_CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *tips = NULL;
    size_t found = 0;
    WR_TRY(wr_cuda_device_find(ordinal, &frame.device));
    if (!is_default(stream)) {
        WR_TRY(wr_cuda_enter(ordinal, &frame));
        CUresult code = wr_cu.cuStreamGetCaptureInfo(stream, &now, NULL, NULL, &tips, &found);
        bool told = code == WR_CUDA_SUCCESS && now == WR_CU_STREAM_CAPTURE_STATUS_ACTIVE;
        for (size_t i = 0; told && i < found && i < capacity; i++) nodes[i] = tips[i];
        WR_TRY(wr_cuda_leave(&frame, "cuStreamGetCaptureInfo", code));
    }
    WR_ENSURE(now == WR_CU_STREAM_CAPTURE_STATUS_ACTIVE, WEIR_ERR_CAPTURE, "cuda: capture_tips: stream %p %s", stream,
              now == WR_CU_STREAM_CAPTURE_STATUS_NONE ? "is not being captured"
                                                      : "is in an invalidated capture; end it and capture again");
    *count = found;
    return WEIR_OK;
}

/* The driver fills the array and reports how many nodes it wrote: that is all of them if there was room left. */
weir_status wr_cuda_node_dependencies(int ordinal, void *node, void **nodes, size_t capacity, size_t *count)
{
    wr_cuda_frame frame;
    size_t found = capacity;
    WR_CUDA_NEED(cuGraphNodeGetDependencies);
    WR_ENSURE(node != NULL, WEIR_ERR_INVALID_ARGUMENT, "cuda: node_dependencies: node is NULL");
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    CUresult code = WR_CUDA_SUCCESS;
    if (capacity > 0) code = wr_cu.cuGraphNodeGetDependencies(node, (CUgraphNode *)nodes, &found);
    if (code == WR_CUDA_SUCCESS && found == capacity) code = wr_cu.cuGraphNodeGetDependencies(node, NULL, &found);
    WR_TRY(wr_cuda_leave(&frame, "cuGraphNodeGetDependencies", code));
    *count = found;
    return WEIR_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

WR_MAKING_ENTRY(cuda, graph_instantiate, (int ordinal, void *graph, void **out), CUgraphExec,
                cuGraphInstantiateWithFlags, graph, 0)
WR_ENTRY(cuda, graph_launch, (int ordinal, void *exec, void *stream), cuGraphLaunch, exec, stream)
WR_ENTRY(cuda, graph_exec_destroy, (int ordinal, void *exec), cuGraphExecDestroy, exec)
WR_ENTRY(cuda, graph_destroy, (int ordinal, void *graph), cuGraphDestroy, graph)
