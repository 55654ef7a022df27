/*
 * starts: finds which block of a cache begins at an address, and which block of a segment contains an address. A hash
 * table with several places per block record, so that what a program uses again and again is close together, however
 * far apart it is on the device.
 * Owner: the cache. Lock: the cache's for changes, or a detached front's cutting lock for its blocks. Looking up a
 * start takes none: a late reader may see a table that was replaced, or miss a block, and then asks again under the
 * lock.
 */
#ifndef WR_POOL_STARTS_H
#define WR_POOL_STARTS_H

#include "pool/cache.h"

#include "base/hash.h"

/* Each place links to the first block of a list, which continues by `next_start`. While fronts are detached, two
 * threads may change a place at once, so each sets the link's lowest bit meanwhile. A table lives until the cache
 * goes. */
struct wr_starts {
    wr_starts *smaller; /* the table that it replaced */
    size_t mask;        /* number of places, less one */
    unsigned shift;     /* 64 - log2 of the number of places */
    bool shared;        /* whether fronts are detached */
    _Atomic(uintptr_t) at[];
};

/* A link is the record's address, which has 48 bits, and above it some bits of the hash of the block's base. So a
 * lookup of another start need not read a record that the block's thread is writing. */
#define WR_STARTS_BUSY ((uintptr_t)1)
#define WR_STARTS_TAG_UNIT ((uintptr_t)1 << 48)
#define WR_STARTS_TAG (~(WR_STARTS_TAG_UNIT - 1))

/* Never 0, so that it differs from the tag of a NULL link. */
static inline uintptr_t wr_starts_tag(const void *address)
{
    return (uintptr_t)((wr_hash((uint64_t)(uintptr_t)address) >> 20 | 1) << 48);
}

static inline wr_block *wr_starts_linked(uintptr_t link)
{
    return (wr_block *)(link & ~(WR_STARTS_TAG | WR_STARTS_BUSY));
}

static inline size_t wr_starts_place(const wr_starts *starts, const void *address)
{
    return (size_t)(wr_hash((uint64_t)(uintptr_t)address) >> starts->shift);
}

/* A block that begins at the address; NULL: none, or none visible without the lock. The walk may meet a record that is
 * another block's by now, and go on in its list: it is a record all the same, and all lists end. Two blocks may begin
 * there for a moment, when the driver has handed out again what is about to be forgotten here: with a segment given, it
 * is that one's. */
WR_RACES static inline wr_block *wr_starts_find_in(const wr_starts *starts, const wr_segment *segment,
                                                   const void *address)
{
    const uintptr_t tag = wr_starts_tag(address);
    uintptr_t link = atomic_load_explicit(&starts->at[wr_starts_place(starts, address)], memory_order_acquire);
    for (;;) {
        const uintptr_t untagged = link ^ tag;
        if (WR_LIKELY(untagged < WR_STARTS_TAG_UNIT)) {
            wr_block *block = (wr_block *)(untagged & ~WR_STARTS_BUSY);
            if (WR_LIKELY(block->base == address && (!segment || block->segment == segment))) return block;
        }
        const wr_block *other = wr_starts_linked(link);
        if (!other) return NULL;
        link = atomic_load_explicit(&other->next_start, memory_order_acquire);
    }
}

/* The same in the table of the segment's cache: there is one as long as there are segments. */
static inline wr_block *wr_starts_find(const wr_segment *segment, const void *address)
{
    return wr_starts_find_in(atomic_load_explicit(&segment->cache->starts, memory_order_acquire), segment, address);
}

/* The block that contains `address`, which must be inside the segment. The lock is held. */
wr_block *wr_starts_block_at(const wr_segment *segment, const void *address);

/* Whether a block begins in one of the pages that follow the first address's and end before the second. Reads no
 * record. The lock is held. */
bool wr_starts_any_between(const wr_segment *segment, const void *from, const void *to);

/* The lock is held. */

WR_CHECKED weir_status wr_starts_reserve(wr_cache *cache, size_t blocks);

void wr_starts_release(wr_cache *cache);

/* ---- for each block that is split or coalesced: inlined there ---------------------------------------------------- */

static inline wr_starts *wr_starts_of(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->starts, memory_order_relaxed);
}

/* The link at the place, which nobody else can change until it is set. */
static inline uintptr_t wr_starts_enter(wr_starts *starts, size_t place)
{
    uintptr_t link = atomic_load_explicit(&starts->at[place], memory_order_relaxed);
    if (WR_LIKELY(!starts->shared)) return link;
    do link &= ~WR_STARTS_BUSY;
    while (!atomic_compare_exchange_weak_explicit(&starts->at[place], &link, link | WR_STARTS_BUSY,
                                                  memory_order_acquire, memory_order_relaxed));
    return link;
}

static inline void wr_starts_set(wr_starts *starts, size_t place, uintptr_t link)
{
    atomic_store_explicit(&starts->at[place], link, memory_order_release);
}

static inline uintptr_t wr_starts_next(const wr_block *block)
{
    return atomic_load_explicit(&block->next_start, memory_order_relaxed);
}

static inline void wr_starts_put(wr_starts *starts, wr_block *block)
{
    const size_t place = wr_starts_place(starts, block->base);
    /* Released for a late reader that still stands on this record in another list, from which it goes on here. */
    atomic_store_explicit(&block->next_start, wr_starts_enter(starts, place), memory_order_release);
    wr_starts_set(starts, place, (uintptr_t)block | wr_starts_tag(block->base));
}

static inline void wr_starts_take_out(wr_starts *starts, const wr_block *block)
{
    const size_t place = wr_starts_place(starts, block->base);
    const uintptr_t first = wr_starts_enter(starts, place), next = wr_starts_next(block);
    wr_block *before = wr_starts_linked(first);
    if (before == block) {
        wr_starts_set(starts, place, next);
        return;
    }
    while (wr_starts_linked(wr_starts_next(before)) != block) before = wr_starts_linked(wr_starts_next(before));
    atomic_store_explicit(&before->next_start, next, memory_order_release);
    wr_starts_set(starts, place, first);
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

/* The block must still be linked to its neighbours. */
static inline void wr_starts_remove(const wr_block *block)
{
    wr_starts_take_out(wr_starts_of(block->segment->cache), block);
    wr_starts_forget_in_page(block);
}

#endif
