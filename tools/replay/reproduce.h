/*
 * reproduce: checks that the library's policy torch behaves as PyTorch. Replays a trace and compares, one by one and in
 * order on each device, the segments that the recorded allocator and the library took and gave back: kind, size,
 * stream.
 */
#ifndef WEIR_TOOLS_REPLAY_REPRODUCE_H
#define WEIR_TOOLS_REPLAY_REPRODUCE_H

#include "script/script.h"

#include <stdio.h>

typedef struct reproduction {
    size_t recorded;   /* segment events in the trace */
    size_t reproduced; /* of these, how many are equal up to the first divergence on each device */
    bool same;         /* all are, and the library made no more */
} reproduction;

/* On devices of `device_memory` bytes; 0: as the environment says. Describes divergences on `out`, which may be NULL.
 * False: error[] says why there is nothing to compare or why the replay failed. */
bool reproduce(const trace *t, const script *sc, uint64_t device_memory, FILE *out, reproduction *result,
               char error[SCRIPT_ERROR]);

#endif
