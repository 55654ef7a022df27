#include "pool/side.h"

#include "base/size.h"
#include "pool/bin.h"
#include "pool/post.h"

/* A front is shared when, for a while, more than one request in 33 is from another thread than the one before. */
enum { TURN = 32, TURNS_MOST = 1024 };

/* What is parked in vain is memory that other threads miss, and costs them time. So a side with fewer hits than misses is
 * not used for a while, each time for longer. */
enum { PERIOD = 64, REST_FIRST = 4096, REST_MOST = 1 << 20 };

/* From now on the main front's blocks are claimed before they are parked. */
static void share(wr_front *main)
{
    wr_cache *cache = main->cache;
    wr_front_lock(cache, main);
    if (main->listed) atomic_store_explicit(&main->shared, true, memory_order_relaxed);
    wr_front_meet_locked(main);
    wr_front_unlock(cache, main);
}

/* Threads count at the same time, and one may overwrite what another has counted. */
bool wr_side_is_wanted(wr_front *main)
{
    if (WR_LIKELY(wr_front_is_shared(main))) return true;
    const uint32_t turns = atomic_load_explicit(&main->turns, memory_order_relaxed);
    if (wr_bias_is_anothers(&main->lock))
        atomic_store_explicit(&main->turns, turns + TURN, memory_order_relaxed);
    else if (turns > 0)
        atomic_store_explicit(&main->turns, turns - 1, memory_order_relaxed);
    if (turns < TURNS_MOST || !wr_bias_prepare_thread()) return false;
    share(main);
    return wr_front_is_shared(main);
}

/* Opens a side that was closed, if that is over. */
static void meet_locked(wr_front *side)
{
    if (side->main->listed) {
        wr_front_begin_beside_locked(side);
        wr_front_list_locked(side);
    }
    wr_front_meet_locked(side);
}

static wr_front *find_locked(wr_front *main)
{
    wr_front *side = NULL;
    if (!main->listed || wr_front_beside_locked(main, &side) != WEIR_OK) return NULL;
    side->taken = true;
    return side;
}

static void meet(wr_front *side)
{
    wr_bias_acquire(&side->lock, WR_BIAS_OUTER);
    wr_cache_lock(side->cache);
    meet_locked(side);
    wr_front_unlock(side->cache, side);
}

wr_front *wr_side_take(wr_front *main)
{
    wr_cache *cache = main->cache;
    if (!wr_bias_prepare_thread()) return NULL;
    wr_cache_lock(cache);
    wr_front *side = find_locked(main);
    wr_cache_unlock(cache);
    if (!side) return NULL;
    wr_bias_adopt(&side->lock);
    meet(side);
    side->rest = side->misses = 0;
    side->rest_next = REST_FIRST;
    return side;
}

void wr_side_leave(wr_front *side)
{
    wr_cache *cache = side->cache;
    wr_bias_visit(&side->lock);
    wr_cache_lock(cache);
    wr_front_empty_locked(side);
    side->taken = false;
    wr_front_unlock(cache, side);
}

bool wr_side_park(wr_front *side, wr_block *block, const void *pointer)
{
    const wr_front *main = side->main;
    if (side->closed || !wr_front_good(main, block, pointer)) return false;
    const wr_front_slot *slot = wr_front_slot_of(wr_front_part_for(side, block->bytes), block->bytes);
    if (slot->bytes != block->bytes || slot->room == 0) return false;
    if (!wr_front_claim(main, block, pointer, WR_MARK_PARKED)) return false;
    if (WR_LIKELY(wr_front_place_locked(side, block))) return true;
    (void)wr_block_change_mark(block, WR_MARK_PARKED, WR_MARK_PARKABLE); /* it was another block until then */
    return false;
}

/* The thread will free a block of that size. */
static void expect(wr_front *side, size_t bytes)
{
    const wr_front_slot *slot = wr_front_slot_of(wr_front_part_for(side, bytes), bytes);
    if (slot->bytes == bytes) return;
    if (wr_front_refuse(side, bytes)) {
        wr_cache_lock(side->cache);
        wr_front_empty_slot_locked(side, bytes);
        wr_cache_unlock(side->cache);
    }
    if (!slot->first) wr_front_renew_slot(side, bytes);
}

static int64_t hits_of(const wr_front_part *part)
{
    int64_t hits = part->hits[WR_FLOW_BLOCKS];
    for (unsigned i = 0; i < WR_FRONT_SLOTS; i++) hits += (int64_t)part->slots[i].hits;
    return hits;
}

static bool is_of_little_use(wr_front *side)
{
    if (++side->misses < PERIOD) return false;
    const int64_t hits = hits_of(&side->parts[WR_SMALL]) + hits_of(&side->parts[WR_LARGE]);
    const int64_t before = hits < side->hits_then ? 0 : side->hits_then; /* the cache was told meanwhile */
    side->misses = 0;
    side->hits_then = hits;
    if (hits - before < PERIOD) return true;
    side->rest_next = REST_FIRST;
    return false;
}

static void set_to_rest(wr_front *side)
{
    wr_cache_lock(side->cache);
    wr_front_empty_locked(side);
    side->closed = true;
    wr_front_unlist_locked(side);
    wr_cache_unlock(side->cache);
    side->rest = side->rest_next;
    side->rest_next = side->rest < REST_MOST ? 2 * side->rest : side->rest;
}

bool wr_side_serves(wr_front *side)
{
    if (WR_UNLIKELY(side->rest)) side->rest--;
    if (WR_UNLIKELY(side->rest)) return false; /* after that, its next miss opens it */
    const wr_front *main = side->main;
    if (WR_UNLIKELY(!wr_front_is_of(side, atomic_load_explicit(&main->name, memory_order_relaxed)))) meet(side);
    return true;
}

static void prepare(wr_front *side, size_t bytes)
{
    const bool closed = side->closed && atomic_load_explicit(&side->cache->fronts_closed, memory_order_relaxed) == 0;
    const bool empties = wr_front_class(bytes) == WR_LARGE && wr_front_any(side);
    if (closed || empties) {
        wr_cache_lock(side->cache);
        if (closed) meet_locked(side);
        if (empties) wr_front_empty_for_locked(side, WR_LARGE);
        wr_cache_unlock(side->cache);
    }
    expect(side, bytes);
}

void wr_side_miss(wr_front *side, size_t bytes)
{
    if (side->rest) return;
    if (is_of_little_use(side))
        set_to_rest(side);
    else
        prepare(side, bytes);
}

/* With less, sides that are emptied whenever memory is added would never have what their threads ask for. */
static const size_t KEPT = 64 * WR_MIB;

bool wr_sides_give_back(const wr_request *request)
{
    const wr_front *main = wr_front_find(request->stream, request->pool_name);
    const size_t least = request->fit.block_bytes > KEPT ? request->fit.block_bytes : KEPT;
    return main && wr_front_is_shared(main) && wr_fronts_empty_beside(main, least);
}
