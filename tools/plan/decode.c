#include "plan/decode.h"

#include "clock.h"
#include "grow.h"

#include <stdlib.h>
#include <string.h>

#define DONE_BETWEEN_LOOKS 256 /* blocks between two looks at the clock */

void decoder_init(decoder *d, const layout *l, const uint64_t *floor)
{
    *d = (decoder){ .l = l, .floor = floor, .window = { 0, l->sections } };
    d->skyline = grow_new(l->sections, sizeof *d->skyline);
    occupancy_init(&d->placed, l);
}

void decoder_release(decoder *d)
{
    occupancy_release(&d->placed);
    free(d->skyline);
    *d = (decoder){ 0 };
}

uint64_t height_over(const uint64_t *heights, const plan_block *b)
{
    uint64_t highest = 0;
    for (int part = 0; part < 2; part++)
        for (uint32_t i = b->life[part].start; i < b->life[part].end; i++)
            highest = heights[i] > highest ? heights[i] : highest;
    return highest;
}

/* Raises `heights` to at least `top` where the block lives. */
static void raise_over(uint64_t *heights, const plan_block *b, uint64_t top)
{
    for (int part = 0; part < 2; part++)
        for (uint32_t i = b->life[part].start; i < b->life[part].end; i++)
            heights[i] = heights[i] < top ? top : heights[i];
}

uint64_t put_on_top(uint64_t *heights, const plan_block *b)
{
    uint64_t offset = height_over(heights, b);
    raise_over(heights, b, offset + b->bytes);
    return offset;
}

/* The offset for a block of `bytes` above the floor and between the extents that were found. */
static uint64_t find_gap(occupancy *taken, uint64_t floor, uint64_t bytes, bool best)
{
    uint64_t top = floor, at = UINT64_MAX, least = UINT64_MAX;
    for (size_t i = 0; i < taken->sorted || occupancy_more(taken); i++) {
        const extent next = taken->found[i];
        if (next.low > top && next.low - top >= bytes && next.low - top < least) {
            at = top;
            least = next.low - top;
            if (!best || least == bytes) return at;
        }
        if (next.high > top) top = next.high;
    }
    return at != UINT64_MAX ? at : top;
}

/* Every DONE_BETWEEN_LOOKS blocks: calls the watcher and checks the deadline. */
static bool is_late(const decoder *d, size_t done)
{
    if (done % DONE_BETWEEN_LOOKS != 0) return false;
    if (d->watch) d->watch(d->watcher, done);
    return d->deadline_ns && clock_now_ns() > d->deadline_ns;
}

static uint64_t fill(decoder *d, const uint32_t *order, size_t count, bool best, uint64_t limit, uint64_t *offset)
{
    uint64_t height = 0;
    size_t done = 0;
    bool late = false;
    while (done < count && height <= limit && !late) {
        const plan_block *b = &d->l->blocks[order[done]];
        occupancy_meet(&d->placed, order[done]);
        uint64_t floor = height_over(d->floor, b);
        uint64_t at = find_gap(&d->placed, floor, b->bytes, best);
        offset[order[done]] = at;
        if (at + b->bytes > height) height = at + b->bytes;
        occupancy_add(&d->placed, order[done++], at);
        late = is_late(d, done);
    }
    for (size_t i = 0; i < done; i++) occupancy_remove(&d->placed, order[i]);
    return height <= limit && done == count ? height : UINT64_MAX;
}

static uint64_t pile(decoder *d, const uint32_t *order, size_t count, uint64_t limit, uint64_t *offset)
{
    uint64_t height = 0;
    size_t from = d->window.start, bytes = (d->window.end - from) * sizeof *d->skyline;
    memcpy(d->skyline + from, d->floor + from, bytes);
    for (size_t i = 0; i < count; i++) {
        const plan_block *b = &d->l->blocks[order[i]];
        offset[order[i]] = put_on_top(d->skyline, b);
        if (offset[order[i]] + b->bytes > height) height = offset[order[i]] + b->bytes;
        if (height > limit || (i + 1 < count && is_late(d, i + 1))) return UINT64_MAX;
    }
    return height;
}

uint64_t decode(decoder *d, const uint32_t *order, size_t count, decode_way way, uint64_t limit, uint64_t *offset)
{
    if (way == DECODE_TOP) return pile(d, order, count, limit, offset);
    return fill(d, order, count, way == DECODE_BEST, limit, offset);
}
