/*
 * pinned: page-locked host memory, cached once for the process, since every device reaches it. It is a cache like a
 * device's, but in place of streams it has places where memory can lie: anywhere, or a NUMA node. Places order nothing,
 * so every stream that uses a block is recorded, and a freed block becomes available when all of those are done with
 * it.
 * Owner: the runtime. Made at first use under the runtime's lock, through an open device, whose driver provides all of
 * it; released by weir_close before that device. In between, its address does not change. Lock: the cache's.
 */
#ifndef WR_DEVICE_PINNED_H
#define WR_DEVICE_PINNED_H

#include "base/numa.h"
#include "device/device.h"

typedef struct wr_pinned {
    wr_cache cache; /* first: wr_pinned_of() */
    wr_numa numa;
    wr_stream places[1 + WR_NUMA_NODES]; /* [0]: anywhere; [1 + n]: node n. In no stream table; their id is 0 */
} wr_pinned;

static inline wr_pinned *wr_pinned_of(wr_cache *cache)
{
    return (wr_pinned *)cache;
}

/* NULL when none was needed yet. The library must be open. */
static inline wr_pinned *wr_pinned_there(void)
{
    return atomic_load_explicit(&wr_runtime_global.pinned, memory_order_acquire);
}

/* Runtime lock held. */
WR_CHECKED weir_status wr_pinned_open(const wr_device *home, wr_pinned **out);

/* Gives everything back. Called when all devices are stopped and none is closed yet, since pending blocks wait with the
 * devices' events. Returns the first failure. */
weir_status wr_pinned_close(wr_pinned *pinned);

/* The place of a NUMA node, or of WEIR_NUMA_ANY. WEIR_ERR_INVALID_ARGUMENT when the machine has no such node. */
WR_CHECKED weir_status wr_pinned_place(wr_pinned *pinned, int node, wr_stream **out);

#endif
