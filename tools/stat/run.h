/*
 * run: what weir stat found in one trace, and its output as text (text.c) and as JSON (json.c).
 * Owner: the command.
 */
#ifndef WEIR_TOOLS_STAT_RUN_H
#define WEIR_TOOLS_STAT_RUN_H

#include "stat/holders.h"
#include "timeline/summary.h"

#include <jansson.h>

typedef struct stat_run {
    const char *name;
    const trace *t;
    timeline l;
    summary s;
    uint8_t *ranks;     /* of frames; see caller.h */
    holders *at_peaks;  /* of each device, when most of its bytes were requested */
    holders at_failure; /* the last one */
    size_t shown;       /* of each list of holders, at most */
} stat_run;

/* Once the timeline and its summary are there, and before they go. */
void stat_find_holders(stat_run *r, size_t shown);
void stat_release_holders(stat_run *r);

/* Names of the kinds of events; NULL: no kind has that number. */
extern const char *const stat_kinds[SUMMARY_KINDS];

/* Seconds since the first event. */
double stat_seconds(const stat_run *r, uint32_t moment);

/* NAN when either is 0 or not known. */
double stat_ratio(uint64_t reserved, uint64_t requested);

void stat_print(const stat_run *r);
json_t *stat_json(const stat_run *r);

#endif
