/*
 * learn: tells from a program's history whether its allocations repeat, and plans one round of them. A round is what
 * each stream asked for, in order, twice in a row at the end of the history. Streams are looked at one by one: each has
 * its own round and its own arena. Where all of them together repeat too, and it saves enough, streams that hold little
 * may use addresses of the one that holds most.
 * Owner: the caller, until wr_plan_destroy. No lock; any thread.
 */
#ifndef WR_POOL_PLAN_LEARN_H
#define WR_POOL_PLAN_LEARN_H

#include "pool/plan/place_guests.h"
#include "weir/plan.h"
#include "weir/trace.h"

/* A round has at least so many allocations, and what repeats is at least such a share of the stream's: less repeats by
 * chance. */
#define WR_LEARN_LEAST 16
#define WR_LEARN_SHARE 4

/* At most 1 in so many of a round's allocations may outlive it: with more, its plan does not go well
 * (pool/plan/serve.h). So many rounds that have more are tried, each longer than the last. */
#define WR_LEARN_OUTLIVED 32
#define WR_LEARN_TRIES 64

/* The places of a round may cost more than lives at once by 1 byte in so many. Where they cost more, the streams that
 * cost most are not planned. Buffers that are used in turn are like that, unless a round is a number of turns. */
#define WR_LEARN_WASTES 16

/* Streams share addresses, and wait for each other, where that saves more than 1 byte in so many. */
#define WR_LEARN_SAVES 100

/* The block size that a request gets in the default pool. */
typedef size_t (*wr_learn_fit)(const void *user, size_t requested);

typedef struct wr_learn_options {
    wr_learn_fit fit;
    const void *user;        /* of fit */
    bool share;              /* streams may share addresses */
    const atomic_bool *stop; /* set by any thread: make no plan; NULL: never */
} wr_learn_options;

/* Makes a plan for the default pool of the events' device. Its course begins with what each stream asks for next.
 * *users: one for each arena, part of the plan's memory. WEIR_ERR_NOT_READY: nothing repeats, or it was stopped. */
WR_CHECKED weir_status wr_learn(const weir_event *events, size_t count, const wr_learn_options *options,
                                weir_plan **plan, const wr_arena_user **users);

#endif
