/*
 * count: changing the numbers of weir_memory_stats, those of the device and, where kept separately, of the pool. The
 * cache's lock is held.
 */
#ifndef WR_POOL_COUNT_H
#define WR_POOL_COUNT_H

#include "pool/account.h"
#include "pool/bin.h"
#include "pool/front/not_live.h"

/* Counts what happens to a segment, or rarely a block, in one set of numbers. */
typedef void (*wr_counter)(weir_memory_stats *stats, int kind, const wr_block *block);

_Static_assert(WEIR_STAT_SMALL + (int)WR_LARGE == WEIR_STAT_LARGE, "kinds of statistics follow the classes");

static inline int wr_stat_kind(wr_class class)
{
    return WEIR_STAT_SMALL + (int)class;
}

static inline int wr_count_kind(const wr_bin *bin, const wr_block *block)
{
    return wr_stat_kind(wr_bin_class_of(bin, block->bytes));
}

static inline void wr_stat_add(weir_stat *stat, int kind, size_t amount)
{
    const int of[] = { WEIR_STAT_ALL, kind };
    for (int i = 0; i < 2; i++) {
        weir_stat *s = &stat[of[i]];
        s->current += (int64_t)amount;
        wr_total_add(&s->added, amount);
        if (s->current > s->peak) s->peak = s->current;
    }
}

static inline void wr_stat_remove(weir_stat *stat, int kind, size_t amount)
{
    const int of[] = { WEIR_STAT_ALL, kind };
    for (int i = 0; i < 2; i++) {
        stat[of[i]].current -= (int64_t)amount;
        wr_total_add(&stat[of[i]].removed, amount);
    }
}

static inline void wr_count(wr_counter count, const wr_bin *bin, const wr_block *block)
{
    const int kind = wr_count_kind(bin, block);
    count(&bin->pool->cache->stats, kind, block);
    if (WR_UNLIKELY(bin->pool->counted)) count(&bin->pool->stats, kind, block);
}

#define WR_COUNT(pool, member, amount)                                                                                 \
    do {                                                                                                               \
        (pool)->cache->stats.member += (amount);                                                                       \
        if ((pool)->counted) (pool)->stats.member += (amount);                                                         \
    } while (0)

/* What becomes of a request that was not served counts in its pool, or, if that is gone by now, in the default one. */
static inline wr_mempool *wr_request_counted_locked(const wr_request *request)
{
    wr_mempool *pool = request->pool;
    return wr_mempool_name_of(pool) == request->pool_name ? pool : pool->cache->pools;
}

/* Takes the cache's lock. */
#define WR_COUNT_REQUEST(request, member)                                                                              \
    do {                                                                                                               \
        wr_cache_lock((request)->pool->cache);                                                                         \
        WR_COUNT(wr_request_counted_locked(request), member, 1);                                                       \
        wr_cache_unlock((request)->pool->cache);                                                                       \
    } while (0)

/* A freed block begins to wait for streams or graphs. */
static inline void wr_count_waits(const wr_block *block)
{
    const wr_bin *bin = block->segment->bin;
    WR_COUNT(bin->pool, pending_frees, 1);
    bin->account->pending++;
    bin->account->pending_bytes += block->bytes;
}

/* The reverse. */
static inline void wr_count_waited(const wr_block *block)
{
    const wr_bin *bin = block->segment->bin;
    WR_COUNT(bin->pool, pending_frees, -1);
    bin->account->pending--;
    bin->account->pending_bytes -= block->bytes;
}

/* The outcome of asking a plan about a request. */
typedef enum wr_outcome {
    WR_UNPLANNED, /* the plan does not have it at this point */
    WR_SERVED,
    WR_LATE,   /* its place is in use */
    WR_LACKING /* there is no memory behind its place, or behind part of it */
} wr_outcome;

static inline void wr_count_planned(wr_mempool *pool, wr_outcome found, size_t block_bytes)
{
    WR_COUNT(pool, plan_served, found == WR_SERVED);
    WR_COUNT(pool, plan_late, found == WR_LATE || found == WR_LACKING);
    WR_COUNT(pool, plan_missed, found == WR_UNPLANNED);
    if (found != WR_SERVED) WR_COUNT(pool, plan_missed_bytes, block_bytes);
}

/* ---- statistics of blocks, which a flow collects first ----------------------------------------------------------- */

/* The statistics of the cache, or the pool's own, with everything in the flow added. */
weir_memory_stats *wr_stats_locked(wr_cache *cache);
weir_memory_stats *wr_pool_stats_locked(wr_mempool *pool); /* the cache's where the pool has none */

/* The statistics are up to date, and peaks were looked for or reset: measures the room below them again. */
void wr_count_measure_locked(weir_memory_stats *stats, wr_flow *flow);

/* The most bytes requested at once, ever: resetting statistics, before which this is called, must not change
 * placement. */
int64_t wr_count_most_requested_locked(wr_cache *cache);

/* No room is left in the cache's flow or the pool's: for what is live, or for splits. The second also while a front is
 * being emptied, when nobody knows what is live. */
WR_NOINLINE void wr_count_full_locked(wr_mempool *pool);
WR_NOINLINE void wr_count_splits_full_locked(wr_mempool *pool);

/* The first, for a caller that has the sums over all fronts and over the pool's. They may be updated. */
void wr_count_peaks_locked(wr_mempool *pool, wr_not_live *all, wr_not_live *own);

/* The device's peaks were reset, with all fronts closed: they are right. */
void wr_count_trust_peaks_locked(wr_cache *cache);

/* Negative: no room is left, as with wr_flow_come. */
static inline int64_t wr_flow_live(wr_flow *flow, int kind, const wr_block *block)
{
    const int64_t blocks = wr_flow_come(flow, kind, WR_FLOW_BLOCKS, 1);
    const int64_t bytes = wr_flow_come(flow, kind, WR_FLOW_BYTES, block->bytes);
    return wr_flow_come(flow, kind, WR_FLOW_REQUESTED, block->requested) | blocks | bytes;
}

static inline void wr_flow_freed(wr_flow *flow, int kind, const int64_t sums[WR_FLOW_LIVE])
{
    wr_flow_go(flow, kind, WR_FLOW_BLOCKS, sums[WR_FLOW_BLOCKS]);
    wr_flow_go(flow, kind, WR_FLOW_BYTES, sums[WR_FLOW_BYTES]);
    wr_flow_go(flow, kind, WR_FLOW_REQUESTED, sums[WR_FLOW_REQUESTED]);
}

static inline int64_t wr_flow_free_in(wr_flow *flow, int kind, size_t bytes)
{
    const int64_t splits = wr_flow_come(flow, kind, WR_FLOW_SPLITS, 1);
    return wr_flow_come(flow, kind, WR_FLOW_SPLIT_BYTES, bytes) | splits;
}

static inline void wr_flow_free_out(wr_flow *flow, int kind, size_t bytes)
{
    wr_flow_go(flow, kind, WR_FLOW_SPLITS, 1);
    wr_flow_go(flow, kind, WR_FLOW_SPLIT_BYTES, bytes);
}

/* A detached front's ledger is added to the cache's flow and the pool's later. */
static inline void wr_bin_use_ledger(wr_bin *bin, wr_ledger *ledger)
{
    wr_mempool *pool = bin->pool;
    if (ledger != &pool->cache->ledger) wr_bin_stir(bin); /* later the pool's list may not change */
    bin->ledger = ledger;
    bin->also = pool->counted && ledger == &pool->cache->ledger ? &pool->flow : NULL;
}

/* A block becomes live. Parked blocks count as live here, but not in a peak: the fronts know how much they are. */
static inline void wr_count_live(const wr_bin *bin, const wr_block *block)
{
    const int kind = wr_count_kind(bin, block);
    int64_t left = wr_flow_live(&bin->ledger->flow, kind, block);
    if (WR_UNLIKELY(bin->also)) left |= wr_flow_live(bin->also, kind, block);
    if (WR_UNLIKELY(left < 0)) wr_count_full_locked(bin->pool);
}

/* Live blocks of one kind, with these sums, are free or about to be. */
static inline void wr_count_all_freed(const wr_bin *bin, int kind, const int64_t sums[WR_FLOW_LIVE])
{
    wr_flow_freed(&bin->ledger->flow, kind, sums);
    if (WR_UNLIKELY(bin->also)) wr_flow_freed(bin->also, kind, sums);
}

static inline void wr_count_freed(const wr_bin *bin, const wr_block *block)
{
    const int64_t sums[WR_FLOW_LIVE] = { 1, (int64_t)block->bytes, (int64_t)block->requested };
    wr_count_all_freed(bin, wr_count_kind(bin, block), sums);
}

/* Free, in a segment with other blocks, and not of chunks: PyTorch leaves expandable segments out too. */
static inline bool wr_block_is_inactive_split(const wr_block *block)
{
    return WR_UNLIKELY(!block->segment->region) && (block->prev || block->next);
}

static inline void wr_count_free_in(const wr_bin *bin, const wr_block *block)
{
    if (!wr_block_is_inactive_split(block)) return;
    const int kind = wr_count_kind(bin, block);
    int64_t left = wr_flow_free_in(&bin->ledger->flow, kind, block->bytes);
    if (WR_UNLIKELY(bin->also)) left |= wr_flow_free_in(bin->also, kind, block->bytes);
    if (WR_UNLIKELY(left < 0)) wr_count_splits_full_locked(bin->pool);
}

static inline void wr_count_free_out(const wr_bin *bin, const wr_block *block)
{
    if (!wr_block_is_inactive_split(block)) return;
    const int kind = wr_count_kind(bin, block);
    wr_flow_free_out(&bin->ledger->flow, kind, block->bytes);
    if (WR_UNLIKELY(bin->also)) wr_flow_free_out(bin->also, kind, block->bytes);
}

/* For wr_count: a live block becomes pending; a pending one becomes free. */
static inline void wr_counter_live_out(weir_memory_stats *stats, int kind, const wr_block *block)
{
    wr_stat_remove(stats->allocation, kind, 1);
    wr_stat_remove(stats->allocated_bytes, kind, block->bytes);
}

static inline void wr_counter_active_out(weir_memory_stats *stats, int kind, const wr_block *block)
{
    wr_stat_remove(stats->active, kind, 1);
    wr_stat_remove(stats->active_bytes, kind, block->bytes);
    wr_stat_remove(stats->requested_bytes, kind, block->requested);
}

/* ---- statistics of segments -------------------------------------------------------------------------------------- */

/* For the block's segment: with memory behind its addresses, or without. */
static inline void wr_counter_backing_in(weir_memory_stats *stats, int kind, const wr_block *block)
{
    if (block->segment->backing == WR_UNBACKED)
        stats->paused_bytes += block->segment->bytes;
    else
        wr_stat_add(stats->reserved_bytes, kind, block->segment->bytes);
}

static inline void wr_counter_backing_out(weir_memory_stats *stats, int kind, const wr_block *block)
{
    if (block->segment->backing == WR_UNBACKED)
        stats->paused_bytes -= block->segment->bytes;
    else
        wr_stat_remove(stats->reserved_bytes, kind, block->segment->bytes);
}

static inline void wr_counter_segment_in(weir_memory_stats *stats, int kind, const wr_block *block)
{
    wr_stat_add(stats->segment, kind, 1);
    wr_counter_backing_in(stats, kind, block);
}

static inline void wr_counter_segment_out(weir_memory_stats *stats, int kind, const wr_block *block)
{
    wr_stat_remove(stats->segment, kind, 1);
    wr_counter_backing_out(stats, kind, block);
}

#endif
