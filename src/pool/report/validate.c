/*
 * validate: checks every structure of a cache against every other, and all blocks against the statistics
 * (wr_inspect_validate).
 */
#include "pool/account.h"
#include "pool/address.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"
#include "pool/pending.h"
#include "pool/plan/subplan.h"
#include "pool/report/inspect.h"
#include "pool/starts.h"

/* Sums over all blocks, to be compared with the statistics. */
typedef struct totals {
    uint64_t segments, reserved, paused, live, live_bytes, pending, pending_bytes, requested, split, split_bytes,
        free_blocks, slots, uses;
} totals;

#define VALID(condition, ...) WR_ENSURE(condition, WEIR_ERR_INTERNAL, "validate: " __VA_ARGS__)

static weir_status validate_block(const wr_segment *segment, const wr_block *block, const char *expected, totals *t)
{
    VALID(block->segment == segment, "block %p names another segment", (void *)block->base);
    VALID(block->base == expected, "block at %p, its neighbour ends at %p", (void *)block->base, (void *)expected);
    VALID(block->bytes > 0, "block %p is empty", (void *)block->base);
    VALID(wr_starts_find(segment, block->base) == block, "block %p is not in the index", (void *)block->base);
    VALID(wr_starts_block_at(segment, block->base + block->bytes - 1) == block, "block %p is not in its page",
          (void *)block->base);
    VALID(!block->next || block->next->prev == block, "block %p: links disagree", (void *)block->base);
    if (block->state == WR_BLOCK_ABSENT || block->state == WR_BLOCK_HELD) {
        VALID(segment->region, "block %p is absent from a segment", (void *)block->base);
        const bool absent = block->state == WR_BLOCK_ABSENT && block->next && block->next->state == WR_BLOCK_ABSENT;
        VALID(!absent, "absent neighbours at %p", (void *)block->base);
        return WEIR_OK;
    }
    if (block->state != WR_BLOCK_FREE) {
        uint64_t *number = block->state == WR_BLOCK_LIVE ? &t->live : &t->pending;
        uint64_t *bytes = block->state == WR_BLOCK_LIVE ? &t->live_bytes : &t->pending_bytes;
        ++*number;
        *bytes += block->bytes;
        t->requested += block->requested;
        for (const wr_use *u = block->uses; u; u = u->next_of_block) t->uses++;
        VALID(block->state == WR_BLOCK_LIVE || block->uses || block->kept, "block %p is pending for nothing",
              (void *)block->base);
        VALID(block->requested <= block->bytes, "block %p is smaller than what was asked", (void *)block->base);
        return WEIR_OK;
    }
    VALID(!block->next || block->next->state != WR_BLOCK_FREE, "free neighbours at %p", (void *)block->base);
    VALID(!block->uses, "free block %p is waited for", (void *)block->base);
    VALID(wr_block_is(block, WR_MARK_NONE), "free block %p is marked as live", (void *)block->base);
    t->free_blocks++;
    if (wr_block_is_inactive_split(block)) {
        t->split++;
        t->split_bytes += block->bytes;
    }
    return WEIR_OK;
}

/* All stale slots are listed, in the order in which they became stale, and nothing else is. */
static weir_status validate_stale(const wr_segment *segment)
{
    const wr_region *region = segment->region;
    const wr_slot *s;
    uint32_t stale = 0, listed = 0;
    uint64_t since = 0;
    for (uint32_t i = 0; i < region->count; i++) stale += wr_slot_is_stale(region->slots[i].slot);
    TAILQ_FOREACH(s, &region->stale, stale) {
        VALID(wr_slot_is_stale(s) && s->region == segment && s->stale_since > since,
              "region %p: a slot at %zu is among the stale ones, or out of order", (void *)segment->base, s->at);
        since = s->stale_since;
        VALID(++listed <= stale, "region %p: more than its %u stale slots are listed", (void *)segment->base, stale);
    }
    VALID(listed == stale, "region %p: %u stale slots, %u of them listed", (void *)segment->base, stale, listed);
    return WEIR_OK;
}

/* The slot before it ends at `end`. */
static weir_status validate_slot(const wr_segment *segment, uint32_t i, size_t end)
{
    const wr_slot_entry *e = &segment->region->slots[i];
    const wr_slot *s = e->slot;
    VALID(s->region == segment && s->at >= end, "slot %u of region %p is out of order", i, (void *)segment->base);
    VALID(e->at == s->at && e->end == s->at + s->chunk->bytes && e->chunk == s->chunk->number &&
              e->stale == wr_slot_is_stale(s),
          "slot %u of region %p is not as its entry says", i, (void *)segment->base);
    VALID(s->from <= s->to && s->to <= s->chunk->bytes, "slot %u of region %p: its part is not in its chunk", i,
          (void *)segment->base);
    VALID(wr_address_find(segment->base + s->at) == segment, "slot %u of region %p is not in the address map", i,
          (void *)segment->base);
    if (wr_slot_is_stale(s)) return WEIR_OK;
    const wr_block *b = wr_starts_block_at(segment, segment->base + s->at + s->from);
    for (; b->base < segment->base + s->at + s->to; b = b->next)
        VALID(b->state != WR_BLOCK_ABSENT, "block %p is absent from a slot's part", (void *)b->base);
    return WEIR_OK;
}

/* A block is absent exactly where no slot has a part: the parts and the absent rest fill the region. */
static weir_status validate_region(const wr_segment *segment, totals *t)
{
    const wr_region *region = segment->region;
    size_t end = 0, parts = 0, present = 0;
    for (uint32_t i = 0; i < region->count; i++) {
        const wr_slot_entry *e = &region->slots[i];
        WR_TRY(validate_slot(segment, i, end));
        end = e->end;
        parts += e->slot->to - e->slot->from;
    }
    VALID(end <= region->end && region->end <= segment->bytes, "region %p: slots behind its end",
          (void *)segment->base);
    for (const wr_block *b = segment->first; b; b = b->next) present += b->state == WR_BLOCK_ABSENT ? 0 : b->bytes;
    VALID(present == parts, "region %p: blocks of %zu bytes in parts of %zu", (void *)segment->base, present, parts);
    t->slots += region->count;
    return validate_stale(segment);
}

/* The chunk's parts neither overlap nor leave anything out. */
static weir_status validate_chunk(const wr_chunk *chunk)
{
    size_t covered = 0, slots = 0, parts = 0, free_bytes = 0;
    for (const wr_slot *s = chunk->slots, *prev = NULL; s; prev = s, s = s->next_of_chunk) {
        slots++;
        parts += !wr_slot_is_stale(s);
        VALID(s->chunk == chunk && s->prev_of_chunk == prev, "a slot of chunk %#llx is another's, or listed wrongly",
              (unsigned long long)chunk->handle);
        VALID(wr_slot_is_stale(s) || s->region->bin->pool == chunk->pool, "a part of chunk %#llx is in another pool",
              (unsigned long long)chunk->handle);
        covered += s->to - s->from;
        free_bytes += s->free;
        VALID(!s->free || s->free == s->to - s->from, "a part of chunk %#llx has %zu bytes free, noted as %zu",
              (unsigned long long)chunk->handle, s->to - s->from, s->free);
        for (const wr_slot *o = s->next_of_chunk; o; o = o->next_of_chunk)
            VALID(o->to <= s->from || s->to <= o->from || wr_slot_is_stale(o) || wr_slot_is_stale(s),
                  "parts of chunk %#llx overlap", (unsigned long long)chunk->handle);
    }
    VALID(free_bytes == chunk->free_bytes, "parts of chunk %#llx have %zu bytes free, counted as %zu",
          (unsigned long long)chunk->handle, free_bytes, chunk->free_bytes);
    VALID(free_bytes < chunk->bytes || chunk->bin == wr_chunk_bin(chunk), "free chunk %#llx is another bin's",
          (unsigned long long)chunk->handle);
    VALID(slots == chunk->slot_count, "chunk %#llx has %zu slots, counted as %zu", (unsigned long long)chunk->handle,
          slots, chunk->slot_count);
    VALID(parts == chunk->parts, "chunk %#llx has %zu parts, counted as %zu", (unsigned long long)chunk->handle, parts,
          chunk->parts);
    VALID(covered + chunk->away == chunk->bytes, "parts of chunk %#llx have %zu bytes of %zu",
          (unsigned long long)chunk->handle, covered, chunk->bytes);
    return WEIR_OK;
}

static weir_status validate_sums(const wr_mempool *pool)
{
    size_t small = 0, large = 0;
    for (const wr_bin *bin = pool->first_bin; bin; bin = bin->next) {
        if (bin->class == WR_SMALL) small += bin->part_bytes;
        if (bin->class == WR_LARGE) large += bin->part_bytes != 0;
    }
    VALID(small == pool->small_bytes, "bins for small blocks have parts of %zu bytes, counted as %zu", small,
          pool->small_bytes);
    VALID(large == pool->streams_with_chunks, "%zu streams have parts for large blocks, %zu are counted", large,
          pool->streams_with_chunks);
    return WEIR_OK;
}

static weir_status validate_chunks(const wr_mempool *pool, totals *t)
{
    size_t bytes = 0;
    for (const wr_chunk *k = pool->cache->chunks.first; k; k = k->next) {
        if (k->pool != pool) continue;
        WR_TRY(validate_chunk(k));
        t->segments++;
        t->reserved += k->bytes;
        bytes += k->bytes;
    }
    WR_TRY(validate_sums(pool));
    VALID(bytes == pool->chunk_bytes, "a pool's chunks have %zu bytes, counted as %zu", bytes, pool->chunk_bytes);
    return WEIR_OK;
}

/* Called after the regions were checked: their slots are those of the chunks. */
static weir_status validate_slots(const wr_chunks *c, const totals *t)
{
    size_t count = 0, bytes = 0;
    uint64_t mapped = 0, slots = 0;
    for (const wr_chunk *k = c->first; k; k = k->next) {
        count++;
        bytes += k->bytes;
        for (const wr_slot *s = k->slots; s; s = s->next_of_chunk) {
            slots++;
            mapped += k->bytes;
        }
    }
    VALID(slots == t->slots && slots == c->mappings, "chunks have %llu slots, regions %llu, counted as %llu",
          (unsigned long long)slots, (unsigned long long)t->slots, (unsigned long long)c->mappings);
    VALID(count == c->count && bytes == c->bytes && mapped == c->mapped_bytes,
          "%zu chunks of %zu bytes, mapped in %llu, counted as %zu of %zu in %llu", count, bytes,
          (unsigned long long)mapped, c->count, c->bytes, (unsigned long long)c->mapped_bytes);
    return WEIR_OK;
}

static weir_status validate_segment(const wr_bin *bin, const wr_segment *segment, totals *t)
{
    const char *at = segment->base;
    uint32_t blocks = 0;
    VALID(segment->bin == bin && segment->cache == bin->pool->cache, "segment %p is in a bin it does not name",
          (void *)segment->base);
    VALID(segment->first && !segment->first->prev, "segment %p has no first block", (void *)segment->base);
    VALID(segment->region || wr_address_find(segment->base) == segment, "segment %p is not in the address map",
          (void *)segment->base);
    for (const wr_block *b = segment->first; b; b = b->next) {
        WR_TRY(validate_block(segment, b, at, t));
        at = b->base + b->bytes;
        blocks++;
    }
    VALID(at == segment->base + segment->bytes, "segment %p: blocks do not fill it", (void *)segment->base);
    VALID(blocks == segment->blocks, "segment %p: %u blocks, counted as %u", (void *)segment->base, blocks,
          segment->blocks);
    VALID(segment->backing == WR_BACKED || bin->pool->paused, "segment %p has no memory, its pool is not paused",
          (void *)segment->base);
    if (segment->region) return validate_region(segment, t);
    t->segments++;
    t->reserved += wr_segment_held(segment);
    t->paused += segment->bytes - wr_segment_held(segment);
    return WEIR_OK;
}

/* Parts are counted, short ones are listed, and so are bins where a part is wholly free. */
static weir_status validate_parts(const wr_bin *bin)
{
    size_t bytes = 0, parts = 0, listed = 0;
    for (const wr_segment *segment = bin->segments; segment; segment = segment->next)
        for (uint32_t i = 0; segment->region && i < segment->region->count; i++) {
            const wr_slot *s = segment->region->slots[i].slot;
            if (wr_slot_is_stale(s)) continue;
            bytes += s->to - s->from;
            parts += s->to - s->from < WR_PART_USUAL;
            VALID(bin->stirred || !wr_slot_free_block(s) == !s->free,
                  "a part at %zu is wholly free or not, and its bin not listed", s->at);
        }
    VALID(bytes == bin->part_bytes, "parts of %zu bytes, counted as %zu", bytes, bin->part_bytes);
    const wr_slot *s;
    LIST_FOREACH(s, &bin->short_parts, short_part) {
        VALID(!wr_slot_is_stale(s) && s->region->bin == bin && s->to - s->from < WR_PART_USUAL && ++listed <= parts,
              "a slot at %zu is among the short parts, or too many are", s->at);
    }
    VALID(listed == parts, "%zu short parts of chunks, %zu of them listed", parts, listed);
    return WEIR_OK;
}

static weir_status validate_bin(wr_bin *bin, totals *t)
{
    uint64_t in_tree = 0, in_tree_bytes = 0, before = t->free_blocks;
    VALID(!bin->front || (bin->front->pool == bin->pool && bin->front->bins[bin->class] == bin),
          "the front of a bin of pool {%llu, %llu} does not know it", (unsigned long long)wr_bin_pool_id(bin).capture,
          (unsigned long long)wr_bin_pool_id(bin).user);
    for (const wr_segment *s = bin->segments; s; s = s->next) WR_TRY(validate_segment(bin, s, t));
    WR_TRY(validate_parts(bin));
    const wr_block *previous = NULL;
    for (wr_block *block = wr_bin_smallest(bin); block; block = wr_bin_larger(bin, block)) {
        VALID(block->state == WR_BLOCK_FREE && block->segment->bin == bin, "block %p is in the wrong tree",
              (void *)block->base);
        VALID(!previous || previous->bytes < block->bytes ||
                  (previous->bytes == block->bytes &&
                   (bin->free.by_order ? wr_free_compare(previous, block) < 0 : previous->beside)),
              "tree out of order at %p", (void *)block->base);
        previous = block;
        in_tree++;
        in_tree_bytes += block->bytes;
    }
    VALID(bin->free.blocks == in_tree && bin->free.bytes == in_tree_bytes,
          "%llu bytes in %llu blocks in a tree, counted as %llu in %llu", (unsigned long long)in_tree_bytes,
          (unsigned long long)in_tree, (unsigned long long)bin->free.bytes, (unsigned long long)bin->free.blocks);
    VALID(in_tree == t->free_blocks - before, "%llu blocks in a tree, %llu free in its segments",
          (unsigned long long)in_tree, (unsigned long long)(t->free_blocks - before));
    return WEIR_OK;
}

static weir_status validate_stat(const char *name, const weir_stat stat[WEIR_STAT_KINDS], uint64_t found)
{
    const weir_stat *all = &stat[WEIR_STAT_ALL];
    VALID(all->current >= 0 && (uint64_t)all->current == found, "statistics say %s is %lld, counted %llu", name,
          (long long)all->current, (unsigned long long)found);
    VALID(all->current == stat[WEIR_STAT_SMALL].current + stat[WEIR_STAT_LARGE].current,
          "statistics of %s: small and large are not all", name);
    VALID(all->peak >= all->current, "statistics of %s: peak below current", name);
    return WEIR_OK;
}

static weir_status validate_stats(const weir_memory_stats *s, const totals *sum)
{
    const totals t = *sum;
    WR_TRY(validate_stat("segment", s->segment, t.segments));
    WR_TRY(validate_stat("reserved_bytes", s->reserved_bytes, t.reserved));
    WR_TRY(validate_stat("allocation", s->allocation, t.live));
    WR_TRY(validate_stat("allocated_bytes", s->allocated_bytes, t.live_bytes));
    WR_TRY(validate_stat("active", s->active, t.live + t.pending));
    WR_TRY(validate_stat("active_bytes", s->active_bytes, t.live_bytes + t.pending_bytes));
    WR_TRY(validate_stat("requested_bytes", s->requested_bytes, t.requested));
    WR_TRY(validate_stat("inactive_split", s->inactive_split, t.split));
    WR_TRY(validate_stat("inactive_split_bytes", s->inactive_split_bytes, t.split_bytes));
    VALID(s->pending_frees == t.pending, "%llu frees pending, counted %llu", (unsigned long long)s->pending_frees,
          (unsigned long long)t.pending);
    VALID(s->paused_bytes == t.paused, "statistics say paused_bytes is %llu, counted %llu",
          (unsigned long long)s->paused_bytes, (unsigned long long)t.paused);
    return WEIR_OK;
}

/* Checks a pool's own numbers; not its statistics while segments are hidden, which are not counted by pool. */
static weir_status validate_pool(const wr_cache *cache, wr_mempool *pool, totals *sum)
{
    totals t = { 0 };
    for (wr_bin *bin = pool->first_bin; bin; bin = bin->next) WR_TRY(validate_bin(bin, &t));
    if (wr_mempool_chunked(pool)) WR_TRY(validate_chunks(pool, &t));
    VALID(wr_subplans_agree_locked(pool), "a plan has places in a segment that is not there");
    if (pool->counted && cache->hidden == 0) WR_TRY(validate_stats(wr_pool_stats_locked(pool), &t));
    sum->segments += t.segments;
    sum->reserved += t.reserved;
    sum->paused += t.paused;
    sum->live += t.live;
    sum->live_bytes += t.live_bytes;
    sum->pending += t.pending;
    sum->pending_bytes += t.pending_bytes;
    sum->requested += t.requested;
    sum->split += t.split;
    sum->split_bytes += t.split_bytes;
    sum->slots += t.slots;
    sum->uses += t.uses;
    return WEIR_OK;
}

static void count_in_use(const wr_bin *bin, wr_account *found)
{
    for (const wr_segment *s = bin->segments; s; s = s->next)
        for (const wr_block *b = s->first; b; b = b->next) {
            found->blocks.current += b->state == WR_BLOCK_LIVE;
            found->bytes.current += b->state == WR_BLOCK_LIVE ? (int64_t)b->bytes : 0;
            found->pending += b->state == WR_BLOCK_PENDING;
            found->pending_bytes += b->state == WR_BLOCK_PENDING ? b->bytes : 0;
        }
}

static weir_status validate_account(const wr_cache *cache, const wr_account *account)
{
    wr_account found = { 0 };
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
        for (int class = WR_SMALL; class < WR_BINS; class ++) {
            const wr_bin *bin = wr_mempool_bin(pool, account->stream, class);
            if (bin) count_in_use(bin, &found);
        }
    const int64_t live = found.blocks.current, bytes = found.bytes.current;
    const uint32_t index = account->stream->index;
    VALID(account->blocks.current == live && account->bytes.current == bytes,
          "stream %u has %lld live blocks of %lld bytes, counted as %lld of %lld", index, (long long)live,
          (long long)bytes, (long long)account->blocks.current, (long long)account->bytes.current);
    VALID(account->pending == found.pending && account->pending_bytes == found.pending_bytes,
          "stream %u has %llu pending blocks of %llu bytes, counted as %llu of %llu", index,
          (unsigned long long)found.pending, (unsigned long long)found.pending_bytes,
          (unsigned long long)account->pending, (unsigned long long)account->pending_bytes);
    VALID(account->blocks.peak >= live && account->bytes.peak >= bytes, "stream %u: peak below what is live", index);
    return WEIR_OK;
}

/* Queued uses are those of pending blocks, in order. A block that became pending a moment ago may not have queued its
 * own yet. */
static weir_status validate_wait(const wr_wait *wait, uint64_t *queued)
{
    const wr_use *last = NULL;
    uint32_t count = 0;
    for (const wr_use *u = wait->first; u; u = u->next_in_wait) {
        VALID(++count <= wait->uses, "more than %u uses wait for stream %p", wait->uses, wait->native);
        VALID(u->wait == wait && u->block && u->block->state == WR_BLOCK_PENDING && (!last || last->serial < u->serial),
              "a use that waits for stream %p is of no pending block, or out of order", wait->native);
        last = u;
    }
    VALID(wait->last == last, "the last use that waits for stream %p is not the last", wait->native);
    *queued += count;
    return WEIR_OK;
}

static weir_status validate_waits(const wr_cache *cache, uint64_t uses)
{
    uint64_t queued = 0, known = 0;
    const uint64_t pending = atomic_load_explicit(&cache->pending, memory_order_relaxed);
    for (const wr_wait *w = cache->waits; w; w = w->next) {
        WR_TRY(validate_wait(w, &queued));
        known += w->uses;
    }
    VALID(known == uses, "blocks have %llu uses on other streams, waits %llu", (unsigned long long)uses,
          (unsigned long long)known);
    VALID(queued == pending, "%llu uses are queued, counted %llu", (unsigned long long)queued,
          (unsigned long long)pending);
    return WEIR_OK;
}

static weir_status validate_lists(const wr_cache *cache)
{
    const wr_mempool *last = NULL, *pool;
    int64_t released = 0;
    for (pool = cache->pools; pool; last = pool, pool = pool->next) {
        VALID(pool->before == last, "pool " WR_MEMPOOL_FORMAT " is linked wrongly",
              WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
        released += wr_mempool_is_orphan(pool);
    }
    VALID(cache->last_pool == last, "the last pool is not the last");
    TAILQ_FOREACH(pool, &cache->released_pools, released) {
        VALID(wr_mempool_is_orphan(pool), "pool " WR_MEMPOOL_FORMAT " is listed as released",
              WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
        released--;
    }
    VALID(released == 0, "%lld released pools more than listed", (long long)released);
    return WEIR_OK;
}

static weir_status validate_locked(wr_cache *cache)
{
    totals t = { .segments = cache->hidden, .reserved = cache->hidden_bytes, .paused = cache->hidden_paused };
    const weir_memory_stats *s = wr_stats_locked(cache);
    WR_TRY(validate_lists(cache));
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next) WR_TRY(validate_pool(cache, pool, &t));
    WR_TRY(validate_stats(s, &t));
    WR_TRY(validate_slots(&cache->chunks, &t));
    WR_TRY(validate_waits(cache, t.uses));
    for (uint32_t i = 0; i < cache->account_capacity; i++)
        if (cache->accounts[i]) WR_TRY(validate_account(cache, cache->accounts[i]));
    return WEIR_OK;
}

weir_status wr_inspect_validate(wr_cache *cache)
{
    wr_fronts_close_and_lock(cache);
    weir_status status = validate_locked(cache);
    wr_fronts_unlock_and_open(cache);
    return status;
}
