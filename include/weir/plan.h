/**
 * @file plan.h
 * @brief Plans: where each allocation of a recorded program goes, decided with all of the recording known.
 *
 * A plan file (".weirplan") is a header of 64 bytes, then arenas, then entries, all little endian; docs/plan-format.md
 * is the specification. `weir plan` writes such files. An arena is an address range of one device that the plan has for
 * itself; its entries are the program's allocations there, in their order.
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

/** weir_plan_entry.lives of a block that is not freed in the recording. */
#define WEIR_PLAN_FOREVER UINT32_MAX

/** weir_plan_arena.flags: the whole arena is one stream's; the plan lets no stream use memory that another had. */
#define WEIR_PLAN_ONE_STREAM 1u

/** One allocation: 24 bytes. */
typedef struct weir_plan_entry {
    uint64_t offset; /**< in the arena */
    uint64_t bytes;  /**< the request, rounded up to WEIR_PLAN_ALIGNMENT */
    uint32_t lives;  /**< it is freed at the latest after this many further allocations of the arena, before the next
                          one; or WEIR_PLAN_FOREVER */
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
    uint64_t loop_first, loop_entries; /**< those that repeat: the first one's index in the arena, and how many */
    uint64_t loop_times;               /**< how often they did; 0: nothing repeats */
    uint64_t residents; /**< this many first entries are of blocks that already lived when the recording began, in an
                             unknown order; none of them repeats */
} weir_plan_arena;

/** A plan. Entries of an arena follow each other; arenas are in the order of their entries. */
typedef struct weir_plan {
    uint64_t trace; /**< a hash of what the recorded program allocated and freed */
    uint64_t arena_count, entry_count;
    const weir_plan_arena *arenas;
    const weir_plan_entry *entries;
} weir_plan;

/**
 * Reads the bytes of a plan file. Everything in the plan is in range afterwards: entries lie within their arena, and
 * streams and loops exist. Whether blocks overlap is not checked. Needs no open library. Since 0.1.
 * @param plan set to memory for weir_plan_destroy().
 * @return WEIR_ERR_FORMAT naming the byte; WEIR_ERR_INCOMPATIBLE for a file of a newer major version.
 */
WEIR_API weir_status weir_plan_decode(const void *bytes, size_t count, weir_plan **plan);

/**
 * Writes a plan's file to memory. Since 0.1.
 * @param buffer may be NULL: *count becomes the number of bytes needed.
 * @return WEIR_ERR_INVALID_ARGUMENT when `capacity` is too small, with *count set.
 */
WEIR_API weir_status weir_plan_encode(const weir_plan *plan, void *buffer, size_t capacity, size_t *count);

/** Releases a plan from weir_plan_decode(); NULL is fine. Since 0.1. */
WEIR_API void weir_plan_destroy(weir_plan *plan);

/**
 * Serves a plan to a device from now on, in place of any plan before; NULL: none. The plan is copied. Best called
 * before the program's first allocation; blocks that were given out stay where they are. A plan is a hint: each place
 * is checked before it is given out, and a request that is not in the plan, or whose place is in use, is served as
 * without a plan. weir_memory_stats.plan_served and the members after it count all this.
 *
 * Default pool: each arena of the device's pool 0 goes to the first stream whose request is the arena's first entry. If
 * the plan has only one such arena, any stream that allocates has it until then, since the program may have begun later
 * than the recording. A program that repeats what was planned gets its blocks where the plan has them, residents in any
 * order. One that departs from the plan for a while is found again by the sizes that it asks for, and is served again
 * once enough of them in a row agree (more each time), or a whole round. A plan that was of no use for twice its
 * length, and for 4096 allocations of its streams or 1,048,576 of others, is no longer served.
 *
 * Private pools: each arena of another pool goes to the first private pool, a graph's or the program's, whose first
 * request on a stream is the arena's first entry, and which has no arena of another of the plan's pools. The pool takes
 * one segment of the arena's size from its own source and places its blocks there. It keeps the arena, with its
 * addresses, whatever plan is served afterwards; when the pool is gone, the arena is free for the next one. Not served
 * are pools with `alignment` above 512, `no_split`, `deterministic` or exportable memory, arenas of several streams,
 * and a pool that cannot get the segment. Since 0.1.
 * @param device ordinal, or WEIR_DEVICE_CURRENT.
 * @return WEIR_ERR_NOT_SUPPORTED where the default pool is not made of chunks (another policy than weir, no virtual
 *         memory, max_split_size or gc_threshold set, `debug` with both poison and streams), and for an arena of pool 0
 *         that has several streams (`weir plan --streams-apart` makes none); WEIR_ERR_INVALID_ARGUMENT for a plan that
 *         has nothing for the device, or whose parts are out of range.
 */
WEIR_API weir_status weir_plan_serve(int device, const weir_plan *plan);

/**
 * Makes a plan of what the program repeats in the default pool, and serves it from now on. Call it between rounds:
 * iterations of training, requests to a server. For each stream, a round is the sequence of requests that it made twice
 * in a row at the end of the device's history. So the option `history` must keep at least two rounds, with three events
 * for each allocation. While a plan is served and the program keeps to it, this does nothing, except that the first
 * time it gives back cached memory that the plan does not need, as far as work on it is over within a second. Once the
 * program departs from it, the next equal rounds are planned, at least two: as many as make up a quarter of what is
 * recorded of the stream, since less repeats by chance. weir_history_clear() at a change of phase makes two enough.
 *
 * Planning takes the calling thread's time and no lock: 1 s for 70,000 allocations, and more if many thousand blocks
 * live at once. A stream for which it would take some ten seconds is left out. Afterwards cached memory is given back.
 * The streams that used what is given back are waited for.
 *
 * With the option `plan_share` the stream that holds most lends blocks to other streams, if all streams together repeat
 * in one order and that saves more than 1 % of the memory. weir_pointer_info.stream of such a block is the lender. When
 * the borrower gets the block it waits, on the device, for what the lender has queued; when the block is freed the
 * lender waits for what the borrower has queued. So work of the two overlaps less, and streams whose kernels wait for
 * one another (communicators) must not share: they could wait for ever. Since 0.1.
 * @param device ordinal, or WEIR_DEVICE_CURRENT.
 * @return WEIR_ERR_NOT_READY when nothing repeats, or fixed places would not pay: the log says which, with the option
 *         `log` at "info"; WEIR_ERR_NOT_SUPPORTED when recording is off, and as weir_plan_serve().
 */
WEIR_API weir_status weir_plan_learn(int device);

/** The index in the arena of the entry that is the arena's n-th allocation (from 0), if the loop never ends: after the
 *  entries before the loop, the loop's entries follow again and again. The entries behind the loop are reached only by
 *  a reader that knows that the loop is over. Since 0.1. */
static inline uint64_t weir_plan_entry_of(const weir_plan_arena *a, uint64_t n)
{
    if (a->loop_times == 0 || n < a->loop_first + a->loop_entries) return n;
    return a->loop_first + (n - a->loop_first) % a->loop_entries;
}

#ifdef __cplusplus
}
#endif
#endif
