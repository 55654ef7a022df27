#include "plan/anneal.h"

#include "grow.h"
#include "plan/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FROM_A_PILE 0.7 /* share of moves of a block in a heaviest pile: only these can lower the height alone */
#define TO_THE_BEST 0.8 /* share of moves to the cheapest place; the others go anywhere */
#define DEEPER 0.7      /* chance to go one block down a pile */

static const plan_block *block_at(const anneal *a, size_t place)
{
    return &a->goal->l->blocks[a->order[place]];
}

static void copy_floor(const anneal *a, uint64_t *skyline)
{
    span s = a->goal->part->sections;
    memcpy(skyline + s.start, a->goal->floor + s.start, (s.end - s.start) * sizeof *skyline);
}

static void pile_up(anneal *a)
{
    copy_floor(a, a->up);
    a->height = 0;
    for (size_t i = 0; i < a->goal->part->count; i++) {
        uint64_t at = put_on_top(a->up, block_at(a, i));
        a->offset[a->order[i]] = at;
        if (at + block_at(a, i)->bytes > a->height) a->height = at + block_at(a, i)->bytes;
    }
}

void anneal_init(anneal *a, const goal *g, const uint32_t *order, uint64_t random)
{
    size_t count = g->part->count;
    *a = (anneal){ .goal = g, .random = random };
    a->order = grow_new(count, sizeof *a->order);
    memcpy(a->order, order, count * sizeof *a->order);
    a->offset = grow_new(g->l->count, sizeof *a->offset);
    a->up = grow_new(g->l->sections, sizeof *a->up);
    a->down = grow_new(g->l->sections, sizeof *a->down);
    a->below = grow_new(count + 1, sizeof *a->below);
    a->above = grow_new(count + 1, sizeof *a->above);
    pile_up(a);
}

void anneal_release(anneal *a)
{
    free(a->order);
    free(a->offset);
    free(a->up);
    free(a->down);
    free(a->below);
    free(a->above);
    *a = (anneal){ 0 };
}

uint64_t anneal_cost(const goal *g)
{
    uint64_t lived = 0;
    for (size_t i = 0; i < g->part->count; i++) lived += block_sections(&g->l->blocks[g->part->blocks[i]]);
    return 3 * (lived + 8 * (uint64_t)g->part->count);
}

/* A place whose block is in a heaviest pile: the top block, or one some way down. */
static size_t pick_from_pile(anneal *a)
{
    size_t count = a->goal->part->count, at = 0, seen = 0;
    for (size_t i = 0; i < count; i++)
        if (a->offset[a->order[i]] + block_at(a, i)->bytes == a->height && random_below(&a->random, ++seen) == 0)
            at = i;
    while (random_share(&a->random) < DEEPER) {
        size_t under = at;
        for (size_t i = 0; i < at && under == at; i++) {
            uint64_t top = a->offset[a->order[i]] + block_at(a, i)->bytes;
            if (top == a->offset[a->order[at]] && blocks_meet(block_at(a, i), block_at(a, at))) under = i;
        }
        if (under == at) break;
        at = under;
    }
    return at;
}

/* Fills below[] and above[] for the block at `taken`, and returns the height without it. Places are counted without the
 * block: place k is just before the k-th of the others. */
static uint64_t price_places(anneal *a, size_t taken)
{
    size_t others = a->goal->part->count - 1;
    const plan_block *moved = block_at(a, taken);
    span s = a->goal->part->sections;
    uint64_t height = 0;

    copy_floor(a, a->up);
    a->below[0] = height_over(a->up, moved);
    for (size_t k = 0; k < others; k++) {
        const plan_block *b = block_at(a, k < taken ? k : k + 1);
        uint64_t top = put_on_top(a->up, b) + b->bytes;
        if (top > height) height = top;
        a->below[k + 1] = blocks_meet(b, moved) ? height_over(a->up, moved) : a->below[k];
    }
    memset(a->down + s.start, 0, (s.end - s.start) * sizeof *a->down);
    a->above[others] = 0;
    for (size_t k = others; k-- > 0;) {
        const plan_block *b = block_at(a, k < taken ? k : k + 1);
        (void)put_on_top(a->down, b);
        a->above[k] = blocks_meet(b, moved) ? height_over(a->down, moved) : a->above[k + 1];
    }
    return height;
}

static void move_to(anneal *a, size_t from, size_t to)
{
    uint32_t moved = a->order[from];
    if (from < to)
        memmove(a->order + from, a->order + from + 1, (to - from) * sizeof *a->order);
    else
        memmove(a->order + to + 1, a->order + to, (from - to) * sizeof *a->order);
    a->order[to] = moved;
}

void anneal_step(anneal *a, double temperature)
{
    size_t count = a->goal->part->count;
    bool piled = random_share(&a->random) < FROM_A_PILE;
    size_t from = piled ? pick_from_pile(a) : random_below(&a->random, count);
    uint64_t bytes = block_at(a, from)->bytes, without = price_places(a, from);

    size_t to = random_below(&a->random, count), seen = 0;
    uint64_t price = a->below[to] + bytes + a->above[to];
    if (random_share(&a->random) < TO_THE_BEST) {
        price = UINT64_MAX;
        for (size_t k = 0; k < count; k++) {
            uint64_t here = a->below[k] + bytes + a->above[k];
            if (here < without) here = without;
            if (here < price) seen = 0;
            if (here > price) continue;
            price = here;
            if (random_below(&a->random, ++seen) == 0) to = k;
        }
    }
    if (price < without) price = without;
    if (price > a->height) {
        double worse = (double)(price - a->height);
        if (random_share(&a->random) >= exp(-worse / temperature)) return;
    }
    if (to == from) return;
    move_to(a, from, to);
    pile_up(a);
}
