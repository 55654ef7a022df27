#include "pool/front/not_live.h"

#include "pool/count.h"
#include "pool/front/detach.h"

#include <string.h>

int64_t wr_fronts_parked_locked(const wr_cache *cache, const wr_mempool *pool, wr_flow_number number)
{
    int64_t sum = 0;
    for (const wr_front *f = wr_front_first(cache); f; f = wr_front_next(f))
        if (wr_front_is_in(f, pool)) sum += wr_front_not_live_in_all(f, number);
    return sum;
}

static int64_t untold_in_all(const wr_cache *cache, wr_flow_number number)
{
    return wr_detached_untold(cache, NULL, WR_SMALL, number) + wr_detached_untold(cache, NULL, WR_LARGE, number);
}

int64_t wr_fronts_not_live_locked(const wr_cache *cache, wr_flow_number number)
{
    return wr_fronts_parked_locked(cache, NULL, number) + untold_in_all(cache, number);
}

int64_t wr_fronts_active_locked(wr_cache *cache)
{
    return wr_stats_locked(cache)->active_bytes[WEIR_STAT_ALL].current - untold_in_all(cache, WR_FLOW_BYTES);
}

/* The same without what a settled detached front has spare, or will have when it collects what is posted. That changes
 * with the front's lock alone; the rest of what it has parked does not. */
static inline int64_t not_promised(const wr_front *front, wr_class class, wr_flow_number number)
{
    const bool promises = wr_front_is_detached(front) && wr_front_is_settled(front);
    if (!promises) return wr_front_not_live(front, class, number);
    return atomic_load_explicit(&front->parts[class].kept[number], memory_order_relaxed);
}

/* `promised`: also what is promised, for this and those that follow. A constant where they are inlined, since each
 * request that misses its front comes here. */
static WR_ALWAYS_INLINE void add_parked(wr_not_live *sums, const wr_front *front, bool promised)
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FLOW_LIVE; i++)
            sums->of[class][i] += promised ? wr_front_not_live(front, (wr_class) class, (wr_flow_number)i)
                                           : not_promised(front, (wr_class) class, (wr_flow_number)i);
}

static WR_ALWAYS_INLINE void add_beyond_said(wr_not_live *sums, const wr_front *front, bool promised)
{
    add_parked(sums, front, promised);
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FLOW_LIVE; i++) sums->of[class][i] -= front->parts[class].added_up[i];
}

/* Detached fronts are asked directly, since they empty themselves without updating the sums. `pool`: those of that
 * pool; NULL: all. */
static WR_ALWAYS_INLINE void add_as_said(wr_not_live *sums, const wr_cache *cache, const wr_mempool *pool,
                                         bool promised)
{
    memcpy(sums->of, pool ? pool->parked : cache->parked, sizeof sums->of);
    for (const wr_front *f = cache->detached; f; f = f->next_detached)
        if (wr_front_is_in(f, pool)) add_beyond_said(sums, f, promised);
}

static void add_untold(wr_not_live *sums, const wr_cache *cache, const wr_mempool *pool)
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FLOW_LIVE; i++)
            sums->of[class][i] += wr_detached_untold(cache, pool, (wr_class) class, i);
}

static WR_ALWAYS_INLINE void sum(const wr_mempool *pool, wr_not_live *all, wr_not_live *own, bool promised)
{
    const wr_cache *cache = pool->cache;
    *all = *own = (wr_not_live){ 0 };
    if (WR_UNLIKELY(cache->front_count > WR_FRONTS_SUMMED)) {
        add_as_said(all, cache, NULL, promised);
        if (pool->counted) add_as_said(own, cache, pool, promised);
    } else {
        for (const wr_front *f = wr_front_first(cache); f; f = wr_front_next(f)) {
            add_parked(all, f, promised);
            if (pool->counted && f->pool == pool) add_parked(own, f, promised);
        }
    }
    if (WR_LIKELY(!cache->detached)) return;
    add_untold(all, cache, NULL);
    if (pool->counted) add_untold(own, cache, pool);
}

void wr_fronts_sum_locked(const wr_mempool *pool, wr_not_live *all, wr_not_live *own)
{
    sum(pool, all, own, true);
}

void wr_fronts_sum_unpromised_locked(const wr_mempool *pool, wr_not_live *all, wr_not_live *own)
{
    sum(pool, all, own, false);
}

void wr_front_add_up(wr_front *front)
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FLOW_LIVE; i++) {
            wr_front_part *part = &front->parts[class];
            const int64_t now = wr_front_not_live(front, (wr_class) class, (wr_flow_number)i);
            front->cache->parked[class][i] += now - part->added_up[i];
            front->pool->parked[class][i] += now - part->added_up[i];
            part->added_up[i] = now;
        }
}

void wr_fronts_add_up_locked(const wr_cache *cache)
{
    for (wr_front *f = wr_front_first(cache); f; f = wr_front_next(f)) wr_front_add_up(f);
}

/* So many of the last that were met stay in the list: what they have handed out since may be parked soon. */
enum { MET_LAST = 16 };

void wr_fronts_add_up_met_locked(wr_cache *cache)
{
    wr_front **end = &cache->met;
    unsigned count = 0;
    for (wr_front *f = cache->met; f; f = f->next_met) {
        if (f->listed) wr_front_add_up(f); /* else nothing is parked, and its pool may be gone */
        f->met = count++ < MET_LAST;
        if (f->met) end = &f->next_met;
    }
    *end = NULL;
}

static void note_met(wr_cache *cache, wr_front *front)
{
    if (front->met) return;
    front->met = true;
    front->next_met = cache->met;
    cache->met = front;
}

void wr_front_add_up_locked(wr_front *front)
{
    if (WR_LIKELY(front->cache->front_count <= WR_FRONTS_SUMMED)) return;
    note_met(front->cache, front);
    wr_front_add_up(front);
}
