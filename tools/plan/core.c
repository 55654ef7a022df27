#include "plan/core.h"

#include "grow.h"

#include <stdlib.h>

/* By section, with one more at the end: how many sections before it are full. */
static uint32_t *count_full(const layout *whole, const uint64_t *load, uint64_t full)
{
    uint32_t *before = grow_new((size_t)whole->sections + 1, sizeof *before);
    for (uint32_t i = 0; i < whole->sections; i++) before[i + 1] = before[i] + (load[i] > full);
    return before;
}

/* Renumbers sections: a new one begins at each start that follows an end. */
static void renumber(layout *l, uint32_t sections)
{
    bool *starts = grow_new((size_t)sections + 1, sizeof *starts), *ends = grow_new((size_t)sections + 1, sizeof *ends);
    for (size_t i = 0; i < 2 * l->count; i++) {
        span s = l->blocks[i / 2].life[i % 2];
        if (s.start == s.end) continue;
        starts[s.start] = true;
        ends[s.end] = true;
    }
    uint32_t *number = grow_new((size_t)sections + 1, sizeof *number), now = 0;
    bool ended = false;
    for (uint32_t i = 0; i <= sections; i++) {
        ended |= ends[i];
        if (starts[i] && ended) {
            now++;
            ended = false;
        }
        number[i] = now;
    }
    for (size_t i = 0; i < 2 * l->count; i++) {
        span *s = &l->blocks[i / 2].life[i % 2];
        if (s->start < s->end) *s = (span){ number[s->start], number[s->end - 1] + 1 };
    }
    l->sections = l->count ? now + 1 : 0;
    free(starts);
    free(ends);
    free(number);
}

void core_init(core *c, const layout *whole, const uint64_t *load, uint64_t full)
{
    *c = (core){ 0 };
    c->of = grow_new(whole->count, sizeof *c->of);
    c->l.blocks = grow_new(whole->count, sizeof *c->l.blocks);
    uint32_t *before = count_full(whole, load, full);
    for (uint32_t i = 0; i < whole->count; i++) {
        const plan_block *b = &whole->blocks[i];
        uint32_t meets = before[b->life[0].end] - before[b->life[0].start];
        meets += before[b->life[1].end] - before[b->life[1].start];
        if (meets == 0) continue;
        c->of[c->l.count] = i;
        c->l.blocks[c->l.count++] = *b;
    }
    free(before);
    renumber(&c->l, whole->sections);
}

void core_release(core *c)
{
    layout_release(&c->l);
    free(c->of);
    *c = (core){ 0 };
}
