/* weir advise: which setting of PyTorch's allocator a job should use, and which card it needs. */
#include "cli.h"
#include "command.h"
#include "grow.h"
#include "output/file.h"
#include "output/json.h"
#include "output/progress.h"
#include "output/table.h"
#include "output/text.h"
#include "replay/advise.h"
#include "script/demand.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir advise [OPTION]... TRACE...\n\n"
    "Replays recorded allocation traces under the settings of PyTorch's allocator and under weir, and says which fit,\n"
    "what each would reserve, and which is best. No GPU is needed.\n\n"
    "  -m, --device-memory SIZE  memory of each device, such as 24GiB; default: name a common card that would do\n"
    "  -c, --context SIZE        the part of it that the CUDA context and libraries take; default 0.6GiB\n"
    "      --json FILE           the results as JSON; - is stdout, instead of the text\n"
    "  -h, --help                this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n"
    "That nothing fits is a result, not an error.\n";

#define CONTEXT UINT64_C(644245094)         /* 0.6 GiB */
#define MOST_CONTEXT ((uint64_t)7 << 30)    /* leaves some memory even of the smallest card */
#define SMALLEST_ROOM ((uint64_t)2 << 20)   /* one segment */
#define VARIABLE "PYTORCH_CUDA_ALLOC_CONF"  /* understood by all releases */
#define NEWER_VARIABLE "PYTORCH_ALLOC_CONF" /* of releases since late 2025, which deprecate the other name */

typedef struct request {
    advise_options options;
    const char *json;
} request;

static bool take_option(request *r, int option)
{
    switch (option) {
    case 'm': return cli_device_memory("advise", optarg, &r->options.device_memory);
    case 'c':
        if (cli_size(optarg, &r->options.context) && r->options.context <= MOST_CONTEXT) return true;
        cli_usage("advise", "--context '%s' is not a size up to 7 GiB; give a size such as 0.6GiB or 500M", optarg);
        return false;
    case 'j': r->json = optarg; return true;
    default: return false;
    }
}

static bool makes_sense(const request *r, int traces)
{
    const advise_options *o = &r->options;
    char context[TABLE_SIZE];
    if (traces == 0)
        cli_usage("advise", "no trace given; name at least one file, or - for stdin");
    else if (o->device_memory && o->device_memory < o->context + SMALLEST_ROOM)
        cli_usage("advise",
                  "--device-memory leaves less than 2 MiB beside the %s of the context; change that with --context",
                  table_size(o->context, context));
    else
        return true;
    return false;
}

static void print_fit(table *t, const outcome *o, const request *r)
{
    if (!r->options.device_memory) return;
    if (o->whole.oom)
        table_cell(t, "out of memory %s operation %zu", o->again ? "after" : "at", o->failed);
    else
        table_cell(t, "yes");
}

static void print_card(table *t, const outcome *o)
{
    if (o->card)
        table_cell(t, "%" PRIu64 " GiB", o->card >> 30);
    else
        table_cell(t, "none");
}

static void print_settings(const advice *a, const request *r)
{
    static const char *const titles[] = { "SETTING", "FITS", "CARD", "RESERVED", "WASTE", "RATIO", "DRIVER" };
    static const char *const cards_only[] = { "SETTING", "CARD", "RESERVED", "WASTE", "RATIO", "DRIVER" };
    const bool device = r->options.device_memory != 0;
    char size[TABLE_SIZE];
    table t;
    table_init(&t, device ? "llrrrrr" : "lrrrrr");
    table_titles(&t, device ? titles : cards_only);
    for (size_t i = 0; i < a->count; i++) {
        const outcome *o = &a->at[i];
        const measurement *m = &o->whole;
        table_cell(&t, "%s", o->setting.name);
        print_fit(&t, o, r);
        print_card(&t, o);
        /* The figures of a run that ended for want of memory say nothing about the whole job. */
        table_cell(&t, m->oom ? "-" : "%s", table_size(m->peak_reserved, size));
        table_cell(&t, m->oom ? "-" : "%s", table_size(measurement_waste(m), size));
        const double ratio = measurement_ratio(m);
        table_cell(&t, m->oom || isnan(ratio) ? "-" : "%.3f", ratio);
        table_cell(&t, m->oom ? "-" : "%.2f ms", m->driver_ns / 1e6);
    }
    table_print(&t, stdout);
    table_release(&t);
}

/* Of PyTorch's settings and weir, the one that fits the smallest card; NULL when none fits any. */
static const outcome *smallest_card(const advice *a)
{
    const outcome *best = NULL;
    for (size_t i = 0; i < a->count; i++)
        if (a->at[i].card && (!best || a->at[i].card < best->card)) best = &a->at[i];
    return best;
}

static void print_peak(const char *whose, const outcome *o)
{
    char size[TABLE_SIZE];
    const double ratio = measurement_ratio(&o->whole);
    printf("%s: peak %s", whose, table_size(o->whole.peak_reserved, size));
    if (isnan(ratio))
        putchar('\n');
    else
        printf(", %.3f x what is requested\n", ratio);
}

/* Where the job itself uses more than the allocator may, whatever the setting. */
static void print_shortage(const request *r, const script *sc)
{
    char used[TABLE_SIZE], left[TABLE_SIZE];
    const uint64_t beside = advise_device(&r->options) - r->options.context;
    uint64_t *each = grow_new((size_t)sc->devices, sizeof *each), most = 0;
    (void)script_demand(sc, true, each);
    for (int device = 0; device < sc->devices; device++)
        if (each[device] > most) most = each[device];
    if (most > beside)
        printf("The job %s %s at its peak%s, and %s are left beside the context%s: no setting can make it fit.\n",
               sc->refused ? "asks for" : "uses", table_size(most, used),
               sc->refused ? ", with what failed when recorded" : "", table_size(beside, left),
               r->options.device_memory ? "" : " on the largest common card");
    free(each);
}

static void print_best(const advice *a, const request *r, const script *sc)
{
    const outcome *weir = &a->at[a->count - 1];
    if (a->best < a->count) {
        const outcome *o = &a->at[a->best];
        print_peak("Best of PyTorch", o);
        if (strcmp(o->setting.name, "default") == 0)
            printf("    leave " VARIABLE " unset\n");
        else
            printf("    " VARIABLE "='%s'    (" NEWER_VARIABLE " in newer releases)\n", o->setting.name);
    } else {
        puts("Best of PyTorch: no setting fits");
    }
    if (weir->whole.oom) {
        puts("weir: does not fit");
    } else {
        print_peak("weir", weir);
        puts("    import weir.torch\n    weir.torch.install()");
    }
    if (a->best < a->count || !weir->whole.oom) return;
    print_shortage(r, sc);
    const outcome *o = smallest_card(a);
    if (o)
        printf("A card of %" PRIu64 " GiB would do, with %s.\n", o->card >> 30, o->setting.name);
    else
        puts("No common card would do.");
}

static void print_check(const advice *a)
{
    if (!a->checked) {
        puts("Not checked: one half of the trace allocates nothing, or does not fit with any setting.");
        return;
    }
    const outcome *chosen = &a->at[a->chosen];
    printf("Chosen on the first half alone: %s; held on the second half: ", chosen->setting.name);
    if (a->held)
        printf("yes, %.2f x\n", measurement_ratio(&chosen->second));
    else if (a->better == a->count)
        puts("no, nothing fits there");
    else if (chosen->second.oom)
        printf("no, it runs out of memory there; %s was better\n", a->at[a->better].setting.name);
    else
        printf("no, %.2f x: %s was better there, %.2f x\n", measurement_ratio(&chosen->second),
               a->at[a->better].setting.name, measurement_ratio(&a->at[a->better].second));
}

static json_t *outcome_json(const outcome *o)
{
    const measurement *m = &o->whole;
    const bool fits = m->oom == 0;
    json_t *object = json_object();
    json_add(object, "setting", json_text(o->setting.name));
    json_add(object, "policy", json_string(o->setting.policy));
    json_add(object, "fits", json_boolean(fits));
    json_add(object, "failed_operation", fits ? json_null() : json_count(o->failed));
    json_add(object, "card", o->card ? json_count(o->card) : json_null());
    json_add(object, "peak_reserved", fits ? json_count(m->peak_reserved) : json_null());
    json_add(object, "waste", fits ? json_count(measurement_waste(m)) : json_null());
    json_add(object, "fragmentation", json_ratio(fits ? measurement_ratio(m) : NAN, 6));
    json_add(object, "driver_time_ns", fits ? json_count((uint64_t)m->driver_ns) : json_null());
    json_add(object, "device", fits ? json_integer(m->fullest.device) : json_null());
    return object;
}

static json_t *name_json(const advice *a, size_t index)
{
    return index < a->count ? json_text(a->at[index].setting.name) : json_null();
}

static json_t *check_json(const advice *a)
{
    if (!a->checked) return json_null();
    const measurement *m = &a->at[a->chosen].second;
    json_t *object = json_object();
    json_add(object, "chosen", name_json(a, a->chosen));
    json_add(object, "held", json_boolean(a->held));
    json_add(object, "fragmentation", json_ratio(m->oom ? NAN : measurement_ratio(m), 6));
    json_add(object, "better", a->held ? json_null() : name_json(a, a->better));
    return object;
}

static json_t *advice_json(const advice *a, const request *r, const char *name, const script *sc)
{
    const uint64_t device = r->options.device_memory;
    json_t *object = json_object(), *settings = json_array();
    for (size_t i = 0; i < a->count; i++) json_push(settings, outcome_json(&a->at[i]));
    json_add(object, "trace", json_text(name));
    json_add(object, "operations", json_count(sc->operations));
    json_add(object, "device_memory", device ? json_count(device) : json_null());
    json_add(object, "context", json_count(r->options.context));
    if (sc->refused) json_add(object, "refused", json_count(sc->refused));
    if (sc->residents) json_add(object, "residents", json_count(sc->residents));
    if (sc->anomalies) json_add(object, "anomalies", json_count(sc->anomalies));
    json_add(object, "settings", settings);
    json_add(object, "best", name_json(a, a->best));
    json_add(object, "second_half", check_json(a));
    return object;
}

static bool has_devices(const script *sc)
{
    for (size_t i = 1; i < sc->stream_count; i++)
        if (sc->streams[i].device != sc->streams[0].device) return true;
    return false;
}

static void print_advice(const request *r, const advice *a, const script *sc, const char *name)
{
    char context[TABLE_SIZE], first[TABLE_SIZE], residents[CLI_RESIDENTS];
    text_printf(stdout, "%s: %zu operations; %s of each card are kept for the context\n", name, sc->operations,
                table_size(r->options.context, context));
    if (has_devices(sc))
        puts("several devices: RESERVED, WASTE and RATIO are of the fullest device, which CARD must hold; DRIVER is of "
             "all devices");
    if (sc->residents) text_printf(stdout, "%s; earlier peaks are not known\n", cli_residents(sc, residents));
    if (sc->anomalies)
        printf("%zu anomalies: events that contradict earlier ones; 'weir check' lists them\n", sc->anomalies);
    if (sc->refused)
        printf("%zu allocations failed when recorded, the first of %s; a setting fits only with memory for them too\n",
               sc->refused, table_size(sc->refused_first, first));
    print_settings(a, r);
    print_best(a, r, sc);
    print_check(a);
}

static bool advise_script(const request *r, const trace *t, const script *sc, const char *name, json_t *array)
{
    char error[SCRIPT_ERROR];
    progress bar;
    progress_begin(&bar, "advise", name);
    advice *a = advise(sc, &t->settings, &r->options, progress_on, &bar, error);
    progress_end(&bar);
    if (!a) {
        cli_say("advise", "%s: %s", name, error);
        return false;
    }
    if (a->left_out[0]) cli_say("advise", "%s: '%s' is left out: %s", name, t->settings.config, a->left_out);
    json_push(array, advice_json(a, r, name, sc));
    if (!output_is_stdout(r->json)) {
        if (json_array_size(array) > 1) putchar('\n');
        print_advice(r, a, sc, name);
    }
    free(a);
    return true;
}

static bool advise_trace(const request *r, char *const *paths, int count, int at, json_t *array)
{
    trace t;
    script sc;
    if (!cli_script("advise", paths, count, at, &t, &sc)) return false;
    bool good = sc.operations > 0;
    if (good)
        good = advise_script(r, &t, &sc, cli_trace_name(&t, paths[at]), array);
    else
        cli_say("advise", "%s: allocates nothing, so there is nothing to advise; 'weir check' says more", paths[at]);
    script_release(&sc);
    trace_release(&t);
    return good;
}

static bool advise_all(const request *r, char *const *paths, int count)
{
    bool good = true;
    json_t *array = json_array();
    for (int i = 0; i < count; i++) good &= advise_trace(r, paths, count, i, array);
    if (r->json) good &= json_write("advise", array, r->json);
    json_decref(array);
    return good;
}

int cmd_advise(int argc, char **argv)
{
    static const struct option options[] = {
        { "device-memory", required_argument, NULL, 'm' },
        { "context", required_argument, NULL, 'c' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    request r = { .options.context = CONTEXT };
    for (int option; (option = cli_option("advise", argc, argv, "m:c:h", options)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (!take_option(&r, option)) return COMMAND_USAGE;
    }
    if (!makes_sense(&r, argc - optind)) return COMMAND_USAGE;
    if (!cli_spares_traces("advise", argv + optind, argc - optind, r.json, NULL)) return COMMAND_USAGE;
    return advise_all(&r, argv + optind, argc - optind) ? 0 : COMMAND_FAILED;
}
