#include "replay/model.h"

#include "grow.h"
#include "output/table.h"
#include "script/config.h"
#include "script/demand.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct device {
    driver driver;
    void *peer;
    uint32_t *used; /* gates of blocks whose uses began since uses were waited for last */
    size_t used_count, used_capacity;
} device;

/* A block in use; `at.node` is NULL when there is none, because nothing was asked for or memory ran out. */
typedef struct held {
    peer_block at;
    uint32_t stream;
} held;

/* Blocks that another stream still uses, in the order in which those uses end. `awaited` of them were waited for. */
typedef struct waiting {
    held *at;
    size_t first, awaited, count, capacity;
} waiting;

typedef struct model {
    const script *script;
    const peer *peer;
    config recorded;
    device *devices;
    held *slots;
    waiting *gates;
    bool refused;
    measurement *out;
} model;

static device *device_of(const model *m, uint32_t stream)
{
    return &m->devices[m->script->streams[stream].device];
}

/* Blocks whose uses were waited for have no node any more. False: there were no uses. */
static bool await_uses(model *m, device *d)
{
    bool any = false;
    for (size_t i = 0; m->peer->end_use && i < d->used_count; i++) {
        waiting *at = &m->gates[d->used[i]];
        for (size_t k = at->first > at->awaited ? at->first : at->awaited; k < at->count; k++) {
            held *h = &at->at[k];
            if (!h->at.node) continue;
            m->peer->end_use(d->peer, &h->at, h->stream);
            h->at.node = NULL;
            any = true;
        }
        at->awaited = at->count;
    }
    d->used_count = 0;
    if (any) driver_call(&d->driver, WEIR_BACKEND_stream_synchronize);
    return any;
}

static bool alloc(model *m, device *d, const script_op *op, peer_block *out)
{
    const uint64_t bytes = m->peer->torch ? config_round(&m->recorded, op->bytes) : op->bytes;
    if (op->bytes > d->driver.limit) return false;
    if (m->peer->alloc(d->peer, bytes, op->where, out)) return true;
    return await_uses(m, d) && m->peer->alloc(d->peer, bytes, op->where, out);
}

static void take(model *m, const script_op *op, held *h)
{
    device *d = device_of(m, op->where);
    *h = (held){ .stream = op->where };
    if (op->bytes == 0 || alloc(m, d, op, &h->at)) return;
    h->at.node = NULL;
    if (m->out->oom++) return;
    m->out->oom_op = op;
    char asked[TABLE_SIZE], used[TABLE_SIZE], limit[TABLE_SIZE];
    const bool room = op->bytes <= d->driver.limit - d->driver.used;
    snprintf(m->out->oom_text, sizeof m->out->oom_text, "model: %s requested; %s of %s are already reserved%s",
             table_size(op->bytes, asked), table_size(d->driver.used, used), table_size(d->driver.limit, limit),
             room ? "; the model's own limits refuse it" : "");
}

static void give(model *m, const held *h, void (*how)(void *, const peer_block *, uint32_t))
{
    if (!h->at.node) return;
    how(device_of(m, h->stream)->peer, &h->at, h->stream);
}

static void give_later(model *m, const script_op *op)
{
    waiting *at = &m->gates[op->where];
    const held *h = &m->slots[op->slot];
    if (h->at.node && m->peer->begin_use) m->peer->begin_use(device_of(m, h->stream)->peer, &h->at, h->stream);
    at->at = grow_array(at->at, at->count + 1, &at->capacity, sizeof *at->at);
    at->at[at->count++] = *h;
    device *d = &m->devices[m->script->gates[op->where]];
    d->used = grow_array(d->used, d->used_count + 1, &d->used_capacity, sizeof *d->used);
    d->used[d->used_count++] = op->where;
}

static void give_first(model *m, uint32_t where)
{
    waiting *at = &m->gates[where];
    if (at->first == at->count) return;
    give(m, &at->at[at->first++], m->peer->end_use ? m->peer->end_use : m->peer->free);
}

static void ask_again(model *m, const script_op *op)
{
    held h;
    take(m, op, &h);
    give(m, &h, m->peer->free);
}

/* Of the private pool that the stream is in. */
static void empty_pool(const model *m, const script_stream *of)
{
    for (size_t i = 0; m->peer->empty_stream && i < m->script->stream_count; i++) {
        const script_stream *s = &m->script->streams[i];
        if (s->device == of->device && s->pool == of->pool)
            m->peer->empty_stream(m->devices[of->device].peer, (uint32_t)i);
    }
}

static void play_one(model *m, const script_op *op)
{
    switch ((script_kind)op->kind) {
    case SCRIPT_ALLOC: take(m, op, &m->slots[op->slot]); break;
    case SCRIPT_FREE: give(m, &m->slots[op->slot], m->peer->free); break;
    case SCRIPT_FREE_LATER: give_later(m, op); break;
    case SCRIPT_COMPLETE: give_first(m, op->where); break;
    case SCRIPT_EMPTY:
        if (m->peer->empty) m->peer->empty(m->devices[op->where].peer);
        break;
    case SCRIPT_REFUSED:
        if (m->refused) ask_again(m, op);
        break;
    case SCRIPT_EMPTY_POOL: empty_pool(m, &m->script->streams[op->where]); break;
    case SCRIPT_RELIEVE: break; /* peers give memory back when they run short themselves */
    }
}

/* What a relief's operations end. */
typedef struct shortage {
    model *m;
    const script_op *relief;
    bool over;
} shortage;

static void end_uses(void *user)
{
    shortage *s = user;
    for (const script_op *op = s->relief + 1; op <= s->relief + s->relief->slot; op++)
        if (op->kind != SCRIPT_RELIEVE) give_first(s->m, op->where);
    s->over = true;
}

/* Repeats that the recorded allocator ran short, however much memory there is here: the driver refuses, the uses that
 * were waited for end, and what is idle goes. */
static void run_short(model *m, const script_op *relief)
{
    shortage s = { .m = m, .relief = relief };
    driver *d = &m->devices[relief->where].driver;
    for (const script_op *op = relief + 1; op <= relief + relief->slot; op++)
        if (op->kind == SCRIPT_FREE) give_later(m, op);
    d->refuse = end_uses;
    d->user = &s;
    play_one(m, relief + 1 + relief->slot);
    d->refuse = NULL;
    if (!s.over) end_uses(&s);
}

/* Only where the recorded allocator is the one that is modelled. */
static bool repeats(const model *m, const script_op *op)
{
    const bool may = op->kind == SCRIPT_RELIEVE && m->peer->torch && m->script->expandable;
    return may && script_relieved(m->script, op);
}

static void play(model *m, const script_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++) {
        const script_op *op = &ops->at[i];
        if (repeats(m, op)) {
            run_short(m, op);
            i += op->slot + 1;
        } else {
            play_one(m, op);
        }
    }
}

static void sum_driver(const model *m, uint64_t *calls, uint64_t *nanoseconds)
{
    *calls = *nanoseconds = 0;
    for (int i = 0; i < m->script->devices; i++) {
        *calls += m->devices[i].driver.calls;
        *nanoseconds += m->devices[i].driver.nanoseconds;
    }
}

/* Takes over recorded settings, except for options set on the command line. */
/* 0: the recording says nothing of it. */
static uint64_t recorded_value(const trace_settings *recorded, const config *read, peer_recorded of)
{
    switch (of) {
    case PEER_LARGE_SEGMENT: return read->large_segment;
    case PEER_MAX_SPLIT: return recorded ? recorded->max_split_size : 0;
    case PEER_NON_SPLIT_ROUNDING: return read->non_split_rounding;
    case PEER_NONE: break;
    }
    return 0;
}

static void choose_as_recorded(const trace_settings *recorded, const config *read, peer_choice *choice)
{
    for (size_t i = 0; i < PEER_OPTIONS; i++) {
        const uint64_t value = recorded_value(recorded, read, choice->peer->options[i].recorded);
        if (value && !choice->given[i]) choice->values[i] = value;
    }
}

static void model_open(model *m, const peer_choice *choice, uint64_t device_memory)
{
    const script *sc = m->script;
    m->devices = grow_new((size_t)sc->devices, sizeof *m->devices);
    m->slots = grow_new(sc->slots, sizeof *m->slots);
    m->gates = grow_new(sc->gate_count, sizeof *m->gates);
    for (int i = 0; i < sc->devices; i++) {
        device *d = &m->devices[i];
        driver_init(&d->driver, device_memory < PEER_UNLIMITED ? device_memory : PEER_UNLIMITED);
        d->peer = m->peer->open(&d->driver, choice->values);
    }
    for (size_t i = 0; m->peer->keep_stream && i < sc->stream_count; i++)
        if (sc->streams[i].pool != 0) m->peer->keep_stream(m->devices[sc->streams[i].device].peer, (uint32_t)i);
}

static void model_close(model *m)
{
    for (int i = 0; i < m->script->devices; i++) {
        m->peer->close(m->devices[i].peer);
        driver_release(&m->devices[i].driver);
        free(m->devices[i].used);
    }
    for (size_t i = 0; i < m->script->gate_count; i++) free(m->gates[i].at);
    free(m->gates);
    free(m->slots);
    free(m->devices);
}

void model_measure(const script *sc, const trace_settings *recorded, const peer_choice *choice, uint64_t device_memory,
                   bool refused, measurement *out)
{
    model m = { .script = sc, .peer = choice->peer, .refused = refused, .out = out };
    peer_choice chosen = *choice; /* the peer refers to it until it is closed */
    uint64_t *requested = grow_new((size_t)sc->devices, sizeof *requested);
    uint64_t calls, nanoseconds, calls_before, nanoseconds_before, calls_open, nanoseconds_open;
    *out = (measurement){ .operations = sc->operations, .ns_per_op_cold = NAN, .ns_per_op_warm = NAN };
    snprintf(out->backend, sizeof out->backend, "model");

    if (recorded) config_read(recorded, &m.recorded);
    choose_as_recorded(recorded, &m.recorded, &chosen);
    model_open(&m, &chosen, device_memory);
    sum_driver(&m, &calls_open, &nanoseconds_open);
    play(&m, &sc->before);
    sum_driver(&m, &calls_before, &nanoseconds_before);
    play(&m, &sc->body);
    sum_driver(&m, &calls, &nanoseconds);

    /* Driver calls at a peer's start count: they are a cost of its rules. Those for residents were not recorded. */
    out->driver_calls = calls - calls_before + calls_open;
    out->driver_ns = (double)(nanoseconds - nanoseconds_before + nanoseconds_open);
    (void)script_demand(sc, refused, requested);
    for (int i = 0; i < sc->devices; i++) measurement_add(out, i, requested[i], m.devices[i].driver.peak);
    free(requested);
    model_close(&m);
}
