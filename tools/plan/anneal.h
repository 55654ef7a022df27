/*
 * anneal: simulated annealing over orders, each of which stands for its skyline placement (Imanishi and Xu, ISMM 2024).
 * The height of that is the height of the heaviest pile, so two sweeps give the exact cost of moving one block to every
 * place of the order.
 * Owner: one thread, from anneal_init to anneal_release.
 */
#ifndef WEIR_TOOLS_PLAN_ANNEAL_H
#define WEIR_TOOLS_PLAN_ANNEAL_H

#include "plan/crew.h"

typedef struct anneal {
    const goal *goal;
    uint32_t *order;
    uint64_t *offset; /* of the layout's blocks, by the present order */
    uint64_t height;
    uint64_t *up, *down;     /* skylines, by section */
    uint64_t *below, *above; /* what the moved block would have below and above it, by place */
    uint64_t random;
} anneal;

/* `order` is copied. */
void anneal_init(anneal *a, const goal *g, const uint32_t *order, uint64_t random);
void anneal_release(anneal *a);

/* Tries to move one block. A move that raises the height is accepted with a probability that grows with the
 * temperature, in bytes. */
void anneal_step(anneal *a, double temperature);

/* The cost of a step, in sections looked at; for choosing the number of steps. */
uint64_t anneal_cost(const goal *g);

#endif
