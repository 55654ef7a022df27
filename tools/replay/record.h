/*
 * record: what a trace would have been under another policy. It is played once with the library's history on; the
 * events become a trace again, with the times, streams, pools and stacks of the operations that they come from.
 * Its operations are those of the original, one by one: an allocation that failed is one of 0 bytes.
 */
#ifndef WEIR_TOOLS_REPLAY_RECORD_H
#define WEIR_TOOLS_REPLAY_RECORD_H

#include "input/input.h"

/* On host memory; device_memory of 0: as much as the environment says. *out borrows the stacks of `t`, which must
 * outlive it. False: error[] says why, and there is nothing to release. */
bool record(const trace *t, const char *policy, uint64_t device_memory, trace *out, char error[1200]);

void record_release(trace *recorded);

#endif
