/*
 * record: what a trace would have been under another policy. The trace is played once with the library's history on.
 * The recorded events become a trace again, with the times, streams, pools and stacks of the original operations. It
 * has the same operations as the original, one by one; an allocation that fails becomes one of 0 bytes.
 */
#ifndef WEIR_TOOLS_REPLAY_RECORD_H
#define WEIR_TOOLS_REPLAY_RECORD_H

#include "script/script.h"

/* On the host back end; device_memory of 0: as the environment says. *out borrows the stacks of `t`, which must outlive
 * it. False: error[] says why, and there is nothing to release. */
bool record(const trace *t, const char *policy, uint64_t device_memory, trace *out, char error[SCRIPT_ERROR]);

void record_release(trace *recorded);

#endif
