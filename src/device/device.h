/*
 * device: everything weir keeps for one device.
 * Owner: the runtime. Opened at first use under the runtime's lock, closed by weir_close. In between, its address does
 * not change; its parts have their own locks.
 */
#ifndef WR_DEVICE_DEVICE_H
#define WR_DEVICE_DEVICE_H

#include "device/capture.h"
#include "device/graph.h"
#include "device/plan_auto.h"
#include "device/routes.h"
#include "device/runtime.h"
#include "handle/handle.h"
#include "pool/cache.h"
#include "stream/event.h"
#include "stream/stream.h"

#include <stddef.h>

struct wr_device {
    int ordinal;
    const weir_backend *backend;
    weir_device_caps caps;
    wr_stream_table streams;
    wr_event_pool events;
    wr_cache cache;
    wr_routes routes;
    wr_captures captures;
    wr_graphs graphs;
    wr_creates creates;
    wr_plan_auto plan_auto;                                  /* under plan=auto */
    _Atomic(wr_handle_pool *) handles[WEIR_HANDLE_KIND_MAX]; /* NULL until a handle of the kind is asked for */
};

static inline wr_device *wr_device_of(const wr_cache *cache)
{
    return (wr_device *)((char *)cache - offsetof(wr_device, cache));
}

/* Runtime lock held. */
WR_CHECKED weir_status wr_device_open(const wr_runtime *runtime, int ordinal, wr_device **device);

/* Stops planning, and ends the captures. Called for all devices before the first is waited for, since with some drivers
 * a wait for any device invalidates all captures. */
weir_status wr_device_quiesce(wr_device *device);

/* Waits for the device's work. Called for all devices before the first is stopped, since work of one, launches of
 * graphs too, may use memory of another. */
weir_status wr_device_wait(wr_device *device);

/* Destroys all graphs and handles and forgets pending frees. All devices are stopped before the first is closed,
 * because graphs of one may keep pools of another, and blocks may wait for streams of another, with its events. */
weir_status wr_device_stop(wr_device *device);

/* Releases everything of a stopped device; the first failure is returned. Runtime lock held. */
weir_status wr_device_close(wr_device *device);

#endif
