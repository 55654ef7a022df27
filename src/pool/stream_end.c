/*
 * stream_end: when a stream ends, its segments become another stream's.
 */
#include "pool/account.h"
#include "pool/bin.h"
#include "pool/cache.h"
#include "pool/chunk/chunk.h"
#include "pool/front/front.h"
#include "pool/plan/serve.h"
#include "pool/plan/subplan.h"
#include "pool/trim_wait.h"
#include "stream/event.h"

/* WR_LEFT_NOT for segments in a graph's pool, because the graph uses the pool's free memory. In a deterministic pool,
 * where blocks lie must not depend on whether a stream has work. */
static wr_left left_by_stream(const wr_segment *segment)
{
    const wr_mempool *pool = segment->bin->pool;
    if (segment->region || pool->held[WR_HELD_BY_GRAPH]) return WR_LEFT_NOT;
    if (wr_segment_idle(segment)) return WR_LEFT_QUIET;
    return pool->rules.deterministic ? WR_LEFT_NOT : WR_LEFT_IN_USE;
}

/* `quiet`: the stream's work is over. */
static void move_segments_locked(wr_bin *from, wr_bin *to, bool quiet)
{
    wr_bin_move_free(from, to);
    while (from->segments) {
        wr_segment *segment = from->segments;
        wr_bin_drop_segment(from, segment);
        wr_bin_add_segment(to, segment);
        wr_segment_set_left_locked(segment, quiet ? left_by_stream(segment) : WR_LEFT_NOT);
    }
}

/* Everything that could fail, in all pools, is done before the first segment moves. */
static weir_status make_homes_locked(wr_cache *cache, const wr_stream *stream, wr_stream *heir)
{
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next)
        for (int class = WR_SMALL; class < WR_BINS; class ++) {
            const wr_bin *old = wr_mempool_bin(pool, stream, class);
            wr_bin *home = NULL;
            if (old && old->segments) WR_TRY(wr_cache_make_bin_locked(pool, heir, (wr_class) class, &home));
        }
    return WEIR_OK;
}

/* Whether there was mapped memory among what moved. */
static bool move_all_locked(const wr_mempool *pool, const wr_stream *stream, const wr_stream *heir, bool quiet)
{
    bool mapped = false;
    for (int class = WR_SMALL; class < WR_BINS; class ++) {
        wr_bin *old = wr_mempool_bin(pool, stream, class);
        if (!old || !old->segments) continue;
        wr_bin *home = wr_mempool_bin(pool, heir, class);
        home->pool->inherited = true;
        move_segments_locked(old, home, quiet);
        mapped |= old->part_bytes != 0;
        wr_bin_move_parts_locked(old, home);
        wr_bin_set_parts_locked(home, home->part_bytes + old->part_bytes);
        wr_bin_set_parts_locked(old, 0);
        wr_bin_drop_fence(old); /* nobody asks any more whether the work of an ended stream is over */
    }
    return mapped;
}

static void unlist_fronts_locked(const wr_stream *stream)
{
    for (wr_front *f = wr_front_youngest(stream); f; f = wr_front_after(f)) wr_front_unlist_locked(f);
}

/* Takes the move lock. After the stream's work was waited for, it may have been made to wait for another stream, whose
 * memory it got or which has used a block of it (wr_pending_chain). That one's work may wait for a thread that wants
 * this lock. *quiet: nothing is queued on it any more; otherwise the heir's later work comes after it. */
static weir_status lock_without_work(wr_cache *cache, const wr_stream *stream, wr_stream *heir, uint64_t waited,
                                     bool *quiet)
{
    for (;;) {
        wr_lock_acquire(&cache->move_lock);
        *quiet = stream->queued == waited;
        if (*quiet || wr_event_chained(cache->events, stream->native, heir)) return WEIR_OK;
        waited = stream->queued;
        wr_lock_release(&cache->move_lock);
        WR_TRY(wr_cache_finish_work(cache, stream));
    }
}

weir_status wr_cache_forget_stream(wr_cache *cache, wr_stream *stream, wr_stream *heir, uint64_t waited)
{
    bool quiet = false, mapped = false;
    WR_TRY(lock_without_work(cache, stream, heir, waited, &quiet));
    wr_fronts_close_for(cache, stream, heir); /* segments change fronts */
    wr_cache_lock(cache);
    weir_status status = make_homes_locked(cache, stream, heir);
    if (status == WEIR_OK) {
        for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
            mapped |= move_all_locked(pool, stream, heir, quiet);
        if (mapped) wr_history_move_mapped(&cache->history, stream->native, heir->native);
        const uint64_t id = atomic_load_explicit(&stream->id, memory_order_relaxed);
        atomic_store_explicit(&stream->left, id, memory_order_relaxed);
        unlist_fronts_locked(stream);
        wr_account_close_locked(cache, stream->index, heir->index);
        wr_serve_forget_stream_locked(cache, stream);
        wr_subplan_forget_stream_locked(cache, stream);
    }
    wr_cache_unlock(cache);
    wr_fronts_open(cache);
    wr_lock_release(&cache->move_lock);
    return status;
}
