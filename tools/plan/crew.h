/*
 * crew: threads that search placements, each with a decoder and room of its own.
 * Owner: solve, for one floor. What they share is said where they work: greedy.c and improve.c.
 */
#ifndef WEIR_TOOLS_PLAN_CREW_H
#define WEIR_TOOLS_PLAN_CREW_H

#include "plan/decode.h"
#include "plan/parts.h"

/* Called by one thread at a time, now and then: seconds since the beginning, and which share of the blocks the first
 * placement has placed; 1: it is made. May be NULL. */
typedef void (*plan_progress)(void *user, double seconds, double placed);

/* What is searched: offsets of one part's blocks. */
typedef struct goal {
    const layout *l;
    const uint64_t *load, *floor;
    const part *part;
    uint64_t bound; /* reaching it ends the search */
    uint64_t seed, work, began_ns, deadline_ns;
    bool unanswered; /* there is no placement yet: one is made, however long it takes */
    size_t before;   /* blocks of the parts that were placed before this one */
    plan_progress progress;
    void *user;
} goal;

/* Tells of the progress: `done` blocks of the part are placed, and none of those behind it. */
void goal_tell(const goal *g, size_t done);

/* For decoders: the blocks are placed for the first time; or again, so that only the time goes on. */
void goal_watch(const void *of_goal, size_t done);
void goal_watch_again(const void *of_goal, size_t done);

typedef struct worker {
    decoder decoder;
    uint64_t *offset; /* of the layout's blocks */
    uint32_t *order;
} worker;

typedef struct crew {
    worker *at;
    unsigned count;
} crew;

void crew_init(crew *c, unsigned count, const layout *l, const uint64_t *floor);
void crew_release(crew *c);

/* Narrows the decoders to a part. */
void crew_turn_to(crew *c, const part *p);

/* Runs work(job, number) for every number below `count`, each in a thread, and waits for all. */
void crew_run(unsigned count, void (*work)(void *job, unsigned number), void *job);

/* The blocks' offsets, from one array of the layout's blocks to another. */
void copy_offsets(const part *p, const uint64_t *from, uint64_t *to);

#endif
