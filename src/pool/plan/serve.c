#include "pool/plan/serve.h"

#include "base/clock.h"
#include "base/meta.h"
#include "base/size.h"
#include "pool/address.h"
#include "pool/chunk/chunk.h"
#include "pool/chunk/stitch.h"
#include "pool/count.h"
#include "pool/pending.h"
#include "pool/plan/serve_fit.h"
#include "pool/plan/subplan.h"
#include "pool/starts.h"

#include <assert.h>

/* ---- what is served ---------------------------------------------------------------------------------------------- */

static void destroy(wr_serving *serving)
{
    for (size_t i = 0; serving && i < serving->count; i++) wr_course_release(&serving->arenas[i].course);
    wr_meta_free(serving);
}

/* Arenas of private pools become subplans. */
static bool is_ours(const wr_cache *cache, const weir_plan_arena *a)
{
    return a->device == cache->device && a->pool == 0;
}

static weir_status add_arena(wr_serving *serving, const weir_plan *plan, const weir_plan_arena *a,
                             const wr_arena_user *user)
{
    WR_ENSURE(
        a->streams == 1, WEIR_ERR_NOT_SUPPORTED,
        "plan: an arena of %u streams cannot be served, because one would have to wait for another; make the plan with "
        "'weir plan --streams-apart'",
        a->streams);
    WR_ENSURE(a->bytes <= WR_REQUEST_MAX, WEIR_ERR_INVALID_ARGUMENT,
              "plan: an arena has %llu bytes, more than can be allocated", (unsigned long long)a->bytes);
    wr_served *s = &serving->arenas[serving->count];
    WR_TRY(wr_course_init(&s->course, plan, a));
    wr_follower_init(&s->follower, &s->course);
    s->bytes = (size_t)(user ? user->own : a->bytes);
    s->named = user != NULL;
    s->native = user ? user->native : 0;
    s->host = user && user->host != WR_ARENA_ALONE ? &serving->arenas[user->host] : NULL;
    serving->budget += wr_round_up(s->bytes, WR_SEGMENT_UNIT);
    serving->count++;
    return WEIR_OK;
}

static weir_status make(const wr_cache *cache, const weir_plan *plan, const wr_arena_user *users, wr_serving **out)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_serving) + plan->arena_count * sizeof(wr_served), "plan to serve", &made));
    wr_serving *serving = made;
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < plan->arena_count && status == WEIR_OK; i++)
        if (is_ours(cache, &plan->arenas[i]))
            status = add_arena(serving, plan, &plan->arenas[i], users ? &users[i] : NULL);
    if (status == WEIR_OK && serving->count != 0)
        *out = serving;
    else
        destroy(serving);
    return status;
}

static weir_status refuse_empty(const wr_cache *cache, const weir_plan *plan)
{
    bool any = false;
    for (uint64_t i = 0; i < plan->arena_count; i++) any |= plan->arenas[i].device == cache->device;
    WR_ENSURE(any, WEIR_ERR_INVALID_ARGUMENT, "plan: it has no arena for %s", cache->name);
    return wr_fail(
        WEIR_ERR_INVALID_ARGUMENT,
        "plan: its arenas for %s are all of private pools, and each is of several streams or larger than the "
        "device; make the plan with 'weir plan --streams-apart'",
        cache->name);
}

/* *serving: NULL when the plan has nothing for the default pool. */
static weir_status make_all(const wr_cache *cache, const weir_plan *plan, const wr_arena_user *users,
                            wr_serving **serving, wr_subplan **subplans)
{
    WR_TRY(make(cache, plan, users, serving));
    weir_status status = users ? WEIR_OK : wr_subplans_make(cache, plan, subplans); /* a learned plan has none */
    if (status == WEIR_OK && !*serving && !*subplans) status = refuse_empty(cache, plan);
    if (status != WEIR_OK) destroy(*serving);
    return status;
}

/* What the default pool holds for anything but planned places. */
static uint64_t held_elsewhere_locked(const wr_cache *cache)
{
    const wr_mempool *pool = cache->pools;
    uint64_t held = pool->chunk_bytes;
    for (const wr_bin *bin = pool->first_bin; bin; bin = bin->next)
        if (bin->class == WR_PLANNED) held -= bin->part_bytes;
    return held;
}

weir_status wr_serve_check(const wr_cache *cache)
{
    WR_ENSURE(
        wr_mempool_chunked(cache->pools), WEIR_ERR_NOT_SUPPORTED,
        "%s: plans can only be served where the default pool is made of chunks: under policy weir, on a device with "
        "virtual memory, without max_split_size, gc_threshold, and debug with both poison and streams",
        cache->name);
    return WEIR_OK;
}

weir_status wr_serve(wr_cache *cache, const weir_plan *plan, const wr_arena_user *users, int *more)
{
    wr_serving *serving = NULL;
    wr_subplan *subplans = NULL;
    if (plan) WR_TRY(wr_serve_check(cache));
    if (plan) WR_TRY(make_all(cache, plan, users, &serving, &subplans));
    wr_lock_acquire(&cache->move_lock);
    wr_cache_lock(cache);
    wr_serving *former = atomic_load_explicit(&cache->serving, memory_order_relaxed), *laid_down = cache->laid_down;
    cache->laid_down = NULL;
    if (serving) serving->serial = ++cache->servings;
    if (serving) serving->budget += held_elsewhere_locked(cache);
    *more = (serving != NULL) - (former != NULL);
    atomic_store_explicit(&cache->serving, serving, memory_order_release);
    if (!users) wr_subplans_offer_locked(cache, &subplans);
    wr_cache_unlock(cache);
    if (wr_subplans_any(cache)) wr_fronts_empty(cache); /* for a private pool, the plan is asked first */
    wr_lock_release(&cache->move_lock);
    wr_subplans_destroy(subplans);
    destroy(former);
    destroy(laid_down);
    return WEIR_OK;
}

wr_served *wr_served_locked(const wr_cache *cache, const wr_stream *stream)
{
    wr_serving *serving = wr_serving_locked(cache);
    for (size_t i = 0; serving && i < serving->count; i++)
        if (serving->arenas[i].stream == stream) return &serving->arenas[i];
    return NULL;
}

static void begin_anew(wr_served *s, wr_stream *stream)
{
    s->stream = stream;
    s->judged = s->wastes = false;
    wr_follower_init(&s->follower, &s->course);
}

void wr_serve_forget_stream_locked(wr_cache *cache, const wr_stream *stream)
{
    wr_served *s = wr_served_locked(cache, stream);
    if (!s) return;
    s->region = NULL;
    begin_anew(s, NULL);
}

void wr_serve_forget_region_locked(wr_cache *cache, const wr_segment *region)
{
    wr_serving *serving = wr_serving_locked(cache);
    for (size_t i = 0; serving && i < serving->count; i++)
        if (serving->arenas[i].region == region) serving->arenas[i].region = NULL;
}

bool wr_serve_trusts_locked(const wr_cache *cache, const wr_stream *stream)
{
    const wr_served *s = wr_served_locked(cache, stream);
    return s && wr_follower_trusted(&s->follower);
}

void wr_serve_distrust_locked(const wr_cache *cache, const wr_stream *stream)
{
    wr_served *s = wr_served_locked(cache, stream);
    if (s) wr_follower_fail(&s->follower, WR_TRUST_LOST);
}

void wr_serve_release(wr_cache *cache)
{
    destroy(wr_serving_locked(cache));
    destroy(cache->laid_down);
}

/* ---- the place of one request ------------------------------------------------------------------------------------ */

/* The place that the plan has for a request. */
typedef struct place {
    uint64_t serial;    /* of the plan */
    size_t from, to;    /* in the arena */
    wr_stream *lender;  /* the stream whose arena it is in; NULL: the request's own */
    const void *native; /* of the request's stream */
    bool guessed;       /* the place may be meant for another request of the size */
    bool grew;          /* new memory was made for it */
} place;

static bool may_have(const wr_served *s, const wr_request *request)
{
    if (s->named) return s->native == (uint64_t)(uintptr_t)request->stream->native;
    return wr_course_may_begin(&s->course, request->fit.block_bytes);
}

/* For a stream without an arena: the first that may begin as the stream does, and from which nothing was handed out. A
 * stream that begins otherwise may have come late: it gets a plan's only arena, until another stream begins as that
 * does. */
static wr_served *arena_for(wr_serving *serving, const wr_request *request)
{
    for (size_t i = 0; i < serving->count; i++) {
        wr_served *s = &serving->arenas[i];
        if (!s->region && !s->growing && may_have(s, request)) return s;
    }
    wr_served *first = &serving->arenas[0];
    return serving->count == 1 && !first->stream && !first->named ? first : NULL;
}

static wr_served *arena_of_locked(const wr_cache *cache, const wr_request *request)
{
    if (wr_cache_check_stream(request) != WEIR_OK) return NULL;
    wr_serving *serving = wr_serving_locked(cache);
    wr_served *s = wr_served_locked(cache, request->stream);
    if (!s && serving) s = arena_for(serving, request);
    if (s && s->stream != request->stream) begin_anew(s, request->stream);
    return s;
}

/* A region of an earlier plan is used again, unless some of its addresses are unusable. */
static void find_region_locked(const wr_cache *cache, wr_served *s)
{
    const wr_bin *bin = wr_mempool_bin(cache->pools, s->stream, WR_PLANNED);
    wr_segment *segment = bin ? bin->segments : NULL;
    const size_t needed = s->bytes + 2 * WR_SEGMENT_UNIT; /* rounded up, and always an absent end */
    while (segment && (segment->region->closed || segment->region->broken || segment->bytes < needed))
        segment = segment->next;
    s->region = segment;
}

static wr_outcome find_locked(wr_cache *cache, const wr_request *request, place *at)
{
    wr_served *s = arena_of_locked(cache, request);
    uint32_t entry = 0;
    if (!s) return WR_UNPLANNED;
    const wr_followed how = wr_follow(&s->follower, &s->course, request->fit.block_bytes, &entry);
    if (how == WR_FOLLOW_FOUND) WR_COUNT(cache->pools, plan_resyncs, 1);
    if (how == WR_FOLLOW_NONE || !wr_follower_trusted(&s->follower)) return WR_UNPLANNED;
    if (!s->judged && how != WR_FOLLOW_RESIDENT) {
        s->judged = true;
        s->wastes = !wr_course_begin_at(&s->course, entry);
    }
    if (s->wastes) return WR_UNPLANNED;
    const wr_planned *e = &s->course.entries[entry];
    const bool lent = s->host && e->offset >= s->bytes;
    const size_t from = (size_t)e->offset - (lent ? s->bytes : 0);
    *at = (place){ .serial = wr_serving_locked(cache)->serial,
                   .from = from,
                   .to = from + (size_t)e->bytes,
                   .guessed = how == WR_FOLLOW_RESIDENT,
                   .native = request->stream->native,
                   .lender = lent ? s->host->stream : NULL };
    return lent && !at->lender ? WR_UNPLANNED : WR_LACKING;
}

/* The region's blocks tell the truth about a place: only free ones may be there. */
static wr_outcome look_locked(const wr_segment *region, const place *at)
{
    const char *from = region->base + at->from, *to = region->base + at->to;
    const wr_block *block = wr_starts_block_at(region, from);
    wr_outcome found = block->base + block->bytes >= to ? WR_SERVED : WR_LACKING;
    for (; block && block->base < to; block = block->next) {
        if (block->state == WR_BLOCK_ABSENT || block->state == WR_BLOCK_HELD)
            found = WR_LACKING;
        else if (block->state != WR_BLOCK_FREE)
            return WR_LATE;
    }
    return found;
}

static wr_outcome hand_out_locked(const wr_request *request, wr_segment *region, const place *at, void **out)
{
    const wr_outcome found = look_locked(region, at);
    if (found != WR_SERVED) return found;
    wr_block *block = wr_cache_hand_out_at_locked(region, at->from, at->to - at->from, request->requested, at->native);
    if (!block) return WR_LACKING;
    block->lent = at->lender != NULL;
    *out = block->base;
    return WR_SERVED;
}

static wr_served *arena_at_locked(const wr_cache *cache, const wr_request *request, const place *at)
{
    const wr_serving *serving = wr_serving_locked(cache);
    if (wr_cache_check_stream(request) != WEIR_OK) return NULL;
    return serving && serving->serial == at->serial ? wr_served_locked(cache, request->stream) : NULL;
}

static wr_outcome serve_locked(wr_cache *cache, const wr_request *request, const place *at, void **out)
{
    wr_served *s = arena_at_locked(cache, request, at);
    if (!s || at->to > s->bytes) return WR_UNPLANNED; /* the lender's record may have become another stream's */
    if (!s->region) find_region_locked(cache, s);
    return s->region ? hand_out_locked(request, s->region, at, out) : WR_LACKING;
}

static wr_outcome serve(wr_cache *cache, const wr_request *request, const place *at, void **out)
{
    wr_front *front = wr_front_lock_stream(cache, request->stream, 0);
    const wr_outcome found = serve_locked(cache, request, at, out);
    wr_front_unlock(cache, front);
    return found;
}

/* When all goes by the plan, free chunks elsewhere that do not fit are exchanged for what fits, but for those that
 * streams work on, which `wait` then has noted. */
static weir_status back(wr_trim_wait *wait, const wr_request *request, const wr_stitch_range *range, bool *grew)
{
    size_t released = 0;
    weir_status status = wr_stitch_back(wait->cache, request, range, grew);
    if (status != WEIR_ERR_OUT_OF_MEMORY || range->budget == 0) return status;
    const weir_status trimmed = wr_chunks_trim_unplanned(wait, range->to - range->from, &released);
    if (released) return wr_stitch_back(wait->cache, request, range, grew);
    return trimmed == WEIR_OK ? status : trimmed;
}

/* The arena stays where it is while the move lock is held. NULL: there is none. */
static wr_served *range_of_locked(const wr_cache *cache, const wr_request *request, const place *at,
                                  wr_stitch_range *range)
{
    wr_served *s = arena_at_locked(cache, request, at);
    if (!s || at->to > s->bytes) return NULL;
    *range = (wr_stitch_range){ .region = &s->region,
                                .bytes = s->bytes,
                                .from = at->from,
                                .to = at->to,
                                .units = &s->course.units,
                                .sparing = s->follower.trust < WR_TRUST_MOST / 2,
                                .budget = wr_follower_proven(&s->follower) ? wr_serving_locked(cache)->budget : 0 };
    return s;
}

/* The place gets memory. Others may have it by the time it is looked at again. The move lock is held. */
static wr_outcome serve_backed_moving(wr_trim_wait *wait, const wr_request *request, place *at, void **out)
{
    wr_cache *cache = wait->cache;
    wr_stitch_range range;
    wr_cache_lock(cache);
    wr_served *s = range_of_locked(cache, request, at, &range);
    if (s) s->growing = true;
    wr_cache_unlock(cache);
    if (!s) return WR_LACKING;
    const bool backed = back(wait, request, &range, &at->grew) == WEIR_OK;
    wr_cache_lock(cache);
    s->growing = false;
    wr_cache_unlock(cache);
    return backed ? serve(cache, request, at, out) : WR_LACKING;
}

static wr_outcome serve_backed_once(wr_trim_wait *wait, const wr_request *request, place *at, void **out)
{
    wr_lock_acquire(&wait->cache->move_lock);
    const wr_outcome found = serve_backed_moving(wait, request, at, out);
    wr_lock_release(&wait->cache->move_lock);
    return found;
}

/* A block of the lender's, which nobody knows yet, is lent to the user, who waits for the lender's present work. When
 * it is freed, the lender waits for the user (wr_pending_chain). The move lock is held, so that neither stream ends. */
static weir_status lend_block(wr_cache *cache, wr_stream *user, const wr_stream *lender, const wr_segment *segment,
                              const void *block)
{
    bool chained = false;
    WR_TRY(wr_event_chain_uncaptured(cache->events, lender->native, user, &chained));
    return chained ? wr_pending_record(segment, block, user, cache->events) : WEIR_ERR_CAPTURE;
}

/* Unless the program has erroneously freed it meanwhile: it knows the address from the last time. */
static void take_back(wr_cache *cache, const wr_stream *lender, const wr_segment *segment, const void *at)
{
    wr_front *front = wr_front_lock_stream(cache, lender, 0);
    wr_block *block = wr_starts_block_at(segment, at);
    if (block->base == at && block->state == WR_BLOCK_LIVE && block->lent) wr_cache_give_locked(cache, block);
    wr_front_unlock(cache, front);
}

/* Nobody can wait for a stream that is capturing, nor make one wait that has ended. The move lock is held. */
static bool may_lend(wr_cache *cache, const wr_request *request, const place *at)
{
    wr_cache_lock(cache);
    const bool there = wr_served_locked(cache, at->lender) != NULL && wr_cache_check_target_locked(request) == WEIR_OK;
    wr_cache_unlock(cache);
    bool captured = true; /* also when nobody can tell */
    if (there) (void)!wr_stream_ask_captured(cache->backend, cache->device, at->lender->native, &captured);
    return !captured;
}

/* A lent place is served as if to its lender. */
static wr_outcome serve_lent_once(wr_trim_wait *wait, const wr_request *request, place *at, void **out)
{
    wr_cache *cache = wait->cache;
    wr_request lent = *request;
    lent.stream = at->lender;
    wr_pending_poll(cache);
    wr_lock_acquire(&cache->move_lock);
    lent.stream_id = atomic_load_explicit(&at->lender->id, memory_order_relaxed);
    wr_outcome found = may_lend(cache, request, at) ? serve(cache, &lent, at, out) : WR_LATE;
    if (found == WR_LACKING) found = serve_backed_moving(wait, &lent, at, out);
    const wr_segment *segment = found == WR_SERVED ? wr_address_find(*out) : NULL;
    if (found == WR_SERVED && lend_block(cache, request->stream, at->lender, segment, *out) != WEIR_OK) {
        take_back(cache, at->lender, segment, *out);
        *out = NULL;
        found = WR_LATE;
    }
    wr_lock_release(&cache->move_lock);
    return found;
}

/* While the plan is served, for all requests together: work may take any time, or wait for the thread. */
#define WAITED_MOST_NS UINT64_C(1000000000)

static uint64_t may_wait(wr_cache *cache, const place *at)
{
    wr_cache_lock(cache);
    const wr_serving *serving = wr_serving_locked(cache);
    const uint64_t waited = serving && serving->serial == at->serial ? serving->waited : WAITED_MOST_NS;
    wr_cache_unlock(cache);
    return waited < WAITED_MOST_NS ? WAITED_MOST_NS - waited : 0;
}

static void note_wait(wr_cache *cache, const place *at, uint64_t nanoseconds)
{
    wr_cache_lock(cache);
    wr_serving *serving = wr_serving_locked(cache);
    if (serving && serving->serial == at->serial) serving->waited += nanoseconds;
    wr_cache_unlock(cache);
}

/* From memory that the place gets, for which work on other memory may have to be over. That is waited for, and memory
 * is looked for once more. */
static wr_outcome serve_with_wait(wr_cache *cache, const wr_request *request, place *at, void **out)
{
    wr_outcome (*const once)(wr_trim_wait *, const wr_request *, place *, void **) =
        at->lender ? serve_lent_once : serve_backed_once;
    wr_trim_wait wait = { .cache = cache };
    wr_outcome found = once(&wait, request, at, out);
    const uint64_t most = found == WR_LACKING && wait.count ? may_wait(cache, at) : 0;
    if (most) {
        const uint64_t began = wr_clock_ns(CLOCK_MONOTONIC);
        if (wr_trim_wait_briefly(&wait, most)) found = once(&wait, request, at, out);
        note_wait(cache, at, wr_clock_ns(CLOCK_MONOTONIC) - began);
    }
    (void)wr_trim_wait_again(&wait, true);
    return found;
}

static bool count_locked(wr_cache *cache, const wr_request *request, const place *at, wr_outcome found)
{
    if (found == WR_SERVED && !at->grew) WR_COUNT(cache->pools, hits, 1);
    wr_count_planned(cache->pools, found, request->fit.block_bytes);
    return wr_serve_count_locked(cache, request->stream, found);
}

/* ---- one request, all together ----------------------------------------------------------------------------------- */

static void distrust_locked(const wr_cache *cache, const wr_request *request, const place *at, wr_outcome found)
{
    wr_served *s = at->guessed ? NULL : arena_at_locked(cache, request, at);
    if (s) wr_follower_fail(&s->follower, found == WR_LATE ? WR_TRUST_LATE : WR_TRUST_LOST);
}

/* Serves from memory at hand. True: nothing more can be done. *laid_down: the plan is no longer served. */
static bool serve_at_once(wr_cache *cache, const wr_request *request, place *at, wr_outcome *found, bool *laid_down,
                          void **out)
{
    wr_front *front = wr_front_lock_stream(cache, request->stream, 0);
    *found = find_locked(cache, request, at);
    if (*found != WR_UNPLANNED && !at->lender) *found = serve_locked(cache, request, at, out);
    const bool over = *found == WR_SERVED || *found == WR_UNPLANNED;
    if (over) *laid_down = count_locked(cache, request, at, *found);
    wr_front_unlock(cache, front);
    return over;
}

bool wr_serve_take(wr_cache *cache, const wr_request *request, void **out)
{
    place at = { 0 };
    wr_outcome found;
    bool laid_down = false;
    *out = NULL;
    if (request->pool_name != 0) return false; /* this serves the default pool only */
    if (WR_LIKELY(serve_at_once(cache, request, &at, &found, &laid_down, out))) return laid_down;
    if (found == WR_LATE && atomic_load_explicit(&cache->pending, memory_order_relaxed) != 0) {
        wr_pending_poll(cache);
        found = serve(cache, request, &at, out);
    }
    /* Lent places are looked at here for the first time. */
    if (found == WR_LACKING) found = serve_with_wait(cache, request, &at, out);
    wr_cache_lock(cache);
    if (found != WR_SERVED) distrust_locked(cache, request, &at, found);
    laid_down = count_locked(cache, request, &at, found);
    wr_cache_unlock(cache);
    return laid_down;
}

void wr_serve_lend(wr_cache *cache, const wr_request *request, void **out)
{
    *out = NULL;
    if (request->pool_name != 0 || !wr_mempool_chunked(request->pool)) return;
    wr_front *front = wr_front_lock_stream(cache, request->stream, 0);
    const bool spared = wr_cache_check_stream(request) != WEIR_OK || wr_serve_trusts_locked(cache, request->stream);
    wr_block *block = spared ? NULL : wr_cache_best_of_locked(request, WR_PLANNED);
    if (block && wr_cache_hand_out_locked(cache, request, block, out) == WEIR_OK) WR_COUNT(cache->pools, hits, 1);
    wr_front_unlock(cache, front);
}
