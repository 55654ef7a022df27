/*
 * layout: an arena as the planners see it. A repeated stretch appears once, and time is counted in sections. A section
 * is the state of the arena just before a free; only such states can be the fullest. Two blocks overlap in time exactly
 * when they share a section.
 * Owner: the caller of layout_init, until layout_release. Immutable in between.
 */
#ifndef WEIR_TOOLS_PLAN_LAYOUT_H
#define WEIR_TOOLS_PLAN_LAYOUT_H

#include "plan/loop.h"

typedef struct span {
    uint32_t start, end; /* sections [start, end); empty when equal */
} span;

typedef struct block {
    uint64_t bytes;
    span life[2]; /* the second is for blocks that cross from one iteration into the next, else empty */
} plan_block;

typedef struct layout {
    plan_block *blocks;
    size_t count;
    uint32_t sections;
    loop loop;
    size_t entries;     /* allocations with all iterations folded into the first */
    uint32_t *block_of; /* by entry; a block that crosses into the loop and its counterpart inside are one */
} layout;

void layout_init(layout *l, const arena *a);

/* The layout's block for allocation `i` of the arena. */
size_t layout_block(const layout *l, size_t i);

void layout_release(layout *l);

/* Live bytes by section; the caller frees the array. The largest value is a bound: no placement is lower. */
uint64_t *layout_load(const layout *l);

/* How many sections the block lives in. */
static inline uint32_t block_sections(const plan_block *b)
{
    return b->life[0].end - b->life[0].start + b->life[1].end - b->life[1].start;
}

/* True when both live in some section. */
bool blocks_meet(const plan_block *a, const plan_block *b);

#endif
