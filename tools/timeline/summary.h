/*
 * summary: what `weir stat` says about a timeline.
 * Owner: the caller of summarize, until summary_release; it does not outlive its timeline.
 */
#ifndef WEIR_TOOLS_TIMELINE_SUMMARY_H
#define WEIR_TOOLS_TIMELINE_SUMMARY_H

#include "timeline/instant.h"

#define SUMMARY_KINDS (WEIR_EVENT_LAST + 1)
#define SUMMARY_SIZES 64     /* class i: from 2^i to below 2^(i+1) bytes; class 0 from 0 */
#define SUMMARY_FAILURES 10  /* only so many of the first ones are examined, and the last */
#define SUMMARY_LIFETIMES 11 /* class i: from 10^i to below 10^(i+1) operations; the last: to the end */

typedef struct summary_count {
    uint64_t count, bytes;
} summary_count;

/* Allocations of one size class, one device or one lane. */
typedef struct summary_group {
    uint64_t count, bytes;
    uint64_t peak_requested, peak_reserved; /* of this group alone */
    uint32_t peak;                          /* the moment of peak_requested */
    uint64_t live, held;                    /* while counting */
} summary_group;

typedef struct summary {
    summary_count kinds[SUMMARY_KINDS];
    summary_count lifetimes[SUMMARY_LIFETIMES];
    summary_group sizes[SUMMARY_SIZES];
    summary_group *devices, *lanes;
    size_t device_count;                 /* highest device + 1 */
    instant requested, active, reserved; /* at the peak of each */
    uint32_t *largest;                   /* blocks live at the peak of their device, by device, largest first */
    size_t largest_count;
    instant failures[SUMMARY_FAILURES + 1];
} summary;

/* `largest`: how many of the largest blocks to list for each device. */
void summarize(const timeline *l, size_t largest, summary *out);
void summary_release(summary *s);

/* The state at the failure of that number; NULL: it was not examined. */
const instant *summary_failure(const timeline *l, const summary *s, size_t failure);

#endif
