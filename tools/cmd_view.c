/* weir view: draws traces. */
#include "cli.h"
#include "command.h"
#include "grow.h"
#include "output/file.h"
#include "output/json.h"
#include "output/progress.h"
#include "replay/record.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir view [OPTION]... TRACE... -o FILE\n\n"
    "Draws memory over time: every allocation as a band, requested, active and reserved bytes as lines, and what lies\n"
    "where in the segments. Several traces are drawn one under the other, on one axis.\n\n"
    "  -o, --output FILE         .html: a page to explore, without a network; .svg: a picture; - is stdout\n"
    "  -p, --policy NAME         recorded (the default: as it was), torch or weir (replayed); repeatable, or a list\n"
    "                            with commas: each is drawn\n"
    "  -m, --device-memory SIZE  memory of each device in replays, such as 24GiB; default 80GiB\n"
    "      --format NAME         html or svg, if the name of FILE does not say which\n"
    "      --json FILE           what was drawn, as JSON; - is stdout\n"
    "  -h, --help                this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

typedef void (*drawer)(FILE *to, const view_track *tracks, size_t count);

static const char *const policies[] = { "recorded", "torch", "weir" };
enum { POLICIES = sizeof policies / sizeof *policies };

typedef struct request {
    const char *path, *json, *format, *policy[POLICIES]; /* each at most once, in the order asked */
    size_t policy_count;
    uint64_t device_memory;
} request;

/* The traces to draw, each as recorded or replayed under each policy asked for. */
typedef struct picture {
    trace *traces;  /* as read */
    trace *replays; /* by track; unused for a track as recorded */
    timeline *lines;
    view_track *tracks;
    const char **policies; /* by track */
    char **titles;
    size_t trace_count, count;
    bool lacks; /* some trace could not be replayed under some policy, which was reported */
} picture;

static drawer drawer_of(const char *format)
{
    if (strcasecmp(format, "html") == 0 || strcasecmp(format, "htm") == 0) return view_html;
    if (strcasecmp(format, "svg") == 0) return view_svg;
    return NULL;
}

/* NULL after reporting why. */
static drawer choose_drawer(const char *format, const char *path)
{
    if (format) {
        static const char *const formats[] = { "html", "svg" };
        format = cli_word("view", "format", format, formats, 2);
        return format ? drawer_of(format) : NULL;
    }
    const char *dot = strrchr(path, '.');
    drawer found = dot && !strchr(dot, '/') ? drawer_of(dot + 1) : NULL;
    if (!found)
        cli_usage("view", "the name '%s' does not say which format to write; end it in .html or .svg, or add --format",
                  path);
    return found;
}

static bool add_track(picture *p, const trace *t, const char *name, const request *r, const char *policy)
{
    char error[SCRIPT_ERROR];
    bool recorded = strcmp(policy, "recorded") == 0;
    trace *replay = &p->replays[p->count];
    if (!recorded && !record(t, policy, r->device_memory, replay, error)) {
        cli_say("view", "%s, policy %s: %s", name, policy, error);
        return false;
    }
    bool told = !recorded || r->policy_count > 1;
    if (asprintf(&p->titles[p->count], "%s%s%s", name, told ? ", " : "", told ? policy : "") < 0)
        grow_stop(strlen(name), 1);
    timeline_build(recorded ? t : replay, &p->lines[p->count]);
    p->tracks[p->count] = (view_track){ name, p->titles[p->count], &p->lines[p->count] };
    p->policies[p->count] = policy;
    p->count++;
    return true;
}

/* False: there is nothing to draw, or not all traces could be read. */
static bool read_all(picture *p, char *const *paths, int count, const request *r)
{
    const size_t tracks = (size_t)count * r->policy_count;
    p->traces = grow_new((size_t)count, sizeof *p->traces);
    p->replays = grow_new(tracks, sizeof *p->replays);
    p->lines = grow_new(tracks, sizeof *p->lines);
    p->tracks = grow_new(tracks, sizeof *p->tracks);
    p->titles = grow_new(tracks, sizeof *p->titles);
    p->policies = grow_new(tracks, sizeof *p->policies);
    for (int i = 0; i < count; i++) {
        trace *t = &p->traces[i];
        if (!cli_trace("view", paths, count, i, t)) return false;
        p->trace_count++;
        for (size_t k = 0; k < r->policy_count; k++)
            p->lacks |= !add_track(p, t, cli_trace_name(t, paths[i]), r, r->policy[k]);
    }
    return p->count != 0;
}

static void release_all(picture *p)
{
    for (size_t i = 0; i < p->count; i++) {
        timeline_release(&p->lines[i]);
        record_release(&p->replays[i]);
        free(p->titles[i]);
    }
    for (size_t i = 0; i < p->trace_count; i++) trace_release(&p->traces[i]);
    free(p->traces);
    free(p->replays);
    free(p->lines);
    free(p->tracks);
    free(p->titles);
    free(p->policies);
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

static json_t *peak_of(const timeline *line, const uint64_t *values)
{
    return line->moments ? json_count(values[timeline_peak(line, values)]) : json_count(0);
}

static json_t *track_json(const view_track *track, const char *policy)
{
    const timeline *line = track->line;
    timeline_series sum;
    timeline_sum(line, &sum);
    json_t *object = json_object();
    json_add(object, "trace", json_text(track->name));
    json_add(object, "policy", json_string(policy));
    json_add(object, "operations", json_count(timeline_operations(line)));
    json_add(object, "blocks", json_count(line->block_count));
    json_add(object, "peak_requested", peak_of(line, sum.requested));
    json_add(object, "peak_active", peak_of(line, sum.active));
    json_add(object, "peak_reserved", line->has_segments ? peak_of(line, sum.reserved) : json_null());
    json_add(object, "oom", json_count(line->oom_count));
    timeline_series_release(&sum);
    return object;
}

static bool write_summary(const picture *p, const request *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < p->count; i++) json_push(array, track_json(&p->tracks[i], p->policies[i]));
    const bool good = json_write("view", array, r->json);
    json_decref(array);
    return good;
}

static bool add_policies(request *r, const char *list)
{
    const size_t size = strlen(list) + 1;
    char *copy = memcpy(grow_new(size, 1), list, size), *rest = copy, *word;
    bool good = true;
    while (good && (word = strsep(&rest, ","))) {
        const char *policy = cli_word("view", "policy", word, policies, POLICIES);
        bool twice = false;
        for (size_t i = 0; i < r->policy_count; i++) twice |= policy == r->policy[i];
        good = policy != NULL;
        if (good && !twice) r->policy[r->policy_count++] = policy;
    }
    free(copy);
    return good;
}

static bool take_option(request *r, int option)
{
    switch (option) {
    case 'o': r->path = optarg; return true;
    case 'f': r->format = optarg; return true;
    case 'j': r->json = optarg; return true;
    case 'p': return add_policies(r, optarg);
    case 'm': return cli_device_memory("view", optarg, &r->device_memory);
    default: return false;
    }
}

/* False after reporting what is missing or would have no effect. */
static bool makes_sense(const request *r, char *const *traces, int count)
{
    if (count == 0)
        cli_usage("view", "no trace given; name at least one file, or - for stdin");
    else if (!r->path)
        cli_usage("view", "no output given; name a file with -o, such as report.html or picture.svg");
    else if (r->device_memory && r->policy_count == 1 && r->policy[0] == policies[0])
        cli_usage("view", "--device-memory is of replays; name a policy to replay with --policy");
    else
        return cli_spares_traces("view", traces, count, r->path, r->json);
    return false;
}

int cmd_view(int argc, char **argv)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' },
        { "policy", required_argument, NULL, 'p' },
        { "device-memory", required_argument, NULL, 'm' },
        { "format", required_argument, NULL, 'f' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    request r = { 0 };
    for (int option; (option = cli_option("view", argc, argv, "o:p:m:h", options)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (!take_option(&r, option)) return COMMAND_USAGE;
    }
    if (r.policy_count == 0) r.policy[r.policy_count++] = policies[0];
    if (!makes_sense(&r, argv + optind, argc - optind)) return COMMAND_USAGE;
    drawer draw_tracks = choose_drawer(r.format, r.path);
    if (!draw_tracks) return COMMAND_USAGE;

    picture p = { 0 };
    bool good = read_all(&p, argv + optind, argc - optind, &r) && draw(&p, draw_tracks, r.path) &&
                (!r.json || write_summary(&p, &r));
    release_all(&p);
    return good && !p.lacks ? 0 : COMMAND_FAILED;
}
