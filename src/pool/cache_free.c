/*
 * cache_free: what the program frees is parked in its front, waits for other streams, or is coalesced and free at once.
 */
#include "pool/account.h"
#include "pool/address.h"
#include "pool/bin.h"
#include "pool/count.h"
#include "pool/cut.h"
#include "pool/front/detach.h"
#include "pool/pending.h"

static void note_freed(wr_cache *cache, const wr_bin *bin, uint64_t blocks)
{
    if (WR_UNLIKELY(wr_mempool_is_orphan(bin->pool)))
        atomic_store_explicit(&cache->orphans, true, memory_order_relaxed);
    bin->ledger->changes += blocks;
}

static void free_locked(wr_cache *cache, wr_block *block)
{
    note_freed(cache, block->segment->bin, 1);
    block->state = WR_BLOCK_FREE;
    wr_cache_join_free_locked(cache, block);
}

void wr_cache_join_free_locked(wr_cache *cache, wr_block *block)
{
    wr_bin *bin = block->segment->bin;
    if (block->next && block->next->state == WR_BLOCK_FREE) {
        wr_block *right = block->next;
        wr_count_free_out(bin, right);
        wr_bin_remove(bin, right);
        wr_block_absorb_next(block);
        wr_ledger_add_record(bin->ledger, right);
    }
    if (block->prev && block->prev->state == WR_BLOCK_FREE) {
        wr_block *left = block->prev;
        wr_count_free_out(bin, left);
        wr_bin_remove(bin, left);
        wr_block_absorb_next(left);
        wr_ledger_add_record(bin->ledger, block);
        block = left;
    }
    block->freed_at = cache->searches[bin->class];
    wr_bin_insert(bin, block);
    wr_count_free_in(bin, block);
}

void wr_cache_reclaim_locked(wr_cache *cache, wr_block *block)
{
    const wr_bin *bin = block->segment->bin;
    wr_history_record(&cache->history, WEIR_EVENT_FREE_COMPLETED, block->base, block->requested, bin->stream->native,
                      wr_bin_pool_id(bin));
    wr_count(wr_counter_active_out, bin, block);
    free_locked(cache, block);
}

weir_status wr_cache_live_block_locked(const wr_segment *segment, const void *address, wr_block **out)
{
    /* The segment was looked up without the lock and may have gone meanwhile. */
    WR_ENSURE(wr_address_find(address) == segment, WEIR_ERR_UNKNOWN_POINTER,
              "%p is not in memory that weir holds; its segment was given back to the driver", address);
    wr_block *block = wr_starts_block_at(segment, address);
    WR_ENSURE(wr_block_is_live(block), WEIR_ERR_DOUBLE_FREE,
              "%p is in memory that was already freed (%s, %zu bytes at %p, %s)", address, block->segment->cache->name,
              block->bytes, (void *)block->base,
              block->state == WR_BLOCK_PENDING ? "waiting for the streams it was recorded on" : "cached");
    *out = block;
    return WEIR_OK;
}

wr_block *wr_cache_lock_block(const void *pointer)
{
    const wr_segment *segment = wr_address_find(pointer);
    if (WR_UNLIKELY(!segment)) return NULL;
    wr_cache_lock(segment->cache);
    wr_block *block = wr_address_find(pointer) == segment ? wr_starts_block_at(segment, pointer) : NULL;
    if (WR_LIKELY(block && block->base == pointer && wr_block_is_live(block))) return block;
    wr_cache_unlock(segment->cache);
    return NULL;
}

static weir_status find_for_free_locked(const wr_segment *segment, void *pointer, wr_block **out)
{
    wr_block *block = NULL;
    WR_TRY(wr_cache_live_block_locked(segment, pointer, &block));
    WR_ENSURE(block->base == pointer, WEIR_ERR_INVALID_ARGUMENT,
              "%p points %zu bytes into a block of %zu bytes; free the block's start, %p", pointer,
              (size_t)((char *)pointer - block->base), block->bytes, (void *)block->base);
    /* A thread that has a side (pool/front/side.h) frees it with neither of the locks that are held here. */
    WR_ENSURE(wr_block_mark_used(block), WEIR_ERR_DOUBLE_FREE, "%p was freed by another thread at the same time",
              pointer);
    *out = block;
    return WEIR_OK;
}

void wr_cache_give_locked(wr_cache *cache, wr_block *block)
{
    const wr_bin *bin = block->segment->bin;
    wr_block_mark_as(block, WR_MARK_NONE);
    wr_account_out(bin->account, 1, (int64_t)block->bytes);
    if (!block->uses && !block->kept) {
        wr_history_record_free(&cache->history, block->base, block->requested, bin->stream->native,
                               wr_bin_pool_id(bin));
        wr_count_freed(bin, block);
        free_locked(cache, block);
        return;
    }
    wr_count(wr_counter_live_out, bin, block);
    wr_history_record(&cache->history, WEIR_EVENT_FREE_REQUESTED, block->base, block->requested, bin->stream->native,
                      wr_bin_pool_id(bin));
    block->state = WR_BLOCK_PENDING;
    wr_count_waits(block);
}

WR_FLATTEN void wr_cache_give_parked_locked(wr_cache *cache, wr_block *first, int kind,
                                            const int64_t sums[WR_FLOW_LIVE])
{
    const wr_bin *bin = first->segment->bin; /* blocks of one front share pool, account and ledger */
    wr_count_all_freed(bin, kind, sums);
    wr_account_out(bin->account, sums[WR_FLOW_BLOCKS], sums[WR_FLOW_BYTES]);
    note_freed(cache, bin, (uint64_t)sums[WR_FLOW_BLOCKS]);
    for (wr_block *block = first, *next; block; block = next) {
        next = block->next_parked;
        wr_block_mark_as(block, WR_MARK_NONE);
        if (WR_UNLIKELY(block->uses)) wr_pending_forget_locked(cache, block); /* recorded while it was being freed */
        block->state = WR_BLOCK_FREE;
        wr_cache_join_free_locked(cache, block);
    }
}

static weir_status give_locked(wr_front *front, const wr_segment *segment, void *pointer, wr_block **pending)
{
    wr_cache *cache = segment->cache;
    wr_block *block = NULL;
    if (front) wr_front_meet_locked(front);
    WR_TRY(find_for_free_locked(segment, pointer, &block));
    if (front && block->uses) wr_front_count_used_locked(front);
    if (front && !block->uses)
        wr_front_give_locked(front, block);
    else
        wr_cache_give_locked(cache, block);
    if (block->state == WR_BLOCK_PENDING && !block->kept) *pending = block;
    return WEIR_OK;
}

/* The front's lock, if there is a front, is held until the block is free, so that a second thread that frees it finds
 * it so. False: the block's stream has ended meanwhile, and that is another front's lock. */
static WR_NOINLINE bool give(wr_front *front, const wr_segment *segment, void *pointer, wr_block **pending,
                             weir_status *status)
{
    wr_cache_lock(segment->cache);
    const bool same = atomic_load_explicit(&segment->front, memory_order_relaxed) == front;
    if (WR_LIKELY(same)) *status = give_locked(front, segment, pointer, pending);
    wr_cache_unlock(segment->cache);
    return same;
}

static bool free_in(wr_front *front, const wr_segment *segment, void *pointer, wr_block **waiting, weir_status *status)
{
    wr_block *block = front ? wr_starts_find(segment, pointer) : NULL;
    if (block && wr_front_park_locked(front, block, pointer)) return true;
    return (block && wr_front_give_detached(front, block, pointer)) || give(front, segment, pointer, waiting, status);
}

weir_status wr_cache_free(const wr_segment *segment, void *pointer, wr_block **waiting)
{
    weir_status status = WEIR_OK;
    bool done = false;
    *waiting = NULL;
    while (!done) {
        wr_front *front = atomic_load_explicit(&segment->front, memory_order_acquire);
        if (front) wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
        done = free_in(front, segment, pointer, waiting, &status);
        if (front) wr_bias_release(&front->lock, WR_BIAS_OUTER);
    }
    return status;
}
