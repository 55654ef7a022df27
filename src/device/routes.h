/*
 * routes: which pool an allocation comes from, as far as the device decides it: by stream or by filter. Of all routes
 * that apply, a thread's and a capture's included, the one opened last, with the highest serial, wins.
 * Owner: the device. Lock: its own (WR_RANK_ROUTES) for filters; a stream's route is read without a lock. Every route
 * holds a reference to its pool.
 */
#ifndef WR_DEVICE_ROUTES_H
#define WR_DEVICE_ROUTES_H

#include "pool/cache.h"

typedef struct wr_device wr_device;

/* A pool, its name when the route was found, and when the route was opened. */
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
    atomic_uint any; /* routes, captures underway and plans served on the device; while 0, none is looked for */
    atomic_uint filter_count;
    wr_filter *filters; /* oldest first */
    uint32_t filter_capacity;
} wr_routes;

/* Adds `more`, which may be negative, to the count of routes, captures and plans. */
void wr_routes_change(wr_routes *routes, int more);

void wr_routes_init(wr_routes *routes);

/* Forgets the routes; their pools go with the device. */
void wr_routes_release(wr_routes *routes);

/* The serial for a route that opens now. Serials only grow; never 0. */
uint64_t wr_route_serial(void);

/* NULL ends the stream's route. False: the stream is not the one of that id any more, and another thread may have ended
 * its route; 0 is that of a stream withdrawn. */
bool wr_route_stream(wr_device *device, wr_stream *stream, uint64_t id, wr_mempool *pool);

WR_CHECKED weir_status wr_route_filter_add(wr_device *device, wr_mempool *pool, weir_route_fn function, void *user);
WR_CHECKED weir_status wr_route_filter_remove(wr_device *device, wr_mempool_name name, weir_route_fn function,
                                              void *user);

/* Sets *best to the device's route for an allocation, if that was opened after *best. No lock held, since filters are
 * the program's functions. WEIR_ERR_CAPTURE when the stream is in a capture that weir was not told of. */
WR_CHECKED weir_status wr_routes_choose(wr_device *device, const wr_stream *stream, size_t bytes, wr_route *best);

#endif
