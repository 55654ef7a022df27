/*
 * improve: lowers a part that greedy left above the bound. Each thread first repeats gap filling, with the blocks that
 * stick out moved forward in the order, and then anneals.
 */
#ifndef WEIR_TOOLS_PLAN_IMPROVE_H
#define WEIR_TOOLS_PLAN_IMPROVE_H

#include "plan/crew.h"

/* Lowers `height`, the one of offset[], and returns what it became. The same for the same seed and number of threads,
 * unless the deadline ends it. */
uint64_t improve(crew *c, const goal *g, uint64_t height, uint64_t *offset, const char **how);

#endif
