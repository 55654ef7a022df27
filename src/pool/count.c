#include "pool/count.h"

#include "base/size.h"

/* The statistics fed by each number of a flow. */
typedef struct followers {
    weir_stat *of[2]; /* each by kind; NULL: there is only one */
} followers;

static followers followers_of(weir_memory_stats *stats, int number)
{
    switch ((wr_flow_number)number) {
    case WR_FLOW_BLOCKS: return (followers){ { stats->allocation, stats->active } };
    case WR_FLOW_BYTES: return (followers){ { stats->allocated_bytes, stats->active_bytes } };
    case WR_FLOW_REQUESTED: return (followers){ { stats->requested_bytes, NULL } };
    case WR_FLOW_SPLITS: return (followers){ { stats->inactive_split, NULL } };
    default: return (followers){ { stats->inactive_split_bytes, NULL } };
    }
}

static void tell(weir_stat *stat, uint64_t came, int64_t stayed)
{
    stat->current += stayed;
    wr_total_add(&stat->added, came);
    wr_total_add(&stat->removed, came - (uint64_t)stayed);
}

static void put_together(weir_memory_stats *stats, wr_flow *flow)
{
    for (int number = 0; number < WR_FLOW_NUMBERS; number++) {
        const followers f = followers_of(stats, number);
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
            if (kind == WEIR_STAT_ALL) continue;
            const uint64_t came = flow->came[kind][number];
            const int64_t stayed = flow->had[kind][number] - flow->room[kind][number];
            for (int i = 0; i < 2 && f.of[i]; i++) {
                tell(&f.of[i][kind], came, stayed);
                tell(&f.of[i][WEIR_STAT_ALL], came, stayed);
            }
            flow->came[kind][number] = 0;
        }
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) flow->had[kind][number] = flow->room[kind][number];
    }
}

void wr_count_measure_locked(weir_memory_stats *stats, wr_flow *flow)
{
    for (int number = 0; number < WR_FLOW_NUMBERS; number++) {
        const followers f = followers_of(stats, number);
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
            int64_t room = INT64_MAX;
            for (int i = 0; i < 2 && f.of[i]; i++) {
                const int64_t below = f.of[i][kind].peak - f.of[i][kind].current;
                if (below < room) room = below;
            }
            flow->room[kind][number] = flow->had[kind][number] = room;
        }
    }
}

weir_memory_stats *wr_stats_locked(wr_cache *cache)
{
    put_together(&cache->stats, &cache->ledger.flow);
    return &cache->stats;
}

weir_memory_stats *wr_pool_stats_locked(wr_mempool *pool)
{
    if (!pool->counted) return wr_stats_locked(pool->cache);
    put_together(&pool->stats, &pool->flow);
    return &pool->stats;
}

static void raise_peak(weir_stat *stat, int64_t parked)
{
    if (stat->current - parked > stat->peak) stat->peak = stat->current - parked;
}

static int64_t parked_of(const wr_not_live *not_live, int kind, int number)
{
    if (kind == WEIR_STAT_ALL) return wr_not_live_in_all(not_live, number);
    return not_live->of[kind - WEIR_STAT_SMALL][number];
}

/* With much parked there is mostly no room, and yet no peak. */
static bool has_peak(const wr_flow *flow, const wr_not_live *not_live)
{
    int64_t signs = 0; /* negative when any of these is */
    for (int number = 0; number < WR_FLOW_LIVE; number++)
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++)
            signs |= flow->room[kind][number] + parked_of(not_live, kind, number);
    return signs < 0;
}

static void note_live_peaks(weir_memory_stats *stats, wr_flow *flow, const wr_not_live *not_live)
{
    if (!has_peak(flow, not_live)) return;
    put_together(stats, flow);
    for (int number = 0; number < WR_FLOW_LIVE; number++) {
        const followers f = followers_of(stats, number);
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++)
            for (int i = 0; i < 2 && f.of[i]; i++) raise_peak(&f.of[i][kind], parked_of(not_live, kind, number));
    }
    wr_count_measure_locked(stats, flow);
}

static void note_split_peaks(weir_memory_stats *stats, wr_flow *flow)
{
    put_together(stats, flow);
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
        raise_peak(&stats->inactive_split[kind], 0);
        raise_peak(&stats->inactive_split_bytes[kind], 0);
    }
    wr_count_measure_locked(stats, flow);
}

/* Where fronts are many, sums of what is parked are out of date, and peaks may become too high for that: by so much, or
 * that share of the peak, before all fronts are asked. */
static const int64_t DOUBTFUL_LEAST[WR_FLOW_LIVE] = { 64, WR_MIB, WR_MIB };
enum { DOUBTFUL_SHARE = 64 };

static int64_t doubtful_most(wr_cache *cache, int number)
{
    const int64_t share = followers_of(&cache->stats, number).of[0][WEIR_STAT_ALL].peak / DOUBTFUL_SHARE;
    return share > DOUBTFUL_LEAST[number] ? share : DOUBTFUL_LEAST[number];
}

/* What is said to be live beyond a peak. */
static int64_t beyond_peak(const wr_cache *cache, const wr_not_live *all, int number)
{
    const int64_t below = wr_not_live_below_peak(all, &cache->ledger.flow, number);
    return below < 0 ? -below : 0;
}

static void ask_all_locked(wr_mempool *pool, wr_not_live *all, wr_not_live *own)
{
    wr_cache *cache = pool->cache;
    wr_fronts_add_up_locked(cache);
    wr_fronts_sum_locked(pool, all, own);
    for (int number = 0; number < WR_FLOW_LIVE; number++)
        if (beyond_peak(cache, all, number) > 0) cache->doubtful[number] = 0; /* so that is the peak */
}

/* Whether peaks would become too high by too much. */
static bool is_too_doubtful(wr_cache *cache, const wr_not_live *all)
{
    for (int number = 0; number < WR_FLOW_LIVE; number++) {
        const int64_t beyond = beyond_peak(cache, all, number);
        if (beyond > 0 && cache->doubtful[number] + beyond > doubtful_most(cache, number)) return true;
    }
    return false;
}

/* Updates the sums where needed, with those fronts first that have been met since and so have parked the most. */
static WR_NOINLINE void look_again_locked(wr_mempool *pool, wr_not_live *all, wr_not_live *own)
{
    wr_cache *cache = pool->cache;
    bool doubtful = is_too_doubtful(cache, all);
    if (doubtful) {
        wr_fronts_add_up_met_locked(cache);
        wr_fronts_sum_locked(pool, all, own);
        doubtful = is_too_doubtful(cache, all);
    }
    if (doubtful)
        ask_all_locked(pool, all, own);
    else
        for (int number = 0; number < WR_FLOW_LIVE; number++)
            cache->doubtful[number] += beyond_peak(cache, all, number);
}

void wr_count_trust_peaks_locked(wr_cache *cache)
{
    for (int number = 0; number < WR_FLOW_LIVE; number++) cache->doubtful[number] = 0;
}

void wr_count_peaks_locked(wr_mempool *pool, wr_not_live *all, wr_not_live *own)
{
    wr_cache *cache = pool->cache;
    if (cache->front_count > WR_FRONTS_SUMMED && has_peak(&cache->ledger.flow, all)) look_again_locked(pool, all, own);
    note_live_peaks(&cache->stats, &cache->ledger.flow, all);
    if (pool->counted) note_live_peaks(&pool->stats, &pool->flow, own);
}

int64_t wr_count_most_requested_locked(wr_cache *cache)
{
    const int64_t peak = wr_stats_locked(cache)->requested_bytes[WEIR_STAT_ALL].peak;
    if (peak > cache->most_requested) cache->most_requested = peak;
    return cache->most_requested;
}

void wr_count_full_locked(wr_mempool *pool)
{
    wr_not_live all, own;
    wr_fronts_sum_locked(pool, &all, &own);
    wr_count_peaks_locked(pool, &all, &own);
}

void wr_count_splits_full_locked(wr_mempool *pool)
{
    note_split_peaks(&pool->cache->stats, &pool->cache->ledger.flow);
    if (pool->counted) note_split_peaks(&pool->stats, &pool->flow);
}
