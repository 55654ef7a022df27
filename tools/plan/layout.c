#include "plan/layout.h"

#include "grow.h"

#include <stdlib.h>

#define NO_BLOCK UINT32_MAX

/* The step after folding all iterations of the loop into the first one. */
static uint32_t folded(const loop *l, uint32_t step)
{
    if (l->times == 0 || step < l->step + l->period) return step;
    uint32_t end = l->step + l->period * (uint32_t)l->times;
    if (step >= end) return step - l->period * (uint32_t)(l->times - 1);
    return l->step + (step - l->step) % l->period;
}

/* Extends `s` to cover [start, end). */
static void cover(span *s, uint32_t start, uint32_t end)
{
    if (start >= end) return;
    if (s->start == s->end) {
        *s = (span){ start, end };
        return;
    }
    if (start < s->start) s->start = start;
    if (end > s->end) s->end = end;
}

/* The folded end of a life that began before the loop. One that ends inside it counts as live in a whole iteration. */
static uint32_t folded_end(const loop *l, uint32_t end)
{
    uint32_t border = l->step + l->period;
    if (l->times == 0 || end <= border) return end;
    return end < l->step + l->period * (uint32_t)l->times ? border : folded(l, end);
}

/* Adds the life of `from`. life[0] is its part in the iteration of its allocation, or behind the loop. life[1] is its
 * part in the next iteration, joined with the life of its counterpart that crosses into the first one. */
static void add_life(const loop *l, const arena_block *from, plan_block *to)
{
    uint32_t border = l->step + l->period, end = l->step + l->period * (uint32_t)l->times;
    uint32_t start = folded(l, from->start);
    if (l->times == 0 || from->start < l->step || from->start >= end) {
        bool joins = to->life[0].start != to->life[0].end;
        cover(&to->life[joins], start, folded_end(l, from->end));
        return;
    }
    uint32_t next = border + (from->start - l->step) / l->period * l->period;
    if (from->end <= next) {
        cover(&to->life[0], start, start + (from->end - from->start));
    } else if (next == end) {
        cover(&to->life[0], start, folded(l, from->end));
    } else {
        cover(&to->life[0], start, border);
        cover(&to->life[1], l->step, l->step + (from->end - next));
    }
}

/* Converts steps to sections: a new one begins with each allocation that follows a free. */
static void count_sections(layout *l, const arena *a)
{
    uint32_t steps = folded(&l->loop, a->steps);
    uint32_t *section = grow_new((size_t)steps + 1, sizeof *section);
    for (size_t i = 0; i < a->count; i++) section[folded(&l->loop, a->blocks[i].start)] = 1;
    uint32_t now = 0;
    bool freed = false;
    for (uint32_t i = 0; i < steps; i++) {
        bool allocates = section[i];
        if (allocates && freed) now++;
        freed = !allocates;
        section[i] = now;
    }
    for (size_t i = 0; i < l->count; i++) {
        for (int part = 0; part < 2; part++) {
            span *s = &l->blocks[i].life[part];
            if (s->start < s->end) *s = (span){ section[s->start], section[s->end - 1] + 1 };
        }
    }
    l->sections = steps ? now + 1 : 0;
    free(section);
}

/* Reverses the numbering, so that blocks are in the order of their allocation. */
static void turn_round(layout *l)
{
    for (size_t i = 0; i < l->count / 2; i++) {
        plan_block swap = l->blocks[i];
        l->blocks[i] = l->blocks[l->count - 1 - i];
        l->blocks[l->count - 1 - i] = swap;
    }
    for (size_t i = 0; i < l->entries; i++) l->block_of[i] = (uint32_t)l->count - 1 - l->block_of[i];
}

void layout_init(layout *l, const arena *a)
{
    *l = (layout){ .loop = loop_find(a) };
    const loop *lo = &l->loop;
    l->entries = lo->times ? a->count - lo->count * (lo->times - 1) : a->count;
    l->block_of = grow_new(l->entries, sizeof *l->block_of);
    l->blocks = grow_new(l->entries, sizeof *l->blocks);
    for (size_t i = 0; i < l->entries; i++) l->block_of[i] = NO_BLOCK;

    /* From the end, so that a block that crosses into the loop finds its counterpart numbered already. */
    for (size_t i = a->count; i-- > 0;) {
        const arena_block *from = &a->blocks[i];
        size_t entry = loop_entry(lo, i);
        bool joins = i < lo->first && i + lo->count >= lo->first && from->end > lo->step;
        uint32_t known = l->block_of[joins ? entry + lo->count : entry];
        if (known == NO_BLOCK) known = (uint32_t)l->count++;
        l->block_of[entry] = known;
        l->blocks[known].bytes = from->bytes;
        add_life(lo, from, &l->blocks[known]);
    }
    turn_round(l);
    count_sections(l, a);
}

size_t layout_block(const layout *l, size_t i)
{
    return l->block_of[loop_entry(&l->loop, i)];
}

void layout_release(layout *l)
{
    free(l->blocks);
    free(l->block_of);
    *l = (layout){ 0 };
}

uint64_t *layout_load(const layout *l)
{
    uint64_t *load = grow_new((size_t)l->sections + 1, sizeof *load);
    for (size_t i = 0; i < l->count; i++) {
        const plan_block *b = &l->blocks[i];
        for (int part = 0; part < 2; part++) {
            load[b->life[part].start] += b->bytes;
            load[b->life[part].end] -= b->bytes;
        }
    }
    for (uint32_t i = 1; i < l->sections; i++) load[i] += load[i - 1];
    return load;
}

static bool spans_meet(span a, span b)
{
    return a.start < b.end && b.start < a.end;
}

bool blocks_meet(const plan_block *a, const plan_block *b)
{
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (spans_meet(a->life[i], b->life[j])) return true;
    return false;
}
