#include "backend/cuda/cuda_internal.h"

/* ---- streams ----------------------------------------------------------------------------------------------------- */

WR_MAKING_ENTRY(cuda, stream_create, (int ordinal, int priority, void **out), CUstream, cuStreamCreateWithPriority,
                WR_CU_STREAM_NON_BLOCKING, priority)
WR_ENTRY(cuda, stream_destroy, (int ordinal, void *stream), cuStreamDestroy, stream)

/* A stream works in the context that it was made in, but weir's memory, events and handles are in the primary one. A
 * green context shares all of these with that one, which the second version of the driver's function answers for its
 * streams. */
weir_status wr_cuda_stream_check(int ordinal, void *stream)
{
    wr_cuda_frame frame;
    CUcontext context = NULL;
    CUgreenCtx green;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    if (wr_cu.cuStreamGetCtx_v2)
        WR_TRY(wr_cuda_last(&frame, cuStreamGetCtx_v2, stream, &context, &green));
    else
        WR_TRY(wr_cuda_last(&frame, cuStreamGetCtx, stream, &context));
    WR_ENSURE(
        context == frame.device->context, WEIR_ERR_INVALID_STREAM,
        "cuda: stream %p was not created in the primary context of device %d, the only one that weir works in; create "
        "it while that context is current (cudaSetDevice, cuDevicePrimaryCtxRetain), or use a stream of weir",
        stream, ordinal);
    return WEIR_OK;
}

WR_ENTRY(cuda, stream_query, (int ordinal, void *stream), cuStreamQuery, stream)
WR_ENTRY(cuda, stream_synchronize, (int ordinal, void *stream), cuStreamSynchronize, stream)
WR_ENTRY(cuda, stream_wait, (int ordinal, void *stream, void *event), cuStreamWaitEvent, stream, event, 0)
WR_ENTRY(cuda, stream_callback, (int ordinal, void *stream, void (*function)(void *), void *argument), cuLaunchHostFunc,
         stream, function, argument)

weir_status wr_cuda_copy(int ordinal, void *stream, void *destination, const void *source, size_t bytes)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    if (bytes == 0) return wr_cuda_leave(&frame, "copy", WR_CUDA_SUCCESS);
    return wr_cuda_last(&frame, cuMemcpyAsync, (uintptr_t)destination, (uintptr_t)source, bytes, stream);
}

weir_status wr_cuda_fill(int ordinal, void *stream, void *destination, unsigned char value, size_t bytes)
{
    wr_cuda_frame frame;
    WR_TRY(wr_cuda_enter(ordinal, &frame));
    if (bytes == 0) return wr_cuda_leave(&frame, "fill", WR_CUDA_SUCCESS);
    return wr_cuda_last(&frame, cuMemsetD8Async, (uintptr_t)destination, value, bytes, stream);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

WR_MAKING_ENTRY(cuda, event_create, (int ordinal, void **out), CUevent, cuEventCreate, WR_CU_EVENT_DISABLE_TIMING)
WR_ENTRY(cuda, event_destroy, (int ordinal, void *event), cuEventDestroy, event)
WR_ENTRY(cuda, event_record, (int ordinal, void *event, void *stream), cuEventRecord, event, stream)
WR_ENTRY(cuda, event_query, (int ordinal, void *event), cuEventQuery, event)
WR_ENTRY(cuda, event_synchronize, (int ordinal, void *event), cuEventSynchronize, event)
