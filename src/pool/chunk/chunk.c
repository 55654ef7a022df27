#include "pool/chunk/chunk.h"

#include "base/meta.h"
#include "pool/bin.h"
#include "pool/count.h"
#include "pool/cut.h"
#include "pool/starts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The first slot with a part, from this one on. */
static wr_slot *part_from(wr_slot *slot)
{
    while (wr_slot_is_stale(slot)) slot = slot->next_of_chunk;
    return slot;
}

wr_bin *wr_chunk_bin(const wr_chunk *chunk)
{
    return part_from(chunk->slots)->region->bin;
}

uint32_t wr_region_find(const wr_region *region, size_t offset)
{
    uint32_t low = 0, high = region->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (region->slots[middle].end <= offset)
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

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Makes absent a range of a region that lies in one free block, or is a held one. */
static void take(wr_segment *segment, size_t at, size_t bytes)
{
    wr_block *block = wr_cache_carve_locked(segment, at, bytes);
    assert(block->state == WR_BLOCK_FREE || block->state == WR_BLOCK_HELD);
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
    wr_block *block = wr_cache_carve_locked(segment, at, bytes);
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

/* ---- parts ------------------------------------------------------------------------------------------------------- */

void wr_bin_set_parts_locked(wr_bin *bin, size_t bytes)
{
    wr_mempool *pool = bin->pool;
    if (bin->class == WR_SMALL) pool->small_bytes = pool->small_bytes - bin->part_bytes + bytes;
    if (bin->class == WR_LARGE) pool->streams_with_chunks = pool->streams_with_chunks - !!bin->part_bytes + !!bytes;
    bin->part_bytes = bytes;
}

void wr_slot_note(wr_cache *cache, const wr_slot *slot, weir_event_kind kind, size_t from, size_t to)
{
    wr_bin *bin = slot->region->bin;
    const bool gains = kind == WEIR_EVENT_SEGMENT_MAP;
    wr_bin_set_parts_locked(bin, gains ? bin->part_bytes + (to - from) : bin->part_bytes - (to - from));
    wr_history_record(&cache->history, kind, slot->region->base + slot->at + from, to - from, bin->stream->native,
                      wr_bin_pool_id(bin));
}

static wr_slot_entry *entry_of(const wr_slot *slot)
{
    const wr_region *region = slot->region->region;
    return &region->slots[wr_region_find(region, slot->at)];
}

static void note_stale(wr_cache *cache, wr_slot *slot)
{
    entry_of(slot)->stale = true;
    slot->stale_since = ++cache->chunks.moments;
    TAILQ_INSERT_TAIL(&slot->region->region->stale, slot, stale);
    TAILQ_INSERT_TAIL(&cache->chunks.stale, slot, stale_of_all);
}

static void forget_stale(wr_cache *cache, wr_slot *slot)
{
    entry_of(slot)->stale = false;
    TAILQ_REMOVE(&cache->chunks.stale, slot, stale_of_all);
    TAILQ_REMOVE(&slot->region->region->stale, slot, stale);
}

/* Largest first. */
static int compare(const wr_chunk *a, const wr_chunk *b)
{
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->handle < b->handle ? -1 : a->handle > b->handle;
}

RB_GENERATE_INTERNAL(wr_whole_chunks, wr_chunk, whole, compare, __attribute__((unused)) static)

static void forget_free(wr_slot *slot)
{
    wr_chunk *chunk = slot->chunk;
    if (!slot->free) return;
    if (chunk->free_bytes == chunk->bytes) RB_REMOVE(wr_whole_chunks, &chunk->pool->whole, chunk);
    chunk->free_bytes -= slot->free;
    slot->free = 0;
    LIST_REMOVE(slot, free_part);
}

static void unlist_part(wr_slot *slot)
{
    if (slot->short_part.le_prev) LIST_REMOVE(slot, short_part);
    slot->short_part.le_prev = NULL;
    forget_free(slot);
}

static void list_part(wr_slot *slot)
{
    wr_bin *bin = slot->region->bin;
    const size_t part = slot->to - slot->from;
    unlist_part(slot);
    if (part > 0 && part < WR_PART_USUAL) LIST_INSERT_HEAD(&bin->short_parts, slot, short_part);
    wr_bin_stir(bin);
}

void wr_bin_move_parts_locked(wr_bin *from, wr_bin *to)
{
    while (LIST_FIRST(&from->free_parts)) forget_free(LIST_FIRST(&from->free_parts));
    for (wr_slot *slot; (slot = LIST_FIRST(&from->short_parts));) {
        LIST_REMOVE(slot, short_part);
        LIST_INSERT_HEAD(&to->short_parts, slot, short_part);
    }
}

void wr_slot_leave_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to)
{
    take(slot->region, slot->at + from, to - from);
    wr_slot_note(cache, slot, WEIR_EVENT_SEGMENT_UNMAP, from, to);
    slot->chunk->away += to - from;
    if (slot->from == from)
        slot->from = to;
    else
        slot->to = from;
    list_part(slot);
    if (!wr_slot_is_stale(slot)) return;
    slot->chunk->parts--;
    note_stale(cache, slot);
}

static void leave_chunk(wr_slot *slot)
{
    wr_slot *const prev = slot->prev_of_chunk, *const next = slot->next_of_chunk;
    *(prev ? &prev->next_of_chunk : &slot->chunk->slots) = next;
    if (next) next->prev_of_chunk = prev;
}

static void join_chunk(wr_slot *slot)
{
    wr_slot *const next = slot->chunk->slots;
    slot->prev_of_chunk = NULL;
    slot->next_of_chunk = next;
    if (next) next->prev_of_chunk = slot;
    slot->chunk->slots = slot;
}

void wr_slot_enter_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to)
{
    if (wr_slot_is_stale(slot)) {
        forget_stale(cache, slot);
        leave_chunk(slot);
        join_chunk(slot);
        slot->chunk->parts++;
        slot->from = slot->to = from;
    }
    if (slot->to == from)
        slot->to = to;
    else
        slot->from = from;
    list_part(slot);
    slot->chunk->away -= to - from;
    wr_slot_note(cache, slot, WEIR_EVENT_SEGMENT_MAP, from, to);
    wr_region_give_locked(slot->region, slot->at + from, to - from);
}

wr_slot *wr_chunk_leave_locked(wr_cache *cache, wr_chunk *chunk)
{
    wr_slot *home = NULL, *next = chunk->slots;
    while (chunk->parts > 0) {
        home = part_from(next);
        next = home->next_of_chunk;
        wr_slot_leave_locked(cache, home, home->from, home->to);
    }
    return home;
}

void wr_slot_fill_locked(wr_cache *cache, wr_slot *slot)
{
    (void)wr_chunk_leave_locked(cache, slot->chunk);
    wr_slot_enter_locked(cache, slot, 0, slot->chunk->bytes);
}

/* The chunk is free, or held. */
static wr_block *block_of_part(const wr_slot *slot)
{
    return wr_cache_carve_locked(slot->region, slot->at + slot->from, slot->to - slot->from);
}

wr_slot *wr_chunk_hold_locked(wr_chunk *chunk)
{
    wr_slot *one = NULL, *next = chunk->slots;
    for (size_t i = 0; i < chunk->parts; i++) {
        one = part_from(next);
        next = one->next_of_chunk;
        block_of_part(one)->state = WR_BLOCK_HELD;
    }
    return one;
}

void wr_chunk_let_go_locked(wr_cache *cache, wr_chunk *chunk)
{
    wr_slot *next = chunk->slots;
    for (size_t i = 0; i < chunk->parts; i++) {
        const wr_slot *part = part_from(next);
        next = part->next_of_chunk;
        wr_block_let_go_locked(cache, block_of_part(part));
    }
}

/* ---- the survey -------------------------------------------------------------------------------------------------- */

const wr_block *wr_slot_free_block(const wr_slot *slot)
{
    const char *from = slot->region->base + slot->at + slot->from, *to = slot->region->base + slot->at + slot->to;
    if (wr_starts_any_between(slot->region, from, to)) return NULL;
    const wr_block *block = wr_starts_block_at(slot->region, from);
    return block->state == WR_BLOCK_FREE && block->base + block->bytes >= to ? block : NULL;
}

/* The slot's part is wholly free. What was noted before stays where it is in the lists. */
static void note_free(wr_slot *slot, uint64_t survey)
{
    wr_chunk *chunk = slot->chunk;
    slot->found = survey;
    if (slot->free) return;
    slot->free = slot->to - slot->from;
    LIST_INSERT_HEAD(&slot->region->bin->free_parts, slot, free_part);
    chunk->free_bytes += slot->free;
    if (chunk->free_bytes < chunk->bytes) return;
    chunk->bin = wr_chunk_bin(chunk);
    wr_chunk *const twin = RB_INSERT(wr_whole_chunks, &chunk->pool->whole, chunk);
    assert(!twin);
    (void)twin;
}

uint32_t wr_block_first_slot(const wr_block *block)
{
    return wr_region_find(block->segment->region, (size_t)(block->base - block->segment->base));
}

bool wr_block_piece(const wr_block *block, uint32_t index, wr_piece *out)
{
    const wr_segment *segment = block->segment;
    const wr_region *region = segment->region;
    const size_t from = (size_t)(block->base - segment->base), to = from + block->bytes;
    if (index >= region->count || region->slots[index].at >= to) return false;
    wr_slot *s = region->slots[index].slot;
    const size_t first = s->at + s->from, last = s->at + s->to;
    *out = (wr_piece){ .slot = s, .from = first > from ? first : from, .to = last < to ? last : to };
    assert(out->from < out->to); /* no part of a free block is absent */
    return true;
}

static void survey_block(const wr_block *block, uint64_t survey)
{
    wr_piece piece;
    if (!block->segment->region) return;
    for (uint32_t i = wr_block_first_slot(block); wr_block_piece(block, i, &piece); i++)
        if (piece.to - piece.from == piece.slot->to - piece.slot->from) note_free(piece.slot, survey);
}

static void survey_bin(wr_bin *bin, uint64_t survey)
{
    wr_slot *s, *next;
    wr_block *b = bin->part_bytes < WR_PART_USUAL ? NULL : wr_bin_best_fit(bin, WR_PART_USUAL);
    for (; b; b = wr_bin_larger(bin, b)) survey_block(b, survey);
    LIST_FOREACH(s, &bin->short_parts, short_part)
        if (s->found != survey && wr_slot_free_block(s)) note_free(s, survey);
    for (s = LIST_FIRST(&bin->free_parts); s; s = next) {
        next = LIST_NEXT(s, free_part);
        if (s->found != survey) forget_free(s);
    }
}

weir_status wr_chunks_survey_begin_locked(wr_cache *cache)
{
    wr_chunks *c = &cache->chunks;
    WR_TRY(wr_meta_grow(&c->whole, &c->whole_capacity, c->count, sizeof *c->whole, "free chunks"));
    WR_TRY(wr_meta_grow(&c->serving, &c->serving_capacity, c->numbers, sizeof *c->serving, "free chunks"));
    c->surveys++;
    c->whole_count = 0;
    return WEIR_OK;
}

/* Blocks come into the bins of a detached front without the lock that the list of bins needs. */
static void calm(wr_bin *bin)
{
    if (bin->ledger != &bin->pool->cache->ledger) return;
    bin->stirred = false;
    LIST_REMOVE(bin, in_stirred);
}

void wr_chunks_survey_locked(wr_mempool *pool)
{
    wr_chunks *c = &pool->cache->chunks;
    wr_chunk *chunk;
    for (wr_bin *bin = LIST_FIRST(&pool->stirred), *next; bin; bin = next) {
        next = LIST_NEXT(bin, in_stirred);
        survey_bin(bin, c->surveys);
        calm(bin);
    }
    RB_FOREACH(chunk, wr_whole_chunks, &pool->whole) {
        chunk->surveyed = c->surveys;
        c->whole[c->whole_count++] = chunk;
    }
}

static int compare_listed(const void *left, const void *right)
{
    return compare(*(const wr_chunk *const *)left, *(const wr_chunk *const *)right);
}

void wr_chunks_sort(wr_chunk **chunks, size_t count)
{
    if (count > 0) qsort(chunks, count, sizeof *chunks, compare_listed);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

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
    return wr_meta_grow(&region->slots, &region->capacity, region->count + more, sizeof *region->slots,
                        "slots of a region");
}

/* ---- what slots there are ---------------------------------------------------------------------------------------- */

static void set_end(wr_region *region)
{
    region->end = region->count ? region->slots[region->count - 1].end : 0;
}

void wr_slot_add_locked(wr_cache *cache, wr_slot *slot)
{
    wr_region *region = slot->region->region;
    const uint32_t place = wr_region_find(region, slot->at);
    wr_slot_entry *at = &region->slots[place];
    assert(region->count < region->capacity);
    memmove(at + 1, at, (region->count - place) * sizeof *at);
    *at = (wr_slot_entry){ slot->at, slot->at + slot->chunk->bytes, slot, slot->chunk->number, false };
    region->count++;
    set_end(region);
    list_part(slot);
    join_chunk(slot);
    slot->chunk->slot_count++;
    if (wr_slot_is_stale(slot))
        note_stale(cache, slot);
    else
        slot->chunk->parts++;
    cache->chunks.mapped_bytes += slot->chunk->bytes;
    cache->chunks.mappings++;
}

void wr_slot_drop_locked(wr_cache *cache, wr_slot *slot)
{
    wr_region *region = slot->region->region;
    wr_slot_entry *at = entry_of(slot);
    assert(at->slot == slot);
    if (wr_slot_is_stale(slot))
        forget_stale(cache, slot);
    else
        slot->chunk->parts--;
    region->count--;
    memmove(at, at + 1, (size_t)(&region->slots[region->count] - at) * sizeof *at);
    set_end(region);
    unlist_part(slot);
    leave_chunk(slot);
    slot->chunk->slot_count--;
    cache->chunks.mapped_bytes -= slot->chunk->bytes;
    cache->chunks.mappings--;
}

static void count_in(weir_memory_stats *stats, const wr_chunk *chunk)
{
    wr_stat_add(stats->segment, WEIR_STAT_LARGE, 1);
    wr_stat_add(stats->reserved_bytes, WEIR_STAT_LARGE, chunk->bytes);
}

static void count_out(weir_memory_stats *stats, const wr_chunk *chunk)
{
    wr_stat_remove(stats->segment, WEIR_STAT_LARGE, 1);
    wr_stat_remove(stats->reserved_bytes, WEIR_STAT_LARGE, chunk->bytes);
}

static void join_pool(const wr_chunk *chunk)
{
    wr_mempool *pool = chunk->pool;
    pool->chunk_bytes += chunk->bytes;
    if (pool->counted) count_in(&pool->stats, chunk);
}

static void leave_pool(const wr_chunk *chunk)
{
    wr_mempool *pool = chunk->pool;
    pool->chunk_bytes -= chunk->bytes;
    if (pool->counted) count_out(&pool->stats, chunk);
}

void wr_chunk_add_locked(wr_cache *cache, wr_chunk *chunk)
{
    wr_chunks *c = &cache->chunks;
    chunk->prev = NULL;
    chunk->next = c->first;
    if (c->first) c->first->prev = chunk;
    c->first = chunk;
    c->count++;
    c->bytes += chunk->bytes;
    if (chunk->bytes > c->largest) c->largest = chunk->bytes;
    count_in(&cache->stats, chunk);
    join_pool(chunk);
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
    c->bytes -= chunk->bytes;
    count_out(&cache->stats, chunk);
    leave_pool(chunk);
}

void wr_chunk_pass_locked(wr_chunk *chunk, wr_mempool *to)
{
    if (chunk->pool == to) return;
    leave_pool(chunk);
    chunk->pool = to;
    join_pool(chunk);
}
