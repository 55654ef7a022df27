/*
 * segments: the memory that a trace says was taken from the driver, followed event by event, and what makes no sense of
 * it. Memory from before the first event is known from what was given back later, and from the segments that the file
 * lists at the end.
 * Owner: the caller of segments_init, until segments_release.
 */
#ifndef WEIR_TOOLS_TIMELINE_SEGMENTS_H
#define WEIR_TOOLS_TIMELINE_SEGMENTS_H

#include "input/input.h"
#include "ranges.h"

/* What a range of memory is to be known by: from the segment at the end, or the event that gave it back. */
typedef uint32_t (*segments_number)(void *user, int16_t device, uint64_t stream, const uint64_t pool[2], bool mapped);

/* Those held at the beginning, as the end and what was given back tell: walked backwards. `number`: NULL for none. To be
 * released with ranges_release. */
ranges segments_first(const trace *t, segments_number number, void *user);

typedef struct segments {
    ranges held;
    ranges gone;                    /* given back, and not taken since */
    bool lists_all;                 /* else there may be memory from before the first event that is never named */
    bool recorded[INT16_MAX + 1];   /* by device: its segments were */
    bool told[WEIR_EVENT_LAST + 1]; /* by kind: there is an event of it */
} segments;

typedef enum segments_verdict {
    SEGMENTS_FINE,
    SEGMENTS_OVERLAP,     /* taken while it, or a part of it, was held already */
    SEGMENTS_SECOND_FREE, /* given back while nothing of it was held */
    SEGMENTS_LEFT_OUT,    /* one of those two, of a trace without any event that undoes one of its kind */
    SEGMENTS_OUTSIDE      /* a block was handed out that is not, or not wholly, in memory that was held */
} segments_verdict;

void segments_init(segments *s, const trace *t);
void segments_release(segments *s);

/* The kind of event that undoes what one of a segment did. */
uint16_t segments_undo(uint16_t kind);

/* Takes the next event, of any kind, into account. */
segments_verdict segments_follow(segments *s, const weir_event *e);

#endif
