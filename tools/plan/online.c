#include "plan/online.h"

#include "grow.h"
#include "plan/order.h"

#include <bsd/sys/tree.h>
#include <stdlib.h>

/* A stretch of addresses that is free or has one block. Free ones have no free neighbours. */
typedef struct piece {
    uint64_t low, bytes;
    struct piece *before, *after; /* in the order of addresses */
    RB_ENTRY(piece) link;         /* among the free ones */
    bool is_free;
} piece;

RB_HEAD(piece_tree, piece);

typedef struct line {
    piece *made; /* each block makes one at most */
    size_t count;
    piece *last;
    struct piece_tree gaps;
} line;

static int by_size(const piece *left, const piece *right)
{
    if (left->bytes != right->bytes) return left->bytes < right->bytes ? -1 : 1;
    return (left->low > right->low) - (left->low < right->low);
}

/* The header's macro for static functions says __unused, which glibc does not have. */
RB_GENERATE_INTERNAL(piece_tree, piece, link, by_size, __attribute__((unused)) static)

static piece *add_behind(line *of, piece *before, uint64_t low, uint64_t bytes)
{
    piece *p = &of->made[of->count++];
    *p = (piece){ .low = low, .bytes = bytes, .before = before, .after = before ? before->after : NULL };
    if (before) before->after = p;
    if (p->after)
        p->after->before = p;
    else
        of->last = p;
    return p;
}

/* The tightest gap; else the free end, which grows; else a new end. */
static piece *take(line *of, uint64_t bytes)
{
    const piece key = { .bytes = bytes };
    piece *p = RB_NFIND(piece_tree, &of->gaps, (piece *)&key);
    if (!p && of->last && of->last->is_free) p = of->last;
    if (!p) return add_behind(of, of->last, of->last ? of->last->low + of->last->bytes : 0, bytes);
    RB_REMOVE(piece_tree, &of->gaps, p);
    p->is_free = false;
    if (p->bytes > bytes) {
        piece *rest = add_behind(of, p, p->low + bytes, p->bytes - bytes);
        rest->is_free = true;
        RB_INSERT(piece_tree, &of->gaps, rest);
    }
    p->bytes = bytes;
    return p;
}

/* Joins the piece with the one behind it. */
static void swallow(line *of, piece *p)
{
    p->bytes += p->after->bytes;
    p->after = p->after->after;
    if (p->after)
        p->after->before = p;
    else
        of->last = p;
}

static void give(line *of, piece *p)
{
    if (p->after && p->after->is_free) {
        RB_REMOVE(piece_tree, &of->gaps, p->after);
        swallow(of, p);
    }
    if (p->before && p->before->is_free) {
        p = p->before;
        RB_REMOVE(piece_tree, &of->gaps, p);
        swallow(of, p);
    }
    p->is_free = true;
    RB_INSERT(piece_tree, &of->gaps, p);
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
    line all = { .made = grow_new(l->count, sizeof *all.made) };
    piece **placed = grow_new(l->count, sizeof *placed);
    uint32_t *starts = in_order(l, false), *ends = in_order(l, true);
    uint64_t height = 0;
    for (size_t i = 0, ended = 0; i < l->count; i++) {
        const uint32_t block = starts[i];
        while (l->blocks[ends[ended]].life[0].end <= l->blocks[block].life[0].start) give(&all, placed[ends[ended++]]);
        placed[block] = take(&all, l->blocks[block].bytes);
        offset[block] = placed[block]->low;
        const uint64_t top = offset[block] + l->blocks[block].bytes;
        if (top > height) height = top;
    }
    free(ends);
    free(starts);
    free((void *)placed);
    free(all.made);
    return height;
}
