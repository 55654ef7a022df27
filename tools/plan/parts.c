#include "plan/parts.h"

#include "grow.h"
#include "plan/skyline.h"

#include <stdlib.h>

/* The span from the block's first section to its last. */
static span hull(const plan_block *b)
{
    if (b->life[1].start == b->life[1].end) return b->life[0];
    uint32_t start = b->life[0].start < b->life[1].start ? b->life[0].start : b->life[1].start;
    uint32_t end = b->life[0].end > b->life[1].end ? b->life[0].end : b->life[1].end;
    return (span){ start, end };
}

bool parts_resident(const layout *l, const plan_block *b)
{
    uint32_t lived = block_sections(b);
    return lived > l->sections / 2 || (hull(b).end == l->sections && lived > l->sections / 8);
}

typedef struct sortable {
    uint32_t start, block;
} sortable;

static int by_start(const void *left, const void *right)
{
    const sortable *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static int by_load(const void *left, const void *right)
{
    const part *a = left, *b = right;
    if (a->load != b->load) return a->load > b->load ? -1 : 1;
    return a->sections.start < b->sections.start ? -1 : a->sections.start > b->sections.start;
}

/* Piles up the residents and returns their bytes by section. */
static uint64_t *pile_residents(parts *p, const layout *l, const sortable *sorted, bool piling, uint64_t *offset)
{
    uint64_t *piled = grow_new((size_t)l->sections + 1, sizeof *piled);
    skyline top;
    skyline_init(&top, l->sections);
    for (size_t i = 0; i < l->count; i++) {
        const plan_block *b = &l->blocks[sorted[i].block];
        if (!piling || !parts_resident(l, b)) continue;
        uint64_t at = skyline_put(&top, b);
        offset[sorted[i].block] = at;
        p->residents++;
        if (at + b->bytes > p->floor_height) p->floor_height = at + b->bytes;
        for (int half = 0; half < 2; half++) {
            piled[b->life[half].start] += b->bytes;
            piled[b->life[half].end] -= b->bytes;
        }
    }
    for (uint32_t i = 1; i < l->sections; i++) piled[i] += piled[i - 1];
    skyline_read(&top, l->sections, p->floor);
    skyline_release(&top);
    return piled;
}

/* A part ends at a section border that no life of a non-resident crosses. */
static void cut(parts *p, const layout *l, const sortable *sorted, bool piling)
{
    size_t used = 0;
    part *open = NULL;
    for (size_t i = 0; i < l->count; i++) {
        const plan_block *b = &l->blocks[sorted[i].block];
        if (piling && parts_resident(l, b)) continue;
        span lives = hull(b);
        if (!open || lives.start >= open->sections.end) {
            open = &p->at[p->count++];
            *open = (part){ .blocks = p->order + used, .sections = lives };
        }
        if (lives.end > open->sections.end) open->sections.end = lives.end;
        p->order[used++] = sorted[i].block;
        open->count++;
    }
}

static void measure(part *p, const uint64_t *load, const uint64_t *floor, const uint64_t *piled)
{
    uint64_t first = floor[p->sections.start];
    p->exact = true;
    for (uint32_t i = p->sections.start; i < p->sections.end; i++) {
        if (load[i] > p->load) p->load = load[i];
        if (floor[i] != first || piled[i] != first) p->exact = false;
    }
}

void parts_init(parts *p, const layout *l, const uint64_t *load, bool piling, uint64_t *offset)
{
    *p = (parts){ 0 };
    p->floor = grow_new(l->sections, sizeof *p->floor);
    p->order = grow_new(l->count, sizeof *p->order);
    p->at = grow_new(l->count, sizeof *p->at);

    sortable *sorted = grow_new(l->count, sizeof *sorted);
    for (uint32_t i = 0; i < l->count; i++) sorted[i] = (sortable){ hull(&l->blocks[i]).start, i };
    qsort(sorted, l->count, sizeof *sorted, by_start);

    uint64_t *piled = pile_residents(p, l, sorted, piling, offset);
    cut(p, l, sorted, piling);
    for (size_t i = 0; i < p->count; i++) measure(&p->at[i], load, p->floor, piled);
    qsort(p->at, p->count, sizeof *p->at, by_load);
    free(piled);
    free(sorted);
}

void parts_release(parts *p)
{
    free(p->at);
    free(p->order);
    free(p->floor);
    *p = (parts){ 0 };
}
