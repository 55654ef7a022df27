#include "plan/problem.h"

#include "grow.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Keeps sums of sizes far from overflow. */
#define MOST_BYTES (UINT64_C(1) << 62)
#define NOWHERE UINT32_MAX

/* Which block of which arena a block of the script became. */
typedef struct place {
    uint32_t arena, block;
    uint64_t requested;
} place;

/* Blocks waiting at a gate (script/script.h), oldest first. */
typedef struct queue {
    place *at;
    size_t first, count, capacity;
} queue;

typedef struct builder {
    const script *s;
    problem *p;
    place *slots;
    queue *gates;
    uint32_t *arena_of, *stream_of; /* by the script's stream; NOWHERE until it allocates */
    uint64_t *live;                 /* requested bytes, by device */
    bool apart;
} builder;

/* FNV-1a, eight bytes at a time. */
static void mix(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * UINT64_C(0x100000001b3);
    *hash ^= *hash >> 29;
}

static uint32_t arena_for(builder *b, uint32_t stream)
{
    assert(stream < b->s->stream_count);
    if (b->arena_of[stream] != NOWHERE) return b->arena_of[stream];

    const script_stream *of = &b->s->streams[stream];
    problem *p = b->p;
    size_t i = 0;
    while (i < p->count && (b->apart || p->arenas[i].device != of->device || p->arenas[i].pool != of->pool)) i++;
    if (i == p->count) {
        p->arenas = grow_array(p->arenas, p->count + 1, &p->capacity, sizeof *p->arenas);
        p->arenas[p->count++] = (arena){ .device = of->device, .pool = of->pool };
    }
    arena *a = &p->arenas[i];
    a->streams = grow_array(a->streams, a->stream_count + 1, &a->stream_capacity, sizeof *a->streams);
    b->stream_of[stream] = (uint32_t)a->stream_count;
    a->streams[a->stream_count++] = stream;
    return b->arena_of[stream] = (uint32_t)i;
}

static bool on_alloc(builder *b, const script_op *op)
{
    uint32_t number = arena_for(b, op->where);
    assert(b->p->arenas);
    arena *a = &b->p->arenas[number];
    uint64_t requested = op->bytes ? op->bytes : 1;
    if (requested > MOST_BYTES - PLAN_ALIGNMENT - a->total) return false;

    uint64_t bytes = (requested + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    a->total += bytes;
    a->blocks = grow_array(a->blocks, a->count + 1, &a->capacity, sizeof *a->blocks);
    a->blocks[a->count] = (arena_block){ bytes, a->steps++, UINT32_MAX, b->stream_of[op->where] };
    b->slots[op->slot] = (place){ number, (uint32_t)a->count++, op->bytes };

    b->live[a->device] += op->bytes;
    if (b->live[a->device] > b->p->live[a->device]) b->p->live[a->device] = b->live[a->device];
    mix(&b->p->hash, bytes);
    mix(&b->p->hash, op->where);
    return true;
}

static void on_end(builder *b, place at)
{
    assert(b->p->arenas); /* a block that ends has begun in an arena */
    arena *a = &b->p->arenas[at.arena];
    a->blocks[at.block].end = a->steps++;
    b->live[a->device] -= at.requested;
    mix(&b->p->hash, (uint64_t)at.block << 1 | 1);
    mix(&b->p->hash, at.arena);
}

static void enqueue(queue *q, place at)
{
    q->at = grow_array(q->at, q->first + q->count + 1, &q->capacity, sizeof *q->at);
    q->at[q->first + q->count++] = at;
}

static bool play(builder *b, const script_ops *ops)
{
    for (size_t i = 0; i < ops->count; i++) {
        const script_op *op = &ops->at[i];
        switch ((script_kind)op->kind) {
        case SCRIPT_ALLOC:
            if (!on_alloc(b, op)) return false;
            break;
        case SCRIPT_FREE: on_end(b, b->slots[op->slot]); break;
        case SCRIPT_FREE_LATER: enqueue(&b->gates[op->where], b->slots[op->slot]); break;
        case SCRIPT_COMPLETE:
            if (b->gates[op->where].count == 0) break;
            b->gates[op->where].count--;
            on_end(b, b->gates[op->where].at[b->gates[op->where].first++]);
            break;
        case SCRIPT_EMPTY:
        case SCRIPT_EMPTY_POOL:
        case SCRIPT_RELIEVE:
        case SCRIPT_REFUSED: break;
        }
    }
    return true;
}

/* Blocks that were never freed live to the end. */
static void close_arenas(problem *p)
{
    for (size_t n = 0; n < p->count; n++) {
        arena *a = &p->arenas[n];
        for (size_t i = 0; i < a->count; i++)
            if (a->blocks[i].end == UINT32_MAX) a->blocks[i].end = a->steps;
    }
}

bool problem_build(const script *s, bool streams_apart, problem *out, char *error, size_t error_size)
{
    *out = (problem){ .devices = (size_t)s->devices, .hash = UINT64_C(0xcbf29ce484222325) };
    out->live = grow_new(out->devices, sizeof *out->live);
    builder b = { .s = s, .p = out, .apart = streams_apart };
    b.slots = grow_new(s->slots, sizeof *b.slots);
    b.gates = grow_new(s->gate_count, sizeof *b.gates);
    b.arena_of = grow_new(s->stream_count, sizeof *b.arena_of);
    b.stream_of = grow_new(s->stream_count, sizeof *b.stream_of);
    b.live = grow_new(out->devices, sizeof *b.live);
    for (size_t i = 0; i < s->stream_count; i++) b.arena_of[i] = NOWHERE;

    bool good = play(&b, &s->before);
    for (size_t i = 0; i < out->count; i++) out->arenas[i].residents = out->arenas[i].count;
    good = good && play(&b, &s->body);
    if (good) {
        close_arenas(out);
    } else {
        snprintf(error, error_size, "its sizes add up to more than %" PRIu64 " bytes, which no device has", MOST_BYTES);
        problem_release(out);
    }
    for (size_t i = 0; i < s->gate_count; i++) free(b.gates[i].at);
    free(b.gates);
    free(b.slots);
    free(b.arena_of);
    free(b.stream_of);
    free(b.live);
    return good;
}

void problem_release(problem *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->arenas[i].blocks);
        free(p->arenas[i].streams);
    }
    free(p->arenas);
    free(p->live);
    *p = (problem){ 0 };
}
