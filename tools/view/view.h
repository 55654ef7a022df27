/*
 * view: draws timelines, as a page to explore or as one picture. Text from traces is untrusted and is escaped on
 * output.
 */
#ifndef WEIR_TOOLS_VIEW_H
#define WEIR_TOOLS_VIEW_H

#include "timeline/timeline.h"

#include <stdio.h>

/* One row of the picture. */
typedef struct view_track {
    const char *name;  /* of the trace, whose tracks have this one pointer */
    const char *title; /* with the policy that it was replayed under, if there are several */
    const timeline *line;
} view_track;

/* Write errors are left in the stream's error flag. */
void view_html(FILE *to, const view_track *tracks, size_t count);
void view_svg(FILE *to, const view_track *tracks, size_t count);

/* `text` with & < > and " as entities. */
void view_escape(FILE *to, const char *text);

/* The title of the picture: the names of the traces. */
void view_title(FILE *to, const view_track *tracks, size_t count);

#endif
