#include "timeline/timeline.h"

#include "grow.h"
#include "map.h"
#include "timeline/segments.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_LIVE = 1, BLOCK_PENDING, BLOCK_GONE };

typedef struct builder {
    timeline *l;
    const trace *t;
    map live;    /* blocks by address; value: the block */
    map lanes;   /* by a hash; value: the lane */
    ranges held; /* segments; number: the segment */
    size_t block_capacity, segment_capacity, lane_capacity, oom_capacity;
    uint32_t now;         /* operations so far */
    uint32_t event;       /* index of the current event */
    uint32_t last_lane;   /* most events are in the same lane as the one before */
    uint32_t *just_freed; /* by device: 1 + the block whose free was its last event; 0: that was another event */
} builder;

static bool same_lane(const timeline_lane *a, const timeline_lane *b)
{
    return a->stream == b->stream && a->device == b->device && a->pool[0] == b->pool[0] && a->pool[1] == b->pool[1];
}

static uint32_t lane_index(builder *b, int16_t device, uint64_t stream, const uint64_t pool[2])
{
    timeline *l = b->l;
    timeline_lane wanted = { stream, { pool[0], pool[1] }, device };
    if (l->lane_count && same_lane(&l->lanes[b->last_lane], &wanted)) return b->last_lane;

    uint64_t key = stream + pool[0] * 0x9e3779b97f4a7c15u + pool[1] * 0xbf58476d1ce4e5b9u;
    map_entry *e = map_put(&b->lanes, device, key);
    while (e->state && !same_lane(&l->lanes[e->value], &wanted)) e = map_put(&b->lanes, device, ++key);
    if (!e->state) {
        l->lanes = grow_array(l->lanes, l->lane_count + 1, &b->lane_capacity, sizeof *l->lanes);
        l->lanes[l->lane_count] = wanted;
        e->state = 1;
        e->value = (uint32_t)l->lane_count++;
    }
    return b->last_lane = e->value;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static timeline_block *add_block(builder *b, timeline_block made, int16_t device)
{
    timeline *l = b->l;
    l->blocks = grow_array(l->blocks, l->block_count + 1, &b->block_capacity, sizeof *l->blocks);
    map_entry *e = map_put(&b->live, device, made.address);
    e->state = BLOCK_LIVE;
    e->value = (uint32_t)l->block_count;
    l->blocks[l->block_count] = made;
    return &l->blocks[l->block_count++];
}

static void on_alloc(builder *b, const weir_event *e)
{
    b->now++;
    map_entry *old = map_find(&b->live, e->device, e->address);
    if (old && old->state != BLOCK_GONE) {
        timeline_block *block = &b->l->blocks[old->value];
        b->l->malformed++;
        if (old->state == BLOCK_LIVE) block->freed = b->now;
        block->until = b->now;
        block->gone = b->event;
    }
    uint32_t lane = lane_index(b, e->device, e->stream, e->pool);
    timeline_block made = { .address = e->address,
                            .bytes = e->size,
                            .held = e->size,
                            .from = b->now,
                            .freed = TIMELINE_NEVER,
                            .until = TIMELINE_NEVER,
                            .gone = TIMELINE_NEVER,
                            .lane = lane,
                            .stack = trace_stack(b->t, b->event),
                            .thread = e->thread };
    add_block(b, made, e->device);
}

/* A block that no event made: it existed before the trace. */
static timeline_block *add_resident(builder *b, const weir_event *e)
{
    uint32_t lane = lane_index(b, e->device, e->stream, e->pool);
    b->l->residents++;
    timeline_block there = { .address = e->address,
                             .bytes = e->size,
                             .held = e->size,
                             .freed = TIMELINE_NEVER,
                             .until = TIMELINE_NEVER,
                             .gone = TIMELINE_NEVER,
                             .lane = lane };
    return add_block(b, there, e->device);
}

static void on_free(builder *b, const weir_event *e)
{
    b->now++;
    map_entry *found = map_find(&b->live, e->device, e->address);
    if (!found) {
        add_resident(b, e);
        found = map_find(&b->live, e->device, e->address);
    }
    if (found->state != BLOCK_LIVE) {
        b->l->malformed++;
        return;
    }
    b->l->blocks[found->value].freed = b->now;
    b->just_freed[e->device] = found->value + 1;
    found->state = BLOCK_PENDING;
}

/* Whether no other stream used the block: operations of other devices may lie between the halves of its free. */
static bool completes_at_once(const builder *b, const timeline_block *block, uint32_t just_freed)
{
    if (just_freed == (uint32_t)(block - b->l->blocks) + 1) return true;
    return block->freed == b->now && block->freed > block->from;
}

static void on_completed(builder *b, const weir_event *e, uint32_t just_freed)
{
    map_entry *found = map_find(&b->live, e->device, e->address);
    if (!found) {
        timeline_block *block = add_resident(b, e);
        block->freed = 0;
        found = map_find(&b->live, e->device, e->address);
        found->state = BLOCK_PENDING;
    }
    timeline_block *block = &b->l->blocks[found->value];
    if (found->state != BLOCK_GONE) block->gone = b->event;
    if (found->state == BLOCK_PENDING) {
        block->until = completes_at_once(b, block, just_freed) ? block->freed : b->now + 1;
    } else {
        b->l->malformed++;
        if (found->state == BLOCK_LIVE) block->freed = block->until = b->now + 1;
    }
    found->state = BLOCK_GONE;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static uint32_t add_segment(builder *b, const range *r, uint32_t from, uint32_t lane, bool mapped)
{
    timeline *l = b->l;
    l->segments = grow_array(l->segments, l->segment_count + 1, &b->segment_capacity, sizeof *l->segments);
    l->segments[l->segment_count] = (timeline_segment){ .address = r->address,
                                                        .bytes = r->bytes,
                                                        .from = from,
                                                        .until = TIMELINE_NEVER,
                                                        .lane = lane,
                                                        .made = b->event,
                                                        .gone = TIMELINE_NEVER,
                                                        .mapped = mapped };
    return (uint32_t)l->segment_count++;
}

static void end_segment(void *user, const range *old, range *left, range *right)
{
    builder *b = user;
    timeline_segment *s = &b->l->segments[old->number];
    uint32_t lane = s->lane;
    bool mapped = s->mapped;
    s->until = b->now + 1;
    s->gone = b->event;
    if (left->bytes) left->number = add_segment(b, left, b->now + 1, lane, mapped);
    if (right->bytes) right->number = add_segment(b, right, b->now + 1, lane, mapped);
}

static void on_segment_alloc(builder *b, const weir_event *e)
{
    range made = { .address = e->address, .bytes = e->size, .device = e->device };
    ranges_cut(&b->held, e->device, e->address, e->size, end_segment, b);
    uint32_t lane = lane_index(b, e->device, e->stream, e->pool);
    made.number = add_segment(b, &made, b->now + 1, lane, e->kind == WEIR_EVENT_SEGMENT_MAP);
    ranges_add(&b->held, made);
}

static void on_segment_free(builder *b, const weir_event *e)
{
    if (ranges_cut(&b->held, e->device, e->address, e->size, end_segment, b) == 0) b->l->malformed++;
}

/* The number of a range at the beginning, for segments_first: its lane, and in bit 0 whether it is mapped. */
static uint32_t piece(void *of_builder, int16_t device, uint64_t stream, const uint64_t pool[2], bool mapped)
{
    return lane_index(of_builder, device, stream, pool) << 1 | mapped;
}

static void add_first_segments(builder *b)
{
    ranges first = segments_first(b->t, piece, b);
    for (range *r = ranges_first(&first); r; r = ranges_next(r)) {
        r->number = add_segment(b, r, 0, r->number >> 1, r->number & 1);
        ranges_add(&b->held, *r);
    }
    b->l->has_segments = b->t->segment_count > 0;
    ranges_release(&first);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void on_oom(builder *b, const weir_event *e)
{
    timeline *l = b->l;
    l->ooms = grow_array(l->ooms, l->oom_count + 1, &b->oom_capacity, sizeof *l->ooms);
    const uint64_t start = b->t->events[0].time_ns;
    l->ooms[l->oom_count++] = (timeline_oom){ .bytes = e->size,
                                              .device_free = e->address,
                                              .time = e->time_ns > start ? e->time_ns - start : 0,
                                              .moment = b->now + 1,
                                              .lane = lane_index(b, e->device, e->stream, e->pool),
                                              .stack = trace_stack(b->t, b->event),
                                              .event = b->event };
}

static void on_event(builder *b, size_t index, const weir_event *e)
{
    const uint32_t just_freed = b->just_freed[e->device];
    b->event = (uint32_t)index;
    if (e->kind <= WEIR_EVENT_SEGMENT_UNMAP) b->just_freed[e->device] = 0;
    switch (e->kind) {
    case WEIR_EVENT_ALLOC: on_alloc(b, e); break;
    case WEIR_EVENT_FREE_REQUESTED: on_free(b, e); break;
    case WEIR_EVENT_FREE_COMPLETED: on_completed(b, e, just_freed); break;
    case WEIR_EVENT_SEGMENT_ALLOC:
    case WEIR_EVENT_SEGMENT_MAP: on_segment_alloc(b, e); break;
    case WEIR_EVENT_SEGMENT_FREE:
    case WEIR_EVENT_SEGMENT_UNMAP: on_segment_free(b, e); break;
    case WEIR_EVENT_OOM: on_oom(b, e); break;
    default: break;
    }
    b->l->has_segments |= trace_kind_takes(e->kind) || trace_kind_gives(e->kind);
}

static void set_times(timeline *l)
{
    const trace *t = l->trace;
    uint32_t operations = 0;
    for (size_t i = 0; i < t->count; i++) operations += trace_kind_is_operation(t->events[i].kind);
    l->moments = operations + 2;
    l->times = grow_new(l->moments, sizeof *l->times);

    uint64_t start = t->count ? t->events[0].time_ns : 0, latest = start;
    for (size_t i = 0, moment = 0; i < t->count; i++) {
        if (t->events[i].time_ns > latest) latest = t->events[i].time_ns;
        if (trace_kind_is_operation(t->events[i].kind)) l->times[++moment] = latest - start;
    }
    l->times[l->moments - 1] = latest - start;
}

static timeline_block *add_listed(builder *b, const trace_live *v)
{
    weir_event e = { .address = v->address,
                     .size = v->requested ? v->requested : v->bytes,
                     .stream = v->stream,
                     .pool = { v->pool[0], v->pool[1] },
                     .device = v->device };
    timeline_block *block = add_resident(b, &e);
    block->stack = v->stack;
    if (v->pending) block->freed = 0;
    return block;
}

static void add_last_blocks(builder *b)
{
    for (size_t i = 0; i < b->t->live_count; i++) {
        const trace_live *v = &b->t->live[i];
        const map_entry *found = map_find(&b->live, v->device, v->address);
        if (found && found->state == BLOCK_GONE) continue; /* made after the last event */
        timeline_block *block = found ? &b->l->blocks[found->value] : add_listed(b, v);
        if (v->requested == block->bytes && v->bytes > block->held) block->held = v->bytes;
    }
}

static int blocks_by_start(const void *left, const void *right)
{
    const timeline_block *a = left, *b = right;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return (a->address > b->address) - (a->address < b->address);
}

static int segments_by_start(const void *left, const void *right)
{
    const timeline_segment *a = left, *b = right;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return (a->address > b->address) - (a->address < b->address);
}

/* Residents were added when they were freed; without them the order is right already. */
static void sort_blocks(timeline *l)
{
    if (l->residents) qsort(l->blocks, l->block_count, sizeof *l->blocks, blocks_by_start);
    if (l->segment_count) qsort(l->segments, l->segment_count, sizeof *l->segments, segments_by_start);

    uint32_t *place = grow_new((size_t)l->moments + 1, sizeof *place);
    for (size_t i = 0; i < l->block_count; i++)
        if (l->blocks[i].freed < l->moments) place[l->blocks[i].freed + 1]++;
    for (uint32_t m = 0; m < l->moments; m++) place[m + 1] += place[m];
    l->freed_count = place[l->moments];
    l->by_freed = grow_new(l->freed_count, sizeof *l->by_freed);
    for (size_t i = 0; i < l->block_count; i++)
        if (l->blocks[i].freed < l->moments) l->by_freed[place[l->blocks[i].freed]++] = (uint32_t)i;
    free(place);
}

void timeline_build(const trace *t, timeline *out)
{
    *out = (timeline){ .trace = t };
    builder b = { .l = out, .t = t };

    b.just_freed = grow_new(INT16_MAX + 1, sizeof *b.just_freed);
    set_times(out);
    add_first_segments(&b);
    for (size_t i = 0; i < t->count; i++) on_event(&b, i, &t->events[i]);
    add_last_blocks(&b);
    sort_blocks(out);
    map_release(&b.live);
    map_release(&b.lanes);
    ranges_release(&b.held);
    free(b.just_freed);
}

void timeline_release(timeline *l)
{
    free(l->blocks);
    free(l->by_freed);
    free(l->segments);
    free(l->lanes);
    free(l->ooms);
    free(l->times);
    *l = (timeline){ 0 };
}

/* ---- series ------------------------------------------------------------------------------------------------------ */

/* Collects differences, in wrapping arithmetic; integrate() turns them into values. */
static void add_span(uint64_t *differences, uint32_t moments, uint32_t from, uint32_t until, uint64_t bytes)
{
    if (from >= moments) return;
    differences[from] += bytes;
    if (until < moments) differences[until] -= bytes;
}

static void integrate(uint64_t *values, uint32_t moments)
{
    for (uint32_t m = 1; m < moments; m++) values[m] += values[m - 1];
}

void timeline_sum(const timeline *l, timeline_series *out)
{
    out->requested = grow_new(l->moments, sizeof *out->requested);
    out->active = grow_new(l->moments, sizeof *out->active);
    out->reserved = grow_new(l->moments, sizeof *out->reserved);
    for (size_t i = 0; i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        add_span(out->requested, l->moments, b->from, b->freed, b->bytes);
        add_span(out->active, l->moments, b->from, b->until, b->bytes);
    }
    for (size_t i = 0; i < l->segment_count; i++) {
        const timeline_segment *s = &l->segments[i];
        add_span(out->reserved, l->moments, s->from, s->until, s->bytes);
    }
    integrate(out->requested, l->moments);
    integrate(out->active, l->moments);
    integrate(out->reserved, l->moments);
}

void timeline_series_release(timeline_series *s)
{
    free(s->requested);
    free(s->active);
    free(s->reserved);
    *s = (timeline_series){ 0 };
}

uint32_t timeline_peak(const timeline *l, const uint64_t *values)
{
    uint32_t peak = 0;
    for (uint32_t m = 1; m < l->moments; m++)
        if (values[m] > values[peak]) peak = m;
    return peak;
}
