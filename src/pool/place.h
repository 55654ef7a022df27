/*
 * place: blocks whose lives are known, placed low. One greedy pass in two ways, for a program that is running: large blocks
 * first, each into the lowest or the tightest gap between those that live when it does. `weir plan` has better ones, which
 * take seconds.
 * Owner: the items are the caller's. No lock; any thread.
 */
#ifndef WR_POOL_PLACE_H
#define WR_POOL_PLACE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Lives in steps [start, end) of a round, or, where end <= start, from start to the round's end and in the next one up to end:
 * all of it when they are equal. */
typedef struct wr_item {
    uint64_t bytes, offset; /* offset: set by wr_place */
    uint32_t start, end;
} wr_item;

/* How many steps it lives. */
static inline uint32_t wr_item_life(const wr_item *item, uint32_t steps)
{
    return item->end > item->start ? item->end - item->start : steps - item->start + item->end;
}

/* No two items that live at one time overlap; *bytes is what they reach to, *live the most that lives at once. `steps` is the length of
 * a round, above all starts and no lower than any end. */
WR_CHECKED weir_status wr_place(wr_item *items, size_t count, uint32_t steps, uint64_t *bytes, uint64_t *live);

#endif
