#include "pool/cache.h"

#include "base/meta.h"
#include "pool/address.h"
#include "pool/count.h"
#include "pool/pending.h"

#include <assert.h>

weir_status wr_cache_init(wr_cache *cache, const weir_backend *backend, int device, const wr_policy *policy,
                          const wr_policy_options *options, wr_event_pool *events, uint64_t history)
{
    *cache =
        (wr_cache){ .backend = backend, .policy = policy, .options = *options, .device = device, .events = events };
    WR_TRY(wr_history_init(&cache->history, device, history));
    wr_lock_init(&cache->lock, WR_RANK_CACHE, "cache");
    wr_lock_init(&cache->poll_lock, WR_RANK_POLL, "poll");
    wr_lock_init(&cache->move_lock, WR_RANK_MOVE, "move");
    return WEIR_OK;
}

/* Collection by age costs a counter per search; it is only kept where it can be used. */
static bool collects_by_age(const wr_cache *cache)
{
    return cache->limit != 0 && cache->options.gc_threshold > 0;
}

static wr_block *find_free_locked(wr_cache *cache, const wr_request *request)
{
    uint32_t index = request->stream->index * WR_CLASSES + request->fit.class;
    if (collects_by_age(cache) && !request->again) cache->searches[request->fit.class]++;
    if (index >= cache->bin_capacity || !cache->bins[index]) return NULL;
    wr_block *block = wr_bin_best_fit(cache->bins[index], request->fit.block_bytes);
    return block && cache->policy->takes(&cache->options, &request->fit, block->bytes) ? block : NULL;
}

static void count_live_in(wr_cache *cache, const wr_block *block)
{
    weir_memory_stats *s = &cache->stats;
    const wr_class class = block->segment->bin->class;
    const int kind = class == WR_SMALL ? WEIR_STAT_SMALL : WEIR_STAT_LARGE;
    wr_count_in(s->allocation, s->allocated_bytes, class, block->bytes);
    wr_count_in(s->active, s->active_bytes, class, block->bytes);
    wr_stat_add(&s->requested_bytes[WEIR_STAT_ALL], (int64_t)block->requested);
    wr_stat_add(&s->requested_bytes[kind], (int64_t)block->requested);
}

static void count_active_out(wr_cache *cache, const wr_block *block)
{
    weir_memory_stats *s = &cache->stats;
    const wr_class class = block->segment->bin->class;
    const int kind = class == WR_SMALL ? WEIR_STAT_SMALL : WEIR_STAT_LARGE;
    wr_count_out(s->active, s->active_bytes, class, block->bytes);
    wr_stat_remove(&s->requested_bytes[WEIR_STAT_ALL], (int64_t)block->requested);
    wr_stat_remove(&s->requested_bytes[kind], (int64_t)block->requested);
}

weir_status wr_cache_hand_out_locked(wr_cache *cache, const wr_request *request, wr_block *block, void **out)
{
    if (cache->policy->splits(&cache->options, &request->fit, block->bytes)) {
        wr_block *rest = NULL;
        WR_TRY(wr_record_block(cache, &rest));
        wr_count_free_out(cache, block);
        wr_bin_remove(block->segment->bin, block);
        wr_block_split(block, request->fit.block_bytes, rest);
        rest->freed_at = block->freed_at;
        wr_bin_insert(block->segment->bin, rest);
        wr_count_free_in(cache, rest);
    } else {
        wr_count_free_out(cache, block);
        wr_bin_remove(block->segment->bin, block);
    }
    block->state = WR_BLOCK_LIVE;
    block->requested = request->requested;
    block->uses = NULL;
    count_live_in(cache, block);
    wr_history_record(&cache->history, WEIR_EVENT_ALLOC, block->base, block->requested, request->stream->native);
    *out = block->base;
    return WEIR_OK;
}

weir_status wr_cache_take(wr_cache *cache, const wr_request *request, void **out)
{
    weir_status status = WEIR_OK;
    *out = NULL;
    wr_lock_acquire(&cache->lock);
    wr_block *block = find_free_locked(cache, request);
    if (block) {
        status = wr_cache_hand_out_locked(cache, request, block, out);
        if (status == WEIR_OK) cache->stats.hits++;
    }
    wr_lock_release(&cache->lock);
    return status;
}

void wr_cache_reclaim_locked(wr_cache *cache, wr_block *block)
{
    wr_bin *bin = block->segment->bin;
    wr_history_record(&cache->history, WEIR_EVENT_FREE_COMPLETED, block->base, block->requested, bin->stream->native);
    count_active_out(cache, block);
    cache->changes++;
    block->state = WR_BLOCK_FREE;
    if (block->next && block->next->state == WR_BLOCK_FREE) {
        wr_block *right = block->next;
        wr_count_free_out(cache, right);
        wr_bin_remove(bin, right);
        wr_block_absorb_next(block);
        wr_record_block_done(cache, right);
    }
    if (block->prev && block->prev->state == WR_BLOCK_FREE) {
        wr_block *left = block->prev;
        wr_count_free_out(cache, left);
        wr_bin_remove(bin, left);
        wr_block_absorb_next(left);
        wr_record_block_done(cache, block);
        block = left;
    }
    block->freed_at = cache->searches[bin->class];
    wr_bin_insert(bin, block);
    wr_count_free_in(cache, block);
}

weir_status wr_cache_live_block_locked(wr_cache *cache, const wr_segment *segment, const void *address, wr_block **out)
{
    /* The segment was looked up without the lock and may have gone meanwhile. */
    WR_ENSURE(wr_address_find(address) == segment, WEIR_ERR_UNKNOWN_POINTER,
              "%p is not in memory that weir holds; its segment was given back to the driver", address);
    wr_block *block = wr_segment_block_at(segment, address);
    WR_ENSURE(block->state == WR_BLOCK_LIVE, WEIR_ERR_DOUBLE_FREE,
              "%p is in memory that was freed already (device %d, %zu bytes at %p, %s)", address, cache->device,
              block->bytes, (void *)block->base,
              block->state == WR_BLOCK_PENDING ? "waiting for the streams it was recorded on" : "cached");
    *out = block;
    return WEIR_OK;
}

static weir_status find_for_free_locked(wr_cache *cache, const wr_segment *segment, void *pointer, wr_block **out)
{
    wr_block *block = NULL;
    WR_TRY(wr_cache_live_block_locked(cache, segment, pointer, &block));
    WR_ENSURE(block->base == pointer, WEIR_ERR_INVALID_ARGUMENT,
              "%p points %zu bytes into a block of %zu bytes; free the block's start, %p", pointer,
              (size_t)((char *)pointer - block->base), block->bytes, (void *)block->base);
    *out = block;
    return WEIR_OK;
}

weir_status wr_cache_free(wr_cache *cache, const wr_segment *segment, void *pointer)
{
    wr_block *block = NULL;
    wr_lock_acquire(&cache->lock);
    weir_status status = find_for_free_locked(cache, segment, pointer, &block);
    if (status != WEIR_OK) {
        wr_lock_release(&cache->lock);
        return status;
    }
    const wr_bin *bin = block->segment->bin;
    wr_count_out(cache->stats.allocation, cache->stats.allocated_bytes, bin->class, block->bytes);
    wr_history_record(&cache->history, WEIR_EVENT_FREE_REQUESTED, block->base, block->requested, bin->stream->native);
    bool waits = block->uses != NULL;
    if (waits) {
        block->state = WR_BLOCK_PENDING;
        cache->stats.pending_frees++;
    } else {
        wr_cache_reclaim_locked(cache, block);
    }
    wr_lock_release(&cache->lock);
    if (waits) wr_pending_start(cache, block);
    return WEIR_OK;
}
