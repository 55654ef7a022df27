/*
 * decode: from an order to a placement. A block goes either on top of all placed blocks that it overlaps in time
 * (skyline), or into a gap between them (fill). Every best placement is the skyline of some order, so a search over
 * orders can find it. Filling gaps makes good placements of simple orders.
 * Owner: a decoder belongs to one thread, from decoder_init to decoder_release.
 */
#ifndef WEIR_TOOLS_PLAN_DECODE_H
#define WEIR_TOOLS_PLAN_DECODE_H

#include "plan/occupancy.h"

typedef enum decode_way {
    DECODE_FIRST, /* the lowest gap that is large enough */
    DECODE_BEST,  /* the tightest */
    DECODE_TOP    /* no gap: skyline */
} decode_way;

typedef struct decoder {
    const layout *l;
    const uint64_t *floor;                           /* by section: everything below is taken */
    uint64_t *skyline;                               /* by section */
    uint64_t deadline_ns;                            /* decoding stops there; 0: never */
    void (*watch)(const void *watcher, size_t done); /* told now and then how many blocks are placed; may be NULL */
    const void *watcher;
    span window; /* the sections that the blocks to decode live in; all unless the caller narrows it */
    occupancy placed;
} decoder;

void decoder_init(decoder *d, const layout *l, const uint64_t *floor);
void decoder_release(decoder *d);

/* Places the blocks in this order, into offset[] of the layout's blocks, and returns the height that they reach.
 * Returns UINT64_MAX when it exceeds `limit` or the deadline. */
uint64_t decode(decoder *d, const uint32_t *order, size_t count, decode_way way, uint64_t limit, uint64_t *offset);

/* The highest of `heights` where the block lives. */
uint64_t height_over(const uint64_t *heights, const plan_block *b);

/* Puts a block on top of `heights`, and returns its offset. */
uint64_t put_on_top(uint64_t *heights, const plan_block *b);

#endif
