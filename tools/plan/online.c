#include "plan/online.h"

#include "chunk.h"
#include "grow.h"
#include "plan/order.h"

#include <stdlib.h>

typedef struct line {
    chunks all;
    struct chunk_tree gaps;
    chunk *last; /* NULL: none yet */
} line;

static chunk *add_behind(line *of, uint64_t bytes)
{
    chunk *before = of->last;
    of->last = chunk_new(&of->all, before ? before->address + before->bytes : 0, bytes, NULL);
    of->last->before = before;
    if (before) before->after = of->last;
    return of->last;
}

/* The tightest gap; else the free end, which grows; else a new end. */
static chunk *take(line *of, uint64_t bytes)
{
    chunk *c = chunk_best(&of->gaps, bytes);
    if (!c && of->last && of->last->free) {
        chunk_take(&of->gaps, of->last);
        of->last->bytes = bytes;
        return of->last;
    }
    if (!c) return add_behind(of, bytes);
    chunk_take_front(&of->all, &of->gaps, c, bytes);
    if (of->last->after) of->last = of->last->after; /* the rest of it */
    return c;
}

static void give(line *of, chunk *c)
{
    c = chunk_give(&of->all, &of->gaps, c);
    if (!c->after) of->last = c;
}

/* The blocks by the start of their life, or by its end. */
static uint32_t *in_order(const layout *l, bool ends)
{
    uint32_t *order = grow_new(l->count, sizeof *order);
    double *weight = grow_new(l->count, sizeof *weight);
    for (uint32_t i = 0; i < l->count; i++) {
        const span life = l->blocks[i].life[0];
        order[i] = i;
        weight[i] = -(double)(ends ? life.end : life.start);
    }
    order_by(order, l->count, weight);
    free(weight);
    return order;
}

static bool lives_once(const plan_block *b)
{
    return b->life[0].start < b->life[0].end && b->life[1].start == b->life[1].end;
}

uint64_t online(const layout *l, uint64_t *offset)
{
    for (size_t i = 0; i < l->count; i++)
        if (!lives_once(&l->blocks[i])) return UINT64_MAX;
    line all = { 0 };
    chunk **placed = grow_new(l->count, sizeof *placed);
    uint32_t *starts = in_order(l, false), *ends = in_order(l, true);
    uint64_t height = 0;
    for (size_t i = 0, ended = 0; i < l->count; i++) {
        const uint32_t block = starts[i];
        while (l->blocks[ends[ended]].life[0].end <= l->blocks[block].life[0].start) give(&all, placed[ends[ended++]]);
        placed[block] = take(&all, l->blocks[block].bytes);
        offset[block] = placed[block]->address;
        const uint64_t top = offset[block] + l->blocks[block].bytes;
        if (top > height) height = top;
    }
    free(ends);
    free(starts);
    free((void *)placed);
    chunks_release(&all.all);
    return height;
}
