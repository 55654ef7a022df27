/*
 * core: the blocks that live in the fullest sections, as a layout of their own. The other blocks nearly always find
 * room beside them, so only these need searching. As they are a subset, a bound proven for them holds for all.
 * Owner: the caller of core_init, until core_release. Immutable in between.
 */
#ifndef WEIR_TOOLS_PLAN_CORE_H
#define WEIR_TOOLS_PLAN_CORE_H

#include "plan/layout.h"

typedef struct core {
    layout l;
    uint32_t *of; /* by block of the core: the block of the whole layout */
} core;

/* The blocks that live in a section with more than `full` bytes. */
void core_init(core *c, const layout *whole, const uint64_t *load, uint64_t full);
void core_release(core *c);

#endif
