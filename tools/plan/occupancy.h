/*
 * occupancy: which placed blocks overlap a given one in time, and where they are. An interval tree over groups of the
 * blocks' lives, ordered by start; each node holds the latest end below it.
 * Owner: the caller of occupancy_init, until occupancy_release. One thread uses it.
 */
#ifndef WEIR_TOOLS_PLAN_OCCUPANCY_H
#define WEIR_TOOLS_PLAN_OCCUPANCY_H

#include "plan/layout.h"

/* Extents are distributed to so many places at most before they are sorted. */
#define OCCUPANCY_BITS 11
#define OCCUPANCY_PLACES (1 << OCCUPANCY_BITS)

typedef struct extent {
    uint64_t low, high; /* addresses [low, high) */
} extent;

typedef struct occupancy {
    const layout *l;
    uint32_t *start;   /* of each life, by rank */
    uint32_t *rank[2]; /* of each block's two lives; UINT32_MAX: empty */
    uint32_t *latest;  /* the tree: latest[1] is the root; 0 where nothing is placed */
    uint32_t *end;     /* by rank; 0 where nothing is placed */
    extent *taken;     /* by rank: where the owner was placed, so that a walk reads memory in sequence */
    size_t lives, leaves;
    extent *found, *spare;      /* what occupancy_meet found, and room to sort it */
    size_t found_count, sorted; /* the first `sorted` are in order, */
    size_t place;               /* and so are the places before this one */
    uint32_t first[OCCUPANCY_PLACES + 1];
} occupancy;

void occupancy_init(occupancy *t, const layout *l);
void occupancy_release(occupancy *t);

void occupancy_add(occupancy *t, size_t block, uint64_t offset);
void occupancy_remove(occupancy *t, size_t block);

/* Finds the addresses of the added blocks that overlap `block` in time. A block that overlaps it twice is listed twice.
 * The result is in found[0 .. found_count) until the next call. The first `sorted` of it are in order, lowest first,
 * and nothing behind them is lower. */
void occupancy_meet(occupancy *t, size_t block);

/* Puts more of the result in order: who looks for the lowest gap seldom needs all. False when all of it is. */
bool occupancy_more(occupancy *t);

#endif
