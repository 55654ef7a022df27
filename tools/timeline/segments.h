/*
 * segments: follows, event by event, the memory that a trace took from the driver, and finds events that make no sense.
 * Memory from before the first event is known from frees later on, and from the segments that the file lists at the
 * end.
 * Owner: the caller of segments_init, until segments_release.
 */
#ifndef WEIR_TOOLS_TIMELINE_SEGMENTS_H
#define WEIR_TOOLS_TIMELINE_SEGMENTS_H

#include "input/input.h"
#include "ranges.h"

/* Gives a number to a range of memory, from the segment listed at the end or the event that gave it back. */
typedef uint32_t (*segments_number)(void *user, int16_t device, uint64_t stream, const uint64_t pool[2], bool mapped);

/* The ranges held at the beginning, found by walking backwards from the listed segments. `number` may be NULL. Release
 * with ranges_release. */
ranges segments_first(const trace *t, segments_number number, void *user);

typedef struct segments {
    ranges held;
    ranges gone;                    /* given back and not taken since */
    bool lists_all;                 /* false: there may be memory from before the first event that nothing names */
    bool late;                      /* memory was held before the first event */
    bool recorded[INT16_MAX + 1];   /* by device: its segments were recorded */
    bool told[WEIR_EVENT_LAST + 1]; /* by kind: the trace has such events */
} segments;

typedef enum segments_verdict {
    SEGMENTS_FINE,
    SEGMENTS_OVERLAP,     /* taken while at least a part of it was held already */
    SEGMENTS_SECOND_FREE, /* given back while no part of it was held */
    SEGMENTS_OUTSIDE,     /* a block was handed out that lies not wholly in held memory */
    SEGMENTS_LEFT_OUT     /* one of those three, in a trace without any event of the kind that would explain it */
} segments_verdict;

void segments_init(segments *s, const trace *t);
void segments_release(segments *s);

/* The kind of segment event that was left out, if an event of this kind shows that one was. */
uint16_t segments_lacks(const segments *s, uint16_t kind);

/* Takes the next event, of any kind, into account. */
segments_verdict segments_follow(segments *s, const weir_event *e);

#endif
