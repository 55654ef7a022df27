/*
 * verify: checks a placement. It shares only the arena with the planners, and goes by the recorded lives of every
 * iteration.
 */
#ifndef WEIR_TOOLS_PLAN_VERIFY_H
#define WEIR_TOOLS_PLAN_VERIFY_H

#include "plan/problem.h"

/* True when blocks that live at the same time do not overlap, offsets are aligned and the highest end is `peak`. Else
 * error[] says what is wrong. `offset` is by the arena's blocks. */
bool verify(const arena *a, const uint64_t *offset, uint64_t peak, char *error, size_t error_size);

/* How many event waits the placement needs: one for each block and other stream that last used some of its
 * addresses. */
uint64_t count_waits(const arena *a, const uint64_t *offset);

#endif
