#include "backend/hip/hip_internal.h"

/* The default stream, for which newer runtimes have a second name. It cannot capture. */
static bool is_default(const void *stream)
{
    return stream == NULL || stream == (const void *)1;
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

WR_ENTRY(hip, capture_begin, (int ordinal, void *stream, weir_capture_mode mode), hipStreamBeginCapture, stream,
         (hipStreamCaptureMode)mode)

/* Up to ROCm 7.2 at least, a capture that gives no graph is over, but its streams stay as they were: invalidated or,
 * after unjoined work, capturing into a graph that is gone. Neither can be used, and ending such a capture again may
 * crash. What ends the next capture of the stream puts them right. It can begin on an invalidated stream only, and a
 * query makes it one. */
static void put_right(hipStream_t stream)
{
    hipStreamCaptureStatus now = WR_hipStreamCaptureStatusNone;
    hipGraph_t empty = NULL;
    if (wr_hip_own(wr_hip_runtime.hipStreamGetCaptureInfo(stream, &now, NULL)) != WR_hipSuccess) return;
    if (now == WR_hipStreamCaptureStatusNone) return;
    if (now == WR_hipStreamCaptureStatusActive) (void)wr_hip_own(wr_hip_runtime.hipStreamQuery(stream));
    if (wr_hip_own(wr_hip_runtime.hipStreamBeginCapture(stream, WR_hipStreamCaptureModeRelaxed)) != WR_hipSuccess)
        return;
    if (wr_hip_own(wr_hip_runtime.hipStreamEndCapture(stream, &empty)) == WR_hipSuccess)
        (void)wr_hip_own(wr_hip_runtime.hipGraphDestroy(empty));
}

weir_status wr_hip_capture_end(int ordinal, void *stream, void **graph)
{
    wr_hip_frame frame;
    hipGraph_t made = NULL;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    const hipError_t code = wr_hip_own(wr_hip_runtime.hipStreamEndCapture(stream, &made));
    if (code == WR_hipErrorStreamCaptureInvalidated || code == WR_hipErrorStreamCaptureUnjoined) put_right(stream);
    WR_TRY(wr_hip_leave(&frame, "hipStreamEndCapture", code));
    *graph = made;
    return WEIR_OK;
}

/* While a stream that synchronises with the default one is capturing, work on the default stream would end that
 * capture. Asked about the default stream by its first name, which all runtimes know, the runtime reports this by an
 * error (906), which harms nothing. No other answer means anything. */
static weir_status default_status(int ordinal, weir_capture_state *state)
{
    wr_hip_frame frame;
    hipStreamCaptureStatus unused = WR_hipStreamCaptureStatusNone;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    const hipError_t code = wr_hip_own(wr_hip_runtime.hipStreamGetCaptureInfo(NULL, &unused, NULL));
    WR_TRY(wr_hip_leave(&frame, "hipStreamGetCaptureInfo", WR_hipSuccess));
    *state = code == WR_hipErrorStreamCaptureImplicit ? WEIR_CAPTURE_IMPLICIT : WEIR_CAPTURE_NONE;
    return WEIR_OK;
}

weir_status wr_hip_capture_status(int ordinal, void *stream, weir_capture_state *state, uint64_t *id)
{
    wr_hip_frame frame;
    hipStreamCaptureStatus now = WR_hipStreamCaptureStatusNone;
    unsigned long long number = 0;
    if (is_default(stream)) return default_status(ordinal, state);
    WR_TRY(wr_hip_enter(ordinal, &frame));
    WR_TRY(wr_hip_last(&frame, hipStreamGetCaptureInfo, stream, &now, &number));
    *state = (weir_capture_state)now;
    if (now == WR_hipStreamCaptureStatusActive) *id = number;
    return WEIR_OK;
}

/* ---- the order inside a capture ---------------------------------------------------------------------------------- */

/* The nodes are copied before leaving the runtime, because the array is the runtime's. */
weir_status wr_hip_capture_tips(int ordinal, void *stream, void **nodes, size_t capacity, size_t *count)
{
    wr_hip_frame frame;
    hipStreamCaptureStatus now = WR_hipStreamCaptureStatusNone;
    const hipGraphNode_t *tips = NULL;
    size_t found = 0;
    WR_TRY(wr_hip_device_find(ordinal, &frame.device));
    if (!is_default(stream)) {
        WR_TRY(wr_hip_enter(ordinal, &frame));
        hipError_t code = wr_hip_runtime.hipStreamGetCaptureInfo_v2(stream, &now, NULL, NULL, &tips, &found);
        const bool told = code == WR_hipSuccess && now == WR_hipStreamCaptureStatusActive;
        for (size_t i = 0; told && i < found && i < capacity; i++) nodes[i] = tips[i];
        WR_TRY(wr_hip_leave(&frame, "hipStreamGetCaptureInfo_v2", code));
    }
    WR_ENSURE(now == WR_hipStreamCaptureStatusActive, WEIR_ERR_CAPTURE, "hip: capture_tips: stream %p %s", stream,
              now == WR_hipStreamCaptureStatusNone ? "is not being captured"
                                                   : "is in an invalidated capture; end it and capture again");
    *count = found;
    return WEIR_OK;
}

/* The runtime fills the array and reports how many nodes it wrote: that is all of them if there was room left. */
weir_status wr_hip_node_dependencies(int ordinal, void *node, void **nodes, size_t capacity, size_t *count)
{
    wr_hip_frame frame;
    size_t found = capacity;
    WR_ENSURE(node != NULL, WEIR_ERR_INVALID_ARGUMENT, "hip: node_dependencies: node is NULL");
    WR_TRY(wr_hip_enter(ordinal, &frame));
    hipError_t code = WR_hipSuccess;
    if (capacity > 0) code = wr_hip_runtime.hipGraphNodeGetDependencies(node, (hipGraphNode_t *)nodes, &found);
    if (code == WR_hipSuccess && found == capacity)
        code = wr_hip_runtime.hipGraphNodeGetDependencies(node, NULL, &found);
    WR_TRY(wr_hip_leave(&frame, "hipGraphNodeGetDependencies", code));
    *count = found;
    return WEIR_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

WR_MAKING_ENTRY(hip, graph_instantiate, (int ordinal, void *graph, void **out), hipGraphExec_t,
                hipGraphInstantiateWithFlags, graph, 0)
WR_ENTRY(hip, graph_launch, (int ordinal, void *exec, void *stream), hipGraphLaunch, exec, stream)
WR_ENTRY(hip, graph_exec_destroy, (int ordinal, void *exec), hipGraphExecDestroy, exec)
WR_ENTRY(hip, graph_destroy, (int ordinal, void *graph), hipGraphDestroy, graph)
