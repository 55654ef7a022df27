#include "pool/chunk/stitch.h"

#include "base/log.h"
#include "base/meta.h"
#include "pool/address.h"
#include "pool/bin.h"
#include "pool/chunk/stitch_bounds.h"
#include "pool/chunk/stitch_plan.h"
#include "pool/chunk/stitch_turn.h"
#include "pool/count.h"
#include "pool/source.h"
#include "pool/starts.h"

/* Small blocks, and private pools, which may be many, get only such a share of the addresses of a stream's first
 * region. */
enum { SMALL_ADDRESSES_SHARE = 8, PRIVATE_ADDRESSES_SHARE = 16 };

/* What a private pool's region has to grow into: so much, and so many times what its bin has in other regions. Where
 * addresses run out, other regions have the latter, too. */
#define PRIVATE_MORE ((size_t)128 << 20)
enum { GROWING_TIMES = 8 };

/* Of the addresses that all regions together may still get, one gets such a share to grow into at most. */
enum { MORE_SHARE = 32 };
/* Where all regions may not have WR_REGIONS_TIMES a device's addresses, the first has one of so many parts at most. */
enum { LEAST_REGIONS = 8 };

/* After so many plans that failed for streams with work queued, each without those found busy before, others are not
 * tried. */
enum { BUSY_MOST = 4 };

/* From this much new memory on, the driver is first asked whether there is so much: some ten chunks, or fifty. It is
 * asked what there is after so many growths, too: others take memory, and give it back. */
#define ASKED_FROM ((size_t)1 << 30)
enum { ASKED_GROWTHS = 16 };

typedef struct attempt {
    wr_stitch_plan plan;
    wr_stitch_effort effort;
    wr_block *aside;       /* block records, set aside for the step after the driver calls */
    bool hold;             /* hide the region's free tail from other threads during those calls */
    wr_block *held;        /* that tail; NULL: none */
    bool done;             /* nothing is left to do */
    bool busy;             /* a stream whose memory was to be used has work queued */
    uint64_t holds, room;  /* what the cache held before; what the device had for it then, 0: not asked */
    uint64_t began, ended; /* the mapping's start and end, by the back end's clock */
} attempt;

/* ---- first, everything that could fail --------------------------------------------------------------------------- */

/* The first stream's first region has addresses for all of the device, unless that is very large, each later one's a
 * bit less. */
static uint64_t first_addresses(const wr_cache *cache)
{
    const uint64_t most = wr_regions_first(cache), times = most / cache->chunks.region_bytes;
    const uint64_t left = most > cache->chunks.addresses ? most - cache->chunks.addresses : 0;
    return left / (times < LEAST_REGIONS ? LEAST_REGIONS : times);
}

/* So much to grow into, or what is left for that: each region gets a bit less as all together come near their bound, so
 * that there are addresses for as many streams and pools as the memory is enough for. */
static size_t more_addresses(const wr_cache *cache, size_t wanted)
{
    const uint64_t most = wr_regions_most(cache);
    const uint64_t left = most > cache->chunks.addresses ? (most - cache->chunks.addresses) / MORE_SHARE : 0;
    return left < wanted ? (size_t)left : wanted;
}

/* Addresses for what the request needs, and for growing. */
static size_t least_region_bytes(const wr_stitch_plan *p)
{
    const size_t twice = 2 * p->request->fit.block_bytes;
    const size_t times = GROWING_TIMES * p->bin->part_bytes;
    if (p->range) return p->range->bytes;
    if (p->request->pool->is_private)
        return twice + more_addresses(p->cache, wr_region_left(p->cache) + PRIVATE_MORE) + times;
    const size_t more = more_addresses(p->cache, WR_REGION_MORE);
    return twice + (more < WR_REGION_MORE && more < times ? times : more);
}

/* The bin's first region gets more. What is mapped now may be more than the request: free chunks go whole. */
static size_t region_bytes(const wr_stitch_plan *p)
{
    const size_t small = p->bin->class == WR_SMALL ? SMALL_ADDRESSES_SHARE : 1;
    const size_t share = small * (p->request->pool->is_private ? PRIVATE_ADDRESSES_SHARE : 1);
    const size_t least = least_region_bytes(p), first = first_addresses(p->cache) / share;
    const size_t bytes = least > p->bytes ? least : p->bytes;
    const size_t units = bytes / WR_SEGMENT_UNIT + 2; /* rounded up, and always an absent end */
    const bool more = !p->bin->segments && first > units * WR_SEGMENT_UNIT;
    return (more ? first / WR_SEGMENT_UNIT : units) * WR_SEGMENT_UNIT;
}

/* The region's records; its addresses come later. */
static weir_status prepare_region(wr_stitch_plan *p)
{
    wr_cache *cache = p->cache;
    wr_segment *segment = NULL;
    void *made = NULL;
    WR_TRY(wr_record_segment(cache, &segment));
    segment->base = NULL;
    segment->bytes = region_bytes(p);
    segment->first = NULL;
    weir_status status = wr_record_pages(cache, segment->bytes, &segment->pages);
    if (status == WEIR_OK) status = wr_record_block(cache, &segment->first);
    if (status == WEIR_OK) status = wr_meta_alloc(sizeof(wr_region), "region", &made);
    segment->region = made;
    if (status != WEIR_OK) {
        wr_region_done(cache, segment);
        return status;
    }
    p->request->pool->segments++;
    p->region = segment;
    p->fresh = true;
    return WEIR_OK;
}

/* Two block records for each range that is taken now, and two for each that is put back or given after the driver
 * calls. */
static weir_status spare_records(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    const size_t later = 2 * ((size_t)p->count + 2);
    size_t now = 2;
    for (size_t i = 0; i < p->count; i++) now += p->steps[i].origin ? 2 * p->steps[i].slot->chunk->parts : 0;
    WR_TRY(wr_records_set_aside(p->cache, later, &a->aside));
    return wr_records_spare_blocks(p->cache, now);
}

static weir_status prepare(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    WR_TRY(wr_cache_check_limit_locked(p->cache, p->created));
    WR_TRY(wr_cache_check_cap_locked(p->request->pool, p->created));
    if (p->forced && p->created == p->bytes && p->created >= p->refused)
        return WEIR_ERR_OUT_OF_MEMORY; /* why there is nothing new was reported before */
    if (!p->region) WR_TRY(prepare_region(p));
    WR_TRY(wr_region_reserve_slots(p->region->region, p->count));
    return spare_records(a);
}

/* ---- hiding memory, and putting it back -------------------------------------------------------------------------- */

static bool is_end(const wr_cache *cache, const wr_stitch_step *s)
{
    return s->origin && !wr_chunk_is_free(cache, s->slot->chunk);
}

/* Memory to be mapped elsewhere is nobody's until then. */
static void take_locked(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    if (!p->range) p->start = p->region->region->end;
    if (p->tail && a->hold) wr_block_hold_locked(a->held = wr_region_tail(p->region));
    for (size_t i = 0; i < p->count; i++) {
        wr_stitch_step *s = &p->steps[i];
        if (is_end(p->cache, s))
            wr_slot_leave_locked(p->cache, s->origin, s->slot->from, s->slot->to);
        else if (s->origin)
            s->origin = wr_chunk_leave_locked(p->cache, s->slot->chunk);
    }
    p->cache->growing += p->created;
    p->request->pool->growing += p->created;
}

static void put_back_locked(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    wr_records_put_back(p->cache, &a->aside);
    if (a->held) wr_block_let_go_locked(p->cache, a->held);
    for (size_t i = p->count; i-- > 0;) {
        const wr_stitch_step *s = &p->steps[i];
        const size_t from = p->reuses ? 0 : s->slot->from, to = p->reuses ? s->slot->chunk->bytes : s->slot->to;
        if (s->origin) wr_slot_enter_locked(p->cache, s->origin, from, to);
    }
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

/* Another stream's memory can be used once its work is over, or waited for. */
static weir_status own_work(attempt *a, wr_stream *from)
{
    wr_event_pool *events = a->plan.cache->events;
    wr_stream *to = a->plan.bin->stream;
    bool chained = true;
    weir_status status = a->effort == WR_STITCH_CHAINED ? wr_event_chain_uncaptured(events, from->native, to, &chained)
                                                        : wr_event_ask_stream(events, from->native, false);
    const bool busy = !chained || status == WEIR_ERR_NOT_READY;
    if (!busy) return status;
    from->found_busy = a->plan.serial;
    a->busy = true;
    return WEIR_OK;
}

static wr_stream *stream_of(const wr_stitch_plan *p, size_t step)
{
    const wr_slot *origin = p->steps[step].origin;
    return (origin ? origin->region->bin : p->bin)->stream;
}

static weir_status own_all_work(attempt *a)
{
    const wr_stitch_plan *p = &a->plan;
    for (size_t i = 0; i < p->count; i++) {
        wr_stream *from = stream_of(p, i);
        bool asked = from == p->bin->stream;
        for (size_t j = 0; j < i && !asked; j++) asked = stream_of(p, j) == from;
        if (!asked) WR_TRY(own_work(a, from));
    }
    return a->busy ? WEIR_ERR_BUSY : WEIR_OK;
}

static weir_status map_all(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    const weir_backend *backend = p->cache->backend;
    const int device = p->cache->device;
    size_t at = p->start;
    for (size_t i = 0; i < p->count; i++) {
        wr_stitch_step *s = &p->steps[i];
        wr_chunk *chunk = s->slot->chunk;
        s->slot->region = p->region;
        s->slot->at = at;
        at += chunk->bytes;
        if (!s->origin) {
            WR_TRY(wr_driver(backend, vm_create, device, chunk->bytes, &chunk->handle));
            s->made = true;
        }
        WR_TRY(wr_driver(backend, vm_map, device, p->region->base + s->slot->at, chunk->bytes, chunk->handle));
        s->mapped = true;
    }
    wr_range range = { .base = p->region->base + p->start, .bytes = p->bytes };
    return wr_source_reach(p->cache, &range);
}

/* Reserves addresses to grow into or, where those run out, for what is mapped now plus an absent end. */
static weir_status reserve(wr_stitch_plan *p)
{
    const weir_backend *backend = p->cache->backend;
    const int device = p->cache->device;
    const size_t least = p->bytes + WR_SEGMENT_UNIT;
    void *base = NULL;
    weir_status status = wr_driver(backend, vm_reserve, device, p->region->bytes, 0, &base);
    if (status == WEIR_ERR_OUT_OF_MEMORY && !p->range && least < p->region->bytes) {
        p->region->bytes = least;
        status = wr_driver(backend, vm_reserve, device, least, 0, &base);
    }
    p->region->base = base;
    return status;
}

static bool asks(const attempt *a)
{
    const wr_chunks *c = &a->plan.cache->chunks;
    const size_t created = a->plan.created;
    if (created == 0) return false;
    return created >= ASKED_FROM || c->growths >= ASKED_GROWTHS || a->holds + created > c->ask_at;
}

/* Asking in vain for so much in many chunks, and giving those back, took half a second on a full device. So the
 * driver's figure is looked at; since it may leave out what could still be found, where it is too little one chunk of
 * all asks. */
static weir_status check_room(attempt *a)
{
    const wr_stitch_plan *p = &a->plan;
    const weir_backend *backend = p->cache->backend;
    const int device = p->cache->device;
    uint64_t free_bytes = 0, total_bytes = 0;
    weir_chunk all = 0;
    if (!asks(a) || wr_driver(backend, device_memory, device, &free_bytes, &total_bytes) != WEIR_OK) return WEIR_OK;
    a->room = a->holds + free_bytes;
    if (p->created < ASKED_FROM || p->created <= free_bytes) return WEIR_OK;
    WR_TRY(wr_driver(backend, vm_create, device, p->created, &all));
    weir_status status = wr_driver(backend, vm_destroy, device, all, p->created);
    if (status != WEIR_OK) {
        wr_log(WR_LOG_WARN, "device %d: %zu bytes allocated as a trial could not be given back to the driver: %s",
               device, p->created, weir_error_text());
        wr_cache_lose(p->cache, p->created);
    }
    return status;
}

static weir_status call_driver(attempt *a)
{
    const weir_backend *backend = a->plan.cache->backend;
    WR_TRY(check_room(a));
    if (a->plan.fresh) WR_TRY(reserve(&a->plan));
    WR_TRY(own_all_work(a));
    if (a->plan.reuses) return WEIR_OK;
    WR_TRY(wr_driver(backend, clock_ns, &a->began));
    WR_TRY(map_all(a));
    return wr_driver(backend, clock_ns, &a->ended);
}

/* What the driver does not take back is lost until the context goes. Addresses where something stays mapped must not be
 * asked for again. */
static weir_status undo_step(const wr_stitch_plan *p, const wr_stitch_step *s)
{
    const weir_backend *backend = p->cache->backend;
    wr_chunk *chunk = s->slot->chunk;
    weir_status status = WEIR_OK;
    if (s->mapped) status = wr_driver(backend, vm_unmap, p->cache->device, p->region->base + s->slot->at, chunk->bytes);
    if (status != WEIR_OK) {
        wr_cache_lock(p->cache);
        p->region->region->closed = true;
        chunk->stuck = true;
        wr_cache_unlock(p->cache);
    }
    if (s->made) wr_keep_first(&status, wr_driver(backend, vm_destroy, p->cache->device, chunk->handle, chunk->bytes));
    if (s->made && status != WEIR_OK) wr_cache_lose(p->cache, chunk->bytes);
    return status;
}

static void undo(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    const weir_backend *backend = p->cache->backend;
    weir_status status = WEIR_OK;
    const wr_saved_failure why = wr_fail_save();
    for (size_t i = p->count; i-- > 0;) wr_keep_first(&status, undo_step(p, &p->steps[i]));
    if (p->fresh && p->region->base)
        wr_keep_first(&status, wr_driver(backend, vm_release, p->cache->device, p->region->base, p->region->bytes));
    if (status != WEIR_OK)
        wr_log(WR_LOG_WARN, "device %d: an unfinished mapping could not be undone: %s", p->cache->device,
               weir_error_text());
    wr_fail_restore(why);
}

/* ---- what came of it --------------------------------------------------------------------------------------------- */

static void add_region_locked(wr_stitch_plan *p)
{
    wr_segment *segment = p->region;
    wr_block_begin(segment->first, segment->base, segment->bytes, segment, WR_BLOCK_ABSENT);
    segment->order = (uint64_t)(uintptr_t)segment->base;
    TAILQ_INIT(&segment->region->stale);
    segment->chunk = 0;
    segment->backing = WR_BACKED;
    segment->copy = NULL;
    segment->blocks = 1;
    wr_starts_add(segment->first);
    wr_bin_add_segment(p->bin, segment);
    p->cache->chunks.addresses += segment->bytes;
    p->fresh = false;
}

static void stop_growing_locked(const wr_stitch_plan *p)
{
    p->cache->growing -= p->created;
    p->request->pool->growing -= p->created;
}

static void add_slots_locked(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    wr_cache *cache = p->cache;
    wr_mempool *pool = p->request->pool;
    size_t moved = 0, moved_bytes = 0;
    for (size_t i = 0; i < p->count; i++) {
        wr_slot *slot = p->steps[i].slot;
        wr_slot_add_locked(cache, slot);
        wr_slot_note(cache, slot, WEIR_EVENT_SEGMENT_MAP, slot->from, slot->to);
        if (p->steps[i].origin) {
            wr_chunk_pass_locked(slot->chunk, pool);
            slot->chunk->away -= slot->to - slot->from;
            moved_bytes += slot->chunk->bytes;
            moved++;
            continue;
        }
        wr_chunk_add_locked(cache, slot->chunk);
        cache->chunks.mixed = false;
        WR_COUNT(pool, driver_allocs, 1);
    }
    stop_growing_locked(p);
    if (moved == 0) return;
    const uint64_t took = (a->ended - a->began) / p->count * moved; /* for new chunks, mapping is only a part */
    wr_stitch_note_moved(cache, moved, moved_bytes, took, a->ended);
}

static void fill_slots_locked(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    wr_records_put_back(p->cache, &a->aside);
    for (size_t i = 0; i < p->count; i++)
        wr_slot_enter_locked(p->cache, p->steps[i].slot, 0, p->steps[i].slot->chunk->bytes);
    wr_stitch_note_reused(p->cache, p->bytes);
    p->count = 0;
}

/* Asked again when half of what was free is held. After a refusal there is no more than what is held, until the next
 * answer, unless an answer told just now that the request was too large. */
static void note_room_locked(const attempt *a, weir_status status)
{
    wr_chunks *c = &a->plan.cache->chunks;
    const bool told = a->room && a->plan.created > a->room - a->holds;
    const bool refused = status == WEIR_ERR_OUT_OF_MEMORY && !a->busy && !told;
    if (a->plan.created == 0) return;
    c->growths++;
    if (a->room) {
        c->growths = 0;
        c->room = a->room;
        c->ask_at = a->holds + (a->room - a->holds) / 2;
    }
    if (refused) c->room = c->ask_at = a->holds;
}

static weir_status commit_locked(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    if (p->reuses) {
        fill_slots_locked(a);
        return WEIR_OK;
    }
    const wr_slot *first = p->steps[0].slot, *last = p->steps[p->count - 1].slot;
    const size_t from = first->at + first->from, to = last->at + last->to;
    WR_TRY(wr_address_insert(p->region->base + p->start, p->bytes, p->region));
    if (p->fresh) add_region_locked(p);
    if (p->range) *p->range->region = p->region;
    add_slots_locked(a);
    wr_records_put_back(p->cache, &a->aside);
    if (a->held) wr_block_let_go_locked(p->cache, a->held);
    wr_region_give_locked(p->region, from, to - from);
    p->count = 0; /* the records are in use */
    return WEIR_OK;
}

/* ---- all together ------------------------------------------------------------------------------------------------ */

/* Hands out a block that fits, if there is one. A caller that wants memory for a range finds the place there itself. */
static weir_status serve_locked(attempt *a, void **out)
{
    const wr_stitch_plan *p = &a->plan;
    wr_block *block = p->range ? NULL : wr_cache_find_free_locked(p->request);
    if (!block && p->serves) block = wr_cache_best_of_locked(p->request, p->serves->class);
    if (!block) return WEIR_OK;
    if (p->request->fit.class == WR_SMALL && block->segment->bin->class == WR_LARGE) p->cache->chunks.mixed = true;
    a->done = true;
    WR_TRY(wr_cache_hand_out_locked(p->cache, p->request, block, out));
    if (p->created == 0) WR_COUNT(p->request->pool, hits, 1);
    return WEIR_OK;
}

/* Afterwards the request is done, or there is a plan whose memory is hidden. */
static weir_status begin_locked(attempt *a, wr_front *front, void **out)
{
    wr_stitch_plan *p = &a->plan;
    bool served = false;
    WR_TRY(wr_cache_check_target_locked(p->request));
    if (front) wr_front_empty_locked(front);
    WR_TRY(serve_locked(a, out));
    if (a->done) return WEIR_OK;
    WR_TRY(wr_cache_make_bin_locked(p->request->pool, p->request->stream, p->range ? WR_PLANNED : p->request->fit.class,
                                    &p->bin));
    WR_TRY(wr_stitch_plan_locked(p, &served));
    if (served && p->range) a->done = true;
    if (served) return serve_locked(a, out);
    WR_TRY(prepare(a));
    a->holds = wr_cache_limited_locked(p->cache);
    take_locked(a);
    return WEIR_OK;
}

static void end_locked(attempt *a)
{
    wr_stitch_plan *p = &a->plan;
    wr_records_put_back(p->cache, &a->aside);
    if (p->fresh) {
        p->request->pool->segments--;
        wr_region_done(p->cache, p->region);
    }
    wr_stitch_plan_release_locked(p);
}

static weir_status try_once(attempt *a, void **out)
{
    wr_stitch_plan *p = &a->plan;
    wr_cache *cache = p->cache;
    wr_front *front = wr_front_lock_stream(cache, p->request->stream, p->request->pool_name);
    weir_status status = begin_locked(a, front, out);
    const bool over = status != WEIR_OK || a->done;
    if (over) end_locked(a);
    wr_front_unlock(cache, front);
    if (over) return status;

    status = call_driver(a);
    front = wr_front_lock_stream(cache, p->request->stream, p->request->pool_name);
    note_room_locked(a, status);
    if (status == WEIR_OK) status = commit_locked(a);
    const bool failed = status != WEIR_OK;
    if (failed) {
        put_back_locked(a);
    } else {
        status = serve_locked(a, out);
        end_locked(a);
    }
    wr_front_unlock(cache, front);
    if (!failed) return status;

    undo(a);
    wr_cache_lock(cache);
    stop_growing_locked(p); /* not before: the limit is on what is there */
    if (p->created && !a->busy)
        wr_stitch_note_scarce(cache); /* who is refused does not at once ask again for more than it needs */
    end_locked(a);
    wr_cache_unlock(cache);
    return status;
}

/* How the next attempt goes: what failed is not tried again. */
typedef struct trying {
    bool forced, hold;     /* as in the plan and the attempt */
    bool gather, gathered; /* first free what all streams have parked; that was done before some attempt */
    size_t refused;
    int busy; /* attempts that failed because streams had work queued */
} trying;

/* False: that was the last attempt. */
static bool try_again(trying *t, const attempt *a, weir_status status, const void *found)
{
    t->gather = a->plan.gather;
    if (a->busy) {
        t->busy++;
        return true;
    }
    if (t->gather) return true;
    if (status == WEIR_OK) {
        t->hold = true; /* another thread was given part of what was made */
        return !found;
    }
    if (t->forced) return false;
    t->forced = true;
    t->refused = a->plan.created;
    return status == WEIR_ERR_OUT_OF_MEMORY;
}

weir_status wr_stitch(wr_cache *cache, const wr_request *request, wr_stitch_effort effort, void **out)
{
    const bool chained = effort == WR_STITCH_CHAINED;
    trying t = { .forced = chained, .gather = chained };
    weir_status status = WEIR_OK;
    wr_bin *bin = NULL;
    WR_ENSURE(request->fit.block_bytes <= cache->chunks.region_bytes, WEIR_ERR_OUT_OF_MEMORY,
              "device %d: %zu bytes requested, but there are only %zu in all", cache->device, request->fit.block_bytes,
              cache->chunks.region_bytes);
    wr_stitch_begin_turn(cache, request);
    const uint64_t serial = ++cache->chunks.requests;
    *out = NULL;
    for (bool again = true; again;) {
        if (t.gather) wr_fronts_empty(cache);
        t.gathered |= t.gather;
        attempt a = { .plan = { .cache = cache,
                                .request = request,
                                .forced = t.forced,
                                .refused = t.refused,
                                .foreign = t.busy < BUSY_MOST,
                                .serial = serial,
                                .gathered = t.gathered },
                      .effort = effort,
                      .hold = t.hold };
        status = try_once(&a, out);
        bin = a.plan.bin;
        again = try_again(&t, &a, status, *out);
    }
    if (status == WEIR_OK && bin) wr_chunks_unmap_stale(cache, bin);
    wr_chunks_reclaim_addresses(cache);
    wr_stitch_end_turn(cache);
    if (status != WEIR_OK) wr_mempool_sweep(cache); /* the attempt may have kept alive a pool that was released */
    return status;
}

weir_status wr_stitch_back(wr_cache *cache, const wr_request *request, const wr_stitch_range *range, bool *grew)
{
    weir_status status = WEIR_OK;
    bool forced = false, done = false;
    size_t refused = 0;
    void *none = NULL;
    while (status == WEIR_OK && !done) {
        attempt a = {
            .plan = { .cache = cache, .request = request, .range = range, .forced = forced, .refused = refused },
            .effort = WR_STITCH_IDLE
        };
        status = try_once(&a, &none);
        done = a.done;
        if (status == WEIR_OK && a.plan.created) *grew = true;
        if (status != WEIR_ERR_OUT_OF_MEMORY || forced) continue;
        refused = a.plan.created;
        forced = true;
        status = WEIR_OK;
    }
    return status;
}
