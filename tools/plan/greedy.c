#include "plan/greedy.h"

#include "clock.h"
#include "plan/order.h"

#include <pthread.h>
#include <stdatomic.h>

static const struct attempt {
    order_kind order;
    decode_way way;
    const char *name;
} attempts[] = {
    { ORDER_SIZE, DECODE_FIRST, "size, first fit" }, { ORDER_SIZE, DECODE_BEST, "size, best fit" },
    { ORDER_LIFE, DECODE_BEST, "life, best fit" },   { ORDER_LIFE, DECODE_FIRST, "life, first fit" },
    { ORDER_PEAK, DECODE_FIRST, "peak, first fit" }, { ORDER_AREA, DECODE_BEST, "area, best fit" },
    { ORDER_AREA, DECODE_FIRST, "area, first fit" }, { ORDER_START, DECODE_BEST, "start, best fit" },
    { ORDER_LIFE, DECODE_TOP, "life, on top" },      { ORDER_SIZE, DECODE_TOP, "size, on top" },
    { ORDER_START, DECODE_TOP, "start, on top" },
};
enum { ATTEMPTS = sizeof attempts / sizeof *attempts };

#define WORTH_A_THREAD 1000 /* blocks */

typedef struct race {
    crew *crew;
    const goal *goal;
    atomic_uint next;
    _Atomic uint64_t limit; /* attempts that exceed this height stop: another is better */
    pthread_mutex_t lock;   /* guards what is below */
    uint64_t height;
    unsigned winner;
    uint64_t *offset; /* the winner's */
} race;

static void finish(race *r, unsigned number, uint64_t height, const uint64_t *offset)
{
    pthread_mutex_lock(&r->lock);
    /* Of equal heights the first attempt in the list wins, so that the result does not depend on the threads' speed. */
    if (height < r->height || (height == r->height && number < r->winner)) {
        r->height = height;
        r->winner = number;
        copy_offsets(r->goal->part, offset, r->offset);
        atomic_store(&r->limit, height);
    }
    pthread_mutex_unlock(&r->lock);
}

static void attempt_all(void *job, unsigned number)
{
    race *r = job;
    const goal *g = r->goal;
    worker *w = &r->crew->at[number];
    decoder *d = &w->decoder;
    d->watch = NULL;
    d->watcher = g;
    for (;;) {
        uint64_t limit = atomic_load(&r->limit);
        if (limit <= g->bound) return;
        unsigned i = atomic_fetch_add(&r->next, 1);
        const bool needed = g->unanswered && i == 0;
        if (i >= ATTEMPTS || (!needed && clock_now_ns() > g->deadline_ns)) return;

        /* The thread with the first attempt reports progress, also during its later attempts. */
        d->watch = i == 0 ? goal_watch : d->watch ? goal_watch_again : NULL;
        d->deadline_ns = needed ? 0 : g->deadline_ns;
        order_blocks(g->l, g->part, g->load, attempts[i].order, w->order);
        uint64_t height = decode(d, w->order, g->part->count, attempts[i].way, limit, w->offset);
        if (height != UINT64_MAX) finish(r, i, height, w->offset);
    }
}

uint64_t greedy(crew *c, const goal *g, uint64_t *offset, const char **how)
{
    race r = { .crew = c, .goal = g, .height = UINT64_MAX, .winner = ATTEMPTS, .offset = offset };
    atomic_init(&r.limit, UINT64_MAX - 1);
    pthread_mutex_init(&r.lock, NULL);
    crew_turn_to(c, g->part);
    crew_run(g->part->count < WORTH_A_THREAD ? 1 : c->count, attempt_all, &r);
    pthread_mutex_destroy(&r.lock);
    if (r.winner < ATTEMPTS) *how = attempts[r.winner].name;
    return r.height;
}
