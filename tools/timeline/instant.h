/*
 * instant: how the memory stood at a moment of a timeline.
 */
#ifndef WEIR_TOOLS_TIMELINE_INSTANT_H
#define WEIR_TOOLS_TIMELINE_INSTANT_H

#include "timeline/timeline.h"

#define INSTANT_HOLE 512 /* fewer free bytes behind a block are its rounding, not a hole */

typedef struct instant {
    uint32_t moment;
    uint64_t requested, active, reserved;
    uint64_t segments, holes, in_holes, largest_hole; /* free between the blocks of a segment */
} instant;

/* On all devices. */
instant instant_at(const timeline *l, uint32_t moment);

#endif
