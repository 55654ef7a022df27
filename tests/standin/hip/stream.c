#include "backend/host/host_internal.h"
#include "standin/hip/standin_internal.h"

#include <stdlib.h>

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* Three priorities, on the host back end's six: 0, -1 and -5. */
static int create(enum standin_call call, hipStream_t *stream, unsigned int flags, int priority)
{
    int device;
    void *made;
    TRY(standin_enter(call, &device));
    priority = priority > 0 ? 0 : priority < 0 ? -5 : -1;
    TRY(standin_last(standin_code(wr_backend_host.stream_create(device, priority, &made))));
    standin_remember(STREAM, device, (uintptr_t)made, flags); /* which take the place of a size */
    *stream = made;
    return 0;
}

hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority)
{
    if (flags > WR_hipStreamNonBlocking) return standin_last(INVALID_VALUE);
    return create(STANDIN_hipStreamCreateWithPriority, stream, flags, priority);
}

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned int flags)
{
    if (flags > WR_hipStreamNonBlocking) return standin_last(INVALID_VALUE);
    return create(STANDIN_hipStreamCreateWithFlags, stream, flags, 0);
}

hipError_t hipStreamCreate(hipStream_t *stream)
{
    return create(STANDIN_hipStreamCreate, stream, 0, 0);
}

bool standin_is_blocking(void *stream)
{
    standin_record known;
    return standin_recall(STREAM, (uintptr_t)stream, &known) == 0 && known.bytes != WR_hipStreamNonBlocking;
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
    int device;
    standin_record known;
    TRY(standin_enter_stream(STANDIN_hipStreamDestroy, stream, &device));
    if (standin_stream(stream) == NULL) return standin_last(INVALID_HANDLE);
    if (standin_forget(STREAM, (uintptr_t)stream, &known) != 0) return standin_last(standin_invalid_stream);
    standin_leave(stream, WEIR_CAPTURE_NONE);
    return standin_last(standin_forgotten(&known, wr_backend_host.stream_destroy(device, stream)));
}

hipError_t hipStreamGetPriority(hipStream_t stream, int *priority)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipStreamGetPriority, stream, &device));
    int of_host = standin_stream(stream) != NULL ? ((const wr_host_stream *)stream)->priority : -1;
    *priority = of_host == 0 ? 1 : of_host == -5 ? -1 : 0;
    return 0;
}

hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int *flags)
{
    TRY(standin_begin(STANDIN_hipStreamGetFlags));
    if (stream == NULL) return standin_last(INVALID_VALUE);
    *flags = WR_hipStreamNonBlocking;
    return 0;
}

int hipGetStreamDeviceId(hipStream_t stream)
{
    int device;
    return standin_enter_stream(STANDIN_hipGetStreamDeviceId, stream, &device) == 0 ? device : -1;
}

/* Also illegal on a stream that a capture left behind, which is invalidated by it. */
static int refuse_left(hipStream_t stream)
{
    if (standin_left(stream) == WEIR_CAPTURE_NONE) return 0;
    standin_leave(stream, WEIR_CAPTURE_INVALIDATED);
    return standin_last(CAPTURE_UNSUPPORTED);
}

/* A query of the capturing stream itself is illegal in every mode. A query of another stream is legal, as with CUDA,
 * from ROCm 6.3 on. */
hipError_t hipStreamQuery(hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipStreamQuery, stream, &device));
    TRY(refuse_left(stream));
    if (standin_stream(stream) != NULL && !standin_capturing(device, stream)) TRY(standin_last(standin_unsafe()));
    return standin_last(standin_code(wr_backend_host.stream_query(device, standin_stream(stream))));
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipStreamSynchronize, stream, &device));
    TRY(refuse_left(stream));
    if (standin_stream(stream) != NULL && !standin_capturing(device, stream)) TRY(standin_last(standin_unsafe()));
    return standin_last(standin_code(wr_backend_host.stream_synchronize(device, standin_stream(stream))));
}

/* Refused whenever anything captures, under any mode. */
hipError_t hipDeviceSynchronize(void)
{
    int device;
    TRY(standin_enter(STANDIN_hipDeviceSynchronize, &device));
    if (standin_invalidate_all()) return standin_last(CAPTURE_UNSUPPORTED);
    standin_wait_for_all(device);
    return 0;
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipStreamWaitEvent, stream, &device));
    if (flags > 1) return standin_last(INVALID_VALUE);
    int from;
    void *recorded_on;
    if (standin_recorded_before_capture(event, &from, &recorded_on)) return standin_last(CAPTURE_ISOLATION);
    /* For work outside a capture not the graph but the stream waits, and nothing is said. */
    standin_record outside;
    if (standin_capturing(device, stream) && standin_recall(RECORDED, (uintptr_t)event, &outside) == 0) return 0;
    weir_status status = wr_backend_host.stream_wait(device, standin_stream(stream), event);
    return standin_last(status == WEIR_ERR_CAPTURE ? CAPTURE_ISOLATION : standin_code(status));
}

hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void *argument)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipLaunchHostFunc, stream, &device));
    return standin_last(
        standin_work_code(wr_backend_host.stream_callback(device, standin_stream(stream), function, argument)));
}

typedef struct added {
    hipStreamCallback_t function;
    hipStream_t stream;
    void *argument;
} added;

static void run_added(void *argument)
{
    const added call = *(added *)argument;
    free(argument);
    call.function(call.stream, 0, call.argument);
}

/* Ends a capture of the stream. */
hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t function, void *argument, unsigned int flags)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipStreamAddCallback, stream, &device));
    if (function == NULL || flags != 0) return standin_last(INVALID_VALUE);
    if (standin_capturing(device, stream)) {
        (void)wr_backend_host.stream_query(device, stream);
        return standin_last(CAPTURE_UNSUPPORTED);
    }
    added *call = malloc(sizeof *call);
    if (call == NULL) abort();
    *call = (added){ function, stream, argument };
    weir_status status = wr_backend_host.stream_callback(device, standin_stream(stream), run_added, call);
    if (status != WEIR_OK) free(call);
    return standin_last(standin_work_code(status));
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static int copy(int device, void *destination, const void *source, size_t bytes, hipStream_t stream)
{
    return standin_last(
        standin_work_code(wr_backend_host.copy(device, standin_stream(stream), destination, source, bytes)));
}

/* Calls that wait for what they do are refused whenever anything captures, under any mode. */
static int finish(int device, hipStream_t stream)
{
    return standin_last(standin_code(wr_backend_host.stream_synchronize(device, standin_stream(stream))));
}

static int refuse_while_capturing(void)
{
    return standin_last(standin_invalidate_all() ? CAPTURE_IMPLICIT : 0);
}

hipError_t hipMemcpyAsync(void *destination, const void *source, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipMemcpyAsync, stream, &device));
    if (kind < 0 || kind > WR_hipMemcpyDefault) return standin_last(21);
    return copy(device, destination, source, bytes, stream);
}

hipError_t hipMemcpyPeerAsync(void *destination, int to, const void *source, int from, size_t bytes, hipStream_t stream)
{
    int device;
    (void)to;
    (void)from;
    TRY(standin_enter_stream(STANDIN_hipMemcpyPeerAsync, stream, &device));
    return copy(device, destination, source, bytes, stream);
}

hipError_t hipMemcpy(void *destination, const void *source, size_t bytes, hipMemcpyKind kind)
{
    int device;
    (void)kind;
    TRY(standin_enter(STANDIN_hipMemcpy, &device));
    TRY(refuse_while_capturing());
    TRY(copy(device, destination, source, bytes, NULL));
    return finish(device, NULL);
}

hipError_t hipMemcpyWithStream(void *destination, const void *source, size_t bytes, hipMemcpyKind kind,
                               hipStream_t stream)
{
    int device;
    (void)kind;
    TRY(standin_enter_stream(STANDIN_hipMemcpyWithStream, stream, &device));
    TRY(refuse_while_capturing());
    TRY(copy(device, destination, source, bytes, stream));
    return finish(device, stream);
}

static int copy_rows(int device, void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                     size_t width, size_t height, hipStream_t stream)
{
    for (size_t row = 0; row < height; row++)
        TRY(copy(device, (char *)destination + row * destination_pitch, (const char *)source + row * source_pitch,
                 width, stream));
    return 0;
}

hipError_t hipMemcpy2DAsync(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                            size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream)
{
    int device;
    (void)kind;
    TRY(standin_enter_stream(STANDIN_hipMemcpy2DAsync, stream, &device));
    return copy_rows(device, destination, destination_pitch, source, source_pitch, width, height, stream);
}

hipError_t hipMemcpy2D(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                       size_t width, size_t height, hipMemcpyKind kind)
{
    int device;
    (void)kind;
    TRY(standin_enter(STANDIN_hipMemcpy2D, &device));
    TRY(refuse_while_capturing());
    TRY(copy_rows(device, destination, destination_pitch, source, source_pitch, width, height, NULL));
    return finish(device, NULL);
}

/* No code is loaded, so no variable of it has an address. */
hipError_t hipMemcpyFromSymbol(void *destination, const void *symbol, size_t bytes, size_t offset, hipMemcpyKind kind)
{
    (void)destination;
    (void)symbol;
    (void)bytes;
    (void)offset;
    (void)kind;
    TRY(standin_begin(STANDIN_hipMemcpyFromSymbol));
    return standin_last(13); /* hipErrorInvalidSymbol */
}

static int fill(int device, void *destination, int value, size_t bytes, hipStream_t stream)
{
    return standin_last(standin_work_code(
        wr_backend_host.fill(device, standin_stream(stream), destination, (unsigned char)value, bytes)));
}

hipError_t hipMemsetAsync(void *destination, int value, size_t bytes, hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipMemsetAsync, stream, &device));
    return fill(device, destination, value, bytes, stream);
}

hipError_t hipMemset2DAsync(void *destination, size_t pitch, int value, size_t width, size_t height, hipStream_t stream)
{
    int device;
    TRY(standin_enter_stream(STANDIN_hipMemset2DAsync, stream, &device));
    for (size_t row = 0; row < height; row++)
        TRY(fill(device, (char *)destination + row * pitch, value, width, stream));
    return 0;
}

hipError_t hipMemset(void *destination, int value, size_t bytes)
{
    int device;
    TRY(standin_enter(STANDIN_hipMemset, &device));
    TRY(refuse_while_capturing());
    TRY(fill(device, destination, value, bytes, NULL));
    return finish(device, NULL);
}

/* ---- events: asking about one is legal during captures of others ------------------------------------------------- */

bool standin_recorded_before_capture(void *event, int *device, void **stream)
{
    standin_record known;
    weir_capture_state state;
    uint64_t id;
    if (standin_recall(RECORDED, (uintptr_t)event, &known) != 0) return false;
    *device = known.device;
    *stream = (void *)(uintptr_t)known.bytes;
    if (standin_stream(*stream) == NULL || standin_recall(STREAM, known.bytes, &known) != 0) return false;
    return standin_capture_state(*device, *stream, &state, &id) == 0 && state == WEIR_CAPTURE_ACTIVE;
}

/* Up to ROCm 7.2 at least, asking about an event ends the capture of the stream that it was last recorded on, even if
 * that was before the capture began. */
static int end_its_streams_capture(hipEvent_t event)
{
    int device;
    void *stream;
    if (!standin_recorded_before_capture(event, &device, &stream)) return 0;
    (void)wr_backend_host.stream_query(device, stream);
    return standin_last(CAPTURED_EVENT);
}

static int create_event(enum standin_call call, hipEvent_t *event, bool timed)
{
    int device;
    void *made;
    TRY(standin_enter(call, &device));
    TRY(standin_last(standin_code(wr_backend_host.event_create(device, &made))));
    if (timed) standin_remember(TIMED, device, (uintptr_t)made, 0);
    *event = made;
    return 0;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags)
{
    const unsigned int disable_timing = 2;
    return create_event(STANDIN_hipEventCreateWithFlags, event, (flags & disable_timing) == 0);
}

hipError_t hipEventCreate(hipEvent_t *event)
{
    return create_event(STANDIN_hipEventCreate, event, true);
}

hipError_t hipEventDestroy(hipEvent_t event)
{
    int device;
    standin_record known;
    TRY(standin_enter_event(STANDIN_hipEventDestroy, event, &device));
    (void)standin_forget(RECORDED, (uintptr_t)event, &known);
    (void)standin_forget(TIMED, (uintptr_t)event, &known);
    return standin_last(standin_code(wr_backend_host.event_destroy(device, event)));
}

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    int device;
    standin_record known;
    TRY(standin_enter_event(STANDIN_hipEventRecord, event, &device));
    (void)standin_forget(RECORDED, (uintptr_t)event, &known);
    if (!standin_capturing(device, stream)) standin_remember(RECORDED, device, (uintptr_t)event, (uintptr_t)stream);
    return standin_last(standin_work_code(wr_backend_host.event_record(device, event, standin_stream(stream))));
}

hipError_t hipEventQuery(hipEvent_t event)
{
    int device;
    TRY(standin_enter_event(STANDIN_hipEventQuery, event, &device));
    TRY(end_its_streams_capture(event));
    return standin_last(standin_event_code(wr_backend_host.event_query(device, event)));
}

hipError_t hipEventSynchronize(hipEvent_t event)
{
    int device;
    TRY(standin_enter_event(STANDIN_hipEventSynchronize, event, &device));
    TRY(end_its_streams_capture(event));
    return standin_last(standin_event_code(wr_backend_host.event_synchronize(device, event)));
}

/* Nothing takes time here, but a caller that divides by the time must work. Looks at no stream. An event that was
 * last recorded in a capture, or never, has no time. */
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop)
{
    int device;
    standin_record known;
    TRY(standin_enter_event(STANDIN_hipEventElapsedTime, start, &device));
    if (standin_recall(TIMED, (uintptr_t)start, &known) != 0 || standin_recall(RECORDED, (uintptr_t)start, &known) != 0)
        return standin_last(INVALID_HANDLE);
    TRY(standin_last(standin_event_code(wr_backend_host.event_query(device, start))));
    TRY(standin_last(standin_event_code(wr_backend_host.event_query(device, stop))));
    *milliseconds = 0.001f;
    return 0;
}
