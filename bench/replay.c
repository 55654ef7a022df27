/*
 * replay: recorded traces played against weir's policies and its peers on one device, without kernels.
 *
 * Passes over a trace: an untimed one, for the peaks; COLD ones, each with the peer opened anew, since a peer that was
 * only emptied may have learned the trace; WARM ones, which find what the last pass left cached. A block that was freed
 * in the recording while another stream still used it is freed when that use ends. So no peer's time includes events,
 * and all have the same blocks live at every moment.
 */
#include "script/demand.h"

#include "grow.h"
#include "output/table.h"
#include "peers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLD = 3, WARM = 5 };

/* The result of one peer on one trace; a player's result has one for each trace. */
typedef struct outcome {
    bool measured;
    uint64_t failed; /* failed allocations of the pass with most */
    uint64_t reserved, device;
    double cold, warm; /* nanoseconds per operation */
} outcome;

typedef struct load {
    char name[96];
    script script;
    uint64_t requested; /* at the peak */
} load;

typedef struct campaign {
    load *loads;
    size_t load_count;
} campaign;

/* ---- one trace on one peer --------------------------------------------------------------------------------------- */

/* Freed blocks that another stream still uses, in the order in which those uses end. */
typedef struct waiting {
    uint32_t *slots;
    size_t first, count, capacity;
} waiting;

typedef struct block {
    void *pointer;
    uint64_t stream;
} block;

typedef struct run {
    const bench_peer *peer;
    const script *script;
    uint64_t *streams;
    block *slots;   /* a slot is reused while its last block waits ... */
    block *waiters; /* ... so waiting blocks are kept here */
    waiting *gates;
    size_t waiter_count, waiter_capacity;
    uint64_t failed, most_failed; /* allocations, in this pass and in the one with most */
    uint64_t device_peak;
    bool watch; /* read the driver's figure before memory is given back */
} run;

static void watch(run *r)
{
    const uint64_t now = r->watch ? r->peer->device_memory() : 0;
    if (now > r->device_peak) r->device_peak = now;
}

static void take(run *r, const script_op *op)
{
    block *b = &r->slots[op->slot];
    *b = (block){ r->peer->alloc(op->bytes, r->streams[op->where]), r->streams[op->where] };
    if (!b->pointer) r->failed++;
}

static void give(run *r, block *b)
{
    if (b->pointer) r->peer->release(b->pointer, b->stream);
    *b = (block){ 0 };
}

static void give_later(run *r, const script_op *op)
{
    waiting *gate = &r->gates[op->where];
    r->waiters = grow_array(r->waiters, r->waiter_count + 1, &r->waiter_capacity, sizeof *r->waiters);
    gate->slots = grow_array(gate->slots, gate->count + 1, &gate->capacity, sizeof *gate->slots);
    gate->slots[gate->count++] = (uint32_t)r->waiter_count;
    r->waiters[r->waiter_count++] = r->slots[op->slot];
    r->slots[op->slot] = (block){ 0 };
}

static void give_first(run *r, uint32_t where)
{
    waiting *gate = &r->gates[where];
    if (gate->first < gate->count) give(r, &r->waiters[gate->slots[gate->first++]]);
}

static void play(run *r, const script_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++) {
        const script_op *op = &ops->at[i];
        switch ((script_kind)op->kind) {
        case SCRIPT_ALLOC: take(r, op); break;
        case SCRIPT_FREE: give(r, &r->slots[op->slot]); break;
        case SCRIPT_FREE_LATER: give_later(r, op); break;
        case SCRIPT_COMPLETE: give_first(r, op->where); break;
        case SCRIPT_EMPTY:
            watch(r);
            r->peer->empty();
            break;
        case SCRIPT_EMPTY_POOL:
        case SCRIPT_RELIEVE: /* the recorded device was full; this one is not */
        case SCRIPT_REFUSED: break;
        }
    }
}

/* Nanoseconds per operation of the trace. Afterwards nothing is allocated. */
static double pass(run *r)
{
    r->failed = 0;
    play(r, &r->script->before);
    const uint64_t began = clock_now_ns();
    play(r, &r->script->body);
    const uint64_t took = clock_now_ns() - began;
    watch(r);
    play(r, &r->script->after);
    for (size_t g = 0; g < r->script->gate_count; g++) {
        while (r->gates[g].first < r->gates[g].count) give_first(r, (uint32_t)g);
        r->gates[g].first = r->gates[g].count = 0;
    }
    r->waiter_count = 0;
    if (r->failed > r->most_failed) r->most_failed = r->failed;
    return (double)took / (double)r->script->operations;
}

static run run_open(const bench_peer *peer, const script *s)
{
    run r = { .peer = peer, .script = s };
    r.streams = grow_new(s->stream_count, sizeof *r.streams);
    r.slots = grow_new(s->slots, sizeof *r.slots);
    r.gates = grow_new(s->gate_count, sizeof *r.gates);
    return r;
}

static void run_close(run *r)
{
    for (size_t g = 0; g < r->script->gate_count; g++) free(r->gates[g].slots);
    free(r->gates);
    free(r->slots);
    free(r->waiters);
    free(r->streams);
}

/* Opens the peer anew, with peaks of 0. */
static bool open_anew(run *r)
{
    r->peer->close();
    if (r->peer->open()) return false;
    peer_streams(r->peer, r->script->stream_count, r->streams);
    r->peer->enter(r->streams[0]);
    return true;
}

static bool measure_peaks(run *r, outcome *out)
{
    if (!open_anew(r)) return false;
    const uint64_t before = r->peer->device_memory();
    r->watch = true;
    (void)pass(r);
    r->watch = false;
    out->reserved = r->peer->reserved_peak();
    out->device = r->device_peak > before ? r->device_peak - before : 0;
    return true;
}

static bool measure_times(run *r, outcome *out)
{
    double cold[COLD], warm[WARM];
    for (int i = 0; i < COLD; i++) {
        if (!open_anew(r)) return false;
        cold[i] = pass(r);
    }
    for (int i = 0; i < WARM; i++) warm[i] = pass(r);
    out->cold = bench_median(cold, COLD);
    out->warm = bench_median(warm, WARM);
    return true;
}

static void measure(const bench_peer *peer, void *result, const void *context)
{
    const campaign *c = context;
    outcome *outcomes = result;
    if (!peer->device_memory || !peer->alloc) return;
    for (size_t i = 0; i < c->load_count; i++) {
        run r = run_open(peer, &c->loads[i].script);
        outcomes[i].measured = measure_peaks(&r, &outcomes[i]) && measure_times(&r, &outcomes[i]);
        outcomes[i].failed = r.most_failed;
        run_close(&r);
    }
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */

static bool load_trace(const char *path, load *out)
{
    trace t;
    trace_error error = { 0 };
    char reason[256];
    if (!trace_read(path, &t, &error, NULL, NULL)) {
        fprintf(stderr, "weir-bench: %s: %s\n", path, error.text);
        return false;
    }
    snprintf(out->name, sizeof out->name, "%s", t.name && t.name[0] ? t.name : path);
    bool good = script_build(&t, &out->script, reason, sizeof reason);
    trace_release(&t);
    if (good && (out->script.devices > 1 || out->script.operations == 0)) {
        snprintf(reason, sizeof reason, "it has %s",
                 out->script.devices > 1 ? "more than one device" : "no operations");
        script_release(&out->script);
        good = false;
    }
    if (good) out->requested = script_demand(&out->script, false, NULL);
    if (!good) fprintf(stderr, "weir-bench: %s cannot be replayed: %s\n", path, reason);
    return good;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static const outcome *outcome_of(const player *p, size_t index)
{
    return (const outcome *)p->result + index;
}

static void show(const campaign *c, const field *f)
{
    static const char *const titles[] = { "TRACE", "PEER",    "REQUESTED", "RESERVED", "RATIO",   "DEVICE",
                                          "RATIO", "COLD/OP", "TO WEIR",   "WARM/OP",  "TO WEIR", "OOM" };
    char size[TABLE_SIZE];
    table t;
    table_init(&t, "llrrrrrrrrrr");
    table_titles(&t, titles);
    for (size_t i = 0; i < c->load_count; i++)
        for (size_t p = 0; p < f->count; p++) {
            const outcome *o = outcome_of(&f->at[p], i), *weir = outcome_of(&f->at[0], i);
            const double requested = (double)c->loads[i].requested;
            if (!o->measured) continue;
            table_cell(&t, "%s", c->loads[i].name);
            table_cell(&t, "%s", f->at[p].name);
            table_cell(&t, "%s", table_size(c->loads[i].requested, size));
            table_cell(&t, "%s", table_size(o->reserved, size));
            table_cell(&t, "%.3f", (double)o->reserved / requested);
            table_cell(&t, "%s", table_size(o->device, size));
            table_cell(&t, "%.3f", (double)o->device / requested);
            table_cell(&t, "%.1f ns", o->cold);
            table_cell(&t, "%.2f", o->cold / weir->cold);
            table_cell(&t, "%.1f ns", o->warm);
            table_cell(&t, "%.2f", o->warm / weir->warm);
            table_cell(&t, "%" PRIu64, o->failed);
        }
    table_print(&t, stdout);
    table_release(&t);
    putchar('\n');
}

static double cold_ms(const campaign *c, const player *p)
{
    double ms = 0;
    for (size_t i = 0; i < c->load_count; i++)
        ms += outcome_of(p, i)->cold * (double)c->loads[i].script.operations / 1e6;
    return ms;
}

static void judge(const campaign *c, const field *f)
{
    double warm = 0, sum = 0, worst = 0;
    for (size_t i = 0; i < c->load_count; i++) {
        const outcome *o = outcome_of(&f->at[0], i);
        const double ratio = (double)o->reserved / (double)c->loads[i].requested;
        if (!o->measured || o->failed) return; /* a pass that lacks allocations says nothing of them */
        warm = fmax(warm, o->warm);
        worst = fmax(worst, ratio);
        sum += ratio;
    }
    bench_judge("replay, warm, worst trace", warm, 50, "ns/op");
    bench_judge("peak reserved / peak requested, mean", sum / (double)c->load_count, 1.02, "times");
    bench_judge("peak reserved / peak requested, worst trace", worst, 1.04, "times");
    for (size_t p = 1; p < f->count; p++)
        if (strstr(f->at[p].name, "expandable") && outcome_of(&f->at[p], c->load_count - 1)->measured)
            bench_judge("replay, cold, all traces, against expandable segments", cold_ms(c, &f->at[0]),
                        cold_ms(c, &f->at[p]), "ms");
}

/* ---- the benchmark ----------------------------------------------------------------------------------------------- */

static bool play_all(const campaign *c, const bench_options *options)
{
    static const bench_peer *const on_host[] = { &peer_weir, &peer_weir_torch_rules, NULL };
    static const bench_peer *const on_gpu[] = { &peer_weir, &peer_weir_torch_rules, &peer_async, NULL };
    const field_plan plan = { .bench = "replay",
                              .built_in = bench_on_host(options) ? on_host : on_gpu,
                              .variants = true,
                              .result_bytes = c->load_count * sizeof(outcome),
                              .measure = measure,
                              .context = c };
    field *f;
    const bool good = field_run(&f, &plan, options);
    printf(
        "replay, back end %s, ns per operation, median of %d cold and %d warm passes; DEVICE is the driver's figure, OOM "
        "of the pass with most\n",
        options->backend, COLD, WARM);
    show(c, f);
    judge(c, f);
    return good;
}

bool bench_replay(const bench_options *options)
{
    if (options->trace_count == 0) {
        puts("replay: left out: no trace was given\n");
        return true;
    }
    campaign c = { .loads = grow_new(options->trace_count, sizeof *c.loads) };
    bool good = true;
    for (size_t i = 0; i < options->trace_count; i++) {
        const bool loaded = load_trace(options->traces[i], &c.loads[c.load_count]);
        c.load_count += loaded;
        good &= loaded;
    }
    if (c.load_count > 0) good &= play_all(&c, options);
    for (size_t i = 0; i < c.load_count; i++) script_release(&c.loads[i].script);
    free(c.loads);
    return good;
}
