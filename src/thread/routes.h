/*
 * routes: the pools that a thread routes its allocations to, and the choice between these and the device's routes.
 * Owner: the thread; nobody else reads them, so no lock. Ended when the thread ends.
 */
#ifndef WR_THREAD_ROUTES_H
#define WR_THREAD_ROUTES_H

#include "device/routes.h"
#include "thread/thread.h"

/* The pool that an allocation of the calling thread comes from. */
WR_CHECKED weir_status wr_thread_pool_slow(wr_device *device, const wr_stream *stream, size_t bytes, wr_route *out);

/* Whether an allocation of the calling thread may come from another pool than the default one. Captures are routes. */
static inline bool wr_thread_any_route(const wr_device *device)
{
    return atomic_load_explicit(&device->routes.any, memory_order_acquire) != 0 || wr_thread_current->route_count != 0;
}

WR_CHECKED static inline weir_status wr_thread_pool(wr_device *device, const wr_stream *stream, size_t bytes,
                                                    wr_route *out)
{
    if (WR_UNLIKELY(wr_thread_any_route(device))) return wr_thread_pool_slow(device, stream, bytes, out);
    *out = (wr_route){ .pool = device->cache.pools };
    return WEIR_OK;
}

/* The stream's front in the pool that an allocation of the calling thread comes from; NULL: none, or the device has
 * routes or captures. The pool stays as long as the thread is in it. */
wr_front *wr_thread_front_in_route(const wr_device *device, const wr_stream *stream);

static WR_ALWAYS_INLINE wr_front *wr_thread_front_on(const wr_device *device, const wr_stream *stream)
{
    if (WR_UNLIKELY(wr_thread_any_route(device))) return wr_thread_front_in_route(device, stream);
    return wr_front_find(stream, 0);
}

/* As wr_thread_front, but looks the front up and makes the thread remember it. NULL also when the stream does not
 * exist. */
wr_front *wr_thread_find_front(uint64_t stream_id);

/* As wr_thread_named_front, likewise. NULL also while the device has captures or routes. */
wr_front *wr_thread_find_named_front(uint64_t stream_id, wr_mempool_name name);

/* Takes over the caller's reference of the pool. */
WR_CHECKED weir_status wr_thread_enter_pool(const wr_device *device, wr_mempool *pool);

/* Ends the innermost route, which must be to the pool of that name, and gives its reference back. */
WR_CHECKED weir_status wr_thread_leave_pool(wr_mempool_name name);

#endif
