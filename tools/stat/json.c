#include "stat/run.h"

#include "output/caller.h"
#include "output/json.h"
#include "output/stack.h"

static json_t *json_pool(const uint64_t pool[2])
{
    json_t *array = json_array();
    json_push(array, json_name(pool[0]));
    json_push(array, json_name(pool[1]));
    return array;
}

static json_t *json_known(bool known, uint64_t number)
{
    return known ? json_count(number) : json_null();
}

/* A trace may know nothing of segments. `at` is NULL for failures that were not examined. */
static void add_state(json_t *object, const stat_run *r, const instant *at)
{
    static const instant untold;
    const bool held = at && r->l.has_segments;
    const instant *of = at ? at : &untold;
    json_add(object, "requested", json_known(at, of->requested));
    json_add(object, "active", json_known(at, of->active));
    json_add(object, "reserved", json_known(held, of->reserved));
    json_add(object, "segments", json_known(held, of->segments));
    json_add(object, "holes", json_known(held, of->holes));
    json_add(object, "in_holes", json_known(held, of->in_holes));
    json_add(object, "largest_hole", json_known(held, of->largest_hole));
}

static json_t *json_peak(const stat_run *r, const instant *at)
{
    json_t *object = json_object();
    json_add(object, "operation", json_count(at->moment));
    json_add(object, "time_ns", json_count(r->l.times[at->moment]));
    add_state(object, r, at);
    json_add(object, "ratio", r->l.has_segments ? json_ratio(stat_ratio(at->reserved, at->requested), 4) : json_null());
    return object;
}

static void add_counts(json_t *object, uint64_t count, uint64_t bytes)
{
    json_add(object, "count", json_count(count));
    json_add(object, "bytes", json_count(bytes));
}

static void add_group(json_t *object, const stat_run *r, const summary_group *g)
{
    add_counts(object, g->count, g->bytes);
    json_add(object, "peak_requested", json_count(g->peak_requested));
    json_add(object, "peak_reserved", json_known(r->l.has_segments, g->peak_reserved));
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
        json_add(all, stat_kinds[i], object);
    }
    return all;
}

static json_t *json_lanes(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->l.lane_count; i++) {
        const timeline_lane *lane = &r->l.lanes[i];
        json_t *object = json_object();
        json_add(object, "device", json_integer(lane->device));
        json_add(object, "pool", json_pool(lane->pool));
        json_add(object, "stream", json_name(lane->stream));
        add_group(object, r, &r->s.lanes[i]);
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

/* JSON null for TIMELINE_NEVER. */
static json_t *json_block(const stat_run *r, uint32_t number)
{
    if (number == TIMELINE_NEVER) return json_null();
    const timeline_block *b = &r->l.blocks[number];
    const timeline_lane *lane = &r->l.lanes[b->lane];
    json_t *object = json_object();
    json_add(object, "bytes", json_count(b->bytes));
    json_add(object, "address", json_name(b->address));
    json_add(object, "device", json_integer(lane->device));
    json_add(object, "pool", json_pool(lane->pool));
    json_add(object, "stream", json_name(lane->stream));
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
    json_add(object, "address", json_name(at->largest_at));
    json_add(object, "pool", json_pool(lane->pool));
    json_add(object, "stream", json_name(lane->stream));
    json_add(object, "below", json_block(r, at->below));
    json_add(object, "above", json_block(r, at->above));
    return object;
}

static json_t *json_holders(const stat_run *r, const holders *held)
{
    json_t *array = json_array();
    for (size_t i = 0; i < held->count && i < r->shown; i++) {
        const holder *h = &held->list[i];
        const timeline_lane *lane = &r->l.lanes[h->lane];
        json_t *object = json_object();
        json_add(object, "requested", json_count(h->requested));
        json_add(object, "active", json_count(h->active));
        json_add(object, "blocks", json_count(h->blocks));
        json_add(object, "pool", json_pool(lane->pool));
        json_add(object, "stream", json_name(lane->stream));
        json_add(object, "caller", *h->caller ? json_text(h->caller) : json_null());
        json_add(object, "largest", json_block(r, h->largest));
        json_push(array, object);
    }
    return array;
}

static json_t *json_devices(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->s.device_count; i++) {
        json_t *object = json_object();
        json_add(object, "device", json_count(i));
        add_group(object, r, &r->s.devices[i]);
        json_add(object, "holders", json_holders(r, &r->at_peaks[i]));
        json_push(array, object);
    }
    return array;
}

static json_t *json_ooms(const stat_run *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < r->l.oom_count; i++) {
        const timeline_oom *o = &r->l.ooms[i];
        const instant *at = summary_failure(&r->l, &r->s, i);
        json_t *object = json_object();
        json_add(object, "operation", json_count(o->moment));
        json_add(object, "time_ns", json_count(o->time));
        json_add(object, "bytes", json_count(o->bytes));
        json_add(object, "device", json_integer(r->l.lanes[o->lane].device));
        json_add(object, "device_free", json_known(o->device_free, o->device_free));
        add_state(object, r, at);
        json_add(object, "beside", at && r->l.has_segments && at->holes ? json_beside(r, at) : json_null());
        json_add(object, "holders", i + 1 == r->l.oom_count ? json_holders(r, &r->at_failure) : json_null());
        add_stack(object, r, o->stack);
        json_push(array, object);
    }
    return array;
}

json_t *stat_json(const stat_run *r)
{
    json_t *object = json_object();
    json_add(object, "trace", json_text(r->name));
    json_add(object, "format", json_string(r->t->format));
    json_add(object, "events", json_count(r->t->count));
    json_add(object, "dropped", json_count(r->t->dropped));
    json_add(object, "operations", json_count(timeline_operations(&r->l)));
    json_add(object, "duration_ns", json_count(r->l.times[r->l.moments - 1]));
    json_add(object, "residents", json_count(r->l.residents));
    json_add(object, "malformed", json_count(r->l.malformed));
    json_add(object, "peak_requested", json_count(r->s.requested.requested));
    json_add(object, "peak_active", json_count(r->s.active.active));
    json_add(object, "peak_reserved", json_known(r->l.has_segments, r->s.reserved.reserved));
    json_t *peaks = json_object();
    json_add(peaks, "requested", json_peak(r, &r->s.requested));
    json_add(peaks, "active", json_peak(r, &r->s.active));
    json_add(peaks, "reserved", r->l.has_segments ? json_peak(r, &r->s.reserved) : json_null());
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
