/* weir check: is a trace well formed, what does it leak, and what did debug find while it was recorded? */
#include "cli.h"
#include "command.h"
#include "grow.h"
#include "map.h"
#include "misuse.h"
#include "output/file.h"
#include "output/json.h"
#include "output/table.h"
#include "output/text.h"
#include "replay/reproduce.h"
#include "timeline/segments.h"

#include <inttypes.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir check [OPTION]... TRACE...\n\n"
    "Says whether traces are well formed: that every free has its allocation, nothing is freed twice, no two live\n"
    "blocks or segments overlap, and blocks are in segments. Says what is still live at the end. If the program ran\n"
    "with WEIR_DEBUG=streams, also reports uses of blocks on streams that they were not ordered with. Exit code 1\n"
    "when a trace is malformed or has such uses; neither blocks that are live at the end nor suspicions are faults.\n\n"
    "      --reproduce  also replay with policy torch and compare with the recorded segments, one by one; exit code\n"
    "                   1 when they differ\n"
    "      --json FILE  the results as JSON; - is stdout, instead of the text\n"
    "  -h, --help       this text\n\n"
    "TRACE is a PyTorch memory snapshot (.pickle, .pickle.gz), an RMM log (.csv), a weir trace, or - for stdin.\n";

/* Faults, and places of misuse, shown per trace; all are counted. */
#define SHOWN 5

/* A block that holds its memory. The search tree of blocks compares overlapping ranges as equal, so that looking up a
 * range finds a block that it overlaps. */
typedef struct block {
    uint64_t address, bytes;
    int16_t device;
    bool pending; /* freed, not completed */
} block;

typedef struct check {
    const char *name;
    FILE *text; /* where faults are shown */
    void *live; /* tree of block */
    map seen;   /* addresses that were ever a block's; value: 1 + the event that made the last one; 0: none */
    uint64_t allocations, frees;
    uint64_t unmatched_frees, double_frees, overlaps;                  /* faults */
    uint64_t segment_double_frees, segment_overlaps, outside_segments; /* likewise */
    uint64_t unseen_frees; /* of the unmatched ones: at an address that no event had named */
    uint64_t residents;    /* blocks from before the first event, where the trace shows that it begins late */
    uint64_t incomplete_frees, waiting_bytes; /* freed, not completed */
    uint64_t live_blocks, live_bytes;         /* not freed */
    uint64_t left_out[WEIR_EVENT_LAST + 1];   /* by kind: events that the trace must lack, judging by the others */
    const bool *told;                         /* by kind: the trace has such events; valid while events are followed */
    uint64_t misuses, suspicions;
    uint64_t shown;
    size_t places[SHOWN]; /* events of the misuses shown */
    size_t place_count;
    bool begins_late, may_lack;
} check;

static uint64_t block_end(const block *b)
{
    uint64_t bytes = b->bytes ? b->bytes : 1;
    return b->address > UINT64_MAX - bytes ? UINT64_MAX : b->address + bytes;
}

static int by_range(const void *left, const void *right)
{
    const block *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (block_end(a) <= b->address) return -1;
    return a->address >= block_end(b);
}

/* A block that overlaps `bytes` bytes from the event's address on; NULL: none. */
static block *find_overlap(const check *c, const weir_event *e, uint64_t bytes)
{
    block wanted = { .address = e->address, .bytes = bytes, .device = e->device };
    block **found = tfind(&wanted, &c->live, by_range);
    return found ? *found : NULL;
}

static void drop(check *c, block *b)
{
    tdelete(b, &c->live, by_range);
    free(b);
}

static void fault(check *c, uint64_t *counter, size_t index, const weir_event *e, const char *what)
{
    ++*counter;
    if (!c->text || c->shown++ >= SHOWN) return;
    text_printf(c->text, "%s: event %zu: %s: %#" PRIx64 " (%" PRIu64 " bytes, device %d)\n", c->name, index, what,
                e->address, e->size, e->device);
}

static map_entry *see(check *c, const weir_event *e)
{
    map_entry *seen = map_put(&c->seen, e->device, e->address);
    seen->state = 1;
    return seen;
}

/* PyTorch's recorder can be told to leave kinds of events out; RMM's logs have all. */
static bool is_left_out(const check *c, weir_event_kind kind)
{
    return c->may_lack && !c->told[kind];
}

/* No block overlaps it. */
static void enter(check *c, const weir_event *e, bool pending)
{
    block *made = grow_new(1, sizeof *made);
    *made = (block){ e->address, e->size, e->device, pending };
    if (tsearch(made, &c->live, by_range)) return;
    cli_say("check", "out of memory; close other programs or use a machine with more");
    exit(COMMAND_FAILED);
}

static void on_alloc(check *c, size_t index, const weir_event *e)
{
    c->allocations++;
    bool overlaps = false;
    for (block *b; (b = find_overlap(c, e, e->size)); overlaps = true) drop(c, b);
    if (overlaps && is_left_out(c, WEIR_EVENT_FREE_REQUESTED) && is_left_out(c, WEIR_EVENT_FREE_COMPLETED))
        c->left_out[WEIR_EVENT_FREE_REQUESTED]++;
    else if (overlaps)
        fault(c, &c->overlaps, index, e, "allocation overlaps a block that was not freed");

    enter(c, e, false);
    see(c, e)->value = (uint32_t)index + 1;
}

/* From the request of its free on it is known. */
static void on_resident(check *c, const weir_event *e)
{
    c->residents++;
    if (e->kind == WEIR_EVENT_FREE_REQUESTED && !find_overlap(c, e, e->size)) enter(c, e, true);
}

/* A free where no block is live: of a block from before the trace, a double free, or a free of nothing. */
static void on_stray_free(check *c, size_t index, const weir_event *e, const block *overlapped)
{
    bool seen = map_find(&c->seen, e->device, e->address) != NULL;
    if (seen && !overlapped && is_left_out(c, WEIR_EVENT_ALLOC))
        c->left_out[WEIR_EVENT_ALLOC]++;
    else if (seen && !overlapped)
        fault(c, &c->double_frees, index, e, "second free");
    else if (c->begins_late && !seen && !overlapped)
        on_resident(c, e);
    else
        fault(c, &c->unmatched_frees, index, e, "free of an address that no allocation returned");
    c->unseen_frees += !c->begins_late && !seen && !overlapped;
    see(c, e);
}

static void on_free(check *c, size_t index, const weir_event *e)
{
    c->frees++;
    block *b = find_overlap(c, e, 1);
    if (!b || b->address != e->address)
        on_stray_free(c, index, e, b);
    else if (b->pending)
        fault(c, &c->double_frees, index, e, "second free");
    else
        b->pending = true;
}

static void on_completed(check *c, size_t index, const weir_event *e)
{
    block *b = find_overlap(c, e, 1);
    bool exact = b && b->address == e->address;
    if (exact && b->pending)
        drop(c, b);
    else if (exact)
        fault(c, &c->unmatched_frees, index, e, "free completed that was never requested");
    else if (!map_find(&c->seen, e->device, e->address))
        on_stray_free(c, index, e, b);
    /* Else the fault was reported at the free's request. */
}

/* The same misuse at the same stack is shown once. Without stacks, places cannot be told apart. */
static bool is_shown(const check *c, const trace *t, size_t index)
{
    const uint32_t stack = trace_stack(t, index);
    for (size_t i = 0; stack != 0 && i < c->place_count; i++)
        if (t->events[c->places[i]].kind == t->events[index].kind && trace_stack(t, c->places[i]) == stack) return true;
    return c->place_count == SHOWN;
}

static void on_misuse(check *c, const trace *t, size_t index, json_t *array)
{
    const weir_event *e = &t->events[index];
    const map_entry *seen = map_find(&c->seen, e->device, e->address);
    const size_t made = seen && seen->value ? seen->value - 1 : MISUSE_UNKNOWN;
    ++*(e->kind == WEIR_EVENT_SUSPECT_FREE ? &c->suspicions : &c->misuses);
    json_push(array, misuse_json(t, index, made));
    if (!c->text || is_shown(c, t, index)) return;
    c->places[c->place_count++] = index;
    misuse_print(c->text, c->name, t, index, made);
}

static void count_one(check *c, bool pending, uint64_t bytes)
{
    ++*(pending ? &c->incomplete_frees : &c->live_blocks);
    *(pending ? &c->waiting_bytes : &c->live_bytes) += bytes;
}

static void count_live(const void *node, VISIT visit, void *closure)
{
    check *c = closure;
    if (visit != postorder && visit != leaf) return;
    const block *b = *(block *const *)node;
    count_one(c, b->pending, b->bytes);
}

/* Counts the live blocks that the file lists: all, or only those that no event names. */
static void count_listed(check *c, const trace *t, bool all)
{
    for (size_t i = 0; i < t->live_count; i++) {
        const trace_live *l = &t->live[i], *before = i > 0 ? l - 1 : NULL; /* they are sorted */
        if (before && before->device == l->device && before->address == l->address) continue;
        if (!all && map_find(&c->seen, l->device, l->address)) continue;
        count_one(c, l->pending, l->requested ? l->requested : l->bytes);
    }
}

/* A block that the file lists as live but no event made proves that recording began late, and so does memory that was
 * held before the first event. */
static bool begins_late(const trace *t, const segments *s)
{
    if (t->dropped || s->late) return true;
    map made = { 0 };
    bool late = false;
    for (size_t i = 0; i < t->count; i++)
        if (t->events[i].kind == WEIR_EVENT_ALLOC) map_put(&made, t->events[i].device, t->events[i].address)->state = 1;
    for (size_t i = 0; !late && i < t->live_count; i++) late = !map_find(&made, t->live[i].device, t->live[i].address);
    map_release(&made);
    return late;
}

/* Frees without any allocation event: recording of allocations was left out. */
static bool lacks_allocations(const check *c)
{
    const bool frees = c->told[WEIR_EVENT_FREE_REQUESTED] || c->told[WEIR_EVENT_FREE_COMPLETED];
    return frees && is_left_out(c, WEIR_EVENT_ALLOC);
}

static void on_segments(check *c, segments *s, size_t index, const weir_event *e)
{
    switch (segments_follow(s, e)) {
    case SEGMENTS_FINE: break;
    case SEGMENTS_LEFT_OUT: c->left_out[segments_lacks(s, e->kind)]++; break;
    case SEGMENTS_OVERLAP: fault(c, &c->segment_overlaps, index, e, "segment overlaps one that was not freed"); break;
    case SEGMENTS_SECOND_FREE: fault(c, &c->segment_double_frees, index, e, "second free of a segment"); break;
    case SEGMENTS_OUTSIDE: fault(c, &c->outside_segments, index, e, "allocation outside all segments"); break;
    }
}

/* A snapshot lists blocks, segments and settings beside its events, also once it is converted. A log of RMM has none of
 * them, and its recorder leaves nothing out. */
static bool may_lack_kinds(const trace *t)
{
    return strcmp(t->format, "pytorch-snapshot") == 0 || t->settings.known || t->live_count || t->segment_count;
}

/* `misuses` receives one object for each misuse. */
static void examine(check *c, const trace *t, json_t *misuses)
{
    segments s;
    segments_init(&s, t);
    c->told = s.told;
    c->may_lack = may_lack_kinds(t);
    c->begins_late = begins_late(t, &s) || lacks_allocations(c);
    for (size_t i = 0; i < t->count; i++) {
        const weir_event *e = &t->events[i];
        on_segments(c, &s, i, e);
        switch (e->kind) {
        case WEIR_EVENT_ALLOC: on_alloc(c, i, e); break;
        case WEIR_EVENT_FREE_REQUESTED: on_free(c, i, e); break;
        case WEIR_EVENT_FREE_COMPLETED: on_completed(c, i, e); break;
        default:
            if (misuse_is(e)) on_misuse(c, t, i, misuses);
        }
    }
    /* Then only the list knows. */
    const bool listed = t->live_count && (c->left_out[WEIR_EVENT_FREE_REQUESTED] || is_left_out(c, WEIR_EVENT_ALLOC));
    if (!listed) twalk_r(c->live, count_live, c);
    count_listed(c, t, listed);
    tdestroy(c->live, free);
    map_release(&c->seen);
    segments_release(&s);
}

static uint64_t segment_faults(const check *c)
{
    return c->segment_double_frees + c->segment_overlaps + c->outside_segments;
}

static bool well_formed(const check *c)
{
    return c->unmatched_frees + c->double_frees + c->overlaps + segment_faults(c) == 0;
}

static void print_beginning(const check *c, const trace *t)
{
    text_printf(stdout, "%s: the recording begins late: ", c->name);
    if (t->dropped) printf("%" PRIu64 " events lost, ", t->dropped);
    printf("%" PRIu64 " frees of blocks that were allocated before it\n", c->residents);
}

static const struct left_out {
    const char *action, *other, *shown_by;
} left_outs[WEIR_EVENT_LAST + 1] = {
    [WEIR_EVENT_ALLOC] = { "alloc", NULL, "blocks are freed twice" },
    [WEIR_EVENT_FREE_REQUESTED] = { "free_requested", "free_completed", "blocks overlap earlier ones" },
    [WEIR_EVENT_SEGMENT_ALLOC] = { "segment_alloc", NULL, "segments are freed twice" },
    [WEIR_EVENT_SEGMENT_FREE] = { "segment_free", NULL,
                                  "segments overlap earlier ones, or blocks are outside all segments" },
    [WEIR_EVENT_SEGMENT_MAP] = { "segment_map", NULL, "ranges are unmapped twice" },
    [WEIR_EVENT_SEGMENT_UNMAP] = { "segment_unmap", NULL,
                                   "ranges are mapped over earlier ones, or blocks are outside all ranges" },
};

static void print_left_out(const check *c)
{
    for (size_t i = 0; i <= WEIR_EVENT_LAST; i++) {
        const struct left_out *l = &left_outs[i];
        if (c->left_out[i] == 0) continue;
        text_printf(stdout,
                    "%s: recorded without %s%s%s: %" PRIu64
                    " %s; record without skip_actions, because what depends on these events is not known\n",
                    c->name, l->action, l->other ? ", " : "", l->other ? l->other : "", c->left_out[i], l->shown_by);
    }
}

static json_t *left_out_json(const check *c)
{
    json_t *array = json_array();
    for (size_t i = 0; i <= WEIR_EVENT_LAST; i++) {
        if (c->left_out[i] == 0) continue;
        json_push(array, json_string(left_outs[i].action));
        if (left_outs[i].other) json_push(array, json_string(left_outs[i].other));
    }
    return array;
}

static void print_summary(const check *c, const trace *t)
{
    char size[TABLE_SIZE];
    const bool good = well_formed(c);
    if (c->shown > SHOWN) text_printf(stdout, "%s: and %" PRIu64 " more faults\n", c->name, c->shown - SHOWN);
    text_printf(stdout, "%s: %s; %s, %zu events, %" PRIu64 " allocations, %" PRIu64 " frees\n", c->name,
                good ? "well formed" : "malformed", t->format, t->count, c->allocations, c->frees);
    if (!good)
        text_printf(stdout, "%s: %" PRIu64 " unmatched frees, %" PRIu64 " double frees, %" PRIu64 " overlaps\n",
                    c->name, c->unmatched_frees, c->double_frees, c->overlaps);
    if (c->unseen_frees)
        text_printf(
            stdout,
            "%s: %" PRIu64
            " of the unmatched frees are of addresses not seen before; if the recording began late, their blocks were "
            "allocated before it\n",
            c->name, c->unseen_frees);
    if (segment_faults(c))
        text_printf(stdout,
                    "%s: %" PRIu64 " double frees of segments, %" PRIu64 " overlaps of segments, %" PRIu64
                    " allocations outside all segments\n",
                    c->name, c->segment_double_frees, c->segment_overlaps, c->outside_segments);
    print_left_out(c);
    if (c->begins_late) print_beginning(c, t);
    if (t->stacks.lost)
        text_printf(stdout, "%s: call stacks left out for lack of room (raise WEIR_HISTORY_STACKS_KEPT): %" PRIu64 "\n",
                    c->name, t->stacks.lost);
    if (c->misuses + c->suspicions)
        text_printf(stdout,
                    "%s: uses of blocks on streams that they were not ordered with: %" PRIu64 ", and %" PRIu64
                    " suspected\n",
                    c->name, c->misuses, c->suspicions);
    if (c->incomplete_frees)
        text_printf(stdout, "%s: frees never completed: %" PRIu64 " blocks, %s\n", c->name, c->incomplete_frees,
                    table_size(c->waiting_bytes, size));
    text_printf(stdout, "%s: live at the end: %" PRIu64 " blocks, %s\n", c->name, c->live_blocks,
                table_size(c->live_bytes, size));
}

static json_t *summary_json(const check *c, const trace *t, json_t *misuses)
{
    json_t *object = json_object();
    json_add(object, "trace", json_text(c->name));
    json_add(object, "format", json_string(t->format));
    json_add(object, "well_formed", json_boolean(well_formed(c)));
    json_add(object, "events", json_count(t->count));
    json_add(object, "allocations", json_count(c->allocations));
    json_add(object, "frees", json_count(c->frees));
    json_add(object, "unmatched_frees", json_count(c->unmatched_frees));
    json_add(object, "double_frees", json_count(c->double_frees));
    json_add(object, "overlaps", json_count(c->overlaps));
    json_add(object, "incomplete_frees", json_count(c->incomplete_frees));
    json_add(object, "begins_late", json_boolean(c->begins_late));
    json_add(object, "dropped", c->begins_late && !t->dropped ? json_null() : json_count(t->dropped));
    json_add(object, "residents", json_count(c->residents));
    json_add(object, "stacks_lost", json_count(t->stacks.lost));
    json_add(object, "live_blocks", json_count(c->live_blocks + c->incomplete_frees)); /* until the free completes */
    json_add(object, "live_bytes", json_count(c->live_bytes + c->waiting_bytes));
    json_add(object, "stream_misuses", misuses);
    json_add(object, "segment_double_frees", json_count(c->segment_double_frees));
    json_add(object, "segment_overlaps", json_count(c->segment_overlaps));
    json_add(object, "outside_segments", json_count(c->outside_segments));
    json_add(object, "waiting_bytes", json_count(c->waiting_bytes));
    json_add(object, "left_out", left_out_json(c));
    return object;
}

static bool check_reproduce(const trace *t, const char *name, FILE *text, json_t *object)
{
    script sc;
    reproduction result;
    char error[SCRIPT_ERROR];

    bool good = script_build(t, &sc, error, sizeof error);
    if (good) {
        good = reproduce(t, &sc, 0, text, &result, error);
        script_release(&sc);
    }
    if (!good) cli_say("check", "%s: %s", name, error);
    if (good && text)
        text_printf(text, "%s: reproduced: %zu of %zu segment events\n", name, result.reproduced, result.recorded);
    json_add(object, "segment_events", good ? json_count(result.recorded) : json_null());
    json_add(object, "reproduced", good ? json_count(result.reproduced) : json_null());
    json_add(object, "not_compared", good ? json_null() : json_text(error));
    return good && result.same;
}

/* That of `paths[at]`, one of `count`. */
static bool check_trace(char *const *paths, int count, int at, bool reproducing, FILE *text, json_t *array)
{
    trace t;
    if (!cli_trace("check", paths, count, at, &t)) return false;

    check c = { .name = cli_trace_name(&t, paths[at]), .text = text };
    json_t *misuses = json_array();
    examine(&c, &t, misuses);
    if (text) print_summary(&c, &t);

    bool good = well_formed(&c) && c.misuses == 0;
    json_t *object = summary_json(&c, &t, misuses);
    if (reproducing) good &= check_reproduce(&t, c.name, text, object);
    json_push(array, object);
    trace_release(&t);
    return good;
}

int cmd_check(int argc, char **argv)
{
    static const struct option options[] = {
        { "reproduce", no_argument, NULL, 'R' },
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *json = NULL;
    bool reproducing = false;
    for (int option; (option = cli_option("check", argc, argv, "h", options)) != -1;) {
        switch (option) {
        case 'R': reproducing = true; break;
        case 'j': json = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (optind == argc) return cli_usage("check", "no trace given; name at least one file, or - for stdin");
    if (!cli_spares_traces("check", argv + optind, argc - optind, json, NULL)) return COMMAND_USAGE;

    bool good = true;
    FILE *text = output_is_stdout(json) ? NULL : stdout;
    json_t *array = json_array();
    for (int i = 0; i < argc - optind; i++)
        good &= check_trace(argv + optind, argc - optind, i, reproducing, text, array);
    if (json) good &= json_write("check", array, json);
    json_decref(array);
    return good ? 0 : COMMAND_FAILED;
}
