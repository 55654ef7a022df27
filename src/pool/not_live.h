/*
 * not_live: what is live to the cache and not to the program, of all fronts together: parked, or, where fronts are detached, free and
 * not told. Peaks are looked for with it. Lock: the cache's; what is parked changes meanwhile.
 */
#ifndef WR_POOL_NOT_LIVE_H
#define WR_POOL_NOT_LIVE_H

#include "pool/front.h"

/* Of that pool; NULL: of any. The cache's lock is held. */
static inline bool wr_front_is_in(const wr_front *front, const wr_mempool *pool)
{
    return !pool || front->pool == pool;
}

/* What is parked there is in the cache's and the pool's sums from now on, which the cache's lock guards; the second where somebody
 * goes by them. */
void wr_front_add_up(wr_front *front);
void wr_front_add_up_locked(wr_front *front);

/* What is parked in all, of however many fronts. `pool`: in its only; NULL: in all. The cache's lock is held. */
int64_t wr_fronts_parked_locked(const wr_cache *cache, const wr_mempool *pool, wr_flow_number number);

/* What is live to the cache and not to the program, of however many fronts: parked, or free and not told. */
int64_t wr_fronts_not_live_locked(const wr_cache *cache, wr_flow_number number);

/* The same by class; where fronts are many, what is parked as they said last. */
typedef struct wr_not_live {
    int64_t of[WR_CLASSES][WR_FLOW_LIVE];
} wr_not_live;

/* Of all fronts, and of those of the pool. */
void wr_fronts_sum_locked(const wr_mempool *pool, wr_not_live *all, wr_not_live *own);

static inline int64_t wr_not_live_in_all(const wr_not_live *n, int number)
{
    return n->of[WR_SMALL][number] + n->of[WR_LARGE][number];
}

/* What may become live without a peak: what is left below it when all is live that is parked, and that. */
static inline int64_t wr_not_live_below_peak(const wr_not_live *n, const wr_flow *flow, int number)
{
    return flow->room[WEIR_STAT_ALL][number] + wr_not_live_in_all(n, number);
}

#endif
