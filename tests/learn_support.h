/*
 * learn_support: shared by tests of plans made from a history: lives, and a history written event by event. Include
 * after host_support.h.
 */
#ifndef WEIR_TESTS_LEARN_SUPPORT_H
#define WEIR_TESTS_LEARN_SUPPORT_H

#include "host_support.h"
#include "pool/plan/learn.h"
#include "weir/trace.h"

static inline bool lives_at(const wr_item *item, uint32_t step)
{
    if (item->start < item->end) return step >= item->start && step < item->end;
    return step >= item->start || step < item->end;
}

static inline bool meet(const wr_item *a, const wr_item *b, uint32_t steps)
{
    for (uint32_t step = 0; step < steps; step++)
        if (lives_at(a, step) && lives_at(b, step)) return true;
    return false;
}

static inline bool overlap(const wr_item *a, const wr_item *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

typedef struct tape {
    weir_event events[4096];
    size_t count;
    uint64_t next; /* address */
} tape;

static inline void add(tape *t, weir_event_kind kind, uint64_t address, uint64_t bytes, uint64_t stream)
{
    assert_true(t->count < sizeof t->events / sizeof t->events[0]);
    t->events[t->count++] = (weir_event){ .address = address, .size = bytes, .stream = stream, .kind = (uint16_t)kind };
}

/* A policy under which blocks have the requested sizes. */
static inline size_t as_it_is(const void *user, size_t requested)
{
    (void)user;
    return requested;
}

static const wr_learn_options SHARING = { .fit = as_it_is, .share = true }, APART = { .fit = as_it_is };
static inline void assert_no_plan(const tape *t, const wr_learn_options *options)
{
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    assert_status(wr_learn(t->events, t->count, options, &plan, &users), WEIR_ERR_NOT_READY);
    assert_null(plan);
}

/* Blocks of a ring of buffers: the oldest is freed for the next. */
static inline void add_ring(tape *t, uint64_t buffers, uint64_t blocks, uint64_t bytes, uint64_t stream)
{
    for (uint64_t i = 0; i < blocks; i++) {
        t->next += 1 << 20;
        if (i >= buffers) add(t, WEIR_EVENT_FREE_COMPLETED, t->next - (buffers << 20), bytes, stream);
        add(t, WEIR_EVENT_ALLOC, t->next, bytes, stream);
    }
}

static const wr_place_limit UNLIMITED = { .work = UINT64_MAX };

#endif
