/*
 * segment: the cache's dealings with the driver: growing, giving back, moving between streams. Each driver call
 * happens between two locked steps: the first takes what is concerned out of everybody's sight, the second puts in
 * order what came of it. Giving back and moving also hold the move lock throughout, so that no stream ends while its
 * segments are out of sight.
 */
#include "base/meta.h"
#include "pool/address.h"
#include "pool/cache.h"
#include "pool/count.h"

#include <assert.h>

/* The bin of a stream and class, made on first use. Bins stay: a later stream of the same index takes them over. */
static weir_status bin_locked(wr_cache *cache, wr_stream *stream, wr_class class, wr_bin **out)
{
    uint32_t index = stream->index * WR_CLASSES + class;
    if (index >= cache->bin_capacity) {
        uint32_t capacity = cache->bin_capacity ? cache->bin_capacity : 16;
        while (capacity <= index) capacity *= 2;
        void *bins = cache->bins;
        WR_TRY(wr_meta_resize(&bins, capacity * sizeof(wr_bin *), "stream bins"));
        cache->bins = bins;
        for (uint32_t i = cache->bin_capacity; i < capacity; i++) cache->bins[i] = NULL;
        cache->bin_capacity = capacity;
    }
    if (!cache->bins[index]) {
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(wr_bin), "stream bin", &made));
        wr_bin *bin = made;
        RB_INIT(&bin->free);
        bin->stream = stream;
        bin->class = class;
        cache->bins[index] = bin;
    }
    *out = cache->bins[index];
    return WEIR_OK;
}

static unsigned start_shift_of(const wr_policy *policy, wr_class class)
{
    return 63u - (unsigned)__builtin_clzll(policy->block_min[class]);
}

/* ---- growing ------------------------------------------------------------------------------------------------------ */

/* What a new segment needs, had before the driver is asked, so that nothing can fail after it said yes. */
typedef struct growth {
    wr_bin *bin;
    wr_segment *segment;
    wr_block *block;
} growth;

static void drop_growth_locked(wr_cache *cache, growth *g, size_t bytes)
{
    cache->growing -= bytes;
    if (g->block) wr_record_block_done(cache, g->block);
    if (g->segment) wr_record_segment_done(cache, g->segment);
}

static weir_status prepare_growth_locked(wr_cache *cache, const wr_request *request, growth *g)
{
    const size_t bytes = request->fit.segment_bytes;
    const uint64_t held =
        (uint64_t)cache->stats.reserved_bytes[WEIR_STAT_ALL].current + cache->growing + cache->leaving;
    WR_ENSURE(cache->limit == 0 || (held <= cache->limit && bytes <= cache->limit - held), WEIR_ERR_OUT_OF_MEMORY,
              "device %d: %llu bytes held, %zu more asked, limit %llu", cache->device, (unsigned long long)held, bytes,
              (unsigned long long)cache->limit);
    WR_TRY(bin_locked(cache, request->stream, request->fit.class, &g->bin));
    weir_status status = wr_record_segment(cache, &g->segment);
    if (status == WEIR_OK) status = wr_record_block(cache, &g->block);
    if (status == WEIR_OK) {
        void *starts = NULL;
        unsigned shift = start_shift_of(cache->policy, request->fit.class);
        status = wr_meta_alloc((bytes >> shift) * sizeof(wr_block *), "block index", &starts);
        g->segment->starts = starts;
        g->segment->start_shift = shift;
    }
    cache->growing += bytes;
    if (status != WEIR_OK) drop_growth_locked(cache, g, bytes);
    return status;
}

static void add_segment_locked(wr_cache *cache, growth *g, void *base, size_t bytes)
{
    wr_segment *segment = g->segment;
    wr_block *block = g->block;
    *block = (wr_block){ .base = base, .bytes = bytes, .segment = segment, .state = WR_BLOCK_FREE };
    segment->base = base;
    segment->bytes = bytes;
    segment->first = block;
    segment->blocks = 1;
    segment->starts[0] = block;
    wr_bin_add_segment(g->bin, segment);
    wr_bin_insert(g->bin, block);
    wr_count_in(cache->stats.segment, cache->stats.reserved_bytes, g->bin->class, bytes);
    cache->stats.driver_allocs++;
    wr_history_record(&cache->history, WEIR_EVENT_SEGMENT_ALLOC, base, bytes, g->bin->stream->native);
}

weir_status wr_cache_grow(wr_cache *cache, const wr_request *request, void **out)
{
    const size_t bytes = request->fit.segment_bytes;
    growth g = { 0 };
    wr_lock_acquire(&cache->lock);
    weir_status status = prepare_growth_locked(cache, request, &g);
    wr_lock_release(&cache->lock);
    if (status != WEIR_OK) return status;

    void *base = NULL;
    status = wr_driver(cache->backend, segment_alloc, cache->device, bytes, &base);
    wr_lock_acquire(&cache->lock);
    /* Mapped under the lock: a stray pointer into the range must not meet a segment that has no blocks yet. */
    if (status == WEIR_OK) status = wr_address_insert(base, bytes, g.segment);
    const bool added = status == WEIR_OK;
    if (added) {
        cache->growing -= bytes;
        add_segment_locked(cache, &g, base, bytes);
        /* On failure to cut the block, the segment stays as a free one. */
        status = wr_cache_hand_out_locked(cache, request, g.block, out);
    } else {
        drop_growth_locked(cache, &g, bytes);
    }
    wr_lock_release(&cache->lock);
    if (!added && base) (void)wr_driver(cache->backend, segment_free, cache->device, base, bytes);
    return status;
}

/* ---- giving back -------------------------------------------------------------------------------------------------- */

/* Takes an idle segment out of sight: nobody can find its block any more, but it still counts as reserved. */
static void hide_locked(wr_segment *segment)
{
    segment->cache->hidden++;
    segment->cache->hidden_bytes += segment->bytes;
    wr_bin_remove(segment->bin, segment->first);
    wr_bin_drop_segment(segment->bin, segment);
}

static void unhide_locked(const wr_segment *segment)
{
    segment->cache->hidden--;
    segment->cache->hidden_bytes -= segment->bytes;
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

/* A hidden segment goes to the driver. It counts as given back already, so that what another thread gets instead is
 * not reserved twice; the limit still counts it. Unmapped and recorded now: once the driver has the addresses, another
 * thread may get, map and record them. */
static void leave_locked(wr_cache *cache, const wr_segment *segment)
{
    wr_history_record(&cache->history, WEIR_EVENT_SEGMENT_FREE, segment->base, segment->bytes,
                      segment->bin->stream->native);
    unhide_locked(segment);
    cache->leaving += segment->bytes;
    wr_count_out(cache->stats.segment, cache->stats.reserved_bytes, segment->bin->class, segment->bytes);
    wr_address_remove(segment->base, segment->bytes);
}

/* The driver refused. The address tables are there, so mapping cannot fail. */
static void come_back_locked(wr_cache *cache, wr_segment *segment)
{
    weir_status mapped = wr_address_insert(segment->base, segment->bytes, segment);
    assert(mapped == WEIR_OK);
    (void)mapped;
    wr_count_in(cache->stats.segment, cache->stats.reserved_bytes, segment->bin->class, segment->bytes);
    wr_history_record(&cache->history, WEIR_EVENT_SEGMENT_ALLOC, segment->base, segment->bytes,
                      segment->bin->stream->native);
    into_bin_locked(segment);
}

static void forget_locked(wr_cache *cache, wr_segment *segment)
{
    cache->stats.driver_frees++;
    cache->changes++;
    wr_record_block_done(cache, segment->first);
    wr_record_segment_done(cache, segment);
}

/* Blocks are free as soon as they are freed on their own stream, where work on them may still be queued. */
static weir_status finish_work(const wr_cache *cache, const wr_stream *stream)
{
    WR_ENSURE(!wr_stream_capturing(cache->backend, stream->device, stream->native), WEIR_ERR_CAPTURE,
              "device %d: memory of stream %p cannot be given back while that is capturing", cache->device,
              stream->native);
    return wr_driver(cache->backend, stream_synchronize, stream->device, stream->native);
}

/* Gives a hidden segment back; one that the driver refuses to take comes into sight again. */
static weir_status give_back(wr_cache *cache, wr_segment *segment)
{
    const size_t bytes = segment->bytes;
    weir_status status = finish_work(cache, segment->bin->stream);
    wr_lock_acquire(&cache->lock);
    if (status == WEIR_OK)
        leave_locked(cache, segment);
    else
        show_locked(segment);
    wr_lock_release(&cache->lock);
    if (status != WEIR_OK) return status;

    status = wr_driver(cache->backend, segment_free, cache->device, segment->base, bytes);
    wr_lock_acquire(&cache->lock);
    cache->leaving -= bytes;
    if (status == WEIR_OK)
        forget_locked(cache, segment);
    else
        come_back_locked(cache, segment);
    wr_lock_release(&cache->lock);
    return status;
}

/* Gives back the segments of a list linked by `next`, in order. All are tried; the first failure is returned. */
static weir_status give_back_list(wr_cache *cache, wr_segment *list, size_t *released)
{
    weir_status first = WEIR_OK;
    while (list) {
        wr_segment *segment = list;
        list = segment->next;
        const size_t bytes = segment->bytes;
        weir_status status = give_back(cache, segment);
        if (status == WEIR_OK)
            *released += bytes;
        else
            wr_keep_first(&first, status);
    }
    return first;
}

/* Hides a bin's idle segments, by size and address, at the end of a list. */
static wr_segment **hide_idle_locked(wr_bin *bin, wr_segment **tail)
{
    wr_block *block, *following;
    RB_FOREACH_SAFE(block, wr_free_tree, &bin->free, following) {
        wr_segment *segment = block->segment;
        if (!wr_segment_idle(segment)) continue;
        hide_locked(segment);
        segment->next = NULL;
        *tail = segment;
        tail = &segment->next;
    }
    return tail;
}

static weir_status trim_all(wr_cache *cache, size_t *released)
{
    wr_segment *list = NULL, **tail = &list;
    wr_lock_acquire(&cache->lock);
    /* Large ones first, then by stream, size and address: the order in which PyTorch empties its cache. */
    for (uint32_t c = WR_CLASSES; c-- > 0;)
        for (uint32_t i = c; i < cache->bin_capacity; i += WR_CLASSES)
            if (cache->bins[i]) tail = hide_idle_locked(cache->bins[i], tail);
    wr_lock_release(&cache->lock);
    return give_back_list(cache, list, released);
}

typedef bool (*segment_filter)(const wr_cache *cache, const wr_segment *segment, const void *argument);
typedef bool (*segment_better)(const wr_segment *candidate, const wr_segment *best);

/* The best idle segment that passes the filter, over all streams. */
static wr_segment *choose_idle_locked(wr_cache *cache, segment_filter passes, const void *argument,
                                      segment_better better)
{
    wr_segment *best = NULL;
    for (uint32_t i = 0; i < cache->bin_capacity; i++) {
        wr_bin *bin = cache->bins[i];
        for (wr_segment *s = bin ? bin->segments : NULL; s; s = s->next)
            if (wr_segment_idle(s) && passes(cache, s, argument) && (!best || better(s, best))) best = s;
    }
    return best;
}

static bool any(const wr_cache *cache, const wr_segment *segment, const void *argument)
{
    (void)cache, (void)segment, (void)argument;
    return true;
}

static bool larger(const wr_segment *candidate, const wr_segment *best)
{
    return candidate->bytes > best->bytes;
}

static bool smaller(const wr_segment *candidate, const wr_segment *best)
{
    return candidate->bytes < best->bytes;
}

static weir_status trim_enough(wr_cache *cache, size_t enough, size_t *released)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && *released < enough) {
        wr_lock_acquire(&cache->lock);
        wr_segment *segment = choose_idle_locked(cache, any, NULL, larger);
        if (segment) hide_locked(segment);
        wr_lock_release(&cache->lock);
        if (!segment) break;
        segment->next = NULL;
        status = give_back_list(cache, segment, released);
    }
    return status;
}

/* What a capturing stream holds stays; that is no failure of giving back the rest. */
static weir_status spared(weir_status status)
{
    return status == WEIR_ERR_CAPTURE ? WEIR_OK : status;
}

weir_status wr_cache_trim(wr_cache *cache, size_t enough, size_t *released)
{
    size_t total = 0;
    weir_status status = WEIR_ERR_CAPTURE;
    wr_lock_acquire(&cache->move_lock);
    if (enough != SIZE_MAX) status = trim_enough(cache, enough, &total);
    if (status == WEIR_ERR_CAPTURE) status = trim_all(cache, &total);
    wr_lock_release(&cache->move_lock);
    *released = total;
    return spared(status);
}

/* Hides an oversize segment that could serve the request by itself; else oversize ones from the largest down until
 * they add up to it. Oversize blocks are never cut, so each is a whole segment. */
static wr_segment *hide_oversize_locked(wr_cache *cache, const wr_request *request)
{
    const size_t oversize = cache->options.max_split;
    const size_t wanted = request->fit.block_bytes < oversize ? oversize : request->fit.block_bytes;
    uint32_t index = request->stream->index * WR_CLASSES + request->fit.class;
    wr_bin *bin = index < cache->bin_capacity ? cache->bins[index] : NULL;
    wr_block *block = bin ? wr_bin_best_fit(bin, wanted) : NULL;
    wr_segment *list = NULL, **tail = &list;
    for (size_t total = 0; bin && total < wanted; block = NULL) {
        if (!block) block = wr_bin_largest(bin);
        if (!block || block->bytes < oversize || !wr_segment_idle(block->segment)) break;
        wr_segment *segment = block->segment;
        total += segment->bytes;
        hide_locked(segment);
        segment->next = NULL;
        *tail = segment;
        tail = &segment->next;
    }
    return list;
}

weir_status wr_cache_trim_oversize(wr_cache *cache, const wr_request *request, size_t *released)
{
    *released = 0;
    if (cache->options.max_split == SIZE_MAX) return WEIR_OK;
    wr_lock_acquire(&cache->move_lock);
    wr_lock_acquire(&cache->lock);
    wr_segment *list = hide_oversize_locked(cache, request);
    wr_lock_release(&cache->lock);
    weir_status status = give_back_list(cache, list, released);
    wr_lock_release(&cache->move_lock);
    return spared(status);
}

/* ---- collection by age -------------------------------------------------------------------------------------------- */

typedef struct ages {
    uint64_t total, count;
} ages;

static uint64_t age_of(const wr_cache *cache, const wr_segment *segment)
{
    return cache->searches[WR_LARGE] - segment->first->freed_at;
}

static ages sum_ages_locked(const wr_cache *cache)
{
    ages a = { 0, 0 };
    for (uint32_t i = WR_LARGE; i < cache->bin_capacity; i += WR_CLASSES)
        for (wr_segment *s = cache->bins[i] ? cache->bins[i]->segments : NULL; s; s = s->next)
            if (wr_segment_idle(s)) {
                a.total += age_of(cache, s);
                a.count++;
            }
    return a;
}

/* Hides every idle large segment of at least the average age. */
static wr_segment *hide_aged_locked(wr_cache *cache)
{
    wr_segment *list = NULL, **tail = &list;
    ages a = sum_ages_locked(cache);
    if (a.count == 0) return NULL;
    for (uint32_t i = WR_LARGE; i < cache->bin_capacity; i += WR_CLASSES) {
        wr_segment *following;
        for (wr_segment *s = cache->bins[i] ? cache->bins[i]->segments : NULL; s; s = following) {
            following = s->next;
            if (!wr_segment_idle(s) || age_of(cache, s) < a.total / a.count) continue;
            hide_locked(s);
            s->next = NULL;
            *tail = s;
            tail = &s->next;
        }
    }
    return list;
}

static bool is_over_threshold_locked(const wr_cache *cache)
{
    const double held = (double)cache->stats.reserved_bytes[WEIR_STAT_ALL].current;
    return cache->limit != 0 && cache->options.gc_threshold > 0 &&
           held > cache->options.gc_threshold * (double)cache->limit;
}

static wr_segment *hide_collectable(wr_cache *cache)
{
    wr_lock_acquire(&cache->lock);
    wr_segment *list = is_over_threshold_locked(cache) ? hide_aged_locked(cache) : NULL;
    wr_lock_release(&cache->lock);
    return list;
}

/* As give_back_list, counting what the driver took. */
static weir_status collect_list(wr_cache *cache, wr_segment *list)
{
    weir_status first = WEIR_OK;
    uint64_t collected = 0;
    while (list) {
        wr_segment *segment = list;
        size_t released = 0;
        list = segment->next;
        segment->next = NULL;
        wr_keep_first(&first, give_back_list(cache, segment, &released));
        collected += released != 0;
    }
    wr_lock_acquire(&cache->lock);
    cache->stats.collected += collected;
    wr_lock_release(&cache->lock);
    return first;
}

weir_status wr_cache_collect(wr_cache *cache)
{
    wr_lock_acquire(&cache->lock);
    const bool over = is_over_threshold_locked(cache);
    wr_lock_release(&cache->lock);
    if (!over) return WEIR_OK;

    weir_status status = WEIR_OK;
    wr_lock_acquire(&cache->move_lock);
    while (status == WEIR_OK) {
        wr_segment *list = hide_collectable(cache);
        if (!list) break;
        status = collect_list(cache, list);
    }
    wr_lock_release(&cache->move_lock);
    return spared(status);
}

/* ---- moving between streams --------------------------------------------------------------------------------------- */

/* Makes later work on `to` wait for the work now on `from`. False: not possible, nothing changed. */
static bool chain(wr_cache *cache, const wr_stream *from, const wr_stream *to)
{
    if (wr_stream_capturing(cache->backend, from->device, from->native) ||
        wr_stream_capturing(cache->backend, to->device, to->native))
        return false;
    return wr_event_chain(cache->events, from->native, to->device, to->native) == WEIR_OK;
}

static bool fits_request(const wr_cache *cache, const wr_segment *segment, const void *argument)
{
    const wr_request *request = argument;
    const wr_bin *bin = segment->bin;
    return bin->class == request->fit.class && bin->stream != request->stream &&
           segment->bytes >= request->fit.block_bytes &&
           cache->policy->takes(&cache->options, &request->fit, segment->bytes);
}

static weir_status rehome(wr_cache *cache, const wr_request *request, bool *moved)
{
    wr_bin *home = NULL;
    wr_segment *segment = NULL;
    *moved = false;
    wr_lock_acquire(&cache->lock);
    weir_status status = bin_locked(cache, request->stream, request->fit.class, &home);
    if (status == WEIR_OK) segment = choose_idle_locked(cache, fits_request, request, smaller);
    if (segment) hide_locked(segment);
    wr_lock_release(&cache->lock);
    if (!segment) return status;

    bool chained = chain(cache, segment->bin->stream, request->stream);
    wr_lock_acquire(&cache->lock);
    if (chained) {
        segment->bin = home;
        cache->stats.rehomed++;
        cache->changes++;
    }
    show_locked(segment);
    wr_lock_release(&cache->lock);
    *moved = chained;
    return WEIR_OK;
}

weir_status wr_cache_rehome(wr_cache *cache, const wr_request *request, bool *moved)
{
    wr_lock_acquire(&cache->move_lock);
    weir_status status = rehome(cache, request, moved);
    wr_lock_release(&cache->move_lock);
    return status;
}

static void move_segments_locked(wr_bin *from, wr_bin *to)
{
    while (from->segments) {
        wr_segment *segment = from->segments;
        for (wr_block *b = segment->first; b; b = b->next)
            if (b->state == WR_BLOCK_FREE) wr_bin_remove(from, b);
        wr_bin_drop_segment(from, segment);
        wr_bin_add_segment(to, segment);
        for (wr_block *b = segment->first; b; b = b->next)
            if (b->state == WR_BLOCK_FREE) wr_bin_insert(to, b);
    }
}

weir_status wr_cache_forget_stream(wr_cache *cache, wr_stream *stream, wr_stream *heir)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&cache->move_lock);
    wr_lock_acquire(&cache->lock);
    for (int class = WR_SMALL; class < WR_CLASSES && status == WEIR_OK; class ++) {
        uint32_t index = stream->index * WR_CLASSES + (uint32_t)class;
        wr_bin *old = index < cache->bin_capacity ? cache->bins[index] : NULL, *home = NULL;
        if (!old || !old->segments) continue;
        status = bin_locked(cache, heir, (wr_class) class, &home);
        if (status == WEIR_OK) move_segments_locked(old, home);
    }
    wr_lock_release(&cache->lock);
    wr_lock_release(&cache->move_lock);
    return status;
}

/* ---- the end ------------------------------------------------------------------------------------------------------ */

static weir_status release_bin(wr_cache *cache, wr_bin *bin)
{
    weir_status first = WEIR_OK;
    for (wr_segment *s = bin->segments; s; s = s->next) {
        wr_address_remove(s->base, s->bytes);
        wr_keep_first(&first, wr_driver(cache->backend, segment_free, cache->device, s->base, s->bytes));
        wr_meta_free(s->starts);
    }
    wr_meta_free(bin);
    return first;
}

weir_status wr_cache_release(wr_cache *cache)
{
    weir_status first = WEIR_OK;
    for (uint32_t i = 0; i < cache->bin_capacity; i++)
        if (cache->bins[i]) wr_keep_first(&first, release_bin(cache, cache->bins[i]));
    wr_meta_free(cache->bins);
    wr_records_release(cache);
    wr_history_release(&cache->history);
    wr_lock_destroy(&cache->poll_lock);
    wr_lock_destroy(&cache->move_lock);
    wr_lock_destroy(&cache->lock);
    *cache = (wr_cache){ 0 };
    return first;
}
