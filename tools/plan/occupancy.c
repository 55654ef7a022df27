#include "plan/occupancy.h"

#include "grow.h"

#include <stdlib.h>
#include <string.h>

#define NO_LIFE UINT32_MAX
#define GROUP 16 /* ranks below a leaf of the tree: they are looked at one after the other */
#define RUN 8    /* extents sorted by insertion before runs are merged */
#define MANY 128 /* extents that are worth distributing before they are sorted */

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

    while (t->leaves * GROUP < t->lives) t->leaves *= 2;
    t->latest = grow_new(2 * t->leaves, sizeof *t->latest);
    t->end = grow_new(t->leaves * GROUP, sizeof *t->end);
    t->taken = grow_new(t->lives, sizeof *t->taken);
    t->found = grow_new(2 * t->lives + 1, sizeof *t->found);
    t->spare = grow_new(2 * t->lives + 1, sizeof *t->spare);
}

void occupancy_release(occupancy *t)
{
    free(t->start);
    free(t->rank[0]);
    free(t->rank[1]);
    free(t->latest);
    free(t->end);
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
        t->end[rank] = end;
        for (size_t node = t->leaves + rank / GROUP; node && t->latest[node] < end; node /= 2) t->latest[node] = end;
    }
}

static uint32_t latest_of_group(const uint32_t *end)
{
    uint32_t latest = 0;
    for (size_t i = 0; i < GROUP; i++) latest = end[i] > latest ? end[i] : latest;
    return latest;
}

void occupancy_remove(occupancy *t, size_t block)
{
    for (int part = 0; part < 2; part++) {
        const uint32_t rank = t->rank[part][block];
        if (rank == NO_LIFE) continue;
        size_t node = t->leaves + rank / GROUP;
        t->end[rank] = 0;
        t->latest[node] = latest_of_group(t->end + (size_t)rank / GROUP * GROUP);
        for (node /= 2; node; node /= 2) {
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

/* Collects the lives of a group, in ranks from `first` up to `last`, that end after `start`. Each is written, and
 * counted if it does: guessing which do costs more. */
static void collect_group(occupancy *t, size_t first, uint32_t start, size_t last)
{
    extent *out = t->found + t->found_count;
    if (last > first + GROUP) last = first + GROUP;
    for (size_t rank = first; rank < last; rank++) {
        *out = t->taken[rank];
        out += t->end[rank] > start;
    }
    t->found_count = (size_t)(out - t->found);
}

/* Collects the lives below `node` that end after `start`, up to rank `last`. The node has `width` ranks from
 * `first`. */
static void collect(occupancy *t, size_t node, size_t first, size_t width, uint32_t start, size_t last)
{
    if (first >= last || t->latest[node] <= start) return;
    if (width == GROUP) {
        collect_group(t, first, start, last);
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

/* Merge sort, with room for as many: qsort's calls of a comparison function would dominate the planner's time. */
static void sort_few(extent *e, extent *spare, size_t count)
{
    extent *from = e, *to = spare;
    for (size_t i = 0; i < count; i += RUN) sort_run(e + i, count - i < RUN ? count - i : RUN);
    for (size_t width = RUN; width < count; width *= 2) {
        for (size_t first = 0; first < count; first += 2 * width) {
            size_t middle = first + width < count ? first + width : count;
            size_t end = middle + width < count ? middle + width : count;
            size_t left = first, right = middle;
            for (size_t i = first; i < end; i++) {
                bool take_left = right == end || (left < middle && from[left].low <= from[right].low);
                to[i] = from[take_left ? left++ : right++];
            }
        }
        extent *sorted = to;
        to = from;
        from = sorted;
    }
    if (from != e) memcpy(e, from, count * sizeof *e);
}

/* Distributes extents, which come together where their addresses agree in the upper bits: about two to a place, if
 * they lie evenly. Returns how many places there are; first[place] is the first extent's index, with one more place at
 * the end. */
static size_t spread(const extent *from, extent *to, size_t count, uint32_t *first)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < count; i++) {
        least = from[i].low < least ? from[i].low : least;
        most = from[i].low > most ? from[i].low : most;
    }
    unsigned bits = 1, shift = 0;
    while (bits < OCCUPANCY_BITS && count >> (bits + 2)) bits++;
    while ((most - least) >> shift >> bits) shift++;

    const size_t places = (size_t)((most - least) >> shift) + 1;
    memset(first, 0, (places + 1) * sizeof *first);
    for (size_t i = 0; i < count; i++) first[(from[i].low - least) >> shift]++;
    for (size_t place = 1; place <= places; place++) first[place] += first[place - 1];
    for (size_t i = count; i-- > 0;) to[--first[(from[i].low - least) >> shift]] = from[i];
    return places;
}

/* With room for as many. Extents at one address end it, so it gets no deeper than addresses have bits. */
static void sort_extents(extent *e, extent *spare, size_t count)
{
    if (count < MANY) {
        sort_few(e, spare, count);
        return;
    }
    uint32_t first[OCCUPANCY_PLACES + 1];
    const size_t places = spread(e, spare, count, first);
    for (size_t place = 0; places > 1 && place < places; place++)
        sort_extents(spare + first[place], e + first[place], first[place + 1] - first[place]);
    memcpy(e, spare, count * sizeof *e);
}

void occupancy_meet(occupancy *t, size_t block)
{
    t->found_count = 0;
    for (int part = 0; part < 2; part++) {
        span life = t->l->blocks[block].life[part];
        if (life.start < life.end) collect(t, 1, 0, t->leaves * GROUP, life.start, started(t, life.end));
    }
    t->sorted = t->place = 0;
    if (t->found_count < MANY) {
        sort_few(t->found, t->spare, t->found_count);
        t->sorted = t->found_count;
        return;
    }
    (void)spread(t->found, t->spare, t->found_count, t->first);
    extent *distributed = t->spare;
    t->spare = t->found;
    t->found = distributed;
}

bool occupancy_more(occupancy *t)
{
    const size_t before = t->sorted;
    while (t->sorted == before && t->sorted < t->found_count) {
        const size_t from = t->sorted, to = t->first[++t->place];
        sort_extents(t->found + from, t->spare + from, to - from);
        t->sorted = to;
    }
    return t->sorted > before;
}
