/*
 * follow: where a program is in the plan of one of its streams, told by the sizes that it asks for there. Knows no memory:
 * whether a place is free is another question.
 *
 * The course is the plan's sequence: entries, of which some may repeat. A request of the size of the entry that comes next
 * is that entry. One of another size is looked for: a little ahead, when the request before it is what comes before it in
 * the course (the program has left something out), else where the fewest last sizes that are found at few places agree. A
 * request that is nowhere is the program's own affair. Trust counts how well the two agree: a program that only sometimes asks
 * for a planned size by chance is not following.
 *
 * A recording that began in the middle of a program knows the blocks that lived then, its residents, but not in what order they
 * were made. They are no part of the sequence: a request that is not expected may be any of that size, each in turn. Where the
 * sequence begins the program is not expected either, before it is found there.
 * Owner: a course belongs, as its follower, to whoever has the stream. No lock.
 */
#ifndef WR_POOL_FOLLOW_H
#define WR_POOL_FOLLOW_H

#include "pool/policy.h"
#include "weir/plan.h"

#include <stdbool.h>

/* So many sizes in a row tell a place in the course for sure; fewer do when they are found at no more than 1 in so many places. */
#define WR_FOLLOW_RECENT 8
#define WR_FOLLOW_FEW 256

/* Who was not served for so many requests, and is not where it was expected, is looked for at one in so many: searching takes
 * longer than serving, and may be in vain for ever. */
#define WR_FOLLOW_LONG 16384
#define WR_FOLLOW_SELDOM 16

/* Little more: 1 byte in so many. Counted in units of WR_SEGMENT_UNIT, in which memory comes. */
#define WR_FOLLOW_WASTE 100
#define WR_FOLLOW_UNITS_MOST ((uint64_t)1 << 24)

/* So far ahead is looked for what comes after something that was left out. */
#define WR_FOLLOW_NEAR 32

typedef struct wr_planned {
    uint64_t offset, bytes;
    bool stays; /* it was not freed in the recording */
} wr_planned;

/* An entry, and a hash of the fewest sizes, up to its own, that tell where it is. */
typedef struct wr_landmark {
    uint64_t hash;
    uint32_t entry;
} wr_landmark;

/* The entry of a block that lived when the recording began, and for long after. */
typedef struct wr_resident {
    uint64_t bytes;
    uint32_t entry;
    uint32_t asked; /* of the first one of a size: how often one of them was given out */
} wr_resident;

typedef struct wr_course {
    wr_planned *entries;
    uint32_t count;
    uint64_t bytes;         /* of the arena */
    uint32_t first;         /* of the sequence; the blocks of those before lived when the recording began */
    wr_resident *residents; /* by size, then entry */
    uint32_t resident_count;
    uint32_t loop_first, loop_count; /* the entries that repeat; none: count 0 */
    uint64_t *units;                 /* of addresses that are needed, a bit each; NULL: all are */
    wr_landmark *landmarks;          /* by hash, then entry */
    uint32_t landmark_count;
} wr_course;

/*
 * Trust: a request that is what was expected gives one; a place that was in use takes some, and so does having to look for the
 * program elsewhere; the first of several requests that are not in the course takes most. Who has lost it all must do what was
 * expected many times in a row to be served again, and many more the next time, for to begin and to end in the middle of
 * things costs memory (the first time it is few: a plan may come while the program is in the middle of it); who then is
 * served for long is as good as new.
 */
enum {
    WR_TRUST_MOST = 32,
    WR_TRUST_LATE = 2,
    WR_TRUST_JUMPED = 4,
    WR_TRUST_LOST = 8,
    WR_PROBATION_LEAST = 64,
    WR_PROBATION_MORE = 16, /* times as many, each time */
    WR_PROBATION_MOST = 65536,
    WR_PROBATION_OVER = 8 /* times as many served */
};

#define WR_NOWHERE UINT32_MAX

typedef struct wr_follower {
    uint64_t recent[WR_FOLLOW_RECENT]; /* sizes asked for, in a ring */
    uint64_t asked;                    /* how many, ever */
    uint32_t next;                     /* the entry that is expected; WR_NOWHERE: none */
    uint32_t missed;                   /* how many of the last requests, in a row, were not in the course */
    uint64_t unserved;                 /* how many, in a row, found no trust */
    bool over;                         /* the course has come to its end, and is to begin again */
    uint32_t trust;                    /* 0: not to be served */
    uint32_t run; /* of requests that were expected: since the last that was not, or while served since that began */
    uint32_t probation; /* the run that it takes */
} wr_follower;

typedef enum wr_followed {
    WR_FOLLOW_NONE,    /* the request is not in the course, there */
    WR_FOLLOW_NEXT,    /* it is what was expected */
    WR_FOLLOW_FOUND,   /* it was found elsewhere, and what comes after it is expected next */
    WR_FOLLOW_RESIDENT /* it may be a resident; what is expected stays so */
} wr_followed;

/* WEIR_ERR_INVALID_ARGUMENT for an arena that says what cannot be; the plan is not needed afterwards. */
WR_CHECKED weir_status wr_course_init(wr_course *course, const weir_plan *plan, const weir_plan_arena *arena);
void wr_course_release(wr_course *course);

/* Whether a program that makes what was planned may begin with a request of so many bytes. */
bool wr_course_may_begin(const wr_course *course, uint64_t bytes);

/* A program is found at an entry, and has made nothing of what comes before in its place: what was to stay there may lie between
 * what comes, and needs no memory. False: what comes lies so scattered that it would take much more than what is alive. */
bool wr_course_begin_at(wr_course *course, uint32_t entry);

/* A follower is trusted, and at the course's beginning: it is there that a program is expected, or, where the course has
 * residents, making these. */
void wr_follower_init(wr_follower *follower, wr_course *course);

/* The place of an entry was of no use. */
void wr_follower_fail(wr_follower *follower, uint32_t cost);

/* The stream asks for a block of so many bytes. *entry is which one it is, unless there is none. */
wr_followed wr_follow(wr_follower *follower, wr_course *course, uint64_t bytes, uint32_t *entry);

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
