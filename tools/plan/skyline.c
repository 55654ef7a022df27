#include "plan/skyline.h"

#include "grow.h"

#include <stdlib.h>

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void skyline_init(skyline *s, uint32_t sections)
{
    *s = (skyline){ .leaves = 1 };
    while (s->leaves < sections) s->leaves *= 2;
    s->raised = grow_new(2 * s->leaves, sizeof *s->raised);
    s->highest = grow_new(2 * s->leaves, sizeof *s->highest);
}

void skyline_release(skyline *s)
{
    free(s->raised);
    free(s->highest);
    *s = (skyline){ 0 };
}

/* The most that a leaf's nodes say of all below them. */
static uint64_t height_at(const skyline *s, size_t leaf)
{
    uint64_t height = 0;
    for (size_t node = s->leaves + leaf; node; node /= 2) height = higher(height, s->raised[node]);
    return height;
}

/* The nodes between `left` and `right` cover the span; those above them are above its first or its last leaf. */
static uint64_t highest_in(const skyline *s, span life)
{
    uint64_t highest = higher(height_at(s, life.start), height_at(s, life.end - 1));
    for (size_t left = s->leaves + life.start, right = s->leaves + life.end; left < right; left /= 2, right /= 2) {
        if (left % 2) highest = higher(highest, s->highest[left++]);
        if (right % 2) highest = higher(highest, s->highest[--right]);
    }
    return highest;
}

static void raise_node(skyline *s, size_t node, uint64_t top)
{
    s->raised[node] = higher(s->raised[node], top);
    s->highest[node] = higher(s->highest[node], top);
}

static void raise(skyline *s, span life, uint64_t top)
{
    for (size_t left = s->leaves + life.start, right = s->leaves + life.end; left < right; left /= 2, right /= 2) {
        if (left % 2) raise_node(s, left++, top);
        if (right % 2) raise_node(s, --right, top);
    }
    const size_t ends[] = { life.start, life.end - 1 };
    for (int i = 0; i < 2; i++)
        for (size_t node = s->leaves + ends[i]; node; node /= 2) s->highest[node] = higher(s->highest[node], top);
}

uint64_t skyline_put(skyline *s, const plan_block *b)
{
    uint64_t offset = 0;
    for (int part = 0; part < 2; part++)
        if (b->life[part].start < b->life[part].end) offset = higher(offset, highest_in(s, b->life[part]));
    for (int part = 0; part < 2; part++)
        if (b->life[part].start < b->life[part].end) raise(s, b->life[part], offset + b->bytes);
    return offset;
}

void skyline_read(const skyline *s, uint32_t sections, uint64_t *heights)
{
    for (uint32_t i = 0; i < sections; i++) heights[i] = height_at(s, i);
}
