#include "pool/chunk/stitch_run.h"

#include "pool/bin.h"
#include "pool/starts.h"

/* ---- neighbours -------------------------------------------------------------------------------------------------- */

/* The free block that contains the offset; NULL: none, or one smaller than any part. */
static const wr_block *free_at(const wr_segment *region, size_t offset)
{
    const wr_block *block = wr_starts_block_at(region, region->base + offset);
    return block->state == WR_BLOCK_FREE && block->bytes >= WR_CHUNK_PART_LEAST ? block : NULL;
}

/* Where free space right before a slot begins, and where that right behind it ends. Most neighbours are stale or have
 * their part elsewhere: then there is none. */
static size_t free_before(const wr_segment *region, uint32_t index)
{
    const wr_slot_entry *e = &region->region->slots[index];
    const bool there = index > 0 && e[-1].end == e->at && !e[-1].stale;
    const wr_block *block = there && e[-1].slot->at + e[-1].slot->to == e->at ? free_at(region, e->at - 1) : NULL;
    return block ? (size_t)(block->base - region->base) : e->at;
}

static size_t free_behind(const wr_segment *region, uint32_t index)
{
    const wr_slot_entry *e = &region->region->slots[index];
    const bool there = index + 1 < region->region->count && e[1].at == e->end && !e[1].stale;
    const wr_block *block = there && e[1].slot->from == 0 ? free_at(region, e->end) : NULL;
    return block ? (size_t)(block->base - region->base) + block->bytes : e->end;
}

/* ---- finding one ------------------------------------------------------------------------------------------------- */

/* Whether the search may use a chunk. */
static bool serves(const wr_chunks *c, uint32_t number)
{
    return c->serving[number] >= c->search;
}

static bool is_shorter(const wr_stitch_run *a, const wr_stitch_run *b)
{
    const size_t of_a = a->to - a->from, of_b = b->to - b->from;
    return of_a != of_b ? of_a < of_b : a->region->base + a->from < b->region->base + b->from;
}

static bool is_longer(const wr_stitch_run *a, const wr_stitch_run *b)
{
    return b->region && a->to - a->from > b->to - b->from;
}

/* A run of whole slots, and the indexes of those at its ends beside which there may be more; NULL: none. Where it is
 * longer than the best already, that is not looked for. */
static void keep_shortest(const wr_stitch_plan *p, wr_stitch_run run, const uint32_t *first, const uint32_t *last,
                          wr_stitch_run *best)
{
    if (is_longer(&run, best)) return;
    if (first) run.from = free_before(run.region, *first);
    if (last) run.to = free_behind(run.region, *last);
    if (run.to - run.from < p->request->fit.block_bytes) return;
    if (!best->region || is_shorter(&run, best)) *best = run;
}

/* From the first of adjacent slots that serve to the last; returns the index behind it. A chunk that is already in the
 * run begins another. */
static uint32_t look_along(const wr_stitch_plan *p, wr_segment *region, uint32_t index, wr_stitch_run *best)
{
    wr_chunks *c = &p->cache->chunks;
    const wr_slot_entry *slots = region->region->slots;
    const uint32_t start = index, *first = &start;
    wr_stitch_run now = { .region = region, .from = slots[index].at };
    uint64_t number = ++c->marks;
    do {
        uint64_t *run = &c->serving[slots[index].chunk];
        if (*run == number) {
            keep_shortest(p, now, first, NULL, best);
            first = NULL;
            now.from = now.to;
            number = ++c->marks;
        }
        *run = number;
        now.to = slots[index++].end;
    } while (index < region->region->count && slots[index].at == now.to && serves(c, slots[index].chunk));
    const uint32_t last = index - 1;
    keep_shortest(p, now, first, &last, best);
    return index;
}

static void look_in_bin(const wr_stitch_plan *p, const wr_bin *bin, wr_stitch_run *best)
{
    for (wr_segment *s = bin->segments; s; s = s->next)
        for (uint32_t i = 0; s->region && i < s->region->count;)
            i = serves(&p->cache->chunks, s->region->slots[i].chunk) ? look_along(p, s, i, best) : i + 1;
}

/* The slot serves. */
static void look_at(const wr_stitch_plan *p, const wr_slot *slot, wr_stitch_run *best)
{
    const wr_slot_entry *slots = slot->region->region->slots;
    const uint32_t i = wr_region_find(slot->region->region, slot->at);
    if (i > 0 && slots[i - 1].end == slot->at && serves(&p->cache->chunks, slots[i - 1].chunk)) return;
    (void)look_along(p, slot->region, i, best);
}

static void look_in_chunks(const wr_stitch_plan *p, const wr_bin *bin, wr_stitch_run *best)
{
    const wr_chunks *c = &p->cache->chunks;
    for (size_t i = 0; i < c->whole_count; i++) {
        if (!serves(c, c->whole[i]->number)) continue;
        for (const wr_slot *s = c->whole[i]->slots; s; s = s->next_of_chunk)
            if (s->region->bin == bin) look_at(p, s, best);
    }
}

/* Finds the same either way. A chunk's slots are all over the memory; a bin's entries are read in order, which is taken
 * to cost a sixteenth for each. */
static void look_in(const wr_stitch_plan *p, const wr_bin *bin, wr_stitch_run *best)
{
    size_t slots = 0;
    for (const wr_segment *s = bin->segments; s; s = s->next) slots += s->region ? s->region->count : 0;
    if (slots / 16 < p->cache->chunks.serving_slots)
        look_in_bin(p, bin, best);
    else
        look_in_chunks(p, bin, best);
}

/* Here a single free block may be a run too; in the request's own bin none is large enough. */
static void look_in_other(const wr_stitch_plan *p, wr_bin *bin, wr_stitch_run *best)
{
    if (!bin || best->region) return;
    const wr_block *block = wr_bin_best_fit(bin, p->request->fit.block_bytes);
    if (block && block->segment->region) {
        const size_t from = (size_t)(block->base - block->segment->base);
        *best = (wr_stitch_run){ .region = block->segment, .from = from, .to = from + block->bytes };
    }
    look_in(p, bin, best);
}

/* Marks the free chunks that may be in a run. Returns whether any is another stream's; only with `across` they are. */
static bool mark_serving(const wr_stitch_plan *p, bool across)
{
    wr_chunks *c = &p->cache->chunks;
    bool any = false;
    c->search = ++c->marks;
    c->serving_slots = 0;
    for (size_t i = 0; i < c->whole_count; i++) {
        const wr_chunk *k = c->whole[i];
        const wr_bin *bin = k->bin;
        const bool own = bin->stream == p->bin->stream;
        if (k->pool != p->request->pool || !wr_stitch_may_take(p, bin)) continue;
        if (!own && !(across && wr_stitch_may_have_of(p, bin->stream))) continue;
        c->serving[k->number] = c->search;
        c->serving_slots += k->slot_count;
        any |= !own;
    }
    return any;
}

wr_stitch_run wr_stitch_run_find(const wr_stitch_plan *p)
{
    wr_stitch_run best = { 0 };
    (void)mark_serving(p, false);
    look_in(p, p->bin, &best);
    look_in_other(p, p->open, &best);
    if (p->forced) look_in_other(p, wr_stitch_other_bin(p), &best);
    return best;
}

wr_stitch_run wr_stitch_run_across(const wr_stitch_plan *p)
{
    wr_stitch_run best = { 0 };
    if (mark_serving(p, true)) look_in(p, p->bin, &best);
    return best;
}

/* ---- using it ---------------------------------------------------------------------------------------------------- */

bool wr_stitch_run_lacks(const wr_stitch_plan *p, const wr_slot *slot)
{
    return wr_chunk_is_free(p->cache, slot->chunk) && slot->to - slot->from < slot->chunk->bytes;
}

weir_status wr_stitch_run_use(const wr_stitch_plan *p, const wr_stitch_run *found)
{
    wr_region *region = found->region->region;
    const size_t to = found->from + p->request->fit.block_bytes;
    const uint32_t first = wr_region_find(region, found->from);
    uint32_t last = first;
    while (last < region->count && region->slots[last].at < to) last++;
    size_t records = 0;
    for (uint32_t i = first; i < last; i++) records += 2 * (region->slots[i].slot->chunk->parts + 1);
    WR_TRY(wr_records_spare_blocks(p->cache, records));
    for (uint32_t i = first; i < last; i++) {
        wr_slot *slot = region->slots[i].slot;
        if (wr_stitch_run_lacks(p, slot)) wr_slot_fill_locked(p->cache, slot);
    }
    return WEIR_OK;
}
