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
static const wr_place_limit UNLIMITED = { .work = UINT64_MAX };

#endif
