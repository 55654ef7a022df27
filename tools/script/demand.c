#include "script/demand.h"

#include "grow.h"

#include <assert.h>
#include <stdlib.h>

typedef struct use {
    uint64_t bytes, peak;
} use;

/* Freed blocks that another stream still uses, in the order in which their uses end. */
typedef struct waiting {
    uint64_t *bytes;
    size_t first, count, capacity;
} waiting;

typedef struct demand {
    const script *script;
    use *devices;
    const script_op **slots; /* the live allocation of each slot */
    waiting *gates;
    bool refused;
} demand;

static use *use_of(const demand *d, uint32_t stream)
{
    return &d->devices[d->script->streams[stream].device];
}

static void take(use *u, uint64_t bytes)
{
    u->bytes += bytes;
    if (u->bytes > u->peak) u->peak = u->bytes;
}

static void wait_at(waiting *at, uint64_t bytes)
{
    at->bytes = grow_array(at->bytes, at->count + 1, &at->capacity, sizeof *at->bytes);
    at->bytes[at->count++] = bytes;
}

static void follow(demand *d, const script_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++) {
        const script_op *op = &ops->at[i];
        switch ((script_kind)op->kind) {
        case SCRIPT_ALLOC:
            d->slots[op->slot] = op;
            take(use_of(d, op->where), op->bytes);
            break;
        case SCRIPT_FREE: use_of(d, d->slots[op->slot]->where)->bytes -= d->slots[op->slot]->bytes; break;
        case SCRIPT_FREE_LATER: wait_at(&d->gates[op->where], d->slots[op->slot]->bytes); break;
        case SCRIPT_COMPLETE: {
            waiting *at = &d->gates[op->where];
            assert(at->first < at->count);
            d->devices[d->script->gates[op->where]].bytes -= at->bytes[at->first++];
            break;
        }
        case SCRIPT_REFUSED:
            if (!d->refused) break;
            take(use_of(d, op->where), op->bytes);
            use_of(d, op->where)->bytes -= op->bytes;
            break;
        case SCRIPT_EMPTY:
        case SCRIPT_EMPTY_POOL:
        case SCRIPT_RELIEVE: break;
        }
    }
}

uint64_t script_demand(const script *s, bool refused, uint64_t *each)
{
    demand d = { .script = s, .refused = refused };
    uint64_t sum = 0;
    d.devices = grow_new((size_t)s->devices, sizeof *d.devices);
    d.slots = grow_new(s->slots, sizeof *d.slots);
    d.gates = grow_new(s->gate_count, sizeof *d.gates);
    follow(&d, &s->before);
    follow(&d, &s->body);

    for (int i = 0; i < s->devices; i++) {
        sum += d.devices[i].peak;
        if (each) each[i] = d.devices[i].peak;
    }
    for (size_t i = 0; i < s->gate_count; i++) free(d.gates[i].bytes);
    free(d.gates);
    free((void *)d.slots);
    free(d.devices);
    return sum;
}
