/*
 * routes: which pool an allocation comes from, as far as the device has a say: by stream, by filter. Among all routes
 * that apply, a thread's and a capture's included, the one that was opened last wins; its serial tells.
 * Owner: the device. Lock: its own (WR_RANK_ROUTES) for filters; the route of a stream is read without. Every route holds a
 * reference of its pool.
 */
#ifndef WR_DEVICE_ROUTES_H
#define WR_DEVICE_ROUTES_H

#include "pool/cache.h"

typedef struct wr_device wr_device;

/* A pool, what it was called when the route was found, and when the route was opened. */
typedef struct wr_route {
    wr_mempool *pool;
    wr_mempool_name name;
    uint64_t serial; /* 0: no route */
} wr_route;

typedef struct wr_filter {
    wr_route route;
    weir_route_fn function;
    void *user;
} wr_filter;

typedef struct wr_routes {
    wr_lock lock;
    atomic_uint any; /* routes of the device, captures underway and plans served on it: while 0, nobody looks further */
    atomic_uint filter_count;
    wr_filter *filters; /* oldest first */
    uint32_t filter_capacity;
} wr_routes;

/* So many more routes, captures or plans than before. */
void wr_routes_change(wr_routes *routes, int more);

void wr_routes_init(wr_routes *routes);

/* Forgets them; their pools go with the device. */
void wr_routes_release(wr_routes *routes);

/* When a route opened now is opened, as a number that only grows. Never 0. */
uint64_t wr_route_serial(void);

/* NULL ends the stream's route. */
void wr_route_stream(wr_device *device, wr_stream *stream, wr_mempool *pool);

WR_CHECKED weir_status wr_route_filter_add(wr_device *device, wr_mempool *pool, weir_route_fn function, void *user);
WR_CHECKED weir_status wr_route_filter_remove(wr_device *device, wr_mempool *pool, weir_route_fn function, void *user);

/* The device's route for an allocation when it was opened after *best; else *best stays. No lock held: filters are the
 * program's. WEIR_ERR_CAPTURE when the stream is in a capture that weir was not told of. */
WR_CHECKED weir_status wr_routes_choose(wr_device *device, const wr_stream *stream, size_t bytes, wr_route *best);

#endif
