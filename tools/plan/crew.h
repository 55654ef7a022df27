/*
 * crew: threads that search placements, each with a decoder and room of its own.
 * Owner: solve, for one floor. What they share is said where they work: greedy.c and improve.c.
 */
#ifndef WEIR_TOOLS_PLAN_CREW_H
#define WEIR_TOOLS_PLAN_CREW_H

#include "plan/decode.h"
#include "plan/parts.h"

/* Called by thread 0 now and then: seconds since the beginning. May be NULL. */
typedef void (*plan_progress)(void *user, double seconds);

/* What is searched: offsets of one part's blocks. */
typedef struct goal {
    const layout *l;
    const uint64_t *load, *floor;
    const part *part;
    uint64_t bound; /* reaching it ends the search */
    uint64_t seed, work, began_ns, deadline_ns;
    bool unanswered; /* there is no placement yet: one is made, however long it takes */
    plan_progress progress;
    void *user;
} goal;

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
