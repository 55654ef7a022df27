/*
 * subplan: what a served plan has for private pools. An arena waits for the first pool that begins, on a stream, as the
 * arena does, and belongs to that pool from then on, whether or not another plan is served later. So a graph whose
 * capture has begun as planned is captured as planned to its end.
 *
 *   cache->subplans: those that wait, in the plan's order
 *   mempool->subplans: those that the pool has, one for each of its streams at most
 *     follower (pool/plan/follow.h): which entry a request is
 *     segment: of the arena's size, in the stream's bin of large blocks. NULL: none, all is served as without a plan
 *
 * The segment comes from the pool's own source and is a segment like any other: it is given back when others of the
 * pool may be, never while a graph holds the pool, and a block in it waits for other streams like any block. A place is
 * given out when all of it lies in one free block. While the program keeps to the plan, nothing else is cut from the
 * segment's free blocks unless no other memory can be had. Afterwards they serve every request of the stream, small
 * ones too.
 * Owner: the cache for those that wait; the pool for those it has, until it has no segment and nobody refers to it.
 * Then they wait again, if no other plan was served meanwhile. Lock: the cache's. While a segment is being asked for,
 * the pool stays, and with it the subplan that the segment is for.
 */
#ifndef WR_POOL_PLAN_SUBPLAN_H
#define WR_POOL_PLAN_SUBPLAN_H

#include "pool/cache.h"
#include "weir/plan.h"

/* A request's place, as offsets in the segment. */
typedef struct wr_subplace {
    size_t from, to;
    bool guessed; /* the place may be meant for another request of the size */
} wr_subplace;

/* Whether any subplan waits or belongs to a pool. */
static inline bool wr_subplans_any(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->subplan_count, memory_order_relaxed) != 0;
}

/* Makes subplans of the plan's arenas that are for private pools of the device and for one stream. *list: NULL when
 * there are none. */
WR_CHECKED weir_status wr_subplans_make(const wr_cache *cache, const weir_plan *plan, wr_subplan **list);
void wr_subplans_destroy(wr_subplan *list);

/* The listed subplans wait from now on. *list becomes those that waited before, to be destroyed without the lock. */
void wr_subplans_offer_locked(wr_cache *cache, wr_subplan **list);

/* The pool is gone. Returns subplans to be destroyed without the lock. */
WR_CHECKED wr_subplan *wr_subplans_return_locked(wr_cache *cache, wr_mempool *pool);

/* At close. */
void wr_subplans_release(wr_cache *cache);

/* Serves a request of a private pool from its planned place. *out is NULL when there is none; no failure here is an
 * error. True: the place is in use; call wr_subplan_retry once pending frees were polled. */
WR_CHECKED bool wr_subplan_take(wr_cache *cache, const wr_request *request, wr_subplace *at, void **out);
void wr_subplan_retry(wr_cache *cache, const wr_request *request, const wr_subplace *at, void **out);

/* No memory can be had, so the stream's planned places are for every request until it does again what was planned.
 * False: there are none, or they are open already. */
WR_CHECKED bool wr_subplan_yield(wr_cache *cache, const wr_request *request);

/* -- the lock is held */

/* Replaces `block`, the best fit (NULL: none), by one that is not spared for planned places. */
WR_NOINLINE wr_block *wr_subplan_choose_locked(const wr_request *request, wr_block *block);

/* Whether each subplan's segment is the pool's, and in a bin of the stream that it is planned for. */
bool wr_subplans_agree_locked(const wr_mempool *pool);

/* The segment is being hidden: it has no planned places any more. */
void wr_subplan_forget_segment_locked(const wr_segment *segment);

/* The stream ends. The move lock is held too. */
void wr_subplan_forget_stream_locked(const wr_cache *cache, const wr_stream *stream);

#endif
