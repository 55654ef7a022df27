#include "plan/loop.h"

#include "grow.h"
#include "map.h"

#include <stdlib.h>

#define SHORTEST 4    /* steps: a shorter repetition says nothing about the program */
#define CANDIDATES 16 /* distances tried */
#define MULTIPLES 4   /* multiples tried of each: where a block outlives one iteration, two may repeat */

/* One number per step: equal for allocations of the same size and stream, and for frees of equally old blocks. */
static uint64_t *tokens(const arena *a)
{
    map sizes = { 0 };
    uint64_t *made = grow_new(a->steps, sizeof *made);
    for (size_t i = 0; i < a->count; i++) {
        const arena_block *b = &a->blocks[i];
        map_entry *e = map_put(&sizes, 0, b->bytes);
        if (!e->state) e->value = (uint32_t)sizes.count;
        e->state = 1;
        made[b->start] = ((uint64_t)e->value << 32 | b->stream) << 1;
        if (b->end < a->steps) made[b->end] = (uint64_t)(b->end - b->start) << 1 | 1;
    }
    map_release(&sizes);
    return made;
}

typedef struct score {
    uint64_t covered; /* sum of the steps between equal tokens at this distance */
    uint32_t period;
} score;

static int by_covered(const void *left, const void *right)
{
    const score *a = left, *b = right;
    if (a->covered != b->covered) return a->covered > b->covered ? -1 : 1;
    return a->period < b->period ? -1 : a->period > b->period;
}

/* Distances between a token and its next occurrence; those that cover most steps first. */
static score *distances(const uint64_t *token, uint32_t steps)
{
    map last = { 0 };
    score *made = grow_new(steps, sizeof *made);
    for (uint32_t i = 0; i < steps; i++) made[i].period = i;
    for (uint32_t i = 0; i < steps; i++) {
        map_entry *e = map_put(&last, 0, token[i]);
        if (e->state) made[i - e->value].covered += i - e->value;
        e->state = 1;
        e->value = i;
    }
    map_release(&last);
    qsort(made, steps, sizeof *made, by_covered);
    return made;
}

/* Steps [from, to): each up to to - period equals the one a period later. */
typedef struct run {
    uint32_t from, to, period;
} run;

static run longest_run(const uint64_t *token, uint32_t steps, uint32_t period)
{
    run best = { 0, 0, period };
    uint32_t from = 0;
    for (uint32_t i = 0; i + period <= steps; i++) {
        if (i + period < steps && token[i] == token[i + period]) continue;
        if (i > from && i + period - from > best.to - best.from) best = (run){ from, i + period, period };
        from = i + 1;
    }
    return best;
}

/* The first allocation at or after a step. */
static size_t allocation_at(const arena *a, uint32_t step)
{
    size_t low = 0, high = a->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->blocks[middle].start < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The step of that allocation in the run's second period across which the fewest bytes live. */
static uint32_t border(const arena *a, const run *r)
{
    uint64_t *crossing = grow_new((size_t)r->period + 1, sizeof *crossing); /* differences from step to step */
    uint32_t from = r->from + r->period;
    for (size_t i = allocation_at(a, r->from); i < a->count && a->blocks[i].start < from + r->period; i++) {
        const arena_block *b = &a->blocks[i];
        uint32_t start = b->start + 1 > from ? b->start + 1 : from; /* a block does not cross its own allocation */
        uint32_t end = b->end < from + r->period ? b->end : from + r->period;
        if (start >= end) continue;
        crossing[start - from] += b->bytes;
        crossing[end - from] -= b->bytes;
    }
    uint32_t best = UINT32_MAX;
    uint64_t live = 0, least = UINT64_MAX;
    size_t next = allocation_at(a, from);
    for (uint32_t step = from; step < from + r->period; step++) {
        live += crossing[step - from];
        if (next == a->count || a->blocks[next].start != step) continue;
        next++;
        if (live >= least) continue;
        least = live;
        best = step;
    }
    free(crossing);
    return best;
}

/* How many iterations from `step` on, up to the end of the run, have no block that lives longer than one. */
static size_t iterations(const arena *a, const run *r, uint32_t step)
{
    uint32_t end = r->to;
    for (size_t i = allocation_at(a, step - r->period); i < a->count && a->blocks[i].start < end; i++)
        if (a->blocks[i].end - a->blocks[i].start > r->period) end = a->blocks[i].start;
    return end > step ? (end - step) / r->period : 0;
}

/* The loop with this period, or with the smallest multiple of it that no block outlives. `times` is 0 when no such loop
 * makes up half of the arena. */
static loop loop_of(const arena *a, const uint64_t *token, uint32_t period)
{
    run r = longest_run(token, a->steps, period);
    for (r.period = period; r.period <= MULTIPLES * period && r.to - r.from >= 3 * r.period; r.period += period) {
        uint32_t step = border(a, &r);
        size_t times = step == UINT32_MAX ? 0 : iterations(a, &r, step);
        if (times < 2 || times * r.period < a->steps / 2) continue;
        size_t first = allocation_at(a, step);
        return (loop){ step, r.period, first, allocation_at(a, step + r.period) - first, times };
    }
    return (loop){ 0 };
}

loop loop_find(const arena *a)
{
    loop best = { 0 };
    if (a->steps < 4 * SHORTEST || a->steps > UINT32_MAX / MULTIPLES / 4) return best;

    uint64_t *token = tokens(a);
    score *candidates = distances(token, a->steps);
    for (uint32_t i = 0; i < CANDIDATES && i < a->steps && candidates[i].covered; i++) {
        if (candidates[i].period < SHORTEST) continue;
        loop l = loop_of(a, token, candidates[i].period);
        if (l.times * l.period > best.times * best.period) best = l;
    }
    free(candidates);
    free(token);
    return best;
}

size_t loop_entry(const loop *l, size_t i)
{
    if (l->times == 0 || i < l->first + l->count) return i;
    if (i < l->first + l->count * l->times) return l->first + (i - l->first) % l->count;
    return i - l->count * (l->times - 1);
}
