/*
 * online: a placement as an allocator makes it that knows nothing of the future: in the order of time, each block into
 * the tightest free gap. It takes n log n steps, however many blocks live at once.
 */
#ifndef WEIR_TOOLS_PLAN_ONLINE_H
#define WEIR_TOOLS_PLAN_ONLINE_H

#include "plan/layout.h"

/* Returns the height, with the blocks' offsets in offset[]; UINT64_MAX, with nothing there, if a block lives twice. */
uint64_t online(const layout *l, uint64_t *offset);

#endif
