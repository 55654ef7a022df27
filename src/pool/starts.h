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

/* The block of the segment that begins at the address; NULL: none, or none that is seen without the lock, or there is no
 * table. What it reads may be
 * the record of another block by now: a record it is. */
WR_RACES static inline wr_block *wr_starts_find_in(const wr_starts *starts, const wr_segment *segment,
                                                   const void *address)
{
    for (size_t i = starts ? wr_starts_place(starts, address) : 0; starts; i = (i + 1) & starts->mask) {
        wr_block *block = atomic_load_explicit(&starts->at[i], memory_order_acquire);
        if (WR_LIKELY(!block || (block->base == address && block->segment == segment))) return block;
    }
    return NULL;
}

static inline wr_block *wr_starts_find(const wr_segment *segment, const void *address)
{
    return wr_starts_find_in(atomic_load_explicit(&segment->cache->starts, memory_order_acquire), segment, address);
}

/* The block that `address` lies in. The address must be inside the segment, and the lock is held. */
wr_block *wr_starts_block_at(const wr_segment *segment, const void *address);

/* The lock is held. */

/* Room for the starts of so many blocks. */
WR_CHECKED weir_status wr_starts_reserve(wr_cache *cache, size_t blocks);

void wr_starts_add(wr_block *block);
void wr_starts_remove(const wr_block *block); /* still beside its neighbours */

void wr_starts_release(wr_cache *cache);

#endif
