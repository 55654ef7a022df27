/*
 * follow: where a program is in the plan of one of its streams, judged by the sizes that it asks for there. It knows
 * nothing of memory: whether a place is free is another question.
 *
 * The course is the plan's sequence of entries, some of which may repeat. A request of the size of the next entry is
 * that entry. A request of another size is looked for. First a little ahead, where the request before it must match
 * too: the program has left something out. Otherwise by the last sizes asked for, as few of them as occur at only few
 * places. A request that is nowhere in the course is not planned. Trust measures how well program and course agree: a
 * program that only sometimes asks for a planned size, by chance, is not following.
 *
 * A recording that began in the middle of a program knows the blocks that lived then, its residents, but not the order
 * in which they were made. They are no part of the sequence: a request that is not expected may be any resident of its
 * size, each in turn. Nor is the program expected at the beginning of the sequence, before it is found there.
 * Owner: a course and its follower belong to the owner of the stream. No lock.
 */
#ifndef WR_POOL_PLAN_FOLLOW_H
#define WR_POOL_PLAN_FOLLOW_H

#include "pool/policy.h"
#include "weir/plan.h"

#include <stdbool.h>

/* So many sizes in a row identify a place in the course for certain. Fewer do if they occur at no more than 1 in so
 * many places. */
#define WR_FOLLOW_RECENT 8
#define WR_FOLLOW_FEW 256

/* A program that was not served for so many requests, and is not where it was expected, is looked for at only one in so
 * many: searching takes longer than serving, and may be in vain for ever. */
#define WR_FOLLOW_LONG 16384
#define WR_FOLLOW_SELDOM 16

/* A course may need 1 byte in so many more than is alive (wr_course_begin_at). Memory comes in units of
 * WR_SEGMENT_UNIT; with more units than the most, all are needed. */
#define WR_FOLLOW_WASTE 100
#define WR_FOLLOW_UNITS_MOST ((uint64_t)1 << 24)

/* How far ahead a request is looked for when something was left out. */
#define WR_FOLLOW_NEAR 32

typedef struct wr_planned {
    uint64_t offset, bytes;
    bool stays; /* not freed in the recording */
} wr_planned;

/* An entry, and a hash of the fewest sizes, ending with its own, that identify it. */
typedef struct wr_landmark {
    uint64_t hash;
    uint32_t entry;
} wr_landmark;

/* The entry of a block that lived when the recording began, and long after. */
typedef struct wr_resident {
    uint64_t bytes;
    uint32_t entry;
    uint32_t asked; /* in the first of each size: how often one of them was handed out */
} wr_resident;

typedef struct wr_course {
    wr_planned *entries;
    uint32_t count;
    uint64_t bytes;         /* of the arena */
    uint32_t first;         /* of the sequence; blocks of earlier entries lived when the recording began */
    wr_resident *residents; /* by size, then entry */
    uint32_t resident_count;
    uint32_t loop_first, loop_count; /* the entries that repeat; none: count 0 */
    uint64_t *units;                 /* units of addresses that are needed, a bit each; NULL: all are */
    wr_landmark *landmarks;          /* by hash, then entry */
    uint32_t landmark_count;
} wr_course;

/*
 * Trust: an expected request adds one. A place that is in use subtracts some, and so does having to look for the
 * program elsewhere. The first of several requests outside the course subtracts most. A program that has lost all trust
 * must do what is expected many times in a row to be served again, and many more times after the next loss, since
 * beginning and ending in mid-course cost memory (at first few will do: a plan may come in mid-course). Where a round
 * begins nothing of it is live. So there a program is served again that has done a whole round as planned, after the
 * next loss four, then 16 and so on. One that is then served for long has a clean record.
 */
enum {
    WR_TRUST_MOST = 32,
    WR_TRUST_LATE = 2,
    WR_TRUST_JUMPED = 4,
    WR_TRUST_LOST = 8,
    WR_PROBATION_LEAST = 64,
    WR_PROBATION_MORE = 16, /* times as many after each loss */
    WR_PROBATION_MOST = 65536,
    WR_PROBATION_OVER = 8, /* times as many served */
    WR_ROUNDS_MORE = 4,    /* times as many after each loss */
    WR_ROUNDS_MOST = 64
};

#define WR_NOWHERE UINT32_MAX

typedef struct wr_follower {
    uint64_t recent[WR_FOLLOW_RECENT]; /* ring of the last sizes asked for */
    uint64_t asked;                    /* how many were asked for, ever */
    uint32_t next;                     /* the expected entry; WR_NOWHERE: none */
    uint32_t missed;                   /* how many of the last requests, in a row, were not in the course */
    uint64_t unserved;                 /* how many in a row found no trust */
    bool over;                         /* the course has ended, and is expected to begin again */
    uint32_t trust;                    /* 0: not to be served */
    uint32_t run;       /* of expected requests, since the last other one or, while served, since serving began */
    uint32_t probation; /* the run that must be reached, */
    uint32_t rounds;    /* or of so many rounds, for which serving begins with the next */
} wr_follower;

typedef enum wr_followed {
    WR_FOLLOW_NONE,    /* the request is not in the course */
    WR_FOLLOW_NEXT,    /* it is the expected one */
    WR_FOLLOW_FOUND,   /* it was found elsewhere; what comes after that is expected next */
    WR_FOLLOW_RESIDENT /* it may be a resident; what is expected does not change */
} wr_followed;

/* WEIR_ERR_INVALID_ARGUMENT for an inconsistent arena. The plan is not needed afterwards. */
WR_CHECKED weir_status wr_course_init(wr_course *course, const weir_plan *plan, const weir_plan_arena *arena);
void wr_course_release(wr_course *course);

/* Whether a program that does what was planned may begin with a request of so many bytes. */
bool wr_course_may_begin(const wr_course *course, uint64_t bytes);

/* The program was found at an entry, and has made nothing of what comes before that in its place. What was to stay
 * there may lie between what is to come, and needs no memory. False: what is to come is so scattered that it would take
 * much more memory than is live. */
bool wr_course_begin_at(wr_course *course, uint32_t entry);

/* A new follower is trusted, and expects the program at the beginning of the course or, if the course has residents,
 * making those. */
void wr_follower_init(wr_follower *follower, wr_course *course);

/* The place of an entry was of no use. */
void wr_follower_fail(wr_follower *follower, uint32_t cost);

/* The stream asks for a block of so many bytes. *entry: which one it is, unless there is none. */
wr_followed wr_follow(wr_follower *follower, wr_course *course, uint64_t bytes, uint32_t *entry);

/* Whether the program has lost trust no more than once, or was served for long since. */
static inline bool wr_follower_proven(const wr_follower *follower)
{
    return follower->probation <= WR_PROBATION_LEAST;
}

static inline bool wr_follower_trusted(const wr_follower *follower)
{
    return follower->trust != 0;
}

#endif
