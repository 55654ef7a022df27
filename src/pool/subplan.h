/*
 * subplan: what a served plan has for private pools. An arena waits for the first pool that begins, on a stream, as the arena
 * does, and is that pool's from then on: whatever is served later, or nothing, the pool goes on with it. So a graph is captured
 * as it was planned, once its capture has begun to be.
 *
 *   cache->subplans: those that wait, in the plan's order
 *   mempool->subplans: those that the pool has, one for each of its streams at most
 *     follower (pool/follow.h): which entry a request is
 *     segment: of the arena's size, in the stream's bin of large blocks. NULL: there is none, and all is served as without
 *
 * The segment comes from the pool's own source and is a segment like any other: it goes when others of the pool may, never while
 * a graph holds the pool, and a block in it waits for other streams as all do. A place is given out when all of it is one free
 * block's. While the program keeps to the plan nothing else is cut from the segment's free blocks, unless no other memory is to
 * be had; afterwards they serve every request of the stream, small ones too.
 * Owner: the cache of what waits; the pool of what it has, until it has no segment and nobody refers to it: then it waits again,
 * if no other plan was served meanwhile. Lock: the cache's. As long as a segment is being asked for, the pool stays, and with it
 * the subplan that the segment is for.
 */
#ifndef WR_POOL_SUBPLAN_H
#define WR_POOL_SUBPLAN_H

#include "pool/cache.h"
#include "weir/plan.h"

/* The place that a request has, as offsets in the segment. */
typedef struct wr_subplace {
    size_t from, to;
    bool guessed; /* the request need not be the one that it is for */
} wr_subplace;

/* Whether any waits, or is a pool's. */
static inline bool wr_subplans_any(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->subplan_count, memory_order_relaxed) != 0;
}

/* The plan's arenas of private pools of the device that are of one stream. *list: NULL when there are none. */
WR_CHECKED weir_status wr_subplans_make(const wr_cache *cache, const weir_plan *plan, wr_subplan **list);
void wr_subplans_destroy(wr_subplan *list);

/* These wait from now on; *list becomes those that did, to be destroyed without the lock. */
void wr_subplans_offer_locked(wr_cache *cache, wr_subplan **list);

/* The pool is over. Returns what is to be destroyed without the lock. */
WR_CHECKED wr_subplan *wr_subplans_return_locked(wr_cache *cache, wr_mempool *pool);

/* At close. */
void wr_subplans_release(wr_cache *cache);

/* Serves a request of a private pool from its planned place. *out is NULL when it has none; nothing that goes wrong here is an
 * error. True: the place is in use, and wr_subplan_retry comes next, when what may have become free was looked for. */
WR_CHECKED bool wr_subplan_take(wr_cache *cache, const wr_request *request, wr_subplace *at, void **out);
void wr_subplan_retry(wr_cache *cache, const wr_request *request, const wr_subplace *at, void **out);

/* No memory is to be had: the stream's planned places are for everybody, until it does again what was planned. False: there are
 * none, or they are already. */
WR_CHECKED bool wr_subplan_yield(wr_cache *cache, const wr_request *request);

/* -- the lock is held */

/* Instead of the free block that fits best, `block`, NULL for none: one that is not spared for planned places. */
WR_NOINLINE wr_block *wr_subplan_choose_locked(const wr_request *request, wr_block *block);

/* Whether each segment is the pool's, and of the stream that it is planned for. */
bool wr_subplans_agree_locked(const wr_mempool *pool);

/* The segment goes out of sight: whatever comes of that, it is nobody's place any more. */
void wr_subplan_forget_segment_locked(const wr_segment *segment);

/* With the move lock too: the stream ends. */
void wr_subplan_forget_stream_locked(const wr_cache *cache, const wr_stream *stream);

#endif
