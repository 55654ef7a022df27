/*
 * segment: new segments, and a cache's beginning and end. The source is asked between two locked steps: the first
 * obtains everything that a segment needs, the second puts the segment in its bin.
 */
#include "base/meta.h"
#include "base/size.h"
#include "pool/account.h"
#include "pool/address.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"
#include "pool/front/detach.h"
#include "pool/plan/serve.h"
#include "pool/plan/subplan.h"
#include "pool/share.h"
#include "pool/source.h"
#include "pool/starts.h"

#include <stdio.h>

/* The stream's bins for small and for large blocks share one front. */
static weir_status front_for_locked(wr_mempool *pool, wr_stream *stream, wr_class class, wr_account *account,
                                    wr_front **out)
{
    *out = NULL;
    if (!pool->cache->has_fronts || !wr_mempool_may_park(pool) || class == WR_PLANNED) return WEIR_OK;
    const wr_bin *other = wr_mempool_bin(pool, stream, class == WR_SMALL ? WR_LARGE : WR_SMALL);
    if (!other) return wr_front_of_locked(pool, stream, account, out);
    *out = other->front;
    return WEIR_OK;
}

static void add_bin_locked(wr_mempool *pool, uint32_t index, wr_bin *bin)
{
    uint32_t after = index;
    while (after > 0 && !pool->bins[after - 1]) after--;
    wr_bin **link = after > 0 ? &pool->bins[after - 1]->next : &pool->first_bin;
    bin->next = *link;
    *link = bin;
    pool->bins[index] = bin;
}

weir_status wr_cache_make_bin_locked(wr_mempool *pool, wr_stream *stream, wr_class class, wr_bin **out)
{
    uint32_t index = stream->index * WR_BINS + class;
    WR_TRY(wr_meta_grow(&pool->bins, &pool->bin_capacity, index + 1, sizeof *pool->bins, "stream bins"));
    if (!pool->bins[index]) {
        wr_account *account = NULL;
        void *made = NULL;
        WR_TRY(wr_account_make_locked(pool->cache, stream, &account));
        WR_TRY(wr_meta_alloc(sizeof(wr_bin), "stream bin", &made));
        wr_bin *bin = made;
        bin->pool = pool;
        bin->stream = stream;
        bin->class = class;
        bin->small_max = class == WR_SMALL ? SIZE_MAX : 0;
        const bool chunked = wr_mempool_chunked(pool);
        if (chunked) bin->small_max = WR_SMALL_MAX;
        bin->free.by_order = !chunked; /* needed to follow PyTorch, and by pools that go by places */
        bin->account = account;
        weir_status status = front_for_locked(pool, stream, class, account, &bin->front);
        if (status != WEIR_OK) {
            wr_meta_free(bin);
            return status;
        }
        const bool detached = bin->front && wr_front_is_detached(bin->front);
        wr_bin_use_ledger(bin, detached ? &bin->front->ledger : &pool->cache->ledger);
        if (bin->front) bin->front->bins[class] = bin;
        add_bin_locked(pool, index, bin);
    }
    *out = pool->bins[index];
    return WEIR_OK;
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

/* What a new segment needs, obtained before the driver is asked: nothing can fail once it has agreed. */
typedef struct growth {
    wr_bin *bin;
    wr_segment *segment;
    wr_block *block;
} growth;

static void drop_growth_locked(wr_cache *cache, const wr_request *request, growth *g)
{
    cache->growing -= wr_mempool_limited_of(request->pool, request->fit.segment_bytes);
    request->pool->growing -= request->fit.segment_bytes;
    request->pool->segments--;
    if (g->block) wr_record_block_done(cache, g->block);
    if (g->segment) wr_record_segment_done(cache, g->segment);
}

uint64_t wr_cache_limited_locked(const wr_cache *cache)
{
    int64_t bytes = cache->stats.reserved_bytes[WEIR_STAT_ALL].current;
    uint32_t left = cache->unlimited_pools;
    for (const wr_mempool *pool = cache->pools; left != 0; pool = pool->next) {
        if (wr_mempool_is_limited(pool)) continue;
        bytes -= pool->stats.reserved_bytes[WEIR_STAT_ALL].current;
        left--;
    }
    return (uint64_t)bytes;
}

uint64_t wr_cache_counted_locked(const wr_cache *cache)
{
    const uint64_t lost = atomic_load_explicit(&cache->lost, memory_order_relaxed);
    return wr_cache_limited_locked(cache) + cache->growing + cache->leaving + lost;
}

/* The driver may refuse what others are asking for, so a request refused because of that has a reason to try again. */
static void note_refusal_locked(wr_cache *cache, uint64_t growing, uint64_t left, size_t bytes)
{
    if (bytes > left && growing > 0 && bytes <= left + growing) cache->refusals++;
}

static weir_status refuse(uint64_t held, size_t more, uint64_t most, const char *whose, const char *bound,
                          const char *remedy)
{
    char has[WR_SIZE_TEXT], wants[WR_SIZE_TEXT], may[WR_SIZE_TEXT];
    return wr_fail(WEIR_ERR_OUT_OF_MEMORY, "%s: %s held, %s more requested, %s %s%s", whose, wr_size_format(held, has),
                   wr_size_format(more, wants), bound, wr_size_format(most, may), remedy);
}

weir_status wr_cache_check_limit_locked(wr_cache *cache, size_t bytes)
{
    if (cache->limit == 0 || bytes == 0) return WEIR_OK; /* the limit may have been set after more was held */
    const uint64_t held = wr_cache_counted_locked(cache);
    const uint64_t left = held < cache->limit ? cache->limit - held : 0;
    note_refusal_locked(cache, cache->growing, left, bytes);
    return bytes <= left ? WEIR_OK : refuse(held, bytes, cache->limit, cache->name, "limit", "");
}

uint64_t wr_cache_left_of_cap_locked(const wr_mempool *pool)
{
    const uint64_t cap = pool->rules.cap;
    const uint64_t own = (uint64_t)pool->stats.reserved_bytes[WEIR_STAT_ALL].current + pool->growing + pool->leaving;
    if (cap == 0) return UINT64_MAX;
    return own < cap ? cap - own : 0;
}

/* The free bytes of a pool of chunks serve along with new ones. */
static size_t least_locked(const wr_request *request)
{
    const wr_mempool *pool = request->pool;
    const size_t bytes = request->fit.block_bytes;
    if (pool->cache->policy->exact) return request->fit.segment_bytes;
    if (!wr_mempool_chunked(pool)) return wr_round_up(bytes, WR_SEGMENT_UNIT);
    const int64_t reserved = pool->stats.reserved_bytes[WEIR_STAT_ALL].current;
    const size_t free = (size_t)(reserved - wr_pool_stats_locked(request->pool)->active_bytes[WEIR_STAT_ALL].current);
    return bytes > free ? bytes - free : 0;
}

bool wr_cache_cap_refuses(const wr_request *request)
{
    wr_mempool *pool = request->pool;
    if (pool->rules.cap == 0) return false;
    wr_cache_lock(pool->cache);
    const bool same = wr_mempool_name_of(pool) == request->pool_name;
    const bool refuses = same && least_locked(request) > wr_cache_left_of_cap_locked(pool);
    wr_cache_unlock(pool->cache);
    return refuses;
}

weir_status wr_cache_check_cap_locked(const wr_mempool *pool, size_t bytes)
{
    const uint64_t cap = pool->rules.cap, left = wr_cache_left_of_cap_locked(pool);
    note_refusal_locked(pool->cache, pool->growing, left, bytes);
    if (bytes <= left) return WEIR_OK;
    char name[64];
    snprintf(name, sizeof name, "memory pool " WR_MEMPOOL_FORMAT, WR_MEMPOOL_ARGUMENTS(pool->name));
    return refuse(cap - left, bytes, cap, name, "cap", "; free blocks of the pool, or create it with a larger cap");
}

static weir_status prepare_growth_locked(wr_cache *cache, const wr_request *request, growth *g)
{
    const size_t bytes = request->fit.segment_bytes;
    WR_TRY(wr_cache_check_target_locked(request));
    if (wr_mempool_is_limited(request->pool)) WR_TRY(wr_cache_check_limit_locked(cache, bytes));
    WR_TRY(wr_cache_check_cap_locked(request->pool, bytes));
    WR_TRY(wr_cache_make_bin_locked(request->pool, request->stream, request->fit.class, &g->bin));
    weir_status status = wr_record_segment(cache, &g->segment);
    if (status == WEIR_OK) status = wr_record_block(cache, &g->block);
    if (status == WEIR_OK) status = wr_record_pages(cache, bytes, &g->segment->pages);
    cache->growing += wr_mempool_limited_of(request->pool, bytes);
    request->pool->growing += bytes;
    request->pool->segments++;
    if (status != WEIR_OK) drop_growth_locked(cache, request, g);
    return status;
}

static void add_segment_locked(wr_cache *cache, growth *g, const wr_range *range)
{
    wr_segment *segment = g->segment;
    wr_block *block = g->block;
    wr_mempool *pool = g->bin->pool;
    wr_block_begin(block, range->base, range->bytes, segment, WR_BLOCK_FREE);
    /* Where addresses must not matter, segments are ordered by age. */
    segment->order = pool->rules.deterministic ? ++pool->serial : (uint64_t)(uintptr_t)range->base;
    segment->base = range->base;
    segment->bytes = range->bytes;
    segment->chunk = range->chunk;
    segment->region = NULL;
    segment->backing = WR_BACKED;
    segment->copy = NULL;
    segment->first = block;
    segment->blocks = 1;
    wr_starts_add(block);
    wr_bin_add_segment(g->bin, segment);
    wr_bin_insert(g->bin, block);
    wr_count(wr_counter_segment_in, g->bin, block);
    cache->growing -= wr_mempool_limited_of(pool, range->bytes);
    pool->growing -= range->bytes;
    WR_COUNT(pool, driver_allocs, 1);
    wr_history_record(&cache->history, WEIR_EVENT_SEGMENT_ALLOC, range->base, range->bytes, g->bin->stream->native,
                      wr_bin_pool_id(g->bin));
}

/* Other devices may have been given access since the range was taken. The locks are released while sharing. */
static weir_status share_locked(wr_cache *cache, const wr_mempool *pool, wr_front *front, wr_range *range)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && wr_source_maps(pool)) {
        const uint64_t missing = cache->accessors & ~range->accessors;
        if (missing == 0) break;
        wr_front_unlock(cache, front);
        status = wr_source_share(cache, range, missing);
        wr_front_lock(cache, front);
    }
    return status;
}

static weir_status add_range(wr_cache *cache, const wr_request *request, growth *g, wr_range *range, wr_segment **grown,
                             void **out, bool *added)
{
    wr_front *front = g->bin->front;
    wr_front_lock(cache, front);
    weir_status status = share_locked(cache, request->pool, front, range);
    /* The pool may have been paused meanwhile, and the stream may have ended. */
    if (status == WEIR_OK) status = wr_cache_check_target_locked(request);
    /* Inserted under the lock: a stray pointer into the range must not meet a segment that has no blocks yet. */
    if (status == WEIR_OK) status = wr_address_insert(range->base, range->bytes, g->segment);
    *added = status == WEIR_OK;
    if (*added) {
        add_segment_locked(cache, g, range);
        if (grown) *grown = g->segment;
        /* If the block cannot be split, the segment stays as a free one. */
        if (out) status = wr_cache_hand_out_locked(cache, request, g->block, out);
    }
    wr_front_unlock(cache, front);
    return status;
}

weir_status wr_cache_grow(wr_cache *cache, const wr_request *request, wr_segment **grown, void **out)
{
    growth g = { 0 };
    wr_range range = { 0 };
    wr_cache_lock(cache);
    weir_status status = prepare_growth_locked(cache, request, &g);
    wr_cache_unlock(cache);
    if (status != WEIR_OK) return status;

    bool added = false;
    status = wr_source_take(request, &range);
    if (status == WEIR_OK) status = add_range(cache, request, &g, &range, grown, out, &added);
    if (added) return status;

    if (range.base) status = wr_source_give_unused(request, &range, status);
    wr_cache_lock(cache);
    drop_growth_locked(cache, request, &g);
    wr_cache_unlock(cache);
    wr_mempool_sweep(cache);
    return status;
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

weir_status wr_cache_init(wr_cache *cache, const weir_backend *backend, int device, const wr_policy *policy,
                          const wr_policy_options *options, wr_event_pool *events, uint64_t history,
                          size_t region_bytes)
{
    *cache =
        (wr_cache){ .backend = backend, .policy = policy, .options = *options, .device = device, .events = events };
    if (wr_cache_is_host(cache))
        snprintf(cache->name, sizeof cache->name, "host memory");
    else
        snprintf(cache->name, sizeof cache->name, "device %d", device);
    WR_TRY(wr_history_init(&cache->history, device, history));
    /* These options concern segments. */
    if (options->max_split == SIZE_MAX && options->gc_threshold == 0) cache->chunks.region_bytes = region_bytes;
    /* Ages are counted in searches, which fronts save */
    cache->has_fronts = policy->parks && options->gc_threshold == 0;
    TAILQ_INIT(&cache->released_pools);
    TAILQ_INIT(&cache->chunks.stale);
    wr_bias_init(&cache->lock, WR_BIAS_INNER, WR_RANK_CACHE, "cache");
    wr_lock_init(&cache->poll_lock, WR_RANK_POLL, "poll");
    wr_lock_init(&cache->move_lock, WR_RANK_MOVE, "move");
    wr_mempool *made = NULL;
    weir_status status = wr_mempool_create(cache, NULL, 0, WR_HELD_BY_USER, &made);
    if (status != WEIR_OK) wr_clean_up(wr_cache_release(cache));
    return status;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static weir_status release_segment(const wr_bin *bin, const wr_segment *segment)
{
    if (segment->region) return wr_chunks_release_region(bin->pool->cache, segment);
    wr_range range = wr_range_of(segment);
    wr_address_remove(segment->base, segment->bytes);
    if (!range.left) (void)wr_source_tell(bin->pool, WEIR_RANGE_LEAVING, &range);
    range.left = true; /* for good, even if it is not taken back */
    weir_status status = wr_source_give(bin->pool, bin->stream, &range);
    if (range.copy) { /* the driver does not take the copy back; the rest goes all the same */
        range.copy = NULL;
        wr_keep_first(&status, wr_source_give(bin->pool, bin->stream, &range));
    }
    if (status != WEIR_OK) wr_source_abandon(bin->pool, &range);
    return status;
}

static weir_status release_bin(wr_bin *bin)
{
    weir_status first = WEIR_OK;
    wr_bin_drop_fence(bin);
    for (const wr_segment *s = bin->segments; s; s = s->next) wr_keep_first(&first, release_segment(bin, s));
    wr_meta_free(bin);
    return first;
}

weir_status wr_cache_release(wr_cache *cache)
{
    weir_status first = WEIR_OK;
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
        for (wr_bin *bin = pool->first_bin, *next; bin; bin = next) {
            next = bin->next;
            wr_keep_first(&first, release_bin(bin));
        }
    wr_meta_free(cache->chunks.whole);
    wr_meta_free(cache->chunks.serving);
    wr_serve_release(cache);
    wr_subplans_release(cache);
    wr_keep_first(&first, wr_share_release(cache));
    wr_mempools_release(cache);
    wr_fronts_release(cache);
    wr_accounts_release(cache);
    wr_records_release(cache);
    wr_history_release(&cache->history);
    wr_lock_destroy(&cache->poll_lock);
    wr_lock_destroy(&cache->move_lock);
    wr_bias_destroy(&cache->lock);
    *cache = (wr_cache){ 0 };
    return first;
}
