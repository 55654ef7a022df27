/*
 * layout: an arena as the planners see it. What repeats is there once, and time is counted in sections: the states of
 * the arena just before something is freed, which are the only ones that can be fullest. Two blocks overlap in time
 * exactly when they share a section.
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
    span life[2]; /* the second is of blocks that cross from one iteration into the next, and empty for others */
} plan_block;

typedef struct layout {
    plan_block *blocks;
    size_t count;
    uint32_t sections;
    loop loop;
    size_t entries;     /* allocations when each iteration's is the first one's */
    uint32_t *block_of; /* of each entry; what crosses into the loop is one block with what crosses inside it */
} layout;

void layout_init(layout *l, const arena *a);

/* The block of the arena's allocation `i`. */
size_t layout_block(const layout *l, size_t i);

void layout_release(layout *l);

/* Bytes that live in each section; the caller frees them. Their largest is the bound: no placement is lower. */
uint64_t *layout_load(const layout *l);

/* How many sections it lives in. */
static inline uint32_t block_sections(const plan_block *b)
{
    return b->life[0].end - b->life[0].start + b->life[1].end - b->life[1].start;
}

/* True when both live in some section. */
bool blocks_meet(const plan_block *a, const plan_block *b);

#endif
