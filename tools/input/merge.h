/*
 * merge: recordings of several devices become one, by time. Within a device the recorded order stands, even where its
 * clock went backwards; at equal times the lower device comes first.
 */
#ifndef WEIR_TOOLS_INPUT_MERGE_H
#define WEIR_TOOLS_INPUT_MERGE_H

#include "weir/trace.h"

#include <stdbool.h>
#include <stddef.h>

/* *events holds `runs` recordings one after the other; bounds[i] is where the i-th starts, bounds[runs] the count.
 * *events may be replaced (malloc), bounds is used up. False: no memory, the events stand as they were. */
bool merge_by_time(weir_event **events, size_t *bounds, size_t runs);

#endif
