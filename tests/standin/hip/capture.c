#include "standin/hip/standin_internal.h"

/* ---- capture ----------------------------------------------------------------------------------------------------- */

weir_capture_state standin_left(void *stream)
{
    standin_record known;
    return standin_recall(LEFT, (uintptr_t)stream, &known) == 0 ? (weir_capture_state)known.bytes : WEIR_CAPTURE_NONE;
}

void standin_leave(void *stream, weir_capture_state state)
{
    standin_record known;
    (void)standin_forget(LEFT, (uintptr_t)stream, &known);
    if (state != WEIR_CAPTURE_NONE) standin_remember(LEFT, 0, (uintptr_t)stream, state);
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode)
{
    TRY(standin_begin(STANDIN_hipThreadExchangeStreamCaptureMode));
    return standin_last(standin_exchange(mode));
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipStreamBeginCapture, stream, &device));
    if (standin_left(stream) == WEIR_CAPTURE_ACTIVE) return standin_last(ILLEGAL_STATE);
    standin_leave(stream, WEIR_CAPTURE_NONE);
    return standin_last(standin_capture_begin(device, stream, mode, standin_is_blocking(stream)));
}

/* A capture that gives no graph leaves the stream in the state in which it was. From then on the runtime does not find
 * the stream in its lists: it refuses another end, as that of another thread's capture, or crashes. */
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph)
{
    int device;
    void *made = NULL;
    TRY(standin_enter_stream(STANDIN_hipStreamEndCapture, stream, &device));
    if (standin_left(stream) != WEIR_CAPTURE_NONE) return standin_last(CAPTURE_WRONG_THREAD);
    int code = standin_capture_end(device, stream, &made);
    if (code == CAPTURE_INVALIDATED) standin_leave(stream, WEIR_CAPTURE_INVALIDATED);
    if (code == CAPTURE_UNJOINED) standin_leave(stream, WEIR_CAPTURE_ACTIVE);
    *graph = made;
    return standin_last(code);
}

hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id)
{
    int device;
    weir_capture_state state;
    uint64_t number = 0;
    TRY(standin_enter_stream(STANDIN_hipStreamGetCaptureInfo, stream, &device));
    TRY(standin_last(standin_implicit(device, stream, false)));
    TRY(standin_last(standin_capture_state(device, stream, &state, &number)));
    if (state == WEIR_CAPTURE_NONE) state = standin_left(stream);
    *status = (hipStreamCaptureStatus)state;
    if (state == WEIR_CAPTURE_ACTIVE && id != NULL) *id = number;
    return 0;
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status, unsigned long long *id,
                                      hipGraph_t *graph, const hipGraphNode_t **dependencies, size_t *count)
{
    int device;
    weir_capture_state state;
    uint64_t number = 0;
    TRY(standin_enter_stream(STANDIN_hipStreamGetCaptureInfo_v2, stream, &device));
    if (graph != NULL) return standin_last(NOT_SUPPORTED);
    TRY(standin_last(standin_capture_state(device, stream, &state, &number)));
    *status = (hipStreamCaptureStatus)state;
    if (state != WEIR_CAPTURE_ACTIVE) return 0;
    if (id != NULL) *id = number;
    if (dependencies == NULL) return 0;
    return standin_last(standin_capture_tips(device, stream, number, (void *const **)dependencies, count));
}

/* If the array has room to spare, its unused entries become NULL; else *count is the number of entries written. */
hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t *dependencies, size_t *count)
{
    int device;
    size_t found;
    TRY(standin_enter(STANDIN_hipGraphNodeGetDependencies, &device));
    if (dependencies == NULL)
        return standin_last(standin_code(wr_backend_host.node_dependencies(device, node, NULL, 0, count)));
    const size_t room = *count;
    TRY(standin_last(
        standin_code(wr_backend_host.node_dependencies(device, node, (void **)dependencies, room, &found))));
    for (size_t i = found; i < room; i++) dependencies[i] = NULL;
    if (found < room) *count = found;
    return 0;
}

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status)
{
    int device;
    weir_capture_state state;
    uint64_t id;
    TRY(standin_enter_stream(STANDIN_hipStreamIsCapturing, stream, &device));
    TRY(standin_last(standin_capture_state(device, stream, &state, &id)));
    if (state == WEIR_CAPTURE_NONE) state = standin_left(stream);
    *status = (hipStreamCaptureStatus)state;
    return 0;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long flags)
{
    int device;
    void *made;
    TRY(standin_enter_event(STANDIN_hipGraphInstantiateWithFlags, graph, &device));
    if (flags != 0) return standin_last(INVALID_VALUE);
    TRY(standin_last(standin_code(wr_backend_host.graph_instantiate(device, graph, &made))));
    *exec = made;
    return 0;
}

hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipGraphLaunch, stream, &device));
    return standin_last(standin_work_code(wr_backend_host.graph_launch(device, exec, standin_stream(stream))));
}

hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
    int device;
    TRY(standin_enter_event(STANDIN_hipGraphExecDestroy, exec, &device));
    return standin_last(standin_code(wr_backend_host.graph_exec_destroy(device, exec)));
}

hipError_t hipGraphDestroy(hipGraph_t graph)
{
    int device;
    TRY(standin_enter_event(STANDIN_hipGraphDestroy, graph, &device));
    return standin_last(standin_code(wr_backend_host.graph_destroy(device, graph)));
}
