#include "script/part.h"

#include "grow.h"
#include "script/ops.h"

#include <stdlib.h>

/* The state at some operation. */
typedef struct state {
    const script_op **live; /* by slot: the live allocation; NULL: none */
    size_t *pending;        /* by gate: how many blocks wait there */
} state;

static void state_open(state *at, const script *s)
{
    at->live = grow_new(s->slots, sizeof *at->live);
    at->pending = grow_new(s->gate_count, sizeof *at->pending);
}

static void state_close(state *at)
{
    free((void *)at->live);
    free(at->pending);
}

static void follow(state *at, const script_op *op)
{
    switch ((script_kind)op->kind) {
    case SCRIPT_ALLOC: at->live[op->slot] = op; break;
    case SCRIPT_FREE: at->live[op->slot] = NULL; break;
    case SCRIPT_FREE_LATER:
        at->live[op->slot] = NULL;
        at->pending[op->where]++;
        break;
    case SCRIPT_COMPLETE: at->pending[op->where]--; break;
    case SCRIPT_EMPTY:
    case SCRIPT_EMPTY_POOL:
    case SCRIPT_RELIEVE:
    case SCRIPT_REFUSED: break;
    }
}

static void add_live(script_ops *to, const state *at, const script_ops *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const script_op *op = &from->at[i];
        if (op->kind == SCRIPT_ALLOC && at->live[op->slot] == op) script_ops_add(to, *op);
    }
}

/* Adds frees for live blocks, and completions for waiting ones. */
static void add_end(script *out, const state *at)
{
    for (size_t slot = 0; slot < out->slots; slot++)
        if (at->live[slot]) script_ops_add(&out->after, (script_op){ .kind = SCRIPT_FREE, .slot = (uint32_t)slot });
    for (size_t gate = 0; gate < out->gate_count; gate++)
        for (size_t i = 0; i < at->pending[gate]; i++)
            script_ops_add(&out->after, (script_op){ .kind = SCRIPT_COMPLETE, .where = (uint32_t)gate });
}

void script_part(const script *whole, size_t from, size_t to, script *out)
{
    state at;
    *out = *whole;
    out->before = out->body = out->after = (script_ops){ 0 };
    out->segments = NULL;
    out->segment_count = out->segment_capacity = 0;
    out->operations = out->refused = 0;
    out->duration_ns = 0;

    state_open(&at, whole);
    for (size_t i = 0; i < whole->before.count; i++) follow(&at, &whole->before.at[i]);
    for (size_t i = 0; i < from; i++) follow(&at, &whole->body.at[i]);
    add_live(&out->before, &at, &whole->before, whole->before.count);
    add_live(&out->before, &at, &whole->body, from);
    out->residents = out->before.count;

    /* Blocks pass a gate in order, so its first completions belong to blocks that were waiting before `from`. */
    size_t *gone = at.pending;
    at.pending = grow_new(whole->gate_count, sizeof *at.pending);
    for (size_t i = from; i < to; i++) {
        const script_op *op = &whole->body.at[i];
        if (op->kind == SCRIPT_RELIEVE) continue;
        if (op->kind == SCRIPT_COMPLETE && gone[op->where]) {
            gone[op->where]--;
            continue;
        }
        follow(&at, op);
        script_ops_add(&out->body, *op);
        out->operations += script_op_is_operation(op);
        out->refused += op->kind == SCRIPT_REFUSED;
    }
    add_end(out, &at);
    free(gone);
    state_close(&at);
}

void script_part_release(script *part)
{
    free(part->before.at);
    free(part->body.at);
    free(part->after.at);
    *part = (script){ 0 };
}
