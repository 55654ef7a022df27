#include "timeline/summary.h"

#include "grow.h"

#include <stdlib.h>

static unsigned size_class(uint64_t bytes)
{
    return bytes ? 63 - (unsigned)__builtin_clzll(bytes) : 0;
}

static unsigned lifetime_class(const timeline_block *b)
{
    if (b->freed == TIMELINE_NEVER) return SUMMARY_LIFETIMES - 1;
    unsigned class = 0;
    for (uint32_t left = b->freed - b->from; left >= 10; left /= 10) class ++;
    return class;
}

static void count_events(const timeline *l, summary *s)
{
    const trace *t = l->trace;
    for (size_t i = 0; i < t->count; i++) {
        summary_count *k = &s->kinds[t->events[i].kind < SUMMARY_KINDS ? t->events[i].kind : 0];
        k->count++;
        if (t->events[i].kind == WEIR_EVENT_LABEL) continue; /* it keeps its text there */
        /* Requests that failed may be of any size. */
        if (__builtin_add_overflow(k->bytes, t->events[i].size, &k->bytes)) k->bytes = UINT64_MAX;
    }
}

static void add_allocation(summary_group *g, const timeline_block *b)
{
    g->count++;
    g->bytes += b->bytes;
    g->live += b->bytes;
    if (g->live <= g->peak_requested) return;
    g->peak_requested = g->live;
    g->peak = b->from;
}

/* Walks the blocks in the order of time; frees come before allocations of the same moment. */
static void count_blocks(const timeline *l, summary *s)
{
    size_t freed = 0;
    for (size_t i = 0; i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        for (; freed < l->freed_count && l->blocks[l->by_freed[freed]].freed <= b->from; freed++) {
            const timeline_block *gone = &l->blocks[l->by_freed[freed]];
            if (gone->freed == gone->from) continue; /* never counted */
            s->sizes[size_class(gone->bytes)].live -= gone->bytes;
            s->lanes[gone->lane].live -= gone->bytes;
            s->devices[l->lanes[gone->lane].device].live -= gone->bytes;
        }
        summary_count *lifetime = &s->lifetimes[lifetime_class(b)];
        lifetime->count++;
        lifetime->bytes += b->bytes;
        if (b->freed == b->from) continue; /* its free was requested before the first event */
        add_allocation(&s->sizes[size_class(b->bytes)], b);
        add_allocation(&s->lanes[b->lane], b);
        add_allocation(&s->devices[l->lanes[b->lane].device], b);
    }
}

typedef struct change {
    uint32_t moment, lane;
    bool taken;
    uint64_t bytes;
} change;

/* Between two operations, memory given back comes before memory taken. */
static int by_moment(const void *left, const void *right)
{
    const change *a = left, *b = right;
    if (a->moment != b->moment) return a->moment < b->moment ? -1 : 1;
    return a->taken - b->taken;
}

static void hold(summary_group *g, const change *c)
{
    g->held += c->taken ? c->bytes : -c->bytes;
    if (g->held > g->peak_reserved) g->peak_reserved = g->held;
}

static void count_segments(const timeline *l, summary *s)
{
    change *changes = grow_new(2 * l->segment_count, sizeof *changes);
    size_t count = 0;
    for (size_t i = 0; i < l->segment_count; i++) {
        const timeline_segment *g = &l->segments[i];
        if (g->from == g->until) continue;
        changes[count++] = (change){ g->from, g->lane, true, g->bytes };
        if (g->until != TIMELINE_NEVER) changes[count++] = (change){ g->until, g->lane, false, g->bytes };
    }
    qsort(changes, count, sizeof *changes, by_moment);
    for (size_t i = 0; i < count; i++) {
        hold(&s->lanes[changes[i].lane], &changes[i]);
        hold(&s->devices[l->lanes[changes[i].lane].device], &changes[i]);
    }
    free(changes);
}

/* ---- the largest ------------------------------------------------------------------------------------------------- */

typedef struct large {
    uint64_t bytes;
    uint32_t block;
    int16_t device;
} large;

/* Of equal blocks the older comes first. */
static int by_size(const void *left, const void *right)
{
    const large *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->block < b->block ? -1 : 1;
}

/* Devices do not share memory, and so have a peak and a list each. */
static void list_largest(const timeline *l, size_t most, summary *s)
{
    large *all = grow_new(l->block_count, sizeof *all);
    size_t count = 0, listed = 0;
    for (size_t i = 0; most && i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        const int16_t device = l->lanes[b->lane].device;
        if (timeline_lives(b, s->devices[device].peak)) all[count++] = (large){ b->bytes, (uint32_t)i, device };
    }
    qsort(all, count, sizeof *all, by_size);
    s->largest = grow_new(count, sizeof *s->largest);
    for (size_t i = 0; i < count; i++) {
        listed = i > 0 && all[i].device == all[i - 1].device ? listed + 1 : 1;
        if (listed <= most) s->largest[s->largest_count++] = all[i].block;
    }
    free(all);
}

static instant at_peak(const timeline *l, const uint64_t *values)
{
    const instant_point p = { timeline_peak(l, values), TIMELINE_NEVER, -1 };
    return instant_at(l, &p);
}

static instant at_failure(const timeline *l, const timeline_oom *o)
{
    const instant_point p = instant_point_of_failure(l, o);
    return instant_at(l, &p);
}

void summarize(const timeline *l, size_t largest, summary *out)
{
    *out = (summary){ 0 };
    for (size_t i = 0; i < l->lane_count; i++)
        if ((size_t)l->lanes[i].device >= out->device_count) out->device_count = (size_t)l->lanes[i].device + 1;
    out->devices = grow_new(out->device_count, sizeof *out->devices);
    out->lanes = grow_new(l->lane_count, sizeof *out->lanes);

    count_events(l, out);
    count_blocks(l, out);
    count_segments(l, out);

    timeline_series series;
    timeline_sum(l, &series);
    out->requested = at_peak(l, series.requested);
    out->active = at_peak(l, series.active);
    out->reserved = at_peak(l, series.reserved);
    timeline_series_release(&series);
    list_largest(l, largest, out);
    for (size_t i = 0; i < l->oom_count && i < SUMMARY_FAILURES; i++) out->failures[i] = at_failure(l, &l->ooms[i]);
    if (l->oom_count > SUMMARY_FAILURES) out->failures[SUMMARY_FAILURES] = at_failure(l, &l->ooms[l->oom_count - 1]);
}

const instant *summary_failure(const timeline *l, const summary *s, size_t failure)
{
    if (failure < SUMMARY_FAILURES) return &s->failures[failure];
    return failure + 1 == l->oom_count ? &s->failures[SUMMARY_FAILURES] : NULL;
}

void summary_release(summary *s)
{
    free(s->devices);
    free(s->lanes);
    free(s->largest);
    *s = (summary){ 0 };
}
