/* Draws the picture: a plot for each track, all on one scale. */
#include "grow.h"
#include "output/table.h"
#include "view/bands.h"
#include "view/view.h"

#include <inttypes.h>
#include <stdlib.h>

/* Pixels: of the picture, and of the margins around a plot. */
enum { WIDTH = 1200, TALL = 420, SHORT = 250, LEFT = 84, RIGHT = 16, TOP = 40, BOTTOM = 30 };
enum { COLUMNS = WIDTH - LEFT - RIGHT, MOST_BANDS = 800, LEGEND = 26, MARK = 7 };

static const char style[] =
    "svg{color-scheme:light dark;font:12px system-ui,'DejaVu Sans',sans-serif}"
    ".paper{fill:#fff}.ink{fill:#1b1f24}.quiet{fill:#57606a}.rule{stroke:#8c959f;fill:none}.small{fill:#c3c9d1}"
    ".reserved{stroke:#b3261e}.active{stroke:#7a4dbf;stroke-dasharray:5 3}.requested{stroke:#1b1f24}"
    ".line{fill:none;stroke-width:1.5}.oom{fill:#d1242f}.band{stroke:#fff;stroke-width:.4}.title{font-weight:600;font-size:14px}"
    "@media(prefers-color-scheme:dark){.paper{fill:#14171c}.ink{fill:#e6e9ee}.quiet{fill:#a3adb9}.rule{stroke:#69727e}"
    ".small{fill:#4a5360}.reserved{stroke:#ff8a80}.active{stroke:#c9a7ff}.requested{stroke:#f3f5f8}.oom{fill:#ff6b6b}"
    ".band{stroke:#14171c}}";

static const char *const colours[] = { "#4d86c4", "#c4814d", "#4dc486", "#c44d86", "#704dc4", "#c4ac4d",
                                       "#4db4c4", "#c45a4d", "#7fc44d", "#c44dc4", "#4d60c4", "#4dc4ac" };
enum { COLOURS = sizeof colours / sizeof *colours };

typedef struct plot {
    FILE *to;
    const timeline *line;
    uint32_t moments; /* of the longest track */
    uint64_t most;    /* bytes at the upper edge */
    int top, height;  /* pixels */
} plot;

static double y_of(const plot *p, uint64_t bytes)
{
    return p->top + p->height * (1 - (double)bytes / (double)p->most);
}

/* The largest value of each column. */
static void column_peaks(const plot *p, const uint64_t *values, uint64_t peaks[COLUMNS])
{
    uint32_t moment = 0;
    for (uint32_t x = 0; x < COLUMNS; x++) {
        uint64_t most = 0;
        for (; moment < p->line->moments && bands_column(moment, p->moments, COLUMNS) <= x; moment++)
            if (values[moment] > most) most = values[moment];
        peaks[x] = most;
        moment--; /* its value lasts into the next column */
    }
}

/* How many columns the track fills: others may be longer. */
static uint32_t columns_of(const plot *p)
{
    uint32_t columns = bands_column(p->line->moments, p->moments, COLUMNS);
    return columns ? columns : 1;
}

static void draw_steps(const plot *p, const uint64_t *values, const char *class, bool area)
{
    uint64_t peaks[COLUMNS];
    column_peaks(p, values, peaks);
    uint32_t columns = columns_of(p);
    fprintf(p->to, "<path class=\"%s\" d=\"M%d %.1f", class, LEFT, area ? y_of(p, 0) : y_of(p, peaks[0]));
    if (area) fprintf(p->to, "V%.1f", y_of(p, peaks[0]));
    for (uint32_t x = 1; x < columns; x++)
        if (peaks[x] != peaks[x - 1]) fprintf(p->to, "H%u V%.1f", LEFT + x, y_of(p, peaks[x]));
    fprintf(p->to, "H%u", LEFT + columns);
    if (area) fprintf(p->to, "V%.1fZ", y_of(p, 0));
    fputs("\"/>\n", p->to);
}

/* Draws the lower edge forwards, then the upper edge backwards. */
static void draw_band(const plot *p, const band *b)
{
    const timeline_block *block = &p->line->blocks[b->block];
    uint32_t number = (b->block ^ b->block >> 15) * 0x2c1b3c6du >> 8;
    uint32_t end = b->ends < columns_of(p) ? b->ends : columns_of(p);

    fprintf(p->to, "<path fill=\"%s\" d=\"M%u %.1f", colours[number % COLOURS], LEFT + b->steps[0].x,
            y_of(p, b->steps[0].y));
    for (size_t i = 1; i < b->count; i++) fprintf(p->to, "H%uV%.1f", LEFT + b->steps[i].x, y_of(p, b->steps[i].y));
    fprintf(p->to, "H%u", LEFT + end);
    for (size_t i = b->count; i-- > 0;)
        fprintf(p->to, "V%.1fH%u", y_of(p, b->steps[i].y + block->bytes), LEFT + b->steps[i].x);
    fputs("Z\"/>\n", p->to);
}

/* Draws bands too thin for a border first. Bands do not overlap, so the order does not matter. */
static void draw_bands(const plot *p)
{
    bands all;
    uint64_t bytes_per_pixel = p->most / (unsigned)p->height + 1;
    bands_build(p->line, p->moments, COLUMNS, (double)p->most / p->height, MOST_BANDS, &all);
    for (int thick = 0; thick < 2; thick++) {
        fputs(thick ? "<g class=\"band\">\n" : "<g>\n", p->to);
        for (size_t i = 0; i < all.count; i++) {
            bool is_thick = p->line->blocks[all.at[i].block].bytes > 3 * bytes_per_pixel;
            if (is_thick == thick) draw_band(p, &all.at[i]);
        }
        fputs("</g>\n", p->to);
    }
    bands_release(&all);
}

/* One mark for all that fail within MARK pixels, so that what is behind can be seen. */
static void draw_failures(const plot *p)
{
    const timeline *l = p->line;
    for (size_t i = 0, next; i < l->oom_count; i = next) {
        char size[TABLE_SIZE], more[40] = "";
        const uint32_t x = bands_column(l->ooms[i].moment, p->moments, COLUMNS);
        for (next = i + 1; next < l->oom_count; next++)
            if (bands_column(l->ooms[next].moment, p->moments, COLUMNS) - x >= MARK) break;
        if (next - i > 1) snprintf(more, sizeof more, ", and %zu more times", next - i - 1);
        fprintf(p->to,
                "<path class=\"oom\" d=\"M%u %dh12l-6 10zM%u %dh1v%dh-1z\"><title>Out of memory: %s%s</title></path>\n",
                LEFT + x - 6, p->top - 12, LEFT + x, p->top, p->height, table_size(l->ooms[i].bytes, size), more);
    }
}

/* A round step: a power of two for bytes, else 1, 2, 5, 10, ...; at most `wanted` steps in the range. */
static uint64_t step_of(uint64_t range, unsigned wanted, bool bytes)
{
    uint64_t step = 1;
    for (unsigned k = 0; range / step > wanted; k++) step = !bytes && k % 3 == 1 ? step / 2 * 5 : step * 2;
    return step;
}

static void draw_scales(const plot *p)
{
    int floor = p->top + p->height;
    fprintf(p->to, "<path class=\"rule\" d=\"M%d %dV%dH%d\"/>\n", LEFT, p->top, floor, WIDTH - RIGHT);
    uint64_t step = step_of(p->most, (unsigned)p->height / 45, true);
    for (uint64_t left = p->most;; left -= step) {
        const uint64_t bytes = p->most - left;
        char size[TABLE_SIZE];
        fprintf(p->to, "<text class=\"quiet\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
                y_of(p, bytes) + 4, table_size(bytes, size));
        if (left < step) break;
    }
    step = step_of(p->moments, 10, false);
    for (uint64_t moment = 0; moment < p->moments; moment += step)
        fprintf(p->to, "<text class=\"quiet\" x=\"%u\" y=\"%d\" text-anchor=\"middle\">%" PRIu64 "</text>\n",
                LEFT + bands_column((uint32_t)moment, p->moments, COLUMNS), floor + 17, moment);
}

static void draw_title(const plot *p, const char *title, const timeline_series *s)
{
    char requested[TABLE_SIZE], reserved[TABLE_SIZE];
    fprintf(p->to, "<text class=\"ink title\" x=\"%d\" y=\"%d\">", LEFT, p->top - 18);
    view_escape(p->to, title);
    fprintf(p->to, "</text>\n<text class=\"quiet\" x=\"%d\" y=\"%d\" text-anchor=\"end\">peak requested %s",
            WIDTH - RIGHT, p->top - 18, table_size(s->requested[timeline_peak(p->line, s->requested)], requested));
    if (p->line->has_segments)
        fprintf(p->to, ", reserved %s", table_size(s->reserved[timeline_peak(p->line, s->reserved)], reserved));
    fputs("</text>\n", p->to);
}

static void draw_plot(const plot *p, const char *title, const timeline_series *s)
{
    draw_title(p, title, s);
    draw_steps(p, s->active, "small", true);
    draw_bands(p);
    draw_steps(p, s->active, "line active", false);
    draw_steps(p, s->requested, "line requested", false);
    if (p->line->has_segments) draw_steps(p, s->reserved, "line reserved", false);
    draw_failures(p);
    draw_scales(p);
}

static void draw_legend(FILE *to, bool reserved, int y)
{
    static const char *const names[] = { "reserved", "active", "requested" };
    int x = LEFT;
    for (size_t i = reserved ? 0 : 1; i < sizeof names / sizeof *names; i++, x += 110)
        fprintf(to, "<path class=\"line %s\" d=\"M%d %dh22\"/><text class=\"quiet\" x=\"%d\" y=\"%d\">%s</text>\n",
                names[i], x, y - 4, x + 28, y, names[i]);
    fprintf(
        to,
        "<path class=\"small\" d=\"M%d %dh12v12h-12z\"/><text class=\"quiet\" x=\"%d\" y=\"%d\">small allocations</text>\n"
        "<text class=\"quiet\" x=\"%d\" y=\"%d\" text-anchor=\"end\">operations</text>\n",
        x, y - 10, x + 18, y, WIDTH - RIGHT, y);
}

/* Sets the scale by the highest value and the longest of all tracks. */
static void common_scale(const view_track *tracks, const timeline_series *series, size_t count, plot *p)
{
    p->most = 1;
    for (size_t i = 0; i < count; i++) {
        const timeline *l = tracks[i].line;
        uint64_t active = series[i].active[timeline_peak(l, series[i].active)];
        uint64_t reserved = series[i].reserved[timeline_peak(l, series[i].reserved)];
        if (active > p->most) p->most = active;
        if (reserved > p->most) p->most = reserved;
        if (l->moments > p->moments) p->moments = l->moments;
    }
    const uint64_t margin = p->most / 32; /* so that a line at the top is not cut */
    p->most += margin < UINT64_MAX - p->most ? margin : UINT64_MAX - p->most;
}

void view_svg(FILE *to, const view_track *tracks, size_t count)
{
    plot p = { .to = to, .height = count > 1 ? SHORT : TALL };
    timeline_series *series = grow_new(count, sizeof *series);
    for (size_t i = 0; i < count; i++) timeline_sum(tracks[i].line, &series[i]);
    common_scale(tracks, series, count, &p);

    bool reserved = false;
    int height = (int)count * (TOP + p.height + BOTTOM) + LEGEND;
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n"
            "<title>",
            WIDTH, height, WIDTH, height);
    view_title(to, tracks, count);
    fprintf(to, "</title>\n<style>%s</style>\n<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", style, WIDTH,
            height);
    for (size_t i = 0; i < count; i++) {
        p.line = tracks[i].line;
        reserved |= p.line->has_segments;
        p.top = (int)i * (TOP + p.height + BOTTOM) + TOP;
        draw_plot(&p, tracks[i].title, &series[i]);
        timeline_series_release(&series[i]);
    }
    draw_legend(to, reserved, height - 9);
    fputs("</svg>\n", to);
    free(series);
}
