#include "standin/cuda/standin_internal.h"

/* ---- capture ----------------------------------------------------------------------------------------------------- */

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    TRY(standin_begin(STANDIN_cuThreadExchangeStreamCaptureMode));
    return standin_exchange(mode);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    int device;
    TRY(standin_enter_on(stream, STANDIN_cuStreamBeginCapture, &device));
    return standin_capture_begin(device, stream, mode, standin_is_blocking(stream));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    int device;
    void *made = NULL;
    TRY(standin_enter_on(stream, STANDIN_cuStreamEndCapture, &device));
    CUresult code = standin_capture_end(device, stream, &made);
    *graph = made;
    return code;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count)
{
    int device;
    weir_capture_state state;
    uint64_t number = 0;
    TRY(standin_enter_on(stream, STANDIN_cuStreamGetCaptureInfo, &device));
    if (graph != NULL) return WR_CUDA_ERROR_NOT_SUPPORTED;
    TRY(standin_implicit(device, stream, false));
    TRY(standin_capture_state(device, stream, &state, &number));
    *status = (CUstreamCaptureStatus)state;
    if (state != WEIR_CAPTURE_ACTIVE) return WR_CUDA_SUCCESS;
    if (id != NULL) *id = number;
    if (dependencies == NULL) return WR_CUDA_SUCCESS;
    return standin_capture_tips(device, stream, number, (void *const **)dependencies, count);
}

/* If the array has room to spare, its unused entries become NULL; else *count is the number of entries written. */
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

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

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
    TRY(standin_enter_on(stream, STANDIN_cuGraphLaunch, &device));
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
