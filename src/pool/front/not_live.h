/*
 * not_live: blocks that the cache counts as live though the program has freed them: those parked in fronts, and those
 * that detached fronts have freed, which the cache's flow does not show yet. Peaks of what is live leave them out.
 * Lock: the cache's; what is parked may change all the same.
 */
#ifndef WR_POOL_FRONT_NOT_LIVE_H
#define WR_POOL_FRONT_NOT_LIVE_H

#include "pool/front/front.h"

/* Whether the front is in that pool; NULL: in any. The cache's lock is held. */
static inline bool wr_front_is_in(const wr_front *front, const wr_mempool *pool)
{
    return !pool || front->pool == pool;
}

/* Updates the cache's and the pool's sums of what is parked with this front; the second only where fronts are so many
 * that the sums are used. The cache's lock is held. */
void wr_front_add_up(wr_front *front);
void wr_front_add_up_locked(wr_front *front);

/* What is parked in all fronts of the pool, however many, or posted there; NULL: of all pools. The cache's lock is
 * held. */
int64_t wr_fronts_parked_locked(const wr_cache *cache, const wr_mempool *pool, wr_flow_number number);

/* All that is not live, in all fronts, however many. */
int64_t wr_fronts_not_live_locked(const wr_cache *cache, wr_flow_number number);

/* Bytes of all blocks that are active, parked or posted. Asks no front that is not detached. */
int64_t wr_fronts_active_locked(wr_cache *cache);

/* The same by class. Where fronts are many, this uses the sums of what is parked, which may be out of date. */
typedef struct wr_not_live {
    int64_t of[WR_CLASSES][WR_FLOW_LIVE];
} wr_not_live;

/* In all fronts, and in those of the pool if it has numbers of its own; *own is zero otherwise. */
void wr_fronts_sum_locked(const wr_mempool *pool, wr_not_live *all, wr_not_live *own);

/* The same without what settled detached fronts have spare or posted: what they hand out of that meanwhile does not
 * change it. */
void wr_fronts_sum_unpromised_locked(const wr_mempool *pool, wr_not_live *all, wr_not_live *own);

/* Updates the sums with all fronts; or with those that they were updated with since this was last
 * called, and a few before. */
void wr_fronts_add_up_locked(const wr_cache *cache);
void wr_fronts_add_up_met_locked(wr_cache *cache);

static inline int64_t wr_not_live_in_all(const wr_not_live *n, int number)
{
    return n->of[WR_SMALL][number] + n->of[WR_LARGE][number];
}

/* How much may become live before there is a new peak. */
static inline int64_t wr_not_live_below_peak(const wr_not_live *n, const wr_flow *flow, int number)
{
    return flow->room[WEIR_STAT_ALL][number] + wr_not_live_in_all(n, number);
}

#endif
