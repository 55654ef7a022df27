/* weir plan: where each allocation of a trace would go if all of it were known beforehand, and how little memory that
 * takes. */
#include "cli.h"
#include "clock.h"
#include "command.h"
#include "output/file.h"
#include "output/json.h"
#include "output/progress.h"
#include "output/table.h"
#include "plan/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: weir plan [OPTION]... TRACE... [-o FILE]\n"
    "       weir plan --show FILE\n\n"
    "Places every allocation of a trace, as low as it can, with all of the trace known. Says how much memory that\n"
    "takes and how far that is above the lower bound, which no placement can beat: the most that is live at once in\n"
    "each pool, summed up, because pools do not share memory.\n\n"
    "  -o, --output FILE    write the plan, of one TRACE only; - is stdout; a wrong plan is never written\n"
    "      --show FILE      check a plan file and list it\n"
    "      --streams-apart  give no stream memory that another stream used: one arena per stream and pool\n"
    "  -t, --time SECONDS   stop searching after this long, for each trace; default 5\n"
    "      --seed N         seed of the search's random choices; default 1\n"
    "      --threads N      threads that search; default: one per processor\n"
    "      --json FILE      the results as JSON; - is stdout, instead of the table\n"
    "  -h, --help           this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

#define PAGE ((uint64_t)2 << 20) /* the granularity of drivers */
#define MOST_THREADS 256

typedef struct request {
    const char *output, *show, *json;
    solve_options search;
    bool streams_apart;
    bool makes; /* an option says how plans are made */
} request;

/* What the results go to. */
typedef struct report {
    table rows;
    json_t *array;
} report;

/* All arenas of one device. */
typedef struct device_facts {
    uint64_t allocations, streams, residents, arenas;
    uint64_t load, bound, bytes, pages, waits;
    const weir_plan_arena *largest;
    const char *how; /* of the largest arena */
} device_facts;

static device_facts sum_up(const made_plan *m, const problem *p, int device)
{
    device_facts f = { .how = "-" };
    for (size_t i = 0; i < p->count; i++) {
        const weir_plan_arena *a = &m->arenas[i];
        if (a->device != device) continue;
        f.arenas++;
        f.allocations += p->arenas[i].count;
        f.streams += a->streams;
        f.residents += m->facts[i].residents;
        f.load += m->facts[i].load;
        f.bound += a->bound;
        f.bytes += a->bytes;
        f.pages += (a->bytes + PAGE - 1) / PAGE * PAGE;
        f.waits += a->waits;
        if (f.largest && a->bytes <= f.largest->bytes) continue;
        f.largest = a;
        f.how = m->facts[i].how;
    }
    return f;
}

static void add_row(table *t, const char *name, int device, uint64_t live, const device_facts *f, double seconds)
{
    char size[TABLE_SIZE];
    table_cell(t, "%s", name);
    table_cell(t, "%d", device);
    table_cell(t, "%" PRIu64, f->allocations);
    table_cell(t, "%" PRIu64, f->streams);
    table_cell(t, "%s", table_size(live, size));
    table_cell(t, "%s", table_size(f->bound, size));
    table_cell(t, "%s", table_size(f->bytes, size));
    table_cell(t, f->bound ? "%.4f %%" : "-", f->bound ? 100 * ((double)f->bytes / (double)f->bound - 1) : 0);
    table_cell(t, "%" PRIu64, f->waits);
    if (f->largest->loop_times)
        table_cell(t, "%" PRIu64 " x %" PRIu64, f->largest->loop_times, f->largest->loop_entries);
    else
        table_cell(t, "-");
    table_cell(t, "%s", f->how);
    table_cell(t, "%.2f s", seconds);
}

static json_t *row_json(const char *name, int device, uint64_t live, const device_facts *f, uint64_t number,
                        double seconds)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, number);
    json_t *object = json_object();
    json_add(object, "trace", json_text(name));
    json_add(object, "trace_hash", json_string(hash));
    json_add(object, "device", json_integer(device));
    json_add(object, "allocations", json_count(f->allocations));
    json_add(object, "arenas", json_count(f->arenas));
    json_add(object, "streams", json_count(f->streams));
    json_add(object, "residents", json_count(f->residents));
    json_add(object, "peak_requested", json_count(live));
    json_add(object, "peak_live", json_count(f->load));
    json_add(object, "bound", json_count(f->bound));
    json_add(object, "peak", json_count(f->bytes));
    json_add(object, "peak_reserved", json_count(f->pages));
    json_add(object, "gap", json_ratio(f->bound ? (double)f->bytes / (double)f->bound - 1 : NAN, 8));
    json_add(object, "waits", json_count(f->waits));
    json_add(object, "loop_times", json_count(f->largest->loop_times));
    json_add(object, "loop_allocations", json_count(f->largest->loop_entries));
    json_add(object, "how", json_string(f->how));
    json_add(object, "seconds", json_ratio(seconds, 3));
    return object;
}

static void report_init(report *out)
{
    static const char *const titles[] = { "TRACE", "DEVICE", "ALLOCATIONS", "STREAMS", "REQUESTED", "BOUND",
                                          "PLAN",  "GAP",    "WAITS",       "LOOP",    "BY",        "TIME" };
    table_init(&out->rows, "lrrrrrrrrrlr");
    table_titles(&out->rows, titles);
    out->array = json_array();
}

static void report_add(report *out, const char *name, const made_plan *m, const problem *p, double seconds)
{
    for (size_t device = 0; device < p->devices; device++) {
        device_facts f = sum_up(m, p, (int)device);
        if (f.arenas == 0) continue;
        add_row(&out->rows, name, (int)device, p->live[device], &f, seconds);
        json_push(out->array, row_json(name, (int)device, p->live[device], &f, p->hash, seconds));
    }
}

/* The bar fills while blocks get their first places, then again with the time used. The search may end before that. */
typedef struct search_bar {
    progress bar;
    double limit;
} search_bar;

static void show_search(void *user, double seconds, double placed)
{
    search_bar *b = user;
    b->bar.what = placed < 1 ? "placing" : "planning";
    if (placed < 1)
        progress_update(&b->bar, (uint64_t)(placed * 1000), 1000);
    else
        progress_update(&b->bar, (uint64_t)(seconds * 1000), (uint64_t)(b->limit * 1000) + 1); /* 0 is unknown */
}

static bool plan_problem(const request *r, const problem *p, const char *name, report *out)
{
    solve_options options = r->search;
    search_bar b = { .limit = options.seconds };
    made_plan m;

    progress_begin(&b.bar, "placing", name);
    if (b.bar.shown) options.progress = show_search;
    options.user = &b;
    uint64_t began = clock_now_ns();
    make_plan(p, &options, r->streams_apart, &m);
    double seconds = (double)(clock_now_ns() - began) * 1e-9;
    progress_end(&b.bar);

    char reason[240];
    bool good = plan_serves(&m.plan, p, reason, sizeof reason);
    if (good)
        report_add(out, name, &m, p, seconds);
    else
        cli_say("plan", "%s: the plan is wrong: %s; please report this trace", name, reason);
    if (good && r->output) good = plan_write(r->output, &m.plan, p);
    made_plan_release(&m);
    return good;
}

/* That of `paths[at]`, one of `count`. */
static bool plan_trace(const request *r, char *const *paths, int count, int at, report *out)
{
    trace t;
    script sc;
    problem p;
    char error[256];

    if (!cli_script("plan", paths, count, at, &t, &sc)) return false;
    const char *name = cli_trace_name(&t, paths[at]);
    bool good = problem_build(&sc, r->streams_apart, &p, error, sizeof error);
    if (good) cli_say_left_out("plan", name, &sc, "they are not planned");
    script_release(&sc);
    if (good) {
        if (p.count == 0) cli_say("plan", "%s: allocates nothing, so there is nothing to plan", name);
        good = plan_problem(r, &p, name, out);
        problem_release(&p);
    } else {
        cli_say("plan", "%s: %s", paths[at], error);
    }
    trace_release(&t);
    return good;
}

static bool plan_all(const request *r, char **paths, int count)
{
    report out;
    bool good = true;
    report_init(&out);
    for (int i = 0; i < count; i++) good &= plan_trace(r, paths, count, i, &out);

    if (r->json) good &= json_write("plan", out.array, r->json);
    bool taken = output_is_stdout(r->json) || output_is_stdout(r->output);
    if (!taken && json_array_size(out.array)) table_print(&out.rows, stdout);
    table_release(&out.rows);
    json_decref(out.array);
    return good;
}

static bool show(const char *path)
{
    weir_plan *plan;
    char reason[240];
    if (!plan_read("plan", path, &plan)) return false;

    bool good = plan_holds(plan, reason, sizeof reason);
    if (!good) cli_say("plan", "%s: the plan is wrong: %s", path, reason);
    plan_list(plan, stdout);
    weir_plan_destroy(plan);
    return good;
}

static bool take_seconds(const char *text, double *seconds)
{
    char *end;
    if (!strchr("0123456789.", text[0]) || strpbrk(text, "xX")) return false;
    *seconds = strtod(text, &end);
    return end != text && *end == '\0' && *seconds >= 0 && *seconds <= 86400;
}

static bool take_option(request *r, int option)
{
    uint64_t count;
    r->makes |= strchr("atsT", option) != NULL;
    switch (option) {
    case 'o': r->output = optarg; return true;
    case 'S': r->show = optarg; return true;
    case 'a': r->streams_apart = true; return true;
    case 'j': r->json = optarg; return true;
    case 't':
        if (take_seconds(optarg, &r->search.seconds)) return true;
        cli_usage("plan", "--time '%s' is not a number of seconds from 0 to 86400", optarg);
        return false;
    case 's':
        if (cli_count(optarg, 0, UINT32_MAX, &r->search.seed)) return true;
        cli_usage("plan", "--seed '%s' is not a number from 0 to %u", optarg, UINT32_MAX);
        return false;
    case 'T':
        if (cli_count(optarg, 1, MOST_THREADS, &count)) {
            r->search.threads = (unsigned)count;
            return true;
        }
        cli_usage("plan", "--threads '%s' is not a number from 1 to %d", optarg, MOST_THREADS);
        return false;
    default: return false;
    }
}

/* False after reporting which options contradict each other. */
static bool makes_sense(const request *r, int traces)
{
    if (r->show && (traces || r->output || r->json))
        cli_usage("plan", "--show FILE lists an existing plan; it cannot be combined with a trace, an output or JSON");
    else if (r->show && r->makes)
        cli_usage("plan", "--show FILE lists an existing plan; options of how to make one do not apply");
    else if (!r->show && traces == 0)
        cli_usage("plan", "no trace given; name at least one file, or - for stdin");
    else if (r->output && traces != 1)
        cli_usage("plan", "-o writes the plan of one trace; %d were given", traces);
    else
        return true;
    return false;
}

static unsigned processors(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > MOST_THREADS ? MOST_THREADS : (unsigned)online;
}

int cmd_plan(int argc, char **argv)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' },
        { "show", required_argument, NULL, 'S' },
        { "streams-apart", no_argument, NULL, 'a' },
        { "time", required_argument, NULL, 't' },
        { "seed", required_argument, NULL, 's' },
        { "threads", required_argument, NULL, 'T' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    request r = { .search = { .seed = 1, .seconds = 5, .threads = processors() } };
    for (int option; (option = cli_option("plan", argc, argv, "o:t:h", options)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (!take_option(&r, option)) return COMMAND_USAGE;
    }
    int traces = argc - optind;
    if (!makes_sense(&r, traces)) return COMMAND_USAGE;
    if (!cli_spares_traces("plan", argv + optind, traces, r.output, r.json)) return COMMAND_USAGE;
    bool good = r.show ? show(r.show) : plan_all(&r, argv + optind, traces);
    return good ? 0 : COMMAND_FAILED;
}
