/*
 * capture: the captures underway on a device that weir was told of. One is registered before the driver begins it and
 * unregistered after the driver ended it, and is found from any thread by the id that the driver gives it on every stream
 * that takes part.
 * Owner: the graph that it becomes (device/graph.h), and whoever found it, until he lets go of it. Locks: the list's
 * (WR_RANK_ROUTES) for finding; each capture's own (WR_RANK_CAPTURE), held across driver calls, for what it keeps and the
 * order inside it.
 */
#ifndef WR_DEVICE_CAPTURE_H
#define WR_DEVICE_CAPTURE_H

#include "device/routes.h"
#include "pool/handle.h"
#include "pool/order.h"

/* What is kept, and how: `hold` once for each graph that keeps it, `let_go` when that graph ends. */
typedef struct wr_keeper {
    weir_status (*hold)(void *object, uint64_t name);
    void (*let_go)(void *object, uint64_t name);
} wr_keeper;

/* Something that stays as it is as long as a graph may be launched. `name` tells apart what had one address in turn. */
typedef struct wr_kept {
    const wr_keeper *keeper;
    void *object;
    uint64_t name;
} wr_kept;

typedef struct wr_keeps {
    wr_kept *items;
    uint32_t count, capacity;
} wr_keeps;

typedef struct wr_capture {
    wr_device *device;
    void *origin;            /* native stream it begins on */
    wr_route route;          /* to the graph's pool; constant */
    struct wr_capture *next; /* these three: under the list's lock */
    atomic_uint_fast64_t id; /* the driver's; 0: not begun yet */
    uint32_t references;
    wr_lock lock; /* the rest */
    wr_order order;
    wr_keeps kept;
    bool over;
} wr_capture;

typedef struct wr_captures {
    wr_lock lock;
    wr_capture *first;
    atomic_uint count; /* while 0, nobody looks further */
} wr_captures;

void wr_captures_init(wr_captures *captures);
void wr_captures_release(wr_captures *captures);

/* `id` 0: it is about to begin on the stream. WEIR_ERR_CAPTURE when one of that id is registered. */
WR_CHECKED weir_status wr_capture_register(wr_device *device, void *origin, wr_mempool *pool, uint64_t id,
                                           wr_capture **out);

/* The driver has begun it. */
void wr_capture_begun(wr_capture *capture, uint64_t id);

/* The driver has ended it, or never began it. What it kept goes to `kept`; its deferred frees wait as others do. Takes
 * over the caller's reference. */
void wr_capture_unregister(wr_capture *capture, wr_keeps *kept);

/* The capture, known to weir, that a native stream of the device takes part in now, with a reference; NULL: none. */
WR_CHECKED weir_status wr_capture_of(wr_device *device, void *native, wr_capture **out);

/* NULL is fine. */
void wr_capture_unref(wr_capture *capture);

/* Whether any capture that weir was told of is underway on the device: one relaxed load. */
static inline bool wr_captures_any(const wr_captures *captures)
{
    return atomic_load_explicit(&captures->count, memory_order_relaxed) != 0;
}

/* The route to the pool of the capture that the stream takes part in, when it was opened after *best. WEIR_ERR_CAPTURE
 * when the stream captures and weir was not told. */
WR_CHECKED weir_status wr_capture_choose(wr_device *device, const wr_stream *stream, wr_route *best);

/* The graph keeps the object, if it does not already. Nothing happens when the capture is over by now. */
WR_CHECKED weir_status wr_capture_keep(wr_capture *capture, wr_kept kept);

/* An allocation on the stream comes from that pool: a graph that it becomes part of keeps it. *number, 0 before: what the block
 * is to be marked with (wr_order_mark), if it is handed out in a capture. */
WR_CHECKED weir_status wr_capture_keep_pool(wr_device *device, const wr_stream *stream, wr_mempool *pool,
                                            wr_mempool_name name, uint64_t *number);

/* Binds a handle to the stream, unless it `serves` it already. A graph that the stream's work becomes part of keeps it. */
WR_CHECKED weir_status wr_capture_bind(wr_device *device, wr_handle *handle, wr_stream *stream, bool serves);

/* A block that has just become pending waits for its uses: for the graph's word if the free is part of a capture. */
void wr_capture_await(wr_device *device, wr_block *block);

/* Frees what the capture that the stream takes part in proves to be done there. */
void wr_capture_reclaim(wr_device *device, const wr_stream *stream);

/* The lists themselves, for whoever has their lock. */
WR_CHECKED weir_status wr_keeps_add(wr_keeps *keeps, wr_kept kept);
void wr_keeps_release(wr_keeps *keeps); /* lets go of all */

wr_kept wr_keep_pool(wr_mempool *pool, wr_mempool_name name);

/* NULL when the item is no pool. */
wr_mempool *wr_kept_pool(const wr_kept *kept);

#endif
