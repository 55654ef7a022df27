#include "device/routes.h"

#include "base/meta.h"
#include "device/device.h"

static atomic_uint_fast64_t opened;

uint64_t wr_route_serial(void)
{
    return atomic_fetch_add_explicit(&opened, 1, memory_order_relaxed) + 1;
}

void wr_routes_change(wr_routes *routes, int more)
{
    atomic_fetch_add(&routes->any, (unsigned)more);
    if (more > 0) wr_runtime_change_ways();
}

void wr_routes_init(wr_routes *routes)
{
    *routes = (wr_routes){ 0 };
    wr_lock_init(&routes->lock, WR_RANK_ROUTES, "routes");
}

void wr_routes_release(wr_routes *routes)
{
    wr_meta_free(routes->filters);
    wr_lock_destroy(&routes->lock);
}

/* ---- by stream --------------------------------------------------------------------------------------------------- */

/* Returns the pool that the stream was routed to; NULL: none. */
static wr_mempool *set_locked(wr_routes *routes, wr_stream *stream, wr_mempool *pool)
{
    wr_mempool *before = atomic_exchange_explicit(&stream->routed, pool, memory_order_acq_rel);
    /* Last, and released: who sees it sees the pool that it belongs to next (choose_by_stream). */
    atomic_store_explicit(&stream->route_serial, wr_route_serial(), memory_order_release);
    wr_routes_change(routes, (pool != NULL) - (before != NULL));
    return before;
}

bool wr_route_stream(wr_device *device, wr_stream *stream, uint64_t id, wr_mempool *pool)
{
    wr_lock_acquire(&device->routes.lock);
    const bool there = atomic_load_explicit(&stream->id, memory_order_relaxed) == id;
    wr_mempool *before = there ? set_locked(&device->routes, stream, pool) : NULL;
    wr_lock_release(&device->routes.lock);
    if (before) (void)wr_mempool_unref(before, wr_mempool_name_of(before), WR_HELD_BY_ROUTE);
    return there;
}

/* While it is read, the route may end and its pool's record become another pool, even one with a route of this stream.
 * Then it is read again. The serial may still be the last route's, and then the route counts as not opened yet where
 * another one lies between; it is never a later route's than the pool's, which would win over those that are newer than
 * the pool's own. */
static void choose_by_stream(const wr_stream *stream, wr_route *best)
{
    wr_mempool *pool = atomic_load_explicit(&stream->routed, memory_order_acquire);
    while (pool) {
        wr_route found = { .pool = pool, .name = wr_mempool_name_of(pool) };
        found.serial = atomic_load_explicit(&stream->route_serial, memory_order_acquire);
        pool = atomic_load_explicit(&stream->routed, memory_order_acquire);
        if (pool != found.pool || (pool && wr_mempool_name_of(pool) != found.name)) continue;
        if (found.serial > best->serial) *best = found;
        return;
    }
}

/* ---- by filter --------------------------------------------------------------------------------------------------- */

weir_status wr_route_filter_add(wr_device *device, wr_mempool *pool, weir_route_fn function, void *user)
{
    wr_routes *routes = &device->routes;
    wr_lock_acquire(&routes->lock);
    const uint32_t count = atomic_load_explicit(&routes->filter_count, memory_order_relaxed);
    weir_status status =
        wr_meta_grow(&routes->filters, &routes->filter_capacity, count + 1, sizeof *routes->filters, "routes");
    if (status == WEIR_OK) {
        const wr_route route = { pool, wr_mempool_name_of(pool), wr_route_serial() };
        routes->filters[routes->filter_count] = (wr_filter){ route, function, user };
        atomic_fetch_add(&routes->filter_count, 1);
        wr_routes_change(routes, 1);
    }
    wr_lock_release(&routes->lock);
    return status;
}

weir_status wr_route_filter_remove(wr_device *device, wr_mempool_name name, weir_route_fn function, void *user)
{
    wr_routes *routes = &device->routes;
    wr_mempool *pool = NULL;
    wr_lock_acquire(&routes->lock);
    const uint32_t count = routes->filter_count;
    for (uint32_t i = count; i-- > 0 && !pool;) {
        const wr_filter *f = &routes->filters[i];
        if (f->route.name != name || f->function != function || f->user != user) continue;
        pool = f->route.pool;
        for (uint32_t j = i; j + 1 < count; j++) routes->filters[j] = routes->filters[j + 1];
        atomic_fetch_sub(&routes->filter_count, 1);
        wr_routes_change(routes, -1);
    }
    wr_lock_release(&routes->lock);
    WR_ENSURE(pool, WEIR_ERR_INVALID_ARGUMENT,
              "weir_mempool_unroute_filter: there is no such route to the pool on device %d", device->ordinal);
    return pool->is_private ? wr_mempool_unref(pool, name, WR_HELD_BY_ROUTE) : WEIR_OK;
}

/* Copies the newest filter that was opened after the one serial and before the other. By serial, not index: filters may
 * go meanwhile, and the others then move. */
static bool filter_between(wr_routes *routes, uint64_t after, uint64_t before, wr_filter *out)
{
    wr_lock_acquire(&routes->lock);
    uint32_t i = routes->filter_count;
    while (i > 0 && routes->filters[i - 1].route.serial >= before) i--;
    const bool there = i > 0 && routes->filters[i - 1].route.serial > after;
    if (there) *out = routes->filters[i - 1];
    wr_lock_release(&routes->lock);
    return there;
}

static void choose_by_filter(wr_routes *routes, const wr_stream *stream, size_t bytes, wr_route *best)
{
    const weir_stream named = { atomic_load_explicit(&stream->id, memory_order_relaxed) };
    wr_filter filter = { .route.serial = UINT64_MAX };
    while (filter_between(routes, best->serial, filter.route.serial, &filter)) {
        if (!filter.function(filter.user, named, bytes)) continue;
        *best = filter.route;
        return;
    }
}

weir_status wr_routes_choose(wr_device *device, const wr_stream *stream, size_t bytes, wr_route *best)
{
    choose_by_stream(stream, best);
    WR_TRY(wr_capture_choose(device, stream, best));
    if (atomic_load(&device->routes.filter_count)) choose_by_filter(&device->routes, stream, bytes, best);
    return WEIR_OK;
}
