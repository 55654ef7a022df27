#include "plan/solve.h"

#include "grow.h"
#include "plan/clock.h"
#include "plan/exact.h"
#include "plan/greedy.h"
#include "plan/improve.h"

#include <stdlib.h>

#define UNPILED_MOST 30000 /* blocks up to which placements without a floor of residents are tried too */

/* A way to take the layout apart, and what came of it. */
typedef struct approach {
    parts parts;
    crew crew;
    uint64_t *offset;
    uint64_t *height; /* of each part */
    const char **how; /* likewise */
    uint64_t highest;
} approach;

static void approach_release(approach *a)
{
    crew_release(&a->crew);
    parts_release(&a->parts);
    free(a->offset);
    free(a->height);
    free(a->how);
    *a = (approach){ 0 };
}

/* The highest part; parts.count when the residents alone are as high. */
static size_t highest_part(approach *a)
{
    size_t worst = a->parts.count;
    a->highest = a->parts.floor_height;
    for (size_t i = 0; i < a->parts.count; i++) {
        if (a->height[i] <= a->highest) continue;
        a->highest = a->height[i];
        worst = i;
    }
    return worst;
}

static void approach_greedily(approach *a, goal *g, unsigned threads, bool piling)
{
    a->offset = grow_new(g->l->count, sizeof *a->offset);
    parts_init(&a->parts, g->l, g->load, piling, a->offset);
    crew_init(&a->crew, threads, g->l, a->parts.floor);
    a->height = grow_new(a->parts.count, sizeof *a->height);
    a->how = grow_new(a->parts.count, sizeof *a->how);
    g->floor = a->parts.floor;
    for (size_t i = 0; i < a->parts.count; i++) {
        g->part = &a->parts.at[i];
        a->height[i] = greedy(&a->crew, g, a->offset, &a->how[i]);
    }
    (void)highest_part(a);
}

/* Works on the highest part until it is not to be lowered, or no longer above the bound. */
static void approach_improve(approach *a, goal *g)
{
    g->floor = a->parts.floor;
    for (;;) {
        size_t worst = highest_part(a);
        if (worst == a->parts.count || a->highest <= g->bound || clock_now_ns() > g->deadline_ns) return;
        g->part = &a->parts.at[worst];
        uint64_t before = a->height[worst], proven = 0;
        if (g->part->count <= EXACT_MOST) {
            a->height[worst] = exact(g, before, a->offset, &proven, &a->how[worst]);
            if (g->part->exact && proven > g->bound) g->bound = proven;
            if (a->height[worst] <= g->bound) continue;
            if (a->height[worst] == proven) break;
        }
        a->height[worst] = improve(&a->crew, g, a->height[worst], a->offset, &a->how[worst]);
        if (a->height[worst] > g->bound) break;
    }
    (void)highest_part(a);
}

void solve(const layout *l, const solve_options *options, solution *out)
{
    uint64_t *load = layout_load(l), began = clock_now_ns();
    goal g = { .l = l, .load = load, .seed = options->seed, .began_ns = began };
    g.deadline_ns = began + (uint64_t)(options->seconds * 1e9);
    g.work = options->work;
    g.progress = options->progress;
    g.user = options->user;
    for (uint32_t i = 0; i < l->sections; i++) g.bound = load[i] > g.bound ? load[i] : g.bound;
    *out = (solution){ .load = g.bound };

    approach best, other;
    best = other = (approach){ 0 };
    approach_greedily(&best, &g, options->threads, true);
    bool piled = best.parts.residents > 0 && l->count <= UNPILED_MOST;
    if (piled && best.highest > g.bound && clock_now_ns() < g.deadline_ns) {
        approach_greedily(&other, &g, options->threads, false);
        /* Without a floor a small problem can be searched to the end. */
        if (other.highest < best.highest || l->count <= EXACT_MOST) {
            approach swap = best;
            best = other;
            other = swap;
        }
    }
    approach_improve(&best, &g);

    size_t worst = highest_part(&best);
    out->how = worst < best.parts.count ? best.how[worst] : "residents";
    out->height = best.highest;
    out->bound = g.bound;
    out->parts = best.parts.count;
    out->residents = best.parts.residents;
    out->offset = best.offset;
    best.offset = NULL;
    approach_release(&best);
    approach_release(&other);
    free(load);
}

void solution_release(solution *s)
{
    free(s->offset);
    *s = (solution){ 0 };
}
