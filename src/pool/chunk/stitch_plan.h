/*
 * stitch_plan: which chunks are to be mapped where, for one request. Nothing changes, unless addresses can be used
 * again without a driver call.
 * Owner: wr_stitch, on its stack. Lock: made and released under both locks.
 */
#ifndef WR_POOL_CHUNK_STITCH_PLAN_H
#define WR_POOL_CHUNK_STITCH_PLAN_H

#include "pool/chunk/chunk.h"
#include "pool/chunk/stitch.h"

/* One slot of a plan. */
typedef struct wr_stitch_step {
    wr_slot *slot;   /* new, with its chunk and the part that it will use */
    wr_slot *origin; /* the slot whose part the memory is now; NULL: it is new */
    bool made, mapped;
} wr_stitch_step;

typedef struct wr_stitch_plan {
    wr_cache *cache;
    const wr_request *request;
    wr_bin *bin;
    const wr_stitch_range *range; /* the range that is to get memory; NULL: whatever serves the request */
    wr_bin *open;    /* the stream's bin of planned places, if no plan is followed there; NULL: not to be used */
    bool forced;     /* use free memory before new memory, however little is held */
    size_t refused;  /* if forced: how many bytes of new memory the driver has refused */
    bool foreign;    /* use free memory of other streams too, */
    uint64_t serial; /* but not of streams that this request found busy (wr_stream.found_busy) */
    bool gathered;   /* in: what all streams had parked was freed before */
    bool gather;     /* out: free what all streams have parked and plan again, before asking for new memory */
    bool pressed;    /* forced, or memory may become short (wr_stitch_is_tight) */

    wr_segment *region; /* the region that the slots go to */
    bool fresh;         /* it is new and has no addresses yet */
    size_t start;       /* offset of the first slot in it */
    wr_bin *serves;     /* another bin of the stream that has a free block for the request; NULL: none */
    size_t tail;        /* bytes of the region's free tail, which is part of what the request gets */
    size_t bytes;       /* of all slots */
    size_t created;     /* of chunks to be made */
    bool reuses;        /* the slots are there already: the streams whose chunks they get have only to be asked */

    wr_chunk **spare; /* free chunks: the stream's first, then the pool's own, largest first */
    size_t spare_count, spare_bytes;
    uint64_t chosen;         /* the mark of those that are chosen */
    wr_piece suffix, prefix; /* free ends of chunks in use; slot NULL: none */

    wr_stitch_step *steps;
    uint32_t count, capacity;
} wr_stitch_plan;

/* *served: a free block has become large enough, or the range has memory, and nothing is left to do. Errors:
 * WEIR_ERR_BUSY where `gather` is set. */
WR_CHECKED weir_status wr_stitch_plan_locked(wr_stitch_plan *plan, bool *served);

/* Whether the request may use memory of that bin of its stream. Not of the other class where that is for little. */
bool wr_stitch_may_take(const wr_stitch_plan *plan, const wr_bin *from);

/* Whether it may use what another stream has free, once that is found to have no work queued. */
bool wr_stitch_may_have_of(const wr_stitch_plan *plan, const wr_stream *other);

/* Whether requests of a pool may be served from what the default one has free. */
bool wr_stitch_has_default(const wr_mempool *pool);

static inline wr_class wr_stitch_other_class(const wr_stitch_plan *plan)
{
    return plan->bin->class == WR_SMALL ? WR_LARGE : WR_SMALL;
}

/* NULL: the stream has none of the other class. */
static inline wr_bin *wr_stitch_other_bin(const wr_stitch_plan *plan)
{
    return wr_mempool_bin(plan->request->pool, plan->request->stream, wr_stitch_other_class(plan));
}

/* Releases the plan's records, including those of chunks that were to be made. */
void wr_stitch_plan_release_locked(wr_stitch_plan *plan);

#endif
