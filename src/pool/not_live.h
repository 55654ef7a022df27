/*
 * not_live: blocks that the cache counts as live though the program has freed them: those that are parked in fronts, and those that
 * detached fronts have freed, of which the cache's flow does not know yet. Peaks of what is live leave them out.
 * Lock: the cache's; what is parked changes all the same.
 */
#ifndef WR_POOL_NOT_LIVE_H
#define WR_POOL_NOT_LIVE_H

#include "pool/front.h"

/* Of that pool; NULL: of any. The cache's lock is held. */
static inline bool wr_front_is_in(const wr_front *front, const wr_mempool *pool)
{
    return !pool || front->pool == pool;
}

/* Brings the cache's and the pool's sums of what is parked up to date with this front; the second only where there are so many fronts
 * that the sums are used. The cache's lock is held. */
void wr_front_add_up(wr_front *front);
void wr_front_add_up_locked(wr_front *front);

/* What is parked in all, of however many fronts. `pool`: in its only; NULL: in all. The cache's lock is held. */
int64_t wr_fronts_parked_locked(const wr_cache *cache, const wr_mempool *pool, wr_flow_number number);

/* All that is not live, of however many fronts. */
int64_t wr_fronts_not_live_locked(const wr_cache *cache, wr_flow_number number);

/* The same by class; where fronts are many, by the sums of what is parked, which may be out of date. */
typedef struct wr_not_live {
    int64_t of[WR_CLASSES][WR_FLOW_LIVE];
} wr_not_live;

/* Of all fronts, and of those of the pool. */
void wr_fronts_sum_locked(const wr_mempool *pool, wr_not_live *all, wr_not_live *own);

static inline int64_t wr_not_live_in_all(const wr_not_live *n, int number)
{
    return n->of[WR_SMALL][number] + n->of[WR_LARGE][number];
}

/* How much may become live until there is a peak. */
static inline int64_t wr_not_live_below_peak(const wr_not_live *n, const wr_flow *flow, int number)
{
    return flow->room[WEIR_STAT_ALL][number] + wr_not_live_in_all(n, number);
}

#endif
