#include "pool/chunk/stitch_plan.h"

#include "base/meta.h"
#include "base/size.h"
#include "pool/chunk/stitch_bounds.h"
#include "pool/chunk/stitch_end.h"
#include "pool/chunk/stitch_run.h"
#include "pool/plan/serve.h"

#include <assert.h>

/* A free beginning of a chunk in use ends a range, and what lies behind it is then in the middle of its chunk. So where
 * new memory is needed as well, the beginning must be this large, and no more is new than what is missing. */
#define PREFIX_LEAST ((size_t)24 << 20)

/* The small and the large blocks of a stream take chunks from each other where the small ones have so much. With less
 * they would do that again and again for little. */
#define SHARED_FROM ((size_t)32 << 20)

/* ---- what there is ----------------------------------------------------------------------------------------------- */

bool wr_stitch_may_take(const wr_stitch_plan *p, const wr_bin *from)
{
    const wr_bin *small = p->bin->class == WR_SMALL ? p->bin : from;
    if (from->class == p->bin->class || from->class == WR_PLANNED || p->bin->class == WR_PLANNED) return true;
    return p->pressed || small->part_bytes >= SHARED_FROM;
}

/* Behind an offset. */
static bool has_part_in(const wr_chunk *chunk, const wr_segment *region, size_t from)
{
    size_t left = chunk->parts;
    for (const wr_slot *s = chunk->slots; left > 0; s = s->next_of_chunk) {
        if (wr_slot_is_stale(s)) continue;
        if (s->region == region && s->at + s->to > from) return true;
        left--;
    }
    return false;
}

static bool in_tail(const wr_stitch_plan *p, const wr_chunk *chunk)
{
    return p->tail > 0 && has_part_in(chunk, p->region, p->region->region->end - p->tail);
}

bool wr_stitch_has_default(const wr_mempool *pool)
{
    return !pool->is_private || (pool->rules.cap == 0 && !pool->graphed);
}

/* What graphs use is in use wherever they are launched: that the stream has no work proves nothing. */
bool wr_stitch_may_have_of(const wr_stitch_plan *p, const wr_stream *other)
{
    return p->foreign && other->found_busy != p->serial && !p->request->pool->graphed;
}

/* Other pools keep the chunks they get, so planned places would never have them back. */
static bool is_planned(const wr_cache *cache, const wr_chunk *chunk)
{
    if (!atomic_load_explicit(&cache->serving, memory_order_relaxed)) return false;
    for (const wr_slot *s = chunk->slots; s; s = s->next_of_chunk)
        if (s->region->bin->class == WR_PLANNED) return true;
    return false;
}

static bool may_use(const wr_stitch_plan *p, const wr_chunk *chunk)
{
    const wr_bin *bin = chunk->bin;
    if (in_tail(p, chunk) || !wr_stitch_may_take(p, bin)) return false;
    if (bin->stream != p->bin->stream && !wr_stitch_may_have_of(p, bin->stream)) return false;
    if (p->range && p->region && has_part_in(chunk, p->region, 0)) return false;
    return chunk->pool == p->request->pool || !is_planned(p->cache, chunk);
}

static weir_status list_spare(wr_stitch_plan *p)
{
    const wr_chunks *c = &p->cache->chunks;
    if (!p->spare) {
        void *made = NULL;
        WR_TRY(wr_meta_alloc((c->whole_count + 1) * sizeof(wr_chunk *), "free chunks", &made));
        p->spare = made;
    }
    p->spare_count = p->spare_bytes = 0;
    /* The pool's own first: what it takes from the default pool it keeps, and that one then gets new memory. */
    for (int turn = 0; turn < 4; turn++)
        for (size_t i = 0; i < c->whole_count; i++) {
            wr_chunk *k = c->whole[i];
            const int lent = k->pool != p->request->pool, others = k->bin->stream != p->bin->stream;
            if (2 * lent + others != turn || !may_use(p, k)) continue;
            p->spare[p->spare_count++] = k;
            p->spare_bytes += k->bytes;
        }
    return WEIR_OK;
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static bool has_room(const wr_segment *segment, size_t bytes)
{
    return !segment->region->closed && segment->bytes - segment->region->end >= bytes + wr_region_left(segment->cache);
}

/* Chooses the region with the largest free tail among those with addresses left; NULL: a new one. */
static void choose_region(wr_stitch_plan *p)
{
    const size_t need = p->request->fit.block_bytes;
    for (wr_segment *s = p->bin->segments; s; s = s->next) {
        if (!s->region) continue;
        const wr_block *block = wr_region_tail(s);
        const size_t tail = block ? block->bytes : 0;
        if (!has_room(s, need - tail) || (p->region && tail < p->tail)) continue;
        p->region = s;
        p->tail = tail;
    }
}

/* A region in which nothing is mapped any more; NULL: a new one. */
static wr_segment *empty_region(const wr_stitch_plan *p)
{
    wr_segment *s = p->bin->segments;
    while (s && (!s->region || s->region->count != 0 || !has_room(s, p->request->fit.block_bytes))) s = s->next;
    return s;
}

static weir_status add_step(wr_stitch_plan *p, wr_slot *origin, wr_chunk *chunk, size_t from, size_t to)
{
    WR_TRY(wr_meta_grow(&p->steps, &p->capacity, p->count + 1, sizeof *p->steps, "chunks to map"));
    wr_stitch_step *s = &p->steps[p->count];
    *s = (wr_stitch_step){ .origin = origin };
    WR_TRY(wr_slot_record(p->cache, &s->slot));
    p->count++;
    *s->slot = (wr_slot){ .chunk = chunk, .from = from, .to = to };
    p->bytes += chunk->bytes;
    return WEIR_OK;
}

static weir_status add_new(wr_stitch_plan *p, size_t bytes)
{
    wr_chunk *chunk = NULL;
    WR_TRY(wr_chunk_record(p->cache, &chunk));
    *chunk = (wr_chunk){ .bytes = bytes, .pool = p->request->pool, .number = chunk->number };
    weir_status status = add_step(p, NULL, chunk, 0, bytes);
    if (status == WEIR_OK)
        p->created += bytes;
    else
        wr_chunk_record_done(p->cache, chunk);
    return status;
}

/* Plans at least so many bytes, a multiple of the unit and at most `room`. */
static weir_status plan_new(wr_stitch_plan *p, size_t bytes, size_t room)
{
    WR_ENSURE(bytes <= p->cache->chunks.region_bytes, WEIR_ERR_OUT_OF_MEMORY,
              "device %d: %zu bytes requested, more than the device has", p->cache->device, bytes);
    const size_t most = wr_stitch_most(p->cache, bytes), least = wr_stitch_least(p, most);
    bytes = wr_round_up(bytes, WR_SEGMENT_UNIT);
    if (bytes < least) bytes = least < room ? least : room;
    assert(bytes <= SIZE_MAX - most);
    const size_t chunks = (bytes + most - 1) / most;
    const size_t each = wr_round_up((bytes + chunks - 1) / chunks, WR_SEGMENT_UNIT);
    for (; bytes; bytes -= bytes < each ? bytes : each) WR_TRY(add_new(p, bytes < each ? bytes : each));
    return WEIR_OK;
}

/* Marks spare chunks for so many bytes: the largest that are not too large, then the smallest that covers the rest,
 * less those that this one makes needless. Returns what is still missing. */
static size_t choose_spare(wr_stitch_plan *p, size_t bytes)
{
    const uint64_t chosen = p->chosen = ++p->cache->chunks.marks;
    wr_chunk *covering = NULL;
    for (size_t i = 0; i < p->spare_count; i++) {
        if (p->spare[i]->bytes > bytes) continue;
        p->spare[i]->mark = chosen;
        bytes -= p->spare[i]->bytes;
    }
    for (size_t i = 0; i < p->spare_count && bytes; i++) { /* what was too large then covers what is missing now */
        wr_chunk *k = p->spare[i];
        if (k->mark != chosen && (!covering || k->bytes < covering->bytes)) covering = k;
    }
    if (!covering) return bytes;
    size_t surplus = covering->bytes - bytes;
    for (size_t i = p->spare_count; i-- > 0;) {
        if (p->spare[i]->mark != chosen || p->spare[i]->bytes > surplus) continue;
        p->spare[i]->mark = 0;
        surplus -= p->spare[i]->bytes;
    }
    covering->mark = chosen;
    return 0;
}

static weir_status plan_end(wr_stitch_plan *p, const wr_piece *end)
{
    return add_step(p, end->slot, end->slot->chunk, end->from - end->slot->at, end->to - end->slot->at);
}

/* Looks for a second end to provide what the tail, the spare chunks and the end that begins the range lack. */
static size_t add_prefix(wr_stitch_plan *p)
{
    const size_t need = p->request->fit.block_bytes, got = p->tail + wr_piece_bytes(&p->suffix) + p->spare_bytes;
    const wr_chunk *taken = p->suffix.slot ? p->suffix.slot->chunk : NULL;
    p->prefix = got < need ? wr_stitch_end_best(p, false, taken) : (wr_piece){ 0 };
    return got + wr_piece_bytes(&p->prefix);
}

/* Where the tail and the spare chunks are not enough, ends of chunks in use begin and end the new range. */
static weir_status choose_ends(wr_stitch_plan *p)
{
    const size_t need = p->request->fit.block_bytes, tail = p->tail;
    wr_segment *region = p->region;
    if (tail + p->spare_bytes >= need) return WEIR_OK;
    const wr_piece suffix = wr_stitch_end_best(p, true, NULL);
    const size_t with_tail = add_prefix(p);
    if (wr_piece_bytes(&suffix) <= tail) return WEIR_OK;
    p->suffix = suffix;
    p->region = empty_region(p);
    p->tail = 0;
    WR_TRY(list_spare(p)); /* the chunks of the tail are spare now */
    if (add_prefix(p) >= need || with_tail < need) return WEIR_OK;
    p->suffix = (wr_piece){ 0 };
    p->region = region;
    p->tail = tail;
    WR_TRY(list_spare(p));
    (void)add_prefix(p);
    return WEIR_OK;
}

/* Whether another bin of the stream has a free block for the request. */
static bool use_bin(wr_stitch_plan *p, wr_class class)
{
    const wr_block *block = wr_cache_best_of_locked(p->request, class);
    if (block) p->serves = block->segment->bin;
    return block != NULL;
}

static weir_status plan_missing(wr_stitch_plan *p, size_t bytes)
{
    p->gather = !p->gathered && p->foreign && !p->request->pool->graphed && wr_stitch_may_gather(p, bytes);
    if (p->gather) {
        p->cache->chunks.gathered_at = p->cache->chunks.bytes;
        p->cache->chunks.moved = p->cache->chunks.reused = 0;
        return WEIR_ERR_BUSY;
    }
    if (!p->request->pool->is_private) wr_serve_distrust_locked(p->cache, p->bin->stream);
    if (!p->forced && wr_piece_bytes(&p->prefix) < PREFIX_LEAST) {
        bytes += wr_piece_bytes(&p->prefix);
        p->prefix = (wr_piece){ 0 };
    }
    return plan_new(p, bytes, p->prefix.slot ? wr_round_up(bytes, WR_SEGMENT_UNIT) : SIZE_MAX);
}

static weir_status plan_old(wr_stitch_plan *p, bool *served)
{
    WR_TRY(list_spare(p));
    WR_TRY(choose_ends(p));
    const size_t need = p->request->fit.block_bytes;
    const size_t given = p->tail + wr_piece_bytes(&p->suffix) + wr_piece_bytes(&p->prefix);
    if (p->suffix.slot) WR_TRY(plan_end(p, &p->suffix));
    const size_t missing = given < need ? choose_spare(p, need - given) : 0;
    for (size_t i = 0; i < p->spare_count; i++) {
        wr_chunk *k = p->spare[i];
        if (p->chosen && k->mark == p->chosen) WR_TRY(add_step(p, k->slots, k, 0, k->bytes));
    }
    if (missing) {
        *served = use_bin(p, WR_PLANNED);
        if (*served) return WEIR_OK;
        WR_TRY(plan_missing(p, missing));
    }
    /* New memory is rounded up, so the prefix may be unnecessary now. */
    size_t got = p->tail;
    for (size_t i = 0; i < p->count; i++) got += p->steps[i].slot->to - p->steps[i].slot->from;
    assert(got >= need || p->prefix.slot);
    return got < need ? plan_end(p, &p->prefix) : WEIR_OK;
}

/* Addresses of the stream whose chunks other streams have by now, all of them free, need no mapping. */
static weir_status plan_reuse(wr_stitch_plan *p)
{
    const wr_stitch_run found = wr_stitch_run_across(p);
    if (!found.region) return WEIR_OK;
    const size_t to = found.from + p->request->fit.block_bytes;
    const wr_region *region = found.region->region;
    p->region = found.region;
    p->tail = 0;
    p->reuses = true;
    for (uint32_t i = wr_region_find(region, found.from); i < region->count && region->slots[i].at < to; i++) {
        wr_slot *s = region->slots[i].slot;
        if (!wr_stitch_run_lacks(p, s)) continue;
        WR_TRY(wr_meta_grow(&p->steps, &p->capacity, p->count + 1, sizeof *p->steps, "chunks to map"));
        p->steps[p->count++] = (wr_stitch_step){ .slot = s, .origin = s->chunk->slots };
        p->bytes += s->chunk->bytes;
    }
    return WEIR_OK;
}

/* ---- memory for a range ------------------------------------------------------------------------------------------ */

/* A slot that is stale, or lacks a part used elsewhere, gets all of its chunk, if that is free and still the stream's:
 * another one may have work queued that uses it. */
static weir_status restore(wr_stitch_plan *p, wr_slot *slot)
{
    const bool there = wr_chunk_is_free(p->cache, slot->chunk) && wr_chunk_bin(slot->chunk)->stream == p->bin->stream;
    if (!there) slot->region->region->broken = true;
    WR_ENSURE(there, WEIR_ERR_OUT_OF_MEMORY, "device %d: the memory of a planned place is in use elsewhere",
              p->cache->device);
    WR_TRY(wr_records_spare_blocks(p->cache, 2 * (slot->chunk->parts + 1)));
    wr_slot_fill_locked(p->cache, slot);
    return WEIR_OK;
}

/* Addresses without slots. */
typedef struct hole {
    size_t from, to;
    size_t needed; /* from its beginning to the end of the range, in whole cells */
} hole;

/* The slots that the range begins with, up to a hole, get their memory. *at is behind them, *next the slot after
 * that. */
static weir_status pass_slots(wr_stitch_plan *p, const wr_region *region, size_t *at, uint32_t *next)
{
    const size_t to = p->range->to;
    uint32_t i = wr_region_find(region, *at);
    for (; i < region->count && region->slots[i].at <= *at && *at < to; i++) {
        wr_slot *s = region->slots[i].slot;
        const size_t end = s->at + s->chunk->bytes, used = to < end ? to : end;
        if (*at < s->at + s->from || used > s->at + s->to) WR_TRY(restore(p, s));
        *at = end;
    }
    *next = i;
    return WEIR_OK;
}

static bool is_used(const wr_stitch_range *r, size_t at)
{
    const size_t unit = at / WR_SEGMENT_UNIT;
    return !*r->units || (*r->units)[unit / 64] >> unit % 64 & 1;
}

/* Widens the range, as far as it is to get memory, by what will be used before and behind it in its cells. */
static hole widen(const wr_stitch_range *r, size_t at, size_t cell)
{
    const size_t end = wr_round_up(r->bytes, WR_SEGMENT_UNIT), cells = wr_round_up(r->to, cell);
    const size_t least = at / cell * cell, most = cells < end ? cells : end;
    hole w = { .from = at / WR_SEGMENT_UNIT * WR_SEGMENT_UNIT, .to = wr_round_up(r->to, WR_SEGMENT_UNIT) };
    while (w.from > least && is_used(r, w.from - WR_SEGMENT_UNIT)) w.from -= WR_SEGMENT_UNIT;
    while (w.to < most && is_used(r, w.to)) w.to += WR_SEGMENT_UNIT;
    return w;
}

/* The first hole in the range; none: all of it has memory. */
static weir_status find_hole(wr_stitch_plan *p, size_t cell, hole *out)
{
    static const wr_region nothing;
    const wr_stitch_range *r = p->range;
    const wr_region *region = p->region ? p->region->region : &nothing;
    size_t at = r->from, from = 0, to = wr_round_up(r->bytes, WR_SEGMENT_UNIT);
    uint32_t next = 0;
    *out = (hole){ 0 };
    WR_TRY(pass_slots(p, region, &at, &next));
    if (at >= r->to) return WEIR_OK;
    if (next > 0) from = region->slots[next - 1].end;
    const hole wide = widen(r, at, cell);
    if (from < wide.from) from = wide.from;
    if (next < region->count && to > region->slots[next].at) to = region->slots[next].at;
    *out = (hole){ from, to, (wide.to < to ? wide.to : to) - from };
    return WEIR_OK;
}

/* Uses chunks free elsewhere: those that need no further cell, then the smallest that covers the rest. */
static weir_status fill_from_spare(wr_stitch_plan *p, const hole *h)
{
    const size_t room = h->to - h->from;
    size_t left = 0;
    wr_chunk *covering = NULL;
    WR_TRY(list_spare(p));
    for (size_t i = 0; i < p->spare_count; i++) {
        wr_chunk *k = p->spare[i];
        if (k->bytes <= h->needed - p->bytes)
            WR_TRY(add_step(p, k->slots, k, 0, k->bytes));
        else
            p->spare[left++] = k;
    }
    if (p->bytes == h->needed) return WEIR_OK;
    for (size_t i = 0; i < left; i++) {
        wr_chunk *k = p->spare[i];
        if (k->bytes <= room - p->bytes && (!covering || k->bytes < covering->bytes)) covering = k;
    }
    return covering ? add_step(p, covering->slots, covering, 0, covering->bytes) : WEIR_OK;
}

/* New memory is for places as long as no more is held than the plan needs; beyond that, free memory elsewhere is
 * used. */
static bool may_hold(const wr_stitch_plan *p, size_t bytes)
{
    return p->request->pool->chunk_bytes + bytes <= p->range->budget || wr_stitch_has_slack(p, bytes);
}

static weir_status plan_range(wr_stitch_plan *p, bool *served)
{
    hole h;
    p->region = *p->range->region;
    WR_TRY(find_hole(p, wr_stitch_cell(p), &h));
    if (h.needed && (p->forced || !may_hold(p, h.needed))) WR_TRY(find_hole(p, WR_SEGMENT_UNIT, &h));
    *served = h.needed == 0;
    if (*served) return WEIR_OK;
    WR_ENSURE(!p->region || !p->region->region->closed, WEIR_ERR_OUT_OF_MEMORY,
              "device %d: the addresses of planned places were lost, because the driver did not take memory back",
              p->cache->device);
    p->start = h.from;
    WR_TRY(fill_from_spare(p, &h));
    if (p->bytes >= h.needed) return WEIR_OK;
    const size_t missing = h.needed - p->bytes;
    WR_ENSURE(may_hold(p, missing), WEIR_ERR_OUT_OF_MEMORY,
              "device %d: planned places have no memory, and all free memory is elsewhere", p->cache->device);
    return plan_new(p, missing, missing);
}

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

/* For a pool of which nothing may be mapped elsewhere. */
static weir_status plan_fixed(wr_stitch_plan *p, bool *served)
{
    *served = p->forced && use_bin(p, wr_stitch_other_class(p));
    if (*served) return WEIR_OK;
    choose_region(p);
    return plan_new(p, p->request->fit.block_bytes - p->tail, SIZE_MAX);
}

static weir_status survey(const wr_stitch_plan *p)
{
    wr_mempool *own = p->request->pool;
    WR_TRY(wr_chunks_survey_begin_locked(p->cache));
    if (own->fixed) return WEIR_OK;
    wr_chunks_survey_locked(own);
    if (own->is_private && wr_stitch_has_default(own)) wr_chunks_survey_locked(p->cache->pools);
    return WEIR_OK;
}

weir_status wr_stitch_plan_locked(wr_stitch_plan *p, bool *served)
{
    WR_TRY(survey(p));
    p->pressed = p->forced || wr_stitch_is_tight(p->cache, p->cache->chunks.bytes);
    if (p->range) return plan_range(p, served);
    if (p->request->pool->fixed) return plan_fixed(p, served);
    if (!wr_serve_trusts_locked(p->cache, p->bin->stream))
        p->open = wr_mempool_bin(p->request->pool, p->request->stream, WR_PLANNED);
    const wr_stitch_run found = wr_stitch_run_find(p);
    *served = found.region != NULL;
    if (*served) {
        p->serves = found.region->bin;
        return wr_stitch_run_use(p, &found);
    }
    choose_region(p);
    const size_t missing = p->request->fit.block_bytes - p->tail;
    if (!p->forced && wr_stitch_may_grow(p, wr_round_up(missing, WR_SEGMENT_UNIT)))
        return plan_new(p, missing, SIZE_MAX);
    *served = p->bin->class == WR_SMALL && use_bin(p, WR_LARGE);
    if (*served) return WEIR_OK;
    WR_TRY(plan_reuse(p));
    return p->reuses ? WEIR_OK : plan_old(p, served);
}

void wr_stitch_plan_release_locked(wr_stitch_plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        wr_stitch_step *s = &p->steps[i];
        if (!s->origin) wr_chunk_record_done(p->cache, s->slot->chunk);
        if (!p->reuses) wr_slot_record_done(p->cache, s->slot);
    }
    wr_meta_free(p->spare);
    wr_meta_free(p->steps);
}
