#include "plan/improve.h"

#include "clock.h"
#include "grow.h"
#include "plan/anneal.h"
#include "plan/order.h"
#include "plan/random.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 100               /* rounds of gap filling */
#define WORK (UINT64_C(4) << 30) /* limit of annealing, in sections looked at: some seconds */
#define MOST_STEPS 1000000
#define FEWEST_STEPS 16 /* fewer do not help, and each step then takes long between two looks at the clock */
#define COLDEST 64.0    /* bytes: far below the alignment, so that nothing worse is accepted in the end */

/* One thread's search, and the best placement that it found. */
typedef struct chain {
    uint64_t height, tick; /* tick: when it was found, in rounds and steps */
    bool annealed;
    uint64_t *offset;
} chain;

typedef struct hunt {
    crew *crew;
    const goal *goal;
    chain *chains;
    /* The earliest tick at which a chain reached the bound. The others continue to that tick, so that the winner does
     * not depend on the threads' speed. */
    _Atomic uint64_t reached;
} hunt;

static void found(hunt *h, chain *c, uint64_t height, uint64_t tick, const uint64_t *offset)
{
    if (height >= c->height) return;
    c->height = height;
    c->tick = tick;
    copy_offsets(h->goal->part, offset, c->offset);
    if (height > h->goal->bound) return;
    uint64_t known = atomic_load(&h->reached);
    while (tick < known && !atomic_compare_exchange_weak(&h->reached, &known, tick)) {}
}

/* True when the chain should do its `tick`-th piece of work. */
static bool goes_on(hunt *h, const chain *c, unsigned number, uint64_t tick)
{
    const goal *g = h->goal;
    if (number == 0) goal_tell(g, g->part->count);
    return c->height > g->bound && tick <= atomic_load(&h->reached) && clock_now_ns() < g->deadline_ns;
}

/* Fills gaps by decreasing weight. A block that ends above the bound gains weight, and so moves forward. */
static uint64_t refill(hunt *h, unsigned number, uint64_t *random)
{
    const goal *g = h->goal;
    worker *w = &h->crew->at[number];
    chain *c = &h->chains[number];
    double *weight = grow_new(g->l->count, sizeof *weight);
    for (size_t i = 0; i < g->part->count; i++) {
        uint32_t b = g->part->blocks[i];
        weight[b] = (double)g->l->blocks[b].bytes * (number ? 0.8 + 0.4 * random_share(random) : 1);
    }
    w->decoder.deadline_ns = g->deadline_ns;
    w->decoder.watch = number == 0 ? goal_watch_again : NULL;
    w->decoder.watcher = g;
    uint64_t tick = 0;
    for (; tick < ROUNDS && goes_on(h, c, number, tick); tick++) {
        memcpy(w->order, g->part->blocks, g->part->count * sizeof *w->order);
        order_by(w->order, g->part->count, weight);
        uint64_t height = decode(&w->decoder, w->order, g->part->count, DECODE_FIRST, UINT64_MAX - 1, w->offset);
        found(h, c, height, tick, w->offset);
        for (size_t i = 0; i < g->part->count; i++) {
            uint32_t b = g->part->blocks[i];
            if (w->offset[b] + g->l->blocks[b].bytes > g->bound) weight[b] *= 1 + 2 * random_share(random);
        }
    }
    free(weight);
    return tick;
}

static void cool(hunt *h, unsigned number, uint64_t tick, uint64_t random)
{
    const goal *g = h->goal;
    chain *c = &h->chains[number];
    uint64_t cost = anneal_cost(g), steps = (g->work ? g->work : WORK) / (cost ? cost : 1);
    if (steps > MOST_STEPS) steps = MOST_STEPS;
    if (steps < FEWEST_STEPS || !goes_on(h, c, number, tick)) return;

    /* The skyline of the blocks in the order of their offsets is no higher than the placement with those offsets. */
    worker *w = &h->crew->at[number];
    memcpy(w->order, g->part->blocks, g->part->count * sizeof *w->order);
    order_by_offset(w->order, g->part->count, c->offset);
    anneal a;
    anneal_init(&a, g, w->order, random);
    found(h, c, a.height, tick, a.offset);

    double hottest = fmax((double)(c->height - g->bound) / 2, COLDEST);
    for (uint64_t step = 0; step < steps && goes_on(h, c, number, tick + step); step++) {
        double share = (double)step / (double)steps;
        anneal_step(&a, hottest * pow(COLDEST / hottest, share));
        if (a.height < c->height) c->annealed = true;
        found(h, c, a.height, tick + step, a.offset);
    }
    anneal_release(&a);
}

static void search(void *job, unsigned number)
{
    hunt *h = job;
    uint64_t random = random_seed(h->goal->seed, number);
    uint64_t tick = refill(h, number, &random);
    cool(h, number, tick, random);
}

uint64_t improve(crew *c, const goal *g, uint64_t height, uint64_t *offset, const char **how)
{
    hunt h = { .crew = c, .goal = g, .chains = grow_new(c->count, sizeof *h.chains) };
    atomic_init(&h.reached, UINT64_MAX);
    for (unsigned i = 0; i < c->count; i++) {
        h.chains[i] = (chain){ .height = height, .offset = grow_new(g->l->count, sizeof *offset) };
        copy_offsets(g->part, offset, h.chains[i].offset);
    }
    crew_turn_to(c, g->part);
    crew_run(c->count, search, &h);

    const chain *best = &h.chains[0];
    for (unsigned i = 1; i < c->count; i++) {
        const chain *other = &h.chains[i];
        if (other->height < best->height || (other->height == best->height && other->tick < best->tick)) best = other;
    }
    if (best->height < height) {
        copy_offsets(g->part, best->offset, offset);
        height = best->height;
        *how = best->annealed ? "annealed" : "refilled";
    }
    for (unsigned i = 0; i < c->count; i++) free(h.chains[i].offset);
    free(h.chains);
    return height;
}
