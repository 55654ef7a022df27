/*
 * Devices and streams as users see them.
 */
#include "base/sized.h"
#include "base/thread_number.h"
#include "device/debug.h"
#include "device/ladder.h"
#include "device/pinned.h"
#include "pool/pending.h"
#include "pool/share.h"
#include "stream/gate.h"
#include "stream/quiet.h"
#include "thread/thread.h"

#include <string.h>

/* Debug mode takes only those waits for ordered that it was told of. */
static void note_wait(const wr_device *device, const wr_stream *stream, const wr_stream *other)
{
    if (WR_UNLIKELY(device->cache.debug != NULL)) wr_debug_wait(device, stream, other);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

weir_status weir_device_count(int *count)
{
    WR_ENSURE(count, WEIR_ERR_INVALID_ARGUMENT, "weir_device_count: count is NULL");
    WR_TRY(wr_runtime_enter());
    *count = wr_runtime_global.device_count;
    return WEIR_OK;
}

weir_status weir_device_info_get(int device, weir_device_info *out)
{
    wr_device *d = NULL;
    WR_TRY(wr_sized_check_out("weir_device_info_get", "weir_device_info", out, sizeof *out));
    WR_TRY(wr_thread_resolve_device(device, &d));
    weir_device_info info = { .total_memory = d->caps.total_memory,
                              .memory_granularity = d->caps.granularity,
                              .priority_least = d->caps.priority_least,
                              .priority_greatest = d->caps.priority_greatest,
                              .compute_major = d->caps.compute_major,
                              .compute_minor = d->caps.compute_minor };
    memcpy(info.name, d->caps.name, sizeof info.name);
    strncpy(info.backend, d->backend->name, sizeof info.backend - 1);
    uint64_t total = 0;
    WR_TRY(wr_driver(d->backend, device_memory, d->ordinal, &info.free_memory, &total));
    wr_sized_give(out, &info, sizeof info);
    return WEIR_OK;
}

weir_status weir_device_get_current(int *device)
{
    WR_ENSURE(device, WEIR_ERR_INVALID_ARGUMENT, "weir_device_get_current: device is NULL");
    WR_TRY(wr_runtime_enter());
    return wr_thread_device(device);
}

weir_status weir_device_set_current(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    return wr_thread_set_device(d->ordinal);
}

weir_status weir_device_synchronize(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_TRY(wr_quiet_synchronize(&d->events, &d->streams, "weir_device_synchronize"));
    note_wait(d, NULL, NULL);
    return WEIR_OK;
}

weir_status weir_device_enable_peer(int device, int peer)
{
    wr_device *d = NULL, *p = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_TRY(wr_thread_resolve_device(peer, &p));
    if (d == p) return WEIR_OK;
    WR_TRY(wr_driver(d->backend, peer_enable, d->ordinal, p->ordinal));
    return wr_share_with(&p->cache, d->ordinal); /* the driver's word does not cover mapped memory */
}

/* ---- getting streams --------------------------------------------------------------------------------------------- */

static weir_stream named(const wr_stream *s)
{
    return (weir_stream){ atomic_load_explicit(&s->id, memory_order_relaxed) };
}

weir_status weir_stream_default(int device, weir_stream *out)
{
    wr_device *d = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_default: out is NULL");
    WR_TRY(wr_thread_resolve_device(device, &d));
    *out = named(wr_stream_default_of(&d->streams));
    return WEIR_OK;
}

/* The driver takes device memory for a stream, which may all lie idle in the cache. */
static weir_status make(weir_status (*how)(wr_stream_table *table, int priority, wr_stream **out), wr_device *device,
                        int priority, wr_stream **out)
{
    const weir_status status = how(&device->streams, priority, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    wr_device_make_room(device);
    return how(&device->streams, priority, out);
}

weir_status weir_stream_from_pool(int device, int priority, weir_stream *out)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_from_pool: out is NULL");
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_TRY(make(wr_stream_from_pool, d, priority, &s));
    *out = named(s);
    return WEIR_OK;
}

weir_status weir_stream_create(int device, int priority, weir_stream *out)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_create: out is NULL");
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_TRY(make(wr_stream_create, d, priority, &s));
    *out = named(s);
    return WEIR_OK;
}

weir_status weir_stream_from_native(int device, void *native, weir_stream *out)
{
    wr_device *d = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_from_native: out is NULL");
    WR_TRY(wr_thread_resolve_device(device, &d));
    return wr_stream_adopt(&d->streams, native, &out->id);
}

/* On all devices: blocks of any may have been recorded on the stream. */
static void end_waits(uint64_t stream_id)
{
    for (int i = 0; i < WR_DEVICE_MAX; i++) {
        wr_device *d = wr_runtime_opened(i);
        if (d) wr_pending_end_stream(&d->cache, stream_id);
    }
    wr_pinned *pinned = wr_pinned_there();
    if (pinned) wr_pending_end_stream(&pinned->cache, stream_id);
}

/* Waiting for a capturing stream, or querying it, would end its capture. */
static weir_status refuse_captured(bool captured, const char *call)
{
    WR_ENSURE(!captured, WEIR_ERR_CAPTURE,
              "%s: the stream, or one that it synchronises with, is being captured, and this call would invalidate the "
              "capture; end the capture first",
              call);
    return WEIR_OK;
}

static weir_status synchronize(const wr_device *d, const wr_stream *s, const char *call)
{
    bool captured = false;
    WR_TRY(wr_stream_ask_captured(d->backend, d->ordinal, s->native, &captured));
    WR_TRY(refuse_captured(captured, call));
    return wr_driver(d->backend, stream_synchronize, d->ordinal, s->native);
}

/* Afterwards the stream has neither blocks nor work. */
static weir_status leave_nothing_on(wr_device *d, wr_stream *s)
{
    const uint64_t waited = atomic_load_explicit(&s->queued, memory_order_acquire);
    weir_status status = synchronize(d, s, "weir_stream_destroy");
    /* Its owner has ended it, and the driver answers for the device alone. */
    if (status == WEIR_ERR_INVALID_STREAM && s->owner == WR_STREAM_FOREIGN)
        status = wr_quiet_synchronize(&d->events, &d->streams, "weir_stream_destroy");
    if (status != WEIR_OK) return status;
    note_wait(d, NULL, s);
    return wr_cache_forget_stream(&d->cache, s, wr_stream_default_of(&d->streams), waited);
}

weir_status weir_stream_destroy(weir_stream stream)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(stream.id != 0, WEIR_ERR_INVALID_ARGUMENT,
              "weir_stream_destroy: {0} means the current stream; name the stream to destroy");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    WR_ENSURE(s->owner == WR_STREAM_EXCLUSIVE || s->owner == WR_STREAM_FOREIGN, WEIR_ERR_INVALID_ARGUMENT,
              "weir_stream_destroy: %s streams belong to weir and cannot be destroyed",
              s->owner == WR_STREAM_DEFAULT ? "default" : "pooled");
    WR_ENSURE(
        wr_thread_stream(d) != s, WEIR_ERR_BUSY,
        "weir_stream_destroy: the stream is this thread's current one on device %d; make another one current first",
        d->ordinal);
    WR_ENSURE(wr_stream_claim(&d->streams, s, stream.id), WEIR_ERR_INVALID_STREAM,
              "weir_stream_destroy: another thread is destroying stream %#llx", (unsigned long long)stream.id);
    weir_status status = leave_nothing_on(d, s);
    if (status != WEIR_OK) {
        wr_stream_unclaim(&d->streams, s);
        return status;
    }
    wr_stream_withdraw(&d->streams, s);
    (void)wr_route_stream(d, s, 0, NULL); /* withdrawn, so it gets no other one */
    wr_runtime_change_ways();             /* before another stream can have its record */
    end_waits(stream.id);                 /* withdrawn, so nobody can add one any more */
    return wr_stream_retire(&d->streams, s);
}

/* ---- current streams --------------------------------------------------------------------------------------------- */

weir_status weir_stream_get_current(int device, weir_stream *out)
{
    wr_device *d = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_get_current: out is NULL");
    WR_TRY(wr_thread_resolve_device(device, &d));
    *out = (weir_stream){ wr_thread_stream_id(d) };
    return WEIR_OK;
}

weir_status weir_stream_set_current(weir_stream stream)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    return wr_thread_set_stream(d, stream.id ? stream.id : wr_thread_stream_id(d));
}

/* The library's epoch, cut to the guard's 16 bits. */
static uint16_t epoch_of_guards(void)
{
    return (uint16_t)atomic_load_explicit(&wr_runtime_global.epoch, memory_order_relaxed);
}

weir_status weir_stream_enter(weir_stream stream, weir_stream_guard *guard)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    int previous_device = 0;
    WR_ENSURE(guard, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_enter: guard is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    WR_TRY(wr_thread_device(&previous_device));
    const weir_stream previous = { wr_thread_stream_id(d) };
    WR_TRY(wr_thread_set_stream(d, stream.id ? stream.id : previous.id));
    weir_status status = wr_thread_set_device(d->ordinal);
    if (status != WEIR_OK) {
        (void)!weir_stream_set_current(previous); /* cannot fail: the context exists by now */
        return status;
    }
    *guard = (weir_stream_guard){ .previous = previous,
                                  .thread = wr_thread_number(),
                                  .previous_device = (int16_t)previous_device,
                                  .epoch = epoch_of_guards() };
    return WEIR_OK;
}

static weir_status check_guard(const weir_stream_guard *guard)
{
    WR_ENSURE(guard && guard->thread, WEIR_ERR_INVALID_ARGUMENT,
              "weir_stream_leave: the guard was not entered, or was already left");
    WR_TRY(wr_runtime_enter());
    WR_ENSURE(
        guard->epoch == epoch_of_guards(), WEIR_ERR_INVALID_ARGUMENT,
        "weir_stream_leave: the guard was entered before weir_close(), which discarded the streams that were current");
    WR_ENSURE(guard->thread == wr_thread_number(), WEIR_ERR_WRONG_THREAD,
              "weir_stream_leave: thread %u entered the guard and must be the one to leave it; this is thread %u",
              (unsigned)guard->thread, (unsigned)wr_thread_number());
    return WEIR_OK;
}

weir_status weir_stream_leave(weir_stream_guard *guard)
{
    wr_device *d = NULL;
    WR_TRY(check_guard(guard));
    WR_TRY(wr_thread_resolve_device(wr_stream_id_device(guard->previous.id), &d));
    /* If the previous stream was destroyed meanwhile, the default stream takes its place, as for a current stream. */
    const bool there = wr_stream_find(&d->streams, guard->previous.id) != NULL;
    WR_TRY(wr_thread_set_stream(d, there ? guard->previous.id : 0));
    WR_TRY(wr_thread_set_device(guard->previous_device));
    guard->thread = 0;
    return WEIR_OK;
}

/* ---- asking and using -------------------------------------------------------------------------------------------- */

weir_status weir_stream_native(weir_stream stream, void **native)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(native, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_native: native is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    *native = s->native;
    return WEIR_OK;
}

weir_status weir_stream_device(weir_stream stream, int *device)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(device, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_device: device is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    *device = d->ordinal;
    return WEIR_OK;
}

weir_status weir_stream_queued(weir_stream stream, uint64_t *count)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(count, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_queued: count is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    *count = atomic_load_explicit(&s->queued, memory_order_acquire);
    return WEIR_OK;
}

weir_status weir_stream_priority(weir_stream stream, int *priority)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(priority, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_priority: priority is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    *priority = s->priority;
    return WEIR_OK;
}

weir_status weir_stream_query(weir_stream stream)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    bool captured = false;
    wr_gate_enter(); /* so that no capture begins between the two questions */
    weir_status status = wr_stream_captured(d->backend, d->ordinal, s->native, &captured);
    if (status == WEIR_OK && !captured) status = wr_driver(d->backend, stream_query, d->ordinal, s->native);
    wr_gate_leave();
    WR_TRY(refuse_captured(captured, "weir_stream_query"));
    if (status != WEIR_OK) return status;
    note_wait(d, NULL, s);
    return WEIR_OK;
}

weir_status weir_stream_synchronize(weir_stream stream)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    weir_status status;
    void *event = NULL; /* waiting for the stream itself would end a capture that begins meanwhile */
    if (wr_event_behind(&d->events, s->native, &event) == WEIR_OK && event) {
        status = wr_driver(d->backend, event_synchronize, d->ordinal, event);
        wr_event_put(&d->events, event);
    } else {
        status = synchronize(d, s, "weir_stream_synchronize");
    }
    if (status != WEIR_OK) return status;
    note_wait(d, NULL, s);
    return WEIR_OK;
}

weir_status weir_stream_wait(weir_stream stream, weir_stream other)
{
    wr_device *d = NULL, *other_device = NULL;
    wr_stream *s = NULL, *o = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    WR_TRY(wr_thread_resolve_stream(other, &other_device, &o));
    if (s == o) return WEIR_OK;
    WR_TRY(wr_event_chain(&other_device->events, o->native, d->ordinal, s->native));
    note_wait(d, s, o);
    return WEIR_OK;
}

weir_status weir_stream_callback(weir_stream stream, void (*function)(void *argument), void *argument)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(function, WEIR_ERR_INVALID_ARGUMENT, "weir_stream_callback: function is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    return wr_driver(d->backend, stream_callback, d->ordinal, s->native, function, argument);
}

weir_status weir_copy(void *destination, const void *source, size_t bytes, weir_stream stream)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    if (bytes == 0) return WEIR_OK;
    WR_ENSURE(destination && source, WEIR_ERR_INVALID_ARGUMENT, "weir_copy: %s is NULL",
              destination ? "source" : "destination");
    WR_TRY(wr_driver(d->backend, copy, d->ordinal, s->native, destination, source, bytes));
    if (WR_UNLIKELY(d->cache.debug != NULL)) {
        wr_debug_use(d, s, source, false, "weir_copy", WR_CALLER);
        wr_debug_use(d, s, destination, true, "weir_copy", WR_CALLER);
    }
    return WEIR_OK;
}

weir_status weir_fill(void *destination, unsigned char value, size_t bytes, weir_stream stream)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    if (bytes == 0) return WEIR_OK;
    WR_ENSURE(destination, WEIR_ERR_INVALID_ARGUMENT, "weir_fill: destination is NULL");
    WR_TRY(wr_driver(d->backend, fill, d->ordinal, s->native, destination, value, bytes));
    if (WR_UNLIKELY(d->cache.debug != NULL)) wr_debug_use(d, s, destination, true, "weir_fill", WR_CALLER);
    return WEIR_OK;
}
