/*
 * stats_text: rows of statistics as JSON and as OpenMetrics text. metrics.def alone decides what is written.
 */
#ifndef WR_OBSERVE_STATS_TEXT_H
#define WR_OBSERVE_STATS_TEXT_H

#include "observe/emit.h"
#include "observe/metrics.h"

/* Facts of the library, besides the rows. */
typedef struct wr_stats_head {
    const char *backend;
    uint64_t driver_calls;
} wr_stats_head;

/* The rows must be ordered: those of the first device, by scope, then those of the next device; last the pinned one. */
void wr_stats_json(wr_emit *e, const wr_stats_head *head, const wr_rows *rows);
void wr_stats_openmetrics(wr_emit *e, const wr_stats_head *head, const wr_rows *rows);

/* Writes the members "pools", "streams" and "handles" from the rows at *at, and moves *at past them. */
void wr_stats_json_parts(wr_emit *e, const wr_rows *rows, size_t *at);

#endif
