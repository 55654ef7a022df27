/*
 * records: the cache's own small objects, cut from slabs and recycled. A slab is never given back before the cache
 * goes, so a thread with a stale pointer can read a record without a lock.
 */
#include "base/meta.h"
#include "base/size.h"
#include "pool/chunk/chunk.h"
#include "pool/pending.h"
#include "pool/starts.h"

enum { SLAB_RECORDS = 64 };

struct wr_slab {
    wr_slab *next;
};

static weir_status slab_alloc(wr_cache *cache, size_t record_bytes, void **records)
{
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_slab) + WR_CACHE_LINES + SLAB_RECORDS * record_bytes, "allocator records", &memory));
    wr_slab *slab = memory;
    slab->next = cache->slabs;
    cache->slabs = slab;
    *records = (char *)(wr_round_up((uintptr_t)(slab + 1), WR_CACHE_LINES));
    return WEIR_OK;
}

weir_status wr_records_more_blocks(wr_cache *cache)
{
    void *records = NULL;
    WR_TRY(wr_starts_reserve(cache, cache->block_count + SLAB_RECORDS));
    WR_TRY(slab_alloc(cache, sizeof(wr_block), &records));
    WR_ENSURE(((uintptr_t)records & WR_STARTS_TAG) == 0, WEIR_ERR_NOT_SUPPORTED,
              "weir's own records are at %p, but must be within 48-bit addresses; turn pointer tagging off", records);
    cache->block_count += SLAB_RECORDS;
    wr_block *block = records;
    for (int i = 0; i < SLAB_RECORDS; i++) wr_record_block_done(cache, &block[i]);
    return WEIR_OK;
}

/* A thread without the lock may come to a new record by a block that is linked to it (wr_front_of_block), and must see
 * it cleared: the cache's lock is released, and the address map's acquired, before any block is. */
static weir_status more_segments(wr_cache *cache)
{
    void *records = NULL;
    WR_TRY(slab_alloc(cache, sizeof(wr_segment), &records));
    wr_segment *segment = records;
    for (int i = 0; i < SLAB_RECORDS; i++) {
        segment[i].cache = cache;
        segment[i].next = cache->unused_segments;
        cache->unused_segments = &segment[i];
    }
    return WEIR_OK;
}

weir_status wr_records_spare_blocks(wr_cache *cache, size_t count)
{
    while (cache->ledger.unused_block_count < count) WR_TRY(wr_records_more_blocks(cache));
    return WEIR_OK;
}

weir_status wr_records_set_aside(wr_cache *cache, size_t count, wr_block **list)
{
    WR_TRY(wr_records_spare_blocks(cache, count));
    for (size_t i = 0; i < count; i++) {
        wr_block *block = wr_ledger_take_record(&cache->ledger);
        block->next = *list;
        *list = block;
    }
    return WEIR_OK;
}

void wr_records_put_back(wr_cache *cache, wr_block **list)
{
    while (*list) {
        wr_block *block = *list;
        *list = block->next;
        wr_record_block_done(cache, block);
    }
}

static weir_status make_pages(unsigned log2, wr_pages **out)
{
    const size_t count = (size_t)1 << log2, words = (count + 63) / 64;
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_pages) + count * sizeof(wr_block *) + words * sizeof(uint64_t), "pages", &made));
    wr_pages *pages = made;
    pages->log2 = log2;
    pages->any = (uint64_t *)(pages->first + count);
    *out = pages;
    return WEIR_OK;
}

weir_status wr_record_pages(wr_cache *cache, size_t bytes, wr_pages **out)
{
    const size_t count = bytes / WR_SEGMENT_UNIT;
    const unsigned log2 = count > 1 ? 64u - (unsigned)__builtin_clzll(count - 1) : 0;
    wr_pages *pages = cache->unused_pages[log2];
    if (pages) {
        cache->unused_pages[log2] = pages->next_unused;
    } else {
        WR_TRY(make_pages(log2, &pages));
        pages->next = cache->pages;
        cache->pages = pages;
    }
    *out = pages;
    return WEIR_OK;
}

/* Only the segment's one block still begins in any page. */
static void pages_done(wr_cache *cache, wr_pages *pages)
{
    pages->first[0] = NULL;
    pages->any[0] = 0;
    pages->next_unused = cache->unused_pages[pages->log2];
    cache->unused_pages[pages->log2] = pages;
}

weir_status wr_record_segment(wr_cache *cache, wr_segment **segment)
{
    if (!cache->unused_segments) WR_TRY(more_segments(cache));
    *segment = cache->unused_segments;
    cache->unused_segments = (*segment)->next;
    return WEIR_OK;
}

void wr_record_segment_done(wr_cache *cache, wr_segment *segment)
{
    if (segment->pages) pages_done(cache, segment->pages);
    /* `cache` is not written again: somebody with a stale pointer may be reading it. */
    segment->pages = NULL;
    segment->next = cache->unused_segments;
    cache->unused_segments = segment;
}

weir_status wr_record_mempool(wr_cache *cache, wr_mempool **pool)
{
    if (!cache->unused_pools) {
        void *records = NULL;
        WR_TRY(slab_alloc(cache, sizeof(wr_mempool), &records));
        wr_mempool *made = records;
        for (int i = 0; i < SLAB_RECORDS; i++) {
            made[i].cache = cache;
            wr_record_mempool_done(cache, &made[i]);
        }
    }
    *pool = cache->unused_pools;
    cache->unused_pools = (*pool)->next;
    return WEIR_OK;
}

void wr_record_mempool_done(wr_cache *cache, wr_mempool *pool)
{
    pool->next = cache->unused_pools;
    cache->unused_pools = pool;
}

weir_status wr_record_use(wr_cache *cache, wr_use **use)
{
    if (!cache->unused_uses) {
        void *records = NULL;
        WR_TRY(slab_alloc(cache, sizeof(wr_use), &records));
        wr_use *made = records;
        for (int i = 0; i < SLAB_RECORDS; i++) wr_record_use_done(cache, &made[i]);
    }
    *use = cache->unused_uses;
    cache->unused_uses = atomic_load_explicit(&(*use)->next_in_wait, memory_order_relaxed);
    return WEIR_OK;
}

void wr_record_use_done(wr_cache *cache, wr_use *use)
{
    atomic_store_explicit(&use->next_in_wait, cache->unused_uses, memory_order_relaxed);
    cache->unused_uses = use;
}

weir_status wr_chunk_record(wr_cache *cache, wr_chunk **chunk)
{
    wr_chunks *c = &cache->chunks;
    if (!c->unused_chunks) {
        void *records = NULL;
        WR_TRY(slab_alloc(cache, sizeof(wr_chunk), &records));
        for (wr_chunk *k = records; k < (wr_chunk *)records + SLAB_RECORDS; k++) {
            k->number = c->numbers++;
            wr_chunk_record_done(cache, k);
        }
    }
    *chunk = c->unused_chunks;
    c->unused_chunks = (*chunk)->next;
    return WEIR_OK;
}

void wr_chunk_record_done(wr_cache *cache, wr_chunk *chunk)
{
    chunk->next = cache->chunks.unused_chunks;
    cache->chunks.unused_chunks = chunk;
}

weir_status wr_slot_record(wr_cache *cache, wr_slot **slot)
{
    wr_chunks *c = &cache->chunks;
    if (!c->unused_slots) {
        void *records = NULL;
        WR_TRY(slab_alloc(cache, sizeof(wr_slot), &records));
        for (wr_slot *s = records; s < (wr_slot *)records + SLAB_RECORDS; s++) wr_slot_record_done(cache, s);
    }
    *slot = c->unused_slots;
    c->unused_slots = (*slot)->next_of_chunk;
    return WEIR_OK;
}

void wr_slot_record_done(wr_cache *cache, wr_slot *slot)
{
    slot->next_of_chunk = cache->chunks.unused_slots;
    cache->chunks.unused_slots = slot;
}

void wr_records_release(wr_cache *cache)
{
    wr_starts_release(cache);
    while (cache->pages) {
        wr_pages *pages = cache->pages;
        cache->pages = pages->next;
        wr_meta_free(pages);
    }
    while (cache->slabs) {
        wr_slab *slab = cache->slabs;
        cache->slabs = slab->next;
        wr_meta_free(slab);
    }
}
