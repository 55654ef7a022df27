/* weir stat: what is in a trace. */
#include "cli.h"
#include "command.h"
#include "output/caller.h"
#include "output/file.h"
#include "output/json.h"
#include "output/stack.h"
#include "output/table.h"
#include "output/text.h"
#include "timeline/summary.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir stat [OPTION]... TRACE...\n\n"
    "Says what is in traces: events by kind, peaks of requested, active and reserved bytes with the holes at those\n"
    "moments, devices, pools and streams, sizes and lifetimes, the largest allocations at the peak, and failures, with the\n"
    "memory as it stood then.\n\n"
    "  -n, --largest N   how many of the largest allocations to list, 0 to 10000; default 10\n"
    "      --json FILE   the results as JSON; - is stdout, instead of the text\n"
    "  -h, --help        this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

static const char *const kinds[SUMMARY_KINDS] = { [WEIR_EVENT_ALLOC] = "alloc",
                                                  [WEIR_EVENT_FREE_REQUESTED] = "free_requested",
                                                  [WEIR_EVENT_FREE_COMPLETED] = "free_completed",
                                                  [WEIR_EVENT_SEGMENT_ALLOC] = "segment_alloc",
                                                  [WEIR_EVENT_SEGMENT_FREE] = "segment_free",
                                                  [WEIR_EVENT_SEGMENT_MAP] = "segment_map",
                                                  [WEIR_EVENT_SEGMENT_UNMAP] = "segment_unmap",
                                                  [WEIR_EVENT_OOM] = "oom",
                                                  [WEIR_EVENT_SNAPSHOT] = "snapshot",
                                                  [WEIR_EVENT_RECORD_STREAM] = "record_stream",
                                                  [WEIR_EVENT_LABEL] = "label",
                                                  [WEIR_EVENT_DECISION] = "decision",
                                                  [WEIR_EVENT_UNRECORDED_USE] = "unrecorded_use",
                                                  [WEIR_EVENT_UNORDERED_USE] = "unordered_use",
                                                  [WEIR_EVENT_LATE_WRITE] = "late_write",
                                                  [WEIR_EVENT_SUSPECT_FREE] = "suspect_free" };
_Static_assert(sizeof kinds / sizeof *kinds == WEIR_EVENT_SUSPECT_FREE + 1, "every kind has a name");

typedef struct stat_run {
    const char *name;
    const trace *t;
    timeline l;
    summary s;
    uint8_t *ranks; /* of frames, by caller.h */
} stat_run;

static double seconds(const timeline *l, uint32_t moment)
{
    return (double)l->times[moment < l->moments ? moment : l->moments - 1] / 1e9;
}

static double ratio(uint64_t reserved, uint64_t requested)
{
    return requested && reserved ? (double)reserved / (double)requested : NAN;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static void cell_size(table *t, uint64_t bytes)
{
    char size[TABLE_SIZE];
    table_cell(t, "%s", table_size(bytes, size));
}

static void cell_known(table *t, bool known, uint64_t bytes)
{
    if (known)
        cell_size(t, bytes);
    else
        table_cell(t, "-");
}

static void cell_count(table *t, uint64_t count)
{
    table_cell(t, "%" PRIu64, count);
}

static void cell_pool(table *t, const uint64_t pool[2])
{
    if (pool[0] || pool[1])
        table_cell(t, "%" PRIu64 ",%" PRIu64, pool[0], pool[1]);
    else
        table_cell(t, "default");
}

/* Of long ones the beginning of the path is cut, and the end of the function: the file, the line and the name stay. */
static void cell_frame(table *t, const char *frame)
{
    char place[100], name[200 - sizeof place];
    const char *function = caller_function(frame);
    if (function == frame) {
        char shown[sizeof place + sizeof name];
        table_cell(t, "%s", text_plain(frame, shown, sizeof shown));
        return;
    }
    table_cell(t, "%s%s", text_tail(frame, function, place, sizeof place), text_plain(function, name, sizeof name));
}

static void finish(table *t)
{
    putchar('\n');
    table_print(t, stdout);
    table_release(t);
}

static void print_peaks(const stat_run *r)
{
    static const char *const titles[] = { "AT THE PEAK", "OPERATION", "TIME",  "REQUESTED", "ACTIVE",      "RESERVED",
                                          "RATIO",       "SEGMENTS",  "HOLES", "IN HOLES",  "LARGEST HOLE" };
    const instant *peaks[] = { &r->s.requested, &r->s.active, &r->s.reserved };
    static const char *const names[] = { "requested", "active", "reserved" };
    table t;
    table_init(&t, "lrrrrrrrrrr");
    table_titles(&t, titles);
    for (size_t i = 0; i < 3; i++) {
        const instant *at = peaks[i];
        table_cell(&t, "%s", names[i]);
        cell_count(&t, at->moment);
        table_cell(&t, "%.3f s", seconds(&r->l, at->moment));
        cell_size(&t, at->requested);
        cell_size(&t, at->active);
        cell_size(&t, at->reserved);
        double overhead = ratio(at->reserved, at->requested);
        table_cell(&t, isnan(overhead) ? "-" : "%.3f", overhead);
        cell_count(&t, at->segments);
        cell_count(&t, at->holes);
        cell_size(&t, at->in_holes);
        cell_size(&t, at->largest_hole);
    }
    finish(&t);
}

static void print_kinds(const stat_run *r)
{
    static const char *const titles[] = { "EVENT", "COUNT", "BYTES" };
    table t;
    table_init(&t, "lrr");
    table_titles(&t, titles);
    for (size_t i = 1; i < SUMMARY_KINDS; i++) {
        if (!r->s.kinds[i].count) continue;
        table_cell(&t, "%s", kinds[i]);
        cell_count(&t, r->s.kinds[i].count);
        cell_size(&t, r->s.kinds[i].bytes);
    }
    finish(&t);
}

static void cells_group(table *t, const summary_group *g)
{
    cell_count(t, g->count);
    cell_size(t, g->bytes);
    cell_size(t, g->peak_requested);
    cell_size(t, g->peak_reserved);
}

static void print_places(const stat_run *r)
{
    static const char *const titles[] = { "DEVICE", "POOL",           "STREAM",       "ALLOCATIONS",
                                          "BYTES",  "PEAK REQUESTED", "PEAK RESERVED" };
    table t;
    table_init(&t, "rllrrrr");
    table_titles(&t, titles);
    for (size_t device = 0; device < r->s.device_count; device++) {
        size_t lanes = 0;
        for (size_t i = 0; i < r->l.lane_count; i++) {
            const timeline_lane *lane = &r->l.lanes[i];
            if (lane->device != (int)device) continue;
            lanes++;
            cell_count(&t, device);
            cell_pool(&t, lane->pool);
            table_cell(&t, "%#" PRIx64, lane->stream);
            cells_group(&t, &r->s.lanes[i]);
        }
        if (lanes < 2) continue;
        cell_count(&t, device);
        table_cell(&t, "all");
        table_cell(&t, "all");
        cells_group(&t, &r->s.devices[device]);
    }
    finish(&t);
}

static void print_sizes(const stat_run *r)
{
    static const char *const titles[] = { "SIZE FROM", "ALLOCATIONS", "BYTES", "PEAK REQUESTED" };
    table t;
    table_init(&t, "rrrr");
    table_titles(&t, titles);
    for (unsigned i = 0; i < SUMMARY_SIZES; i++) {
        if (!r->s.sizes[i].count) continue;
        cell_size(&t, i ? UINT64_C(1) << i : 0);
        cell_count(&t, r->s.sizes[i].count);
        cell_size(&t, r->s.sizes[i].bytes);
        cell_size(&t, r->s.sizes[i].peak_requested);
    }
    finish(&t);
}

static void print_lifetimes(const stat_run *r)
{
    static const char *const titles[] = { "LIVES FROM", "ALLOCATIONS", "BYTES" };
    table t;
    table_init(&t, "rrr");
    table_titles(&t, titles);
    uint64_t least = 1;
    for (unsigned i = 0; i < SUMMARY_LIFETIMES; i++, least *= 10) {
        if (!r->s.lifetimes[i].count) continue;
        if (i + 1 < SUMMARY_LIFETIMES)
            table_cell(&t, "%" PRIu64 " operations", least);
        else
            table_cell(&t, "to the end");
        cell_count(&t, r->s.lifetimes[i].count);
        cell_size(&t, r->s.lifetimes[i].bytes);
    }
    finish(&t);
}

/* What both tables of blocks end with: no empty column where the trace has no stacks. */
#define BLOCK_TITLES "DEVICE", "POOL", "STREAM", "ADDRESS", "SINCE", "UNTIL", "WHERE"

static bool has_stacks(const stat_run *r)
{
    return r->t->stacks.count > 0;
}

static void cells_block(table *t, const stat_run *r, const timeline_block *b)
{
    const timeline_lane *lane = &r->l.lanes[b->lane];
    table_cell(t, "%d", lane->device);
    cell_pool(t, lane->pool);
    table_cell(t, "%#" PRIx64, lane->stream);
    table_cell(t, "%#" PRIx64, b->address);
    cell_count(t, b->from);
    table_cell(t, b->freed == TIMELINE_NEVER ? "end" : "%" PRIu32, b->freed);
    if (has_stacks(r)) cell_frame(t, caller_first(&r->t->stacks, r->ranks, b->stack));
}

static void print_largest(const stat_run *r)
{
    static const char *const titles[] = { "LARGEST AT PEAK", BLOCK_TITLES };
    if (!r->s.largest_count) return;
    table t;
    table_init(&t, has_stacks(r) ? "rrllrrrl" : "rrllrrr");
    table_titles(&t, titles);
    for (size_t i = 0; i < r->s.largest_count; i++) {
        const timeline_block *b = &r->l.blocks[r->s.largest[i]];
        cell_size(&t, b->bytes);
        cells_block(&t, r, b);
    }
    finish(&t);
}

static void print_ooms(const stat_run *r)
{
    static const char *const titles[] = { "OUT OF MEMORY", "OPERATION", "TIME",         "DEVICE",
                                          "DEVICE FREE",   "REQUESTED", "ACTIVE",       "RESERVED",
                                          "HOLES",         "IN HOLES",  "LARGEST HOLE", "WHERE" };
    if (!r->l.oom_count) return;
    const bool segments = r->l.has_segments;
    table t;
    table_init(&t, has_stacks(r) ? "rrrrrrrrrrrl" : "rrrrrrrrrrr");
    table_titles(&t, titles);
    for (size_t i = 0; i < r->s.failure_count; i++) {
        const timeline_oom *o = &r->l.ooms[i];
        const instant *at = &r->s.failures[i];
        cell_size(&t, o->bytes);
        cell_count(&t, o->moment);
        table_cell(&t, "%.3f s", (double)o->time / 1e9);
        table_cell(&t, "%d", r->l.lanes[o->lane].device);
        cell_known(&t, o->device_free, o->device_free);
        cell_size(&t, at->requested);
        cell_size(&t, at->active);
        cell_known(&t, segments, at->reserved);
        table_cell(&t, segments ? "%" PRIu64 : "-", at->holes);
        cell_known(&t, segments, at->in_holes);
        cell_known(&t, segments, at->largest_hole);
        if (has_stacks(r)) cell_frame(&t, caller_first(&r->t->stacks, r->ranks, o->stack));
    }
    finish(&t);
    if (r->l.oom_count > r->s.failure_count) printf("and %zu more\n", r->l.oom_count - r->s.failure_count);
}

/* Who keeps the largest hole of a failure from being larger. */
static void print_beside(const stat_run *r)
{
    static const char *const titles[] = { "BESIDE LARGEST HOLE", "OUT OF MEMORY AT", "SIDE", BLOCK_TITLES };
    table t;
    table_init(&t, has_stacks(r) ? "rrlrllrrrl" : "rrlrllrrr");
    table_titles(&t, titles);
    const size_t empty = t.count;
    for (size_t i = 0; i < r->s.failure_count; i++) {
        const uint32_t beside[] = { r->s.failures[i].below, r->s.failures[i].above };
        for (size_t side = 0; side < 2; side++) {
            if (beside[side] == TIMELINE_NEVER) continue;
            const timeline_block *b = &r->l.blocks[beside[side]];
            cell_size(&t, b->bytes);
            cell_count(&t, r->l.ooms[i].moment);
            table_cell(&t, side == 0 ? "below" : "above");
            cells_block(&t, r, b);
        }
    }
    if (t.count > empty)
        finish(&t);
    else
        table_release(&t);
}

static void print_all(const stat_run *r)
{
    printf("%s: %s, %zu events, %" PRIu32 " operations in %.3f s\n", r->name, r->t->format, r->t->count,
           r->l.moments - 2, seconds(&r->l, r->l.moments));
    if (r->t->dropped) printf("%s: begins late: %" PRIu64 " events were lost\n", r->name, r->t->dropped);
    if (r->l.residents) printf("%s: %zu blocks are from before the first event\n", r->name, r->l.residents);
    if (r->l.malformed)
        printf("%s: %zu events make no sense where they stand; weir check says which\n", r->name, r->l.malformed);
    if (!r->l.has_segments) printf("%s: no segments are recorded, so nothing is known of reserved bytes\n", r->name);
    print_peaks(r);
    print_kinds(r);
    print_places(r);
    print_sizes(r);
    print_lifetimes(r);
    print_largest(r);
    print_ooms(r);
    print_beside(r);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static json_t *json_pool(const uint64_t pool[2])
{
    json_t *array = json_array();
    json_push(array, json_count(pool[0]));
    json_push(array, json_count(pool[1]));
    return array;
}

static json_t *json_instant(const stat_run *r, const instant *at)
{
    json_t *object = json_object();
    json_add(object, "operation", json_count(at->moment));
    json_add(object, "time_ns", json_count(r->l.times[at->moment]));
    json_add(object, "requested", json_count(at->requested));
    json_add(object, "active", json_count(at->active));
    json_add(object, "reserved", json_count(at->reserved));
    json_add(object, "ratio", json_ratio(ratio(at->reserved, at->requested), 4));
    json_add(object, "segments", json_count(at->segments));
    json_add(object, "holes", json_count(at->holes));
    json_add(object, "in_holes", json_count(at->in_holes));
    json_add(object, "largest_hole", json_count(at->largest_hole));
    return object;
}

static void add_counts(json_t *object, uint64_t count, uint64_t bytes)
{
    json_add(object, "count", json_count(count));
    json_add(object, "bytes", json_count(bytes));
}

static void add_group(json_t *object, const summary_group *g)
{
    add_counts(object, g->count, g->bytes);
    json_add(object, "peak_requested", json_count(g->peak_requested));
    json_add(object, "peak_reserved", json_count(g->peak_reserved));
}

static void add_stack(json_t *object, const stat_run *r, uint32_t stack)
{
    const char *caller = caller_first(&r->t->stacks, r->ranks, stack);
    json_add(object, "caller", *caller ? json_text(caller) : json_null());
    json_add(object, "frames", stack_json(&r->t->stacks, stack));
}

static json_t *json_kinds(const summary *s)
{
    json_t *all = json_object();
    for (size_t i = 1; i < SUMMARY_KINDS; i++) {
        json_t *object = json_object();
        add_counts(object, s->kinds[i].count, s->kinds[i].bytes);
        json_add(all, kinds[i], object);
    }
    return all;
}

static json_t *json_devices(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->s.device_count; i++) {
        json_t *object = json_object();
        json_add(object, "device", json_count(i));
        add_group(object, &r->s.devices[i]);
        json_push(array, object);
    }
    return array;
}

static json_t *json_lanes(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->l.lane_count; i++) {
        const timeline_lane *lane = &r->l.lanes[i];
        json_t *object = json_object();
        json_add(object, "device", json_integer(lane->device));
        json_add(object, "pool", json_pool(lane->pool));
        json_add(object, "stream", json_count(lane->stream));
        add_group(object, &r->s.lanes[i]);
        json_push(array, object);
    }
    return array;
}

static json_t *json_sizes(const summary *s)
{
    json_t *array = json_array();
    for (unsigned i = 0; i < SUMMARY_SIZES; i++) {
        if (!s->sizes[i].count) continue;
        json_t *object = json_object();
        json_add(object, "from", json_count(i ? UINT64_C(1) << i : 0));
        add_counts(object, s->sizes[i].count, s->sizes[i].bytes);
        json_add(object, "peak_requested", json_count(s->sizes[i].peak_requested));
        json_push(array, object);
    }
    return array;
}

static json_t *json_lifetimes(const summary *s)
{
    json_t *array = json_array();
    uint64_t least = 1;
    for (unsigned i = 0; i < SUMMARY_LIFETIMES; i++, least *= 10) {
        if (!s->lifetimes[i].count) continue;
        json_t *object = json_object();
        json_add(object, "from", i + 1 < SUMMARY_LIFETIMES ? json_count(least) : json_null());
        add_counts(object, s->lifetimes[i].count, s->lifetimes[i].bytes);
        json_push(array, object);
    }
    return array;
}

/* NULL for TIMELINE_NEVER. */
static json_t *json_block(const stat_run *r, uint32_t number)
{
    if (number == TIMELINE_NEVER) return json_null();
    const timeline_block *b = &r->l.blocks[number];
    const timeline_lane *lane = &r->l.lanes[b->lane];
    json_t *object = json_object();
    json_add(object, "bytes", json_count(b->bytes));
    json_add(object, "address", json_count(b->address));
    json_add(object, "device", json_integer(lane->device));
    json_add(object, "pool", json_pool(lane->pool));
    json_add(object, "stream", json_count(lane->stream));
    json_add(object, "from", json_count(b->from));
    json_add(object, "until", b->freed == TIMELINE_NEVER ? json_null() : json_count(b->freed));
    add_stack(object, r, b->stack);
    return object;
}

static json_t *json_largest(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->s.largest_count; i++) json_push(array, json_block(r, r->s.largest[i]));
    return array;
}

static json_t *json_beside(const stat_run *r, const instant *at)
{
    const timeline_lane *lane = &r->l.lanes[at->largest_lane];
    json_t *object = json_object();
    json_add(object, "address", json_count(at->largest_at));
    json_add(object, "pool", json_pool(lane->pool));
    json_add(object, "stream", json_count(lane->stream));
    json_add(object, "below", json_block(r, at->below));
    json_add(object, "above", json_block(r, at->above));
    return object;
}

/* `at` is NULL for failures that were not looked into. */
static void add_state(json_t *object, const stat_run *r, const instant *at)
{
    const instant *held = r->l.has_segments ? at : NULL;
    json_add(object, "requested", at ? json_count(at->requested) : json_null());
    json_add(object, "active", at ? json_count(at->active) : json_null());
    json_add(object, "reserved", held ? json_count(held->reserved) : json_null());
    json_add(object, "segments", held ? json_count(held->segments) : json_null());
    json_add(object, "holes", held ? json_count(held->holes) : json_null());
    json_add(object, "in_holes", held ? json_count(held->in_holes) : json_null());
    json_add(object, "largest_hole", held ? json_count(held->largest_hole) : json_null());
    json_add(object, "beside", held && held->holes ? json_beside(r, held) : json_null());
}

static json_t *json_ooms(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->l.oom_count; i++) {
        const timeline_oom *o = &r->l.ooms[i];
        json_t *object = json_object();
        json_add(object, "operation", json_count(o->moment));
        json_add(object, "time_ns", json_count(o->time));
        json_add(object, "bytes", json_count(o->bytes));
        json_add(object, "device", json_integer(r->l.lanes[o->lane].device));
        json_add(object, "device_free", o->device_free ? json_count(o->device_free) : json_null());
        add_state(object, r, i < r->s.failure_count ? &r->s.failures[i] : NULL);
        add_stack(object, r, o->stack);
        json_push(array, object);
    }
    return array;
}

static json_t *json_all(const stat_run *r)
{
    json_t *object = json_object();
    json_add(object, "trace", json_text(r->name));
    json_add(object, "format", json_string(r->t->format));
    json_add(object, "events", json_count(r->t->count));
    json_add(object, "dropped", json_count(r->t->dropped));
    json_add(object, "operations", json_count(r->l.moments - 2));
    json_add(object, "duration_ns", json_count(r->l.times[r->l.moments - 1]));
    json_add(object, "residents", json_count(r->l.residents));
    json_add(object, "malformed", json_count(r->l.malformed));
    json_add(object, "peak_requested", json_count(r->s.requested.requested));
    json_add(object, "peak_active", json_count(r->s.active.active));
    json_add(object, "peak_reserved", json_count(r->s.reserved.reserved));
    json_t *peaks = json_object();
    json_add(peaks, "requested", json_instant(r, &r->s.requested));
    json_add(peaks, "active", json_instant(r, &r->s.active));
    json_add(peaks, "reserved", json_instant(r, &r->s.reserved));
    json_add(object, "peaks", peaks);
    json_add(object, "kinds", json_kinds(&r->s));
    json_add(object, "devices", json_devices(r));
    json_add(object, "streams", json_lanes(r));
    json_add(object, "sizes", json_sizes(&r->s));
    json_add(object, "lifetimes", json_lifetimes(&r->s));
    json_add(object, "largest", json_largest(r));
    json_add(object, "ooms", json_ooms(r));
    return object;
}

static bool stat_trace(const char *path, size_t largest, bool silent, json_t *array)
{
    trace t;
    if (!cli_trace("stat", path, &t)) return false;

    stat_run r = { .name = cli_trace_name(&t, path), .t = &t, .ranks = caller_ranks(&t.stacks) };
    timeline_build(&t, &r.l);
    summarize(&r.l, largest, &r.s);
    if (!silent) print_all(&r);
    json_push(array, json_all(&r));
    summary_release(&r.s);
    timeline_release(&r.l);
    free(r.ranks);
    trace_release(&t);
    return true;
}

int cmd_stat(int argc, char **argv)
{
    static const struct option options[] = {
        { "largest", required_argument, NULL, 'n' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *json = NULL;
    uint64_t largest = 10;
    for (int option; (option = cli_option("stat", argc, argv, "n:h", options)) != -1;) {
        switch (option) {
        case 'n':
            if (cli_count(optarg, 0, 10000, &largest)) break;
            return cli_usage("stat", "--largest '%s' is not a number from 0 to 10000", optarg);
        case 'j': json = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (optind == argc) return cli_usage("stat", "which trace? Name at least one file, or - for stdin");
    if (!cli_spares_traces("stat", argv + optind, argc - optind, json, NULL)) return COMMAND_USAGE;

    bool good = true, silent = output_is_stdout(json);
    json_t *array = json_array();
    for (int i = optind; i < argc; i++) {
        if (i > optind && !silent) putchar('\n');
        good &= stat_trace(argv[i], (size_t)largest, silent, array);
    }
    if (json) good &= json_write("stat", array, json);
    json_decref(array);
    return good ? 0 : COMMAND_FAILED;
}
