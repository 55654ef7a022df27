#include "observe/metrics.h"

#include "base/meta.h"

#define METRIC(type_of, member, type, unit, help) { #member, unit, help, WR_METRIC_##type, offsetof(type_of, member) },

static const wr_metric memory[] = {
#define MEMORY(...) METRIC(weir_memory_stats, __VA_ARGS__)
#include "observe/metrics.def"
};

static const wr_metric device[] = {
#define DEVICE(...) METRIC(weir_device_memory, __VA_ARGS__)
#include "observe/metrics.def"
};

static const wr_metric stream[] = {
#define STREAM(...) METRIC(weir_stream_stats, __VA_ARGS__)
#include "observe/metrics.def"
};

static const wr_metric handles[] = {
#define HANDLES(...) METRIC(weir_handle_stats, __VA_ARGS__)
#include "observe/metrics.def"
};

/* A member that the table lacks, or has twice, makes the sizes differ. */
enum {
    BYTES_STAT = sizeof(weir_stat) * WEIR_STAT_KINDS,
    BYTES_COUNTER = sizeof(uint64_t),
    BYTES_GAUGE = BYTES_COUNTER
};

#define MEMORY(member, type, unit, help) +BYTES_##type
_Static_assert(sizeof(size_t)
#include "observe/metrics.def"
                   == sizeof(weir_memory_stats),
               "metrics.def has every number of weir_memory_stats");
#define DEVICE(member, type, unit, help) +BYTES_##type
_Static_assert(sizeof(size_t)
#include "observe/metrics.def"
                   == sizeof(weir_device_memory),
               "metrics.def has every number of weir_device_memory");
#define STREAM(member, type, unit, help) +BYTES_##type
_Static_assert(sizeof(size_t)
#include "observe/metrics.def"
                   == sizeof(weir_stream_stats),
               "metrics.def has every number of weir_stream_stats");
#define HANDLES(member, type, unit, help) +BYTES_##type
_Static_assert(sizeof(size_t)
#include "observe/metrics.def"
                   == sizeof(weir_handle_stats),
               "metrics.def has every number of weir_handle_stats");

#define TABLE(name) { name, sizeof name / sizeof name[0] }

wr_metrics wr_metrics_of(wr_scope scope)
{
    static const wr_metrics of[WR_SCOPES] = {
        [WR_SCOPE_DEVICE] = TABLE(device), [WR_SCOPE_MEMORY] = TABLE(memory),   [WR_SCOPE_POOL] = TABLE(memory),
        [WR_SCOPE_STREAM] = TABLE(stream), [WR_SCOPE_HANDLES] = TABLE(handles), [WR_SCOPE_PINNED] = TABLE(memory),
    };
    return of[scope];
}

weir_status wr_rows_add(wr_rows *rows, wr_scope scope, int32_t number, wr_row **out)
{
    WR_TRY(wr_meta_grow(&rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row, "statistics"));
    wr_row *row = &rows->row[rows->count++];
    *row = (wr_row){ .scope = scope, .device = number };
    *out = row;
    return WEIR_OK;
}

void wr_rows_release(wr_rows *rows)
{
    wr_meta_free(rows->row);
    *rows = (wr_rows){ 0 };
}

void wr_stat_reset(weir_stat *stat, bool peaks, bool totals)
{
    if (peaks) stat->peak = stat->current;
    if (totals) stat->added = stat->removed = 0;
}

void wr_metrics_reset(wr_scope scope, void *stats, bool peaks, bool totals)
{
    const wr_metrics all = wr_metrics_of(scope);
    for (const wr_metric *m = all.metric; m < all.metric + all.count; m++) {
        void *number = (char *)stats + m->offset;
        if (m->type == WR_METRIC_STAT)
            for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) wr_stat_reset((weir_stat *)number + kind, peaks, totals);
        if (m->type == WR_METRIC_COUNTER && totals) *(uint64_t *)number = 0;
    }
}
