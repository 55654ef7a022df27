/*
 * Memory pools as users see them: check, find the pool, call down.
 */
#include "base/meta.h"
#include "base/sized.h"
#include "device/debug.h"
#include "device/ladder.h"
#include "pool/checkpoint.h"
#include "pool/front/hit.h"
#include "pool/report/inspect.h"
#include "pool/source.h"
#include "thread/routes.h"

#include <string.h>

/* The pool that a user's id names; {0, 0} is the default pool of the current device. A private pool may be gone by the
 * time that its name is checked under its cache's lock. */
static weir_status find(weir_mempool id, wr_mempool **out, wr_mempool_name *name)
{
    wr_device *device = NULL;
    WR_TRY(wr_runtime_enter());
    if (id.user == 0 && id.capture == 0) {
        WR_TRY(wr_thread_resolve_device(WEIR_DEVICE_CURRENT, &device));
        *out = device->cache.pools;
        *name = 0;
        return WEIR_OK;
    }
    wr_mempool *pool = NULL;
    WR_TRY(wr_mempool_find(id, name, &pool));
    WR_ENSURE(pool, WEIR_ERR_POOL_MISMATCH,
              "memory pool {%llu, %llu} does not exist yet: the first capture that names it creates it",
              (unsigned long long)id.capture, (unsigned long long)id.user);
    *out = pool;
    return WEIR_OK;
}

/* As find, and takes a reference, which keeps the pool; a default pool stays anyway and gets none. */
static weir_status find_and_hold(weir_mempool id, wr_holder holder, wr_mempool **out)
{
    wr_mempool_name name = 0;
    wr_mempool *pool = NULL;
    WR_TRY(find(id, &pool, &name));
    if (name != 0) WR_TRY(wr_mempool_ref(pool, name, holder));
    *out = pool;
    return WEIR_OK;
}

static void let_go(wr_mempool *pool)
{
    if (pool->is_private) (void)wr_mempool_unref(pool, wr_mempool_name_of(pool), WR_HELD_BY_ROUTE);
}

/* ---- coming and going -------------------------------------------------------------------------------------------- */

static weir_status check_options(const weir_mempool_options *o)
{
    WR_TRY(wr_sized_check_in("weir_mempool_create", "options", "WEIR_MEMPOOL_OPTIONS_INIT", o, sizeof *o));
    WR_ENSURE(o->device != WEIR_DEVICE_UNNAMED, WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_create: options.device is not set; set it to the one device that the pool is for, or to "
              "WEIR_DEVICE_CURRENT");
    WR_ENSURE((o->alignment & (o->alignment - 1)) == 0 && o->alignment <= WR_SEGMENT_UNIT, WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_create: options.alignment is %llu, which is not a power of two up to 2 MiB",
              (unsigned long long)o->alignment);
    WR_ENSURE(!o->source || (o->source->alloc && o->source->free), WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_create: options.source needs both alloc and free");
    WR_ENSURE(
        !o->source || o->memory == WEIR_MEMORY_DEVICE, WEIR_ERR_INVALID_ARGUMENT,
        "weir_mempool_create: options.memory is the kind of memory that weir takes from the driver; a pool with a "
        "source of its own takes none, so leave it WEIR_MEMORY_DEVICE");
    WR_ENSURE(!(o->deterministic && o->use_on_oom), WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_create: a pool that lends (use_on_oom) cannot be deterministic");
    WR_ENSURE(!o->use_on_oom || (o->memory != WEIR_MEMORY_MANAGED && o->memory != WEIR_MEMORY_PINNED),
              WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_create: a pool of managed or pinned memory cannot lend (use_on_oom); only pools of device "
              "memory can");
    WR_ENSURE(memchr(o->tag, 0, sizeof o->tag), WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_create: options.tag is not terminated; it holds at most %zu characters and a zero",
              sizeof o->tag - 1);
    return WEIR_OK;
}

weir_status weir_mempool_create(const weir_mempool_options *options, weir_mempool *out)
{
    wr_device *device = NULL;
    wr_mempool_name name = 0;
    wr_mempool *pool = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_mempool_create: out is NULL");
    WR_TRY(check_options(options));
    WR_TRY(wr_thread_resolve_device(options->device, &device));
    if (!options->source) WR_TRY(wr_source_check(device->backend, device->ordinal, options->memory));
    wr_mempool_tidy(&device->cache);
    WR_TRY(wr_mempool_create_new(&device->cache, options, WR_HELD_BY_USER, &name, &pool));
    *out = wr_mempool_id_of(name);
    return WEIR_OK;
}

weir_status weir_mempool_reserve(weir_mempool *out)
{
    wr_mempool_name name = 0;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_mempool_reserve: out is NULL");
    WR_TRY(wr_runtime_enter());
    WR_TRY(wr_mempool_name_new(true, &name));
    *out = wr_mempool_id_of(name);
    return WEIR_OK;
}

weir_status weir_mempool_ref(weir_mempool pool)
{
    wr_mempool *found = NULL;
    return find_and_hold(pool, WR_HELD_BY_USER, &found);
}

weir_status weir_mempool_unref(weir_mempool pool)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_TRY(wr_runtime_enter());
    if (wr_mempool_name_return(wr_mempool_name_from(pool))) return WEIR_OK;
    WR_TRY(find(pool, &found, &name));
    if (name == 0) return WEIR_OK;
    wr_mempool_tidy(found->cache);
    return wr_mempool_unref(found, name, WR_HELD_BY_USER);
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */

weir_status weir_mempool_enter(weir_mempool pool)
{
    wr_mempool *found = NULL;
    WR_TRY(find_and_hold(pool, WR_HELD_BY_ROUTE, &found));
    weir_status status = wr_thread_enter_pool(wr_device_of(found->cache), found);
    if (status != WEIR_OK) let_go(found);
    return status;
}

weir_status weir_mempool_leave(weir_mempool pool)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0; /* 0: {0, 0}, which may have been entered on any device */
    WR_TRY(wr_runtime_enter());
    if (pool.capture != 0 || pool.user != 0) WR_TRY(find(pool, &found, &name));
    return wr_thread_leave_pool(name);
}

/* `id`: the stream's when it was found, which another thread may have ended since. */
static weir_status route_stream(wr_device *device, wr_stream *stream, uint64_t id, wr_mempool *pool)
{
    WR_ENSURE(!pool || pool->cache == &device->cache, WEIR_ERR_WRONG_DEVICE,
              "weir_mempool_route_stream: the pool belongs to device %d, the stream to device %d", pool->cache->device,
              device->ordinal);
    WR_ENSURE(wr_route_stream(device, stream, id, pool), WEIR_ERR_INVALID_STREAM,
              "weir_mempool_route_stream: another thread has destroyed the stream meanwhile");
    return WEIR_OK;
}

weir_status weir_mempool_route_stream(weir_mempool pool, weir_stream stream)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    wr_mempool *found = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    const uint64_t id = stream.id ? stream.id : wr_thread_stream_id(device);
    if (pool.user == 0 && pool.capture == 0) return route_stream(device, s, id, NULL);
    WR_TRY(find_and_hold(pool, WR_HELD_BY_ROUTE, &found));
    const weir_status status = route_stream(device, s, id, found);
    if (status != WEIR_OK) let_go(found);
    return status;
}

weir_status weir_mempool_route_filter(weir_mempool pool, weir_route_fn filter, void *user)
{
    wr_mempool *found = NULL;
    WR_ENSURE(filter, WEIR_ERR_INVALID_ARGUMENT, "weir_mempool_route_filter: filter is NULL");
    WR_TRY(find_and_hold(pool, WR_HELD_BY_ROUTE, &found));
    weir_status status = wr_route_filter_add(wr_device_of(found->cache), found, filter, user);
    if (status != WEIR_OK) let_go(found);
    return status;
}

weir_status weir_mempool_unroute_filter(weir_mempool pool, weir_route_fn filter, void *user)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_TRY(find(pool, &found, &name));
    return wr_route_filter_remove(wr_device_of(found->cache), name, filter, user);
}

weir_status weir_mempool_current(weir_stream stream, weir_mempool *out)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    wr_route route;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_mempool_current: out is NULL");
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    WR_TRY(wr_thread_pool(device, s, 0, &route));
    *out = wr_mempool_id_of(route.name);
    return WEIR_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static weir_status alloc_from(weir_mempool pool, size_t bytes, weir_stream stream, const void *caller, void **out)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    WR_TRY(find(pool, &found, &name));
    if (name == 0) found = device->cache.pools;
    WR_ENSURE(found->cache == &device->cache, WEIR_ERR_WRONG_DEVICE,
              "weir_alloc_from: the pool belongs to device %d, the stream to device %d", found->cache->device,
              device->ordinal);
    if (bytes == 0) {
        *out = NULL;
        return WEIR_OK;
    }
    const uint64_t id = stream.id ? stream.id : wr_thread_stream_id(device);
    if (WR_UNLIKELY(wr_cache_is_watched(&device->cache))) {
        const wr_stream *current = stream.id == 0 ? wr_thread_chosen_stream(device) : NULL;
        return wr_debug_alloc(device, found, name, s, id, bytes, (wr_site){ caller, current }, out);
    }
    return wr_device_alloc(device, found, name, s, id, bytes, out);
}

/* The lock of `front` is held; it is, or was, the stream's front in the pool. False: it no longer is, or nothing fits;
 * the lock is released. */
static WR_ALWAYS_INLINE bool alloc_held(wr_mempool_name name, size_t bytes, weir_stream stream, wr_front *front,
                                        wr_bias_thread *held, void **out)
{
    if (WR_UNLIKELY(!wr_front_is_of(front, name))) {
        wr_bias_release_owned(held);
        return false;
    }
    wr_front_slot *slot;
    wr_block *block = wr_front_hit(front, bytes, &slot);
    if (WR_UNLIKELY(!block)) {
        if (wr_front_is_side(front)) front->asked_for = stream.id;
        return wr_front_miss(front, slot, bytes, held, out);
    }
    *out = WR_UNLIKELY(front->recorded) ? wr_front_hand_out_recorded(front, block) : wr_block_hand_out(block);
    wr_bias_release_owned(held);
    return true;
}

/* The front of the stream in the pool, remembered or looked up. The current stream is asked for each time. */
static weir_status find_front(wr_mempool_name name, weir_stream stream, wr_front **front)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    *front = NULL;
    if (stream.id == 0) {
        WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
        stream.id = atomic_load_explicit(&s->id, memory_order_relaxed);
        *front = wr_thread_named_front(stream.id, name);
    }
    const bool again = !*front || (*front)->rest || wr_bias_is_contested(&(*front)->lock);
    if (again) *front = wr_thread_find_named_front(stream.id, name);
    return WEIR_OK;
}

/* The thread does not remember a front for this stream and pool, or does not own that front's lock. */
static WR_NOINLINE weir_status alloc_from_found(weir_mempool pool, size_t bytes, weir_stream stream, const void *caller,
                                                void **out)
{
    const wr_mempool_name name = wr_mempool_name_from(pool);
    wr_front *front = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_alloc_from: out is NULL");
    WR_TRY(find_front(name, stream, &front));
    wr_bias_thread *self = front ? wr_bias_acquire_owned(&front->lock) : NULL;
    if (self && alloc_held(name, bytes, stream, front, self, out)) return WEIR_OK;
    return alloc_from(pool, bytes, stream, caller, out);
}

weir_status weir_alloc_from(weir_mempool pool, size_t bytes, weir_stream stream, void **out)
{
    const wr_mempool_name name = wr_mempool_name_from(pool);
    wr_front *front = WR_LIKELY(out != NULL) ? wr_thread_named_front(stream.id, name) : NULL;
    wr_bias_thread *self = WR_LIKELY(front != NULL) ? wr_bias_acquire_owned(&front->lock) : NULL;
    if (WR_LIKELY(self && alloc_held(name, bytes, stream, front, self, out))) return WEIR_OK;
    const bool missed = self && !front->rest; /* to look for the front again would find the same */
    return missed ? alloc_from(pool, bytes, stream, WR_CALLER, out)
                  : alloc_from_found(pool, bytes, stream, WR_CALLER, out);
}

weir_status weir_mempool_empty_cache(weir_mempool pool)
{
    wr_mempool *found = NULL;
    WR_TRY(find_and_hold(pool, WR_HELD_BY_ROUTE, &found));
    weir_status status = wr_device_empty_pool(wr_device_of(found->cache), found);
    let_go(found);
    return status;
}

weir_status weir_mempool_info_get(weir_mempool pool, weir_mempool_info *out)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_TRY(wr_sized_check_out("weir_mempool_info_get", "weir_mempool_info", out, sizeof *out));
    WR_TRY(find(pool, &found, &name));
    weir_mempool_info info = { 0 };
    WR_TRY(wr_inspect_pool(found, name, &info));
    wr_sized_give(out, &info, sizeof info);
    return WEIR_OK;
}

weir_status weir_mempool_stats_get(weir_mempool pool, weir_memory_stats *out)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_TRY(wr_sized_check_out("weir_mempool_stats_get", "weir_memory_stats", out, sizeof *out));
    WR_TRY(find(pool, &found, &name));
    weir_memory_stats stats = { 0 };
    WR_TRY(wr_inspect_pool_stats(found, name, &stats));
    wr_sized_give(out, &stats, sizeof stats);
    return WEIR_OK;
}

weir_status weir_mempool_blocks(weir_mempool pool, weir_block_info *blocks, size_t capacity, size_t *count)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_ENSURE(count && (blocks || capacity == 0), WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_blocks: count is NULL, or blocks is NULL although capacity is not 0");
    WR_TRY(find(pool, &found, &name));
    return wr_inspect_blocks(found, name, blocks, capacity, count);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* Only private pools: the default pool holds workspaces of library handles. */
static weir_status find_private(const char *call, weir_mempool id, wr_mempool **out, wr_mempool_name *name)
{
    WR_TRY(find(id, out, name));
    WR_ENSURE(*name != 0, WEIR_ERR_INVALID_ARGUMENT,
              "%s: name a private pool; the default one also holds memory of weir itself", call);
    return WEIR_OK;
}

weir_status weir_mempool_checkpoint(weir_mempool pool, weir_checkpoint **out)
{
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_mempool_checkpoint: out is NULL");
    WR_TRY(find_private("weir_mempool_checkpoint", pool, &found, &name));
    return wr_checkpoint_take(found, name, out);
}

weir_status weir_mempool_restore(weir_mempool pool, const weir_checkpoint *checkpoint,
                                 void (*freed)(void *user, void *pointer), void (*restored)(void *user, void *pointer),
                                 void *user)
{
    wr_checkpoint_listener listener = { .freed = freed, .restored = restored, .user = user };
    wr_mempool *found = NULL;
    wr_mempool_name name = 0;
    WR_ENSURE(checkpoint, WEIR_ERR_INVALID_ARGUMENT, "weir_mempool_restore: checkpoint is NULL");
    WR_TRY(find_private("weir_mempool_restore", pool, &found, &name));
    wr_device *device = wr_device_of(found->cache);
    if (WR_UNLIKELY(device->cache.debug != NULL)) {
        wr_debug_forget_poison(device);
        listener.changed = wr_debug_forget;
    }
    return wr_checkpoint_restore(found, name, checkpoint, &listener);
}

void weir_checkpoint_destroy(weir_checkpoint *checkpoint)
{
    wr_meta_free(checkpoint);
}
