#include "pool/front.h"

#include "base/meta.h"
#include "pool/count.h"

weir_status wr_front_of_locked(wr_cache *cache, wr_stream *stream, wr_front **out)
{
    wr_front *front = atomic_load_explicit(&stream->front, memory_order_relaxed);
    if (!front) {
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_front), "stream's parked blocks", &made));
        front = made;
        wr_bias_init(&front->lock, WR_RANK_FRONT, "front");
        front->cache = cache;
        front->stream = stream;
        cache->front_count++;
        front->next = atomic_load_explicit(&cache->fronts, memory_order_relaxed);
        atomic_store_explicit(&cache->fronts, front, memory_order_release);
        atomic_store_explicit(&stream->front, front, memory_order_release);
    }
    *out = front;
    return WEIR_OK;
}

static wr_front *first_front(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->fronts, memory_order_acquire);
}

static wr_front_slot *slot_of(wr_front *front, wr_class class, size_t block_bytes)
{
    const uint64_t mixed = (uint64_t)(block_bytes >> 9) * UINT64_C(0x9E3779B97F4A7C15);
    return &front->slots[class][mixed >> 58];
}

static int64_t get(const atomic_int_fast64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

/* One writer at a time: no atomic read-modify-write. */
static void add(atomic_int_fast64_t numbers[WR_FRONT_NUMBERS], int64_t sign, size_t bytes, size_t requested)
{
    const int64_t amounts[] = { sign, sign * (int64_t)bytes, sign * (int64_t)requested };
    for (int i = 0; i < WR_FRONT_NUMBERS; i++)
        atomic_store_explicit(&numbers[i], get(&numbers[i]) + amounts[i], memory_order_relaxed);
}

static int64_t parked_now(const wr_front *front, wr_class class, int number)
{
    return get(&front->parked[class][number]) - get(&front->hits[class][number]);
}

static void tell_peaks(wr_front *front);

/* ---- parking and taking ------------------------------------------------------------------------------------------- */

static wr_block *take_out(wr_front_slot *slot)
{
    wr_block *block = slot->first;
    slot->first = block->next_parked;
    slot->count--;
    atomic_store_explicit(&block->parked, false, memory_order_relaxed);
    return block;
}

static bool is_peak(const wr_front *front)
{
    bool peak = false;
    for (int i = 0; i < WR_FRONT_NUMBERS; i++)
        peak |= parked_now(front, WR_SMALL, i) + parked_now(front, WR_LARGE, i) < front->floor[i];
    return peak;
}

void *wr_front_take_locked(wr_front *front, wr_class class, size_t block_bytes, size_t requested)
{
    wr_front_slot *slot = slot_of(front, class, block_bytes);
    if (WR_UNLIKELY(slot->count == 0 || slot->bytes != block_bytes)) return NULL;
    wr_block *block = take_out(slot);
    front->drift[class] += (int64_t)requested - (int64_t)block->requested;
    block->requested = requested;
    add(front->hits[class], 1, block_bytes, requested);
    wr_history_record(&front->cache->history, WEIR_EVENT_ALLOC, block->base, requested, front->stream->native,
                      (weir_mempool){ 0, 0 });
    if (WR_UNLIKELY(is_peak(front))) {
        wr_lock_acquire(&front->cache->lock);
        tell_peaks(front);
        wr_front_settle_locked(front);
        wr_lock_release(&front->cache->lock);
    }
    return block->base;
}

/* The live block that begins at the pointer, when the program may free it here now; when in doubt, NULL. A pointer that
 * was freed before may meet records that another thread is changing: they are records still, and the cache then says what
 * is wrong, under its lock. */
static WR_RACES wr_block *find_block(const wr_front *front, const wr_segment *segment, const void *pointer)
{
    /* First: whoever closes the fronts to move segments between them either waits for this front's lock, or opened them
     * again before, and then the segment's front is the one that it has now. */
    if (atomic_load_explicit(&front->cache->fronts_closed, memory_order_acquire) != 0) return NULL;
    wr_block *block = wr_segment_block_from(segment, pointer);
    const bool good = block && block->base == pointer && block->state == WR_BLOCK_LIVE && !block->uses &&
                      !atomic_load_explicit(&block->parked, memory_order_relaxed) &&
                      atomic_load_explicit(&segment->front, memory_order_relaxed) == front;
    return good ? block : NULL;
}

bool wr_front_park_locked(wr_front *front, const wr_segment *segment, const void *pointer)
{
    wr_block *block = find_block(front, segment, pointer);
    if (WR_UNLIKELY(!block)) return false;
    const wr_class class = wr_block_class(block);
    wr_front_slot *slot = slot_of(front, class, block->bytes);
    if (slot->count == 0) slot->bytes = block->bytes;
    front->in_use[class] |= (uint64_t)1 << (slot - front->slots[class]);
    if (slot->bytes != block->bytes || slot->count == WR_FRONT_DEPTH) return false;
    block->next_parked = slot->first;
    slot->first = block;
    slot->count++;
    atomic_store_explicit(&block->parked, true, memory_order_relaxed);
    add(front->parked[class], 1, block->bytes, block->requested);
    wr_history_record_free(&front->cache->history, pointer, block->requested, front->stream->native,
                           (weir_mempool){ 0, 0 });
    return true;
}

/* ---- into the cache ----------------------------------------------------------------------------------------------- */

/* The statistics of what is live, each with what a front counts of it. */
#define LIVE_STATS 5

typedef struct live_stats {
    struct {
        weir_stat *stat; /* of each kind */
        wr_front_number number;
    } of[LIVE_STATS];
} live_stats;

static live_stats live_of(weir_memory_stats *stats)
{
    return (live_stats){ { { stats->allocation, WR_FRONT_BLOCKS },
                           { stats->allocated_bytes, WR_FRONT_BYTES },
                           { stats->active, WR_FRONT_BLOCKS },
                           { stats->active_bytes, WR_FRONT_BYTES },
                           { stats->requested_bytes, WR_FRONT_REQUESTED } } };
}

static void tell_hits(weir_memory_stats *stats, int kind, const int64_t hits[WR_FRONT_NUMBERS], int64_t drift)
{
    const live_stats live = live_of(stats);
    stats->hits += (uint64_t)hits[WR_FRONT_BLOCKS];
    for (int i = 0; i < 2; i++, kind = WEIR_STAT_ALL) {
        for (int k = 0; k < LIVE_STATS; k++) {
            live.of[k].stat[kind].added += hits[live.of[k].number];
            live.of[k].stat[kind].removed += hits[live.of[k].number];
        }
        stats->requested_bytes[kind].removed -= drift;
        stats->requested_bytes[kind].current += drift;
    }
}

static void tell(wr_front *front, wr_class class)
{
    wr_cache *cache = front->cache;
    int64_t hits[WR_FRONT_NUMBERS];
    for (int i = 0; i < WR_FRONT_NUMBERS; i++) {
        hits[i] = get(&front->hits[class][i]) - front->told[class][i];
        front->told[class][i] += hits[i];
    }
    if (hits[WR_FRONT_BLOCKS] == 0) return;
    tell_hits(&cache->stats, wr_stat_kind(class), hits, front->drift[class]);
    if (cache->pools->counted) tell_hits(&cache->pools->stats, wr_stat_kind(class), hits, front->drift[class]);
    atomic_int_fast64_t *requested = &front->parked[class][WR_FRONT_REQUESTED];
    atomic_store_explicit(requested, get(requested) + front->drift[class], memory_order_relaxed);
    front->drift[class] = 0;
}

static int64_t parked_in_all(const wr_cache *cache, wr_class class, int number)
{
    if (cache->front_count > WR_FRONTS_SUMMED) return cache->parked[class][number];
    int64_t sum = 0;
    for (const wr_front *f = first_front(cache); f; f = f->next) sum += parked_now(f, class, number);
    return sum;
}

/* What is parked in all, by kind; where fronts are many, as they said last. */
static void sum_parked(const wr_cache *cache, int64_t sums[WEIR_STAT_KINDS][WR_FRONT_NUMBERS])
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FRONT_NUMBERS; i++) {
            const int64_t sum = parked_in_all(cache, (wr_class) class, i);
            sums[wr_stat_kind((wr_class) class)][i] += sum;
            sums[WEIR_STAT_ALL][i] += sum;
        }
}

void wr_front_add_up_locked(wr_front *front)
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++)
        for (int i = 0; i < WR_FRONT_NUMBERS; i++) {
            const int64_t now = parked_now(front, (wr_class) class, i);
            front->cache->parked[class][i] += now - front->added_up[class][i];
            front->added_up[class][i] = now;
        }
}

void wr_fronts_note_peaks(const wr_mempool *pool, weir_memory_stats *stats)
{
    int64_t parked[WEIR_STAT_KINDS][WR_FRONT_NUMBERS] = { { 0 } };
    if (stats == &pool->cache->stats || !pool->is_private) sum_parked(pool->cache, parked);
    const live_stats live = live_of(stats);
    for (int i = 0; i < LIVE_STATS; i++)
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
            weir_stat *stat = &live.of[i].stat[kind];
            const int64_t now = stat->current - parked[kind][live.of[i].number];
            if (now > stat->peak) stat->peak = now;
        }
}

/* The device's peaks are looked for; the default pool's, where they are kept apart, are noted with them. */
void wr_front_settle_locked(wr_front *front)
{
    int64_t parked[WEIR_STAT_KINDS][WR_FRONT_NUMBERS] = { { 0 } };
    wr_front_add_up_locked(front);
    sum_parked(front->cache, parked);
    const live_stats live = live_of(&front->cache->stats);
    for (int i = 0; i < WR_FRONT_NUMBERS; i++) front->floor[i] = INT64_MIN;
    for (int i = 0; i < LIVE_STATS; i++) {
        const weir_stat *stat = &live.of[i].stat[WEIR_STAT_ALL];
        const wr_front_number number = live.of[i].number;
        const int64_t room = stat->peak - (stat->current - parked[WEIR_STAT_ALL][number]);
        const int64_t own = parked_now(front, WR_SMALL, number) + parked_now(front, WR_LARGE, number);
        if (own - room > front->floor[number]) front->floor[number] = own - room;
    }
}

static void tell_peaks(wr_front *front)
{
    wr_cache *cache = front->cache;
    for (int class = WR_SMALL; class < WR_CLASSES; class ++) tell(front, (wr_class) class);
    wr_front_add_up_locked(front);
    wr_fronts_note_peaks(cache->pools, &cache->stats);
    if (cache->pools->counted) wr_fronts_note_peaks(cache->pools, &cache->pools->stats);
}

static void empty_slot(wr_front *front, wr_class class, wr_front_slot *slot)
{
    while (slot->count) {
        wr_block *block = take_out(slot);
        add(front->parked[class], -1, block->bytes, block->requested);
        wr_cache_give_parked_locked(front->cache, block);
    }
}

void wr_front_empty_locked(wr_front *front)
{
    bool any = false;
    for (int class = WR_SMALL; class < WR_CLASSES; class ++) {
        tell(front, (wr_class) class);
        any |= front->in_use[class] != 0;
        for (; front->in_use[class]; front->in_use[class] &= front->in_use[class] - 1)
            empty_slot(front, (wr_class) class, &front->slots[class][__builtin_ctzll(front->in_use[class])]);
    }
    if (any) wr_front_add_up_locked(front);
}

wr_front_hold wr_front_lock(wr_cache *cache, wr_front *front)
{
    wr_front_hold h = { .front = front };
    if (front) h.hold = wr_bias_acquire(&front->lock);
    wr_lock_acquire(&cache->lock);
    if (front) wr_front_add_up_locked(front);
    return h;
}

void wr_front_unlock(wr_cache *cache, const wr_front_hold *h)
{
    if (h->front) wr_front_settle_locked(h->front);
    wr_lock_release(&cache->lock);
    if (h->front) wr_bias_release(&h->front->lock, h->hold);
}

/* ---- all of a cache ----------------------------------------------------------------------------------------------- */

void wr_fronts_empty(wr_cache *cache)
{
    for (wr_front *front = first_front(cache); front; front = front->next) {
        const wr_bias_hold hold = wr_bias_visit(&front->lock);
        wr_lock_acquire(&cache->lock);
        tell_peaks(front);
        wr_front_empty_locked(front);
        wr_front_settle_locked(front);
        wr_lock_release(&cache->lock);
        wr_bias_release(&front->lock, hold);
    }
}

/* Counted under the cache's lock: a front that is made later is made by somebody who sees it. */
void wr_fronts_close(wr_cache *cache)
{
    wr_lock_acquire(&cache->lock);
    atomic_fetch_add(&cache->fronts_closed, 1);
    wr_lock_release(&cache->lock);
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
        wr_meta_free(front);
        front = next;
    }
}
