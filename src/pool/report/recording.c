#include "pool/report/recording.h"

#include "pool/count.h"
#include "pool/front/front.h"

void wr_recording_watch(wr_cache *cache, bool stacks)
{
    if (atomic_load(&cache->stacked) == stacks) return;
    atomic_store(&cache->stacked, stacks);
    atomic_store(&cache->watched, stacks || cache->debug);
    if (stacks)
        wr_fronts_close(cache);
    else
        wr_fronts_open(cache);
}

/* With the fronts closed nobody parks or takes a block, and each looks whether there is a history when it is met
 * again. */
void wr_recording_start(wr_cache *cache, uint64_t events)
{
    wr_fronts_close_and_lock(cache);
    const weir_memory_stats *stats = wr_stats_locked(cache);
    const int64_t there = stats->active[WEIR_STAT_ALL].current + stats->segment[WEIR_STAT_ALL].current;
    wr_history_start(&cache->history, events, (uint64_t)there);
    wr_fronts_unlock_and_open(cache);
}

/* Of the live blocks; those that are handed out from now on get none. */
static void forget_stacks_locked(const wr_cache *cache)
{
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
        for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s))
            for (wr_block *b = s->first; b; b = b->next) b->stack = 0;
}

void wr_recording_stop(wr_cache *cache)
{
    wr_fronts_close_and_lock(cache);
    wr_history_stop(&cache->history);
    forget_stacks_locked(cache);
    wr_fronts_unlock_and_open(cache);
}
