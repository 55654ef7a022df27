/*
 * follow: where a program is in the plan of one of its streams, told by the sizes that it asks for there. Knows no memory:
 * whether a place is free is another question.
 *
 * The course is the plan's sequence: entries, of which some may repeat. A request of the size of the entry that comes next
 * is that entry. One of another size is looked for: a little ahead, when the request before it is what comes before it in
 * the course (the program has left something out), else wherever the last sizes all agree. A request that is nowhere is the
 * program's own affair. Trust counts how well the two agree: a program that only sometimes asks for a planned size by
 * chance is not following.
 * Owner: the course is constant from init to release; a follower belongs to whoever has the stream. No lock.
 */
#ifndef WR_POOL_FOLLOW_H
#define WR_POOL_FOLLOW_H

#include "base/compiler.h"
#include "weir/plan.h"

#include <stdbool.h>

/* So many sizes in a row tell a place in the course. */
#define WR_FOLLOW_RECENT 8

/* So far ahead is looked for what comes after something that was left out. */
#define WR_FOLLOW_NEAR 32

typedef struct wr_planned {
    uint64_t offset, bytes;
} wr_planned;

/* Where in the course the last WR_FOLLOW_RECENT sizes have that hash. */
typedef struct wr_landmark {
    uint64_t hash;
    uint32_t entry;
} wr_landmark;

typedef struct wr_course {
    wr_planned *entries;
    uint32_t count;
    uint32_t loop_first, loop_count; /* the entries that repeat; none: count 0 */
    wr_landmark *landmarks;          /* by hash, then entry */
    uint32_t landmark_count;
} wr_course;

/*
 * Trust: a request that is what was expected gives one, a place that was in use takes some, a request that is not in the course
 * takes more. Who has lost it all must do what was expected many times in a row to be served again, twice as many as the last
 * time (the first time half as many: a plan may come while the program is in the middle of it); who then is served for long is as good as new.
 */
enum {
    WR_TRUST_MOST = 32,
    WR_TRUST_LATE = 2,
    WR_TRUST_LOST = 8,
    WR_PROBATION_LEAST = 64,
    WR_PROBATION_MOST = 4096,
    WR_PROBATION_OVER = 8 /* times as many served */
};

typedef struct wr_follower {
    uint64_t recent[WR_FOLLOW_RECENT]; /* sizes asked for, in a ring */
    uint64_t asked;                    /* how many, ever */
    uint32_t next;                     /* the entry that is expected */
    uint32_t trust;                    /* 0: not to be served */
    uint32_t run; /* of requests that were expected: since the last that was not, or while served since that began */
    uint32_t probation; /* the run that it takes */
} wr_follower;

typedef enum wr_followed {
    WR_FOLLOW_NONE, /* the request is not in the course, there */
    WR_FOLLOW_NEXT, /* it is what was expected */
    WR_FOLLOW_FOUND /* it was found elsewhere, and what comes after it is expected next */
} wr_followed;

/* WEIR_ERR_INVALID_ARGUMENT for an arena that says what cannot be; the plan is not needed afterwards. */
WR_CHECKED weir_status wr_course_init(wr_course *course, const weir_plan *plan, const weir_plan_arena *arena);
void wr_course_release(wr_course *course);

/* A follower is at the course's beginning, and trusted: it is there that a program is expected. */
void wr_follower_init(wr_follower *follower);

/* The place of an entry was of no use. */
void wr_follower_fail(wr_follower *follower, uint32_t cost);

/* The stream asks for a block of so many bytes. *entry is which one it is, unless there is none. */
wr_followed wr_follow(wr_follower *follower, const wr_course *course, uint64_t bytes, uint32_t *entry);

/* Whether it has kept to the course so far, or for long again. */
static inline bool wr_follower_proven(const wr_follower *follower)
{
    return follower->probation <= WR_PROBATION_LEAST;
}

static inline bool wr_follower_trusted(const wr_follower *follower)
{
    return follower->trust != 0;
}

#endif
