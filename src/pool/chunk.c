#include "pool/chunk.h"

#include "base/meta.h"
#include "pool/bin.h"
#include "pool/count.h"
#include "pool/cut.h"
#include "pool/starts.h"

#include <assert.h>
#include <stdlib.h>

/* Free blocks below this are not looked at: no part of a chunk is smaller. */
#define SURVEYED_FROM WR_CHUNK_PART_LEAST

wr_bin *wr_chunk_bin(const wr_chunk *chunk)
{
    const wr_slot *slot = chunk->slots;
    while (wr_slot_is_stale(slot)) slot = slot->next_of_chunk;
    return slot->region->bin;
}

uint64_t wr_chunks_held_locked(const wr_cache *cache)
{
    uint64_t held = 0;
    for (const wr_chunk *k = cache->chunks.first; k; k = k->next) held += k->bytes;
    return held;
}

size_t wr_chunk_parts(const wr_chunk *chunk)
{
    size_t parts = 0;
    for (const wr_slot *s = chunk->slots; s; s = s->next_of_chunk) parts += !wr_slot_is_stale(s);
    return parts;
}

uint32_t wr_region_find(const wr_region *region, size_t offset)
{
    uint32_t low = 0, high = region->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (region->slots[middle]->at + region->slots[middle]->chunk->bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

wr_block *wr_region_tail(const wr_segment *segment)
{
    const wr_block *absent = wr_starts_block_at(segment, segment->base + segment->region->end);
    const bool ends_there = absent->base == segment->base + segment->region->end;
    return ends_there && absent->prev && absent->prev->state == WR_BLOCK_FREE ? absent->prev : NULL;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

/* Cuts a block; both parts keep its state and are in no tree. */
static wr_block *cut(wr_cache *cache, wr_block *block, size_t bytes)
{
    wr_block *rest = NULL;
    weir_status status = wr_record_block(cache, &rest);
    assert(status == WEIR_OK); /* spared by the caller */
    (void)status;
    wr_block_split(block, bytes, rest);
    rest->state = block->state;
    rest->freed_at = block->freed_at;
    return rest;
}

wr_block *wr_region_carve_locked(wr_segment *segment, size_t at, size_t bytes)
{
    wr_cache *cache = segment->cache;
    wr_block *block = wr_starts_block_at(segment, segment->base + at);
    const size_t before = at - (size_t)(block->base - segment->base);
    const bool free = block->state == WR_BLOCK_FREE;
    assert(before + bytes <= block->bytes);
    if (free) {
        wr_count_free_out(segment->bin, block);
        wr_bin_remove(segment->bin, block);
    }
    wr_block *left = before ? block : NULL;
    if (left) block = cut(cache, left, before);
    wr_block *right = block->bytes > bytes ? cut(cache, block, bytes) : NULL;
    wr_block *around[] = { left, right };
    for (int i = 0; i < 2; i++) {
        if (!free || !around[i]) continue;
        wr_bin_insert(segment->bin, around[i]);
        wr_count_free_in(segment->bin, around[i]);
    }
    return block;
}

void wr_region_take_locked(wr_segment *segment, size_t at, size_t bytes)
{
    wr_block *block = wr_region_carve_locked(segment, at, bytes);
    assert(block->state == WR_BLOCK_FREE);
    block->state = WR_BLOCK_ABSENT;
    if (block->next && block->next->state == WR_BLOCK_ABSENT) {
        wr_block *right = block->next;
        wr_block_absorb_next(block);
        wr_record_block_done(segment->cache, right);
    }
    if (block->prev && block->prev->state == WR_BLOCK_ABSENT) {
        wr_block_absorb_next(block->prev);
        wr_record_block_done(segment->cache, block);
    }
}

void wr_region_give_locked(wr_segment *segment, size_t at, size_t bytes)
{
    wr_block *block = wr_region_carve_locked(segment, at, bytes);
    assert(block->state == WR_BLOCK_ABSENT);
    wr_block_let_go_locked(segment->cache, block);
}

void wr_block_hold_locked(wr_block *block)
{
    wr_count_free_out(block->segment->bin, block);
    wr_bin_remove(block->segment->bin, block);
    block->state = WR_BLOCK_HELD;
}

void wr_block_let_go_locked(wr_cache *cache, wr_block *block)
{
    block->state = WR_BLOCK_FREE;
    wr_cache_join_free_locked(cache, block);
}

/* ---- parts -------------------------------------------------------------------------------------------------------- */

void wr_slot_note(wr_cache *cache, const wr_slot *slot, weir_event_kind kind, size_t from, size_t to)
{
    size_t *bytes = &slot->region->bin->part_bytes;
    *bytes = kind == WEIR_EVENT_SEGMENT_MAP ? *bytes + (to - from) : *bytes - (to - from);
    wr_history_record(&cache->history, kind, slot->region->base + slot->at + from, to - from,
                      slot->region->bin->stream->native, wr_bin_pool_id(slot->region->bin));
}

static void note_stale(wr_cache *cache, wr_slot *slot)
{
    slot->stale_since = ++cache->chunks.moments;
    TAILQ_INSERT_TAIL(&slot->region->region->stale, slot, stale);
}

static void forget_stale(wr_slot *slot)
{
    TAILQ_REMOVE(&slot->region->region->stale, slot, stale);
}

void wr_slot_leave_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to)
{
    wr_region_take_locked(slot->region, slot->at + from, to - from);
    wr_slot_note(cache, slot, WEIR_EVENT_SEGMENT_UNMAP, from, to);
    slot->chunk->away += to - from;
    if (slot->from == from)
        slot->from = to;
    else
        slot->to = from;
    if (wr_slot_is_stale(slot)) note_stale(cache, slot);
}

void wr_slot_enter_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to)
{
    if (wr_slot_is_stale(slot)) {
        forget_stale(slot);
        slot->from = slot->to = from;
    }
    if (slot->to == from)
        slot->to = to;
    else
        slot->from = from;
    slot->chunk->away -= to - from;
    wr_slot_note(cache, slot, WEIR_EVENT_SEGMENT_MAP, from, to);
    wr_region_give_locked(slot->region, slot->at + from, to - from);
}

wr_slot *wr_chunk_leave_locked(wr_cache *cache, wr_chunk *chunk)
{
    wr_slot *home = NULL;
    for (wr_slot *s = chunk->slots; s; s = s->next_of_chunk) {
        if (wr_slot_is_stale(s)) continue;
        wr_slot_leave_locked(cache, s, s->from, s->to);
        home = s;
    }
    return home;
}

/* ---- the survey --------------------------------------------------------------------------------------------------- */

static weir_status note_extent(wr_chunks *c, wr_slot *slot, size_t from, size_t to)
{
    if (c->extent_count == c->extent_capacity) {
        const size_t capacity = c->extent_capacity ? c->extent_capacity * 2 : 64;
        void *extents = c->extents;
        WR_TRY(wr_meta_resize(&extents, capacity * sizeof(wr_extent), "free pieces of chunks"));
        c->extents = extents;
        c->extent_capacity = capacity;
    }
    c->extents[c->extent_count++] = (wr_extent){ slot, from, to };
    slot->chunk->free_bytes += to - from;
    return WEIR_OK;
}

static weir_status survey_block(wr_chunks *c, const wr_block *block)
{
    const wr_segment *segment = block->segment;
    const wr_region *region = segment->region;
    const size_t from = (size_t)(block->base - segment->base), to = from + block->bytes;
    for (uint32_t i = wr_region_find(region, from); i < region->count && region->slots[i]->at < to; i++) {
        wr_slot *s = region->slots[i];
        const size_t first = s->at + s->from > from ? s->at + s->from : from;
        const size_t last = s->at + s->to < to ? s->at + s->to : to;
        if (first < last) WR_TRY(note_extent(c, s, first, last));
    }
    return WEIR_OK;
}

static int by_place(const void *left, const void *right)
{
    const wr_extent *a = left, *b = right;
    if (a->slot->region != b->slot->region) return a->slot->region->base < b->slot->region->base ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

weir_status wr_chunks_survey_locked(wr_cache *cache)
{
    wr_chunks *c = &cache->chunks;
    const wr_mempool *pool = cache->pools;
    c->extent_count = 0;
    for (wr_chunk *k = c->first; k; k = k->next) k->free_bytes = 0;
    for (uint32_t i = 0; i < pool->bin_capacity; i++) {
        if (!pool->bins[i]) continue;
        wr_bin *bin = pool->bins[i];
        for (wr_block *b = wr_bin_best_fit(bin, SURVEYED_FROM); b; b = wr_bin_larger(bin, b))
            if (b->segment->region) WR_TRY(survey_block(c, b));
    }
    if (c->extent_count) qsort(c->extents, c->extent_count, sizeof(wr_extent), by_place);
    return WEIR_OK;
}

/* ---- records ------------------------------------------------------------------------------------------------------ */

void wr_region_done(wr_cache *cache, wr_segment *segment)
{
    if (segment->region) wr_meta_free(segment->region->slots);
    wr_meta_free(segment->region);
    segment->region = NULL;
    if (segment->first) wr_record_block_done(cache, segment->first);
    wr_record_segment_done(cache, segment);
}

weir_status wr_region_reserve_slots(wr_region *region, size_t more)
{
    if (region->count + more <= region->capacity) return WEIR_OK;
    size_t capacity = region->capacity ? region->capacity : 16;
    while (capacity < region->count + more) capacity *= 2;
    void *slots = region->slots;
    WR_TRY(wr_meta_resize(&slots, capacity * sizeof(wr_slot *), "slots of a region"));
    region->slots = slots;
    region->capacity = (uint32_t)capacity;
    return WEIR_OK;
}

/* ---- what slots there are ----------------------------------------------------------------------------------------- */

static void set_end(wr_region *region)
{
    const wr_slot *last = region->count ? region->slots[region->count - 1] : NULL;
    region->end = last ? last->at + last->chunk->bytes : 0;
}

void wr_slot_add_locked(wr_cache *cache, wr_slot *slot)
{
    wr_region *region = slot->region->region;
    const uint32_t place = wr_region_find(region, slot->at);
    assert(region->count < region->capacity);
    for (uint32_t i = region->count++; i > place; i--) region->slots[i] = region->slots[i - 1];
    region->slots[place] = slot;
    set_end(region);
    slot->next_of_chunk = slot->chunk->slots;
    slot->chunk->slots = slot;
    if (wr_slot_is_stale(slot)) note_stale(cache, slot);
    cache->chunks.mapped_bytes += slot->chunk->bytes;
}

void wr_slot_drop_locked(wr_cache *cache, wr_slot *slot)
{
    wr_region *region = slot->region->region;
    const uint32_t place = wr_region_find(region, slot->at);
    assert(region->slots[place] == slot);
    region->count--;
    for (uint32_t i = place; i < region->count; i++) region->slots[i] = region->slots[i + 1];
    set_end(region);
    wr_slot **link = &slot->chunk->slots;
    while (*link != slot) link = &(*link)->next_of_chunk;
    *link = slot->next_of_chunk;
    if (wr_slot_is_stale(slot)) forget_stale(slot);
    cache->chunks.mapped_bytes -= slot->chunk->bytes;
}

static void count_chunk(wr_cache *cache, const wr_chunk *chunk, bool comes)
{
    wr_mempool *pool = cache->pools;
    weir_memory_stats *all[] = { &cache->stats, pool->counted ? &pool->stats : NULL };
    for (int i = 0; i < 2 && all[i]; i++) {
        (comes ? wr_stat_add : wr_stat_remove)(all[i]->segment, WEIR_STAT_LARGE, 1);
        (comes ? wr_stat_add : wr_stat_remove)(all[i]->reserved_bytes, WEIR_STAT_LARGE, chunk->bytes);
    }
}

void wr_chunk_add_locked(wr_cache *cache, wr_chunk *chunk)
{
    wr_chunks *c = &cache->chunks;
    chunk->prev = NULL;
    chunk->next = c->first;
    if (c->first) c->first->prev = chunk;
    c->first = chunk;
    c->count++;
    count_chunk(cache, chunk, true);
}

void wr_chunk_drop_locked(wr_cache *cache, wr_chunk *chunk)
{
    wr_chunks *c = &cache->chunks;
    if (chunk->next) chunk->next->prev = chunk->prev;
    if (chunk->prev)
        chunk->prev->next = chunk->next;
    else
        c->first = chunk->next;
    c->count--;
    count_chunk(cache, chunk, false);
}
