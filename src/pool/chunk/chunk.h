/*
 * chunk: what pools are made of where the device has virtual memory: the default pool and those like it. A chunk is
 * physical memory, mapped whole at one address or more: its slots. A slot uses a part of its chunk. The parts of a
 * chunk's slots never overlap and fill it, so each byte is handed out at one address only. A slot without a part is
 * stale: still mapped, but nobody's, until its chunk is wanted at that address again or too much is mapped. Memory can
 * be had at another address without waiting, which keeps free memory from being in the wrong place: work queued at the
 * old address runs before work queued later at the new one, when both are on one stream.
 *
 *   region: a segment that is a reserved address range of one bin, filled from the start
 *     slots, by address, never moved                |  chunk A  | chunk B | chunk A |  (reserved)
 *     blocks: absent where no slot has a part       | .. part ..|absent...| ..part..|  absent
 *
 * Chunks are of 2 MiB to 112 MiB: virtual memory costs time per handle and hardly any per byte, but free space in a
 * chunk that is partly in use can serve only requests that fit there. docs/decisions/0007 has the figures behind the
 * numbers.
 *
 * All parts of a chunk belong to one pool. Wholly free chunks of the default pool may become a private pool's, which
 * keeps them until it gives them back; their places in the default pool become stale slots. All slots of a pool that
 * graphs use stay mapped: a launch writes to each address that the capture had, in the order of the capture. In a pool
 * of which a checkpoint was taken, nothing is mapped elsewhere.
 * Owner: the cache. Lock: changed under both the move lock and the cache's, read under either; but what surveys note
 * (whole, free_bytes, bin, free, found) is under the cache's. Records are recycled.
 */
#ifndef WR_POOL_CHUNK_CHUNK_H
#define WR_POOL_CHUNK_CHUNK_H

#include "pool/bin.h"
#include "pool/trim_wait.h"

#include <sys/queue.h>

struct wr_chunk {
    weir_chunk handle;
    size_t bytes;
    wr_mempool *pool;
    wr_slot *slots;        /* where it is mapped; the one that got a part last is the first */
    size_t slot_count;     /* of all, */
    size_t parts;          /* and of those with a part: few, so searches stop after these */
    wr_chunk *prev, *next; /* of the cache; `next` also links unused records */
    /* Bytes in no slot's part, while the holder of the move lock maps them elsewhere or gives them back */
    size_t away;
    size_t free_bytes;        /* of the parts that surveys found wholly free */
    RB_ENTRY(wr_chunk) whole; /* of the pool, where that is all of it */
    wr_bin *bin;              /* then: its wr_chunk_bin at the survey */
    uint64_t surveyed;        /* the last survey that it was wholly free for */
    uint64_t mark;            /* scratch of one pass over chunks: its number */
    uint32_t number;          /* of its record, below wr_chunks.numbers */
    int descriptor;           /* of an export, kept for the next one (share.h); 0: none. Under the move lock */
    bool stuck;               /* the driver refused to unmap it somewhere: once given back, its memory is lost */
};

struct wr_slot {
    wr_chunk *chunk;
    wr_segment *region;
    size_t at;              /* offset of the chunk in the region */
    wr_slot *next_of_chunk; /* also links unused records */
    wr_slot *prev_of_chunk;
    size_t from, to;      /* the part of the chunk that is used here; equal: stale */
    uint64_t stale_since; /* by wr_chunks.moments; later if unmapping it has failed since */
    TAILQ_ENTRY(wr_slot) stale;
    TAILQ_ENTRY(wr_slot) stale_of_all;
    LIST_ENTRY(wr_slot) short_part;
    size_t free;    /* of the part, at the bin's last survey: all or nothing, */
    uint64_t found; /* at this one */
    LIST_ENTRY(wr_slot) free_part;
};

/* What searches through a region's slots read first. */
typedef struct wr_slot_entry {
    size_t at, end; /* offsets */
    wr_slot *slot;
    uint32_t chunk; /* its number */
    bool stale;
} wr_slot_entry;

struct wr_region {
    wr_slot_entry *slots; /* by `at` */
    uint32_t count, capacity;
    TAILQ_HEAD(wr_stale_slots, wr_slot) stale; /* the stale ones, oldest first */
    size_t end;                                /* end of the last slot, where the next one begins */
    /* The driver refused to unmap something behind the end: no slot can come there, and the addresses stay */
    bool closed;
    bool broken; /* memory of planned places is in use elsewhere: another plan gets another region */
};

/* A free piece of a slot's part, as offsets in the region. */
typedef struct wr_piece {
    wr_slot *slot;
    size_t from, to;
} wr_piece;

#define WR_CHUNK_LEAST WR_SEGMENT_UNIT
#define WR_CHUNK_USUAL ((size_t)16 << 20)
#define WR_CHUNK_MOST ((size_t)112 << 20)
#define WR_CHUNK_TIGHT ((size_t)20 << 20)     /* the most while little is held, and where memory may become short */
#define WR_CHUNK_LAST ((size_t)8 << 20)       /* the most where memory is almost used up */
#define WR_CHUNK_PART_LEAST WR_BIN_STIRRED_BY /* of a part that is no whole chunk */
_Static_assert(WR_CHUNK_PART_LEAST <= WR_CHUNK_LEAST, "a bin is stirred by each part that becomes free");
/* Shorter parts are listed: few, unless streams are many or memory is short */
#define WR_PART_USUAL WR_CHUNK_USUAL

static inline bool wr_slot_is_stale(const wr_slot *slot)
{
    return slot->from == slot->to;
}

/* According to the last survey. */
static inline bool wr_chunk_is_free(const wr_cache *cache, const wr_chunk *chunk)
{
    return chunk->surveyed == cache->chunks.surveys;
}

/* The bin of a slot that has a part of the chunk. */
wr_bin *wr_chunk_bin(const wr_chunk *chunk);

/* Index of the first slot of a region that ends behind an offset. */
uint32_t wr_region_find(const wr_region *region, size_t offset);

/* The free block at the end of the region's slots; NULL: none. */
wr_block *wr_region_tail(const wr_segment *segment);

/* -- both locks held; block records were reserved: two for each call of these */

/* Another bin gets the parts of a bin whose regions become its own. */
void wr_bin_move_parts_locked(wr_bin *from, wr_bin *to);

/* Makes free a range of a region that lies in an absent block. */
void wr_region_give_locked(wr_segment *segment, size_t at, size_t bytes);

/* Holds a free block, which is nobody's until it is let go. Needs no records. */
void wr_block_hold_locked(wr_block *block);
void wr_block_let_go_locked(wr_cache *cache, wr_block *block);

/* The first makes a free end of a slot's part, or all of it, absent. The second is the reverse: the range is absent,
 * and adjacent to the part unless the slot is stale. */
void wr_slot_leave_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to);
void wr_slot_enter_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to);

/* Gives the slot all of its chunk, which is free. Records needed: two for each part that the chunk has, and two
 * more. */
void wr_slot_fill_locked(wr_cache *cache, wr_slot *slot);

/* The regions of a bin have parts of so many bytes now. */
void wr_bin_set_parts_locked(wr_bin *bin, size_t bytes);

/* Counts and records that the slot gains a part (SEGMENT_MAP) or loses one (SEGMENT_UNMAP). */
void wr_slot_note(wr_cache *cache, const wr_slot *slot, weir_event_kind kind, size_t from, size_t to);

/* Holds all parts of a free chunk, until they are let go, or left (wr_chunk_leave_locked). Returns a slot that has
 * one. */
wr_slot *wr_chunk_hold_locked(wr_chunk *chunk);
void wr_chunk_let_go_locked(wr_cache *cache, wr_chunk *chunk); /* needs no records */

/* Takes their parts away from all slots of a free or held chunk. Returns a slot that had one. */
wr_slot *wr_chunk_leave_locked(wr_cache *cache, wr_chunk *chunk);

/* The free block that contains all of the slot's part; NULL: there is none. */
const wr_block *wr_slot_free_block(const wr_slot *slot);

/* Surveys pool by pool which chunks are wholly free, and lists those of a pool largest first. Takes time for them and,
 * only in bins where a free block of WR_BIN_STIRRED_BY has come or gone since the last survey, for the slots in free
 * blocks of WR_PART_USUAL or more, and the shorter parts: no other block contains a whole part. */
WR_CHECKED weir_status wr_chunks_survey_begin_locked(wr_cache *cache);
void wr_chunks_survey_locked(wr_mempool *pool);

/* Largest first. */
void wr_chunks_sort(wr_chunk **chunks, size_t count);

/* Index of the first slot of its region that does not lie wholly before the block. */
uint32_t wr_block_first_slot(const wr_block *block);

/* The piece of the slot of that index that lies in the block, which is free. False: the slot lies behind the block. */
bool wr_block_piece(const wr_block *block, uint32_t index, wr_piece *out);

/* -- records, taken before anything that could not be undone */

WR_CHECKED weir_status wr_chunk_record(wr_cache *cache, wr_chunk **chunk);
void wr_chunk_record_done(wr_cache *cache, wr_chunk *chunk);
WR_CHECKED weir_status wr_slot_record(wr_cache *cache, wr_slot **slot);
void wr_slot_record_done(wr_cache *cache, wr_slot *slot);
WR_CHECKED weir_status wr_region_reserve_slots(wr_region *region, size_t more);

/* Frees all records, as far as there are any, of a region without slots and in no bin. */
void wr_region_done(wr_cache *cache, wr_segment *segment);

/* -- what slots there are */

/* The slot's region has room for it, and it lies behind all others or where one was. */
void wr_slot_add_locked(wr_cache *cache, wr_slot *slot);
void wr_slot_drop_locked(wr_cache *cache, wr_slot *slot);
void wr_chunk_add_locked(wr_cache *cache, wr_chunk *chunk);
void wr_chunk_drop_locked(wr_cache *cache, wr_chunk *chunk);

/* Makes the chunk another pool's; it has no part in its old pool. */
void wr_chunk_pass_locked(wr_chunk *chunk, wr_mempool *to);

/* -- with the move lock, without the cache's lock (chunk_trim.c) */

/* Gives back free chunks of pools in scope, largest first, until `enough` bytes are. Where all are
 * not enough, regions left without chunks go too. A pool left without memory and references is for
 * wr_mempool_sweep. */
WR_CHECKED weir_status wr_chunks_trim(wr_trim_wait *wait, const wr_mempool_scope *scope, size_t enough,
                                      size_t *released);

/* The same for the default pool, except chunks of planned places. */
WR_CHECKED weir_status wr_chunks_trim_unplanned(wr_trim_wait *wait, size_t enough, size_t *released);

/* When too much is mapped, unmaps stale slots of a bin that no queued work can use any more. */
void wr_chunks_unmap_stale(wr_cache *cache, wr_bin *bin);

/* Addresses of a region beyond twice what it was made for, so that it can grow. */
#define WR_REGION_MORE ((size_t)1 << 30)

/* Addresses a region must have left beyond a request: for rounding up, and larger chunks than needed. */
static inline size_t wr_region_left(const wr_cache *cache)
{
    const size_t largest = cache->chunks.largest;
    return 4 * (largest > WR_CHUNK_TIGHT ? largest : WR_CHUNK_TIGHT);
}

/* All regions together reserve at most so many times the addresses of the first and WR_REGION_MORE, plus what requests
 * need; of large devices less, since a process has 128 TiB, and a device of the host back end 16. */
#define WR_REGIONS_TIMES 32
#define WR_REGIONS_MOST ((uint64_t)12 << 40)

/* Of those, without WR_REGION_MORE. */
static inline uint64_t wr_regions_first(const wr_cache *cache)
{
    const uint64_t all = WR_REGIONS_TIMES * (uint64_t)cache->chunks.region_bytes;
    return all < WR_REGIONS_MOST ? all : WR_REGIONS_MOST;
}

static inline uint64_t wr_regions_most(const wr_cache *cache)
{
    return wr_regions_first(cache) + WR_REGIONS_TIMES * (uint64_t)WR_REGION_MORE;
}

/* When much of that is reserved, releases regions that are empty or have only stale slots that no queued work can use:
 * ended streams leave some. */
void wr_chunks_reclaim_addresses(wr_cache *cache);

/* At close: releases a region, and the chunks that have no other slot. */
weir_status wr_chunks_release_region(wr_cache *cache, const wr_segment *segment);

#endif
