/*
 * place: finds low places for blocks whose lives are known. Greedy, for a program that is running: in some order, such
 * as large ones first, each goes into the lowest or the tightest gap between those that live when it does. `weir plan`
 * has better methods, which take seconds.
 * Owner: the items are the caller's. No lock; any thread.
 */
#ifndef WR_POOL_PLAN_PLACE_H
#define WR_POOL_PLAN_PLACE_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Lives in steps [start, end) of a round. If end <= start, it lives from start to the round's end and in the next round
 * up to end: all the time when they are equal. */
typedef struct wr_item {
    uint64_t bytes, offset; /* offset: set by wr_place */
    uint32_t start, end;
} wr_item;

static inline uint32_t wr_item_life(const wr_item *item, uint32_t steps)
{
    return item->end > item->start ? item->end - item->start : steps - item->start + item->end;
}

/* When to give up. The time grows with the square of what lives at once. */
typedef struct wr_place_limit {
    uint64_t work;           /* about how many times an item may be looked at for another one */
    const atomic_bool *stop; /* set by any thread; NULL: never */
} wr_place_limit;

static inline bool wr_place_stopped(const atomic_bool *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

/* Some ten seconds. */
#define WR_PLACE_WORK (UINT64_C(1) << 32)

/* Places items so that no two that live at the same time overlap. *bytes is what they reach to, *live the most that
 * lives at once. `steps` is the length of a round, above all starts and no less than any end. *bytes is UINT64_MAX if
 * the limit was reached first. */
WR_CHECKED weir_status wr_place(wr_item *items, size_t count, uint32_t steps, wr_place_limit limit, uint64_t *bytes,
                                uint64_t *live);

#endif
