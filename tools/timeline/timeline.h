/*
 * timeline: a trace as blocks and segments that live from one moment to another, to be counted or drawn.
 *
 * Time is counted in operations: requests to allocate or free. Moment 0 is before the first of them, moment k after the
 * k-th, and the last one after everything. Whatever happens between two operations (a segment is taken, a pending free
 * completes) counts from the later one on. So runs of one program under different policies share their moments.
 *
 * Owner: the caller of timeline_build, until timeline_release; it does not outlive its trace. Immutable in between.
 */
#ifndef WEIR_TOOLS_TIMELINE_H
#define WEIR_TOOLS_TIMELINE_H

#include "input/input.h"

#define TIMELINE_NEVER UINT32_MAX

/* A stream of a pool of a device. */
typedef struct timeline_lane {
    uint64_t stream, pool[2];
    int16_t device;
} timeline_lane;

/* Lives from `from`, is freed at `freed`, and holds its memory until `until`, which is later if another stream still
 * used it. `freed` and `until` may be TIMELINE_NEVER. */
typedef struct timeline_block {
    uint64_t address, bytes; /* as requested */
    uint64_t held;           /* what it takes of its segment, where the trace lists it; else as requested */
    uint32_t from, freed, until;
    uint32_t gone; /* the event that ended it, or TIMELINE_NEVER; orders it with failures at the same moment */
    uint32_t lane, stack, thread;
} timeline_block;

/* A segment, or a range mapped into one that grows. When a part is unmapped, each remainder is a new one. */
typedef struct timeline_segment {
    uint64_t address, bytes;
    uint32_t from, until, lane;
    uint32_t made, gone; /* the events, likewise; `made` is also 0 for those from before the first event */
    bool mapped;         /* it is one piece with adjacent mapped ranges */
} timeline_segment;

typedef struct timeline_oom {
    uint64_t bytes, device_free; /* device_free: 0 when not known */
    uint64_t time;               /* nanoseconds since the first event */
    uint32_t moment, lane, stack, event;
} timeline_oom;

typedef struct timeline {
    const trace *trace;
    timeline_block *blocks; /* by `from` */
    size_t block_count;
    uint32_t *by_freed; /* blocks that are freed, in that order */
    size_t freed_count;
    timeline_segment *segments; /* by `from` */
    size_t segment_count;
    timeline_lane *lanes;
    size_t lane_count;
    timeline_oom *ooms;
    size_t oom_count;
    uint32_t moments;
    uint64_t *times;   /* nanoseconds since the first event, by moment; never decreasing */
    size_t malformed;  /* events that make no sense where they stand */
    size_t residents;  /* blocks from before the first event */
    bool has_segments; /* the trace knows of any segments */
} timeline;

void timeline_build(const trace *t, timeline *out);
void timeline_release(timeline *l);

/* Bytes at each moment; free() them. */
typedef struct timeline_series {
    uint64_t *requested; /* handed out and not freed */
    uint64_t *active;    /* also those freed while another stream still used them */
    uint64_t *reserved;  /* in segments */
} timeline_series;

/* Of all devices together. */
void timeline_sum(const timeline *l, timeline_series *out);
void timeline_series_release(timeline_series *s);

/* The first moment of the largest value. */
uint32_t timeline_peak(const timeline *l, const uint64_t *values);

/* The first and the last moment are not operations. */
static inline uint32_t timeline_operations(const timeline *l)
{
    return l->moments - 2;
}

static inline bool timeline_lives(const timeline_block *b, uint32_t moment)
{
    return b->from <= moment && moment < b->freed;
}

#endif
