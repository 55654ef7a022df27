/*
 * run: what weir stat has found out of one trace, and how it is told: as text (text.c) and as JSON (json.c).
 * Owner: the command, of all.
 */
#ifndef WEIR_TOOLS_STAT_RUN_H
#define WEIR_TOOLS_STAT_RUN_H

#include "timeline/summary.h"

#include <jansson.h>

typedef struct stat_run {
    const char *name;
    const trace *t;
    timeline l;
    summary s;
    uint8_t *ranks; /* of frames, by caller.h */
} stat_run;

/* By the kind of events; NULL: no kind has that number. */
extern const char *const stat_kinds[SUMMARY_KINDS];

/* Since the first event. */
double stat_seconds(const stat_run *r, uint32_t moment);

/* NAN: one of both is nothing, or not known. */
double stat_ratio(uint64_t reserved, uint64_t requested);

void stat_print(const stat_run *r);
json_t *stat_json(const stat_run *r);

#endif
