/*
 * front: freed blocks of a bin of the default pool, kept whole for the next request of exactly their size, so that the
 * common free and allocation touch nothing shared between streams and no tree. To the cache such a parked block is live
 * still; whatever the cache itself is asked, the front of that stream is emptied into it first, so a block that could
 * be cut or merged never waits here while one is missing.
 * Owner: the bin. Lock: its own, biased to the thread that uses the stream (WR_RANK_FRONT, before the cache's). Records
 * are not given back before the cache goes.
 */
#ifndef WR_POOL_FRONT_H
#define WR_POOL_FRONT_H

#include "base/bias.h"
#include "pool/cache.h"

#define WR_FRONT_SLOTS 64
#define WR_FRONT_DEPTH 32 /* blocks in a slot */

/* Blocks of one size, last in first out. */
typedef struct wr_front_slot {
    size_t bytes;
    wr_block *first;
    uint32_t count;
} wr_front_slot;

struct wr_front {
    wr_bias_lock lock;
    wr_front_slot slots[WR_FRONT_SLOTS];

    /* what the cache's numbers do not know yet */
    uint64_t hits, hit_bytes, hit_requested;
    int64_t drift; /* bytes that blocks were asked for by now, less what they were when the cache counted them */

    /* parked now: written by the holder of the lock, read by anyone */
    atomic_uint_fast64_t blocks, bytes, requested;
    uint64_t least_blocks, least_bytes, least_requested; /* right after a hit, since the cache was told last */

    wr_class class;
    wr_cache *cache;
    wr_front *next; /* all of the cache */
};

/* For a new bin; the cache's lock is held. */
WR_CHECKED weir_status wr_front_make_locked(wr_cache *cache, wr_bin *bin);

/* -- the front's lock is held */

/* A parked block of that size for a request of `requested` bytes; NULL: none. */
void *wr_front_take_locked(wr_front *front, size_t block_bytes, size_t requested);

/* Parks a live block. False: it must be freed in the cache, or is none that can be. */
bool wr_front_park_locked(wr_front *front, const wr_segment *segment, const void *pointer);

/* Frees in the cache what is parked, and tells it what was served. The cache's lock is held too. */
void wr_front_empty_locked(wr_front *front);

/* -- no lock of this rank or above is held */

/* Empties all fronts of a cache. */
void wr_fronts_empty(wr_cache *cache);

/* The same, and nothing is parked until they are opened again: while somebody looks at the whole, or changes it. Nests. */
void wr_fronts_close(wr_cache *cache);
void wr_fronts_open(wr_cache *cache);

/* Peaks of what is live, of the device or a pool, after it went up. What is parked is live to the cache and not to the
 * program. The cache's lock is held. */
void wr_fronts_note_peaks(const wr_mempool *pool, const wr_front *told, weir_memory_stats *stats);

void wr_fronts_release(wr_cache *cache);

#endif
