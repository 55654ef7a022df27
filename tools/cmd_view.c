/* weir view: draws traces. */
#include "cli.h"
#include "command.h"
#include "grow.h"
#include "output/file.h"
#include "output/progress.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir view [OPTION]... TRACE... -o FILE\n\n"
    "Draws memory over time: every allocation as a band, requested, active and reserved bytes as lines, and what lies\n"
    "where in the segments. Several traces are drawn one under the other, on one axis.\n\n"
    "  -o, --output FILE  .html: a page to explore, by itself, without a network; .svg: a picture; - is stdout\n"
    "      --format NAME  html or svg, when the name of FILE does not tell\n"
    "  -h, --help         this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

typedef void (*drawer)(FILE *to, const view_track *tracks, size_t count);

typedef struct picture {
    trace *traces;
    timeline *lines;
    view_track *tracks;
    size_t count;
} picture;

static drawer drawer_of(const char *format)
{
    if (strcasecmp(format, "html") == 0 || strcasecmp(format, "htm") == 0) return view_html;
    if (strcasecmp(format, "svg") == 0) return view_svg;
    return NULL;
}

/* NULL, having said why. */
static drawer choose_drawer(const char *format, const char *path)
{
    if (format) {
        drawer found = drawer_of(format);
        if (!found) cli_usage("view", "there is no format '%s'; known are html, svg", format);
        return found;
    }
    const char *dot = strrchr(path, '.');
    drawer found = dot && !strchr(dot, '/') ? drawer_of(dot + 1) : NULL;
    if (!found) cli_usage("view", "'%s' does not tell the format; end it in .html or .svg, or add --format", path);
    return found;
}

static bool read_all(picture *p, char **paths, size_t count)
{
    p->traces = grow_new(count, sizeof *p->traces);
    p->lines = grow_new(count, sizeof *p->lines);
    p->tracks = grow_new(count, sizeof *p->tracks);
    for (size_t i = 0; i < count; i++) {
        if (!cli_trace("view", paths[i], &p->traces[i])) return false;
        p->count++;
        timeline_build(&p->traces[i], &p->lines[i]);
        p->tracks[i] = (view_track){ cli_trace_name(&p->traces[i], paths[i]), &p->lines[i] };
    }
    return true;
}

static void release_all(picture *p)
{
    for (size_t i = 0; i < p->count; i++) {
        timeline_release(&p->lines[i]);
        trace_release(&p->traces[i]);
    }
    free(p->traces);
    free(p->lines);
    free(p->tracks);
}

static bool draw(const picture *p, drawer draw_tracks, const char *path)
{
    output_file file;
    if (!output_open("view", path, &file)) return false;
    progress bar;
    progress_begin(&bar, "drawing", path);
    draw_tracks(file.stream, p->tracks, p->count);
    progress_end(&bar);
    return output_commit("view", &file);
}

int cmd_view(int argc, char **argv)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' },
        { "format", required_argument, NULL, 'f' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *path = NULL, *format = NULL;
    for (int option; (option = cli_option("view", argc, argv, "o:h", options)) != -1;) {
        switch (option) {
        case 'o': path = optarg; break;
        case 'f': format = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (optind == argc) return cli_usage("view", "which trace? Name at least one file, or - for stdin");
    if (!path) return cli_usage("view", "where to? Name a file with -o, as report.html or picture.svg");
    drawer draw_tracks = choose_drawer(format, path);
    if (!draw_tracks) return COMMAND_USAGE;

    picture p = { 0 };
    bool good = read_all(&p, argv + optind, (size_t)(argc - optind)) && draw(&p, draw_tracks, path);
    release_all(&p);
    return good ? 0 : COMMAND_FAILED;
}
