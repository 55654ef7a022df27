/*
 * front: freed blocks of a stream's default pool, kept whole for the next request of exactly their size, so that the
 * common free and allocation touch nothing shared between streams and no tree. To the cache such a parked block is live
 * still; whenever the cache itself is asked for a block of the stream, what is parked goes back to it first, so a block
 * that could be cut or merged never waits here while one is missing.
 * Owner: the cache, one for each stream that has bins. Lock: its own, biased to the thread that uses the stream
 * (WR_RANK_FRONT, before the cache's). Records are not given back before the cache goes.
 */
#ifndef WR_POOL_FRONT_H
#define WR_POOL_FRONT_H

#include "base/bias.h"
#include "pool/cache.h"

#define WR_FRONT_SLOTS 64
#define WR_FRONT_DEPTH 32  /* blocks in a slot */
#define WR_FRONTS_SUMMED 8 /* up to so many fronts are asked one by one what is parked in all */

/* Blocks of one size, last in first out. */
typedef struct wr_front_slot {
    size_t bytes;
    wr_block *first;
    uint32_t count;
} wr_front_slot;

/* What is counted of blocks. */
typedef enum wr_front_number { WR_FRONT_BLOCKS, WR_FRONT_BYTES, WR_FRONT_REQUESTED, WR_FRONT_NUMBERS } wr_front_number;

struct wr_front {
    wr_bias_lock lock;
    wr_front_slot slots[WR_CLASSES][WR_FRONT_SLOTS];
    uint64_t in_use[WR_CLASSES]; /* slots that have blocks, or had since all went back: a bit each */

    /* Ever parked, less what went back to the cache, and ever handed out again: the difference is parked now, to the cache
     * live and to the program not. Written by the holder of the lock, read by anyone. */
    atomic_int_fast64_t parked[WR_CLASSES][WR_FRONT_NUMBERS], hits[WR_CLASSES][WR_FRONT_NUMBERS];

    /* what the cache was told: of hits, and by how much blocks were asked for more than it knows */
    int64_t told[WR_CLASSES][WR_FRONT_NUMBERS];
    int64_t drift[WR_CLASSES];
    int64_t added_up[WR_CLASSES][WR_FRONT_NUMBERS]; /* of what is parked here, in the cache's sums */
    int64_t floor[WR_FRONT_NUMBERS];                /* when less than this is parked, more is live than ever before */

    wr_cache *cache;
    const wr_stream *stream;
    wr_front *next; /* all of the cache */
};

/* The stream's front, made for its first bin; the cache's lock is held. */
WR_CHECKED weir_status wr_front_of_locked(wr_cache *cache, wr_stream *stream, wr_front **out);

/* -- the front's lock is held */

/* A parked block of that size for a request of `requested` bytes; NULL: none. */
void *wr_front_take_locked(wr_front *front, wr_class class, size_t block_bytes, size_t requested);

/* Parks a live block. False: it must be freed in the cache, or is none that can be. */
bool wr_front_park_locked(wr_front *front, const wr_segment *segment, const void *pointer);

/* Frees in the cache what is parked. The cache's lock is held too. */
void wr_front_empty_locked(wr_front *front);

/* The cache's sums learn what is parked here now: before anything is handed out. The cache's lock is held too. */
void wr_front_add_up_locked(wr_front *front);

/* Learns what would be a peak: before the cache's lock is released, when anything changed for the stream there. */
void wr_front_settle_locked(wr_front *front);

/* -- no lock of this rank or above is held */

/* The lock of a stream's front, where there is one (NULL: none), and the cache's: to change blocks of the stream. */
typedef struct wr_front_hold {
    wr_front *front;
    wr_bias_hold hold;
} wr_front_hold;

wr_front_hold wr_front_lock(wr_cache *cache, wr_front *front);
void wr_front_unlock(wr_cache *cache, const wr_front_hold *hold);

/* Empties all fronts of a cache. */
void wr_fronts_empty(wr_cache *cache);

/* The same, and nothing is parked until they are opened again: while somebody looks at the whole, or changes it. Nests. */
void wr_fronts_close(wr_cache *cache);
void wr_fronts_open(wr_cache *cache);

/* Peaks of what is live, of the device or a pool, after it went up. The cache's lock is held. */
void wr_fronts_note_peaks(const wr_mempool *pool, weir_memory_stats *stats);

void wr_fronts_release(wr_cache *cache);

#endif
