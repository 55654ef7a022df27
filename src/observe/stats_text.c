#include "observe/stats_text.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static const void *number_of(const wr_row *row, const wr_metric *metric)
{
    return (const char *)&row->of + metric->offset;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void json_stat(wr_emit *e, const char *member, const weir_stat *stat)
{
    static const char *const kinds[WEIR_STAT_KINDS] = { "all", "small", "large" };
    wr_json_open(e, member, '{');
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
        wr_json_open(e, kinds[kind], '{');
        wr_json_number(e, "current", stat[kind].current);
        wr_json_number(e, "peak", stat[kind].peak);
        wr_json_number(e, "added", stat[kind].added);
        wr_json_number(e, "removed", stat[kind].removed);
        wr_json_close(e, '}');
    }
    wr_json_close(e, '}');
}

static void json_members(wr_emit *e, const wr_row *row)
{
    if (row->silent) {
        wr_json_string(e, "error", row->of.refusal);
        return;
    }
    const wr_metrics all = wr_metrics_of(row->scope);
    for (const wr_metric *m = all.metric; m < all.metric + all.count; m++) {
        const void *number = number_of(row, m);
        if (m->type == WR_METRIC_STAT)
            json_stat(e, m->member, number);
        else
            wr_json_count(e, m->member, *(const uint64_t *)number);
    }
}

/* Writes the rows of a scope, from *at on, as an array of objects, with each row's name under `key`. */
static void json_list(wr_emit *e, const char *list, const char *key, wr_scope scope, const wr_rows *rows, size_t *at)
{
    wr_json_open(e, list, '[');
    for (; *at < rows->count && rows->row[*at].scope == scope; ++*at) {
        const wr_row *row = &rows->row[*at];
        wr_json_open(e, NULL, '{');
        wr_json_string(e, key, row->name);
        if (scope == WR_SCOPE_POOL) wr_json_string(e, "tag", row->tag);
        json_members(e, row);
        wr_json_close(e, '}');
    }
    wr_json_close(e, ']');
}

void wr_stats_json_parts(wr_emit *e, const wr_rows *rows, size_t *at)
{
    json_list(e, "pools", "pool", WR_SCOPE_POOL, rows, at);
    json_list(e, "streams", "stream", WR_SCOPE_STREAM, rows, at);
    json_list(e, "handles", "kind", WR_SCOPE_HANDLES, rows, at);
}

static void json_device(wr_emit *e, const wr_rows *rows, size_t *at)
{
    const wr_row *row = &rows->row[(*at)++];
    wr_json_open(e, NULL, '{');
    wr_json_number(e, "device", row->device);
    wr_json_string(e, "name", row->name);
    json_members(e, row);
    wr_json_open(e, "memory", '{');
    json_members(e, &rows->row[(*at)++]);
    wr_json_close(e, '}');
    wr_stats_json_parts(e, rows, at);
    wr_json_close(e, '}');
}

void wr_stats_json(wr_emit *e, const wr_stats_head *head, const wr_rows *rows)
{
    size_t at = 0;
    wr_json_open(e, NULL, '{');
    wr_json_string(e, "backend", head->backend);
    wr_json_count(e, "driver_calls", head->driver_calls);
    wr_json_open(e, "devices", '[');
    while (at < rows->count && rows->row[at].scope == WR_SCOPE_DEVICE) json_device(e, rows, &at);
    wr_json_close(e, ']');
    if (at < rows->count) {
        wr_json_open(e, "pinned", '{');
        json_members(e, &rows->row[at]);
        wr_json_close(e, '}');
    }
    wr_json_close(e, '}');
    wr_emit_bytes(e, "\n", 1);
    wr_emit_finish(e);
}

/* ---- OpenMetrics ------------------------------------------------------------------------------------------------- */

/* A STAT becomes several families, because a family has one type. */
typedef struct facet {
    const char *infix; /* of the family's name */
    const char *says;  /* before the metric's help */
    size_t offset;     /* in weir_stat */
    bool counter;
} facet;

static const facet of_stat[] = {
    { "", "", offsetof(weir_stat, current), false },
    { "_peak", "Peak since the last reset: ", offsetof(weir_stat, peak), false },
    { "_added", "Total that came since the last reset: ", offsetof(weir_stat, added), true },
    { "_removed", "Total that went since the last reset: ", offsetof(weir_stat, removed), true },
};
static const facet of_counter = { "", "", 0, true };
static const facet of_gauge = { "", "", 0, false };

static const char *const prefixes[WR_SCOPES] = { "weir_device", "weir_memory",  "weir_pool",
                                                 "weir_stream", "weir_handles", "weir_pinned" };

/* Escapes newlines, quotes and backslashes, as the format demands, and replaces what is not UTF-8. */
static void label(wr_emit *e, const char *name, const char *text)
{
    wr_emit_format(e, "%s=\"", name);
    for (const char *end = text + strlen(text); text != end;) {
        size_t bytes;
        const char *character = wr_utf8_next(&text, end, &bytes);
        if (*character == '"' || *character == '\\' || *character == '\n') wr_emit_bytes(e, "\\", 1);
        wr_emit_bytes(e, *character == '\n' ? "n" : character, bytes);
    }
    wr_emit_bytes(e, "\"", 1);
}

static void labels(wr_emit *e, const wr_row *row, const char *class)
{
    static const char *const names[WR_SCOPES] = { "name", NULL, "pool", "stream", "kind", NULL };
    const char *name = names[row->scope];
    wr_emit_bytes(e, "{", 1);
    if (row->scope != WR_SCOPE_PINNED) wr_emit_format(e, "device=\"%d\"", row->device);
    if (name) {
        wr_emit_bytes(e, ",", 1);
        label(e, name, row->name);
    }
    if (row->tag[0]) {
        wr_emit_bytes(e, ",", 1);
        label(e, "tag", row->tag);
    }
    if (class) {
        wr_emit_bytes(e, ",", 1);
        label(e, "class", class);
    }
    wr_emit_bytes(e, "}", 1);
}

static void family_name(char *text, size_t capacity, const char *prefix, const wr_metric *m, const char *infix)
{
    /* The format demands the unit as the last word of a family's name, so it moves behind the infix and what the member
     * has after it. */
    const char *unit = m->unit[0] ? strstr(m->member, m->unit) : NULL;
    const char *rest = unit ? unit + strlen(m->unit) : "";
    size_t stem = unit ? (size_t)(unit - m->member) : strlen(m->member);
    if (unit && stem) stem--;
    snprintf(text, capacity, "%s%s%.*s%s%s%s%s", prefix, stem ? "_" : "", (int)stem, m->member, rest, infix,
             unit ? "_" : "", m->unit);
}

/* Numbers of a STAT may be negative; others may need all 64 bits. */
static void sample(wr_emit *e, const wr_metric *m, const void *number)
{
    if (m->type == WR_METRIC_STAT)
        wr_emit_format(e, " %lld\n", (long long)*(const int64_t *)number);
    else
        wr_emit_format(e, " %llu\n", (unsigned long long)*(const uint64_t *)number);
}

/* The whole and its classes are separate families, so that summing a family does not count anything twice. */
static void family(wr_emit *e, const wr_rows *rows, wr_scope scope, const char *prefix, const wr_metric *m,
                   const facet *f, bool by_class)
{
    static const char *const classes[] = { NULL, "small", "large" };
    char name[128];
    bool any = false;
    family_name(name, sizeof name, prefix, m, f->infix);
    for (size_t i = 0; i < rows->count; i++) {
        const wr_row *row = &rows->row[i];
        if (row->scope != scope || row->silent) continue;
        if (!any) {
            wr_emit_format(e, "# TYPE %s %s\n", name, f->counter ? "counter" : "gauge");
            if (m->unit[0]) wr_emit_format(e, "# UNIT %s %s\n", name, m->unit);
            wr_emit_format(e, "# HELP %s %s%s\n", name, f->says, m->help);
            any = true;
        }
        for (int kind = by_class ? WEIR_STAT_SMALL : WEIR_STAT_ALL; kind < (by_class ? WEIR_STAT_KINDS : 1); kind++) {
            const char *number = (const char *)number_of(row, m) + (size_t)kind * sizeof(weir_stat) + f->offset;
            wr_emit_format(e, "%s%s", name, f->counter ? "_total" : "");
            labels(e, row, classes[kind]);
            sample(e, m, number);
        }
    }
}

static void families(wr_emit *e, const wr_rows *rows, wr_scope scope)
{
    const wr_metrics all = wr_metrics_of(scope);
    for (const wr_metric *m = all.metric; m < all.metric + all.count; m++) {
        if (m->type != WR_METRIC_STAT) {
            family(e, rows, scope, prefixes[scope], m, m->type == WR_METRIC_COUNTER ? &of_counter : &of_gauge, false);
            continue;
        }
        for (size_t i = 0; i < sizeof of_stat / sizeof of_stat[0]; i++) {
            family(e, rows, scope, prefixes[scope], m, &of_stat[i], false);
            if (scope == WR_SCOPE_MEMORY) family(e, rows, scope, "weir_class", m, &of_stat[i], true);
        }
    }
}

void wr_stats_openmetrics(wr_emit *e, const wr_stats_head *head, const wr_rows *rows)
{
    wr_emit_format(e, "# TYPE weir_backend info\n# HELP weir_backend The driver in use.\nweir_backend_info{");
    label(e, "backend", head->backend);
    wr_emit_format(e,
                   "} 1\n# TYPE weir_driver_calls counter\n# HELP weir_driver_calls Calls of the driver, on all "
                   "devices.\nweir_driver_calls_total %llu\n",
                   (unsigned long long)head->driver_calls);
    for (int scope = 0; scope < WR_SCOPES; scope++) families(e, rows, (wr_scope)scope);
    wr_emit_format(e, "# EOF\n");
    wr_emit_finish(e);
}
