#include "script/part.h"

#include "grow.h"
#include "script/ops.h"

#include <stdlib.h>

/* The state at some operation. */
typedef struct state {
    bool *live;      /* by slot */
    size_t *pending; /* by gate: how many blocks wait there */
} state;

static void state_open(state *at, const script *s)
{
    at->live = grow_new(s->slots, sizeof *at->live);
    at->pending = grow_new(s->gate_count, sizeof *at->pending);
}

static void state_close(state *at)
{
    free(at->live);
    free(at->pending);
}

static void follow(state *at, const script_op *op)
{
    switch ((script_kind)op->kind) {
    case SCRIPT_ALLOC: at->live[op->slot] = true; break;
    case SCRIPT_FREE: at->live[op->slot] = false; break;
    case SCRIPT_FREE_LATER:
        at->live[op->slot] = false;
        at->pending[op->where]++;
        break;
    case SCRIPT_COMPLETE: at->pending[op->where]--; break;
    case SCRIPT_EMPTY:
    case SCRIPT_EMPTY_POOL:
    case SCRIPT_RELIEVE:
    case SCRIPT_REFUSED: break;
    }
}

/* What there was before a part: the whole script's `before`, and then its body up to the part. */
typedef struct past {
    const script *whole;
    size_t count;
    bool *kept;    /* by operation: whether its block is still in use where the part begins, maybe freed and waiting */
    size_t *alloc; /* by free: the operation that allocated the block */
    size_t *next;  /* by free that waits: the next one at its gate */
} past;

enum { NONE = SIZE_MAX };

static const script_op *past_op(const past *p, size_t i)
{
    const script_ops *before = &p->whole->before;
    return i < before->count ? &before->at[i] : &p->whole->body.at[i - before->count];
}

static size_t *new_indices(size_t count)
{
    size_t *at = grow_new(count, sizeof *at);
    for (size_t i = 0; i < count; i++) at[i] = NONE;
    return at;
}

static void past_open(past *p, const script *whole, size_t from)
{
    *p = (past){ .whole = whole, .count = whole->before.count + from };
    p->kept = grow_new(p->count, sizeof *p->kept);
    p->alloc = new_indices(p->count);
    p->next = new_indices(p->count);
}

static void past_close(past *p)
{
    free(p->kept);
    free(p->alloc);
    free(p->next);
}

/* The frees that wait at a gate, in the order in which they will pass. */
typedef struct line {
    size_t *first, *last; /* by gate; NONE: nothing waits */
} line;

static void wait_in(line *l, past *p, uint32_t gate, size_t i)
{
    if (l->first[gate] == NONE)
        l->first[gate] = i;
    else
        p->next[l->last[gate]] = i;
    l->last[gate] = i;
}

/* `live`: by slot, the operation that allocated its block. */
static void read_past(past *p, size_t *live, line *l)
{
    for (size_t i = 0; i < p->count; i++) {
        const script_op *op = past_op(p, i);
        if (op->kind == SCRIPT_ALLOC) live[op->slot] = i;
        if (op->kind == SCRIPT_COMPLETE && l->first[op->where] != NONE)
            l->first[op->where] = p->next[l->first[op->where]];
        if (op->kind != SCRIPT_FREE && op->kind != SCRIPT_FREE_LATER) continue;
        p->alloc[i] = live[op->slot];
        live[op->slot] = NONE;
        if (op->kind == SCRIPT_FREE_LATER) wait_in(l, p, op->where, i);
    }
}

/* Finds out which operations are kept. */
static void look_back(past *p)
{
    const script *whole = p->whole;
    size_t *live = new_indices(whole->slots);
    line l = { new_indices(whole->gate_count), new_indices(whole->gate_count) };
    read_past(p, live, &l);
    for (size_t slot = 0; slot < whole->slots; slot++)
        if (live[slot] != NONE) p->kept[live[slot]] = true;
    for (size_t gate = 0; gate < whole->gate_count; gate++)
        for (size_t i = l.first[gate]; i != NONE; i = p->next[i]) p->kept[i] = p->kept[p->alloc[i]] = true;
    free(live);
    free(l.first);
    free(l.last);
}

/* In their order, so that slots are used again only once they are free, and gates are passed in order. */
static void add_before(script *out, const script *whole, size_t from)
{
    past p;
    past_open(&p, whole, from);
    look_back(&p);
    for (size_t i = 0; i < p.count; i++) {
        if (!p.kept[i]) continue;
        script_ops_add(&out->before, *past_op(&p, i));
        out->residents += past_op(&p, i)->kind == SCRIPT_ALLOC;
    }
    past_close(&p);
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
    out->operations = out->refused = out->residents = 0;
    out->duration_ns = 0;

    state_open(&at, whole);
    for (size_t i = 0; i < whole->before.count; i++) follow(&at, &whole->before.at[i]);
    for (size_t i = 0; i < from; i++) follow(&at, &whole->body.at[i]);
    add_before(out, whole, from);
    for (size_t i = from; i < to; i++) {
        const script_op *op = &whole->body.at[i];
        if (op->kind == SCRIPT_RELIEVE) continue;
        follow(&at, op);
        script_ops_add(&out->body, *op);
        out->operations += script_op_is_operation(op);
        out->refused += op->kind == SCRIPT_REFUSED;
    }
    add_end(out, &at);
    state_close(&at);
}

void script_part_release(script *part)
{
    free(part->before.at);
    free(part->body.at);
    free(part->after.at);
    *part = (script){ 0 };
}
