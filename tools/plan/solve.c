#include "plan/solve.h"

#include "clock.h"
#include "grow.h"
#include "plan/core.h"
#include "plan/exact.h"
#include "plan/greedy.h"
#include "plan/improve.h"
#include "plan/online.h"
#include "plan/order.h"

#include <stdlib.h>
#include <string.h>

#define UNPILED_MOST 30000 /* blocks up to which placements without a floor of residents are tried too */
#define LONG 5e8           /* blocks, times those that live at once: then the first placement takes over ten seconds */

/* One division of the layout into parts, and the result with it. */
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
    g->before = a->parts.residents;
    for (size_t i = 0; i < a->parts.count; i++, g->before += g->part->count) {
        g->part = &a->parts.at[i];
        goal_tell(g, 0);
        a->height[i] = greedy(&a->crew, g, a->offset, &a->how[i]);
    }
    (void)highest_part(a);
}

/* Improves the highest part until it cannot be lowered, or is no longer above the bound. */
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

/* The best placement so far. */
typedef struct answer {
    uint64_t *offset; /* of the layout's blocks */
    uint64_t height;
    size_t parts, residents; /* of the approach that placed it */
    const char *how;
} answer;

static void take(answer *best, const goal *g, approach *a)
{
    size_t worst = highest_part(a);
    if (a->highest >= best->height) return;
    memcpy(best->offset, a->offset, g->l->count * sizeof *best->offset);
    best->height = a->highest;
    best->parts = a->parts.count;
    best->residents = a->parts.residents;
    best->how = worst < a->parts.count ? a->how[worst] : "residents";
}

static bool goes_on(const goal *g, const answer *best)
{
    return best->height > g->bound && clock_now_ns() < g->deadline_ns;
}

static void search(goal *g, unsigned threads, bool all, answer *best);

/* Places all blocks: first those of the core, in the order of their offsets there, so that they get no higher; then the
 * others, the largest first. */
static void complete(const goal *g, const core *c, const answer *inner, answer *best)
{
    size_t count = g->l->count, ordered = c->l.count;
    uint64_t *floor = grow_new(g->l->sections, sizeof *floor), *offset = grow_new(count, sizeof *offset);
    uint32_t *order = grow_new(count, sizeof *order);
    double *weight = grow_new(count, sizeof *weight);
    bool *inside = grow_new(count, sizeof *inside);
    for (size_t i = 0; i < c->l.count; i++) {
        order[i] = c->of[i];
        offset[c->of[i]] = inner->offset[i];
        inside[c->of[i]] = true;
    }
    order_by_offset(order, c->l.count, offset);
    for (uint32_t i = 0; i < count; i++) {
        weight[i] = (double)g->l->blocks[i].bytes;
        if (!inside[i]) order[ordered++] = i;
    }
    order_by(order + c->l.count, count - c->l.count, weight);

    decoder d;
    decoder_init(&d, g->l, floor);
    d.deadline_ns = g->deadline_ns;
    uint64_t height = decode(&d, order, count, DECODE_FIRST, best->height - 1, offset);
    if (height < best->height) {
        memcpy(best->offset, offset, count * sizeof *offset);
        best->height = height;
        best->how = inner->how;
    }
    decoder_release(&d);
    free(inside);
    free(weight);
    free(order);
    free(offset);
    free(floor);
}

/* Searches the core: the blocks in sections with less room below the bound than `slack` times the answer's excess over
 * it. False: the core is nearly everything, or time is up. */
static bool search_core(goal *g, unsigned threads, uint64_t slack, answer *best)
{
    uint64_t above = best->height - g->bound, now = clock_now_ns();
    if (now >= g->deadline_ns) return false;
    core c;
    core_init(&c, g->l, g->load, above < g->bound / slack ? g->bound - slack * above : 0);
    bool small = c.l.count <= g->l->count - g->l->count / 4;
    if (small) {
        goal inside = *g;
        uint64_t *load = layout_load(&c.l);
        inside.l = &c.l;
        inside.load = load;
        inside.deadline_ns = now + (g->deadline_ns - now) / 2;
        answer inner = { .offset = grow_new(c.l.count, sizeof *inner.offset), .height = UINT64_MAX };
        search(&inside, threads, false, &inner);
        g->bound = inside.bound;
        if (inner.height < best->height) complete(g, &c, &inner, best);
        free(inner.offset);
        free(load);
    }
    core_release(&c);
    return small;
}

/* Blocks to place above the residents, times those that live at once. */
static double expected_work(const layout *l)
{
    double count = 0, lives = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (parts_resident(l, &l->blocks[i])) continue;
        count++;
        lives += block_sections(&l->blocks[i]);
    }
    return count > 0 ? count * lives / l->sections : 0;
}

/* Of many blocks there is a placement at once. Where the first of the others would take long, it need not be
 * completed. */
static void answer_at_once(goal *g, answer *best)
{
    if (g->l->count <= UNPILED_MOST) return;
    best->height = online(g->l, best->offset);
    best->parts = 1;
    best->how = "start, best fit";
    g->unanswered = best->height == UINT64_MAX || expected_work(g->l) < LONG;
}

/* Lowers *best by all means. `all`: the goal has all blocks, not a core. */
static void search(goal *g, unsigned threads, bool all, answer *best)
{
    approach piled = { 0 }, flat = { 0 }, *chosen = &piled;
    approach_greedily(&piled, g, threads, true);
    take(best, g, &piled);
    g->unanswered = false;
    for (uint64_t slack = 4; all && slack <= 64 && goes_on(g, best); slack *= 4)
        if (!search_core(g, threads, slack, best)) break;

    if (goes_on(g, best) && piled.parts.residents && g->l->count <= UNPILED_MOST) {
        approach_greedily(&flat, g, threads, false);
        take(best, g, &flat);
        /* Without a floor a small problem can be solved exactly. */
        if (flat.highest < piled.highest || g->l->count <= EXACT_MOST) chosen = &flat;
    }
    if (goes_on(g, best)) {
        approach_improve(chosen, g);
        take(best, g, chosen);
    }
    approach_release(&piled);
    approach_release(&flat);
}

void solve(const layout *l, const solve_options *options, solution *out)
{
    uint64_t *load = layout_load(l), began = clock_now_ns();
    goal g = { .l = l, .load = load, .seed = options->seed, .work = options->work, .began_ns = began };
    g.unanswered = true;
    g.deadline_ns = began + (uint64_t)(options->seconds * 1e9);
    g.progress = options->progress;
    g.user = options->user;
    for (uint32_t i = 0; i < l->sections; i++) g.bound = load[i] > g.bound ? load[i] : g.bound;
    uint64_t most = g.bound;

    answer best = { .offset = grow_new(l->count, sizeof *best.offset), .height = UINT64_MAX };
    answer_at_once(&g, &best);
    if (best.height > g.bound) search(&g, options->threads, true, &best);
    *out = (solution){
        .offset = best.offset,
        .height = best.height,
        .load = most,
        .bound = g.bound,
        .parts = best.parts,
        .residents = best.residents,
        .how = best.how,
    };
    free(load);
}

void solution_release(solution *s)
{
    free(s->offset);
    *s = (solution){ 0 };
}
