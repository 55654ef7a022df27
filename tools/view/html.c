/* Writes the page: report.html with the style, the scripts and the data filled in. */
#include "grow.h"
#include "output/caller.h"
#include "output/json.h"
#include "view/assets.h"
#include "view/columns.h"
#include "view/view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct page {
    const view_track *tracks;
    size_t count;
    columns *columns;
} page;

void view_escape(FILE *to, const char *text)
{
    json_t *clean = json_text(text); /* XML requires valid UTF-8 */
    for (text = json_string_value(clean); *text; text++) {
        if (strncmp(text, "\xEF\xBF\xBE", 3) == 0 || strncmp(text, "\xEF\xBF\xBF", 3) == 0) {
            fputs("\xEF\xBF\xBD", to); /* XML has no U+FFFE and U+FFFF */
            text += 2;
            continue;
        }
        switch (*text) {
        case '&': fputs("&amp;", to); break;
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '"': fputs("&quot;", to); break;
        default: fputc((unsigned char)*text < ' ' ? ' ' : *text, to);
        }
    }
    json_decref(clean);
}

void view_title(FILE *to, const view_track *tracks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i && tracks[i].name == tracks[i - 1].name) continue; /* the same trace under another policy */
        if (i) fputs(", ", to);
        view_escape(to, tracks[i].name);
    }
}

static json_t *lanes_json(const timeline *l)
{
    json_t *array = json_array();
    for (size_t i = 0; i < l->lane_count; i++) {
        json_t *object = json_object();
        json_add(object, "device", json_integer(l->lanes[i].device));
        json_add(object, "pool", json_sprintf("%" PRIu64 ",%" PRIu64, l->lanes[i].pool[0], l->lanes[i].pool[1]));
        json_add(object, "stream", json_sprintf("0x%" PRIx64, l->lanes[i].stream));
        json_push(array, object);
    }
    return array;
}

static json_t *frames_json(const trace_stacks *s)
{
    json_t *array = json_array();
    for (size_t i = 0; i < s->frame_count; i++) json_push(array, json_text(s->frames[i]));
    return array;
}

static json_t *stacks_json(const trace_stacks *s)
{
    json_t *array = json_array();
    for (size_t i = 0; i < s->count; i++) {
        json_t *stack = json_array();
        for (size_t k = s->first[i]; k < s->first[i + 1]; k++) json_push(stack, json_count(s->items[k]));
        json_push(array, stack);
    }
    return array;
}

/* For each stack, the frames that say who asked for memory. */
static json_t *callers_json(const trace_stacks *s)
{
    uint8_t *ranks = caller_ranks(s);
    json_t *array = json_array();
    for (size_t i = 0; i < s->count; i++) {
        uint32_t frames[CALLER_SHOWN];
        const size_t count = caller_list(s, ranks, (uint32_t)i, frames);
        json_t *callers = json_array();
        for (size_t k = 0; k < count; k++) json_push(callers, json_count(frames[k]));
        json_push(array, callers);
    }
    free(ranks);
    return array;
}

/* The page computes these from the columns, too, and compares. */
static json_t *peaks_json(const timeline *l)
{
    timeline_series series;
    timeline_sum(l, &series);
    json_t *object = json_object();
    json_add(object, "requested", json_count(series.requested[timeline_peak(l, series.requested)]));
    json_add(object, "active", json_count(series.active[timeline_peak(l, series.active)]));
    json_add(object, "reserved", json_count(series.reserved[timeline_peak(l, series.reserved)]));
    timeline_series_release(&series);
    return object;
}

static json_t *track_json(const view_track *track, const columns *c)
{
    const timeline *l = track->line;
    json_t *object = json_object();
    json_add(object, "title", json_text(track->title));
    json_add(object, "format", json_string(l->trace->format));
    json_add(object, "has_segments", json_boolean(l->has_segments));
    json_add(object, "base", json_sprintf("0x%" PRIx64, c->base));
    json_add(object, "peaks", peaks_json(l));
    json_add(object, "lanes", lanes_json(l));
    json_add(object, "frames", frames_json(&l->trace->stacks));
    json_add(object, "stacks", stacks_json(&l->trace->stacks));
    json_add(object, "callers", callers_json(&l->trace->stacks));
    json_add(object, "columns", json_incref(c->about));
    return object;
}

/* Inside a script element only "<" could end it or begin a comment; in JSON it occurs only in strings. That a write
 * failed is seen when the file is finished. */
static int write_escaped(const char *text, size_t length, void *to)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '<')
            fputs("\\u003c", to);
        else
            fputc(text[i], to);
    }
    return 0;
}

static void write_about(FILE *to, const page *p)
{
    json_t *tracks = json_array();
    for (size_t i = 0; i < p->count; i++) json_push(tracks, track_json(&p->tracks[i], &p->columns[i]));
    json_t *about = json_object();
    json_add(about, "tracks", tracks);
    json_must(json_dump_callback(about, write_escaped, to, JSON_COMPACT));
    json_decref(about);
}

static void write_data(FILE *to, const page *p)
{
    for (size_t i = 0; i < p->count; i++) {
        fprintf(to, "<script type=\"text/plain\" id=\"data-%zu\">", i);
        columns_write(&p->columns[i], to);
        fputs("</script>\n", to);
    }
}

static void write_asset(FILE *to, const asset *a)
{
    fwrite(a->bytes, 1, a->count, to);
}

static void write_scripts(FILE *to)
{
    static const asset *const scripts[] = { &asset_data_js,     &asset_bands_js,  &asset_colours_js, &asset_chart_js,
                                            &asset_segments_js, &asset_search_js, &asset_report_js };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) write_asset(to, scripts[i]);
}

/* Writes what "@name@" in the template stands for. */
static void write_part(FILE *to, const page *p, const char *name, size_t length)
{
    if (strncmp(name, "title", length) == 0)
        view_title(to, p->tracks, p->count);
    else if (strncmp(name, "css", length) == 0)
        write_asset(to, &asset_report_css);
    else if (strncmp(name, "js", length) == 0)
        write_scripts(to);
    else if (strncmp(name, "about", length) == 0)
        write_about(to, p);
    else if (strncmp(name, "data", length) == 0)
        write_data(to, p);
}

void view_html(FILE *to, const view_track *tracks, size_t count)
{
    page p = { tracks, count, grow_new(count, sizeof *p.columns) };
    for (size_t i = 0; i < count; i++) columns_build(tracks[i].line, &p.columns[i]);

    const char *at = (const char *)asset_report_html.bytes, *end = at + asset_report_html.count;
    while (at < end) {
        const char *mark = memchr(at, '@', (size_t)(end - at));
        const char *close = mark ? memchr(mark + 1, '@', (size_t)(end - mark - 1)) : NULL;
        fwrite(at, 1, (size_t)((mark && close ? mark : end) - at), to);
        if (!mark || !close) break;
        write_part(to, &p, mark + 1, (size_t)(close - mark - 1));
        at = close + 1;
    }
    for (size_t i = 0; i < count; i++) columns_release(&p.columns[i]);
    free(p.columns);
}
