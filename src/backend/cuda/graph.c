#include "backend/cuda/cuda_internal.h"

/* The driver's second name for stream NULL. */
#define LEGACY_STREAM ((void *)1)

/* ---- capture -------------------------------------------------------------------------------------------------- */

weir_status wr_cuda_capture_begin(int ordinal, void *stream, weir_capture_mode mode)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuStreamBeginCapture, stream, (CUstreamCaptureMode)mode);
}

weir_status wr_cuda_capture_end(int ordinal, void *stream, void **graph)
{
    wr_cuda_frame frame;
    CUgraph made = NULL;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuStreamEndCapture, stream, &made));
    *graph = made;
    return WEIR_OK;
}

/* The default stream cannot capture. It is not asked about, because the driver answers that with an error while a
 * stream that synchronises with it is capturing. The driver knows the id of active captures only. */
weir_status wr_cuda_capture_status(int ordinal, void *stream, weir_capture_state *state, uint64_t *id)
{
    wr_cuda_frame frame;
    CUstreamCaptureStatus now = WR_CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    WR_TRY(wr_cuda_device_find(ordinal, &frame.device));
    if (stream == NULL || stream == LEGACY_STREAM) {
        *state = WEIR_CAPTURE_NONE;
        return WEIR_OK;
    }
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuStreamGetCaptureInfo, stream, &now, &number, NULL, NULL, NULL));
    *state = (weir_capture_state)now;
    if (now == WR_CU_STREAM_CAPTURE_STATUS_ACTIVE) *id = number;
    return WEIR_OK;
}

/* ---- graphs --------------------------------------------------------------------------------------------------- */

weir_status wr_cuda_graph_instantiate(int ordinal, void *graph, void **exec)
{
    wr_cuda_frame frame;
    CUgraphExec made = NULL;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    WR_TRY(wr_cuda_last(&frame, cuGraphInstantiateWithFlags, &made, graph, 0));
    *exec = made;
    return WEIR_OK;
}

weir_status wr_cuda_graph_launch(int ordinal, void *exec, void *stream)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuGraphLaunch, exec, stream);
}

weir_status wr_cuda_graph_exec_destroy(int ordinal, void *exec)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuGraphExecDestroy, exec);
}

weir_status wr_cuda_graph_destroy(int ordinal, void *graph)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    return wr_cuda_last(&frame, cuGraphDestroy, graph);
}
