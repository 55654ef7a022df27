#include "plan/exact.h"

#include "clock.h"
#include "grow.h"
#include "plan/order.h"

#include <stdlib.h>
#include <string.h>

#define WORK (UINT64_C(1) << 28) /* blocks looked at in sections, for all searches together: about a second */
#define TRIED_BETWEEN_LOOKS 1024 /* placements of a block between two looks at the clock */

/* A partial placement. Blocks are numbered 0 .. count, in the order in which blocks at equal offsets are placed. */
typedef struct tree {
    const goal *goal;
    size_t count, sections;
    uint32_t *number; /* the layout's block */
    uint64_t *bytes;  /* by block */
    bool *meets;      /* by block and block */
    uint32_t *lives;  /* blocks of each section, one after the other */
    size_t *first;    /* of each section in lives[]; one more at the end */
    bool *placed;     /* by block */
    uint64_t *lowest; /* by depth and block: the lowest offset possible; for placed blocks the actual one */
    uint64_t capacity;
    uint64_t work;  /* left */
    unsigned tried; /* placements of a block */
} tree;

typedef enum verdict { FITS, FITS_NOT, GAVE_UP } verdict;

static bool lives_in(const plan_block *b, uint32_t section)
{
    return (section >= b->life[0].start && section < b->life[0].end) ||
           (section >= b->life[1].start && section < b->life[1].end);
}

static const plan_block *block_of(const tree *t, size_t i)
{
    return &t->goal->l->blocks[t->number[i]];
}

static void tree_init(tree *t, const goal *g)
{
    const part *p = g->part;
    size_t n = p->count;
    *t = (tree){
        .goal = g, .count = n, .sections = p->sections.end - p->sections.start, .work = g->work ? g->work : WORK
    };
    t->number = grow_new(n, sizeof *t->number);
    t->bytes = grow_new(n, sizeof *t->bytes);
    t->meets = grow_new(n * n, sizeof *t->meets);
    t->lives = grow_new(n * t->sections, sizeof *t->lives);
    t->first = grow_new(t->sections + 1, sizeof *t->first);
    t->placed = grow_new(n, sizeof *t->placed);
    t->lowest = grow_new((n + 1) * n, sizeof *t->lowest);

    order_blocks(g->l, p, g->load, ORDER_AREA, t->number);
    for (size_t i = 0; i < n; i++) {
        t->bytes[i] = block_of(t, i)->bytes;
        t->lowest[i] = height_over(g->floor, block_of(t, i));
        for (size_t j = 0; j < n; j++) t->meets[i * n + j] = i != j && blocks_meet(block_of(t, i), block_of(t, j));
    }
    size_t used = 0;
    for (uint32_t s = 0; s < t->sections; s++) {
        t->first[s] = used;
        for (uint32_t i = 0; i < n; i++)
            if (lives_in(block_of(t, i), p->sections.start + s)) t->lives[used++] = i;
    }
    t->first[t->sections] = used;
}

static void tree_release(tree *t)
{
    free(t->number);
    free(t->bytes);
    free(t->meets);
    free(t->lives);
    free(t->first);
    free(t->placed);
    free(t->lowest);
}

/* True when in every section the unplaced blocks still fit above the lowest offset left. Offsets never decrease, so
 * nothing more goes below `at`. */
static bool may_fit(tree *t, const uint64_t *lowest, uint64_t at)
{
    t->work -= t->work < t->first[t->sections] ? t->work : t->first[t->sections];
    if (++t->tried % TRIED_BETWEEN_LOOKS == 0 && clock_now_ns() > t->goal->deadline_ns) t->work = 0;
    for (size_t s = 0; s < t->sections; s++) {
        uint64_t total = 0, floor = UINT64_MAX;
        for (size_t k = t->first[s]; k < t->first[s + 1]; k++) {
            uint32_t i = t->lives[k];
            if (t->placed[i]) continue;
            total += t->bytes[i];
            if (lowest[i] < floor) floor = lowest[i];
        }
        if (total == 0) continue;
        if (floor < at) floor = at;
        if (floor > t->capacity || total > t->capacity - floor) return false;
    }
    return true;
}

/* Places block `i` at its lowest offset, and raises the blocks that overlap it in time, in the next depth's row. True
 * when one of those is still unplaced. */
static bool put(tree *t, const uint64_t *lowest, uint64_t *next, size_t i)
{
    uint64_t top = lowest[i] + t->bytes[i];
    bool covered = false;
    memcpy(next, lowest, t->count * sizeof *next);
    for (size_t j = 0; j < t->count; j++) {
        if (t->placed[j] || !t->meets[i * t->count + j]) continue;
        covered = true;
        if (next[j] < top) next[j] = top;
    }
    t->placed[i] = true;
    return covered;
}

/* The first block to try, by (lowest, number), from (at, from) on and below `before`; count when there is none. */
static size_t candidate(const tree *t, const uint64_t *lowest, uint64_t at, size_t from, uint64_t before)
{
    size_t best = t->count;
    for (size_t i = 0; i < t->count; i++) {
        if (t->placed[i] || lowest[i] < at || (lowest[i] == at && i < from) || lowest[i] >= before) continue;
        if (best == t->count || lowest[i] < lowest[best]) best = i;
    }
    return best;
}

/* Continues from `depth` placed blocks. The next goes above `at`, or at `at` with a number of at least `from`. */
static verdict descend(tree *t, size_t depth, uint64_t at, size_t from)
{
    if (depth == t->count) return FITS;
    uint64_t *lowest = t->lowest + depth * t->count, *next = lowest + t->count;

    /* A block placed at or above this would leave a gap that another block could fill. */
    uint64_t before = UINT64_MAX;
    for (size_t j = 0; j < t->count; j++)
        if (!t->placed[j] && lowest[j] + t->bytes[j] < before) before = lowest[j] + t->bytes[j];

    for (size_t i; (i = candidate(t, lowest, at, from, before)) != t->count;) {
        at = lowest[i];
        from = i + 1;
        if (t->work == 0) return GAVE_UP;
        bool covered = put(t, lowest, next, i);
        verdict found = FITS_NOT;
        if (at + t->bytes[i] <= t->capacity && may_fit(t, next, at)) found = descend(t, depth + 1, at, from);
        if (found == FITS) return FITS;
        t->placed[i] = false;
        if (found == GAVE_UP) return GAVE_UP;
        /* No unplaced block lies on it, so moving it does not help the others: they do not fit. */
        if (!covered) return FITS_NOT;
    }
    return FITS_NOT;
}

static verdict fits(tree *t, uint64_t capacity)
{
    t->capacity = capacity;
    memset(t->placed, 0, t->count * sizeof *t->placed);
    if (!may_fit(t, t->lowest, 0)) return FITS_NOT;
    return descend(t, 0, 0, 0);
}

/* Copies the placement found to offset[]. Returns its height. */
static uint64_t take(const tree *t, uint64_t *offset)
{
    uint64_t height = 0;
    const uint64_t *lowest = t->lowest + t->count * t->count;
    for (size_t i = 0; i < t->count; i++) {
        offset[t->number[i]] = lowest[i];
        if (lowest[i] + t->bytes[i] > height) height = lowest[i] + t->bytes[i];
    }
    return height;
}

uint64_t exact(const goal *g, uint64_t height, uint64_t *offset, uint64_t *proven, const char **how)
{
    tree t;
    tree_init(&t, g);
    *proven = g->bound;
    uint64_t try = g->bound; /* the bound is cheapest to reach or refute; then bisection */
    while (height > *proven && clock_now_ns() < g->deadline_ns) {
        verdict found = fits(&t, try);
        if (found == GAVE_UP) break;
        if (found == FITS_NOT) *proven = try + PLAN_ALIGNMENT;
        if (found == FITS) {
            height = take(&t, offset);
            *how = "exact";
        }
        try = *proven + (height - *proven) / 2 / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
    }
    tree_release(&t);
    return height;
}
