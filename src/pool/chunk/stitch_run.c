#include "pool/chunk/stitch_run.h"

#include "pool/bin.h"
#include "pool/starts.h"

/* ---- neighbours -------------------------------------------------------------------------------------------------- */

/* The slot immediately before or behind; NULL: nothing is mapped there. */
static wr_slot *before(const wr_slot *slot)
{
    wr_slot *left = slot->left;
    return left && left->at + left->chunk->bytes == slot->at ? left : NULL;
}

static wr_slot *behind(const wr_slot *slot)
{
    wr_slot *right = slot->right;
    return right && slot->at + slot->chunk->bytes == right->at ? right : NULL;
}

/* The free block that contains the offset; NULL: none, or one smaller than any part. */
static const wr_block *free_at(const wr_segment *region, size_t offset)
{
    const wr_block *block = wr_starts_block_at(region, region->base + offset);
    return block->state == WR_BLOCK_FREE && block->bytes >= WR_CHUNK_PART_LEAST ? block : NULL;
}

/* Where free space right before the slot begins, and where that right behind it ends. Most neighbours are stale or have
 * their part elsewhere: then there is none. */
static size_t free_before(const wr_slot *slot)
{
    const wr_slot *left = before(slot);
    const bool any = left && !wr_slot_is_stale(left) && left->to == left->chunk->bytes;
    const wr_block *block = any ? free_at(slot->region, slot->at - 1) : NULL;
    return block ? (size_t)(block->base - slot->region->base) : slot->at;
}

static size_t free_behind(const wr_slot *slot)
{
    const size_t end = slot->at + slot->chunk->bytes;
    const wr_slot *right = behind(slot);
    const bool any = right && !wr_slot_is_stale(right) && right->from == 0;
    const wr_block *block = any ? free_at(slot->region, end) : NULL;
    return block ? (size_t)(block->base - slot->region->base) + block->bytes : end;
}

/* ---- finding one ------------------------------------------------------------------------------------------------- */

static bool serves(const wr_stitch_plan *p, const wr_slot *slot)
{
    return wr_chunk_is_free(p->cache, slot->chunk) && slot->chunk->serves;
}

static bool is_shorter(const wr_stitch_run *a, const wr_stitch_run *b)
{
    const size_t of_a = a->to - a->from, of_b = b->to - b->from;
    return of_a != of_b ? of_a < of_b : a->region->base + a->from < b->region->base + b->from;
}

static void keep_shortest(const wr_stitch_plan *p, const wr_stitch_run *now, wr_stitch_run *best)
{
    if (now->to - now->from < p->request->fit.block_bytes) return;
    if (!best->region || is_shorter(now, best)) *best = *now;
}

static wr_stitch_run begin(const wr_stitch_plan *p, const wr_slot *slot, size_t from)
{
    return (wr_stitch_run){ .region = slot->region, .from = from, .mark = ++p->cache->chunks.marks };
}

/* From the first of adjacent slots that serve to the last. A chunk that is already in the run begins another. */
static void look_along(const wr_stitch_plan *p, wr_slot *slot, wr_stitch_run *best)
{
    wr_stitch_run now = begin(p, slot, free_before(slot));
    wr_slot *last = slot;
    for (; slot && serves(p, slot); slot = behind(slot)) {
        if (slot->chunk->mark == now.mark) {
            keep_shortest(p, &now, best);
            now = begin(p, slot, slot->at);
        }
        slot->chunk->mark = now.mark;
        now.to = slot->at + slot->chunk->bytes;
        last = slot;
    }
    now.to = free_behind(last);
    keep_shortest(p, &now, best);
}

/* Chunks that streams use by turns have a slot in each one's bin. */
static size_t slots_that_serve(const wr_chunks *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->whole_count; i++) count += c->whole[i]->serves ? c->whole[i]->slot_count : 0;
    return count;
}

static bool has_fewer_slots(const wr_bin *bin, size_t than)
{
    size_t count = 0;
    for (const wr_segment *s = bin->segments; s && count < than; s = s->next)
        count += 1 + (s->region ? s->region->count : 0);
    return count < than;
}

static void look_at(const wr_stitch_plan *p, wr_slot *slot, wr_stitch_run *best)
{
    const wr_slot *left = before(slot);
    if (serves(p, slot) && !(left && serves(p, left))) look_along(p, slot, best);
}

static void look_in_bin(const wr_stitch_plan *p, const wr_bin *bin, wr_stitch_run *best)
{
    for (const wr_segment *s = bin->segments; s; s = s->next)
        for (uint32_t i = 0; s->region && i < s->region->count; i++) look_at(p, s->region->slots[i], best);
}

static void look_in_chunks(const wr_stitch_plan *p, const wr_bin *bin, wr_stitch_run *best)
{
    const wr_chunks *c = &p->cache->chunks;
    for (size_t i = 0; i < c->whole_count; i++) {
        if (!c->whole[i]->serves) continue;
        for (wr_slot *s = c->whole[i]->slots; s; s = s->next_of_chunk)
            if (s->region->bin == bin) look_at(p, s, best);
    }
}

/* Finds the same either way, and takes time for the fewer slots. */
static void look_in(const wr_stitch_plan *p, const wr_bin *bin, wr_stitch_run *best)
{
    if (has_fewer_slots(bin, slots_that_serve(&p->cache->chunks)))
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
    const wr_chunks *c = &p->cache->chunks;
    bool any = false;
    for (size_t i = 0; i < c->whole_count; i++) {
        wr_chunk *k = c->whole[i];
        const wr_bin *bin = k->bin;
        const bool own = bin->stream == p->bin->stream;
        k->serves = k->pool == p->request->pool && wr_stitch_may_take(p, bin) &&
                    (own || (across && wr_stitch_may_have_of(p, bin->stream)));
        any |= k->serves && !own;
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
    while (last < region->count && region->slots[last]->at < to) last++;
    size_t records = 0;
    for (uint32_t i = first; i < last; i++) records += 2 * (region->slots[i]->chunk->parts + 1);
    WR_TRY(wr_records_spare_blocks(p->cache, records));
    for (uint32_t i = first; i < last; i++) {
        wr_slot *slot = region->slots[i];
        if (wr_stitch_run_lacks(p, slot)) wr_slot_fill_locked(p->cache, slot);
    }
    return WEIR_OK;
}
