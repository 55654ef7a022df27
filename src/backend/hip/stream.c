#include "backend/hip/hip_internal.h"
#include "base/backoff.h"
#include "base/lock.h"
#include "base/meta.h"

#include <sys/queue.h>

/* ---- streams that are not in use -------------------------------------------------------------------------------

 * When a handle of rocBLAS, or of a library with a rocBLAS handle inside, is bound to a stream, the library asks the
 * runtime about the stream that the handle was bound to before. Newer runtimes do not notice that this one was
 * destroyed meanwhile and read freed memory. A handle outlives its thread and the thread's stream, so streams are
 * destroyed only with their device; an unused one is kept for the next request for its priority. */

typedef struct idle_stream {
    LIST_ENTRY(idle_stream) link;
    hipStream_t stream;
    int priority;
} idle_stream;

static wr_lock idle_lock = WR_LOCK_INITIALIZER(WR_RANK_BACKEND, "idle streams of hip");
static LIST_HEAD(, idle_stream) idle[WR_HIP_DEVICES_MAX]; /* by device */

static idle_stream *take_idle(int ordinal, int priority)
{
    idle_stream *found;
    wr_lock_acquire(&idle_lock);
    LIST_FOREACH(found, &idle[ordinal], link)
        if (found->priority == priority) break;
    if (found != NULL) LIST_REMOVE(found, link);
    wr_lock_release(&idle_lock);
    return found;
}

static void keep_idle(int ordinal, idle_stream *stream)
{
    wr_lock_acquire(&idle_lock);
    LIST_INSERT_HEAD(&idle[ordinal], stream, link);
    wr_lock_release(&idle_lock);
}

void wr_hip_streams_drop(int ordinal)
{
    wr_hip_frame frame;
    const bool alive = wr_hip_enter(ordinal, &frame) == WEIR_OK;
    idle_stream *gone;
    while ((gone = LIST_FIRST(&idle[ordinal])) != NULL) {
        LIST_REMOVE(gone, link);
        /* On failure it is the runtime's to clean up. */
        if (alive) (void)wr_hip_own(wr_hip_runtime.hipStreamDestroy(gone->stream));
        wr_meta_free(gone);
    }
    if (alive) (void)!wr_hip_leave(&frame, "hipStreamDestroy", WR_hipSuccess);
}

/* An idle stream whose last work is over; NULL: there is none. */
static hipStream_t reuse(int ordinal, int priority)
{
    idle_stream *found = take_idle(ordinal, priority);
    if (found == NULL) return NULL;
    hipStream_t stream = found->stream;
    if (wr_hip_own(wr_hip_runtime.hipStreamQuery(stream)) != WR_hipSuccess) {
        keep_idle(ordinal, found);
        return NULL;
    }
    wr_meta_free(found);
    return stream;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

weir_status wr_hip_stream_create(int ordinal, int priority, void **out)
{
    wr_hip_frame frame;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    hipStream_t made = reuse(ordinal, priority);
    if (made != NULL)
        WR_TRY(wr_hip_leave(&frame, "hipStreamQuery", WR_hipSuccess));
    else
        WR_TRY(wr_hip_last(&frame, hipStreamCreateWithPriority, &made, WR_hipStreamNonBlocking, priority));
    *out = made;
    return WEIR_OK;
}

/* A capturing stream is not kept but destroyed, which ends the capture. */
static bool can_be_kept(hipStream_t stream, int *priority)
{
    hipStreamCaptureStatus capturing = WR_hipStreamCaptureStatusNone;
    return wr_hip_own(wr_hip_runtime.hipStreamGetCaptureInfo(stream, &capturing, NULL)) == WR_hipSuccess &&
           capturing == WR_hipStreamCaptureStatusNone &&
           wr_hip_own(wr_hip_runtime.hipStreamGetPriority(stream, priority)) == WR_hipSuccess;
}

weir_status wr_hip_stream_destroy(int ordinal, void *stream)
{
    wr_hip_frame frame;
    void *memory = NULL;
    int priority = 0;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    if (stream == NULL || !can_be_kept(stream, &priority) ||
        wr_meta_alloc(sizeof(idle_stream), "an idle stream", &memory) != WEIR_OK)
        return wr_hip_last(&frame, hipStreamDestroy, stream);
    idle_stream *kept = memory;
    *kept = (idle_stream){ .stream = stream, .priority = priority };
    keep_idle(ordinal, kept);
    return wr_hip_leave(&frame, "hipStreamDestroy", WR_hipSuccess);
}

/* The runtime accepts a stream of another device in some calls and refuses it in others, so weir checks. Before ROCm 6
 * the runtime takes any pointer for a stream, so it is not asked. */
weir_status wr_hip_stream_check(int ordinal, void *stream)
{
    wr_hip_frame frame;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    const bool checks = wr_hip_runtime.hipGetDevicePropertiesR0600 != NULL;
    const bool asked = checks && stream != NULL && wr_hip_runtime.hipGetStreamDeviceId != NULL;
    const int owner = asked ? wr_hip_runtime.hipGetStreamDeviceId(stream) : ordinal;
    WR_TRY(wr_hip_leave(&frame, "hipGetStreamDeviceId", WR_hipSuccess));
    WR_ENSURE(owner >= 0, WEIR_ERR_INVALID_STREAM, "hip: the runtime does not know stream %p; was it destroyed?",
              stream);
    WR_ENSURE(owner == ordinal, WEIR_ERR_INVALID_STREAM,
              "hip: stream %p belongs to device %d, not to device %d; use it with its own device", stream, owner,
              ordinal);
    return WEIR_OK;
}

WR_ENTRY(hip, stream_query, (int ordinal, void *stream), hipStreamQuery, stream)
WR_ENTRY(hip, stream_synchronize, (int ordinal, void *stream), hipStreamSynchronize, stream)
WR_ENTRY(hip, stream_wait, (int ordinal, void *stream, void *event), hipStreamWaitEvent, stream, event, 0)

/* The argument of hipStreamAddCallback(); freed when it has run. */
typedef struct callback {
    void (*function)(void *);
    void *argument;
} callback;

static void run_callback(hipStream_t stream, hipError_t status, void *argument)
{
    const callback call = *(callback *)argument;
    (void)stream;
    (void)status; /* as with hipLaunchHostFunc(), the function runs whatever became of the work before it */
    wr_meta_free(argument);
    call.function(call.argument);
}

/* For ROCm before 5.3, which has only this function; it ends a capture in which it is called. */
static weir_status add_callback(int ordinal, void *stream, void (*function)(void *), void *argument)
{
    wr_hip_frame frame;
    weir_capture_state state = WEIR_CAPTURE_NONE;
    uint64_t id;
    void *memory = NULL;
    WR_TRY(wr_hip_capture_status(ordinal, stream, &state, &id));
    WR_ENSURE(state == WEIR_CAPTURE_NONE, WEIR_ERR_NOT_SUPPORTED,
              "hip: this runtime cannot capture callbacks, which needs hipLaunchHostFunc; update to ROCm 5.3 or later");
    WR_TRY(wr_meta_alloc(sizeof(callback), "a callback", &memory));
    *(callback *)memory = (callback){ function, argument };
    weir_status status = wr_hip_enter(ordinal, &frame);
    if (status == WEIR_OK) status = wr_hip_last(&frame, hipStreamAddCallback, stream, run_callback, memory, 0);
    if (status != WEIR_OK) wr_meta_free(memory);
    return status;
}

weir_status wr_hip_stream_callback(int ordinal, void *stream, void (*function)(void *), void *argument)
{
    wr_hip_frame frame;
    if (wr_hip_runtime.hipLaunchHostFunc == NULL) return add_callback(ordinal, stream, function, argument);
    WR_TRY(wr_hip_enter(ordinal, &frame));
    return wr_hip_last(&frame, hipLaunchHostFunc, stream, function, argument);
}

weir_status wr_hip_copy(int ordinal, void *stream, void *destination, const void *source, size_t bytes)
{
    wr_hip_frame frame;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    if (bytes == 0) return wr_hip_leave(&frame, "copy", WR_hipSuccess);
    return wr_hip_last(&frame, hipMemcpyAsync, destination, source, bytes, WR_hipMemcpyDefault, stream);
}

weir_status wr_hip_fill(int ordinal, void *stream, void *destination, unsigned char value, size_t bytes)
{
    wr_hip_frame frame;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    if (bytes == 0) return wr_hip_leave(&frame, "fill", WR_hipSuccess);
    return wr_hip_last(&frame, hipMemsetAsync, destination, value, bytes, stream);
}

/* ---- events ------------------------------------------------------------------------------------------------------

 * Up to ROCm 7.2 at least, hipEventQuery() and hipEventSynchronize() look at the stream on which the event was last
 * recorded. If that captures now, they end the capture, although the event was recorded before it began; and if it was
 * destroyed, they read freed memory. The time between an event and itself is told as soon as the event has happened,
 * and no stream is looked at. It takes events with timing; the runtime puts time stamps into all of them. */

WR_MAKING_ENTRY(hip, event_create, (int ordinal, void **out), hipEvent_t, hipEventCreateWithFlags, WR_hipEventDefault)
WR_ENTRY(hip, event_destroy, (int ordinal, void *event), hipEventDestroy, event)
WR_ENTRY(hip, event_record, (int ordinal, void *event, void *stream), hipEventRecord, event, stream)

/* An event without a time was never recorded, or only in a capture: hipEventQuery() tells which. If it was recorded
 * outside before, the answer is of that record; weir asks about no event that a capture may have (stream/event.c).
 * *call: the function whose answer it is. */
static hipError_t ask(hipEvent_t event, const char **call)
{
    float unused;
    *call = "hipEventElapsedTime";
    const hipError_t code = wr_hip_own(wr_hip_runtime.hipEventElapsedTime(&unused, event, event));
    if (code != WR_hipErrorInvalidHandle) return code;
    *call = "hipEventQuery";
    return wr_hip_runtime.hipEventQuery(event);
}

weir_status wr_hip_event_query(int ordinal, void *event)
{
    wr_hip_frame frame;
    const char *call = NULL;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    const hipError_t code = ask(event, &call);
    return wr_hip_leave(&frame, call, code);
}

weir_status wr_hip_event_synchronize(int ordinal, void *event)
{
    wr_hip_frame frame;
    const char *call = NULL;
    WR_TRY(wr_hip_enter(ordinal, &frame));
    hipError_t code = ask(event, &call);
    for (wr_backoff b = { 0 }; code == WR_hipErrorNotReady; code = ask(event, &call)) wr_backoff_wait(&b);
    return wr_hip_leave(&frame, call, code);
}
