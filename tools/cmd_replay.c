/* weir replay: what recorded traces cost under each policy, measured by running the library itself. */
#include "cli.h"
#include "command.h"
#include "output/file.h"
#include "output/json.h"
#include "output/progress.h"
#include "output/table.h"
#include "output/text.h"
#include "replay/model.h"
#include "replay/policies.h"
#include "replay/reproduce.h"
#include "replay/run.h"
#include "script/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir replay [OPTION]... TRACE...\n\n"
    "Replays recorded allocation traces with the library's own allocator, once per policy, and says what each\n"
    "reserved and how long it took. No GPU is needed.\n\n"
    "  -p, --policy NAME         torch (PyTorch's rules), weir, segments, plan (weir, serving a plan of the trace)\n"
    "                            and learn (weir, planning by itself) run the library; others are models of other\n"
    "                            allocators, with options as NAME:OPTION=VALUE,...; 'all' names all, 'help' lists\n"
    "                            them; repeatable, or a list with commas; default: torch,weir\n"
    "  -b, --backend NAME        host, cuda or hip; default host\n"
    "  -m, --device-memory SIZE  memory of each device, such as 24GiB; default: 80GiB on host, all of it elsewhere\n"
    "  -r, --repeat N            warm passes after the cold one, 1 to 1000; default 3\n"
    "      --reproduce           also compare with the recorded segments, one by one; exit code 1 when they differ\n"
    "      --json FILE           the results as JSON; - is stdout, instead of the table\n"
    "  -h, --help                this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n"
    "Allocations that fail for lack of memory are counted; they are not an error.\n";

static const char *const backends[] = { "host", "cuda", "hip" };
enum { BACKENDS = sizeof backends / sizeof *backends };

enum { LEARNED_PASSES = 3 }; /* two to learn from */

typedef struct request {
    policies policies;
    const char *backend, *json;
    uint64_t device_memory, warm;
    bool reproduce;
} request;

static bool take_option(request *r, int option)
{
    switch (option) {
    case 'p': return policies_add(&r->policies, optarg);
    case 'b': return (r->backend = cli_word("replay", "back end", optarg, backends, BACKENDS)) != NULL;
    case 'j': r->json = optarg; return true;
    case 'R': r->reproduce = true; return true;
    case 'm': return cli_device_memory("replay", optarg, &r->device_memory);
    case 'r':
        if (cli_count(optarg, 1, 1000, &r->warm)) return true;
        cli_usage("replay", "--repeat '%s' is not a number from 1 to 1000", optarg);
        return false;
    default: return false;
    }
}

static bool spares_plans(const request *r)
{
    for (size_t i = 0; i < r->policies.count; i++) {
        const char *file = r->policies.at[i].plan.file;
        if (file[0] && !cli_spares_trace("replay", file, r->json)) return false;
    }
    return true;
}

/* What the results go to. */
typedef struct report {
    table rows;
    json_t *array;
} report;

static void report_init(report *out)
{
    static const char *const titles[] = { "TRACE",    "POLICY", "BACKEND",    "OPERATIONS", "REQUESTED",
                                          "RESERVED", "RATIO",  "WARM RATIO", "COLD/OP",    "WARM/OP",
                                          "CALLS",    "DRIVER", "OOM" };
    table_init(&out->rows, "lllrrrrrrrrrr");
    table_titles(&out->rows, titles);
    out->array = json_array();
}

static json_t *plan_json(const measurement *m)
{
    json_t *object = json_object();
    json_add(object, "served", json_count(m->plan.served));
    json_add(object, "late", json_count(m->plan.late));
    json_add(object, "missed", json_count(m->plan.missed));
    json_add(object, "resyncs", json_count(m->plan.resyncs));
    return object;
}

static void report_add(report *out, const char *name, const policy_choice *p, const measurement *m, const script *sc)
{
    const char *policy = p->text;
    char requested[TABLE_SIZE], reserved[TABLE_SIZE];
    const double ratio = measurement_ratio(m), ratio_warm = measurement_ratio_warm(m);
    const double share = sc->duration_ns ? m->driver_ns / (double)sc->duration_ns : NAN;

    table *t = &out->rows;
    table_cell(t, "%s", name);
    table_cell(t, "%s", policy);
    table_cell(t, "%s", m->backend);
    table_cell(t, "%" PRIu64, m->operations);
    table_cell(t, "%s", table_size(m->peak_requested, requested));
    table_cell(t, "%s", table_size(m->peak_reserved, reserved));
    table_cell(t, isnan(ratio) ? "-" : "%.3f", ratio);
    table_cell(t, isnan(ratio_warm) ? "-" : "%.3f", ratio_warm);
    table_cell(t, isnan(m->ns_per_op_cold) ? "-" : "%.1f ns", m->ns_per_op_cold);
    table_cell(t, isnan(m->ns_per_op_warm) ? "-" : "%.1f ns", m->ns_per_op_warm);
    table_cell(t, "%" PRIu64, m->driver_calls);
    table_cell(t, isnan(m->driver_ns) ? "-" : "%.2f ms", m->driver_ns / 1e6);
    table_cell(t, "%" PRIu64, m->oom);

    json_t *object = json_object();
    json_add(object, "trace", json_text(name));
    json_add(object, "policy", json_text(policy));
    json_add(object, "backend", json_string(m->backend));
    json_add(object, "operations", json_count(m->operations));
    json_add(object, "peak_requested", json_count(m->peak_requested));
    json_add(object, "peak_reserved", json_count(m->peak_reserved));
    json_add(object, "fragmentation", json_ratio(ratio, 6));
    json_add(object, "ns_per_op_cold", json_ratio(m->ns_per_op_cold, 2));
    json_add(object, "ns_per_op_warm", json_ratio(m->ns_per_op_warm, 2));
    json_add(object, "driver_calls", json_count(m->driver_calls));
    json_add(object, "driver_time_ns", isnan(m->driver_ns) ? json_null() : json_count((uint64_t)m->driver_ns));
    json_add(object, "driver_time_share", json_ratio(share, 6));
    json_add(object, "oom", json_count(m->oom));
    if (!p->model.peer) {
        json_add(object, "oom_warm", json_count(m->oom_warm));
        json_add(object, "peak_reserved_warm", json_count(m->peak_reserved_warm));
        json_add(object, "fragmentation_warm", json_ratio(ratio_warm, 6));
    }
    if (p->planned || p->learned) json_add(object, "plan", plan_json(m));
    if (sc->residents) json_add(object, "residents", json_count(sc->residents));
    if (sc->anomalies) json_add(object, "anomalies", json_count(sc->anomalies));
    if (sc->refused) json_add(object, "refused", json_count(sc->refused));
    json_push(out->array, object);
}

/* Runs a model, with as much memory as the host back end would have. */
static bool replay_model(const request *r, const trace *t, const script *sc, const policy_choice *p, measurement *m,
                         char error[SCRIPT_ERROR])
{
    if (!script_is_playable(sc, error)) return false;
    const char *text = getenv("WEIR_HOST_MEMORY");
    uint64_t bytes = r->device_memory ? r->device_memory : SESSION_HOST_MEMORY;
    if (!r->device_memory && text && text[0] && !cli_device_size(text, &bytes)) {
        snprintf(error, SCRIPT_ERROR, "WEIR_HOST_MEMORY is \"%.200s\", which is not a size from 2 MiB to 16 TiB", text);
        return false;
    }
    model_measure(sc, &t->settings, &p->model, bytes, false, m);
    return true;
}

static bool replay_policy(const request *r, const trace *t, const script *sc, const char *name, const policy_choice *p,
                          report *out)
{
    const char *policy = p->text;
    session_options options = { .policy = policy, .backend = r->backend, .device_memory = r->device_memory };
    measurement m = { 0 };
    served plan = { 0 };
    unsigned warm = (unsigned)r->warm;
    char error[SCRIPT_ERROR];
    progress bar;
    bool good = true;

    progress_begin(&bar, policy, name);
    if (p->planned) {
        options.policy = "weir";
        good = served_make(sc, &p->plan, &plan, error, sizeof error);
        options.plan = &plan.plan;
    }
    if (p->learned) {
        options.policy = "weir";
        options.learn = true;
        options.history = 8 * (uint64_t)(sc->before.count + sc->body.count + sc->after.count) + 1024;
        if (warm < LEARNED_PASSES - 1) warm = LEARNED_PASSES - 1;
    }
    if (p->model.peer)
        good = replay_model(r, t, sc, p, &m, error);
    else if (good)
        good = measure(sc, &t->settings, &options, warm, progress_on, &bar, &m, error);
    progress_end(&bar);
    served_release(&plan);
    if (m.note[0]) cli_say("replay", "%s, policy %s: %s", name, policy, m.note);
    if (!good) {
        if (error[0]) cli_say("replay", "%s, policy %s: %s", name, policy, error);
        return false;
    }
    const uint64_t failed = m.oom ? m.oom : m.oom_warm;
    if (failed)
        cli_say("replay", "%s, policy %s: %" PRIu64 " allocations failed%s; the first one:\n%s", name, policy, failed,
                m.oom ? "" : ", in warm passes only", m.oom_text);
    report_add(out, name, p, &m, sc);
    return true;
}

static bool replay_reproduce(const request *r, const trace *t, const script *sc, const char *name, FILE *to)
{
    reproduction result;
    char error[SCRIPT_ERROR];
    if (!reproduce(t, sc, r->device_memory, to, &result, error)) {
        cli_say("replay", "%s: %s", name, error);
        return false;
    }
    text_printf(to, "%s: reproduced: %zu of %zu segment events\n", name, result.reproduced, result.recorded);
    return result.same;
}

static bool asks_for_native(const request *r)
{
    bool asks = false;
    for (size_t i = 0; i < r->policies.count; i++) asks |= strcmp(r->policies.at[i].text, "torch") == 0;
    return asks;
}

/* Says where policy torch deviates from the recorded settings. */
static void remark_on_settings(const trace_settings *recorded, const char *name)
{
    config c;
    config_read(recorded, &c);
    const uint64_t segment = c.large_segment >> 20;
    if (segment % 2)
        cli_say("replay",
                "%s: recorded with large_segment_size_mb:%" PRIu64 "; policy torch uses %" PRIu64
                ", because its segments are multiples of 2 MiB",
                name, segment, segment + 1);
}

/* Says what the rows leave out or show differently from the recording. */
static void remark(const request *r, const trace *t, const script *sc, const char *name)
{
    char residents[CLI_RESIDENTS];
    if (sc->residents) cli_say("replay", "%s: %s", name, cli_residents(sc, residents));
    cli_say_left_out("replay", name, sc, "they are not replayed");
    if ((sc->expandable || t->settings.expandable_segments) && asks_for_native(r))
        cli_say(
            "replay",
            "%s: recorded with segments that grow by mapping (PyTorch's expandable_segments, weir's chunks); policy "
            "torch has PyTorch's native rules; 'torch-expandable' and 'weir' have the others",
            name);
    else if (asks_for_native(r))
        remark_on_settings(&t->settings, name);
}

static bool replay_trace(const request *r, char *const *paths, int count, int at, report *out)
{
    trace t;
    script sc;
    bool good = true;
    if (!cli_script("replay", paths, count, at, &t, &sc)) return false;
    const char *name = cli_trace_name(&t, paths[at]);
    remark(r, &t, &sc, name);
    for (size_t i = 0; i < r->policies.count; i++) good &= replay_policy(r, &t, &sc, name, &r->policies.at[i], out);
    /* JSON on stdout must not be mixed with text. */
    bool only_json = output_is_stdout(r->json);
    if (r->reproduce) good &= replay_reproduce(r, &t, &sc, name, only_json ? stderr : stdout);
    script_release(&sc);
    trace_release(&t);
    return good;
}

static bool replay_all(const request *r, char *const *paths, int count)
{
    report out;
    bool good = true;
    report_init(&out);
    for (int i = 0; i < count; i++) good &= replay_trace(r, paths, count, i, &out);

    if (r->json) good &= json_write("replay", out.array, r->json);
    if (!output_is_stdout(r->json) && json_array_size(out.array)) table_print(&out.rows, stdout);
    table_release(&out.rows);
    json_decref(out.array);
    return good;
}

int cmd_replay(int argc, char **argv)
{
    static const struct option options[] = {
        { "policy", required_argument, NULL, 'p' },
        { "backend", required_argument, NULL, 'b' },
        { "device-memory", required_argument, NULL, 'm' },
        { "repeat", required_argument, NULL, 'r' },
        { "reproduce", no_argument, NULL, 'R' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    request r = { .backend = "host", .warm = 3 };
    for (int option; (option = cli_option("replay", argc, argv, "p:b:m:r:h", options)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option == 'p' && strcmp(optarg, "help") == 0) {
            policies_release(&r.policies);
            policies_print(stdout);
            return 0;
        }
        if (!take_option(&r, option)) {
            policies_release(&r.policies);
            return COMMAND_USAGE;
        }
    }
    int code = COMMAND_USAGE;
    if (optind == argc)
        cli_usage("replay", "no trace given; name at least one file, or - for stdin");
    else if (cli_spares_traces("replay", argv + optind, argc - optind, r.json, NULL) && spares_plans(&r) &&
             (r.policies.count > 0 || policies_add(&r.policies, "torch,weir")))
        code = replay_all(&r, argv + optind, argc - optind) ? 0 : COMMAND_FAILED;
    policies_release(&r.policies);
    return code;
}
