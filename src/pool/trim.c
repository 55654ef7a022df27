/*
 * trim: giving segments back, and moving them between streams. Each driver call happens between two locked steps: the
 * first hides the segments concerned, the second records the outcome. The move lock is held throughout, so that no
 * stream ends while its segments are hidden.
 */
#include "pool/address.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"
#include "pool/plan/subplan.h"
#include "pool/source.h"
#include "pool/starts.h"
#include "stream/gate.h"

#include <assert.h>

/* ---- giving back ------------------------------------------------------------------------------------------------- */

/* Hides an idle segment: nobody finds its block, but it still counts as reserved. */
static void hide_locked(wr_segment *segment)
{
    segment->cache->hidden++;
    LIST_INSERT_HEAD(&segment->cache->hidden_list, segment, in_hidden);
    segment->cache->hidden_bytes += wr_segment_held(segment);
    segment->cache->hidden_paused += segment->bytes - wr_segment_held(segment);
    wr_subplan_forget_segment_locked(segment);
    wr_bin_remove(segment->bin, segment->first);
    wr_bin_drop_segment(segment->bin, segment);
}

/* The same, appending to a list linked by `next`. Returns the new end. */
static wr_segment **hide_in_list_locked(wr_segment *segment, wr_segment **tail)
{
    hide_locked(segment);
    segment->next = NULL;
    *tail = segment;
    return &segment->next;
}

static void unhide_locked(wr_segment *segment)
{
    LIST_REMOVE(segment, in_hidden);
    segment->cache->hidden--;
    segment->cache->hidden_bytes -= wr_segment_held(segment);
    segment->cache->hidden_paused -= segment->bytes - wr_segment_held(segment);
}

static void into_bin_locked(wr_segment *segment)
{
    wr_bin_add_segment(segment->bin, segment);
    wr_bin_insert(segment->bin, segment->first);
}

static void show_locked(wr_segment *segment)
{
    unhide_locked(segment);
    into_bin_locked(segment);
}

/* A hidden segment goes to the driver. It counts as given back, so that what another thread gets instead is not
 * reserved twice; the limit still counts it. Removed from the address map and recorded now: once the driver has the
 * addresses, another thread may get, insert and record them. */
static void leave_locked(wr_cache *cache, wr_segment *segment)
{
    wr_mempool *pool = segment->bin->pool;
    cache->departed++;
    wr_segment_use(segment);
    wr_history_record(&cache->history, WEIR_EVENT_SEGMENT_FREE, segment->base, segment->bytes,
                      segment->bin->stream->native, wr_bin_pool_id(segment->bin));
    unhide_locked(segment);
    pool->leaving += wr_segment_held(segment);
    cache->leaving += wr_mempool_limited_of(pool, wr_segment_held(segment));
    wr_count(wr_counter_segment_out, segment->bin, segment->first);
    wr_address_remove(segment->base, segment->bytes);
}

/* The driver refused. The address tables are there, so inserting cannot fail. */
static void come_back_locked(wr_cache *cache, wr_segment *segment)
{
    weir_status mapped = wr_address_insert(segment->base, segment->bytes, segment);
    assert(mapped == WEIR_OK);
    (void)mapped;
    wr_count(wr_counter_segment_in, segment->bin, segment->first);
    wr_history_record(&cache->history, WEIR_EVENT_SEGMENT_ALLOC, segment->base, segment->bytes,
                      segment->bin->stream->native, wr_bin_pool_id(segment->bin));
    into_bin_locked(segment);
}

static void forget_locked(wr_cache *cache, wr_segment *segment)
{
    wr_mempool *pool = segment->bin->pool;
    WR_COUNT(pool, driver_frees, 1);
    pool->segments--;
    cache->ledger.changes++;
    wr_starts_remove(segment->first);
    wr_record_block_done(cache, segment->first);
    wr_record_segment_done(cache, segment);
}

/* Gives a hidden segment back. If the driver refuses it, or it is not to be waited for, it is shown again. */
static weir_status give_back(wr_trim_wait *wait, wr_segment *segment)
{
    wr_cache *cache = wait->cache;
    const size_t held = wr_segment_held(segment);
    wr_mempool *pool = segment->bin->pool;
    wr_range range = wr_range_of(segment);
    wr_cache_lock(cache);
    weir_status status = wr_trim_wait_launches_locked(wait, pool);
    wr_cache_unlock(cache);
    if (status == WEIR_OK) status = wr_trim_wait_stream(wait, segment->bin->stream);
    wr_cache_lock(cache);
    if (status == WEIR_OK)
        leave_locked(cache, segment);
    else
        show_locked(segment);
    wr_cache_unlock(cache);
    if (status != WEIR_OK) return status;

    status = wr_source_give(pool, segment->bin->stream, &range);
    wr_cache_lock(cache);
    pool->leaving -= held;
    cache->leaving -= wr_mempool_limited_of(pool, held);
    if (status == WEIR_OK || range.lost) {
        forget_locked(cache, segment);
    } else {
        segment->copy = range.copy;
        come_back_locked(cache, segment);
    }
    wr_cache_unlock(cache);
    return status;
}

static weir_status give_back_counted(wr_trim_wait *wait, wr_segment *segment, size_t *released, bool *captured)
{
    const size_t bytes = wr_segment_held(segment);
    const weir_status status = give_back(wait, segment);
    if (status == WEIR_OK) *released += bytes;
    return wr_trim_wait_spare(status, captured);
}

/* Gives back the segments of a list linked by `next`, in order. All are tried. Returns the first failure, or else
 * WEIR_ERR_CAPTURE where a capturing stream has some of it. Frees pools that this leaves without memory and
 * references. */
static weir_status give_back_list(wr_trim_wait *wait, wr_segment *list, size_t *released)
{
    weir_status first = WEIR_OK;
    bool captured = false;
    for (wr_segment *following; list; list = following) {
        following = list->next;
        wr_keep_first(&first, give_back_counted(wait, list, released, &captured));
    }
    wr_mempool_sweep(wait->cache);
    return first == WEIR_OK && captured ? WEIR_ERR_CAPTURE : first;
}

/* Of idle large segments. */
typedef struct ages {
    uint64_t total, count;
} ages;

static uint64_t age_of(const wr_segment *segment)
{
    return segment->cache->searches[WR_LARGE] - segment->first->freed_at;
}

/* Small free blocks may be many, idle segments are mostly larger. */
static wr_block *first_as_large_as_idle(wr_bin *bin)
{
    size_t least = SIZE_MAX;
    for (const wr_segment *s = bin->segments; s; s = s->next)
        if (s->bytes < least && wr_segment_idle(s)) least = s->bytes;
    return least == SIZE_MAX ? NULL : wr_bin_best_fit(bin, least);
}

/* Hides a bin's idle segments, of at least the average age if there are `ages`, appending them to a list by size and
 * address. */
static wr_segment **hide_idle_locked(wr_bin *bin, const ages *a, wr_segment **tail)
{
    for (wr_block *block = first_as_large_as_idle(bin), *larger; block; block = larger) {
        wr_segment *segment = block->segment;
        larger = wr_bin_larger(bin, block);
        if (wr_segment_idle(segment) && (!a || age_of(segment) * a->count >= a->total))
            tail = hide_in_list_locked(segment, tail);
    }
    return tail;
}

/* Large segments first, then by stream, size and address: the order in which PyTorch empties its cache. Of private
 * pools small ones go first there. */
static wr_segment **hide_pool_locked(const wr_mempool *pool, const wr_stream *only, wr_segment **tail)
{
    const bool small_first = pool->is_private && pool->cache->policy->exact;
    for (int i = 0; i < WR_BINS; i++) {
        const int class = small_first ? i : WR_BINS - 1 - i;
        for (wr_bin *bin = pool->first_bin; bin; bin = bin->next)
            if ((int)bin->class == class && (!only || bin->stream == only)) tail = hide_idle_locked(bin, NULL, tail);
    }
    return tail;
}

static weir_status trim_segments(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t *released)
{
    wr_cache *cache = wait->cache;
    wr_segment *list = NULL, **tail = &list;
    wr_cache_lock(cache);
    for (wr_mempool *p = wr_mempool_first_in_locked(cache, scope); p; p = wr_mempool_next_in_locked(p, scope))
        tail = hide_pool_locked(p, scope->stream, tail);
    wr_cache_unlock(cache);
    return give_back_list(wait, list, released);
}

/* What a capturing stream holds stays; that does not make giving back the rest a failure. */
static weir_status spared(weir_status status)
{
    return status == WEIR_ERR_CAPTURE ? WEIR_OK : status;
}

static weir_status trim_all(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t *released)
{
    const weir_status of_segments = trim_segments(wait, scope, released);
    weir_status first = spared(of_segments);
    wr_keep_first(&first, wr_chunks_trim(wait, scope, SIZE_MAX, released));
    wr_mempool_sweep(wait->cache);
    return first == WEIR_OK ? of_segments : first;
}

static bool trimmable(wr_trim_wait *wait, const wr_bin *bin)
{
    return !wr_trim_wait_busy(wait, bin->stream) && wr_trim_wait_launches_locked(wait, bin->pool) == WEIR_OK;
}

static wr_segment *smallest_idle(wr_bin *bin, size_t at_least)
{
    wr_block *block = wr_bin_best_fit(bin, at_least);
    while (block && !wr_segment_idle(block->segment)) block = wr_bin_larger(bin, block);
    return block ? block->segment : NULL;
}

/* Blocks smaller than any segment cannot be idle segments, and may be many. */
static wr_segment *largest_idle(wr_bin *bin)
{
    wr_block *block = wr_bin_largest(bin);
    for (; block && block->bytes >= WR_SEGMENT_UNIT; block = wr_bin_smaller(bin, block))
        if (wr_segment_idle(block->segment)) return block->segment;
    return NULL;
}

/* Of those that are enough by themselves the smaller one, else the larger one. */
static bool is_better(const wr_segment *a, const wr_segment *b, size_t enough)
{
    return a->bytes >= enough ? b->bytes < enough || a->bytes < b->bytes : a->bytes > b->bytes;
}

static wr_segment *best_trimmable_locked(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t enough)
{
    wr_segment *best = NULL;
    const wr_mempool *pool = wr_mempool_first_in_locked(wait->cache, scope);
    for (; pool; pool = wr_mempool_next_in_locked(pool, scope))
        for (wr_bin *bin = pool->first_bin; bin; bin = bin->next) {
            wr_segment *s = smallest_idle(bin, enough);
            if (!s) s = largest_idle(bin);
            if (s && (!best || is_better(s, best, enough)) && trimmable(wait, bin)) best = s;
        }
    return best;
}

static weir_status trim_enough(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t enough, size_t *released)
{
    wr_cache *cache = wait->cache;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && *released < enough && wait->count < WR_TRIM_WAIT_STREAMS) {
        wr_cache_lock(cache);
        wr_segment *segment = best_trimmable_locked(wait, scope, enough - *released);
        if (segment) hide_locked(segment);
        wr_cache_unlock(cache);
        if (!segment) break;
        segment->next = NULL;
        status = give_back_list(wait, segment, released);
    }
    return status;
}

static weir_status trim_once(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t enough, size_t *released)
{
    wr_cache *cache = wait->cache;
    weir_status status = WEIR_ERR_CAPTURE;
    wr_lock_acquire(&cache->move_lock);
    wr_fronts_empty(cache);
    if (enough != SIZE_MAX) status = trim_enough(wait, scope, enough, released);
    /* A segment that stays would be found again and again, so then everything that can go goes. */
    if (status != WEIR_OK) status = spared(trim_segments(wait, scope, released));
    if (*released < enough) wr_keep_first(&status, spared(wr_chunks_trim(wait, scope, enough, released)));
    wr_mempool_sweep(cache);
    wr_lock_release(&cache->move_lock);
    return status;
}

static weir_status trim(wr_cache *cache, const wr_mempool_scope *scope, size_t enough, size_t *released)
{
    wr_trim_wait wait = { .cache = cache };
    weir_status status;
    *released = 0;
    do status = trim_once(&wait, scope, enough, released);
    while (wr_trim_wait_again(&wait, *released >= enough));
    return status;
}

weir_status wr_cache_trim(wr_cache *cache, wr_mempool *own, size_t enough, size_t *released)
{
    if (cache->policy->exact) own = NULL; /* PyTorch leaves a pool that is in use its idle memory */
    const wr_mempool_scope scope = { .of = WR_SCOPE_TRIMMABLE, .pool = own };
    return trim(cache, &scope, enough, released);
}

void wr_cache_trim_without_work(wr_cache *cache)
{
    const wr_mempool_scope scope = { .of = WR_SCOPE_TRIMMABLE };
    wr_trim_wait wait = { .cache = cache };
    size_t released = 0;
    wr_clean_up(trim_once(&wait, &scope, SIZE_MAX, &released)); /* what cannot go back stays */
    (void)wr_trim_wait_again(&wait, true);
}

weir_status wr_cache_trim_for(const wr_request *request, size_t enough, size_t *released)
{
    wr_mempool *pool = request->pool;
    wr_cache *cache = pool->cache;
    const wr_mempool_scope capped = { .of = WR_SCOPE_ONE, .pool = pool, .name = request->pool_name };
    const wr_mempool_scope pinned = { .of = WR_SCOPE_TRIMMABLE, .pool = pool, .pinned = true };
    if (wr_cache_cap_refuses(request)) return trim(cache, &capped, enough, released);
    if (pool->rules.memory == WEIR_MEMORY_PINNED) return trim(cache, &pinned, enough, released);
    return wr_cache_trim(cache, pool, enough, released);
}

static weir_status trim_pool_once(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t *released)
{
    wr_cache *cache = wait->cache;
    wr_lock_acquire(&cache->move_lock);
    wr_fronts_empty_in(cache, scope->name);
    weir_status status = trim_all(wait, scope, released);
    wr_lock_release(&cache->move_lock);
    return spared(status);
}

weir_status wr_cache_trim_pool(wr_mempool *pool, wr_mempool_name name, size_t *released)
{
    const wr_mempool_scope scope = { .of = WR_SCOPE_ONE, .pool = pool, .name = name };
    wr_trim_wait wait = { .cache = pool->cache };
    weir_status status;
    *released = 0;
    do status = trim_pool_once(&wait, &scope, released);
    while (wr_trim_wait_again(&wait, false));
    return status;
}

void wr_cache_trim_inherited(wr_mempool *pool, wr_mempool_name name)
{
    wr_cache *cache = pool->cache;
    const wr_mempool_scope scope = {
        .of = WR_SCOPE_ONE, .pool = pool, .name = name, .stream = wr_stream_default_of(cache->streams)
    };
    wr_trim_wait wait = { .cache = cache };
    size_t released = 0;
    wr_cache_lock(cache);
    const bool any = wr_mempool_name_of(pool) == name && pool->inherited && pool->held[WR_HELD_BY_GRAPH] == 0;
    if (any) pool->inherited = false;
    wr_cache_unlock(cache);
    if (!any) return;
    weir_status status = WEIR_OK;
    wr_clean_up(status = trim_pool_once(&wait, &scope, &released));
    const bool rest = status != WEIR_OK || wait.count || wait.device || wr_gate_captures();
    wr_cache_lock(cache);
    pool->inherited |= rest && wr_mempool_name_of(pool) == name;
    wr_cache_unlock(cache);
    (void)wr_trim_wait_again(&wait, true);
}

void wr_cache_trim_released(wr_cache *cache)
{
    const wr_mempool_scope scope = { .of = WR_SCOPE_RELEASED };
    wr_trim_wait wait = { .cache = cache };
    size_t released = 0;
    wr_lock_acquire(&cache->move_lock);
    const weir_status status = trim_all(&wait, &scope, &released);
    if (status != WEIR_OK || wait.count || wait.device)
        atomic_store_explicit(&cache->orphans, true, memory_order_relaxed);
    wr_lock_release(&cache->move_lock);
    (void)wr_trim_wait_again(&wait, true);
}

/* So much must a list of oversize segments have. */
static size_t oversize_wanted(const wr_cache *cache, const wr_request *request)
{
    const size_t oversize = cache->options.max_split;
    return request->fit.block_bytes < oversize ? oversize : request->fit.block_bytes;
}

/* The record may be another pool's by now. */
static bool is_trimmable_locked(const wr_request *request)
{
    const wr_mempool *pool = request->pool;
    return wr_mempool_name_of(pool) == request->pool_name && !pool->held[WR_HELD_BY_GRAPH] && !pool->paused;
}

/* Hides an oversize segment that could serve the request by itself; else oversize ones from the largest down until they
 * add up to it, with what was given back before. Oversize blocks are never split, so each is a whole segment. */
static wr_segment *hide_oversize_locked(wr_cache *cache, const wr_request *request, size_t before)
{
    const size_t oversize = cache->options.max_split, wanted = oversize_wanted(cache, request);
    wr_bin *bin = is_trimmable_locked(request) ? wr_cache_bin_locked(request) : NULL;
    wr_block *block = bin ? wr_bin_best_fit(bin, wanted) : NULL;
    wr_segment *list = NULL, **tail = &list;
    for (size_t total = before; bin && total < wanted; block = NULL) {
        if (!block) block = wr_bin_largest(bin);
        if (!block || block->bytes < oversize || !wr_segment_idle(block->segment)) break;
        wr_segment *segment = block->segment;
        total += segment->bytes;
        tail = hide_in_list_locked(segment, tail);
    }
    return list;
}

static weir_status trim_oversize_once(wr_trim_wait *wait, const wr_request *request, size_t *released)
{
    wr_cache *cache = wait->cache;
    wr_lock_acquire(&cache->move_lock);
    wr_cache_lock(cache);
    wr_segment *list = hide_oversize_locked(cache, request, *released);
    wr_cache_unlock(cache);
    weir_status status = give_back_list(wait, list, released);
    wr_lock_release(&cache->move_lock);
    return spared(status);
}

weir_status wr_cache_trim_oversize(wr_cache *cache, const wr_request *request, size_t *released)
{
    wr_trim_wait wait = { .cache = cache };
    weir_status status;
    *released = 0;
    do status = trim_oversize_once(&wait, request, released);
    while (wr_trim_wait_again(&wait, *released >= oversize_wanted(cache, request)));
    return status;
}

/* ---- collection by age ------------------------------------------------------------------------------------------- */

static ages sum_ages_locked(const wr_mempool *pool)
{
    ages a = { 0, 0 };
    for (const wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) {
        if (s->bin->class != WR_LARGE || !wr_segment_idle(s)) continue;
        a.total += age_of(s);
        a.count++;
    }
    return a;
}

/* Hides every idle large segment of at least the average age; only in the default pool, and by stream, size and
 * address, as PyTorch does. */
static wr_segment *hide_aged_locked(const wr_cache *cache)
{
    const wr_mempool *pool = cache->pools;
    const ages a = sum_ages_locked(pool);
    wr_segment *list = NULL, **tail = &list;
    for (wr_bin *bin = pool->first_bin; bin; bin = bin->next)
        if (bin->class == WR_LARGE) tail = hide_idle_locked(bin, &a, tail);
    return list;
}

static bool is_over_threshold_locked(const wr_cache *cache)
{
    if (cache->limit == 0 || cache->options.gc_threshold <= 0) return false;
    return (double)wr_cache_limited_locked(cache) > cache->options.gc_threshold * (double)cache->limit;
}

/* NULL: there is enough room. */
static wr_segment *hide_collectable(wr_cache *cache)
{
    wr_cache_lock(cache);
    wr_segment *list = is_over_threshold_locked(cache) ? hide_aged_locked(cache) : NULL;
    wr_cache_unlock(cache);
    return list;
}

/* As give_back_list, but counts the segments that the driver took: *any. */
static weir_status collect_list(wr_trim_wait *wait, wr_segment *list, bool *any)
{
    wr_cache *cache = wait->cache;
    weir_status first = WEIR_OK;
    uint64_t collected = 0;
    while (list) {
        wr_segment *segment = list;
        size_t released = 0;
        list = segment->next;
        segment->next = NULL;
        wr_keep_first(&first, give_back_list(wait, segment, &released));
        collected += released != 0;
    }
    *any = collected != 0;
    wr_cache_lock(cache);
    WR_COUNT(cache->pools, collected, collected);
    wr_cache_unlock(cache);
    return first;
}

/* Segments with work stay, and would be found again and again. They are not waited for, since that may take long, and
 * nobody needs the memory yet. */
weir_status wr_cache_collect(wr_cache *cache)
{
    wr_trim_wait wait = { .cache = cache };
    weir_status status = WEIR_OK;
    wr_cache_lock(cache);
    const bool over = is_over_threshold_locked(cache);
    wr_cache_unlock(cache);
    if (!over) return WEIR_OK;

    wr_lock_acquire(&cache->move_lock);
    for (bool any = true; any && status == WEIR_OK;) status = collect_list(&wait, hide_collectable(cache), &any);
    wr_lock_release(&cache->move_lock);
    (void)wr_trim_wait_again(&wait, true);
    return spared(status);
}

/* ---- moving between streams -------------------------------------------------------------------------------------- */

static bool fits_request(const wr_segment *segment, const wr_request *request)
{
    const wr_bin *bin = segment->bin;
    return bin->class == request->fit.class && bin->stream != request->stream &&
           segment->bytes >= request->fit.block_bytes && wr_cache_takes(request, segment->bytes);
}

/* Of those that an ended stream has left so; WR_LEFT_NOT: of all. */
static wr_segment *smallest_idle_locked(const wr_request *request, wr_left left)
{
    const wr_mempool *pool = request->pool;
    wr_segment *best = NULL;
    for (wr_segment *s = wr_mempool_first_segment(pool); s; s = wr_mempool_next_segment(s)) {
        if (!wr_segment_idle(s) || !fits_request(s, request) || (left && s->left != left)) continue;
        if (!best || s->bytes < best->bytes) best = s;
    }
    return best;
}

/* Makes sure that work on the stream comes after whatever may use the segment now. False: it does not, and nothing
 * changed. */
static bool come_after(wr_cache *cache, const wr_segment *segment, wr_left left, bool may_wait, wr_stream *to)
{
    const wr_stream *from = segment->bin->stream;
    if (left == WR_LEFT_QUIET) return true;
    return may_wait ? wr_event_chained(cache->events, from->native, to)
                    : wr_event_ask_stream(cache->events, from->native, false) == WEIR_OK;
}

static weir_status rehome(wr_cache *cache, const wr_request *request, wr_left of, bool *moved)
{
    wr_bin *home = NULL;
    wr_segment *segment = NULL;
    *moved = false;
    wr_cache_lock(cache);
    weir_status status = wr_cache_check_target_locked(request);
    if (status == WEIR_OK) status = wr_cache_make_bin_locked(request->pool, request->stream, request->fit.class, &home);
    if (status == WEIR_OK) segment = smallest_idle_locked(request, of);
    const wr_left left = segment ? segment->left : WR_LEFT_NOT;
    if (segment) hide_locked(segment);
    wr_cache_unlock(cache);
    if (!segment) return status;

    *moved = come_after(cache, segment, left, of == WR_LEFT_NOT, request->stream);
    wr_cache_lock(cache);
    if (*moved) {
        wr_segment_use(segment);
        segment->bin = home;
        WR_COUNT(request->pool, rehomed, 1);
        cache->ledger.changes++;
    }
    show_locked(segment);
    wr_cache_unlock(cache);
    return WEIR_OK;
}

weir_status wr_cache_rehome(wr_cache *cache, const wr_request *request, bool *moved)
{
    wr_lock_acquire(&cache->move_lock);
    wr_fronts_empty(cache);
    weir_status status = rehome(cache, request, WR_LEFT_NOT, moved);
    wr_lock_release(&cache->move_lock);
    return status;
}

weir_status wr_cache_take_left(wr_cache *cache, const wr_request *request, bool *moved)
{
    *moved = false;
    if (atomic_load_explicit(&cache->left, memory_order_relaxed) == 0) return WEIR_OK;
    wr_lock_acquire(&cache->move_lock);
    weir_status status = rehome(cache, request, WR_LEFT_QUIET, moved);
    if (status == WEIR_OK && !*moved) status = rehome(cache, request, WR_LEFT_IN_USE, moved);
    wr_lock_release(&cache->move_lock);
    return status;
}
