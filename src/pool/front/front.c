#include "pool/front/hit.h"

#include "base/meta.h"
#include "pool/account.h"
#include "pool/count.h"
#include "pool/front/detach.h"
#include "pool/front/post.h"
#include "pool/front/side.h"
#include "pool/plan/subplan.h"

#include <assert.h>

/* ---- into the cache ---------------------------------------------------------------------------------------------- */

/* Blocks handed out again came and went. By the drift, more is requested than the cache knows. */
static void tell_hits(weir_memory_stats *stats, wr_flow *flow, int kind, const uint64_t hits[WR_FLOW_LIVE],
                      int64_t drift)
{
    stats->hits += hits[WR_FLOW_BLOCKS];
    for (int i = 0; i < WR_FLOW_LIVE; i++) flow->came[kind][i] += hits[i];
    wr_flow_go(flow, kind, WR_FLOW_REQUESTED, -drift);
}

static void tell_account(wr_account *account, const uint64_t hits[WR_FLOW_LIVE])
{
    account->blocks.added += (int64_t)hits[WR_FLOW_BLOCKS];
    wr_total_add(&account->bytes.added, hits[WR_FLOW_BYTES]);
}

/* Nothing is parked, so requested bytes still counted are drift: blocks were handed out again for larger requests. */
static void tell(wr_front *front, wr_class class)
{
    wr_cache *cache = front->cache;
    wr_front_part *part = &front->parts[class];
    const int kind = wr_stat_kind(class);
    uint64_t *hits = part->hits;
    if (hits[WR_FLOW_BLOCKS] == 0) return;
    const int64_t drift = -wr_front_parked(part, WR_FLOW_REQUESTED);
    wr_front_keep(part, WR_FLOW_REQUESTED, drift);
    tell_hits(&cache->stats, &cache->ledger.flow, kind, hits, drift);
    tell_account(front->account, hits);
    front->told += hits[WR_FLOW_BLOCKS];
    if (front->pool->counted) tell_hits(&front->pool->stats, &front->pool->flow, kind, hits, drift);
    for (int i = 0; i < WR_FLOW_LIVE; i++) hits[i] = 0;
}

/* Whether parked blocks may be handed out at once: not when a private pool is gone, released or paused, nor while a
 * plan must be asked first. */
static bool is_open(const wr_front *front)
{
    const wr_mempool *pool = front->pool;
    return !pool->is_private || (!wr_front_is_of(front, WR_MEMPOOL_NOBODY) && wr_mempool_references(pool) > 0 &&
                                 !pool->paused && !wr_subplans_any(pool->cache));
}

/* A side takes no posts, and its misses are the main front's. */
static void look_up_locked(wr_front *front)
{
    const wr_cache *cache = front->cache;
    const bool side = wr_front_is_side(front);
    const bool all = atomic_load_explicit(&cache->fronts_closed, memory_order_acquire) != 0;
    const bool closed = all || !front->listed || !is_open(front) || (side && !wr_front_is_shared(front->main));
    front->closed = closed;
    front->recorded = wr_history_capacity(&cache->history) != 0;
    if (WR_UNLIKELY(side)) return;
    const bool open = !closed && !front->recorded;
    front->plain = open && !wr_front_is_shared(front);
    front->asks = (closed && front->pool->is_private) || atomic_load_explicit(&cache->watched, memory_order_relaxed);
    wr_front_open_posts_locked(front, open);
}

void wr_front_meet_locked(wr_front *front)
{
    look_up_locked(front); /* may free posts */
    wr_front_add_up_locked(front);
}

static void note_peaks(wr_front *front)
{
    wr_front_free_posts_locked(front); /* to peaks they would be live */
    wr_front_add_up_locked(front);
    wr_account_note_peaks(front->account);
    wr_count_full_locked(front->pool);
}

static void fold_hits(wr_front_part *part, wr_front_slot *slot)
{
    part->hits[WR_FLOW_BLOCKS] += slot->hits;
    part->hits[WR_FLOW_BYTES] += slot->hits * slot->bytes;
    slot->hits = 0;
    slot->refused = 0;
}

/* Puts the slot's blocks before the others of *list, and adds their sums to `gone`. */
static void empty_slot(wr_front *front, wr_front_slot *slot, wr_block **list, int64_t gone[WR_FLOW_LIVE])
{
    wr_block *last = slot->first;
    fold_hits(wr_front_part_for(front, slot->bytes), slot);
    if (!last) return;
    uint32_t count = wr_front_depth(front, slot->bytes) - slot->room;
    slot->room += count;
    gone[WR_FLOW_BLOCKS] += count;
    gone[WR_FLOW_BYTES] += (int64_t)(count * slot->bytes);
    gone[WR_FLOW_REQUESTED] += (int64_t)last->requested;
    for (; count > 1; count--) {
        last = last->next_parked;
        gone[WR_FLOW_REQUESTED] += (int64_t)last->requested;
    }
    last->next_parked = *list;
    *list = slot->first;
    slot->first = NULL;
}

static void give_list(wr_front *front, wr_class class, wr_block *list, const int64_t gone[WR_FLOW_LIVE])
{
    wr_front_keep_all(&front->parts[class], -gone[WR_FLOW_BLOCKS], -gone[WR_FLOW_BYTES], -gone[WR_FLOW_REQUESTED]);
    wr_cache_give_parked_locked(front->cache, list, wr_stat_kind(class), gone);
}

/* What may become live without a peak stays the same. */
static void empty(wr_front *front, wr_class class)
{
    wr_front_part *part = &front->parts[class];
    wr_block *list = NULL;
    int64_t gone[WR_FLOW_LIVE] = { 0 };
    for (; part->in_use; part->in_use &= part->in_use - 1)
        empty_slot(front, &part->slots[__builtin_ctzll(part->in_use)], &list, gone);
    if (list) give_list(front, class, list, gone);
}

/* Whether parked blocks of a class may, split or coalesced, serve a request of the other: a segment has blocks of
 * one only. */
static bool serves(const wr_front *front, wr_class parked, wr_class request)
{
    return parked == request || request == WR_CLASSES || wr_mempool_chunked(front->pool);
}

static void empty_and_tell(wr_front *front, wr_class parked, wr_class request)
{
    if (!serves(front, parked, request)) return;
    empty(front, parked);
    tell(front, parked);
}

void wr_front_empty_for_locked(wr_front *front, wr_class class)
{
    wr_front_free_posts_locked(front);
    empty_and_tell(front, WR_SMALL, class);
    empty_and_tell(front, WR_LARGE, class);
    wr_front_add_up_locked(front);
}

void wr_front_empty_locked(wr_front *front)
{
    wr_front_empty_for_locked(front, WR_CLASSES);
}

static bool slot_alone(const wr_front_slot *slot)
{
    for (const wr_block *b = slot->first; b; b = b->next_parked)
        if (b->uses) return false;
    return true;
}

static bool own_alone(const wr_front_part *part)
{
    for (uint64_t left = part->in_use; left; left &= left - 1)
        if (!slot_alone(&part->slots[__builtin_ctzll(left)])) return false;
    return true;
}

/* Blocks of other sizes that a slot refuses before they get it. */
enum { REFUSED_MOST = 16 };

/* Blocks of another size may have the slot that are not asked for any more, and would keep it for ever. After some
 * refused blocks without a hit between them, they are freed. */
bool wr_front_refuse(wr_front *front, size_t bytes)
{
    wr_front_slot *slot = wr_front_slot_of(wr_front_part_for(front, bytes), bytes);
    if (slot->bytes == bytes || !slot->first) return false;
    if (slot->hits_then != (uint16_t)slot->hits) slot->refused = 0;
    slot->hits_then = (uint16_t)slot->hits;
    return ++slot->refused >= REFUSED_MOST;
}

void wr_front_empty_slot_locked(wr_front *front, size_t bytes)
{
    wr_front_slot *slot = wr_front_slot_of(wr_front_part_for(front, bytes), bytes);
    wr_block *list = NULL;
    int64_t gone[WR_FLOW_LIVE] = { 0 };
    if (!slot_alone(slot)) return;
    empty_slot(front, slot, &list, gone);
    give_list(front, wr_front_class(bytes), list, gone);
    if (!wr_front_is_detached(front)) wr_front_add_up_locked(front);
}

void wr_front_give_locked(wr_front *front, wr_block *block)
{
    const size_t bytes = block->bytes; /* it may be coalesced */
    if (wr_front_refuse(front, bytes)) wr_front_empty_slot_locked(front, bytes);
    wr_front_count_free(front, bytes, block->requested);
    wr_cache_give_locked(front->cache, block);
    if (wr_front_is_detached(front)) wr_front_return_more(front, bytes);
}

void wr_front_empty_detached(wr_front *front, wr_class class)
{
    for (int parked = WR_SMALL; parked < WR_CLASSES; parked++)
        if (serves(front, (wr_class)parked, class) && !own_alone(&front->parts[parked])) return;
    for (int parked = WR_SMALL; parked < WR_CLASSES; parked++)
        if (serves(front, (wr_class)parked, class)) empty(front, (wr_class)parked);
}

/* ---- parking and taking, by whoever has the lock ----------------------------------------------------------------- */

static weir_mempool pool_id(const wr_front *front)
{
    return wr_mempool_id_of(atomic_load_explicit(&front->name, memory_order_relaxed));
}

void *wr_front_hand_out_recorded(const wr_front *front, wr_block *block)
{
    wr_history_record_alloc(&front->cache->history, block->base, block->requested, front->stream->native,
                            pool_id(front), &block->stack);
    return wr_block_hand_out(block);
}

static void record_parked(const wr_front *front, const wr_block *block)
{
    wr_history_record_free(&front->cache->history, block->base, block->requested, front->stream->native,
                           pool_id(front));
}

/* A detached front may find more without the cache's lock. */
static bool finds_spare(wr_front *front, size_t block_bytes, size_t requested)
{
    if (!wr_front_lock_cutting(front)) return false;
    const bool found = wr_front_may_take(front, block_bytes, requested, true);
    wr_front_unlock_cutting(front, found);
    return found;
}

void *wr_front_take_locked(wr_front *front, size_t block_bytes, size_t requested)
{
    wr_front_part *part = wr_front_part_for(front, block_bytes);
    wr_front_slot *slot = wr_front_slot_of(part, block_bytes);
    wr_block *block = slot->first;
    const bool spares = wr_front_is_settled(front) && (wr_front_is_below_peak(front, block_bytes, requested) ||
                                                       finds_spare(front, block_bytes, requested));
    if (!spares) {
        wr_cache_lock(front->cache);
        wr_front_settle_locked(front);
    }
    const wr_front_rest rest = wr_front_rest_of(part, block_bytes, requested);
    wr_front_pop(part, slot, block, requested, rest);
    void *base = wr_front_hand_out_recorded(front, block);
    if (!wr_front_spares(rest)) {
        note_peaks(front);
        wr_front_settle_locked(front);
    }
    if (!spares) wr_cache_unlock(front->cache);
    return base;
}

void wr_front_renew_slot(wr_front *front, size_t bytes)
{
    wr_front_part *part = wr_front_part_for(front, bytes);
    wr_front_slot *slot = wr_front_slot_of(part, bytes);
    assert(!slot->first);
    fold_hits(part, slot);
    slot->bytes = bytes;
    slot->room = wr_front_depth(front, bytes);
}

bool wr_front_place_locked(wr_front *front, wr_block *block)
{
    wr_front_part *part = wr_front_part_for(front, block->bytes);
    const size_t index = wr_front_index(block->bytes);
    const wr_front_slot *slot = &part->slots[index];
    if (slot->bytes != block->bytes) {
        if (slot->first) return false;
        wr_front_renew_slot(front, block->bytes);
    }
    if (slot->room == 0) return false;
    wr_front_push(part, index, block);
    record_parked(front, block);
    return true;
}

static bool may_park(const wr_front *front, const wr_block *block, const void *pointer)
{
    return block && !front->closed && wr_front_good(front, block, pointer);
}

/* False: another thread was first, or other streams use the block. */
static bool park_shared(wr_front *front, wr_block *block, const void *pointer)
{
    if (!wr_front_claim(front, block, pointer)) return false;
    if (!wr_front_place_locked(front, block)) {
        wr_block_mark_as(block, WR_MARK_PARKED);
        wr_front_free_claimed(front, &block, 1);
    }
    return true;
}

static bool park(wr_front *front, wr_block *block, const void *pointer)
{
    return wr_front_is_shared(front) ? park_shared(front, block, pointer) : wr_front_place_locked(front, block);
}

bool wr_front_park_locked(wr_front *front, wr_block *block, const void *pointer)
{
    return may_park(front, block, pointer) && park(front, block, pointer);
}

/* With the cutting lock or the cache's. False: the block is not the front's, or other streams use it. */
static bool give_unused(wr_front *front, wr_block *block, const void *pointer)
{
    if (!may_park(front, block, pointer) || wr_front_is_shared(front) || block->uses) return false;
    wr_front_give_locked(front, block);
    return true;
}

bool wr_front_give_detached(wr_front *front, wr_block *block, const void *pointer)
{
    if (!wr_front_lock_cutting(front)) return false;
    const bool given = give_unused(front, block, pointer);
    wr_front_unlock_cutting(front, given);
    return given;
}

/* A block that cannot be parked is freed at once. False: another stream has begun to use it. */
static bool give(wr_front *front, wr_block *block, const void *pointer)
{
    if (wr_front_give_detached(front, block, pointer)) return true;
    wr_cache_lock(front->cache);
    wr_front_meet_locked(front);
    const bool given = give_unused(front, block, pointer);
    wr_cache_unlock(front->cache);
    return given;
}

bool wr_front_park_other(wr_front *front, wr_block *block, const void *pointer, wr_bias_thread *self)
{
    const bool may = may_park(front, block, pointer);
    const bool freed = may && (park(front, block, pointer) || give(front, block, pointer));
    wr_bias_release_owned(self);
    return freed;
}

static WR_NOINLINE void *take_rounded(wr_front *front, size_t requested)
{
    return requested != 0 && requested <= WR_REQUEST_MAX ? wr_cache_take_rounded(front, requested) : NULL;
}

/* Whether, before a large block is cut from a free one, it is asked what other streams have done meanwhile, as
 * wr_device_alloc() does: what is free by then may fit better. Not each time, since to ask takes the driver. */
static bool asks_first(wr_front *front, size_t bytes)
{
    enum { EVERY = 4 };
    if (bytes <= WR_SMALL_MAX || atomic_load_explicit(&front->cache->pending, memory_order_relaxed) == 0) return false;
    return ++front->large_misses % EVERY == 0;
}

bool wr_front_miss(wr_front *front, const wr_front_slot *slot, size_t requested, wr_bias_thread *self, void **out)
{
    const size_t bytes = wr_front_block_bytes(front, requested);
    const bool plain = requested != 0 && requested <= front->plain_max;
    void *found = NULL;
    if (plain) wr_front_collect(front, bytes, requested);
    if (plain && wr_front_slot_has(slot, bytes))
        found = wr_front_take_locked(front, bytes, requested);
    else if (WR_LIKELY(!front->asks && !asks_first(front, bytes)))
        found = WR_LIKELY(plain) ? wr_cache_take_plain(front, bytes, requested, self) : take_rounded(front, requested);
    else if (plain && wr_front_is_side(front))
        return wr_side_miss(front, bytes, requested, self, out);
    wr_bias_release_owned(self);
    if (found) *out = found;
    return found != NULL;
}

/* ---- with the cache's lock --------------------------------------------------------------------------------------- */

void wr_front_lock(wr_cache *cache, wr_front *front)
{
    if (front) wr_bias_acquire(&front->lock, WR_BIAS_OUTER);
    wr_cache_lock(cache);
    if (front) wr_front_meet_locked(front);
}

wr_front *wr_front_lock_stream(wr_cache *cache, const wr_stream *stream, wr_mempool_name name)
{
    wr_front *front = wr_front_find(stream, name);
    wr_front_lock(cache, front);
    return front;
}

void wr_front_unlock(wr_cache *cache, wr_front *front)
{
    wr_cache_unlock(cache);
    if (front) wr_bias_release(&front->lock, WR_BIAS_OUTER);
}

/* ---- all of a cache ---------------------------------------------------------------------------------------------- */

/* `parts`: the front becomes nobody's. */
static void look_after(wr_front *front, bool parts)
{
    wr_cache *cache = front->cache;
    wr_cache_lock(cache);
    note_peaks(front);
    wr_front_attach_locked(front);
    wr_front_empty_locked(front);
    wr_front_unsettle(front);
    if (parts) atomic_store_explicit(&front->name, WR_MEMPOOL_NOBODY, memory_order_release);
    look_up_locked(front);
    if (parts) wr_front_unlist_locked(front);
    wr_cache_unlock(cache);
}

static void visit(wr_front *front, bool parts)
{
    wr_bias_visit(&front->lock);
    look_after(front, parts);
    wr_bias_release(&front->lock, WR_BIAS_OUTER);
}

static bool has_untold(const wr_front *front)
{
    return (front->parts[WR_SMALL].hits[WR_FLOW_BLOCKS] | front->parts[WR_LARGE].hits[WR_FLOW_BLOCKS]) != 0;
}

/* Its last visit closed it, and its stream was not used since. With many streams most are so when a request is refused
 * again. */
static bool is_at_rest(const wr_front *front)
{
    return front->closed && !wr_front_any(front) && !has_untold(front) && wr_front_posts(front) == 0 &&
           !wr_front_is_detached(front) && !wr_front_is_settled(front);
}

static void visit_listed(wr_cache *cache, bool at_rest_too)
{
    for (wr_front *front = wr_front_first(cache); front; front = wr_front_next(front)) {
        if (wr_front_is_of(front, WR_MEMPOOL_NOBODY)) continue;
        wr_bias_visit(&front->lock);
        if (at_rest_too || !is_at_rest(front)) look_after(front, false);
        wr_bias_release(&front->lock, WR_BIAS_OUTER);
    }
}

void wr_fronts_empty(wr_cache *cache)
{
    visit_listed(cache, false);
}

bool wr_fronts_empty_beside(const wr_front *main, size_t least)
{
    int64_t parked = 0;
    for (const wr_front *f = wr_front_beside(main); f; f = wr_front_beside(f))
        parked += wr_front_parked_in_all(f, WR_FLOW_BYTES);
    if (parked < (int64_t)least) return false;
    for (wr_front *f = wr_front_beside(main); f; f = wr_front_beside(f))
        if (wr_front_parked_in_all(f, WR_FLOW_BYTES) != 0) visit(f, false);
    return true;
}

void wr_fronts_empty_in(wr_cache *cache, wr_mempool_name name)
{
    for (wr_front *front = wr_front_first(cache); front; front = wr_front_next(front))
        if (wr_front_is_of(front, name)) visit(front, false);
}

static void part(const wr_stream *stream, wr_mempool_name name)
{
    for (wr_front *f = wr_front_youngest(stream); f; f = wr_front_after(f))
        if (wr_front_is_of(f, name)) visit(f, true);
}

/* The bins for small and for large blocks have the same one, which may be another pool's before it is met again. */
void wr_fronts_part(const wr_mempool *pool, wr_mempool_name name)
{
    for (const wr_bin *bin = pool->first_bin; bin; bin = bin->next)
        if (bin->front && wr_front_is_of(bin->front, name)) part(bin->front->stream, name);
}

/* Counted under the cache's lock, so that whoever makes a front later sees it. */
static void count_closed(wr_cache *cache)
{
    wr_cache_lock(cache);
    atomic_fetch_add(&cache->fronts_closed, 1);
    wr_cache_unlock(cache);
}

void wr_fronts_close(wr_cache *cache)
{
    count_closed(cache);
    visit_listed(cache, true);
}

static void visit_all_of(const wr_stream *stream)
{
    for (wr_front *f = wr_front_youngest(stream); f; f = wr_front_after(f))
        if (!wr_front_is_of(f, WR_MEMPOOL_NOBODY)) visit(f, false);
}

/* A stream without fronts has nothing parked, and will not park what it gets. */
void wr_fronts_close_for(wr_cache *cache, const wr_stream *from, const wr_stream *to)
{
    count_closed(cache);
    if (!atomic_load_explicit(&from->fronts, memory_order_acquire)) return;
    visit_all_of(from);
    visit_all_of(to);
}

void wr_fronts_open(wr_cache *cache)
{
    atomic_fetch_sub(&cache->fronts_closed, 1);
}

void wr_fronts_close_and_lock(wr_cache *cache)
{
    wr_fronts_close(cache);
    wr_cache_lock(cache);
}

void wr_fronts_unlock_and_open(wr_cache *cache)
{
    wr_cache_unlock(cache);
    wr_fronts_open(cache);
}

void wr_fronts_release(wr_cache *cache)
{
    wr_front *front = cache->youngest_front;
    while (front) {
        wr_front *next = front->older;
        wr_bias_destroy(&front->lock);
        wr_lock_destroy(&front->cutting);
        wr_lock_destroy(&front->posts.lock);
        wr_meta_free(front->posts.at);
        wr_meta_free(front);
        front = next;
    }
}
