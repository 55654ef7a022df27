/*
 * merge: merges the recordings of several devices by time. Within a device the recorded order is kept, even where its
 * clock went backwards. At equal times the lower device comes first.
 */
#ifndef WEIR_TOOLS_INPUT_MERGE_H
#define WEIR_TOOLS_INPUT_MERGE_H

#include "weir/trace.h"

#include <stdbool.h>
#include <stddef.h>

/* *events holds `runs` recordings one after the other; bounds[i] is where the i-th starts, bounds[runs] the count.
 * *events may be replaced (malloc), the contents of bounds are lost. False: no memory, and the events are unchanged. */
bool merge_by_time(weir_event **events, size_t *bounds, size_t runs);

#endif
