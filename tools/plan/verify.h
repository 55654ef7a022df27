/*
 * verify: is a placement right? It shares nothing with the planners but the arena: lives as recorded, every iteration.
 */
#ifndef WEIR_TOOLS_PLAN_VERIFY_H
#define WEIR_TOOLS_PLAN_VERIFY_H

#include "plan/problem.h"

/* True when blocks that live at the same time do not overlap, offsets are aligned and the highest end is `peak`. Else
 * error[] says what is wrong. `offset` is by the arena's blocks. */
bool verify(const arena *a, const uint64_t *offset, uint64_t peak, char *error, size_t error_size);

/* How often a block takes over an address that was last used on another stream: for each block and each such stream
 * one wait for an event. */
uint64_t count_waits(const arena *a, const uint64_t *offset);

#endif
