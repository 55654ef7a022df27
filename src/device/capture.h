/*
 * capture: the stream captures underway on a device that weir was told of. A capture is registered before the driver
 * begins it and unregistered after the driver has ended it. Any thread finds it by the id that the driver reports on
 * every stream that takes part.
 * Owner: the graph that it becomes (device/graph.h), and every caller that found it, until it drops its reference.
 * Locks: the list's (WR_RANK_ROUTES) for finding; each capture's own (WR_RANK_CAPTURE), held across driver calls, for
 * what it keeps and the order inside it.
 */
#ifndef WR_DEVICE_CAPTURE_H
#define WR_DEVICE_CAPTURE_H

#include "device/routes.h"
#include "handle/handle.h"
#include "pool/graph_order.h"

/* How a kind of object is kept: `hold` is called once for each graph that keeps it, `let_go` when that graph ends. */
typedef struct wr_keeper {
    weir_status (*hold)(void *object, uint64_t name);
    void (*let_go)(void *object, uint64_t name);
} wr_keeper;

/* An object that must not change as long as a graph may be launched. `name` distinguishes objects that reused an
 * address. */
typedef struct wr_kept {
    const wr_keeper *keeper;
    void *object;
    uint64_t name;
} wr_kept;

/* Each object once. Pools come first, because every launch asks for them. */
typedef struct wr_keeps {
    wr_kept *items;
    uint32_t pools, count, capacity;
    uint32_t *slots;   /* 1 + an item's index, by hash; NULL while items are few */
    size_t slot_count; /* a power of two; at most half of them are used */
} wr_keeps;

typedef struct wr_capture {
    wr_device *device;
    void *origin;            /* the native stream that it begins on */
    wr_route route;          /* to the graph's pool; constant */
    struct wr_capture *next; /* these three: under the list's lock */
    atomic_uint_fast64_t id; /* the driver's; 0: not begun yet */
    uint32_t references;
    wr_lock lock; /* the rest */
    wr_graph_order order;
    wr_keeps kept;
    bool over;
} wr_capture;

typedef struct wr_captures {
    wr_lock lock;
    wr_capture *first;
    atomic_uint count; /* while 0, the list is not searched */
} wr_captures;

void wr_captures_init(wr_captures *captures);
void wr_captures_release(wr_captures *captures);

/* `id` 0: the capture is about to begin on `origin`. WEIR_ERR_CAPTURE when this one is registered already. */
WR_CHECKED weir_status wr_capture_register(wr_device *device, void *origin, wr_mempool *pool, uint64_t id,
                                           wr_capture **out);

/* The driver has begun it. */
void wr_capture_begun(wr_capture *capture, uint64_t id);

/* The driver has ended the capture, or never began it. What it kept goes to `kept`; its deferred frees become ordinary
 * pending frees. Drops the caller's reference. */
void wr_capture_unregister(wr_capture *capture, wr_keeps *kept);

/* The registered capture that a native stream of the device takes part in now, with a reference; NULL: none. */
WR_CHECKED weir_status wr_capture_of(wr_device *device, void *native, wr_capture **out);

/* NULL is fine. */
void wr_capture_unref(wr_capture *capture);

/* Whether any capture that weir was told of is underway on the device: one relaxed load. */
static inline bool wr_captures_any(const wr_captures *captures)
{
    return atomic_load_explicit(&captures->count, memory_order_relaxed) != 0;
}

/* Sets *best to the route to the pool of the stream's capture, if that route was opened after *best. WEIR_ERR_CAPTURE
 * when the stream is in a capture that weir was not told of. */
WR_CHECKED weir_status wr_capture_choose(wr_device *device, const wr_stream *stream, wr_route *best);

/* Makes the capture's graph keep the object, unless it does already. Does nothing once the capture is over. */
WR_CHECKED weir_status wr_capture_keep(wr_capture *capture, wr_kept kept);

/* For an allocation from that pool on the stream: if the stream captures, the graph keeps the pool, and *number, 0
 * before, becomes what the block is to be marked with (wr_graph_order_mark). */
WR_CHECKED weir_status wr_capture_keep_pool(wr_device *device, const wr_stream *stream, wr_mempool *pool,
                                            wr_mempool_name name, uint64_t *number);

/* Binds a handle to the stream, unless it `serves` it already. If the stream captures, the graph keeps the handle. */
WR_CHECKED weir_status wr_capture_bind(wr_device *device, wr_handle *handle, wr_stream *stream, bool serves);

/* Makes a block that has just become pending wait for its uses. If it was handed out in the capture that the free is
 * part of, the graph being captured decides when they are done; otherwise events do (pool/pending.h). */
void wr_capture_await(wr_device *device, wr_block *block);

/* Frees the stream's deferred blocks whose uses, by the graph of its capture, come before its next work. */
void wr_capture_reclaim(wr_device *device, const wr_stream *stream);

/* The lists themselves; the caller holds their lock. */
WR_CHECKED weir_status wr_keeps_add(wr_keeps *keeps, wr_kept kept);
void wr_keeps_release(wr_keeps *keeps); /* drops all references */

wr_kept wr_keep_pool(wr_mempool *pool, wr_mempool_name name);

/* Of an item that is a pool: the first `pools` ones. */
wr_mempool *wr_kept_pool(const wr_kept *kept);

#endif
