/*
 * count: moving the numbers of weir_memory_stats, of the device and, where they are kept apart, of the pool. The cache's
 * lock is held.
 */
#ifndef WR_POOL_COUNT_H
#define WR_POOL_COUNT_H

#include "pool/front.h"

/* What happens to a block or segment, counted in one set of numbers. */
typedef void (*wr_counter)(weir_memory_stats *stats, int kind, const wr_block *block);

static inline int wr_stat_kind(wr_class class)
{
    return class == WR_SMALL ? WEIR_STAT_SMALL : WEIR_STAT_LARGE;
}

/* The peak is left to the caller: true when there may be one. */
static inline bool wr_stat_raise(weir_stat *stat, int kind, size_t amount)
{
    const int of[] = { WEIR_STAT_ALL, kind };
    bool above = false;
    for (int i = 0; i < 2; i++) {
        stat[of[i]].current += (int64_t)amount;
        stat[of[i]].added += (int64_t)amount;
        above |= stat[of[i]].current > stat[of[i]].peak;
    }
    return above;
}

static inline void wr_stat_add(weir_stat *stat, int kind, size_t amount)
{
    const int of[] = { WEIR_STAT_ALL, kind };
    if (!wr_stat_raise(stat, kind, amount)) return;
    for (int i = 0; i < 2; i++)
        if (stat[of[i]].current > stat[of[i]].peak) stat[of[i]].peak = stat[of[i]].current;
}

static inline void wr_stat_remove(weir_stat *stat, int kind, size_t amount)
{
    const int of[] = { WEIR_STAT_ALL, kind };
    for (int i = 0; i < 2; i++) {
        stat[of[i]].current -= (int64_t)amount;
        stat[of[i]].removed += (int64_t)amount;
    }
}

static inline void wr_count(wr_counter count, const wr_bin *bin, const wr_block *block)
{
    const int kind = wr_stat_kind(wr_block_class(block));
    count(&bin->pool->cache->stats, kind, block);
    if (WR_UNLIKELY(bin->pool->counted)) count(&bin->pool->stats, kind, block);
}

/* So much more of a member of weir_memory_stats that is a counter. */
#define WR_COUNT(pool, member, amount)                                                                                 \
    do {                                                                                                               \
        (pool)->cache->stats.member += (amount);                                                                       \
        if ((pool)->counted) (pool)->stats.member += (amount);                                                         \
    } while (0)

/* What is parked counts as live here, and not in a peak: the fronts know how much that is. */
static inline void wr_counter_live_in(weir_memory_stats *stats, int kind, const wr_block *block)
{
    bool above = wr_stat_raise(stats->allocation, kind, 1);
    above |= wr_stat_raise(stats->allocated_bytes, kind, block->bytes);
    above |= wr_stat_raise(stats->active, kind, 1);
    above |= wr_stat_raise(stats->active_bytes, kind, block->bytes);
    above |= wr_stat_raise(stats->requested_bytes, kind, block->requested);
    if (above) wr_fronts_note_peaks(block->segment->bin->pool, stats);
}

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

/* A free block enters or leaves its bin: counted as inactive split when its segment has other blocks. */
static inline void wr_counter_free_in(weir_memory_stats *stats, int kind, const wr_block *block)
{
    if (!block->prev && !block->next) return;
    wr_stat_add(stats->inactive_split, kind, 1);
    wr_stat_add(stats->inactive_split_bytes, kind, block->bytes);
}

static inline void wr_counter_free_out(weir_memory_stats *stats, int kind, const wr_block *block)
{
    if (!block->prev && !block->next) return;
    wr_stat_remove(stats->inactive_split, kind, 1);
    wr_stat_remove(stats->inactive_split_bytes, kind, block->bytes);
}

/* Of the block's segment: memory behind its addresses, or none. */
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
