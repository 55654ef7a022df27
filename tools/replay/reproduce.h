/*
 * reproduce: is the library's policy torch PyTorch's? Replays a trace and compares the segments that the recorded
 * allocator took and gave back with those of the library, one by one: kind, size, stream, in order on each device.
 */
#ifndef WEIR_TOOLS_REPLAY_REPRODUCE_H
#define WEIR_TOOLS_REPLAY_REPRODUCE_H

#include "script/script.h"

#include <stdio.h>

typedef struct reproduction {
    size_t recorded;   /* segment events in the trace */
    size_t reproduced; /* of these, equal up to the first divergence of each device */
    bool same;         /* all of them, and the library made no more */
} reproduction;

/* On devices of so many bytes; 0: as the environment says. Divergences are described on `out`, which may be NULL. False: error[] says why there is nothing to compare or why the
 * replay failed. */
bool reproduce(const trace *t, const script *sc, uint64_t device_memory, FILE *out, reproduction *result,
               char error[1200]);

#endif
