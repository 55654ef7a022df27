/*
 * count: moving the numbers of weir_memory_stats. The cache's lock is held.
 */
#ifndef WR_POOL_COUNT_H
#define WR_POOL_COUNT_H

#include "pool/cache.h"

static inline void wr_stat_add(weir_stat *stat, int64_t amount)
{
    stat->current += amount;
    stat->added += amount;
    if (stat->current > stat->peak) stat->peak = stat->current;
}

static inline void wr_stat_remove(weir_stat *stat, int64_t amount)
{
    stat->current -= amount;
    stat->removed += amount;
}

/* Both of a pair of arrays (how many, how many bytes), for the class and for all. */
static inline void wr_count_in(weir_stat *number, weir_stat *bytes, wr_class class, size_t size)
{
    const int kind = class == WR_SMALL ? WEIR_STAT_SMALL : WEIR_STAT_LARGE;
    wr_stat_add(&number[WEIR_STAT_ALL], 1);
    wr_stat_add(&number[kind], 1);
    wr_stat_add(&bytes[WEIR_STAT_ALL], (int64_t)size);
    wr_stat_add(&bytes[kind], (int64_t)size);
}

static inline void wr_count_out(weir_stat *number, weir_stat *bytes, wr_class class, size_t size)
{
    const int kind = class == WR_SMALL ? WEIR_STAT_SMALL : WEIR_STAT_LARGE;
    wr_stat_remove(&number[WEIR_STAT_ALL], 1);
    wr_stat_remove(&number[kind], 1);
    wr_stat_remove(&bytes[WEIR_STAT_ALL], (int64_t)size);
    wr_stat_remove(&bytes[kind], (int64_t)size);
}

/* A free block enters or leaves its bin: counted as inactive split when its segment has other blocks. */
static inline void wr_count_free_in(wr_cache *cache, const wr_block *block)
{
    if (block->prev || block->next)
        wr_count_in(cache->stats.inactive_split, cache->stats.inactive_split_bytes, block->segment->bin->class,
                    block->bytes);
}

static inline void wr_count_free_out(wr_cache *cache, const wr_block *block)
{
    if (block->prev || block->next)
        wr_count_out(cache->stats.inactive_split, cache->stats.inactive_split_bytes, block->segment->bin->class,
                     block->bytes);
}

#endif
