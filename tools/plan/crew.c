#include "plan/crew.h"

#include "clock.h"
#include "grow.h"

#include <pthread.h>
#include <stdlib.h>

void goal_tell(const goal *g, size_t done)
{
    if (!g->progress) return;
    const double placed = g->unanswered ? (double)(g->before + done) / (double)g->l->count : 1;
    g->progress(g->user, (double)(clock_now_ns() - g->began_ns) * 1e-9, placed);
}

void goal_watch(const void *of_goal, size_t done)
{
    goal_tell(of_goal, done);
}

void goal_watch_again(const void *of_goal, size_t done)
{
    (void)done;
    const goal *g = of_goal;
    goal_tell(g, g->part->count);
}

void crew_init(crew *c, unsigned count, const layout *l, const uint64_t *floor)
{
    *c = (crew){ grow_new(count, sizeof *c->at), count };
    for (unsigned i = 0; i < count; i++) {
        decoder_init(&c->at[i].decoder, l, floor);
        c->at[i].offset = grow_new(l->count, sizeof *c->at[i].offset);
        c->at[i].order = grow_new(l->count, sizeof *c->at[i].order);
    }
}

void crew_release(crew *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        decoder_release(&c->at[i].decoder);
        free(c->at[i].offset);
        free(c->at[i].order);
    }
    free(c->at);
    *c = (crew){ 0 };
}

void crew_turn_to(crew *c, const part *p)
{
    for (unsigned i = 0; i < c->count; i++) c->at[i].decoder.window = p->sections;
}

typedef struct errand {
    void (*work)(void *job, unsigned number);
    void *job;
    unsigned number;
    pthread_t thread;
    bool started;
} errand;

static void *run_errand(void *argument)
{
    errand *e = argument;
    e->work(e->job, e->number);
    return NULL;
}

void crew_run(unsigned count, void (*work)(void *job, unsigned number), void *job)
{
    errand *errands = grow_new(count, sizeof *errands);
    for (unsigned i = 0; i < count; i++) errands[i] = (errand){ .work = work, .job = job, .number = i };
    for (unsigned i = 1; i < count; i++)
        errands[i].started = pthread_create(&errands[i].thread, NULL, run_errand, &errands[i]) == 0;
    for (unsigned i = 0; i < count; i++)
        if (!errands[i].started) run_errand(&errands[i]);
    for (unsigned i = 1; i < count; i++)
        if (errands[i].started) pthread_join(errands[i].thread, NULL);
    free(errands);
}

void copy_offsets(const part *p, const uint64_t *from, uint64_t *to)
{
    for (size_t i = 0; i < p->count; i++) to[p->blocks[i]] = from[p->blocks[i]];
}
