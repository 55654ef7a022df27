/*
 * chunk: what pools are made of where the device has virtual memory, the default one and those like it. A chunk is
 * physical memory, mapped whole at one place or more: its slots. A slot uses a part of the chunk; the parts of a chunk's slots
 * never overlap and fill it, so each byte is handed out at one address only. A slot without a part is stale: still mapped,
 * and nobody's, until its chunk is wanted at that place again, or too much is mapped. That memory can be had at another
 * address without waiting is what keeps free memory from being in the wrong place: work queued at the old address runs
 * before work queued later at the new one, when both are on one stream.
 *
 *   region, a segment of reserved addresses of one bin, filled from the front
 *     slots, by address, never moved                |  chunk A  | chunk B | chunk A |  (reserved)
 *     blocks: absent where no slot has a part       | .. part ..|absent...| ..part..|  absent
 *
 * Chunks of 2 MiB to 112 MiB: the cost of virtual memory is per handle and hardly per byte, while what is free in a chunk
 * that is partly in use can serve only requests that fit there. docs/decisions/0007 has the figures behind the numbers.
 *
 * A chunk is one pool's: all parts of it are. Wholly free ones of the default pool may become a private pool's, which keeps them
 * until it gives them back; where they were in the default pool are stale slots then. All slots of a pool that graphs use stay
 * mapped: a launch writes to each address that the capture had, in the order of the capture. Nothing of a pool of which a
 * checkpoint was taken is mapped elsewhere.
 * Owner: the cache. Lock: changed with both the move lock and the cache's, read with either. Records are recycled.
 */
#ifndef WR_POOL_CHUNK_H
#define WR_POOL_CHUNK_H

#include "pool/trim_wait.h"

#include <sys/queue.h>

struct wr_chunk {
    weir_chunk handle;
    size_t bytes;
    wr_mempool *pool;
    wr_slot *slots;        /* where it is mapped */
    size_t parts;          /* slots that use it: most are stale, and who looks for parts need not see them all */
    wr_chunk *prev, *next; /* of the cache; `next` also links unused records */
    /* Bytes that are in no slot's part while the holder of the move lock maps them elsewhere or gives them back */
    size_t away;
    uint64_t surveyed; /* the last survey that found some of it free, */
    size_t free_bytes; /* and how much */
    uint64_t mark;     /* scratch of one pass over chunks: equal to the pass's number, or an order */
    bool serves;       /* scratch of wr_stitch_run_find: wholly free, and the request may have it */
    bool stuck;        /* the driver did not unmap it somewhere: given back, its memory is lost */
};

struct wr_slot {
    wr_chunk *chunk;
    wr_segment *region;
    size_t at;              /* where the chunk begins in the region */
    wr_slot *left, *right;  /* the region's next ones by address; NULL: there are none */
    wr_slot *next_of_chunk; /* also links unused records */
    size_t from, to;        /* the part of the chunk that is used here; equal: stale */
    uint64_t stale_since;   /* by wr_chunks.moments; later when unmapping it failed since */
    TAILQ_ENTRY(wr_slot) stale;
    LIST_ENTRY(wr_slot) short_part;
};

struct wr_region {
    wr_slot **slots; /* by `at` */
    uint32_t count, capacity;
    TAILQ_HEAD(wr_stale_slots, wr_slot) stale; /* those that are, oldest first */
    size_t end;                                /* of the last slot, where the next one begins */
    /* The driver did not unmap something behind the end: no slot can come there, nor can the addresses go */
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
#define WR_CHUNK_LAST ((size_t)8 << 20)       /* the most where it is nearly so */
#define WR_CHUNK_PART_LEAST ((size_t)1 << 20) /* a part that is no whole chunk */
#define WR_PART_USUAL WR_CHUNK_USUAL /* shorter parts are listed: few, unless streams are many or memory is short */

static inline bool wr_slot_is_stale(const wr_slot *slot)
{
    return slot->from == slot->to;
}

/* As last surveyed. */
static inline bool wr_chunk_is_free(const wr_cache *cache, const wr_chunk *chunk)
{
    return chunk->surveyed == cache->chunks.surveys && chunk->free_bytes == chunk->bytes;
}

/* The bin of a slot that has a part of it. */
wr_bin *wr_chunk_bin(const wr_chunk *chunk);

/* The first slot of a region that ends behind an offset: its index. */
uint32_t wr_region_find(const wr_region *region, size_t offset);

/* The free block that the region's slots end with; NULL: none. */
wr_block *wr_region_tail(const wr_segment *segment);

/* -- both locks held; block records were made sure of: two for each call of these */

/* A range of a region that lies in one free block, or is a held one, becomes absent, one that lies in an absent block becomes free. */
void wr_region_take_locked(wr_segment *segment, size_t at, size_t bytes);
void wr_region_give_locked(wr_segment *segment, size_t at, size_t bytes);

/* A free block is nobody's until it is let go; it needs no records. */
void wr_block_hold_locked(wr_block *block);
void wr_block_let_go_locked(wr_cache *cache, wr_block *block);

/* A free end of a slot's part, or all of it, becomes absent; the other way round: an absent range that is next to the
 * part, or any when the slot is stale. */
void wr_slot_leave_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to);
void wr_slot_enter_locked(wr_cache *cache, wr_slot *slot, size_t from, size_t to);

/* The slot gets all of its chunk, which is free. Of records, two for each part that the chunk has, and two more. */
void wr_slot_fill_locked(wr_cache *cache, wr_slot *slot);

/* Counts and records that a part comes to the slot (SEGMENT_MAP) or goes (SEGMENT_UNMAP). */
void wr_slot_note(wr_cache *cache, const wr_slot *slot, weir_event_kind kind, size_t from, size_t to);

/* Holds all parts of a free chunk, until they are let go, or left (wr_chunk_leave_locked). Returns a slot that has one. */
wr_slot *wr_chunk_hold_locked(wr_chunk *chunk);
void wr_chunk_let_go_locked(wr_cache *cache, wr_chunk *chunk); /* needs no records */

/* No slot of a free or held chunk has a part any more. Returns one that had. */
wr_slot *wr_chunk_leave_locked(wr_cache *cache, wr_chunk *chunk);

/* Finds the chunks that are wholly free, pool by pool. Takes as long as the pool has streams, slots in free blocks of
 * WR_PART_USUAL or more, and parts of less: no other block has all of a part. */
WR_CHECKED weir_status wr_chunks_survey_begin_locked(wr_cache *cache);
void wr_chunks_survey_locked(const wr_mempool *pool);

/* The first slot of its region that a block does not lie behind: its index. */
uint32_t wr_block_first_slot(const wr_block *block);

/* What is free in a block of the slot of that index; `from` is not below `to`: nothing. False: the slot lies behind the block. */
bool wr_block_piece(const wr_block *block, uint32_t index, wr_piece *out);

/* -- records (records.c), taken before something is done that could not be undone */

WR_CHECKED weir_status wr_chunk_record(wr_cache *cache, wr_chunk **chunk);
void wr_chunk_record_done(wr_cache *cache, wr_chunk *chunk);
WR_CHECKED weir_status wr_slot_record(wr_cache *cache, wr_slot **slot);
void wr_slot_record_done(wr_cache *cache, wr_slot *slot);
WR_CHECKED weir_status wr_region_reserve_slots(wr_region *region, size_t more);

/* All records of a region without slots, in no bin, as far as it has them. */
void wr_region_done(wr_cache *cache, wr_segment *segment);

/* -- what slots there are */

/* The slot's region has room, and it lies behind all others or where one was. */
void wr_slot_add_locked(wr_cache *cache, wr_slot *slot);
void wr_slot_drop_locked(wr_cache *cache, wr_slot *slot);
void wr_chunk_add_locked(wr_cache *cache, wr_chunk *chunk);
void wr_chunk_drop_locked(wr_cache *cache, wr_chunk *chunk);

/* The chunk becomes another pool's; it has no part in the one that it was of. */
void wr_chunk_pass_locked(wr_chunk *chunk, wr_mempool *to);

/* -- without the cache's lock, with the move lock (chunk_trim.c) */

/* Gives free chunks of pools that pass back to the driver, largest first, until `enough` bytes are, or all and the regions that are
 * without any then. A pool that this leaves without memory and references is for wr_mempool_sweep. */
WR_CHECKED weir_status wr_chunks_trim(wr_trim_wait *wait, wr_mempool_filter passes, const void *argument, size_t enough,
                                      size_t *released);

/* The same of the default pool, but no chunks of planned places, and with the work on them waited for. */
WR_CHECKED weir_status wr_chunks_trim_unplanned(wr_cache *cache, size_t enough, size_t *released);

/* When too much is mapped, unmaps stale slots of a bin that no queued work can use any more. */
void wr_chunks_unmap_stale(wr_cache *cache, wr_bin *bin);

/* What a region has besides twice what it was made for, so that it can grow. */
#define WR_REGION_MORE ((size_t)1 << 30)

/* What a region must have left besides a request: what is rounded up, and chunks that are larger than needed. */
static inline size_t wr_region_left(const wr_cache *cache)
{
    const size_t largest = cache->chunks.largest;
    return 4 * (largest > WR_CHUNK_TIGHT ? largest : WR_CHUNK_TIGHT);
}

/* Regions together reserve at most so many times the addresses of the first, but for what requests need: a process has 128 TiB. */
#define WR_REGIONS_TIMES 32

/* When much of that is reserved, regions in which nothing is any more, or stale slots that no queued work can use, go: streams that
 * ended leave some. */
void wr_chunks_reclaim_addresses(wr_cache *cache);

/* At close: a region goes, and with it chunks that have no other slot. */
weir_status wr_chunks_release_region(wr_cache *cache, const wr_segment *segment);

/* After the last one. */
void wr_chunks_release(wr_cache *cache);

#endif
