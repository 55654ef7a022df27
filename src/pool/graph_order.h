/*
 * graph_order: blocks freed inside a capture after other streams in it used them. No event can tell when those uses are
 * over, since nothing runs. But the graph being captured can: if all captured up to the free comes before whatever is
 * captured next on the block's stream, the block may be used there again.
 * Owner: the capture (device/capture.h), whose lock guards everything and is held across driver calls.
 */
#ifndef WR_POOL_GRAPH_ORDER_H
#define WR_POOL_GRAPH_ORDER_H

#include "pool/cache.h"

typedef struct wr_deferred wr_deferred;
typedef struct wr_ancestry wr_ancestry;

typedef struct wr_graph_order {
    wr_deferred *first;
    atomic_uint count; /* of deferred blocks; read without the lock to skip looking */
    wr_ancestry *ancestries;
    uint64_t capture; /* weir's number of the capture, which no other ever has; constant */
} wr_graph_order;

/* Notes that the block that begins there was handed out in the capture of that number; nobody else has it yet. No lock
 * held. */
void wr_graph_order_mark(const void *pointer, uint64_t capture);

/* Takes over a block of the pool and the stream that has just become pending. It must have been handed out in the
 * capture, and the stream, which the caller holds, and all that the block is recorded on must be in it. `id` is the
 * driver's. False: not so, or it cannot be told: the block waits like any other. */
WR_CHECKED bool wr_graph_order_defer(wr_graph_order *order, wr_block *block, const wr_stream *own,
                                     const wr_mempool *pool, uint64_t id);

/* Frees those of the stream's blocks that the graph proves to be done there. */
void wr_graph_order_reclaim(wr_graph_order *order, const wr_stream *stream);

/* The capture is over: blocks that are left wait like any other. No lock held. */
void wr_graph_order_end(wr_graph_order *order);

#endif
