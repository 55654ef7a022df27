/*
 * learn_internal: what learn.c finds in the history, from which learn_plan.c makes the plan.
 * Owner: the call of wr_learn.
 */
#ifndef WR_POOL_PLAN_LEARN_INTERNAL_H
#define WR_POOL_PLAN_LEARN_INTERNAL_H

#include "pool/plan/learn.h"

/* One allocation of the history. */
typedef struct wr_birth {
    uint64_t bytes, stream;
    uint32_t event; /* when it was made */
    uint32_t end;   /* the event that ended it; UINT32_MAX: none did */
} wr_birth;

/* The allocations of one stream, or of all. */
typedef struct wr_line {
    uint64_t stream;
    const uint32_t *at; /* into the births, by time */
    uint32_t count;
    uint32_t round; /* number of allocations in a round; 0: nothing repeats */
    uint64_t cost;  /* bytes of its places, or of what lives there at once if it gets none; 0: nothing repeats */
} wr_line;

typedef struct wr_learner {
    const wr_learn_options *options;
    wr_birth *births;
    uint32_t count;
    uint32_t events;     /* all that are recorded */
    uint32_t *by_stream; /* the births of each stream, one stream after another */
    wr_line *lines;
    size_t line_count;
    wr_line all; /* the allocations of all streams */
} wr_learner;

/* How many allocations of the line are made until the i-th ends, itself included; UINT32_MAX: it has not. */
uint32_t wr_learn_life_of(const wr_learner *l, const wr_line *of, uint32_t i);

/* Streams share where all of them together repeat, so that what is lent is free again in time, and it saves enough.
 * Errors as wr_learn. */
WR_CHECKED weir_status wr_learn_plan(const wr_learner *l, int device, weir_plan **out, const wr_arena_user **users);

#endif
