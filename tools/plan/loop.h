/*
 * loop: the part of an arena's life that repeats: iterations of equal allocations and frees in equal order.
 */
#ifndef WEIR_TOOLS_PLAN_LOOP_H
#define WEIR_TOOLS_PLAN_LOOP_H

#include "plan/problem.h"

typedef struct loop {
    uint32_t step, period; /* the first iteration's first step, an allocation; steps of an iteration */
    size_t first, count;   /* the same in allocations */
    size_t times;          /* iterations; 0: nothing repeats */
} loop;

/*
 * The longest repetition that makes up at least half of the arena. In it no block lives longer than an iteration, and
 * before it there is one more equal iteration, so that what crosses into the first iteration is what crosses into the
 * others too. The iteration begins where the fewest bytes cross.
 */
loop loop_find(const arena *a);

/* Where allocation `i` of the arena stands when each iteration's is the first one's. */
size_t loop_entry(const loop *l, size_t i);

#endif
