/*
 * Memory as users see it: check, find the context, call down.
 */
#include "base/sized.h"
#include "device/debug.h"
#include "device/ladder.h"
#include "pool/address.h"
#include "pool/front/hit.h"
#include "pool/front/post.h"
#include "pool/pending.h"
#include "pool/report/inspect.h"
#include "thread/routes.h"
#include "thread/sides.h"
#include "thread/thread.h"

/* `id`: the stream's when it was found, which another thread may have ended since. */
static weir_status alloc(wr_device *device, wr_stream *s, uint64_t id, size_t bytes, wr_site site, void **out)
{
    if (WR_UNLIKELY(bytes == 0)) {
        *out = NULL;
        return WEIR_OK;
    }
    /* A route may end, and its pool with it, between choosing the pool and allocating from it: choose again. */
    weir_status status;
    wr_route route;
    do {
        WR_TRY(wr_thread_pool(device, s, bytes, &route));
        status = WR_UNLIKELY(wr_cache_is_watched(&device->cache))
                     ? wr_debug_alloc(device, route.pool, route.name, s, id, bytes, site, out)
                     : wr_device_alloc(device, route.pool, route.name, s, id, bytes, out);
    } while (WR_UNLIKELY(status == WEIR_ERR_POOL_MISMATCH));
    return status;
}

/* The id of the stream by which the thread has found the front, whose record may be another stream's by now. */
static uint64_t id_behind(const wr_front *front)
{
    const wr_thread_known *known = &wr_thread_knows;
    for (int i = 0; i < WR_THREAD_WAYS; i++)
        if (known->of[i].front == front) return known->of[i].stream_id;
    if (known->here.front == front) return wr_thread_stream_id(wr_device_of(front->cache));
    return atomic_load_explicit(&front->stream->id, memory_order_relaxed); /* no longer known */
}

/* No current stream is given: there are fronts, so debug mode, which asks for it, is off. */
static WR_NOINLINE weir_status alloc_behind(size_t bytes, const wr_front *front, const void *caller, void **out)
{
    const uint64_t id = id_behind(front);
    if (WR_UNLIKELY(front->rest)) wr_thread_forget_ways(); /* the next request asks for the front to be used */
    return alloc(wr_device_of(front->cache), front->stream, id, bytes, (wr_site){ caller, NULL }, out);
}

/* The lock of the stream's front is held. */
static WR_NOINLINE WR_FLATTEN weir_status alloc_missed(size_t bytes, wr_front *front, const wr_front_slot *slot,
                                                       wr_bias_thread *held, const void *caller, void **out)
{
    if (wr_front_is_side(front)) front->asked_for = id_behind(front);
    return WR_LIKELY(wr_front_miss(front, slot, bytes, held, out)) ? WEIR_OK : alloc_behind(bytes, front, caller, out);
}

static WR_NOINLINE weir_status alloc_recorded(const wr_front *front, wr_block *block, wr_bias_thread *held, void **out)
{
    *out = wr_front_hand_out_recorded(front, block);
    wr_bias_release_owned(held);
    return WEIR_OK;
}

/* The slow paths are tail calls, so that a hit saves few registers. */
static WR_ALWAYS_INLINE weir_status alloc_held(size_t bytes, wr_front *front, wr_bias_thread *held, const void *caller,
                                               void **out)
{
    wr_front_slot *slot;
    wr_block *block = wr_front_hit(front, bytes, &slot);
    if (WR_UNLIKELY(!block)) return alloc_missed(bytes, front, slot, held, caller, out);
    if (WR_UNLIKELY(front->recorded)) return alloc_recorded(front, block, held, out);
    *out = wr_block_hand_out(block);
    wr_bias_release_owned(held);
    return WEIR_OK;
}

/* The thread does not remember its current stream's front, or does not own its lock. */
static WR_NOINLINE weir_status find_current(size_t bytes, const void *caller, void **out)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    const uint64_t ways = atomic_load(&wr_runtime_global.ways);
    WR_TRY(wr_thread_resolve_stream((weir_stream){ 0 }, &device, &s));
    wr_front *front = wr_thread_own_front(wr_thread_front_on(device, s));
    if (front) wr_thread_remember_here(ways, device, front);
    wr_bias_thread *self = front ? wr_bias_acquire_owned(&front->lock) : NULL;
    if (self) return alloc_held(bytes, front, self, caller, out);
    return alloc(device, s, wr_thread_stream_id(device), bytes, (wr_site){ caller, wr_thread_chosen_stream(device) },
                 out);
}

static WR_ALWAYS_INLINE weir_status alloc_on_current(size_t bytes, const void *caller, void **out)
{
    wr_front *front = wr_thread_front_here();
    wr_bias_thread *self = WR_LIKELY(front != NULL) ? wr_bias_acquire_owned(&front->lock) : NULL;
    return WR_LIKELY(self != NULL) ? alloc_held(bytes, front, self, caller, out) : find_current(bytes, caller, out);
}

weir_status weir_alloc(size_t bytes, void **out)
{
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_alloc: out is NULL");
    return alloc_on_current(bytes, WR_CALLER, out);
}

/* The thread does not remember the stream, or does not own the lock of its front. */
static WR_NOINLINE weir_status alloc_on(size_t bytes, weir_stream stream, const void *caller, void **out)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_alloc_on: out is NULL");
    if (stream.id == 0) return alloc_on_current(bytes, caller, out);
    wr_front *front = wr_thread_find_front(stream.id);
    wr_bias_thread *self = front ? wr_bias_acquire_owned(&front->lock) : NULL;
    if (self) return alloc_held(bytes, front, self, caller, out);
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    return alloc(device, s, stream.id, bytes, (wr_site){ caller, NULL }, out);
}

weir_status weir_alloc_on(size_t bytes, weir_stream stream, void **out)
{
    wr_front *front = WR_LIKELY(out != NULL) ? wr_thread_front(stream.id) : NULL;
    wr_bias_thread *self = WR_LIKELY(front != NULL) ? wr_bias_acquire_owned(&front->lock) : NULL;
    return WR_LIKELY(self != NULL) ? alloc_held(bytes, front, self, WR_CALLER, out)
                                   : alloc_on(bytes, stream, WR_CALLER, out);
}

static weir_status unknown(const char *call, const void *pointer)
{
    return wr_fail(WEIR_ERR_UNKNOWN_POINTER, "%s: %p was not allocated by weir", call, pointer);
}

static weir_status refuse_pinned(const char *call, const char *instead, const void *pointer, const wr_segment *segment)
{
    WR_ENSURE(!wr_cache_is_host(segment->cache), WEIR_ERR_UNKNOWN_POINTER,
              "%s: %p is pinned host memory from weir_pinned_alloc(); call %s instead", call, pointer, instead);
    return WEIR_OK;
}

/* In no segment: straight from the driver (debug word nosub), or unknown. */
static weir_status free_direct(void *pointer, const void *caller)
{
    wr_device *direct = wr_debug_device_of(pointer);
    if (!direct) return unknown("weir_free", pointer);
    return wr_fail_in("weir_free", wr_debug_free_direct(direct, pointer, caller));
}

static weir_status record_direct(const void *pointer, const wr_device *device)
{
    const wr_device *direct = wr_debug_device_of(pointer);
    if (!direct) return unknown("weir_record_stream", pointer);
    return wr_fail_in("weir_record_stream", wr_debug_record_direct(direct, pointer, device));
}

static WR_NOINLINE weir_status free_anything(void *pointer, const void *caller)
{
    weir_status status = WEIR_OK;
    if (WR_UNLIKELY(!pointer)) return WEIR_OK;
    WR_TRY(wr_runtime_enter());
    wr_segment *segment = wr_address_find(pointer);
    if (WR_UNLIKELY(!segment)) return free_direct(pointer, caller);
    WR_TRY(refuse_pinned("weir_free", "weir_pinned_free()", pointer, segment));
    if (WR_UNLIKELY(wr_cache_is_watched(segment->cache)))
        status =
            wr_debug_free(segment, pointer, (wr_site){ caller, wr_thread_chosen_stream(wr_device_of(segment->cache)) });
    else
        status = wr_device_free(segment, pointer);
    return WR_LIKELY(status == WEIR_OK) ? status : wr_fail_in("weir_free", status);
}

/* The lock of the block's front is not the thread's own. */
static bool free_aside(wr_front *front, wr_block *block, const void *pointer)
{
    return wr_thread_park(front, block, pointer) || wr_front_post(front, block, pointer);
}

/* The block is not in the table that the thread remembers: it is another device's, or the table has been replaced by a
 * larger one. */
static WR_NOINLINE weir_status free_by_address(void *pointer, const void *caller)
{
    const uint64_t ways = atomic_load(&wr_runtime_global.ways);
    const bool open = atomic_load_explicit(&wr_runtime_global.state, memory_order_acquire) == WR_OPEN;
    const wr_segment *segment = open ? wr_address_find(pointer) : NULL;
    wr_front *front = segment ? atomic_load_explicit(&segment->front, memory_order_acquire) : NULL;
    wr_bias_thread *self = front ? wr_bias_acquire_owned(&front->lock) : NULL;
    if (front) {
        wr_block *block = wr_starts_find(segment, pointer);
        wr_thread_remember_blocks(ways, segment->cache);
        if (self ? wr_front_park_other(front, block, pointer, self) : block && free_aside(front, block, pointer))
            return WEIR_OK;
    }
    return free_anything(pointer, caller);
}

static WR_NOINLINE weir_status free_for_other(void *pointer, const void *caller, wr_front *front, wr_block *block)
{
    return free_aside(front, block, pointer) ? WEIR_OK : free_anything(pointer, caller);
}

/* A thread that comes to own the lock of a shared front, too, goes on to use its side. */
static WR_NOINLINE weir_status free_held(void *pointer, const void *caller, wr_front *front, wr_block *block,
                                         wr_bias_thread *held)
{
    if (WR_UNLIKELY(wr_front_is_shared(front) && wr_thread_has_side(front))) {
        wr_bias_release_owned(held);
        if (wr_thread_park(front, block, pointer)) return WEIR_OK;
        held = wr_bias_acquire_owned(&front->lock);
        if (!held) return free_for_other(pointer, caller, front, block);
    }
    return wr_front_park_other(front, block, pointer, held) ? WEIR_OK : free_anything(pointer, caller);
}

weir_status weir_free(void *pointer)
{
    wr_block *block = wr_thread_block(pointer);
    wr_front *front = WR_LIKELY(block != NULL) ? wr_front_of_block(block) : NULL;
    wr_bias_thread *self = WR_LIKELY(front != NULL) ? wr_bias_acquire_owned(&front->lock) : NULL;
    if (WR_UNLIKELY(!front)) return free_by_address(pointer, WR_CALLER);
    if (WR_UNLIKELY(!self)) return free_for_other(pointer, WR_CALLER, front, block);
    if (WR_UNLIKELY(!wr_front_park(front, block, pointer))) return free_held(pointer, WR_CALLER, front, block, self);
    wr_bias_release_owned(self);
    return WEIR_OK;
}

/* Whether it is the own stream of a live block that begins there, with which nothing is to be done. That needs no lock,
 * and programs that do not know a block's stream name it for each free. */
WR_RACES static bool is_own(const void *pointer, weir_stream stream)
{
    const wr_block *block = wr_thread_block(pointer);
    const wr_front *front = block && stream.id != 0 ? wr_front_of_block(block) : NULL;
    return front && atomic_load_explicit(&front->stream->id, memory_order_relaxed) == stream.id &&
           wr_front_good(front, block, pointer);
}

weir_status weir_record_stream(const void *pointer, weir_stream stream)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    weir_status status = WEIR_OK;
    if (is_own(pointer, stream)) return WEIR_OK;
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    WR_TRY(wr_runtime_enter());
    const wr_segment *segment = wr_address_find(pointer);
    if (WR_UNLIKELY(!segment)) return record_direct(pointer, device);
    WR_TRY(refuse_pinned("weir_record_stream", "weir_pinned_record()", pointer, segment));
    if (WR_UNLIKELY(wr_cache_is_watched(segment->cache)))
        status = wr_debug_record(segment, pointer, device, s, WR_CALLER);
    else
        status = wr_pending_record(segment, pointer, s, &device->events);
    return wr_fail_in("weir_record_stream", status);
}

weir_status weir_pointer_info_get(const void *pointer, weir_pointer_info *out)
{
    WR_TRY(wr_sized_check_out("weir_pointer_info_get", "weir_pointer_info", out, sizeof *out));
    WR_TRY(wr_runtime_enter());
    const wr_segment *segment = wr_address_find(pointer);
    if (!segment) return unknown("weir_pointer_info_get", pointer);
    weir_pointer_info info = { 0 };
    WR_TRY(wr_fail_in("weir_pointer_info_get", wr_inspect_pointer(segment, pointer, &info)));
    wr_sized_give(out, &info, sizeof info);
    return WEIR_OK;
}

weir_status weir_empty_cache(int device)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_look_up_device(device, &d));
    return d ? wr_debug_empty_cache(d, WR_CALLER) : WEIR_OK;
}

weir_status weir_memory_limit_set(int device, uint64_t bytes)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_resolve_device(device, &d));
    wr_cache_lock(&d->cache);
    d->cache.limit = bytes;
    wr_cache_unlock(&d->cache);
    return WEIR_OK;
}

weir_status weir_memory_limit_get(int device, uint64_t *bytes)
{
    wr_device *d = NULL;
    WR_ENSURE(bytes, WEIR_ERR_INVALID_ARGUMENT, "weir_memory_limit_get: bytes is NULL");
    WR_TRY(wr_thread_look_up_device(device, &d));
    if (!d) {
        *bytes = wr_runtime_global.options.value[WR_OPTION_memory_limit].number;
        return WEIR_OK;
    }
    wr_cache_lock(&d->cache);
    *bytes = d->cache.limit;
    wr_cache_unlock(&d->cache);
    return WEIR_OK;
}

weir_status weir_reclaim_add(weir_reclaim_fn function, void *user)
{
    WR_ENSURE(function, WEIR_ERR_INVALID_ARGUMENT, "weir_reclaim_add: function is NULL");
    WR_TRY(wr_runtime_enter());
    return wr_runtime_reclaimer_add(function, user);
}

weir_status weir_reclaim_remove(weir_reclaim_fn function, void *user)
{
    WR_ENSURE(function, WEIR_ERR_INVALID_ARGUMENT, "weir_reclaim_remove: function is NULL");
    WR_TRY(wr_runtime_enter());
    return wr_runtime_reclaimer_remove(function, user);
}
