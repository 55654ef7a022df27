/*
 * instant: the state of memory at a point of a timeline: after an operation, or when an allocation failed, which may be
 * between two moments.
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

/* After the operation of that moment; or, unless `event` is TIMELINE_NEVER, just before that later event. */
typedef struct instant_point {
    uint32_t moment, event;
    int device; /* -1: all */
} instant_point;

/* On the device of the failure: after memory was given back for its sake, and before anything later. */
instant_point instant_point_of_failure(const timeline *l, const timeline_oom *o);

instant instant_at(const timeline *l, const instant_point *p);

/* Whether the block is one of those that make up `active` there. */
bool instant_holds(const timeline *l, const instant_point *p, const timeline_block *b);

#endif
