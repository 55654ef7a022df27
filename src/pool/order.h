/*
 * order: blocks freed inside a capture that other streams of it used. No event can tell when they are done, since nothing
 * runs; but the graph that is being captured can: when all that was captured up to the free comes before whatever is
 * captured next on the block's stream, the block may be used there again.
 * Owner: the capture (device/capture.h), whose lock guards everything and is held across driver calls.
 */
#ifndef WR_POOL_ORDER_H
#define WR_POOL_ORDER_H

#include "pool/cache.h"

typedef struct wr_deferred wr_deferred;
typedef struct wr_ancestry wr_ancestry;

typedef struct wr_order {
    wr_deferred *first;
    atomic_uint count; /* of deferred blocks; read without the lock to skip looking */
    wr_ancestry *ancestries;
    uint64_t capture; /* weir's number of it, which no other ever has; constant */
} wr_order;

/* The block that begins there was handed out in the capture of that number, and is nobody else's yet. No lock held. */
void wr_order_mark(const void *pointer, uint64_t capture);

/* Takes over a block of the pool and the stream that has just become pending, if it was handed out in the capture, and the
 * stream, which the caller holds, and all that the block is recorded on take part in it. `id` is the driver's. False: not so,
 * or it cannot be told, and the block must wait as others do. */
WR_CHECKED bool wr_order_defer(wr_order *order, wr_block *block, const wr_stream *own, const wr_mempool *pool,
                               uint64_t id);

/* Frees the blocks of the stream that the graph proves to be done there. */
void wr_order_reclaim(wr_order *order, const wr_stream *stream);

/* The capture is over: what is left waits as other blocks do. No lock held. */
void wr_order_end(wr_order *order);

#endif
