/*
 * exact: the lowest placement of a small part, by branch and bound over canonical placements (after MiniMalloc, ASPLOS
 * 2023): blocks are placed in the order of their offsets, each as low as those before it allow.
 */
#ifndef WEIR_TOOLS_PLAN_EXACT_H
#define WEIR_TOOLS_PLAN_EXACT_H

#include "plan/crew.h"

/* Larger parts, in blocks, are not worth trying. */
#define EXACT_MOST 200

/* Lowers the placement in offset[], of height `height`, towards the goal's bound, and returns the new height. *proven:
 * no placement of the part on its floor is lower. The limit of work is the same on every machine. */
uint64_t exact(const goal *g, uint64_t height, uint64_t *offset, uint64_t *proven, const char **how);

#endif
