#include "plan/occupancy.h"

#include "grow.h"

#include <stdlib.h>
#include <string.h>

#define NO_LIFE UINT32_MAX
#define RUN 8 /* extents sorted by insertion before runs are merged */
#define MANY 256
#define ALIGNMENT_BITS 9 /* of PLAN_ALIGNMENT: lower bits of offsets are 0 */
#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)
_Static_assert(PLAN_ALIGNMENT == UINT64_C(1) << ALIGNMENT_BITS, "the digits begin where offsets differ");

typedef struct ranked {
    uint32_t start, owner, part;
} ranked;

static int by_start(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->owner != b->owner) return a->owner < b->owner ? -1 : 1;
    return a->part < b->part ? -1 : a->part > b->part;
}

void occupancy_init(occupancy *t, const layout *l)
{
    *t = (occupancy){ .l = l, .leaves = 1 };
    ranked *lives = grow_new(2 * l->count, sizeof *lives);
    for (uint32_t i = 0; i < l->count; i++)
        for (uint32_t part = 0; part < 2; part++)
            if (l->blocks[i].life[part].start < l->blocks[i].life[part].end)
                lives[t->lives++] = (ranked){ l->blocks[i].life[part].start, i, part };
    qsort(lives, t->lives, sizeof *lives, by_start);

    t->start = grow_new(t->lives, sizeof *t->start);
    for (int part = 0; part < 2; part++) {
        t->rank[part] = grow_new(l->count, sizeof *t->rank[part]);
        memset(t->rank[part], 0xff, l->count * sizeof *t->rank[part]);
    }
    for (size_t i = 0; i < t->lives; i++) {
        t->start[i] = lives[i].start;
        t->rank[lives[i].part][lives[i].owner] = (uint32_t)i;
    }
    free(lives);

    while (t->leaves < t->lives) t->leaves *= 2;
    t->latest = grow_new(2 * t->leaves, sizeof *t->latest);
    t->taken = grow_new(t->lives, sizeof *t->taken);
    t->found = grow_new(2 * t->lives, sizeof *t->found);
    t->spare = grow_new(2 * t->lives, sizeof *t->spare);
}

void occupancy_release(occupancy *t)
{
    free(t->start);
    free(t->rank[0]);
    free(t->rank[1]);
    free(t->latest);
    free(t->taken);
    free(t->found);
    free(t->spare);
    *t = (occupancy){ 0 };
}

void occupancy_add(occupancy *t, size_t block, uint64_t offset)
{
    for (int part = 0; part < 2; part++) {
        uint32_t rank = t->rank[part][block], end = t->l->blocks[block].life[part].end;
        if (rank == NO_LIFE) continue;
        t->taken[rank] = (extent){ offset, offset + t->l->blocks[block].bytes };
        for (size_t node = t->leaves + rank; node && t->latest[node] < end; node /= 2) t->latest[node] = end;
    }
}

void occupancy_remove(occupancy *t, size_t block)
{
    for (int part = 0; part < 2; part++) {
        if (t->rank[part][block] == NO_LIFE) continue;
        size_t node = t->leaves + t->rank[part][block];
        for (t->latest[node] = 0, node /= 2; node; node /= 2) {
            uint32_t left = t->latest[2 * node], right = t->latest[2 * node + 1];
            t->latest[node] = left > right ? left : right;
        }
    }
}

/* How many lives start before a section. */
static size_t started(const occupancy *t, uint32_t section)
{
    size_t low = 0, high = t->lives;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->start[middle] < section)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Collects the lives below `node` that end after `start`, up to rank `last`. The node has `width` ranks from
 * `first`. */
static void collect(occupancy *t, size_t node, size_t first, size_t width, uint32_t start, size_t last)
{
    if (first >= last || t->latest[node] <= start) return;
    if (width == 1) {
        t->found[t->found_count++] = t->taken[first];
        return;
    }
    collect(t, 2 * node, first, width / 2, start, last);
    collect(t, 2 * node + 1, first + width / 2, width / 2, start, last);
}

static void sort_run(extent *e, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        extent moved = e[i];
        size_t j = i;
        for (; j > 0 && e[j - 1].low > moved.low; j--) e[j] = e[j - 1];
        e[j] = moved;
    }
}

/* Radix sort by address, which for many extents beats comparing them. */
static void sort_many(occupancy *t)
{
    const size_t count = t->found_count;
    uint64_t bits = 0;
    for (size_t i = 0; i < count; i++) bits |= t->found[i].low;
    for (unsigned shift = ALIGNMENT_BITS; shift < 64 && bits >> shift; shift += DIGIT_BITS) {
        size_t at[DIGITS] = { 0 }, sum = 0;
        for (size_t i = 0; i < count; i++) at[t->found[i].low >> shift & (DIGITS - 1)]++;
        for (size_t digit = 0; digit < DIGITS; digit++) {
            const size_t first = sum;
            sum += at[digit];
            at[digit] = first;
        }
        for (size_t i = 0; i < count; i++) t->spare[at[t->found[i].low >> shift & (DIGITS - 1)]++] = t->found[i];
        extent *sorted = t->spare;
        t->spare = t->found;
        t->found = sorted;
    }
}

/* Merge sort: qsort's calls of a comparison function would dominate the planner's time. */
static void sort_few(occupancy *t)
{
    size_t count = t->found_count;
    for (size_t i = 0; i < count; i += RUN) sort_run(t->found + i, count - i < RUN ? count - i : RUN);
    for (size_t width = RUN; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t middle = from + width < count ? from + width : count;
            size_t end = middle + width < count ? middle + width : count;
            size_t left = from, right = middle;
            for (size_t i = from; i < end; i++) {
                bool take_left = right == end || (left < middle && t->found[left].low <= t->found[right].low);
                t->spare[i] = t->found[take_left ? left++ : right++];
            }
        }
        extent *sorted = t->spare;
        t->spare = t->found;
        t->found = sorted;
    }
}

void occupancy_meet(occupancy *t, size_t block)
{
    t->found_count = 0;
    for (int part = 0; part < 2; part++) {
        span life = t->l->blocks[block].life[part];
        if (life.start < life.end) collect(t, 1, 0, t->leaves, life.start, started(t, life.end));
    }
    if (t->found_count < MANY)
        sort_few(t);
    else
        sort_many(t);
}
