/*
 * greedy: the best of a fixed list of orders and decoders, tried by all threads until one reaches the bound.
 */
#ifndef WEIR_TOOLS_PLAN_GREEDY_H
#define WEIR_TOOLS_PLAN_GREEDY_H

#include "plan/crew.h"

/* Returns the height, with the offsets of the part's blocks in offset[]. The same for any number of threads, unless the
 * deadline ends the search. UINT64_MAX: it ended the first attempt, which cannot happen to an unanswered goal. */
uint64_t greedy(crew *c, const goal *g, uint64_t *offset, const char **how);

#endif
