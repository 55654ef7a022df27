#include "pool/front.h"

#include "base/meta.h"
#include "base/size.h"
#include "pool/account.h"
#include "pool/count.h"
#include "pool/detach.h"

static wr_front *first_front(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->fronts, memory_order_acquire);
}

/* ---- into the cache ----------------------------------------------------------------------------------------------- */

/* What was handed out again came and went; by the drift more is asked for. */
static void tell_hits(weir_memory_stats *stats, wr_flow *flow, int kind, const int64_t hits[WR_FLOW_LIVE],
                      int64_t drift)
{
    stats->hits += (uint64_t)hits[WR_FLOW_BLOCKS];
    for (int i = 0; i < WR_FLOW_LIVE; i++) flow->came[kind][i] += hits[i];
    wr_flow_go(flow, kind, WR_FLOW_REQUESTED, -drift);
}

static void tell_account(wr_account *account, const int64_t hits[WR_FLOW_LIVE])
{
    account->blocks.added += hits[WR_FLOW_BLOCKS];
    account->blocks.removed += hits[WR_FLOW_BLOCKS];
    account->bytes.added += hits[WR_FLOW_BYTES];
    account->bytes.removed += hits[WR_FLOW_BYTES];
}

/* Nothing is parked: what is still counted of requested bytes is by how much less the cache knows of blocks that were handed
 * out again for more. */
static void tell(const wr_front *front, wr_front_part *part, int kind)
{
    wr_cache *cache = front->cache;
    int64_t *hits = part->hits;
    if (hits[WR_FLOW_BLOCKS] == 0) return;
    const int64_t drift = -wr_front_parked(part, WR_FLOW_REQUESTED);
    wr_front_keep(part, WR_FLOW_REQUESTED, drift);
    tell_hits(&cache->stats, &cache->ledger.flow, kind, hits, drift);
    tell_account(front->account, hits);
    if (cache->pools->counted) tell_hits(&cache->pools->stats, &cache->pools->flow, kind, hits, drift);
    for (int i = 0; i < WR_FLOW_LIVE; i++) hits[i] = 0;
}

static const wr_front_part *part_of(const wr_front *front, wr_class class)
{
    return class == WR_SMALL ? &front->small : &front->large;
}

/* As the fronts said last; those that are detached are asked, since they empty themselves without saying so. */
static int64_t parked_as_said(const wr_cache *cache, wr_class class, int number)
{
    int64_t sum = cache->parked[class][number];
    for (const wr_front *f = cache->detached; f; f = f->next_detached) {
        const wr_front_part *part = part_of(f, class);
        sum += wr_front_parked(part, (wr_flow_number)number) - part->added_up[number];
    }
    return sum;
}

/* What is live to the cache and not to the program: parked, or free and not told. */
static int64_t not_live(const wr_cache *cache, wr_class class, int number)
{
    int64_t sum = wr_detached_untold(cache, class, number);
    if (cache->front_count > WR_FRONTS_SUMMED) return sum + parked_as_said(cache, class, number);
    for (const wr_front *f = first_front(cache); f; f = f->next)
        sum += wr_front_parked(part_of(f, class), (wr_flow_number)number);
    return sum;
}

int64_t wr_fronts_parked(const wr_cache *cache, wr_flow_number number)
{
    int64_t sum = 0;
    for (const wr_front *f = first_front(cache); f; f = f->next) sum += wr_front_parked_in_all(f, number);
    return sum;
}

int64_t wr_fronts_not_live_locked(const wr_cache *cache, wr_flow_number number)
{
    return wr_fronts_parked(cache, number) + wr_detached_untold(cache, WR_SMALL, number) +
           wr_detached_untold(cache, WR_LARGE, number);
}

void wr_fronts_sum_locked(const wr_cache *cache, int64_t sums[WEIR_STAT_KINDS][WR_FLOW_LIVE])
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FLOW_LIVE; i++) {
            const int64_t sum = not_live(cache, (wr_class) class, i);
            sums[wr_stat_kind((wr_class) class)][i] += sum;
            sums[WEIR_STAT_ALL][i] += sum;
        }
}

static void add_up_part(wr_front_part *part, int64_t sums[WR_FLOW_LIVE])
{
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        const int64_t now = wr_front_parked(part, (wr_flow_number)i);
        sums[i] += now - part->added_up[i];
        part->added_up[i] = now;
    }
}

static void add_up(wr_front *front)
{
    add_up_part(&front->small, front->cache->parked[WR_SMALL]);
    add_up_part(&front->large, front->cache->parked[WR_LARGE]);
}

static void add_up_locked(wr_front *front)
{
    if (WR_UNLIKELY(front->cache->front_count > WR_FRONTS_SUMMED)) add_up(front);
}

static void look_up_locked(wr_front *front)
{
    const wr_cache *cache = front->cache;
    front->closed = atomic_load_explicit(&cache->fronts_closed, memory_order_acquire) != 0;
    front->plain = !front->closed && !front->recorded;
}

void wr_front_meet_locked(wr_front *front)
{
    add_up_locked(front);
    look_up_locked(front);
}

/* But for what is parked here, which has been added up. */
static int64_t not_live_elsewhere(const wr_front *front, wr_flow_number number)
{
    const wr_cache *cache = front->cache;
    if (cache->front_count == 1 && !cache->detached) return 0;
    return not_live(cache, WR_SMALL, number) + not_live(cache, WR_LARGE, number) -
           wr_front_parked_in_all(front, number);
}

/* By how much more than ever before would be live if nothing were parked: it is less than that by what is. */
static int64_t above_peak(const wr_cache *cache, wr_flow_number number)
{
    return -cache->ledger.flow.room[WEIR_STAT_ALL][number];
}

static int64_t above_own_peak(const weir_stat *stat)
{
    return stat->current - stat->peak;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* So much more is spare; what is parked stays what it is. */
static void spare_more(wr_front_part *part, wr_flow_number number, int64_t amount)
{
    wr_front_keep(part, number, -amount);
    wr_front_count(part, number, amount);
}

static void set_spare(wr_front_part *part, wr_flow_number number, int64_t spare)
{
    spare_more(part, number, spare - wr_front_spare(part, number));
}

static void count_spare(wr_front_part *part, int64_t blocks, int64_t bytes, int64_t requested)
{
    spare_more(part, WR_FLOW_BLOCKS, blocks);
    spare_more(part, WR_FLOW_BYTES, bytes);
    spare_more(part, WR_FLOW_REQUESTED, requested);
}

void wr_front_count_free(wr_front *front, size_t bytes, size_t requested)
{
    count_spare(wr_front_part_for(front, bytes), 1, (int64_t)bytes, (int64_t)requested);
}

void wr_front_count_live(wr_front *front, size_t bytes, size_t requested)
{
    count_spare(wr_front_part_for(front, bytes), -1, -(int64_t)bytes, -(int64_t)requested);
}

/* Both classes have what is parked of them as far as it is spare. Where that is less than is parked of both, each has a part, so
 * that neither takes the lock again at once, and where it is more, half of the rest. */
static void share_out(wr_front *front, wr_flow_number number, int64_t spare)
{
    const int64_t small = wr_front_parked(&front->small, number), large = wr_front_parked(&front->large, number);
    const int64_t of_large = smaller(large, larger(spare - small, spare / 2));
    const int64_t of_small = smaller(small, spare - of_large), rest = spare - of_large - of_small;
    set_spare(&front->large, number, of_large + rest / 2);
    set_spare(&front->small, number, of_small + rest - rest / 2);
}

/* Below the device's peak. */
static int64_t spare_of_device(const wr_front *front, wr_flow_number number, int64_t parked)
{
    const int64_t spare = parked - above_peak(front->cache, number) + not_live_elsewhere(front, number);
    return wr_front_is_detached(front) ? wr_detached_share(front, number, spare) : spare;
}

/* The device's and the stream's peaks are looked for; the default pool's, where they are kept apart, are noted with them. */
void wr_front_settle_locked(wr_front *front)
{
    const wr_account *own = front->account;
    add_up_locked(front);
    if (wr_front_is_detached(front)) wr_count_full_locked(front->cache->pools);
    const int64_t above_own[WR_FLOW_LIVE] = { [WR_FLOW_BLOCKS] = above_own_peak(&own->blocks),
                                              [WR_FLOW_BYTES] = above_own_peak(&own->bytes),
                                              [WR_FLOW_REQUESTED] = -(INT64_MAX / 2) };
    for (int i = 0; i < WR_FLOW_LIVE; i++) {
        const int64_t parked = wr_front_parked_in_all(front, (wr_flow_number)i);
        share_out(front, (wr_flow_number)i,
                  smaller(spare_of_device(front, (wr_flow_number)i, parked), parked - above_own[i]));
    }
    atomic_store_explicit(&front->below, front->plain_max + 1, memory_order_relaxed);
}

void wr_front_note_taken_locked(wr_front *front, size_t bytes, size_t requested)
{
    const wr_front_rest rest = wr_front_rest_of(wr_front_part_for(front, bytes), bytes, requested);
    wr_front_count_live(front, bytes, requested);
    if (front->cache->detached) wr_detached_review_locked(front->cache);
    if (wr_front_is_detached(front)) {
        wr_front_settle_locked(front); /* its ledger does not tell */
    } else if (!wr_front_spares(rest)) {
        wr_front_unsettle(front);
    }
}

/* What one class lacks the other one may have spare. */
static void lend(wr_front_part *from, wr_front_part *to, wr_flow_number number, int64_t need)
{
    const int64_t lacking = need - wr_front_spare(to, number), there = wr_front_spare(from, number);
    if (lacking <= 0 || there < lacking) return;
    spare_more(from, number, -lacking);
    spare_more(to, number, lacking);
}

bool wr_front_may_take(wr_front *front, size_t block_bytes, size_t requested)
{
    wr_front_part *part = wr_front_part_for(front, block_bytes);
    wr_front_part *other = part == &front->small ? &front->large : &front->small;
    if (atomic_load_explicit(&front->below, memory_order_relaxed) == 0) return false;
    lend(other, part, WR_FLOW_BLOCKS, 1);
    lend(other, part, WR_FLOW_BYTES, (int64_t)block_bytes);
    lend(other, part, WR_FLOW_REQUESTED, (int64_t)requested);
    return wr_front_spares(wr_front_rest_of(part, block_bytes, requested));
}

static void note_peaks(wr_front *front)
{
    wr_cache *cache = front->cache;
    add_up_locked(front);
    wr_account_note_peaks(front->account);
    wr_count_full_locked(cache->pools);
}

static void fold_hits(wr_front_part *part, wr_front_slot *slot)
{
    part->hits[WR_FLOW_BLOCKS] += (int64_t)slot->hits;
    part->hits[WR_FLOW_BYTES] += (int64_t)(slot->hits * slot->bytes);
    slot->hits = 0;
}

/* Before the others of *list. */
static void empty_slot(wr_front_part *part, wr_front_slot *slot, wr_block **list)
{
    wr_block *last = slot->first;
    fold_hits(part, slot);
    if (slot->count == 0) return;
    wr_front_count(part, WR_FLOW_BLOCKS, -(int64_t)slot->count);
    wr_front_count(part, WR_FLOW_BYTES, -(int64_t)(slot->count * slot->bytes));
    wr_front_count(part, WR_FLOW_REQUESTED, -(int64_t)last->requested);
    for (; slot->count > 1; slot->count--) {
        last = last->next_parked;
        wr_front_count(part, WR_FLOW_REQUESTED, -(int64_t)last->requested);
    }
    last->next_parked = *list;
    *list = slot->first;
    slot->first = NULL;
    slot->count = 0;
}

/* What may become live without a peak is as much as before. */
static bool empty(const wr_front *front, wr_front_part *part)
{
    wr_block *list = NULL;
    int64_t spare[WR_FLOW_LIVE];
    if (part->in_use == 0) return false;
    for (int i = 0; i < WR_FLOW_LIVE; i++) spare[i] = wr_front_spare(part, (wr_flow_number)i);
    for (; part->in_use; part->in_use &= part->in_use - 1)
        empty_slot(part, &part->slots[__builtin_ctzll(part->in_use)], &list);
    for (int i = 0; i < WR_FLOW_LIVE; i++) set_spare(part, (wr_flow_number)i, spare[i]);
    wr_cache_give_parked_locked(front->cache, list);
    return true;
}

void wr_front_empty_locked(wr_front *front)
{
    const bool small = empty(front, &front->small), large = empty(front, &front->large);
    tell(front, &front->small, WEIR_STAT_SMALL);
    tell(front, &front->large, WEIR_STAT_LARGE);
    if (small || large) add_up_locked(front);
}

/* No other stream uses what is parked. */
static bool own_alone(const wr_front_part *part)
{
    for (uint64_t left = part->in_use; left; left &= left - 1)
        for (const wr_block *b = part->slots[__builtin_ctzll(left)].first; b; b = b->next_parked)
            if (b->uses) return false;
    return true;
}

void wr_front_empty_detached(wr_front *front)
{
    if (!own_alone(&front->small) || !own_alone(&front->large)) return;
    (void)empty(front, &front->small);
    (void)empty(front, &front->large);
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

weir_status wr_front_of_locked(wr_cache *cache, wr_stream *stream, wr_account *account, wr_front **out)
{
    wr_front *front = atomic_load_explicit(&stream->front, memory_order_relaxed);
    if (!front) {
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_front), "stream's parked blocks", &made));
        front = made;
        wr_bias_init(&front->lock, WR_RANK_FRONT, "front");
        wr_lock_init(&front->cutting, WR_RANK_CUTTING, "cutting");
        front->cache = cache;
        front->stream = stream;
        front->account = account;
        account->front = front;
        front->recorded = cache->history.capacity != 0;
        front->plain_max = cache->policy->plain_max(&cache->options);
        wr_front_unsettle(front);
        look_up_locked(front);
        if (cache->front_count++ == WR_FRONTS_SUMMED)
            for (wr_front *f = first_front(cache); f; f = f->next) add_up(f);
        front->next = atomic_load_explicit(&cache->fronts, memory_order_relaxed);
        atomic_store_explicit(&cache->fronts, front, memory_order_release);
        atomic_store_explicit(&stream->front, front, memory_order_release);
    }
    *out = front;
    return WEIR_OK;
}

/* ---- parking and taking, by whoever has the lock ------------------------------------------------------------------ */

void wr_front_record_taken(const wr_front *front, wr_block *block)
{
    wr_history_record_alloc(&front->cache->history, block->base, block->requested, front->stream->native,
                            (weir_mempool){ 0, 0 }, &block->stack);
}

static void record_parked(const wr_front *front, const wr_block *block)
{
    wr_history_record_free(&front->cache->history, block->base, block->requested, front->stream->native,
                           (weir_mempool){ 0, 0 });
}

void *wr_front_take_locked(wr_front *front, size_t block_bytes, size_t requested)
{
    wr_front_part *part = wr_front_part_for(front, block_bytes);
    wr_front_slot *slot = wr_front_slot_of(part, block_bytes);
    wr_block *block = slot->first;
    wr_front_rest rest = wr_front_rest_of(part, block_bytes, requested);
    const bool locks = atomic_load_explicit(&front->below, memory_order_relaxed) == 0 || !wr_front_spares(rest);
    if (locks) {
        wr_cache_lock(front->cache);
        wr_front_settle_locked(front);
        rest = wr_front_rest_of(part, block_bytes, requested);
    }
    wr_front_pop(part, slot, block, requested, rest);
    wr_front_record_taken(front, block);
    if (!wr_front_spares(rest)) {
        note_peaks(front);
        wr_front_settle_locked(front);
    }
    if (locks) wr_cache_unlock(front->cache);
    return block->base;
}

/* False: its slot is full, or has blocks of another size. */
static bool park(wr_front *front, wr_block *block)
{
    wr_front_part *part = wr_front_part_for(front, block->bytes);
    const size_t index = wr_front_index(block->bytes);
    wr_front_slot *slot = &part->slots[index];
    if (slot->bytes != block->bytes) {
        if (slot->count != 0) return false;
        fold_hits(part, slot);
        slot->bytes = block->bytes;
    }
    if (slot->count == WR_FRONT_DEPTH) return false;
    wr_front_push(part, index, block);
    record_parked(front, block);
    return true;
}

static bool may_park(const wr_front *front, const wr_block *block, const void *pointer)
{
    return block && !front->closed && wr_front_good(front, block, pointer);
}

bool wr_front_park_locked(wr_front *front, wr_block *block, const void *pointer)
{
    return may_park(front, block, pointer) && park(front, block);
}

bool wr_front_give_detached(wr_front *front, wr_block *block, const void *pointer)
{
    if (!wr_front_lock_cutting(front)) return false;
    const bool own = may_park(front, block, pointer) && !block->uses && !block->kept;
    if (own) {
        wr_front_count_free(front, block->bytes, block->requested);
        wr_cache_give_locked(front->cache, block);
    }
    wr_front_unlock_cutting(front, own);
    return own;
}

/* What cannot be parked is free at once. False: another stream came to use it meanwhile. */
static bool give(wr_front *front, wr_block *block, const void *pointer)
{
    if (wr_front_give_detached(front, block, pointer)) return true;
    wr_cache_lock(front->cache);
    wr_front_meet_locked(front);
    const bool own = may_park(front, block, pointer) && !block->uses;
    if (own) {
        wr_front_count_free(front, block->bytes, block->requested);
        wr_cache_give_locked(front->cache, block);
    }
    wr_cache_unlock(front->cache);
    return own;
}

bool wr_front_park_other(wr_front *front, wr_block *block, const void *pointer, wr_bias_thread *self)
{
    const bool may = may_park(front, block, pointer);
    const bool freed = may && (park(front, block) || give(front, block, pointer));
    wr_bias_release_owned(self);
    return freed;
}

bool wr_front_miss(wr_front *front, size_t requested, wr_bias_thread *self, void **out)
{
    const size_t bytes = wr_round_up(requested, WR_FRONT_QUANTUM);
    const bool plain = requested != 0 && requested <= front->plain_max;
    void *found = NULL;
    if (plain && wr_front_has(front, bytes))
        found = wr_front_take_locked(front, bytes, requested);
    else if (plain && wr_mempool_chunked(front->cache->pools))
        found = wr_cache_take_plain(front, bytes, requested);
    wr_bias_release_owned(self);
    if (found) *out = found;
    return found != NULL;
}

/* ---- with the cache's lock ---------------------------------------------------------------------------------------- */

wr_front_hold wr_front_lock(wr_cache *cache, wr_front *front)
{
    wr_front_hold h = { .front = front };
    if (front) h.hold = wr_bias_acquire(&front->lock);
    wr_cache_lock(cache);
    if (front) wr_front_meet_locked(front);
    return h;
}

wr_front_hold wr_front_lock_stream(wr_cache *cache, const wr_stream *stream)
{
    return wr_front_lock(cache, atomic_load_explicit(&stream->front, memory_order_acquire));
}

void wr_front_unlock(wr_cache *cache, const wr_front_hold *h)
{
    wr_cache_unlock(cache);
    if (h->front) wr_bias_release(&h->front->lock, h->hold);
}

/* ---- all of a cache ----------------------------------------------------------------------------------------------- */

void wr_fronts_empty(wr_cache *cache)
{
    for (wr_front *front = first_front(cache); front; front = front->next) {
        const wr_bias_hold hold = wr_bias_visit(&front->lock);
        wr_cache_lock(cache);
        note_peaks(front);
        wr_front_attach_locked(front);
        wr_front_empty_locked(front);
        wr_front_unsettle(front);
        look_up_locked(front);
        wr_cache_unlock(cache);
        wr_bias_release(&front->lock, hold);
    }
}

/* Counted under the cache's lock: a front that is made later is made by somebody who sees it. */
void wr_fronts_close(wr_cache *cache)
{
    wr_cache_lock(cache);
    atomic_fetch_add(&cache->fronts_closed, 1);
    wr_cache_unlock(cache);
    wr_fronts_empty(cache);
}

void wr_fronts_open(wr_cache *cache)
{
    atomic_fetch_sub(&cache->fronts_closed, 1);
}

void wr_fronts_release(wr_cache *cache)
{
    wr_front *front = first_front(cache);
    while (front) {
        wr_front *next = front->next;
        wr_bias_destroy(&front->lock);
        wr_lock_destroy(&front->cutting);
        wr_meta_free(front);
        front = next;
    }
}
