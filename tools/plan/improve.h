/*
 * improve: lowers a part that greedy left above the bound. Each thread first repeats gap filling, with the blocks that
 * stick out moved forward in the order, and then anneals.
 */
#ifndef WEIR_TOOLS_PLAN_IMPROVE_H
#define WEIR_TOOLS_PLAN_IMPROVE_H

#include "plan/crew.h"

/* Lowers the placement in offset[], of height `height`, and returns the new height. The same for the same seed and
 * number of threads, unless the deadline ends the search. */
uint64_t improve(crew *c, const goal *g, uint64_t height, uint64_t *offset, const char **how);

#endif
