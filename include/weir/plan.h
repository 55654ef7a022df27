/**
 * @file plan.h
 * @brief Plans: where each allocation of a recorded program goes, decided with all of the recording known.
 *
 * A plan file (".weirplan") is a header of 64 bytes, then arenas, then entries, all little endian; docs/plan-format.md
 * is the specification. `weir plan` writes them. An arena is a line of addresses of one device that the plan has for
 * itself. Its entries are the program's allocations there, in their order.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_PLAN_MAGIC "weirplan"
#define WEIR_PLAN_VERSION_MAJOR 1
#define WEIR_PLAN_VERSION_MINOR 1

/** Offsets and sizes are multiples of this. */
#define WEIR_PLAN_ALIGNMENT 512

/** weir_plan_entry.lives of what is not freed in the recording. */
#define WEIR_PLAN_FOREVER UINT32_MAX

/** weir_plan_arena.flags: all of it is of one stream; the plan let no stream use what another had. */
#define WEIR_PLAN_ONE_STREAM 1u

/** One allocation: 24 bytes. */
typedef struct weir_plan_entry {
    uint64_t offset; /**< in the arena */
    uint64_t bytes;  /**< the request, rounded up to WEIR_PLAN_ALIGNMENT */
    uint32_t lives;  /**< it is freed before this many further allocations of the arena were made, and one; or
                          WEIR_PLAN_FOREVER */
    uint32_t stream; /**< streams are numbered by their first allocation in the arena */
} weir_plan_entry;

/** One arena: 88 bytes. */
typedef struct weir_plan_arena {
    int32_t device;
    uint32_t pool;    /**< 0 is the default pool; others are numbered by their first allocation */
    uint32_t flags;   /**< WEIR_PLAN_ONE_STREAM */
    uint32_t streams; /**< how many allocate in it */
    uint64_t bytes;   /**< its size */
    uint64_t bound;   /**< no placement is smaller than this */
    uint64_t waits;   /**< times that an address passes from one stream to another, which must wait for an event */
    uint64_t first, entries;           /**< its entries: the first one's index, and how many */
    uint64_t loop_first, loop_entries; /**< of these, the ones that repeat; the first one counted in the arena */
    uint64_t loop_times;               /**< how often they did; 0: nothing repeats */
    uint64_t residents; /**< so many entries, the first ones, are of blocks that lived when the recording began, in no
                             order that is known; none of them repeats */
} weir_plan_arena;

/** A plan. Entries of an arena follow each other; arenas are in the order of their entries. */
typedef struct weir_plan {
    uint64_t trace; /**< a hash of what the recorded program allocated and freed */
    uint64_t arena_count, entry_count;
    const weir_plan_arena *arenas;
    const weir_plan_entry *entries;
} weir_plan;

/**
 * Reads the bytes of a plan file. All that a plan says is in range afterwards: entries lie within their arena, streams
 * and loops are there. Whether blocks overlap is not checked. Needs no open library. Since 0.1.
 * @param plan set to memory for weir_plan_destroy().
 * @return WEIR_ERR_FORMAT naming the byte; WEIR_ERR_INCOMPATIBLE for a file of a newer major version.
 */
WEIR_API weir_status weir_plan_decode(const void *bytes, size_t count, weir_plan **plan);

/**
 * Writes a plan's file to memory. Since 0.1.
 * @param buffer may be NULL: *count becomes the bytes that are needed.
 * @return WEIR_ERR_INVALID_ARGUMENT when `capacity` is too small, with *count set.
 */
WEIR_API weir_status weir_plan_encode(const weir_plan *plan, void *buffer, size_t capacity, size_t *count);

/** Releases a plan of weir_plan_decode(); NULL is fine. Since 0.1. */
WEIR_API void weir_plan_destroy(weir_plan *plan);

/**
 * Serves a plan to a device from now on, in place of any plan before; NULL: none. The plan is copied.
 *
 * Each arena of the device's pool 0 goes to the first stream that asks for what it begins with; the only one, until then, to
 * whoever asks for something, and may have begun later than what was recorded. A program that does there
 * what was planned gets its blocks where the plan has them, residents in any order; one that does something else for a while
 * is found again by the sizes that it asks for. A plan is a hint: each place is looked at before it is given out, and what
 * is not in the plan, or would be where something else is, is served as without one; a plan that was of no use for two of
 * its lengths, and 4096 allocations, is not served any more. weir_memory_stats.plan_served and the members behind it count
 * that. Best called before the program's first allocation; blocks that were given out stay where they are.
 *
 * Each arena of another pool goes to the first private pool, a graph's or one of the program's, whose first request on a stream
 * is what the arena begins with, and which has no arena of another pool of the plan. The pool takes one segment of the arena's
 * size from its own source and places its blocks there. It is frozen: the pool goes on with it, and its addresses stay, whatever
 * is served afterwards; when the pool is gone, the arena is there for the next one. Pools with `alignment` above 512, `no_split`,
 * `deterministic` or memory that can be exported are not served, nor are arenas of several streams, nor a pool that cannot have
 * the segment. Since 0.1.
 * @param device ordinal, or WEIR_DEVICE_CURRENT.
 * @return WEIR_ERR_NOT_SUPPORTED where the default pool is not made of chunks (another policy than weir, no virtual memory,
 *         max_split_size or gc_threshold set), and for an arena of pool 0 that has several streams (`weir plan --streams-apart` makes
 *         none); WEIR_ERR_INVALID_ARGUMENT for a plan that has nothing for the device, or says what cannot be.
 */
WEIR_API weir_status weir_plan_serve(int device, const weir_plan *plan);

/**
 * Makes a plan of what the program repeats, and serves it from now on; to be called between rounds: the iterations of a
 * training, the requests to a server. A round is known by what each stream asked for, in order, twice in a row at the end of
 * the device's history, which the option `history` must record: three events for each allocation, of two rounds at least.
 * While a plan is served and the program keeps to it, this does nothing; once it does not, the next two equal rounds are
 * planned. Planning takes the calling thread's time (1 s for 70,000 allocations) and no lock; then what is cached is given
 * back, for which the streams that it was used on are waited for.
 *
 * With the option `plan_share`, where all streams together repeat in one order, and it saves more than 1 % of the memory, a
 * stream is lent some of its blocks by the stream that holds most. The latter is weir_pointer_info.stream of such a block. The
 * former waits, on the device, for the latter's present work when it gets the block, and the latter for the former's when the
 * block is freed: work of the two overlaps less, and streams whose kernels wait for one another (communicators) must not
 * share, for they could wait for ever.
 * Since 0.1.
 * @param device ordinal, or WEIR_DEVICE_CURRENT.
 * @return WEIR_ERR_NOT_READY when nothing repeats, WEIR_ERR_NOT_SUPPORTED when nothing is recorded and as weir_plan_serve().
 */
WEIR_API weir_status weir_plan_learn(int device);

/** The entry, counted in the arena, of the arena's n-th allocation from 0, when what repeats goes on repeating: behind
 *  the last entry before the loop come its entries again and again. What the recording had behind the loop is reached
 *  only by a reader that knows that the loop is over. Since 0.1. */
static inline uint64_t weir_plan_entry_of(const weir_plan_arena *a, uint64_t n)
{
    if (a->loop_times == 0 || n < a->loop_first + a->loop_entries) return n;
    return a->loop_first + (n - a->loop_first) % a->loop_entries;
}

#ifdef __cplusplus
}
#endif
#endif
