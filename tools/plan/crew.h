/*
 * crew: threads that search placements, each with its own decoder and buffers.
 * Owner: solve, for one floor. greedy.c and improve.c say what their threads share.
 */
#ifndef WEIR_TOOLS_PLAN_CREW_H
#define WEIR_TOOLS_PLAN_CREW_H

#include "plan/decode.h"
#include "plan/parts.h"

/* Called now and then, by one thread at a time: seconds since the beginning, and the share of blocks that the first
 * placement has placed; 1 once it is complete. May be NULL. */
typedef void (*plan_progress)(void *user, double seconds, double placed);

/* One search: for the offsets of one part's blocks. */
typedef struct goal {
    const layout *l;
    const uint64_t *load, *floor;
    const part *part;
    uint64_t bound; /* reaching it ends the search */
    uint64_t seed, work, began_ns, deadline_ns;
    bool unanswered; /* there is no placement yet: the first is completed, however long it takes */
    size_t before;   /* how many blocks the parts placed before this one have */
    plan_progress progress;
    void *user;
} goal;

/* Reports progress: `done` blocks of the part are placed, and none of later parts. */
void goal_tell(const goal *g, size_t done);

/* Watchers for decoders. goal_watch: blocks are placed for the first time. goal_watch_again: only time advances. */
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

/* Runs work(job, number) for every number below `count`, each in its own thread, and waits for all. */
void crew_run(unsigned count, void (*work)(void *job, unsigned number), void *job);

/* Copies the offsets of the part's blocks; both arrays are indexed by the layout's blocks. */
void copy_offsets(const part *p, const uint64_t *from, uint64_t *to);

#endif
