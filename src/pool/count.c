#include "pool/count.h"

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

static void tell(weir_stat *stat, int64_t came, int64_t stayed)
{
    stat->current += stayed;
    stat->added += came;
    stat->removed += came - stayed;
}

static void put_together(weir_memory_stats *stats, wr_flow *flow)
{
    for (int number = 0; number < WR_FLOW_NUMBERS; number++) {
        const followers f = followers_of(stats, number);
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
            if (kind == WEIR_STAT_ALL) continue;
            const int64_t came = flow->came[kind][number];
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
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++)
        for (int number = 0; number < WR_FLOW_LIVE; number++)
            if (flow->room[kind][number] + parked_of(not_live, kind, number) < 0) return true;
    return false;
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

void wr_count_peaks_locked(wr_mempool *pool, const wr_not_live *all, const wr_not_live *own)
{
    wr_cache *cache = pool->cache;
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
