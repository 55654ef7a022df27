/*
 * core: the blocks that live where it is fullest, as a layout of their own. The others find room beside them nearly
 * always, so searching is for these; and as they are some of all, what is proven of them is proven of all.
 * Owner: the caller of core_init, until core_release. Immutable in between.
 */
#ifndef WEIR_TOOLS_PLAN_CORE_H
#define WEIR_TOOLS_PLAN_CORE_H

#include "plan/layout.h"

typedef struct core {
    layout l;
    uint32_t *of; /* of each of its blocks, the whole layout's */
} core;

/* The blocks that live in a section with more than `full` bytes. */
void core_init(core *c, const layout *whole, const uint64_t *load, uint64_t full);
void core_release(core *c);

#endif
