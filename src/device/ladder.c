#include "device/ladder.h"

#include "base/clock.h"
#include "base/size.h"
#include "device/kinds.h"
#include "device/oom.h"
#include "pool/chunk/stitch.h"
#include "pool/count.h"
#include "pool/front/detach.h"
#include "pool/front/side.h"
#include "pool/pause.h"
#include "pool/pending.h"
#include "pool/plan/serve.h"
#include "pool/plan/subplan.h"
#include "pool/report/inspect.h"

#include <time.h>
#include <unistd.h>

/* Each rung either serves the request (*out set), or leaves *out NULL for the next one. An error other than
 * WEIR_ERR_OUT_OF_MEMORY ends the climb: trying harder does not help against a broken device. `device` is NULL for host
 * memory; the cache is the request's. `step` is its name in the history. A rung that does not apply does not count as
 * tried. */
typedef struct rung {
    weir_status (*climb)(wr_device *device, const wr_request *request, void **out);
    weir_step step;
    bool (*applies)(const wr_request *request); /* NULL: always */
} rung;

/* A request for a named NUMA node must be served there; a request for any node may be served from all. */
static weir_status take_elsewhere(const wr_request *request, void **out)
{
    wr_pinned *pinned = wr_pinned_of(request->pool->cache);
    if (request->stream != &pinned->places[0]) return WEIR_OK;
    for (int node = 0; node < WR_NUMA_NODES && !*out; node++) {
        if (!wr_numa_has(&pinned->numa, node)) continue;
        wr_request there = *request;
        there.stream = &pinned->places[node + 1];
        WR_TRY(wr_cache_take(request->pool->cache, &there, out));
    }
    return WEIR_OK;
}

static weir_status take(const wr_request *request, void **out)
{
    wr_cache *cache = request->pool->cache;
    WR_TRY(wr_cache_take(cache, request, out));
    return *out || !wr_cache_is_host(cache) ? WEIR_OK : take_elsewhere(request, out);
}

static weir_status take_finished(wr_device *device, const wr_request *request, void **out)
{
    wr_pending_poll(request->pool->cache);
    if (device) wr_capture_reclaim(device, request->stream);
    return take(request, out);
}

/* Page-locked host memory must fit into the machine's memory. The bound of managed memory and of a program's source is
 * unknown. The private pool may be gone and its record reused; then a later step refuses the request. */
static uint64_t most_bytes(const wr_device *device, const wr_mempool *pool)
{
    if (device && wr_mempool_chunked(pool)) return device->caps.total_memory;
    wr_cache_lock(pool->cache);
    const weir_memory_kind memory = pool->rules.memory;
    const bool unknown = pool->source.alloc || memory == WEIR_MEMORY_MANAGED;
    wr_cache_unlock(pool->cache);
    if (unknown) return UINT64_C(1) << 48; /* nothing can lie beyond that (wr_address_insert) */
    if (device && memory != WEIR_MEMORY_PINNED) return device->caps.total_memory;
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Refuses a request that cannot succeed before records are allocated for it: that could fail in more confusing ways,
 * and the records would stay. */
static weir_status check_most(const wr_device *device, const wr_request *request)
{
    const uint64_t most = most_bytes(device, request->pool);
    WR_ENSURE(request->fit.segment_bytes <= most, WEIR_ERR_OUT_OF_MEMORY,
              "%s: %zu bytes requested, but there are only %llu in all", request->pool->cache->name,
              request->fit.segment_bytes, (unsigned long long)most);
    return WEIR_OK;
}

static weir_status grow(wr_device *device, const wr_request *request, void **out)
{
    if (check_most(device, request) != WEIR_OK) return WEIR_OK;
    wr_cache *cache = request->pool->cache;
    weir_status status = wr_mempool_chunked(request->pool) ? wr_stitch(cache, request, WR_STITCH_IDLE, out)
                                                           : wr_cache_grow(cache, request, NULL, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    const bool yields = wr_subplans_any(cache) && wr_subplan_yield(cache, request);
    return yields ? wr_cache_take(cache, request, out) : WEIR_OK;
}

/* What the driver refuses to take back ends no climb, unless the device is lost. */
static weir_status unless_lost(weir_status status)
{
    return status == WEIR_ERR_DEVICE_LOST ? status : WEIR_OK;
}

/* If it refused to take back some segments, those that it took may still be enough. */
static weir_status unless_released(weir_status status, size_t released)
{
    return released != 0 ? unless_lost(status) : status;
}

static weir_status take_from_sides(const wr_request *request, void **out)
{
    return wr_sides_give_back(request) ? wr_cache_take(request->pool->cache, request, out) : WEIR_OK;
}

static weir_status collect_and_grow(wr_device *device, const wr_request *request, void **out)
{
    bool moved = false;
    WR_TRY(take_from_sides(request, out));
    if (*out) return WEIR_OK;
    if (!wr_mempool_chunked(request->pool)) WR_TRY(wr_cache_take_left(&device->cache, request, &moved));
    if (moved) WR_TRY(wr_cache_take(&device->cache, request, out));
    if (*out) return WEIR_OK;
    WR_TRY(unless_lost(wr_cache_collect(&device->cache)));
    return grow(device, request, out);
}

static bool rehomes(const wr_request *request)
{
    return wr_mempool_chunked(request->pool) || request->pool->cache->policy->rehome;
}

static weir_status take_rehomed(wr_device *device, const wr_request *request, void **out)
{
    bool moved = false;
    if (wr_mempool_chunked(request->pool)) {
        weir_status status = wr_stitch(&device->cache, request, WR_STITCH_CHAINED, out);
        return status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_OK : status;
    }
    WR_TRY(wr_cache_rehome(&device->cache, request, &moved));
    return moved ? wr_cache_take(&device->cache, request, out) : WEIR_OK;
}

static weir_status take_borrowed(wr_device *device, const wr_request *request, void **out)
{
    return wr_cache_borrow(&device->cache, request, out);
}

/* Waits for one stream at a time and looks again after each, so as not to wait longer than needed. Looks even when
 * there is nothing to wait for: another thread may have polled the needed block free since. What became free in pieces
 * is mapped together. PyTorch waits for all, and does not look again before it has given idle segments back. */
static weir_status take_awaited(wr_device *device, const wr_request *request, void **out)
{
    wr_cache *cache = request->pool->cache;
    const wr_mempool *whose = wr_cache_cap_refuses(request) ? request->pool : NULL;
    const bool some = atomic_load(&cache->pending) != 0;
    bool waited = some;
    if (waited) WR_COUNT_REQUEST(request, syncs);
    const uint64_t newest = wr_pending_queued(cache);
    do {
        if (waited) wr_clean_up(wr_pending_wait(cache, whose, newest, &waited)); /* the next steps may do without */
        if (!cache->policy->exact) WR_TRY(take(request, out));
    } while (waited && !*out);
    return some && !*out && wr_mempool_chunked(request->pool) ? take_rehomed(device, request, out) : WEIR_OK;
}

static bool has_oversize(const wr_request *request)
{
    return request->pool->cache->options.max_split != SIZE_MAX;
}

/* Oversize segments, which max_split_size keeps whole, go first for an oversize request of their stream. Where they do
 * not add up to the request, PyTorch gives all back before it asks again. */
static weir_status trim_oversize_and_grow(wr_device *device, const wr_request *request, void **out)
{
    size_t released = 0;
    WR_TRY(unless_lost(wr_cache_trim_oversize(&device->cache, request, &released)));
    const size_t enough = device->cache.policy->release_all ? request->fit.block_bytes : 1;
    return released >= enough ? grow(device, request, out) : WEIR_OK;
}

/* Nothing is left to give back: tries a segment with no room for other blocks, which PyTorch's rules do not. */
static weir_status grow_tight(wr_device *device, const wr_request *request, void **out)
{
    wr_request tight = *request;
    tight.fit.segment_bytes = wr_round_up(request->fit.block_bytes, WR_SEGMENT_UNIT);
    const bool smaller = tight.fit.segment_bytes < request->fit.segment_bytes;
    const bool may = !wr_mempool_chunked(request->pool) && !request->pool->cache->policy->release_all;
    return smaller && may ? grow(device, &tight, out) : WEIR_OK;
}

/* Gives idle segments back to make room for one of the right size: first just enough bytes, then, since the driver may
 * not be able to coalesce what it got, more until nothing is left. Trimming waits for other threads that give segments
 * back or move them. So when it finds nothing itself, the cache is searched once more: segments that those threads had
 * taken out are back in the cache, or with the driver. */
static weir_status trim_and_grow(wr_device *device, const wr_request *request, void **out)
{
    wr_cache *cache = request->pool->cache;
    const size_t enough = cache->policy->release_all ? SIZE_MAX : request->fit.segment_bytes;
    for (size_t released = 1; released != 0 && !*out;) {
        weir_status status = wr_cache_trim_for(request, enough, &released);
        WR_TRY(unless_released(status, released));
        if (released == 0) WR_TRY(take(request, out));
        if (!*out) WR_TRY(grow(device, request, out));
    }
    return *out ? WEIR_OK : grow_tight(device, request, out);
}

/* Idle handles hold device memory of their libraries, and workspaces from weir's pools. */
static weir_status drop_idle_handles(wr_device *device, const wr_request *request, void **out)
{
    uint64_t destroyed = 0;
    /* A library that fails to destroy its handle is no reason to refuse memory */
    wr_clean_up(wr_device_trim_handles(device, 0, &destroyed));
    if (destroyed == 0) return WEIR_OK;
    WR_TRY(take_finished(device, request, out));
    return *out ? WEIR_OK : unless_lost(trim_and_grow(device, request, out));
}

/* If what a callback freed is not enough, the next one is asked. */
static weir_status ask_program(wr_device *device, const wr_request *request, void **out)
{
    wr_asked asked = { 0 };
    while (!*out && wr_runtime_reclaim(request->pool->cache->device, request->fit.segment_bytes, &asked)) {
        WR_TRY(take_finished(device, request, out));
        if (!*out) WR_TRY(take_awaited(device, request, out));
        if (!*out) WR_TRY(grow(device, request, out));
        if (!*out) WR_TRY(unless_lost(trim_and_grow(device, request, out)));
    }
    return WEIR_OK;
}

static bool has_handles(const wr_request *request)
{
    return wr_device_has_handles(wr_runtime_opened(request->pool->cache->device));
}

static bool program_helps(const wr_request *request)
{
    (void)request;
    return wr_runtime_has_reclaimers();
}

/* Which steps a request went through. */
typedef struct decision {
    uint64_t tried; /* a bit per step */
    weir_step last; /* the step that served it, if any did */
} decision;

/* Both lists end with NULL. `rungs` are climbed again as long as something was freed meanwhile; `last_rungs` are
 * climbed once. */
typedef struct ladder {
    rung rungs[8], last_rungs[3];
    weir_status (*give_up)(wr_device *device, const wr_request *request, uint64_t tried);
} ladder;

/* Other threads may take the room that one has made, many times over, even while there is enough for all. */
enum { CLIMBS_MAX = 64 };

static weir_status out_of_pinned_memory(wr_device *device, const wr_request *request, uint64_t tried)
{
    (void)device;
    return wr_oom_pinned(request, tried);
}

static const ladder of_device = {
    .rungs = { { take_finished, WEIR_STEP_FINISHED, NULL },
               { collect_and_grow, WEIR_STEP_GROW, NULL },
               { take_rehomed, WEIR_STEP_REHOME, rehomes },
               { take_borrowed, WEIR_STEP_BORROW, NULL },
               { trim_oversize_and_grow, WEIR_STEP_TRIM_OVERSIZE, has_oversize },
               { take_awaited, WEIR_STEP_WAIT, NULL },
               { trim_and_grow, WEIR_STEP_TRIM, NULL } },
    .last_rungs = { { drop_idle_handles, WEIR_STEP_HANDLES, has_handles },
                    { ask_program, WEIR_STEP_PROGRAM, program_helps } },
    .give_up = wr_oom_device,
};

/* Idle segments are trimmed before streams are waited for: a wait may take for ever, and trimming need not wait. */
static const ladder of_pinned = {
    .rungs = { { take_finished, WEIR_STEP_FINISHED, NULL },
               { grow, WEIR_STEP_GROW, NULL },
               { trim_and_grow, WEIR_STEP_TRIM, NULL },
               { take_awaited, WEIR_STEP_WAIT, NULL } },
    .last_rungs = { { ask_program, WEIR_STEP_PROGRAM, program_helps } },
    .give_up = out_of_pinned_memory,
};

/* A retry is counted once for a request, however often it climbs, as PyTorch does. */
static weir_status climb_rungs(wr_device *device, const wr_request *request, const rung *from, decision *made,
                               void **out)
{
    for (; from->climb && !*out; from++) {
        if (from->applies && !from->applies(request)) continue;
        const uint64_t step = UINT64_C(1) << from->step;
        if (from->step == WEIR_STEP_TRIM && !(made->tried & step)) WR_COUNT_REQUEST(request, alloc_retries);
        made->last = from->step;
        made->tried |= step;
        WR_TRY(from->climb(device, request, out));
    }
    return WEIR_OK;
}

static void record(const wr_request *request, const decision *made, const void *found)
{
    const uint64_t served = found ? made->last : WEIR_STEP_REFUSED;
    wr_history_record(&request->pool->cache->history, WEIR_EVENT_DECISION,
                      (void *)(uintptr_t)(served << 56 | made->tried), request->requested, request->stream->native,
                      wr_mempool_id_of(request->pool_name));
}

#define GROWTH_NS UINT64_C(1000000000)
enum { PAUSE_FIRST_NS = 50000, PAUSE_MOST_NS = 1000000 };

typedef struct moment {
    uint64_t changes, refusals;
    uint64_t growing; /* of the device, and of the pool, which may have a cap without being under the limit */
} moment;

static moment moment_of(const wr_request *request)
{
    wr_cache *cache = request->pool->cache;
    wr_cache_lock(cache);
    const moment m = { wr_cache_changes_locked(cache), cache->refusals, cache->growing + request->pool->growing };
    wr_cache_unlock(cache);
    return m;
}

/* Waits until one of the requests now with the driver has ended: if it is refused, its bytes no longer count against
 * the limit. False: none ended within a second; a program's source of segments may be waiting for something that this
 * thread holds. Each look takes the cache's lock, so they become fewer. */
static bool await_growth(const wr_request *request, moment from)
{
    const uint64_t until = wr_clock_ns(CLOCK_MONOTONIC) + GROWTH_NS;
    struct timespec pause = { .tv_nsec = PAUSE_FIRST_NS };
    moment now = from;
    while (now.growing != 0 && now.growing == from.growing && now.changes == from.changes) {
        if (wr_clock_ns(CLOCK_MONOTONIC) >= until) return false;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < PAUSE_MOST_NS) pause.tv_nsec *= 2;
        now = moment_of(request);
    }
    return true;
}

/* A source may refuse to take anything back for good, which must keep no callback from being asked. If none helps, the
 * refusal is what the request returns. */
static weir_status climb_refused(const ladder *l, wr_device *device, const wr_request *request, decision *made,
                                 weir_status refused, void **out)
{
    if (made->last != WEIR_STEP_TRIM || refused == WEIR_ERR_DEVICE_LOST) return refused;
    wr_clean_up(climb_rungs(device, request, l->last_rungs, made, out));
    return *out ? WEIR_OK : refused;
}

/* Climbs again as long as something was freed meanwhile, so that no request fails for looking at the wrong moment. */
static weir_status climb_on(const ladder *l, wr_device *device, const wr_request *request, decision *made, void **out)
{
    wr_cache *cache = request->pool->cache;
    bool again = true, patient = true;
    for (int i = 0; i < CLIMBS_MAX && again; i++) {
        const moment before = moment_of(request);
        const weir_status status = climb_rungs(device, request, l->rungs, made, out);
        if (status != WEIR_OK) return climb_refused(l, device, request, made, status, out);
        if (*out) return WEIR_OK;
        wr_fronts_empty(cache); /* blocks parked meanwhile then show as a change */
        const moment now = moment_of(request);
        again = now.changes != before.changes;
        if (again || !patient || now.refusals == before.refusals) continue;
        patient = await_growth(request, now);
        again = true; /* once more, even if the wait was in vain: blocks freed meanwhile may be parked */
    }
    WR_TRY(climb_rungs(device, request, l->last_rungs, made, out));
    return *out ? WEIR_OK : l->give_up(device, request, made->tried);
}

static WR_NOINLINE weir_status climb(const ladder *l, wr_device *device, const wr_request *request, void **out)
{
    decision made = { 0 };
    weir_status status = climb_on(l, device, request, &made, out);
    record(request, &made, *out);
    return status;
}

/* The planned place may be blocked by a pending free that is done by now, on another stream or in a capture. */
static WR_NOINLINE void take_planned(wr_device *device, const wr_request *request, void **out)
{
    wr_subplace at = { 0 };
    if (!wr_subplan_take(&device->cache, request, &at, out)) return;
    wr_pending_poll(&device->cache);
    wr_capture_reclaim(device, request->stream);
    wr_subplan_retry(&device->cache, request, &at, out);
}

static WR_ALWAYS_INLINE weir_status serve(wr_device *device, wr_request *request, void **out)
{
    wr_cache *cache = &device->cache;
    void *found = NULL;
    if (cache->policy->poll_always || request->fit.class == WR_LARGE) wr_pending_poll(cache);
    const bool planned = atomic_load_explicit(&cache->serving, memory_order_relaxed) != NULL;
    if (WR_UNLIKELY(planned) && wr_serve_take(cache, request, &found)) wr_routes_change(&device->routes, -1);
    if (WR_UNLIKELY(request->pool_name != 0) && wr_subplans_any(cache)) take_planned(device, request, &found);
    if (WR_LIKELY(!found)) WR_TRY(wr_cache_take(cache, request, &found));
    if (WR_UNLIKELY(!found)) wr_serve_lend(cache, request, &found);
    request->again = true;
    if (WR_UNLIKELY(!found)) WR_TRY(climb(&of_device, device, request, &found));
    *out = found;
    return WEIR_OK;
}

static WR_NOINLINE weir_status serve_beside_captures(wr_device *device, wr_request *request, void **out)
{
    uint64_t capture = 0;
    WR_TRY(wr_capture_keep_pool(device, request->stream, request->pool, request->pool_name, &capture));
    WR_TRY(serve(device, request, out));
    if (capture != 0) wr_graph_order_mark(*out, capture);
    return WEIR_OK;
}

weir_status wr_device_alloc(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream, uint64_t id,
                            size_t bytes, void **out)
{
    if (WR_UNLIKELY(bytes > WR_REQUEST_MAX))
        return wr_oom_absurd(device,
                             &(wr_request){ .pool = pool, .pool_name = name, .stream = stream, .requested = bytes });
    wr_request request = wr_cache_request(pool, name, stream, bytes);
    request.stream_id = id;
    if (WR_UNLIKELY(wr_captures_any(&device->captures))) return serve_beside_captures(device, &request, out);
    return serve(device, &request, out);
}

weir_status wr_pinned_alloc(wr_pinned *pinned, wr_stream *place, size_t bytes, void **out)
{
    if (WR_UNLIKELY(bytes > WR_REQUEST_MAX)) return wr_oom_pinned_absurd(pinned, bytes);
    const wr_request request = wr_cache_request(pinned->cache.pools, 0, place, bytes);
    void *found = NULL;
    WR_TRY(take(&request, &found));
    if (WR_UNLIKELY(!found)) WR_TRY(climb(&of_pinned, NULL, &request, &found));
    *out = found;
    return WEIR_OK;
}

weir_status wr_pinned_reserve(wr_pinned *pinned, wr_stream *place, size_t bytes)
{
    if (bytes > WR_REQUEST_MAX) return wr_oom_pinned_absurd(pinned, bytes);
    wr_request request = wr_cache_request(pinned->cache.pools, 0, place, bytes);
    request.fit.segment_bytes = wr_round_up(bytes, WR_SEGMENT_UNIT);
    weir_status status = check_most(NULL, &request);
    if (status == WEIR_OK) status = wr_cache_grow(&pinned->cache, &request, NULL, NULL);
    return status == WEIR_ERR_OUT_OF_MEMORY ? wr_oom_pinned(&request, 0) : status;
}

static weir_status take_direct(const wr_device *device, size_t bytes, void **out)
{
    return wr_driver(device->backend, segment_alloc, device->ordinal, bytes, out);
}

weir_status wr_device_alloc_direct(wr_device *device, size_t bytes, void **out)
{
    uint64_t destroyed = 0;
    wr_asked asked = { 0 };
    weir_status status = take_direct(device, bytes, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    wr_clean_up(wr_device_empty_cache(device)); /* of captures and libraries; what cannot go back stays */
    status = take_direct(device, bytes, out);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    wr_clean_up(wr_device_trim_handles(device, 0, &destroyed)); /* as in drop_idle_handles */
    if (destroyed != 0) status = take_direct(device, bytes, out);
    while (status == WEIR_ERR_OUT_OF_MEMORY && wr_runtime_reclaim(device->ordinal, bytes, &asked))
        status = take_direct(device, bytes, out);
    return status;
}

weir_status wr_device_free(const wr_segment *segment, void *pointer)
{
    wr_block *waiting = NULL;
    WR_TRY(wr_cache_free(segment, pointer, &waiting));
    if (waiting) wr_capture_await(wr_device_of(segment->cache), waiting);
    return WEIR_OK;
}

weir_status wr_device_empty_pool(wr_device *device, wr_mempool *pool)
{
    size_t released = 0;
    if (!pool->is_private) return wr_device_empty_cache(device);
    wr_cache_lock(&device->cache);
    const bool held = pool->held[WR_HELD_BY_GRAPH] != 0, paused = pool->paused;
    wr_cache_unlock(&device->cache);
    WR_ENSURE(!held, WEIR_ERR_BUSY,
              "weir_mempool_empty_cache: a graph uses all memory of memory pool " WR_MEMPOOL_FORMAT
              ", even what is free",
              WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
    WR_ENSURE(!paused, WEIR_ERR_BUSY,
              "weir_mempool_empty_cache: memory pool " WR_MEMPOOL_FORMAT " is paused; call weir_resume() first",
              WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
    weir_status first = wr_pending_wait_all(&device->cache, pool);
    wr_keep_first(&first, wr_cache_trim_pool(pool, wr_mempool_name_of(pool), &released));
    return first;
}

void wr_device_make_room(wr_device *device)
{
    wr_pending_poll(&device->cache);
    wr_cache_trim_without_work(&device->cache);
}

weir_status wr_device_empty_cache(wr_device *device)
{
    size_t released = 0;
    weir_status first = wr_pending_wait_all(&device->cache, NULL);
    wr_keep_first(&first, wr_cache_trim(&device->cache, NULL, SIZE_MAX, &released));
    return first;
}

/* ---- resuming ---------------------------------------------------------------------------------------------------- */

static weir_status trim_and_resume(wr_device *device, const char *tag, size_t *missing)
{
    weir_status status = WEIR_ERR_OUT_OF_MEMORY;
    wr_clean_up(wr_pending_wait_all(&device->cache, NULL)); /* what cannot be waited for stays */
    for (size_t released = 1; released != 0 && status == WEIR_ERR_OUT_OF_MEMORY;) {
        status = wr_cache_trim(&device->cache, NULL, *missing, &released);
        WR_TRY(unless_lost(status));
        status = wr_resume(&device->cache, tag, missing); /* trimmed segments may be paused, without memory */
    }
    return status;
}

/* Tries before trimming: what others have freed meanwhile may be enough. */
static weir_status free_and_resume(wr_device *device, const char *tag, size_t *missing)
{
    weir_status status = wr_resume(&device->cache, tag, missing);
    return status == WEIR_ERR_OUT_OF_MEMORY ? trim_and_resume(device, tag, missing) : status;
}

static weir_status cannot_resume(wr_device *device, size_t missing)
{
    char needed[WR_SIZE_TEXT], driver[WR_SIZE_TEXT], held[WR_SIZE_TEXT], idle[WR_SIZE_TEXT];
    char limit[WR_SIZE_TEXT] = "none";
    const char *raise = "";
    uint64_t free_bytes = 0, total_bytes = 0;
    if (wr_driver(device->backend, device_memory, device->ordinal, &free_bytes, &total_bytes) != WEIR_OK)
        free_bytes = 0;
    wr_cache_lock(&device->cache);
    const uint64_t reserved = wr_cache_limited_locked(&device->cache);
    if (device->cache.limit) {
        wr_size_format(device->cache.limit, limit);
        raise = "raise the limit, ";
    }
    wr_cache_unlock(&device->cache);
    return wr_fail(
        WEIR_ERR_OUT_OF_MEMORY,
        "device %d (%s) does not have the memory to resume what is paused: %s needed, %s free, %s held by weir, %s of "
        "that idle in private pools, limit: %s. The pools stay paused and keep their contents; free something, %sor give "
        "back what is idle in a pool with weir_mempool_empty_cache(), and resume again.",
        device->ordinal, device->caps.name, wr_size_format(missing, needed), wr_size_format(free_bytes, driver),
        wr_size_format(reserved, held), wr_size_format(wr_inspect_kept_idle(&device->cache), idle), limit, raise);
}

weir_status wr_device_resume(wr_device *device, const char *tag)
{
    size_t missing = 0;
    uint64_t destroyed = 0;
    wr_asked asked = { 0 };
    weir_status status = free_and_resume(device, tag, &missing);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status;
    (void)!wr_device_trim_handles(device, 0, &destroyed); /* as in drop_idle_handles */
    if (destroyed != 0) status = free_and_resume(device, tag, &missing);
    while (status == WEIR_ERR_OUT_OF_MEMORY && wr_runtime_reclaim(device->ordinal, missing, &asked))
        status = free_and_resume(device, tag, &missing);
    return status == WEIR_ERR_OUT_OF_MEMORY ? cannot_resume(device, missing) : status;
}
