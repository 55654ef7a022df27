/*
 * loop: the stretch of an arena's life that repeats: iterations with the same allocations and frees in the same order.
 */
#ifndef WEIR_TOOLS_PLAN_LOOP_H
#define WEIR_TOOLS_PLAN_LOOP_H

#include "plan/problem.h"

typedef struct loop {
    uint32_t step, period; /* the first step of the first iteration, an allocation; steps per iteration */
    size_t first, count;   /* the same, counted in allocations */
    size_t times;          /* iterations; 0: nothing repeats */
} loop;

/*
 * The longest repetition that makes up at least half of the arena. No block in it lives longer than an iteration. One
 * more equal iteration comes before it, so that the same blocks cross into the first iteration as into the others.
 * Iterations begin where the fewest bytes cross.
 */
loop loop_find(const arena *a);

/* The index of allocation `i` of the arena with all iterations folded into the first. */
size_t loop_entry(const loop *l, size_t i);

#endif
