#include "pool/report/inspect.h"

#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"

#include <string.h>

/* The size of a region is what has ever had memory. */
static size_t bytes_of(const wr_segment *segment)
{
    return segment->region ? segment->region->end : segment->bytes;
}

weir_status wr_inspect_pointer(const wr_segment *segment, const void *address, weir_pointer_info *out)
{
    wr_cache *cache = segment->cache;
    wr_block *block = NULL;
    wr_cache_lock(cache);
    weir_status status = wr_cache_live_block_locked(segment, address, &block);
    if (status == WEIR_OK)
        *out = (weir_pointer_info){ .base = block->base,
                                    .bytes = block->bytes,
                                    .requested = wr_block_requested(block),
                                    .segment = segment->base,
                                    .segment_bytes = bytes_of(segment),
                                    .stream = { segment->bin->stream->id },
                                    .device = cache->device,
                                    .pool = wr_bin_pool_id(segment->bin) };
    wr_cache_unlock(cache);
    return status;
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

weir_status wr_inspect_pool(const wr_mempool *pool, wr_mempool_name name, weir_mempool_info *out)
{
    wr_cache *cache = pool->cache;
    wr_cache_lock(cache);
    weir_status status = wr_mempool_check_name(pool, name);
    if (status == WEIR_OK) {
        weir_mempool_info info = { .pool = wr_mempool_id_of(name),
                                   .device = cache->device,
                                   .memory = pool->rules.memory,
                                   .references = wr_mempool_references(pool),
                                   .graphs = pool->held[WR_HELD_BY_GRAPH],
                                   .lent = pool->lent,
                                   .paused = pool->paused };
        memcpy(info.tag, pool->rules.tag, sizeof pool->rules.tag);
        *out = info;
    }
    wr_cache_unlock(cache);
    return status;
}

weir_status wr_inspect_pool_stats(wr_mempool *pool, wr_mempool_name name, weir_memory_stats *out)
{
    wr_cache *cache = pool->cache;
    wr_fronts_close_and_lock(cache);
    weir_status status = wr_mempool_check_name(pool, name);
    if (status == WEIR_OK) *out = *wr_pool_stats_locked(pool);
    wr_fronts_unlock_and_open(cache);
    return status;
}

static void list_segment(const wr_segment *segment, weir_block_info *blocks, size_t capacity, size_t *count)
{
    for (const wr_block *b = segment->first; b; b = b->next) {
        const bool in_use = b->state == WR_BLOCK_LIVE || b->state == WR_BLOCK_PENDING;
        if (b->state == WR_BLOCK_ABSENT || ++*count > capacity) continue;
        blocks[*count - 1] = (weir_block_info){ .base = b->base,
                                                .bytes = b->bytes,
                                                .requested = in_use ? b->requested : 0,
                                                .segment = segment->base,
                                                .segment_bytes = bytes_of(segment),
                                                .stream = { segment->bin->stream->id },
                                                .state = wr_block_seen_as(b),
                                                .paused = segment->bin->pool->paused };
    }
}

weir_status wr_inspect_blocks(const wr_mempool *pool, wr_mempool_name name, weir_block_info *blocks, size_t capacity,
                              size_t *count)
{
    wr_cache *cache = pool->cache;
    size_t found = 0;
    wr_fronts_close_and_lock(cache);
    weir_status status = wr_mempool_check_name(pool, name);
    const wr_segment *segment = status == WEIR_OK ? wr_mempool_first_segment(pool) : NULL;
    for (; segment; segment = wr_mempool_next_segment(segment)) list_segment(segment, blocks, capacity, &found);
    if (status == WEIR_OK)
        LIST_FOREACH(segment, &cache->hidden_list, in_hidden)
            if (segment->bin->pool == pool) list_segment(segment, blocks, capacity, &found);
    wr_fronts_unlock_and_open(cache);
    if (status == WEIR_OK) *count = found;
    return status;
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* Blocks without memory are in the statistics, but not among what weir holds. */
static void leave_out(const wr_bin *bin, wr_cache_report *out)
{
    for (const wr_segment *s = bin->segments; s; s = s->next)
        for (const wr_block *b = s->first; b && s->backing == WR_UNBACKED; b = b->next) {
            const bool split = b->state == WR_BLOCK_FREE && wr_block_is_inactive_split(b);
            if (b->state == WR_BLOCK_LIVE) out->allocated -= b->bytes;
            if (b->state == WR_BLOCK_PENDING) out->pending_bytes -= b->bytes;
            if (split) out->split_bytes -= b->bytes;
        }
}

static uint64_t idle_bytes(const wr_bin *bin)
{
    uint64_t bytes = 0;
    for (const wr_segment *s = bin->segments; s; s = s->next) bytes += wr_segment_idle(s) ? s->bytes : 0;
    return bytes;
}

/* Segments of their own are few where there are regions. */
static uint64_t free_in_regions(const wr_bin *bin)
{
    if (bin->part_bytes == 0) return 0;
    uint64_t bytes = bin->free.bytes;
    for (const wr_segment *s = bin->segments; s; s = s->next)
        for (const wr_block *b = s->first; b && !s->region; b = b->next)
            bytes -= b->state == WR_BLOCK_FREE ? b->bytes : 0;
    return bytes;
}

/* 0 if the survey has no memory for its list. */
static uint64_t idle_chunk_bytes(wr_mempool *pool)
{
    const wr_chunks *c = &pool->cache->chunks;
    uint64_t bytes = 0;
    if (wr_chunks_survey_begin_locked(pool->cache) != WEIR_OK) return 0;
    wr_chunks_survey_locked(pool);
    for (size_t i = 0; i < c->whole_count; i++) bytes += c->whole[i]->bytes;
    return bytes;
}

static void report_bin(const wr_request *request, wr_bin *bin, wr_cache_report *out)
{
    if (bin->pool->paused) {
        leave_out(bin, out);
        return;
    }
    out->split_bytes += free_in_regions(bin);
    if (bin->pool != request->pool) return;
    const bool own = bin->stream == request->stream;
    const wr_block *largest = wr_bin_largest(bin);
    uint64_t *best = own ? &out->largest_free : &out->largest_elsewhere;
    const bool serves = wr_mempool_chunked(bin->pool) ? bin->class != WR_PLANNED : bin->class == request->fit.class;
    if (serves && largest && largest->bytes > *best) *best = largest->bytes;
    if (own) return;
    out->other_streams_free += bin->free.bytes;
}

static uint64_t idle_in_segments(const wr_mempool *pool)
{
    uint64_t bytes = 0;
    for (const wr_bin *bin = pool->first_bin; bin && !pool->paused; bin = bin->next) bytes += idle_bytes(bin);
    return bytes;
}

static bool keeps_idle(const wr_mempool *pool)
{
    return !wr_mempool_reclaimable(pool) && wr_mempool_is_limited(pool);
}

static void report_pool(const wr_request *request, wr_mempool *pool, wr_cache_report *out)
{
    const uint64_t chunks = idle_chunk_bytes(pool), idle = chunks + idle_in_segments(pool);
    for (wr_bin *bin = pool->first_bin; bin; bin = bin->next) report_bin(request, bin, out);
    out->split_bytes -= chunks;
    out->idle_bytes += idle;
    if (pool != request->pool && keeps_idle(pool)) out->kept_idle += idle;
}

void wr_inspect_report_locked(wr_cache *cache, const wr_request *request, wr_cache_report *out)
{
    const weir_memory_stats *s = wr_stats_locked(cache);
    *out = (wr_cache_report){
        .reserved = (uint64_t)s->reserved_bytes[WEIR_STAT_ALL].current,
        .allocated = (uint64_t)s->allocated_bytes[WEIR_STAT_ALL].current,
        .limit = cache->limit,
        .limited = wr_cache_limited_locked(cache),
        .lost = atomic_load_explicit(&cache->lost, memory_order_relaxed),
        .pending_bytes = (uint64_t)(s->active_bytes[WEIR_STAT_ALL].current - s->allocated_bytes[WEIR_STAT_ALL].current),
        .pending_blocks = s->pending_frees,
        .split_bytes = (uint64_t)s->inactive_split_bytes[WEIR_STAT_ALL].current,
        .idle_bytes = cache->hidden_bytes, /* the driver is being asked about them */
    };
    const wr_mempool *of = wr_request_counted_locked(request); /* the pool may be gone by now */
    out->on_device = wr_mempool_is_limited(of);
    out->chunked = wr_mempool_chunked(of);
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next) report_pool(request, pool, out);
    /* Free parts of chunks that another thread is mapping elsewhere are in no bin. */
    const uint64_t seen = out->allocated + out->pending_bytes + out->idle_bytes + out->split_bytes;
    if (out->reserved > seen) out->split_bytes += out->reserved - seen;
}

uint64_t wr_inspect_kept_idle(wr_cache *cache)
{
    uint64_t bytes = 0;
    wr_fronts_close_and_lock(cache);
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next)
        if (keeps_idle(pool)) bytes += idle_chunk_bytes(pool) + idle_in_segments(pool);
    wr_fronts_unlock_and_open(cache);
    return bytes;
}
