/*
 * starts: which block begins at an address, of all blocks of a cache; and which one an address lies in, of a segment.
 * A table by hash, as large as there are records of blocks, so that what a program uses again and again is close
 * together however far apart it is on the device.
 * Owner: the cache. Lock: the cache's for changes. Looking up a start takes none: somebody who is late may read a table that was
 * replaced, or miss a block that is being moved in it, and then asks again under the lock.
 */
#ifndef WR_POOL_STARTS_H
#define WR_POOL_STARTS_H

#include "pool/cache.h"

#include "base/hash.h"

#include <assert.h>

/* Linear probing. Never given back before the cache goes. */
struct wr_starts {
    wr_starts *smaller; /* which it replaced */
    size_t mask;        /* entries less one */
    unsigned shift;     /* 64 - log2 of the entries */
    _Atomic(wr_block *) at[];
};

static inline size_t wr_starts_place(const wr_starts *starts, const void *address)
{
    return (size_t)(wr_hash((uint64_t)(uintptr_t)address) >> starts->shift);
}

/* A block that begins at the address; NULL: none, or none that is seen without the lock. What it reads may be the record of
 * another block by now: a record it is. There may be two for a moment, when the driver has given out again what is about to be
 * forgotten here: with a segment, it is that one's. */
WR_RACES static inline wr_block *wr_starts_find_in(const wr_starts *starts, const wr_segment *segment,
                                                   const void *address)
{
    for (size_t i = wr_starts_place(starts, address);; i = (i + 1) & starts->mask) {
        wr_block *block = atomic_load_explicit(&starts->at[i], memory_order_acquire);
        if (WR_LIKELY(!block || (block->base == address && (!segment || block->segment == segment)))) return block;
    }
}

/* The same by the table of the segment: there is one as long as there are segments. */
static inline wr_block *wr_starts_find(const wr_segment *segment, const void *address)
{
    return wr_starts_find_in(atomic_load_explicit(&segment->cache->starts, memory_order_acquire), segment, address);
}

/* The block that `address` lies in. The address must be inside the segment, and the lock is held. */
wr_block *wr_starts_block_at(const wr_segment *segment, const void *address);

/* The lock is held. */

/* Room for the starts of so many blocks. */
WR_CHECKED weir_status wr_starts_reserve(wr_cache *cache, size_t blocks);

void wr_starts_release(wr_cache *cache);

/* ---- what is done with each block that is cut or joined: inlined there --------------------------------------------- */

static inline wr_starts *wr_starts_of(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->starts, memory_order_relaxed);
}

static inline wr_block *wr_starts_at(const wr_starts *starts, size_t i)
{
    return atomic_load_explicit(&starts->at[i], memory_order_relaxed);
}

static inline void wr_starts_put(wr_starts *starts, wr_block *block)
{
    size_t i = wr_starts_place(starts, block->base);
    while (wr_starts_at(starts, i)) i = (i + 1) & starts->mask;
    atomic_store_explicit(&starts->at[i], block, memory_order_release);
}

/* Closes the gap, so that whatever comes behind it is still found from its place on. */
static inline void wr_starts_take_out(wr_starts *starts, const wr_block *block)
{
    size_t gap = wr_starts_place(starts, block->base);
    for (; wr_starts_at(starts, gap) != block; gap = (gap + 1) & starts->mask) assert(wr_starts_at(starts, gap));
    for (size_t i = (gap + 1) & starts->mask; wr_starts_at(starts, i); i = (i + 1) & starts->mask) {
        wr_block *next = wr_starts_at(starts, i);
        const size_t distance = (i - wr_starts_place(starts, next->base)) & starts->mask;
        if (distance < ((i - gap) & starts->mask)) continue;
        atomic_store_explicit(&starts->at[gap], next, memory_order_release);
        gap = i;
    }
    atomic_store_explicit(&starts->at[gap], NULL, memory_order_release);
}

/* ---- pages: where the blocks of a segment are -------------------------------------------------------------------- */

static inline size_t wr_starts_page(const wr_segment *segment, const void *address)
{
    return (size_t)((const char *)address - segment->base) / WR_SEGMENT_UNIT;
}

static inline void wr_starts_note_in_page(wr_block *block)
{
    wr_pages *pages = block->segment->pages;
    const size_t page = wr_starts_page(block->segment, block->base);
    wr_block **first = &pages->first[page];
    if (!*first) pages->any[page / 64] |= UINT64_C(1) << page % 64;
    if (!*first || block->base < (*first)->base) *first = block;
}

static inline void wr_starts_forget_in_page(const wr_block *block)
{
    wr_pages *pages = block->segment->pages;
    const size_t page = wr_starts_page(block->segment, block->base);
    wr_block *next = block->next;
    if (pages->first[page] != block) return;
    if (next && wr_starts_page(block->segment, next->base) != page) next = NULL;
    pages->first[page] = next;
    if (!next) pages->any[page / 64] &= ~(UINT64_C(1) << page % 64);
}

static inline void wr_starts_add(wr_block *block)
{
    wr_starts_put(wr_starts_of(block->segment->cache), block);
    wr_starts_note_in_page(block);
}

/* Still beside its neighbours. */
static inline void wr_starts_remove(const wr_block *block)
{
    wr_starts_take_out(wr_starts_of(block->segment->cache), block);
    wr_starts_forget_in_page(block);
}

#endif
