/*
 * anneal: search over orders, each the placement that the skyline makes of it (Imanishi and Xu, ISMM 2024). Because its
 * height is that of the heaviest pile, two sweeps tell exactly what taking one block out and putting it back costs at
 * every place of the order.
 * Owner: one thread, from anneal_init to anneal_release.
 */
#ifndef WEIR_TOOLS_PLAN_ANNEAL_H
#define WEIR_TOOLS_PLAN_ANNEAL_H

#include "plan/crew.h"

typedef struct anneal {
    const goal *goal;
    uint32_t *order;
    uint64_t *offset; /* of the layout's blocks, as the order gives them */
    uint64_t height;
    uint64_t *up, *down;     /* skylines, by section */
    uint64_t *below, *above; /* what a block would have below and above it, by place */
    uint64_t random;
} anneal;

/* `order` is copied. */
void anneal_init(anneal *a, const goal *g, const uint32_t *order, uint64_t random);
void anneal_release(anneal *a);

/* Moves one block, or leaves it when that is worse and, at this temperature (bytes), not to be had. */
void anneal_step(anneal *a, double temperature);

/* What a step costs, in sections looked at; for choosing how many. */
uint64_t anneal_cost(const goal *g);

#endif
