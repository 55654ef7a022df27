/*
 * instant: the state of memory at a moment of a timeline, or when an allocation failed, which may be between two
 * moments.
 */
#ifndef WEIR_TOOLS_TIMELINE_INSTANT_H
#define WEIR_TOOLS_TIMELINE_INSTANT_H

#include "timeline/timeline.h"

#define INSTANT_HOLE 512 /* fewer free bytes behind a block count as rounding, not as a hole */

/* A hole is free memory between the blocks of a segment. For the largest one: its address, the lane of its segment, and
 * the blocks beside it, TIMELINE_NEVER where the segment ends or there is no hole. */
typedef struct instant {
    uint32_t moment;
    uint64_t requested, active, reserved;
    uint64_t segments, holes, in_holes, largest_hole;
    uint64_t largest_at;
    uint32_t largest_lane, below, above;
} instant;

/* For all devices. */
instant instant_at(const timeline *l, uint32_t moment);

/* For the device of the failure: after memory was given back for its sake, and before anything later. */
instant instant_of_failure(const timeline *l, const timeline_oom *o);

/* Whether the block is one of those that make up `active` there. */
bool instant_holds_at_failure(const timeline *l, const timeline_oom *o, const timeline_block *b);

#endif
