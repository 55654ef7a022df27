#include "pool/front/side.h"

#include "base/size.h"
#include "pool/chunk/stitch_bounds.h"
#include "pool/count.h"
#include "pool/front/grade.h"
#include "pool/front/hit.h"

/* A front is shared when, for a while, more than one request in 33 is from another thread than the one before, or keeps
 * another thread waiting. */
enum { TURN = 32, TURNS_MOST = 1024 };

/* What is parked in vain is memory that other threads miss, and costs them time. So a side with fewer hits than misses,
 * in a period of so many misses, is not used for a while, each time for longer, unless it becomes graded. */
enum { PERIOD = 64, GRADED_PERIOD = 1024, REST_FIRST = 4096, REST_MOST = 1 << 20 };

/* Requests that grades serve, after which it is seen whether sizes come again by now: a period without grades takes a
 * few milliseconds. */
enum { SERVED_MOST = 1 << 22 };

/* A miss takes hundreds of times as long as a hit while other threads use the main front. A side with fewer than so
 * many hits per miss then, in so many periods in a row, becomes graded: it asks the main front for one of so few sizes
 * that what its thread frees serves the next requests. With fewer periods, threads with some dozens of sizes would come
 * to that before their sides have filled. */
enum { ENOUGH = 4, DOUBTS_MOST = 3 };

/* What a graded side parks at most. */
static const int64_t GRADED_BYTES = 16 * WR_MIB;

/* From now on the main front's blocks are claimed before they are parked. */
static void share(wr_front *main)
{
    wr_cache *cache = main->cache;
    wr_front_lock(cache, main);
    if (main->listed) atomic_store_explicit(&main->shared, true, memory_order_relaxed);
    wr_front_meet_locked(main);
    wr_front_unlock(cache, main);
}

/* A lock that is biased to another thread was that one's many times in a row. */
static uint32_t count_turn(const wr_front *main, uint32_t turns)
{
    const bool others = wr_bias_is_contested(&main->lock);
    const uint32_t fewer = others ? TURN : 1;
    if (others && !wr_bias_is_owned(&main->lock)) return turns + TURN;
    return turns > fewer ? turns - fewer : 0;
}

/* Threads count at the same time, and one may overwrite what another has counted. */
bool wr_side_is_wanted(wr_front *main)
{
    if (WR_LIKELY(wr_front_is_shared(main))) return true;
    const uint32_t before = atomic_load_explicit(&main->turns, memory_order_relaxed);
    const uint32_t turns = count_turn(main, before);
    if (turns != before) atomic_store_explicit(&main->turns, turns, memory_order_relaxed);
    if (turns < TURNS_MOST || !wr_bias_prepare_thread()) return false;
    share(main);
    return wr_front_is_shared(main);
}

/* Not while its pool is being taken apart. */
static bool is_there_locked(const wr_front *main)
{
    return main->listed && wr_front_is_of(main, wr_mempool_name_of(main->pool));
}

/* Opens a side that was closed, if that is over. */
static void meet_locked(wr_front *side)
{
    if (is_there_locked(side->main)) {
        wr_front_begin_beside_locked(side);
        wr_front_list_locked(side);
    }
    wr_front_meet_locked(side);
}

static wr_front *find_locked(wr_front *main)
{
    wr_front *side = NULL;
    if (!is_there_locked(main) || wr_front_take_beside_locked(main, &side) != WEIR_OK) return NULL;
    return side;
}

static void meet(wr_front *side)
{
    wr_bias_acquire(&side->lock, WR_BIAS_OUTER);
    wr_cache_lock(side->cache);
    meet_locked(side);
    wr_front_unlock(side->cache, side);
}

static uint64_t hits_in(const wr_front_part *part)
{
    uint64_t hits = part->hits[WR_FLOW_BLOCKS];
    for (unsigned i = 0; i < WR_FRONT_SLOTS; i++) hits += part->slots[i].hits;
    return hits;
}

static uint64_t hits_of(const wr_front *side)
{
    return side->told + hits_in(&side->parts[WR_SMALL]) + hits_in(&side->parts[WR_LARGE]);
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
    side->rest = side->misses = side->served = side->doubts = 0;
    side->graded = false;
    side->rest_next = REST_FIRST;
    side->hits_then = hits_of(side);
    return side;
}

/* Both locks are held. */
static void retire_locked(wr_front *side)
{
    wr_front_empty_locked(side);
    wr_front_unsettle(side);
    side->closed = true;
    wr_front_unlist_locked(side);
}

static void share_no_more(wr_front *main)
{
    wr_front_lock(main->cache, main);
    if (!wr_front_beside(main)) {
        atomic_store_explicit(&main->shared, false, memory_order_relaxed);
        atomic_store_explicit(&main->turns, 0, memory_order_relaxed);
    }
    wr_front_meet_locked(main);
    wr_front_unlock(main->cache, main);
}

void wr_side_leave(wr_front *side)
{
    wr_cache *cache = side->cache;
    wr_bias_take_away(&side->lock);
    wr_cache_lock(cache);
    retire_locked(side);
    wr_front_leave_beside_locked(side);
    const bool last = !wr_front_beside(side->main);
    wr_front_unlock(cache, side);
    if (last) share_no_more(side->main);
}

/* For a block of that size. */
static bool has_room(wr_front *side, size_t bytes)
{
    const wr_front_slot *slot = wr_front_slot_of(wr_front_part_for(side, bytes), bytes);
    if (slot->bytes != bytes || slot->room == 0) return false;
    return !side->graded || wr_front_parked_in_all(side, WR_FLOW_BYTES) + (int64_t)bytes <= GRADED_BYTES;
}

bool wr_side_park(wr_front *side, wr_block *block, const void *pointer)
{
    const wr_front *main = side->main;
    if (side->closed || !wr_front_good(main, block, pointer)) return false;
    if (!wr_front_claim(main, block, pointer)) return false;
    if (WR_LIKELY(has_room(side, block->bytes) && wr_front_place_locked(side, block))) return true;
    wr_block_mark_as(block, WR_MARK_PARKABLE);
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

/* Its next miss opens it again. */
static void retire(wr_front *side)
{
    wr_cache_lock(side->cache);
    retire_locked(side);
    wr_cache_unlock(side->cache);
}

static void set_to_rest(wr_front *side)
{
    side->rest = side->rest_next;
    side->rest_next = side->rest < REST_MOST ? 2 * side->rest : side->rest;
}

/* What is in use may grow by 42 % through grades; where that is all that is left, requests that would be served
 * without them might be refused. */
static size_t look_at_memory(wr_front *main)
{
    wr_cache *cache = main->cache;
    wr_cache_lock(cache);
    const weir_memory_stats *stats = wr_stats_locked(cache);
    const uint64_t in_use = (uint64_t)stats->active_bytes[WEIR_STAT_SMALL].current;
    const size_t bytes = (size_t)stats->reserved_bytes[WEIR_STAT_ALL].current;
    atomic_store_explicit(&main->tight, wr_stitch_left(main->pool) < in_use, memory_order_relaxed);
    wr_cache_unlock(cache);
    return bytes;
}

static bool is_tight(const wr_front *side)
{
    return atomic_load_explicit(&side->main->tight, memory_order_relaxed);
}

/* Of a side that others keep from the main front. */
static bool deserves_grades(wr_front *side, uint64_t hits)
{
    if (side->graded) {
        if (hits < side->misses || side->served >= SERVED_MOST) return false;
    } else {
        side->doubts = hits < (uint64_t)ENOUGH * side->misses ? side->doubts + 1 : 0;
        if (side->doubts < DOUBTS_MOST) return false;
    }
    (void)look_at_memory(side->main);
    return !is_tight(side);
}

/* Grades cost memory. While one thread has the main front nearly for itself, requests are fast there without them. */
static void end_period(wr_front *side)
{
    const uint64_t all = hits_of(side), hits = all - side->hits_then;
    const bool useful = hits >= side->misses || side->misses < PERIOD; /* which was cut short, and says nothing */
    const bool alone = wr_bias_is_owned(&side->main->lock);
    const bool grades = !alone && deserves_grades(side, hits);
    const bool doubts = !alone && !side->graded && side->doubts < DOUBTS_MOST;
    side->misses = 0;
    side->hits_then = all;
    if (useful && !side->graded) side->rest_next = REST_FIRST;
    if (grades == side->graded && (useful || doubts)) return;
    retire(side);
    if (!useful && !grades) set_to_rest(side);
    if (grades) side->doubts = 0;
    side->graded = grades;
    side->served = 0;
}

bool wr_side_serves(wr_front *side)
{
    if (WR_UNLIKELY(side->rest)) side->rest--;
    if (WR_UNLIKELY(side->rest)) return false; /* after that, its next miss opens it */
    const wr_front *main = side->main;
    if (WR_UNLIKELY(!wr_front_is_of(side, atomic_load_explicit(&main->name, memory_order_relaxed)))) meet(side);
    return true;
}

/* While all fronts are closed, nothing can be parked here. */
static bool is_shut(const wr_front *side)
{
    return side->closed && atomic_load_explicit(&side->cache->fronts_closed, memory_order_relaxed) != 0;
}

/* A large request may be served best by what is parked here, coalesced. */
static void prepare(wr_front *side, size_t bytes)
{
    const bool empties =
        wr_front_class(bytes) == WR_LARGE && wr_front_parked_in_all(side, WR_FLOW_BYTES) >= (int64_t)bytes;
    if (side->closed || empties) {
        wr_cache_lock(side->cache);
        if (side->closed) meet_locked(side);
        if (empties) wr_front_empty_for_locked(side, WR_LARGE);
        wr_cache_unlock(side->cache);
    }
    expect(side, bytes);
}

/* Of the next grades, a parked block may be; so fewer have to be parked for nearly all requests to find one. */
enum { GRADES_MORE = 2 };

/* 0: nothing is parked that will do. */
static size_t find_parked(wr_front *side, unsigned grade)
{
    for (unsigned last = grade + GRADES_MORE; grade < WR_GRADES && grade <= last; grade++)
        if (wr_front_has(side, wr_grade_bytes(grade))) return wr_grade_bytes(grade);
    return 0;
}

static bool is_period_over(const wr_front *side)
{
    if (!side->graded) return side->misses >= PERIOD;
    return side->misses >= GRADED_PERIOD || side->served >= SERVED_MOST || is_tight(side);
}

/* A parked block of the next grades; NULL: none. *asked: the size of block to ask the main front for then; 0: as the
 * request says. */
static void *look_here(wr_front *side, size_t bytes, size_t requested, size_t *asked)
{
    *asked = 0;
    if (side->rest || is_shut(side)) return NULL;
    const unsigned grade = side->graded ? wr_grade_of(bytes) : WR_GRADES;
    const size_t parked = find_parked(side, grade), graded = wr_grade_bytes(grade);
    if (parked && side->served++ < SERVED_MOST) return wr_front_take_locked(side, parked, requested);
    if (graded || !side->graded) side->misses++;
    if (is_period_over(side)) {
        end_period(side);
        return NULL;
    }
    prepare(side, graded ? graded : bytes);
    if (!side->closed) *asked = graded; /* otherwise a plan may have to be asked */
    return NULL;
}

/* Its main front's lock is taken, so the side's is not held. */
static WR_NOINLINE void *take_graded(const wr_front *side, wr_mempool_name name, uint64_t stream_id, size_t bytes,
                                     size_t requested)
{
    const wr_request request = { .pool = side->pool,
                                 .pool_name = name,
                                 .stream = side->stream,
                                 .stream_id = stream_id,
                                 .requested = requested,
                                 .fit = { bytes, wr_round_up(bytes, WR_SEGMENT_UNIT), WR_SMALL } };
    void *out = NULL;
    return wr_cache_take(side->cache, &request, &out) == WEIR_OK ? out : NULL;
}

bool wr_side_miss(wr_front *side, size_t bytes, size_t requested, wr_bias_thread *self, void **out)
{
    size_t asked;
    void *found = look_here(side, bytes, requested, &asked);
    /* Both may be gone later. */
    const wr_mempool_name name = atomic_load_explicit(&side->name, memory_order_relaxed);
    const uint64_t now = atomic_load_explicit(&side->stream->id, memory_order_relaxed);
    const uint64_t stream_id = side->asked_for ? side->asked_for : now;
    side->asked_for = 0;
    wr_bias_release_owned(self);
    if (asked) found = take_graded(side, name, stream_id, asked, requested);
    if (found) *out = found;
    return found != NULL;
}

/* Memory has to grow by this part before sides are emptied again: while it does not, they would lack again and again
 * what their threads ask for. */
enum { GROWN_SHARE = 8 };

bool wr_sides_give_back(const wr_request *request)
{
    wr_front *main = wr_front_find(request->stream, request->pool_name);
    if (!main || !wr_front_is_shared(main)) return false;
    const size_t now = look_at_memory(main), then = atomic_load_explicit(&main->emptied_at, memory_order_relaxed);
    if (now >= then && now < then + then / GROWN_SHARE) return false;
    if (!wr_fronts_empty_beside(main, request->fit.block_bytes)) return false;
    atomic_store_explicit(&main->emptied_at, now, memory_order_relaxed);
    return true;
}
