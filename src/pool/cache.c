#include "pool/cache.h"

#include "base/size.h"
#include "pool/account.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"
#include "pool/cut.h"
#include "pool/front/detach.h"
#include "pool/front/hit.h"
#include "pool/front/post.h"
#include "pool/plan/subplan.h"

#include <assert.h>

wr_request wr_cache_request(wr_mempool *pool, wr_mempool_name name, wr_stream *stream, size_t bytes)
{
    const wr_cache *cache = pool->cache;
    wr_request request = { .pool = pool, .pool_name = name, .stream = stream, .requested = bytes };
    request.stream_id = atomic_load_explicit(&stream->id, memory_order_relaxed);
    wr_fit *fit = &request.fit;
    wr_mempool_policy(pool)->fit(&cache->options, bytes, fit);
    const size_t alignment = atomic_load_explicit(&pool->alignment, memory_order_relaxed);
    /* No alignment is above WR_SEGMENT_UNIT, of which segments are multiples: the block still fits. */
    if (WR_UNLIKELY(alignment > 1)) fit->block_bytes = wr_round_up(fit->block_bytes, alignment);
    return request;
}

weir_status wr_cache_check_pool_locked(const wr_request *request)
{
    const wr_mempool *pool = request->pool;
    const wr_mempool_name name = request->pool_name;
    if (WR_LIKELY(name == 0)) return WEIR_OK;
    WR_TRY(wr_mempool_check_name(pool, name));
    WR_ENSURE(wr_mempool_references(pool) > 0, WEIR_ERR_POOL_MISMATCH,
              "memory pool " WR_MEMPOOL_FORMAT " was released; weir_mempool_ref() opens it again",
              WR_MEMPOOL_ARGUMENTS(name));
    WR_ENSURE(!pool->paused, WEIR_ERR_BUSY, "memory pool " WR_MEMPOOL_FORMAT " is paused; call weir_resume() first",
              WR_MEMPOOL_ARGUMENTS(name));
    return WEIR_OK;
}

weir_status wr_cache_check_stream(const wr_request *request)
{
    const uint64_t id = request->stream_id, left = atomic_load_explicit(&request->stream->left, memory_order_relaxed);
    const bool stays = atomic_load_explicit(&request->stream->id, memory_order_relaxed) == id;
    WR_ENSURE(stays && (left == 0 || (id != 0 && id != left)), WEIR_ERR_INVALID_STREAM,
              "another thread destroyed the stream while memory was being found for it");
    return WEIR_OK;
}

weir_status wr_cache_check_target_locked(const wr_request *request)
{
    WR_TRY(wr_cache_check_stream(request));
    return wr_cache_check_pool_locked(request);
}

/* Collection by age costs a counter per search: kept only where it can be used. */
static bool collects_by_age(const wr_cache *cache)
{
    return cache->limit != 0 && cache->options.gc_threshold > 0;
}

wr_bin *wr_cache_bin_locked(const wr_request *request)
{
    return wr_mempool_bin(request->pool, request->stream, request->fit.class);
}

/* A block that is never split serves only requests of nearly its size, whatever the policy. */
bool wr_cache_takes(const wr_request *request, size_t candidate)
{
    const wr_cache *cache = request->pool->cache;
    if (request->pool->rules.no_split && candidate >= request->fit.segment_bytes + cache->options.large_segment)
        return false;
    const wr_policy *policy = wr_mempool_policy(request->pool);
    if (WR_LIKELY(!policy->takes)) return true;
    const wr_fit fit = request->fit;
    return policy->takes(&cache->options, &fit, candidate);
}

static bool splits(const wr_request *request, size_t candidate)
{
    const wr_mempool *pool = request->pool;
    if (pool->rules.no_split || candidate == request->fit.block_bytes) return false;
    const wr_policy *policy = wr_mempool_policy(pool);
    if (WR_LIKELY(!policy->splits)) return true;
    const wr_fit fit = request->fit;
    return policy->splits(&pool->cache->options, &fit, candidate);
}

/* The last block of a region can still grow, so any other block goes first. */
static wr_block *spare_tail(wr_block *block)
{
    const wr_segment *segment = block->segment;
    if (!segment->region || block->base + block->bytes != segment->base + segment->region->end) return block;
    wr_block *larger = wr_bin_larger(segment->bin, block);
    return larger ? larger : block;
}

/* Seldom-called functions get a copy of the request, here and wherever wr_cache_take_plain inlines, so that the request
 * itself can stay in registers. */
static wr_block *choose_unspared(const wr_request *request, wr_block *block)
{
    const wr_request copy = *request;
    return wr_subplan_choose_locked(&copy, block);
}

wr_block *wr_cache_best_of_locked(const wr_request *request, wr_class class)
{
    wr_bin *bin = wr_mempool_bin(request->pool, request->stream, class);
    wr_block *block = bin ? wr_bin_best_fit(bin, request->fit.block_bytes) : NULL;
    return WR_UNLIKELY(request->pool->subplans != NULL) ? choose_unspared(request, block) : block;
}

static wr_block *find_free_locked(const wr_request *request, wr_bin *bin)
{
    wr_block *block = bin ? wr_bin_best_fit(bin, request->fit.block_bytes) : NULL;
    if (WR_UNLIKELY(request->pool->subplans != NULL))
        block = choose_unspared(request, block);
    else if (block)
        block = spare_tail(block);
    return block && wr_cache_takes(request, block->bytes) ? block : NULL;
}

wr_block *wr_cache_find_free_locked(const wr_request *request)
{
    return find_free_locked(request, wr_cache_bin_locked(request));
}

/* While fronts are detached, the cache's numbers alone do not show a peak. */
static void look_for_peak_locked(const wr_cache *cache, const wr_bin *bin)
{
    wr_fronts_unsettle(bin->stream, NULL);
    if (!cache->detached) return;
    wr_detached_review_locked(bin->pool);
    wr_detached_divide_locked(bin->pool);
}

static WR_NOINLINE void record_alloc(wr_cache *cache, wr_block *block, const void *native)
{
    wr_history_record_alloc(&cache->history, block->base, block->requested, native, wr_bin_pool_id(block->segment->bin),
                            &block->stack);
}

static void make_live(wr_block *block, size_t requested)
{
    const wr_bin *bin = block->segment->bin;
    wr_segment_use(block->segment);
    block->state = WR_BLOCK_LIVE;
    block->requested = requested;
    block->uses = NULL;
    block->kept = 0;
    block->stack = 0;
    block->lent = false;
    block->capture = 0;
    wr_count_live(bin, block);
    wr_account_in(bin->account, block->bytes);
}

/* `rest`: a record where the block is split. Returns where the block begins. */
static void *hand_out(wr_cache *cache, const wr_request *request, wr_block *block, wr_block *rest)
{
    wr_bin *bin = block->segment->bin;
    wr_count_free_out(bin, block);
    wr_bin_remove(bin, block);
    if (rest) {
        wr_block_split(block, request->fit.block_bytes, rest);
        rest->freed_at = block->freed_at;
        wr_bin_insert(bin, rest);
        wr_count_free_in(bin, rest);
    }
    make_live(block, request->requested);
    if (WR_UNLIKELY(wr_history_capacity(&cache->history) != 0)) record_alloc(cache, block, bin->stream->native);
    return wr_block_hand_out(block);
}

static weir_status hand_out_recorded(wr_cache *cache, const wr_request *request, wr_block *block, void **out)
{
    wr_block *rest = NULL;
    if (splits(request, block->bytes)) WR_TRY(wr_record_block(cache, &rest));
    *out = hand_out(cache, request, block, rest);
    return WEIR_OK;
}

weir_status wr_cache_hand_out_locked(wr_cache *cache, const wr_request *request, wr_block *block, void **out)
{
    WR_TRY(hand_out_recorded(cache, request, block, out));
    look_for_peak_locked(cache, block->segment->bin);
    return WEIR_OK;
}

/* Both parts keep the block's state and are in no tree. */
static wr_block *cut(wr_cache *cache, wr_block *block, size_t bytes)
{
    assert(cache->ledger.unused_blocks); /* the caller has reserved records */
    wr_block *rest = wr_ledger_take_record(&cache->ledger);
    wr_block_split(block, bytes, rest);
    rest->state = block->state;
    rest->freed_at = block->freed_at;
    return rest;
}

wr_block *wr_cache_carve_locked(wr_segment *segment, size_t at, size_t bytes)
{
    wr_cache *cache = segment->cache;
    wr_block *block = wr_starts_block_at(segment, segment->base + at);
    const size_t before = at - (size_t)(block->base - segment->base);
    const bool free = block->state == WR_BLOCK_FREE;
    assert(before + bytes <= block->bytes);
    if (free) {
        wr_count_free_out(segment->bin, block);
        wr_bin_remove(segment->bin, block);
    }
    wr_block *left = before ? block : NULL;
    if (left) block = cut(cache, left, before);
    wr_block *right = block->bytes > bytes ? cut(cache, block, bytes) : NULL;
    wr_block *around[] = { left, right };
    for (int i = 0; i < 2; i++) {
        if (!free || !around[i]) continue;
        wr_bin_insert(segment->bin, around[i]);
        wr_count_free_in(segment->bin, around[i]);
    }
    return block;
}

wr_block *wr_cache_hand_out_at_locked(wr_segment *segment, size_t at, size_t bytes, size_t requested,
                                      const void *native)
{
    wr_cache *cache = segment->cache;
    if (wr_records_spare_blocks(cache, 2) != WEIR_OK) return NULL;
    wr_block *block = wr_cache_carve_locked(segment, at, bytes);
    make_live(block, requested);
    record_alloc(cache, block, native);
    (void)wr_block_hand_out(block);
    look_for_peak_locked(cache, segment->bin);
    return block;
}

/* A stream that holds less than this of a class, or has less than that share of it parked, wastes little, whatever
 * block it takes. */
static const size_t SPARING_FROM = 64 * WR_MIB;
enum { SPARED_SHARE = 64 };

/* A free block of exactly the size, which no rule keeps from the request. A pool with a plan of its own parks nothing:
 * none of its requests come here. */
static wr_block *find_just_locked(const wr_request *request, wr_bin *bin)
{
    const size_t bytes = request->fit.block_bytes;
    wr_block *block = wr_bin_best_in_range(bin, bytes);
    if (block && block->bytes == bytes) block = spare_tail(block);
    return block && block->bytes == bytes ? block : NULL;
}

/* The other source for a small request, where there was no memory for small blocks alone. */
static wr_block *find_among_large_locked(const wr_request *request)
{
    const wr_mempool *pool = request->pool;
    const bool may = request->fit.class == WR_SMALL && wr_mempool_chunked(pool) && pool->cache->chunks.mixed;
    return may ? wr_cache_best_of_locked(request, WR_LARGE) : NULL;
}

/* The locks held. SOLE: the cache's, by wr_cache_lock_owned. ALONE, CONTENDED: the cache's, at once or after others.
 * DETACHED: the cutting lock. */
typedef enum holding { SOLE, ALONE, CONTENDED, DETACHED } holding;

static bool is_sparing(const wr_bin *bin, const wr_front *front, holding held)
{
    if (held > ALONE || bin->part_bytes < SPARING_FROM) return false;
    const size_t parked = (size_t)wr_front_parked_in_all(front, WR_FLOW_BYTES);
    return parked >= bin->part_bytes / SPARED_SHARE && !wr_front_has_posts(front);
}

/* A free block of exactly the size cannot be beaten. Otherwise parked blocks go back first: split or coalesced, they
 * may serve best. Without this, holes of the wrong size add up to percents of the peak. Small requests leave them
 * parked while they or what the stream holds is little, and while others wait for the lock or free blocks of the
 * stream. */
static wr_block *find_behind_locked(const wr_request *request, wr_front *front, holding held)
{
    wr_bin *bin = front ? front->bins[request->fit.class] : wr_cache_bin_locked(request);
    if (!bin || !front || !(wr_front_any(front) || wr_front_has_posts(front))) return find_free_locked(request, bin);
    wr_block *block = find_just_locked(request, bin);
    if (block) return block;
    if (request->fit.class == WR_SMALL && !is_sparing(bin, front, held)) {
        block = find_free_locked(request, bin);
        if (!block) block = find_among_large_locked(request);
        if (block) return block;
    }
    if (held == DETACHED)
        wr_front_empty_detached(front, request->fit.class);
    else
        wr_front_empty_for_locked(front, request->fit.class);
    return find_free_locked(request, bin);
}

/* From the bins of a detached front, without telling the cache. NULL: the cache is needed. */
static WR_NOINLINE WR_FLATTEN void *take_detached(wr_cache *cache, const wr_request *request, wr_front *front)
{
    const size_t bytes = request->fit.block_bytes;
    wr_block *block = NULL;
    void *out = NULL;
    if (!wr_front_lock_cutting(front)) return NULL;
    if (front->ledger.unused_blocks && wr_front_may_take(front, bytes, request->requested, false)) {
        block = find_behind_locked(request, front, DETACHED);
        if (!block) block = find_among_large_locked(request);
    }
    const bool cut = block && splits(request, block->bytes);
    if (block && !cut && !wr_front_may_take(front, block->bytes, request->requested, false)) block = NULL;
    if (block) {
        out = hand_out(cache, request, block, cut ? wr_ledger_take_record(&front->ledger) : NULL);
        wr_front_count_live(front, block->bytes, request->requested);
        wr_front_return_more(front, bytes); /* what was parked may have been freed */
        front->ledger.hits++;
    }
    wr_front_unlock_cutting(front, out != NULL);
    return out;
}

static void note_taken_locked(const wr_request *request, wr_front *front, const wr_block *block, holding held)
{
    WR_COUNT(request->pool, hits, 1);
    if (front)
        wr_front_note_taken_locked(front, block->bytes, request->requested, held == SOLE);
    else
        look_for_peak_locked(request->pool->cache, block->segment->bin);
}

/* Requests that are served while no more is posted, after which what is posted goes back to the cache. */
enum { POSTS_LEFT_MOST = 16 };

/* What is posted and not worth collecting (pool/front/post.h) is left, though it counts as live if there is a new peak;
 * but not where it might, coalesced, serve a large request, nor if no thread goes on to post. */
static bool leaves_posts(const wr_request *request, wr_front *front)
{
    const uint32_t count = wr_front_posts(front);
    front->posts_left = count == front->posts_then ? front->posts_left + 1 : 0;
    front->posts_then = count;
    const bool leaves =
        request->fit.class == WR_SMALL && front->posts_left < POSTS_LEFT_MOST && !wr_front_worth_collecting(front);
    if (!leaves) front->posts_left = front->posts_then = 0;
    return leaves;
}

static weir_status take_locked(wr_cache *cache, const wr_request *request, wr_front *front, holding held, void **out)
{
    if (front) {
        wr_front_meet_locked(front);
        if (wr_front_has_posts(front) && !leaves_posts(request, front)) wr_front_free_posts_locked(front);
        if (held != SOLE || WR_UNLIKELY(front->waits)) wr_front_contend_locked(front, held == CONTENDED);
    }
    weir_status status = wr_cache_check_pool_locked(request);
    /* There is no collection by age where there are fronts, and each of PyTorch's pools has a clock of its own. */
    const bool ticks = !front && collects_by_age(cache) && request->pool == cache->pools;
    if (ticks && !request->again) cache->searches[request->fit.class]++;
    wr_block *block = status == WEIR_OK ? find_behind_locked(request, front, held) : NULL;
    if (WR_UNLIKELY(!block) && status == WEIR_OK) block = find_among_large_locked(request);
    if (block) {
        status = hand_out_recorded(cache, request, block, out);
        if (status == WEIR_OK) note_taken_locked(request, front, block, held);
    }
    return status;
}

/* *out is NULL. */
static WR_NOINLINE weir_status take(wr_cache *cache, const wr_request *request, wr_front *front, void **out)
{
    if (front && wr_front_is_detached(front)) *out = take_detached(cache, request, front);
    if (*out) return WEIR_OK;
    const bool alone = wr_cache_try_lock(cache);
    if (!alone) wr_cache_lock(cache);
    weir_status status = front ? WEIR_OK : wr_cache_check_stream(request);
    if (status == WEIR_OK) status = take_locked(cache, request, front, alone ? ALONE : CONTENDED, out);
    wr_cache_unlock(cache);
    return status;
}

static weir_status take_whole_or_cut(wr_cache *cache, const wr_request *request, wr_front *front, void **out)
{
    const size_t bytes = request->fit.block_bytes;
    if (!wr_front_has(front, bytes)) wr_front_collect(front, bytes, request->requested);
    if (!wr_front_has(front, bytes)) return take(cache, request, front, out);
    *out = wr_front_take_locked(front, bytes, request->requested);
    return WEIR_OK;
}

WR_FLATTEN void *wr_cache_take_plain(wr_front *front, size_t bytes, size_t requested, wr_bias_thread *self)
{
    wr_cache *cache = front->cache;
    const wr_request request = { .pool = front->pool,
                                 .pool_name = atomic_load_explicit(&front->name, memory_order_relaxed),
                                 .stream = front->stream,
                                 .requested = requested,
                                 .fit = { bytes, wr_round_up(bytes, WR_SEGMENT_UNIT), wr_front_class(bytes) } };
    void *out = NULL;
    weir_status status;
    if (WR_LIKELY(!wr_front_is_detached(front) && wr_cache_lock_owned(cache, self))) {
        status = take_locked(cache, &request, front, SOLE, &out);
        wr_cache_unlock_owned(cache, self);
    } else {
        const wr_request copy = request;
        status = take(cache, &copy, front, &out);
    }
    return status == WEIR_OK ? out : NULL;
}

void *wr_cache_take_rounded(wr_front *front, size_t requested)
{
    const wr_mempool_name name = atomic_load_explicit(&front->name, memory_order_relaxed);
    const wr_request request = wr_cache_request(front->pool, name, front->stream, requested);
    void *out = NULL;
    return take_whole_or_cut(front->cache, &request, front, &out) == WEIR_OK ? out : NULL;
}

/* With the front's lock, without which no later stream of the record gets memory. */
static weir_status take_from(wr_cache *cache, const wr_request *request, wr_front *front, void **out)
{
    if (!wr_front_is_of(front, request->pool_name)) return take(cache, request, NULL, out);
    WR_TRY(wr_cache_check_stream(request));
    return take_whole_or_cut(cache, request, front, out);
}

weir_status wr_cache_take(wr_cache *cache, const wr_request *request, void **out)
{
    wr_front *front = wr_front_find(request->stream, request->pool_name);
    *out = NULL;
    if (!front) return take(cache, request, NULL, out);
    wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    weir_status status = take_from(cache, request, front, out);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
    return status;
}
