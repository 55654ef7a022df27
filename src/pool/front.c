#include "pool/front.h"

#include "base/meta.h"
#include "pool/count.h"

weir_status wr_front_make_locked(wr_cache *cache, wr_bin *bin)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_front), "stream's parked blocks", &made));
    wr_front *front = made;
    wr_bias_init(&front->lock, WR_RANK_FRONT, "front");
    front->class = bin->class;
    front->cache = cache;
    front->least_blocks = front->least_bytes = front->least_requested = UINT64_MAX;
    front->next = cache->fronts;
    atomic_store_explicit(&cache->fronts, front, memory_order_release);
    bin->front = front;
    atomic_store_explicit(&bin->stream->fronts[bin->class], front, memory_order_release);
    return WEIR_OK;
}

static wr_front_slot *slot_of(wr_front *front, size_t block_bytes)
{
    const uint64_t mixed = (uint64_t)(block_bytes >> 9) * UINT64_C(0x9E3779B97F4A7C15);
    return &front->slots[mixed >> 58];
}

/* One writer at a time: no atomic read-modify-write. */
static void add(atomic_uint_fast64_t *number, uint64_t amount)
{
    atomic_store_explicit(number, atomic_load_explicit(number, memory_order_relaxed) + amount, memory_order_relaxed);
}

static void count_parked(wr_front *front, const wr_block *block, uint64_t sign)
{
    add(&front->blocks, sign);
    add(&front->bytes, sign * block->bytes);
    add(&front->requested, sign * block->requested);
}

static wr_block *take_out(wr_front *front, wr_front_slot *slot)
{
    wr_block *block = slot->first;
    slot->first = block->next_parked;
    slot->count--;
    atomic_store_explicit(&block->parked, false, memory_order_relaxed);
    count_parked(front, block, (uint64_t)-1);
    return block;
}

static void keep_least(uint64_t *least, atomic_uint_fast64_t *number)
{
    const uint64_t now = atomic_load_explicit(number, memory_order_relaxed);
    if (now < *least) *least = now;
}

void *wr_front_take_locked(wr_front *front, size_t block_bytes, size_t requested)
{
    wr_front_slot *slot = slot_of(front, block_bytes);
    if (WR_UNLIKELY(slot->count == 0 || slot->bytes != block_bytes)) return NULL;
    wr_block *block = take_out(front, slot);
    front->drift += (int64_t)requested - (int64_t)block->requested;
    block->requested = requested;
    keep_least(&front->least_blocks, &front->blocks);
    keep_least(&front->least_bytes, &front->bytes);
    keep_least(&front->least_requested, &front->requested);
    front->hits++;
    front->hit_bytes += block_bytes;
    front->hit_requested += requested;
    return block->base;
}

/* Whether the pointer is one that the program may free here now; when in doubt, not. */
static bool can_park(const wr_front *front, const wr_segment *segment, const wr_block *block, const void *pointer)
{
    return block && block->base == pointer && block->state == WR_BLOCK_LIVE && !block->uses &&
           !atomic_load_explicit(&block->parked, memory_order_relaxed) &&
           atomic_load_explicit(&segment->front, memory_order_relaxed) == front &&
           atomic_load_explicit(&front->cache->fronts_closed, memory_order_relaxed) == 0;
}

bool wr_front_park_locked(wr_front *front, const wr_segment *segment, const void *pointer)
{
    wr_block *block = wr_segment_block_from(segment, pointer);
    if (WR_UNLIKELY(!can_park(front, segment, block, pointer))) return false;
    wr_front_slot *slot = slot_of(front, block->bytes);
    if (slot->count == 0) slot->bytes = block->bytes;
    if (slot->bytes != block->bytes || slot->count == WR_FRONT_DEPTH) return false;
    block->next_parked = slot->first;
    slot->first = block;
    slot->count++;
    atomic_store_explicit(&block->parked, true, memory_order_relaxed);
    count_parked(front, block, 1);
    return true;
}

/* ---- into the cache ------------------------------------------------------------------------------------------------ */

static void tell_hits(weir_memory_stats *stats, int kind, const wr_front *front)
{
    const int of[] = { WEIR_STAT_ALL, kind };
    stats->hits += front->hits;
    for (int i = 0; i < 2; i++) {
        weir_stat *counts[] = { &stats->allocation[of[i]], &stats->active[of[i]] };
        weir_stat *bytes[] = { &stats->allocated_bytes[of[i]], &stats->active_bytes[of[i]] };
        for (int j = 0; j < 2; j++) {
            counts[j]->added += (int64_t)front->hits;
            counts[j]->removed += (int64_t)front->hits;
            bytes[j]->added += (int64_t)front->hit_bytes;
            bytes[j]->removed += (int64_t)front->hit_bytes;
        }
        weir_stat *requested = &stats->requested_bytes[of[i]];
        requested->added += (int64_t)front->hit_requested;
        requested->removed += (int64_t)front->hit_requested - front->drift;
        requested->current += front->drift;
    }
}

static wr_front *first_front(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->fronts, memory_order_acquire);
}

/* By class: blocks, bytes, requested bytes. */
typedef struct parked {
    uint64_t of[WR_CLASSES][3];
} parked;

static void note_peak(weir_memory_stats *stats, int kind, const uint64_t less[3])
{
    const struct {
        weir_stat *stat;
        uint64_t less;
    } live[] = { { &stats->allocation[kind], less[0] },
                 { &stats->allocated_bytes[kind], less[1] },
                 { &stats->active[kind], less[0] },
                 { &stats->active_bytes[kind], less[1] },
                 { &stats->requested_bytes[kind], less[2] } };
    for (size_t i = 0; i < sizeof live / sizeof live[0]; i++) {
        const int64_t now = live[i].stat->current - (int64_t)live[i].less;
        if (now > live[i].stat->peak) live[i].stat->peak = now;
    }
}

/* One front that served since is taken at its least, the others as they are now. */
void wr_fronts_note_peaks(const wr_mempool *pool, const wr_front *told, weir_memory_stats *stats)
{
    parked p = { 0 };
    const bool has_fronts = stats == &pool->cache->stats || !pool->is_private;
    for (const wr_front *f = has_fronts ? first_front(pool->cache) : NULL; f; f = f->next) {
        uint64_t *of = p.of[f->class];
        of[0] += f == told ? f->least_blocks : atomic_load_explicit(&f->blocks, memory_order_relaxed);
        of[1] += f == told ? f->least_bytes : atomic_load_explicit(&f->bytes, memory_order_relaxed);
        of[2] += f == told ? f->least_requested : atomic_load_explicit(&f->requested, memory_order_relaxed);
    }
    uint64_t all[3];
    for (int i = 0; i < 3; i++) all[i] = p.of[WR_SMALL][i] + p.of[WR_LARGE][i];
    note_peak(stats, WEIR_STAT_ALL, all);
    note_peak(stats, WEIR_STAT_SMALL, p.of[WR_SMALL]);
    note_peak(stats, WEIR_STAT_LARGE, p.of[WR_LARGE]);
}

static void tell(wr_front *front, weir_memory_stats *stats)
{
    tell_hits(stats, front->class == WR_SMALL ? WEIR_STAT_SMALL : WEIR_STAT_LARGE, front);
    wr_fronts_note_peaks(front->cache->pools, front, stats);
}

void wr_front_empty_locked(wr_front *front)
{
    wr_cache *cache = front->cache;
    if (front->hits) {
        tell(front, &cache->stats);
        if (cache->pools->counted) tell(front, &cache->pools->stats);
        front->hits = front->hit_bytes = front->hit_requested = 0;
        front->drift = 0;
        front->least_blocks = front->least_bytes = front->least_requested = UINT64_MAX;
    }
    if (atomic_load_explicit(&front->blocks, memory_order_relaxed) == 0) return;
    for (wr_front_slot *slot = front->slots; slot < front->slots + WR_FRONT_SLOTS; slot++)
        while (slot->count) wr_cache_give_locked(cache, take_out(front, slot));
}

void wr_fronts_empty(wr_cache *cache)
{
    for (wr_front *front = first_front(cache); front; front = front->next) {
        const wr_bias_hold hold = wr_bias_visit(&front->lock);
        wr_lock_acquire(&cache->lock);
        wr_front_empty_locked(front);
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
