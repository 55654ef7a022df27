#include "backend/host/host_internal.h"

#include <inttypes.h>

weir_status wr_host_stream_find(int device, void *native, wr_host_stream **out)
{
    wr_host_stream *stream = native != NULL ? native : wr_host.devices[device].default_stream;
    WR_ENSURE(stream->magic == WR_HOST_IS_STREAM, WEIR_ERR_INVALID_STREAM, "host: %p is not a stream, or was destroyed",
              native);
    WR_ENSURE(stream->device == device, WEIR_ERR_WRONG_DEVICE, "host: stream %p belongs to device %d, not to device %d",
              native, stream->device, device);
    *out = stream;
    return WEIR_OK;
}

/* Records `work` if the stream captures, else runs or queues it. Takes over the work's references on success. */
WR_CHECKED static weir_status take(wr_host_stream *stream, const wr_host_work *work)
{
    if (atomic_load(&stream->capture) != NULL) return wr_host_capture_add(stream, work);
    return wr_host_submit(stream, work, NULL);
}

weir_status wr_host_stream_enter(enum weir_backend_entry entry, int ordinal, void *native, wr_host_stream **stream)
{
    wr_host_device *device;
    WR_TRY(wr_host_enter(entry, ordinal, &device));
    return wr_host_stream_find(ordinal, native, stream);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Forgets destroyed streams whose worker has ended meanwhile. */
static void reap(wr_host_device *device)
{
    TAILQ_HEAD(, wr_host_stream) ended = TAILQ_HEAD_INITIALIZER(ended);
    wr_host_stream *stream, *next;
    if (atomic_load(&device->leaving) == 0) return;

    wr_lock_acquire(&device->list_lock);
    for (stream = TAILQ_FIRST(&device->streams); stream != NULL; stream = next) {
        next = TAILQ_NEXT(stream, link);
        if (!stream->leaving || atomic_load(&stream->worker) != WR_HOST_WORKER_ENDED) continue;
        TAILQ_REMOVE(&device->streams, stream, link);
        TAILQ_INSERT_TAIL(&ended, stream, link);
        atomic_fetch_sub(&device->leaving, 1);
    }
    wr_lock_release(&device->list_lock);

    while ((stream = TAILQ_FIRST(&ended)) != NULL) {
        TAILQ_REMOVE(&ended, stream, link);
        wr_host_stream_join(stream);
        wr_host_stream_unref(stream);
    }
}

weir_status wr_host_stream_create(int ordinal, int priority, void **out)
{
    wr_host_device *device;
    wr_host_stream *stream;
    WR_TRY(wr_host_enter(WEIR_BACKEND_stream_create, ordinal, &device));
    WR_ENSURE(out != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: stream_create: stream is NULL");
    WR_ENSURE(priority <= WR_HOST_PRIORITY_LEAST && priority >= WR_HOST_PRIORITY_GREATEST, WEIR_ERR_INVALID_ARGUMENT,
              "host: stream_create: priority %d is out of range; it must be from %d to %d", priority,
              WR_HOST_PRIORITY_GREATEST, WR_HOST_PRIORITY_LEAST);
    reap(device);
    WR_TRY(wr_host_stream_new(ordinal, priority, &stream));
    *out = stream;
    return WEIR_OK;
}

weir_status wr_host_stream_destroy(int ordinal, void *native)
{
    wr_host_device *device;
    wr_host_stream *stream;
    WR_TRY(wr_host_enter(WEIR_BACKEND_stream_destroy, ordinal, &device));
    WR_ENSURE(native != NULL && native != device->default_stream, WEIR_ERR_INVALID_ARGUMENT,
              "host: stream_destroy: the default stream cannot be destroyed");
    WR_TRY(wr_host_stream_find(ordinal, native, &stream));
    WR_ENSURE(atomic_load(&stream->capture) == NULL, WEIR_ERR_CAPTURE,
              "host: stream_destroy: stream %p is being captured; end the capture first", native);
    WR_TRY(wr_host_stream_unhold(stream, true));

    wr_lock_acquire(&device->list_lock);
    bool leaving = stream->leaving = atomic_load(&stream->worker) != WR_HOST_NO_WORKER;
    if (leaving)
        atomic_fetch_add(&device->leaving, 1);
    else
        TAILQ_REMOVE(&device->streams, stream, link);
    wr_lock_release(&device->list_lock);
    if (!leaving) wr_host_stream_unref(stream);
    reap(device);
    return WEIR_OK;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

weir_status wr_host_stream_check(int ordinal, void *native)
{
    wr_host_stream *stream;
    weir_status status = wr_host_stream_enter(WEIR_BACKEND_stream_check, ordinal, native, &stream);
    if (status == WEIR_ERR_WRONG_DEVICE)
        status = wr_fail(WEIR_ERR_INVALID_STREAM, "%s; use it with its own device", weir_error_text());
    return status;
}

weir_status wr_host_stream_query(int ordinal, void *native)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_stream_query, ordinal, native, &stream));
    WR_TRY(wr_host_capture_refuse_stream(stream, "stream_query"));
    return wr_host_stream_idle(stream) ? WEIR_OK : WEIR_ERR_NOT_READY;
}

static weir_status wait_for(int ordinal, const wr_host_fence *fence)
{
    wr_host_fence_reach(fence);
    WR_ENSURE(!atomic_load(&wr_host.devices[ordinal].lost), WEIR_ERR_DEVICE_LOST,
              "host: device %d was lost while waiting for its work; close the library and open it again", ordinal);
    return WEIR_OK;
}

weir_status wr_host_stream_synchronize(int ordinal, void *native)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_stream_synchronize, ordinal, native, &stream));
    WR_TRY(wr_host_capture_refuse_stream(stream, "stream_synchronize"));
    wr_host_fence fence = { stream, atomic_load(&stream->queued) };
    return wait_for(ordinal, &fence);
}

weir_status wr_host_device_synchronize(int ordinal)
{
    wr_host_device *device;
    wr_host_stream *stream;
    uint64_t serial = 0;
    WR_TRY(wr_host_enter(WEIR_BACKEND_device_synchronize, ordinal, &device));
    WR_TRY(wr_host_capture_refuse_device(ordinal, "device_synchronize"));
    while ((stream = wr_host_stream_after(device, serial, true)) != NULL) {
        serial = stream->serial;
        wr_host_fence fence = { stream, atomic_load(&stream->queued) };
        weir_status status = wait_for(ordinal, &fence);
        wr_host_stream_unref(stream);
        WR_TRY(status);
    }
    return WEIR_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* A wait for what has already completed queues nothing, even on a held stream. */
weir_status wr_host_stream_wait(int ordinal, void *native, void *event)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_stream_wait, ordinal, native, &stream));
    int event_device = event != NULL ? ((wr_host_object *)event)->device : ordinal;
    WR_TRY(wr_host_object_check(event, WR_HOST_IS_EVENT, event_device));

    wr_host_target target = wr_host_event_target(event);
    weir_status status = WEIR_OK;
    if (target.recorded && (target.capture != 0 || atomic_load(&stream->capture) != NULL)) {
        status = wr_host_capture_wait(stream, &target);
    } else if (target.fence.stream != stream && !wr_host_fence_passed(&target.fence)) {
        wr_host_work wait = { .kind = WR_HOST_WAIT, .fence = target.fence };
        status = wr_host_submit(stream, &wait, NULL);
        if (status == WEIR_OK) return WEIR_OK;
    }
    wr_host_fence_drop(&target.fence);
    return status;
}

weir_status wr_host_stream_callback(int ordinal, void *native, void (*function)(void *), void *argument)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_stream_callback, ordinal, native, &stream));
    WR_ENSURE(function != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: stream_callback: function is NULL");
    wr_host_work work = { .kind = WR_HOST_CALL, .call = { function, argument } };
    return take(stream, &work);
}

static weir_status check_contents(const char *call)
{
    WR_ENSURE(!atomic_load_explicit(&wr_host.hollow, memory_order_relaxed), WEIR_ERR_NOT_SUPPORTED,
              "host: %s: device memory has no contents (weir_host_omit_contents)", call);
    return WEIR_OK;
}

weir_status wr_host_copy(int ordinal, void *native, void *destination, const void *source, size_t bytes)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_copy, ordinal, native, &stream));
    WR_TRY(check_contents("copy"));
    if (bytes == 0) return WEIR_OK;
    WR_ENSURE(destination != NULL && source != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: copy: %s is NULL",
              destination == NULL ? "destination" : "source");
    wr_host_work work = { .kind = WR_HOST_COPY,
                          .memory = { .destination = destination, .source = source, .bytes = bytes } };
    return take(stream, &work);
}

weir_status wr_host_fill(int ordinal, void *native, void *destination, unsigned char value, size_t bytes)
{
    wr_host_stream *stream;
    WR_TRY(wr_host_stream_enter(WEIR_BACKEND_fill, ordinal, native, &stream));
    WR_TRY(check_contents("fill"));
    if (bytes == 0) return WEIR_OK;
    WR_ENSURE(destination != NULL, WEIR_ERR_INVALID_ARGUMENT, "host: fill: destination is NULL");
    wr_host_work work = { .kind = WR_HOST_FILL,
                          .memory = { .destination = destination, .bytes = bytes, .value = value } };
    return take(stream, &work);
}

/* ---- weir/host.h ------------------------------------------------------------------------------------------------- */

static weir_status find_for_script(const char *call, int ordinal, void *native, wr_host_stream **stream)
{
    wr_host_device *device;
    WR_TRY(wr_host_check_open(call));
    WR_TRY(wr_host_device_find(ordinal, &device));
    return wr_host_stream_find(ordinal, native, stream);
}

weir_status weir_host_stream_hold(int device, void *native)
{
    wr_host_stream *stream;
    WR_TRY(find_for_script("weir_host_stream_hold", device, native, &stream));
    wr_host_stream_hold(stream);
    return WEIR_OK;
}

weir_status weir_host_stream_step(int device, void *native, uint64_t count, uint64_t *ran)
{
    wr_host_stream *stream;
    WR_TRY(find_for_script("weir_host_stream_step", device, native, &stream));
    WR_ENSURE(ran != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_stream_step: ran is NULL");
    WR_ENSURE(atomic_load(&stream->held), WEIR_ERR_INVALID_ARGUMENT,
              "weir_host_stream_step: stream %p runs by itself; hold it with weir_host_stream_hold() first", native);
    *ran = wr_host_stream_run(stream, count);
    return WEIR_OK;
}

weir_status weir_host_stream_queued(int device, void *native, uint64_t *count)
{
    wr_host_stream *stream;
    WR_TRY(find_for_script("weir_host_stream_queued", device, native, &stream));
    WR_ENSURE(count != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_host_stream_queued: count is NULL");
    wr_lock_acquire(&stream->lock);
    *count = atomic_load(&stream->queued) - atomic_load(&stream->done);
    wr_lock_release(&stream->lock);
    return WEIR_OK;
}

weir_status weir_host_stream_release(int device, void *native)
{
    wr_host_stream *stream;
    WR_TRY(find_for_script("weir_host_stream_release", device, native, &stream));
    if (!atomic_load(&stream->held)) return WEIR_OK;
    wr_host_stream_run(stream, UINT64_MAX);
    return wr_host_stream_unhold(stream, false);
}
