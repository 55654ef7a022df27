/*
 * metrics: the table of all numbers (metrics.def), and rows of them: what is counted where, at one instant.
 * Owner: the table is constant; rows belong to whoever collects them. No lock.
 */
#ifndef WR_OBSERVE_METRICS_H
#define WR_OBSERVE_METRICS_H

#include "base/status.h"
#include "weir/observe.h"

typedef enum wr_metric_type { WR_METRIC_STAT, WR_METRIC_COUNTER, WR_METRIC_GAUGE } wr_metric_type;

/* One number, or, for a STAT, an array of weir_stat. */
typedef struct wr_metric {
    const char *member; /* of the struct: "allocated_bytes" */
    const char *unit;   /* "bytes" or "" */
    const char *help;
    wr_metric_type type;
    size_t offset;
} wr_metric;

/* What a row counts, in the order of the texts. */
typedef enum wr_scope {
    WR_SCOPE_DEVICE,  /* weir_device_memory */
    WR_SCOPE_MEMORY,  /* weir_memory_stats, of the device's allocator */
    WR_SCOPE_POOL,    /* the same, of one pool */
    WR_SCOPE_STREAM,  /* weir_stream_stats */
    WR_SCOPE_HANDLES, /* weir_handle_stats, of one kind */
    WR_SCOPE_PINNED,  /* weir_memory_stats, of pinned host memory */
    WR_SCOPES
} wr_scope;

/* The metrics of a scope's struct. */
typedef struct wr_metrics {
    const wr_metric *metric;
    size_t count;
} wr_metrics;

wr_metrics wr_metrics_of(wr_scope scope);

typedef struct wr_row {
    wr_scope scope;
    int32_t device;
    char name[64]; /* "NVIDIA H200", "{0, 3}", "0x7f12", "cusparse" */
    char tag[24];  /* of a pool; empty: none */
    bool silent;   /* of a device whose driver does not say its numbers: only what it says instead is known */
    union {
        weir_device_memory device;
        weir_memory_stats memory;
        weir_stream_stats stream;
        weir_handle_stats handles;
        char refusal[512]; /* silent */
    } of;
} wr_row;

typedef struct wr_rows {
    wr_row *row;
    uint32_t count, capacity;
} wr_rows;

/* A new last row, zeroed except for scope and device. Valid until the next one is added. */
WR_CHECKED weir_status wr_rows_add(wr_rows *rows, wr_scope scope, int32_t device, wr_row **out);
void wr_rows_release(wr_rows *rows);

void wr_stat_reset(weir_stat *stat, bool peaks, bool totals);

/* Resets a scope's struct. Peaks: those of STATs become current values; totals: those of STATs, and COUNTERs, become
 * zero. */
void wr_metrics_reset(wr_scope scope, void *stats, bool peaks, bool totals);

#endif
