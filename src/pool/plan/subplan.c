#include "pool/plan/subplan.h"

#include "base/meta.h"
#include "base/size.h"
#include "pool/bin.h"
#include "pool/count.h"
#include "pool/plan/follow.h"
#include "pool/starts.h"

#include <assert.h>

struct wr_subplan {
    wr_subplan *next;
    uint64_t serial;     /* number of the plan, by the cache's count */
    uint64_t index;      /* of the arena in the plan */
    uint32_t plans_pool; /* the pool's number in the plan */
    size_t bytes;        /* of the segment */
    wr_course course;
    wr_follower follower;
    const wr_stream *stream; /* while a pool has it; NULL: the stream has ended */
    wr_segment *segment;
    bool asking; /* a thread is asking for the segment */
};

/* ---- those that wait --------------------------------------------------------------------------------------------- */

/* An arena that streams share cannot be served, nor one that is larger than the device. */
static bool is_wanted(const wr_cache *cache, const weir_plan_arena *a)
{
    return a->device == cache->device && a->pool != 0 && a->streams == 1 && a->bytes <= cache->chunks.region_bytes;
}

static weir_status make(const weir_plan *plan, uint64_t index, wr_subplan **out)
{
    const weir_plan_arena *a = &plan->arenas[index];
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_subplan), "plan of a memory pool", &memory));
    wr_subplan *s = memory;
    *s = (wr_subplan){ .index = index, .plans_pool = a->pool, .bytes = wr_round_up((size_t)a->bytes, WR_SEGMENT_UNIT) };
    weir_status status = wr_course_init(&s->course, plan, a);
    if (status != WEIR_OK) {
        wr_meta_free(s);
        return status;
    }
    wr_follower_init(&s->follower, &s->course);
    *out = s;
    return WEIR_OK;
}

weir_status wr_subplans_make(const wr_cache *cache, const weir_plan *plan, wr_subplan **list)
{
    wr_subplan *first = NULL, **tail = &first;
    weir_status status = WEIR_OK;
    for (uint64_t i = 0; i < plan->arena_count && status == WEIR_OK; i++) {
        if (!is_wanted(cache, &plan->arenas[i])) continue;
        status = make(plan, i, tail);
        if (status == WEIR_OK) tail = &(*tail)->next;
    }
    if (status == WEIR_OK)
        *list = first;
    else
        wr_subplans_destroy(first);
    return status;
}

void wr_subplans_destroy(wr_subplan *list)
{
    while (list) {
        wr_subplan *s = list;
        list = s->next;
        wr_course_release(&s->course);
        wr_meta_free(s);
    }
}

static unsigned length_of(const wr_subplan *list)
{
    unsigned length = 0;
    for (; list; list = list->next) length++;
    return length;
}

void wr_subplans_offer_locked(wr_cache *cache, wr_subplan **list)
{
    wr_subplan *former = cache->subplans;
    cache->subplans = *list;
    cache->subplan_serial++;
    for (wr_subplan *s = *list; s; s = s->next) s->serial = cache->subplan_serial;
    atomic_fetch_add(&cache->subplan_count, length_of(*list) - length_of(former));
    *list = former;
}

static void wait_again_locked(wr_cache *cache, wr_subplan *s)
{
    wr_subplan **link = &cache->subplans;
    while (*link && (*link)->index < s->index) link = &(*link)->next;
    s->next = *link;
    *link = s;
    assert(!s->segment);
    s->asking = false;
    wr_follower_init(&s->follower, &s->course);
}

wr_subplan *wr_subplans_return_locked(wr_cache *cache, wr_mempool *pool)
{
    wr_subplan *outdated = NULL;
    while (pool->subplans) {
        wr_subplan *s = pool->subplans;
        pool->subplans = s->next;
        if (s->serial == cache->subplan_serial) {
            wait_again_locked(cache, s);
            continue;
        }
        s->next = outdated;
        outdated = s;
        atomic_fetch_sub(&cache->subplan_count, 1);
    }
    return outdated;
}

void wr_subplans_release(wr_cache *cache)
{
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next) wr_subplans_destroy(pool->subplans);
    wr_subplans_destroy(cache->subplans);
}

/* ---- whose they are ---------------------------------------------------------------------------------------------- */

static wr_subplan *own_locked(const wr_mempool *pool, const wr_stream *stream)
{
    wr_subplan *s = pool->subplans;
    while (s && s->stream != stream) s = s->next;
    return s;
}

static bool holds_any(const wr_mempool *pool, const wr_stream *stream)
{
    for (int class = WR_SMALL; class < WR_CLASSES; class ++) {
        const wr_bin *bin = wr_mempool_bin(pool, stream, class);
        if (bin && bin->segments) return true;
    }
    return false;
}

/* Whether segments of any size, and blocks at any multiple of the plan's alignment, are as good as others in the pool.
 * Memory shared with other processes is shared by the segment. */
static bool may_be_planned(const wr_mempool *pool)
{
    const weir_mempool_options *rules = &pool->rules;
    return rules->alignment <= WEIR_PLAN_ALIGNMENT && !rules->no_split && !rules->deterministic &&
           rules->memory != WEIR_MEMORY_EXPORTABLE;
}

/* The arenas for one pool of a plan go to one pool, which gets no others. */
static bool may_have_locked(const wr_cache *cache, const wr_mempool *pool, const wr_subplan *wanted)
{
    for (const wr_mempool *p = cache->pools; p; p = p->next)
        for (const wr_subplan *s = p->subplans; s; s = s->next) {
            const bool same = s->serial == wanted->serial && s->plans_pool == wanted->plans_pool;
            if (same != (p == pool)) return false;
        }
    return true;
}

/* The first subplan that the pool may have, and that may begin as the stream does there. */
static wr_subplan *claim_locked(wr_cache *cache, const wr_request *request, size_t bytes)
{
    wr_mempool *pool = request->pool;
    if (!cache->subplans || !may_be_planned(pool) || holds_any(pool, request->stream)) return NULL;
    for (wr_subplan **link = &cache->subplans; *link; link = &(*link)->next) {
        wr_subplan *s = *link;
        const bool fits = pool->rules.cap == 0 || s->bytes <= pool->rules.cap;
        if (!wr_course_may_begin(&s->course, bytes) || !fits || !may_have_locked(cache, pool, s)) continue;
        *link = s->next;
        s->next = pool->subplans;
        pool->subplans = s;
        s->stream = request->stream;
        return s;
    }
    return NULL;
}

bool wr_subplans_agree_locked(const wr_mempool *pool)
{
    for (const wr_subplan *s = pool->subplans; s; s = s->next) {
        if (!s->stream || !s->segment) continue;
        const wr_bin *bin = wr_mempool_bin(pool, s->stream, WR_LARGE);
        const wr_segment *segment = bin ? bin->segments : NULL;
        while (segment && segment != s->segment) segment = segment->next;
        if (!segment || segment->bytes != s->bytes) return false;
    }
    return true;
}

void wr_subplan_forget_segment_locked(const wr_segment *segment)
{
    for (wr_subplan *s = segment->bin->pool->subplans; s; s = s->next)
        if (s->segment == segment) s->segment = NULL;
}

void wr_subplan_forget_stream_locked(const wr_cache *cache, const wr_stream *stream)
{
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next) {
        wr_subplan *s = own_locked(pool, stream);
        if (s) s->stream = NULL;
    }
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

/* Plans have the sizes that the default pool makes of requests; private pools round large ones further. */
static size_t planned_bytes(const wr_request *request)
{
    const wr_cache *cache = request->pool->cache;
    wr_fit fit;
    cache->policy->fit(&cache->options, request->requested, &fit);
    return fit.block_bytes;
}

static wr_outcome follow_locked(wr_subplan *s, const wr_request *request, size_t bytes, wr_subplace *at)
{
    uint32_t entry = 0;
    const wr_followed how = wr_follow(&s->follower, &s->course, bytes, &entry);
    if (how == WR_FOLLOW_FOUND) WR_COUNT(request->pool, plan_resyncs, 1);
    if (how == WR_FOLLOW_NONE || !wr_follower_trusted(&s->follower)) return WR_UNPLANNED;
    const wr_planned *e = &s->course.entries[entry];
    *at = (wr_subplace){ (size_t)e->offset, (size_t)(e->offset + e->bytes), how == WR_FOLLOW_RESIDENT };
    return WR_LACKING;
}

static wr_outcome serve_locked(const wr_request *request, const wr_subplan *s, const wr_subplace *at, void **out)
{
    if (!s->segment) return WR_LACKING;
    const char *from = s->segment->base + at->from, *to = s->segment->base + at->to;
    const wr_block *there = wr_starts_block_at(s->segment, from);
    if (there->state != WR_BLOCK_FREE || there->base + there->bytes < to) return WR_LATE;
    const wr_block *block = wr_cache_hand_out_at_locked(s->segment, at->from, at->to - at->from, request->requested,
                                                        request->stream->native);
    if (!block) return WR_LACKING;
    *out = block->base;
    return WR_SERVED;
}

static void finish_locked(wr_subplan *s, const wr_request *request, const wr_subplace *at, wr_outcome found, bool grown)
{
    if (found == WR_SERVED && !grown) WR_COUNT(request->pool, hits, 1);
    if (found == WR_LATE && !at->guessed) wr_follower_fail(&s->follower, WR_TRUST_LATE);
    if (found == WR_LACKING) wr_follower_fail(&s->follower, WR_TRUST_LOST);
    wr_count_planned(request->pool, found, request->fit.block_bytes);
}

static wr_subplan *subplan_locked(const wr_request *request)
{
    if (wr_cache_check_target_locked(request) != WEIR_OK) return NULL; /* the ordinary path reports the error */
    return own_locked(request->pool, request->stream);
}

/* Serves from memory at hand. *grows: this thread is to ask for the segment first. */
static wr_outcome serve_at_once_locked(wr_subplan *s, const wr_request *request, size_t bytes, wr_subplace *at,
                                       bool *grows, void **out)
{
    wr_outcome found = follow_locked(s, request, bytes, at);
    if (found != WR_UNPLANNED) found = serve_locked(request, s, at, out);
    *grows = found == WR_LACKING && !s->asking && !holds_any(request->pool, request->stream);
    s->asking |= *grows;
    if (found != WR_LATE && !*grows) finish_locked(s, request, at, found, false);
    return found;
}

/* No idle memory is given back for a segment that cannot be had anyway. */
static bool is_within_bounds(wr_cache *cache, const wr_mempool *pool, size_t bytes)
{
    wr_cache_lock(cache);
    const uint64_t limit = cache->limit, cap = pool->rules.cap;
    wr_cache_unlock(cache);
    return (limit == 0 || bytes <= limit) && (cap == 0 || bytes <= cap);
}

/* Asks for the segment. Idle memory goes for it if need be, as it would, little by little, for the blocks planned
 * there. */
static bool ask(wr_cache *cache, const wr_request *request, wr_segment **segment, size_t bytes)
{
    wr_request larger = *request;
    size_t released = 0;
    if (!is_within_bounds(cache, request->pool, bytes)) return false;
    larger.fit = (wr_fit){ .block_bytes = bytes, .segment_bytes = bytes, .class = WR_LARGE };
    weir_status status = wr_cache_grow(cache, &larger, segment, NULL);
    if (status != WEIR_ERR_OUT_OF_MEMORY) return status == WEIR_OK;
    (void)!wr_cache_trim_for(&larger, bytes, &released);
    return released != 0 && wr_cache_grow(cache, &larger, segment, NULL) == WEIR_OK;
}

/* By the time the source has answered, the pool may be gone, and with it the subplan; or paused, when later requests
 * may ask again. */
static void grow(wr_cache *cache, const wr_request *request, wr_subplan *s, size_t bytes, const wr_subplace *at,
                 void **out)
{
    const bool grown = ask(cache, request, &s->segment, bytes);
    wr_cache_lock(cache);
    const bool stays = wr_mempool_name_of(request->pool) == request->pool_name;
    s = stays && wr_cache_check_stream(request) == WEIR_OK ? own_locked(request->pool, request->stream) : NULL;
    if (s) s->asking = false;
    if (s && wr_cache_check_pool_locked(request) == WEIR_OK)
        finish_locked(s, request, at, grown ? serve_locked(request, s, at, out) : WR_LACKING, grown);
    wr_cache_unlock(cache);
}

bool wr_subplan_take(wr_cache *cache, const wr_request *request, wr_subplace *at, void **out)
{
    const size_t planned = planned_bytes(request);
    size_t bytes = 0;
    wr_outcome found = WR_UNPLANNED;
    bool grows = false;
    *out = NULL;
    wr_cache_lock(cache);
    const bool serves = wr_cache_check_target_locked(request) == WEIR_OK;
    wr_subplan *s = serves ? own_locked(request->pool, request->stream) : NULL;
    if (serves && !s) s = claim_locked(cache, request, planned);
    if (s) {
        bytes = s->bytes;
        found = serve_at_once_locked(s, request, planned, at, &grows, out);
    }
    wr_cache_unlock(cache);
    if (grows) grow(cache, request, s, bytes, at, out);
    return found == WR_LATE;
}

void wr_subplan_retry(wr_cache *cache, const wr_request *request, const wr_subplace *at, void **out)
{
    wr_cache_lock(cache);
    wr_subplan *s = subplan_locked(request);
    if (s) finish_locked(s, request, at, serve_locked(request, s, at, out), false);
    wr_cache_unlock(cache);
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

wr_block *wr_subplan_choose_locked(const wr_request *request, wr_block *block)
{
    const wr_subplan *s = own_locked(request->pool, request->stream);
    if (!s || !s->segment) return block;
    if (wr_follower_trusted(&s->follower)) {
        while (block && block->segment == s->segment) block = wr_bin_larger(s->segment->bin, block);
        return block;
    }
    if (block || request->fit.class != WR_SMALL) return block;
    block = wr_bin_best_fit(s->segment->bin, request->fit.block_bytes);
    while (block && block->segment != s->segment) block = wr_bin_larger(s->segment->bin, block);
    return block;
}

bool wr_subplan_yield(wr_cache *cache, const wr_request *request)
{
    wr_cache_lock(cache);
    wr_subplan *s = subplan_locked(request);
    const bool yields = s && s->segment && wr_follower_trusted(&s->follower);
    if (yields) wr_follower_fail(&s->follower, WR_TRUST_MOST);
    wr_cache_unlock(cache);
    return yields;
}
