#include "replay/record.h"

#include "grow.h"
#include "map.h"
#include "ranges.h"
#include "replay/play.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_PENDING = 1, BLOCK_GONE };

/* The history of one device, and how much of it was copied. */
typedef struct tape {
    weir_event *events;
    size_t count, at;
    size_t next; /* index of the trace's event for the device's next operation, or an earlier one */
} tape;

/* The device and state of a slot's block. */
typedef struct owner {
    int device;
    uint64_t none; /* the stand-in address of an allocation that failed, or was of nothing; 0: there is a block */
} owner;

typedef struct recorder {
    const session *s;
    const trace *t;
    const script *sc;
    trace *out;
    tape *tapes;   /* by device */
    owner *owners; /* by slot */
    map streams;   /* native stream -> an event of the trace on that stream */
    map pools;     /* the user number of a pool of the replay -> an event of the trace in that pool */
    size_t capacity, stack_capacity;
    uint64_t none;            /* allocations so far that gave no block */
    const script_op *failing; /* the operation of the body that was made to fail last; NULL: none yet */
    uint64_t now;             /* time of the current operation */
} recorder;

/* *lost: the most events that a device's history had no room for. */
static bool read_tapes(recorder *r, uint64_t capacity, uint64_t *lost, char error[SCRIPT_ERROR])
{
    *lost = 0;
    for (int device = 0; device < r->sc->devices; device++) {
        tape *p = &r->tapes[device];
        uint64_t dropped = 0;
        p->events = grow_new(capacity, sizeof *p->events);
        weir_status status = weir_history_read(device, p->events, capacity, &p->count, &dropped);
        if (status != WEIR_OK) {
            snprintf(error, SCRIPT_ERROR, "cannot read the history: %s", weir_error_text());
            return false;
        }
        if (dropped > *lost) *lost = dropped;
    }
    return true;
}

static void emit(recorder *r, weir_event e, uint32_t stack)
{
    trace *out = r->out;
    e.time_ns = r->now;
    e.thread = 0;
    out->events = grow_array(out->events, out->count + 1, &r->capacity, sizeof *out->events);
    if (r->t->stacks.of) {
        out->stacks.of = grow_array(out->stacks.of, out->count + 1, &r->stack_capacity, sizeof *out->stacks.of);
        out->stacks.of[out->count] = stack;
    }
    out->events[out->count++] = e;
}

/* Copies the device's events up to its next operation; a failed allocation counts as one. */
static void emit_between(recorder *r, int device)
{
    tape *p = &r->tapes[device];
    while (p->at < p->count && !trace_kind_is_operation(p->events[p->at].kind) &&
           p->events[p->at].kind != WEIR_EVENT_OOM)
        emit(r, p->events[p->at++], 0);
}

/* Copies what the device's events give back next, since the next operation may be another device's: one block, or all
 * that goes. */
static void emit_given(recorder *r, int device, bool all)
{
    tape *p = &r->tapes[device];
    for (bool done = false; !done && p->at < p->count; p->at++) {
        const weir_event *e = &p->events[p->at];
        if (trace_kind_is_operation(e->kind) || e->kind == WEIR_EVENT_OOM || trace_kind_takes(e->kind)) break;
        done = !all && e->kind == WEIR_EVENT_FREE_COMPLETED;
        emit(r, *e, 0);
    }
}

/* The trace's event for an operation of the body; NULL for a free that the script added to make sense of the trace. */
static const weir_event *original(recorder *r, int device, weir_event_kind kind)
{
    for (size_t *next = &r->tapes[device].next; *next < r->t->count; ++*next) {
        const weir_event *e = &r->t->events[*next];
        if (e->device != device) continue;
        if (e->kind == kind) {
            ++*next;
            return e;
        }
        if (e->kind == WEIR_EVENT_ALLOC) return NULL;
    }
    return NULL;
}

/* An allocation that gave no block is one of 0 bytes, at an address below every real one. */
static void emit_none(recorder *r, owner *o, weir_event e, uint32_t stack)
{
    o->none = ++r->none;
    e.kind = WEIR_EVENT_ALLOC;
    e.address = o->none;
    e.size = 0;
    emit(r, e, stack);
}

/* The first event of the trace that became one of that stream or pool tells its name. */
static void note_name(map *names, int device, uint64_t number, size_t event)
{
    map_entry *name = map_put(names, (int16_t)device, number);
    if (name->state) return;
    name->state = 1;
    name->value = (uint32_t)event;
}

static void on_alloc(recorder *r, const script_op *op, bool body)
{
    const script_stream *stream = &r->sc->streams[op->where];
    const weir_event *from = body ? original(r, stream->device, WEIR_EVENT_ALLOC) : NULL;
    uint32_t stack = from ? trace_stack(r->t, (size_t)(from - r->t->events)) : 0;
    owner *o = &r->owners[op->slot];
    *o = (owner){ .device = stream->device };
    emit_between(r, stream->device);
    if (from && from->time_ns > r->now) r->now = from->time_ns;
    tape *p = &r->tapes[stream->device];
    if (op->bytes == 0) { /* the history has none of these */
        emit_none(r, o, (weir_event){ .device = (int16_t)stream->device }, stack);
        return;
    }
    if (p->at == p->count) return;

    weir_event e = p->events[p->at++];
    if (from) note_name(&r->streams, e.device, e.stream, (size_t)(from - r->t->events));
    if (from && e.pool[1]) note_name(&r->pools, e.device, e.pool[1], (size_t)(from - r->t->events));
    emit(r, e, stack);
    if (e.kind == WEIR_EVENT_OOM) emit_none(r, o, e, stack);
}

static void on_free(recorder *r, const script_op *op, bool body)
{
    const owner *o = &r->owners[op->slot];
    const weir_event *from = body ? original(r, o->device, WEIR_EVENT_FREE_REQUESTED) : NULL;
    emit_between(r, o->device);
    if (from && from->time_ns > r->now) r->now = from->time_ns;
    tape *p = &r->tapes[o->device];
    if (o->none) {
        weir_event e = { .address = o->none, .kind = WEIR_EVENT_FREE_REQUESTED, .device = (int16_t)o->device };
        emit(r, e, 0);
        e.kind = WEIR_EVENT_FREE_COMPLETED;
        emit(r, e, 0);
    } else if (p->at < p->count) {
        emit(r, p->events[p->at++], 0);
    }
}

/* Passes over what failed in the recording and was repeated: no operation was due to it. It may have fitted this time,
 * because a recording that begins in mid-course does not say where all lies; then it was freed at once. */
static void pass_over_failed(recorder *r, const script_op *op)
{
    if (op->kind == SCRIPT_RELIEVE && (!r->failing || op > r->failing)) r->failing = play_failing(r->s, op);
    if (op != r->failing || op->bytes == 0) return; /* the history has none of 0 bytes */
    const int device = r->sc->streams[op->where].device;
    tape *p = &r->tapes[device];
    emit_between(r, device);
    const bool fitted = p->at < p->count && p->events[p->at].kind == WEIR_EVENT_ALLOC;
    for (bool done = false; !done && p->at < p->count; p->at++)
        done = p->events[p->at].kind == (fitted ? WEIR_EVENT_FREE_COMPLETED : WEIR_EVENT_OOM);
}

static void follow(recorder *r, const script_ops *ops, bool body)
{
    for (size_t i = 0; i < ops->count; i++) {
        const script_op *op = &ops->at[i];
        pass_over_failed(r, op);
        if (op->kind == SCRIPT_ALLOC) on_alloc(r, op, body);
        if (op->kind == SCRIPT_FREE || op->kind == SCRIPT_FREE_LATER) on_free(r, op, body);
        if (op->kind == SCRIPT_FREE) emit_given(r, r->owners[op->slot].device, false);
        if (op->kind == SCRIPT_COMPLETE) emit_given(r, r->sc->gates[op->where], false);
        if (op->kind == SCRIPT_EMPTY || op->kind == SCRIPT_RELIEVE) emit_given(r, (int)op->where, true);
        if (op->kind == SCRIPT_EMPTY_POOL) emit_given(r, r->sc->streams[op->where].device, true);
    }
    for (int device = 0; body && device < r->sc->devices; device++) emit_between(r, device);
}

/* Replaces the replay's streams and pools by the trace's. */
static void name_all(recorder *r)
{
    for (size_t i = 0; i < r->out->count; i++) {
        weir_event *e = &r->out->events[i];
        const map_entry *stream = map_find(&r->streams, e->device, e->stream);
        const map_entry *pool = e->pool[1] ? map_find(&r->pools, e->device, e->pool[1]) : NULL;
        if (stream) e->stream = r->t->events[stream->value].stream;
        if (pool) memcpy(e->pool, r->t->events[pool->value].pool, sizeof e->pool);
    }
}

static void add_live(trace *out, size_t *capacity, const weir_event *e, bool pending)
{
    out->live = grow_array(out->live, out->live_count + 1, capacity, sizeof *out->live);
    out->live[out->live_count++] = (trace_live){ .address = e->address,
                                                 .bytes = e->size,
                                                 .requested = e->size,
                                                 .stream = e->stream,
                                                 .pool = { e->pool[0], e->pool[1] },
                                                 .device = e->device,
                                                 .pending = pending };
}

/* Lists what is left at the end of segments and mappings made by the first `count` events. */
static void list_segments(trace *out, size_t count)
{
    ranges held = { 0 };
    for (size_t i = 0; i < out->count; i++) {
        const weir_event *e = &out->events[i];
        const bool taken = trace_kind_takes(e->kind);
        if (taken || trace_kind_gives(e->kind)) ranges_cut(&held, e->device, e->address, e->size, NULL, NULL);
        if (taken && i < count)
            ranges_add(&held,
                       (range){ .address = e->address, .bytes = e->size, .number = (uint32_t)i, .device = e->device });
    }
    out->segments = grow_new(held.count, sizeof *out->segments);
    for (range *r = ranges_first(&held); r; r = ranges_next(r)) {
        const weir_event *e = &out->events[r->number];
        const bool mapped = e->kind == WEIR_EVENT_SEGMENT_MAP;
        out->segments[out->segment_count++] =
            (trace_segment){ r->address, r->bytes, e->stream, { e->pool[0], e->pool[1] }, r->device, mapped };
    }
    ranges_release(&held);
}

/* The first `count` events recreated the state before the trace. Removes them, but for what failed, and lists what is
 * left of their blocks and segments at the end, as in a snapshot. */
static void forget(trace *out, size_t count)
{
    size_t live_capacity = 0;
    map freed = { 0 };
    for (size_t i = 0; i < out->count; i++) {
        const weir_event *e = &out->events[i];
        const bool ends = e->kind == WEIR_EVENT_FREE_COMPLETED || (e->kind == WEIR_EVENT_FREE_REQUESTED && i >= count);
        if (ends || e->kind == WEIR_EVENT_FREE_REQUESTED)
            map_put(&freed, e->device, e->address)->state = ends ? BLOCK_GONE : BLOCK_PENDING;
    }
    for (size_t i = 0; i < count; i++) {
        const weir_event *e = &out->events[i];
        if (e->kind != WEIR_EVENT_ALLOC) continue;
        const map_entry *found = map_find(&freed, e->device, e->address);
        if (!found || found->state != BLOCK_GONE) add_live(out, &live_capacity, e, found != NULL);
    }
    map_release(&freed);
    list_segments(out, count);
    size_t kept = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (i < count && out->events[i].kind != WEIR_EVENT_OOM) continue;
        if (out->stacks.of) out->stacks.of[kept] = out->stacks.of[i];
        out->events[kept++] = out->events[i];
    }
    out->count = kept;
}

static void write_trace(recorder *r)
{
    const trace *t = r->t;
    r->out->format = t->format;
    r->out->stacks = t->stacks;
    r->out->stacks.of = NULL;
    r->now = t->count ? t->events[0].time_ns : 0;

    follow(r, &r->sc->before, false);
    size_t before = r->out->count;
    follow(r, &r->sc->body, true);
    name_all(r);
    if (before) forget(r->out, before);
}

static void release_recorder(recorder *r)
{
    for (int device = 0; device < r->sc->devices; device++) free(r->tapes[device].events);
    free(r->tapes);
    free(r->owners);
    map_release(&r->streams);
    map_release(&r->pools);
}

/* *lost: there is no trace, because its history had no room for so many events. */
static bool record_with(const session_options *options, const trace *t, const script *sc, trace *out, uint64_t *lost,
                        char error[SCRIPT_ERROR])
{
    session s;
    pass cold;
    bool good = session_open(&s, sc, &t->settings, options);
    if (good) {
        recorder r = { .s = &s, .t = t, .sc = sc, .out = out };
        r.tapes = grow_new((size_t)sc->devices, sizeof *r.tapes);
        r.owners = grow_new(sc->slots, sizeof *r.owners);
        good = session_pass(&s, &cold) && read_tapes(&r, options->history, lost, s.error);
        if (good && !*lost) write_trace(&r);
        release_recorder(&r);
        session_close(&s);
    }
    if (!good) memcpy(error, s.error, sizeof s.error);
    return good;
}

bool record(const trace *t, const char *policy, uint64_t device_memory, trace *out, char error[SCRIPT_ERROR])
{
    script sc;
    *out = (trace){ 0 };
    if (!script_build(t, &sc, error, SCRIPT_ERROR)) return false;

    /* A guess: a policy may have a block made of many mappings, and the script ends with frees of its own. What was
     * lost says how much more room it takes. */
    session_options options = { .policy = policy,
                                .backend = "host",
                                .device_memory = device_memory,
                                .history = 4 * (uint64_t)(t->count + t->live_count) + 1024 };
    uint64_t lost = 0;
    bool good;
    do {
        options.history += 2 * lost;
        good = record_with(&options, t, &sc, out, &lost, error);
    } while (good && lost);
    script_release(&sc);
    return good;
}

void record_release(trace *recorded)
{
    uint32_t *of = recorded->stacks.of;
    recorded->stacks = (trace_stacks){ .of = of }; /* the rest belongs to the original */
    trace_release(recorded);
}
