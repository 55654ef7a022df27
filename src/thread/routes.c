#include "thread/routes.h"

#include "thread/sides.h"

static void choose_by_thread(const wr_device *device, wr_route *best)
{
    const wr_thread *t = wr_thread_current;
    if (wr_thread_is_void(t)) return;
    for (uint32_t i = t->route_count; i-- > 0;) {
        if (t->routes[i].device != device->ordinal) continue;
        *best = t->routes[i].route;
        return;
    }
}

weir_status wr_thread_pool_slow(wr_device *device, const wr_stream *stream, size_t bytes, wr_route *out)
{
    wr_route best = { .pool = device->cache.pools };
    choose_by_thread(device, &best);
    if (atomic_load(&device->routes.any)) WR_TRY(wr_routes_choose(device, stream, bytes, &best));
    *out = best;
    return WEIR_OK;
}

wr_front *wr_thread_front_in_route(const wr_device *device, const wr_stream *stream)
{
    wr_route best = { .pool = device->cache.pools };
    if (atomic_load_explicit(&device->routes.any, memory_order_acquire) != 0) return NULL;
    choose_by_thread(device, &best);
    return wr_front_find(stream, best.name);
}

/* The count of ways is read first, so that a change meanwhile makes what is remembered void. */
wr_front *wr_thread_find_front(uint64_t stream_id)
{
    wr_device *device = NULL;
    const uint64_t ways = atomic_load(&wr_runtime_global.ways);
    const wr_stream *s = wr_thread_find_stream(stream_id, &device);
    wr_front *front = s ? wr_thread_own_front(wr_thread_front_on(device, s)) : NULL;
    if (front) wr_thread_remember_front(ways, stream_id, front);
    return front;
}

wr_front *wr_thread_find_named_front(uint64_t stream_id, wr_mempool_name name)
{
    wr_device *device = NULL;
    const uint64_t ways = atomic_load(&wr_runtime_global.ways);
    const wr_stream *s = wr_thread_find_stream(stream_id, &device);
    const bool alone = s && atomic_load_explicit(&device->routes.any, memory_order_acquire) == 0;
    wr_front *front = alone ? wr_thread_own_front(wr_front_find(s, name)) : NULL;
    if (front) wr_thread_remember_named_front(ways, stream_id, name, front);
    return front;
}

weir_status wr_thread_enter_pool(const wr_device *device, wr_mempool *pool)
{
    wr_thread *t = NULL;
    WR_TRY(wr_thread_own(&t));
    WR_ENSURE(t->route_count < WR_THREAD_ROUTES_MAX, WEIR_ERR_BUSY,
              "weir_mempool_enter: this thread has entered %d pools without leaving one, the most it can",
              WR_THREAD_ROUTES_MAX);
    const wr_route route = { pool, wr_mempool_name_of(pool), wr_route_serial() };
    t->routes[t->route_count++] = (wr_thread_route){ route, device->ordinal };
    wr_thread_knows.ways = 0;
    return WEIR_OK;
}

weir_status wr_thread_leave_pool(wr_mempool_name name)
{
    wr_thread *t = wr_thread_current;
    const bool any = !wr_thread_is_void(t) && t->route_count > 0;
    WR_ENSURE(any, WEIR_ERR_POOL_MISMATCH, "weir_mempool_leave: this thread has entered no pool");
    const wr_route *innermost = &t->routes[t->route_count - 1].route;
    WR_ENSURE(innermost->name == name, WEIR_ERR_POOL_MISMATCH,
              "weir_mempool_leave: the pool entered last is " WR_MEMPOOL_FORMAT "; leave that one first",
              WR_MEMPOOL_ARGUMENTS(innermost->name));
    t->route_count--;
    wr_thread_knows.ways = 0;
    if (innermost->name == 0) return WEIR_OK;
    return wr_mempool_unref(innermost->pool, innermost->name, WR_HELD_BY_ROUTE);
}
