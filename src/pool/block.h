/*
 * block: what the caching allocator is made of.
 *
 *   cache (one per device)
 *     mempool: the default one, and private ones
 *       bin (one per stream and size class): the free blocks and the segments of that stream and class
 *         segment: one allocation from the pool's source, or a region of addresses (pool/chunk.h), cut without gaps into
 *           blocks: free (in the bin's tree), live (handed out), pending (freed, waiting for other streams), or, in a
 *             region, absent (addresses without memory of their own) or held (free, out of sight, about to become larger)
 *
 * Memory freed on a stream is reused on that stream only: a segment belongs to one bin. Two neighbouring blocks are
 * never both free. An address finds its block by pool/starts.h.
 * Owner: the cache. Lock: the cache's (WR_RANK_CACHE) for everything. Records are recycled, not freed, until the
 * cache goes.
 */
#ifndef WR_POOL_BLOCK_H
#define WR_POOL_BLOCK_H

#include "base/compiler.h"
#include "pool/flow.h"
#include "pool/policy.h"
#include "pool/stream.h"

#include <bsd/sys/tree.h>
#include <stddef.h>

typedef struct wr_block wr_block;
typedef struct wr_segment wr_segment;
typedef struct wr_bin wr_bin;
typedef struct wr_use wr_use;
typedef struct wr_mempool wr_mempool;
typedef struct wr_front wr_front;
typedef struct wr_account wr_account;
typedef struct wr_region wr_region;
typedef struct wr_ledger wr_ledger;

typedef enum wr_block_state {
    WR_BLOCK_FREE,
    WR_BLOCK_LIVE,
    WR_BLOCK_PENDING,
    WR_BLOCK_ABSENT,
    WR_BLOCK_HELD
} wr_block_state;

/* What a free has to know of a block, in one atomic word. Parking and taking change it under the front's lock, all else under the
 * cache's; recording a stream changes it by compare and exchange, so that of a record and a free by two threads one is first. */
typedef enum wr_block_mark {
    WR_MARK_NONE,     /* not live, or other streams use it */
    WR_MARK_PARKABLE, /* live, for its own stream only */
    WR_MARK_PARKED    /* live to the cache, and in the bin's front */
} wr_block_mark;

/* Threads without the lock may read a record that is another block's by now, or unused (wr_front_of_block): once it has been in the
 * table of starts, `segment` is never NULL again.
 * Two cache lines, and aligned so: neighbours may be blocks of different streams, which different threads write. What parking
 * and taking a block need is in the second line. */
struct wr_block {
    wr_block *prev, *next;       /* neighbours by address; `next` also links unused records */
    atomic_uintptr_t next_start; /* in the table of starts: a link (pool/starts.h) */
    union {
        uint64_t capture; /* that it was handed out in, as wr_order has it; 0: none that is underway */
        wr_block *equal;  /* in the bin's tree: the first of those beside it; NULL: none are */
    };
    union {
        uint64_t freed_at; /* free: the cache's search count when it was freed, its age for collection */
        uint64_t kept_at;  /* else, in a paused segment: where in the segment's copy its contents are */
    };
    union {
        RB_ENTRY(wr_block) node; /* in the bin's tree while free */
        struct {                 /* beside a block of its size that is in the tree */
            wr_block *next_equal;
            wr_block **link; /* what points to this one */
        };
        struct {
            void *first_line[3];
            wr_block *next_parked; /* in the bin's front */
        };
    };
    char *base;
    size_t bytes;
    size_t requested; /* what the user asked for; of the last use when free */
    wr_segment *segment;
    wr_use *uses; /* other streams that use it, or are waited for */
    wr_block_state state : 8;
    bool beside;           /* free: beside a block of its size, which is in the tree */
    bool lent;             /* live, or pending: to another stream, by a plan (pool/serve.h) */
    _Atomic(uint8_t) mark; /* of wr_block_mark */
    uint16_t range;        /* in the bin's tree: which */
    bool library;          /* live, of a private pool: a vendor library took it, and frees it itself */
    uint32_t kept;  /* of pinned memory, which has no fronts: by how many graphs; freed, it waits for their end */
    uint32_t stack; /* of the call that allocated it, where history keeps stacks */
};

_Static_assert(offsetof(wr_block, next_parked) == WR_CACHE_LINES / 2, "parking needs one line");
_Static_assert(sizeof(wr_block) == WR_CACHE_LINES, "records of blocks do not share cache lines");

RB_HEAD(wr_free_tree, wr_block);

/* The free blocks of a bin by size: a tree for each range of sizes, most of them small, a bit for each that is not empty, and
 * a bit for each word of those. There are 16 ranges of the same width from one power of two to the next. Of blocks of equal
 * size one is in the tree and the others are beside it, the last freed first: most free blocks have equals, and which way those
 * go in a tree no processor can guess. With by_order each is in the tree, by size and order (docs/decisions/0010). */
#define WR_FREE_LOG2_MIN 9u /* of the smallest block there is */
#define WR_FREE_OCTAVES 53u /* up to what the largest request may be rounded to */
#define WR_FREE_STEPS_LOG2 4u
#define WR_FREE_RANGES (WR_FREE_OCTAVES << WR_FREE_STEPS_LOG2)

typedef struct wr_free_index {
    bool by_order;
    uint64_t words;
    uint64_t ranges[WR_FREE_RANGES / 64 + 1]; /* also of the one behind the last */
    struct wr_free_tree trees[WR_FREE_RANGES];
} wr_free_index;

/* The first block that begins in each page of WR_SEGMENT_UNIT of a segment, and a bit for each page in which one does. */
typedef struct wr_pages {
    struct wr_pages *next_unused, *next;
    unsigned log2; /* of how many there is room for */
    uint64_t *any;
    wr_block *first[];
} wr_pages;

/* What is behind the addresses of a segment. All but the first only in paused pools. */
typedef enum wr_backing {
    WR_BACKED,    /* memory */
    WR_UNREACHED, /* memory that is mapped but not to be used: the driver refused access, then to unmap it */
    WR_UNMAPPED,  /* memory that is not mapped there: the driver did not take it */
    WR_UNBACKED   /* nothing */
} wr_backing;

/* A stream that ends, its work over, leaves its segments to the default stream. What is known of such a segment until somebody is
 * given a block of it: */
typedef enum wr_left {
    WR_LEFT_NOT,   /* nothing: it was left by no stream, or used since */
    WR_LEFT_QUIET, /* all of it was free: no work uses it */
    WR_LEFT_IN_USE /* it had blocks in use, which the default stream may be using now */
} wr_left;

struct wr_segment {
    struct wr_cache *cache; /* never changes, also when the record is recycled */
    char *base;
    size_t bytes;
    weir_chunk chunk;   /* behind it, when it is mapped memory; 0: none. Also under the move lock */
    wr_region *region;  /* NULL: memory of its own */
    wr_backing backing; /* changes with both the move lock and the cache's */
    char *copy;         /* of its contents, while paused, in pinned memory; under the move lock */
    size_t copy_bytes;
    uint32_t dropped;   /* how often its contents were, by pausing */
    uint64_t order;     /* among segments: by address, or by age (deterministic pools) */
    wr_segment *listed; /* the next one of those that the holder of the move lock deals with */
    wr_bin *bin;
    wr_block *first;
    wr_pages *pages;
    _Atomic(wr_front *) front; /* the bin's */
    uint32_t blocks;
    wr_left left;
    wr_segment *prev, *next; /* in the bin; `next` also links unused records */
};

struct wr_bin {
    wr_segment *segments;
    wr_mempool *pool;
    wr_stream *stream;
    wr_front *front;     /* NULL: the bin has none */
    wr_account *account; /* of all bins of the stream */
    wr_ledger *ledger;   /* the cache's, or the front's while that is detached */
    wr_flow *also; /* the pool's, which has numbers of its own; NULL: it has none, or a detached front tells it later */
    wr_class class;
    size_t small_max; /* blocks of up to so many bytes are small ones: all, none, or by size, where regions have both */
    size_t part_bytes; /* memory of chunks that its regions have: the parts of their slots (pool/chunk.h) */
    /* An event; once it is over, no work uses slots that were stale when it was recorded. NULL: none. Move lock */
    void *fence;
    uint64_t fenced; /* when that was, by wr_chunks.moments */
    wr_free_index free;
};

/* Of a block in it. */
static inline wr_class wr_bin_class_of(const wr_bin *bin, size_t bytes)
{
    return bytes <= bin->small_max ? WR_SMALL : WR_LARGE;
}

static inline void wr_block_mark_as(wr_block *block, wr_block_mark mark)
{
    atomic_store_explicit(&block->mark, (uint8_t)mark, memory_order_relaxed);
}

static inline bool wr_block_is(const wr_block *block, wr_block_mark mark)
{
    return atomic_load_explicit(&block->mark, memory_order_relaxed) == mark;
}

/* False: it is parked. A second stream that uses it finds it marked already. */
static inline bool wr_block_mark_used(wr_block *block)
{
    uint8_t was = WR_MARK_PARKABLE;
    return atomic_compare_exchange_strong_explicit(&block->mark, &was, WR_MARK_NONE, memory_order_relaxed,
                                                   memory_order_relaxed) ||
           was != WR_MARK_PARKED;
}

/* A record becomes a block without neighbours; what it has beyond these is set when it is handed out. */
static inline void wr_block_begin(wr_block *block, char *base, size_t bytes, wr_segment *segment, wr_block_state state)
{
    block->base = base;
    block->bytes = bytes;
    block->requested = 0;
    block->segment = segment;
    block->prev = block->next = NULL;
    block->uses = NULL;
    block->capture = 0;
    block->kept = block->stack = 0;
    block->freed_at = 0;
    block->state = state;
    wr_block_mark_as(block, WR_MARK_NONE);
    block->lent = false;
}

/* Among blocks of equal size. */
static inline uint64_t wr_block_order(const wr_block *block)
{
    return block->segment->order + (uint64_t)(block->base - block->segment->base);
}

/* Bytes of memory behind it. */
static inline size_t wr_segment_held(const wr_segment *segment)
{
    return segment->backing == WR_UNBACKED ? 0 : segment->bytes;
}

static inline bool wr_segment_idle(const wr_segment *segment)
{
    return segment->blocks == 1 && segment->first->state == WR_BLOCK_FREE;
}

#endif
