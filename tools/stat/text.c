#include "stat/run.h"

#include "output/caller.h"
#include "output/table.h"
#include "output/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Cuts the beginning of a long path and the end of a long function name: the file, the line and the name remain. */
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

/* The held memory, which a trace may not know. */
static void cells_held(table *t, const stat_run *r, const instant *at)
{
    const bool known = r->l.has_segments;
    const double overhead = known ? stat_ratio(at->reserved, at->requested) : NAN;
    cell_known(t, known, at->reserved);
    table_cell(t, isnan(overhead) ? "-" : "%.3f", overhead);
    table_cell(t, known ? "%" PRIu64 : "-", at->segments);
    table_cell(t, known ? "%" PRIu64 : "-", at->holes);
    cell_known(t, known, at->in_holes);
    cell_known(t, known, at->largest_hole);
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
    for (size_t i = 0; i < (r->l.has_segments ? 3 : 2); i++) {
        const instant *at = peaks[i];
        table_cell(&t, "%s", names[i]);
        cell_count(&t, at->moment);
        table_cell(&t, "%.3f s", stat_seconds(r, at->moment));
        cell_size(&t, at->requested);
        cell_size(&t, at->active);
        cells_held(&t, r, at);
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
        table_cell(&t, "%s", stat_kinds[i]);
        cell_count(&t, r->s.kinds[i].count);
        cell_size(&t, r->s.kinds[i].bytes);
    }
    finish(&t);
}

static void cells_group(table *t, const stat_run *r, const summary_group *g)
{
    cell_count(t, g->count);
    cell_size(t, g->bytes);
    cell_size(t, g->peak_requested);
    cell_known(t, r->l.has_segments, g->peak_reserved);
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
            cells_group(&t, r, &r->s.lanes[i]);
        }
        if (lanes < 2) continue;
        cell_count(&t, device);
        table_cell(&t, "all");
        table_cell(&t, "all");
        cells_group(&t, r, &r->s.devices[device]);
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

/* The last columns of both tables of blocks. WHERE is left out if the trace has no stacks. */
#define BLOCK_TITLES "DEVICE", "POOL", "STREAM", "ADDRESS", "SINCE", "UNTIL", "WHERE"

static bool has_stacks(const stat_run *r)
{
    return r->t->stacks.count > 0;
}

static void cells_lane(table *t, const timeline_lane *lane)
{
    table_cell(t, "%d", lane->device);
    cell_pool(t, lane->pool);
    table_cell(t, "%#" PRIx64, lane->stream);
}

static void cells_block(table *t, const stat_run *r, const timeline_block *b)
{
    cells_lane(t, &r->l.lanes[b->lane]);
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

static void row_of_rest(table *t, size_t count)
{
    table_cell(t, "%zu more", count);
    while (t->count % t->columns) table_cell(t, "%s", "");
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
    for (size_t i = 0; i < r->l.oom_count; i++) {
        const timeline_oom *o = &r->l.ooms[i];
        const instant *at = summary_failure(&r->l, &r->s, i);
        if (i == SUMMARY_FAILURES && !at) row_of_rest(&t, r->l.oom_count - SUMMARY_FAILURES - 1);
        if (!at) continue;
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
}

static void print_holders(const stat_run *r, const holders *held, const char *title)
{
    const char *const titles[] = { title, "REQUESTED", "BLOCKS", "LARGEST", "DEVICE", "POOL", "STREAM", "WHERE" };
    const size_t shown = r->shown < held->count ? r->shown : held->count;
    if (!shown) return;
    table t;
    table_init(&t, has_stacks(r) ? "rrrrrlll" : "rrrrrll");
    table_titles(&t, titles);
    for (size_t i = 0; i < shown; i++) {
        const holder *h = &held->list[i];
        cell_size(&t, h->active);
        cell_size(&t, h->requested);
        cell_count(&t, h->blocks);
        cell_size(&t, r->l.blocks[h->largest].bytes);
        cells_lane(&t, &r->l.lanes[h->lane]);
        if (has_stacks(r)) cell_frame(&t, h->caller);
    }
    finish(&t);
    uint64_t rest = 0;
    for (size_t i = shown; i < held->count; i++) rest += held->list[i].active;
    char size[TABLE_SIZE];
    if (held->count > shown) printf("and %zu more, with %s\n", held->count - shown, table_size(rest, size));
}

/* The blocks beside the largest hole at each failure: they keep it from being larger. */
static void print_beside(const stat_run *r)
{
    static const char *const titles[] = { "BESIDE LARGEST HOLE", "OUT OF MEMORY AT", "SIDE", BLOCK_TITLES };
    table t;
    table_init(&t, has_stacks(r) ? "rrlrllrrrl" : "rrlrllrrr");
    table_titles(&t, titles);
    const size_t empty = t.count;
    for (size_t i = 0; i < r->l.oom_count; i++) {
        const instant *at = summary_failure(&r->l, &r->s, i);
        if (!at) continue;
        const uint32_t beside[] = { at->below, at->above };
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

void stat_print(const stat_run *r)
{
    text_printf(stdout, "%s: %s, %zu events, %" PRIu32 " operations in %.3f s\n", r->name, r->t->format, r->t->count,
                timeline_operations(&r->l), stat_seconds(r, r->l.moments));
    if (r->t->dropped)
        text_printf(stdout, "%s: the recording begins late: %" PRIu64 " earlier events were lost\n", r->name,
                    r->t->dropped);
    if (r->l.residents)
        text_printf(stdout, "%s: %zu blocks are from before the first event\n", r->name, r->l.residents);
    if (r->l.malformed)
        text_printf(stdout, "%s: %zu events contradict earlier ones; 'weir check' lists them\n", r->name,
                    r->l.malformed);
    if (!r->l.has_segments)
        text_printf(stdout, "%s: no segments are recorded, so reserved bytes are not known\n", r->name);
    print_peaks(r);
    print_kinds(r);
    print_places(r);
    print_sizes(r);
    print_lifetimes(r);
    print_largest(r);
    if (has_stacks(r))
        for (size_t i = 0; i < r->s.device_count; i++) print_holders(r, &r->at_peaks[i], "ACTIVE AT PEAK");
    print_ooms(r);
    print_holders(r, &r->at_failure, "ACTIVE AT LAST FAILURE");
    print_beside(r);
}
