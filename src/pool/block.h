/*
 * block: what the caching allocator is made of.
 *
 *   cache (one per device)
 *     mempool: the default one, and private ones
 *       bin (one per stream and size class): the free blocks and the segments of that stream and class
 *         segment: one allocation from the pool's source, or a region of addresses (pool/chunk/chunk.h), cut without
 *           gaps into blocks: free (in the bin's tree), live (handed out), pending (freed, waiting for other streams),
 *             or, in a region, absent (addresses without memory of their own) or held (free, but hidden during
 *             driver calls)
 *
 * Memory freed on a stream is reused on that stream only: a segment belongs to one bin. Two neighbouring blocks are
 * never both free. pool/starts.h finds the block at an address.
 * Owner: the cache. Lock: the cache's (WR_RANK_CACHE) for everything; a detached front's cutting lock is enough for the
 * blocks of its bins (pool/front/detach.h). Records are recycled, not freed, until the cache goes.
 */
#ifndef WR_POOL_BLOCK_H
#define WR_POOL_BLOCK_H

#include "base/backoff.h"
#include "base/compiler.h"
#include "pool/flow.h"
#include "pool/policy.h"
#include "stream/stream.h"

#include <bsd/sys/tree.h>
#include <stddef.h>
#include <sys/queue.h>

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

/* What a free needs to know about a block, in one atomic word. Parking and taking change it under the front's lock,
 * posts under theirs, everything else under the cache's. Recording a stream changes it by compare and exchange, so that
 * of a record and a free by two threads one comes first; so do posts, and frees of a shared front's blocks, which have
 * no lock in common. */
typedef enum wr_block_mark {
    WR_MARK_NONE,     /* not live, or other streams use it */
    WR_MARK_PARKABLE, /* live, used by its own stream only */
    WR_MARK_CLAIMED,  /* a thread that frees it looks at it once more: parkable again in a moment, or one of these: */
    WR_MARK_PARKED,   /* live to the cache, but parked in the bin's front, or a side of it, or about to be */
    WR_MARK_POSTED    /* likewise, but freed by another thread and still to be parked (pool/front/post.h) */
} wr_block_mark;

/* A thread without the lock may read a record that has become another block's, or is unused (wr_front_of_block): once a
 * record has been in the table of starts, its `segment` is never NULL again.
 * A record has two cache lines to itself: neighbours may be of different streams, written by different threads. Parking
 * and taking touch only the second line. */
struct wr_block {
    wr_block *prev, *next;       /* neighbours by address; `next` also links unused records */
    atomic_uintptr_t next_start; /* link in the table of starts (pool/starts.h) */
    union {
        /* The capture that it was handed out in, by wr_graph_order's number; 0: none that is still underway */
        uint64_t capture;
        wr_block *equal; /* in the bin's tree: first of its equals beside it; NULL: none */
    };
    union {
        uint64_t freed_at; /* free: the cache's search count then, for its age */
        uint64_t kept_at;  /* else, in a paused segment: offset of its contents in the segment's copy */
    };
    union {
        RB_ENTRY(wr_block) node; /* in the bin's tree while free */
        struct {                 /* beside a block of equal size, which is in the tree */
            wr_block *next_equal;
            wr_block **link; /* the pointer to this block */
        };
        struct {
            void *first_line[3];
            wr_block *next_parked; /* in the bin's front */
        };
    };
    char *base;
    size_t bytes;
    size_t requested; /* what the user asked for; when free, the last user */
    wr_segment *segment;
    wr_use *uses; /* other streams that use it or are waited for */
    wr_block_state state : 8;
    bool beside;           /* free: beside a block of equal size, which is in the tree */
    bool lent;             /* live or pending: lent to another stream by a plan (pool/plan/serve.h) */
    _Atomic(uint8_t) mark; /* a wr_block_mark */
    uint16_t range;        /* in the bin's tree: its range */
    bool library;          /* live, of a private pool: a vendor library's, which frees it itself */
    uint32_t kept;  /* pinned memory, which has no fronts: by how many graphs; once freed, it waits for their end */
    uint32_t stack; /* of the allocating call, where history keeps stacks */
};

_Static_assert(offsetof(wr_block, next_parked) == WR_CACHE_LINES / 2, "parking needs one line");
_Static_assert(sizeof(wr_block) == WR_CACHE_LINES, "records of blocks do not share cache lines");

RB_HEAD(wr_free_tree, wr_block);

/* The free blocks of a bin by size: a tree for each range of sizes, most of them small, a bit for each range that is
 * not empty, and for each word of those. There are 16 ranges of equal width from one power of two to the next. Of
 * blocks of equal size one is in the tree and the others are beside it, the last freed first: most free blocks have
 * equals, and no processor can predict the branches that order those in a tree. With by_order every block is in the
 * tree, by size and order (docs/decisions/0010). */
#define WR_FREE_LOG2_MIN 9u /* of the smallest block */
#define WR_FREE_OCTAVES 53u /* up to what the largest request may be rounded to */
#define WR_FREE_STEPS_LOG2 4u
#define WR_FREE_RANGES (WR_FREE_OCTAVES << WR_FREE_STEPS_LOG2)

typedef struct wr_free_index {
    bool by_order;
    uint64_t blocks, bytes; /* of all trees */
    uint64_t words;
    uint64_t ranges[WR_FREE_RANGES / 64 + 1]; /* one bit more than there are ranges */
    struct wr_free_tree trees[WR_FREE_RANGES];
} wr_free_index;

/* The first block that begins in each page of WR_SEGMENT_UNIT of a segment, and a bit per page in which one does. */
typedef struct wr_pages {
    struct wr_pages *next_unused, *next;
    unsigned log2; /* of its capacity in pages */
    uint64_t *any;
    wr_block *first[];
} wr_pages;

/* What is behind the addresses of a segment. Only segments of paused pools are anything but WR_BACKED. */
typedef enum wr_backing {
    WR_BACKED,    /* memory */
    WR_UNREACHED, /* memory that is mapped but unusable: the driver refused access, and then to unmap it */
    WR_UNMAPPED,  /* memory that is not mapped there: the driver did not take it back */
    WR_UNBACKED   /* nothing */
} wr_backing;

/* A stream that ends, once its work is over, leaves its segments to the default stream. This is what is known of such a
 * segment until a block of it is handed out: */
typedef enum wr_left {
    WR_LEFT_NOT,   /* nothing: no stream left it, or it was used since */
    WR_LEFT_QUIET, /* all of it was free, so no work uses it */
    WR_LEFT_IN_USE /* some blocks were in use, and the default stream may be using them now */
} wr_left;

struct wr_segment {
    struct wr_cache *cache; /* constant, even when the record is recycled */
    char *base;
    size_t bytes;
    weir_chunk chunk;   /* behind it, where it is mapped memory; 0: none. Changes under the move lock too */
    wr_region *region;  /* NULL: the segment has memory of its own */
    wr_backing backing; /* changes under both the move lock and the cache's */
    char *copy;         /* of its contents while paused, in pinned memory; under the move lock */
    size_t copy_bytes;
    uint32_t dropped;   /* how often pausing has dropped its contents */
    uint64_t order;     /* its rank among segments: by address, or by age (deterministic pools) */
    wr_segment *listed; /* next in the list of those that the holder of the move lock works on */
    wr_bin *bin;
    wr_block *first;
    wr_pages *pages;
    _Atomic(wr_front *) front; /* the bin's */
    uint32_t blocks;
    wr_left left;
    wr_segment *prev, *next; /* in the bin; `next` also links unused records */
    LIST_ENTRY(wr_segment) in_hidden;
};

struct wr_bin {
    wr_segment *segments;
    wr_mempool *pool;
    wr_stream *stream;
    wr_front *front;     /* NULL: the bin has none */
    wr_account *account; /* of all bins of the stream */
    wr_ledger *ledger;   /* the cache's, or the front's while that is detached */
    wr_flow *also;       /* the pool's own flow; NULL: the pool has none, or a detached front adds to it later */
    wr_class class;
    /* Blocks of up to so many bytes are small: all, none, or, where regions have both classes, by size */
    size_t small_max;
    size_t part_bytes; /* memory of chunks that its regions have: the parts of their slots (pool/chunk/chunk.h) */
    /* An event: once it is over, no work uses slots that were stale when it was recorded. NULL: none. Under the move
     * lock */
    void *fence;
    uint64_t fenced;                  /* when it was recorded, by wr_chunks.moments */
    uint64_t grew;                    /* when it last got chunks, by the same */
    LIST_HEAD(, wr_slot) short_parts; /* parts of less than WR_PART_USUAL */
    LIST_HEAD(, wr_slot) free_parts;  /* parts that were wholly free at the last survey */
    LIST_ENTRY(wr_bin) in_stirred;
    wr_bin *next; /* of the pool's (wr_mempool.first_bin) */
    /* In the pool's list of such bins: free_parts may not be right any more. While the front is detached, always */
    bool stirred;
    wr_free_index free;
};

static inline wr_class wr_bin_class_of(const wr_bin *bin, size_t bytes)
{
    return bytes <= bin->small_max ? WR_SMALL : WR_LARGE;
}

/* Released, so that who finds or claims the block (wr_front_good, wr_front_claim) sees which block it is. */
static inline void wr_block_mark_as(wr_block *block, wr_block_mark mark)
{
    atomic_store_explicit(&block->mark, (uint8_t)mark, memory_order_release);
}

static inline bool wr_block_is(const wr_block *block, wr_block_mark mark)
{
    return atomic_load_explicit(&block->mark, memory_order_relaxed) == mark;
}

/* The same; if so, what was written before the mark is seen too. */
static inline bool wr_block_is_seen(const wr_block *block, wr_block_mark mark)
{
    return atomic_load_explicit(&block->mark, memory_order_acquire) == mark;
}

/* Marks a block that is handed out, and returns where it begins. Where the block has a front, that is the last thing
 * that is done with it: a thread that erroneously frees what was there before may need no lock that is held here, and
 * the record may become another block's. */
static inline void *wr_block_hand_out(wr_block *block)
{
    void *base = block->base;
    wr_block_mark_as(block, WR_MARK_PARKABLE);
    return base;
}

/* Returns what the mark was; if that is `from`, it is `to` now. */
static inline wr_block_mark wr_block_change_mark(wr_block *block, wr_block_mark from, wr_block_mark to)
{
    uint8_t was = (uint8_t)from;
    (void)atomic_compare_exchange_strong_explicit(&block->mark, &was, (uint8_t)to, memory_order_acq_rel,
                                                  memory_order_relaxed);
    return (wr_block_mark)was;
}

/* A claim may have been another block's, whose record this was (wr_front_claim). The thread that made it takes no lock
 * before it has decided. */
static inline wr_block_mark wr_block_mark_in_the_end(const wr_block *block)
{
    wr_backoff b = { 0 };
    for (;;) {
        const uint8_t mark = atomic_load_explicit(&block->mark, memory_order_relaxed);
        if (WR_LIKELY(mark != WR_MARK_CLAIMED)) return (wr_block_mark)mark;
        wr_backoff_wait(&b);
    }
}

/* Of a live block: whether the program has freed it. */
static inline bool wr_block_is_freed(const wr_block *block)
{
    const wr_block_mark mark = wr_block_mark_in_the_end(block);
    return mark == WR_MARK_PARKED || mark == WR_MARK_POSTED;
}

static inline bool wr_block_is_live(const wr_block *block)
{
    return block->state == WR_BLOCK_LIVE && !wr_block_is_freed(block);
}

/* From now on nobody parks it. False: the block was freed. For a second stream that uses it, that is so already. */
static inline bool wr_block_mark_used(wr_block *block)
{
    wr_block_mark was;
    do was = wr_block_change_mark(block, WR_MARK_PARKABLE, WR_MARK_NONE);
    while (was == WR_MARK_CLAIMED && !wr_block_is_freed(block));
    return was == WR_MARK_PARKABLE || was == WR_MARK_NONE;
}

/* What a live block was asked for, without the lock of its front: if another thread frees it meanwhile, it may be just
 * being handed out again. */
WR_RACES static inline size_t wr_block_requested(const wr_block *block)
{
    return block->requested;
}

/* What the program sees it as; not for an absent one. */
static inline weir_block_state wr_block_seen_as(const wr_block *block)
{
    _Static_assert(WEIR_BLOCK_PENDING == (int)WR_BLOCK_PENDING, "what is neither absent nor held has the same number");
    return block->state == WR_BLOCK_HELD ? WEIR_BLOCK_FREE : (weir_block_state)block->state;
}

/* Makes a record a block without neighbours; the rest is set when it is handed out. */
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

static inline size_t wr_segment_held(const wr_segment *segment)
{
    return segment->backing == WR_UNBACKED ? 0 : segment->bytes;
}

static inline bool wr_segment_idle(const wr_segment *segment)
{
    return segment->blocks == 1 && segment->first->state == WR_BLOCK_FREE;
}

#endif
