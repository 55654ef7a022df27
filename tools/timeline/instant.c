#include "timeline/instant.h"

#include "grow.h"

#include <stdlib.h>

typedef struct extent {
    uint64_t address, bytes;
    int device;
    bool mapped;
} extent;

/* By device and address. */
typedef struct extents {
    extent *at;
    size_t count;
} extents;

static int by_place(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return (a->address > b->address) - (a->address < b->address);
}

static extents blocks_at(const timeline *l, instant *at)
{
    extents out = { grow_new(l->block_count, sizeof *out.at), 0 };
    for (size_t i = 0; i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        if (at->moment < b->from || b->until <= at->moment) continue;
        out.at[out.count++] = (extent){ b->address, b->bytes, l->lanes[b->lane].device, false };
        at->active += b->bytes;
        if (timeline_lives(b, at->moment)) at->requested += b->bytes;
    }
    qsort(out.at, out.count, sizeof *out.at, by_place);
    return out;
}

/* Pieces mapped side by side are one. */
static void join(extents *pieces)
{
    size_t joined = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const extent *piece = &pieces->at[i];
        extent *last = joined ? &pieces->at[joined - 1] : NULL;
        bool one = last && last->mapped && piece->mapped && last->device == piece->device &&
                   last->address + last->bytes == piece->address;
        if (one)
            last->bytes += piece->bytes;
        else
            pieces->at[joined++] = *piece;
    }
    pieces->count = joined;
}

static extents segments_at(const timeline *l, instant *at)
{
    extents out = { grow_new(l->segment_count, sizeof *out.at), 0 };
    for (size_t i = 0; i < l->segment_count; i++) {
        const timeline_segment *s = &l->segments[i];
        if (at->moment < s->from || s->until <= at->moment) continue;
        out.at[out.count++] = (extent){ s->address, s->bytes, l->lanes[s->lane].device, s->mapped };
        at->reserved += s->bytes;
    }
    qsort(out.at, out.count, sizeof *out.at, by_place);
    join(&out);
    at->segments = out.count;
    return out;
}

static void add_hole(instant *at, uint64_t bytes)
{
    if (bytes < INSTANT_HOLE) return;
    at->holes++;
    at->in_holes += bytes;
    if (bytes > at->largest_hole) at->largest_hole = bytes;
}

static void count_holes(instant *at, const extents *segments, const extents *blocks)
{
    const extent *next = blocks->at, *const last = blocks->at + blocks->count;
    for (const extent *s = segments->at; s < segments->at + segments->count; s++) {
        uint64_t end = s->address + s->bytes, reached = s->address;
        while (next < last && by_place(next, s) < 0) next++;
        for (; next < last && next->device == s->device && next->address < end; next++) {
            if (next->address > reached) add_hole(at, next->address - reached);
            if (next->address + next->bytes > reached) reached = next->address + next->bytes;
        }
        if (end > reached) add_hole(at, end - reached);
    }
}

instant instant_at(const timeline *l, uint32_t moment)
{
    instant at = { .moment = moment };
    extents blocks = blocks_at(l, &at), segments = segments_at(l, &at);
    count_holes(&at, &segments, &blocks);
    free(blocks.at);
    free(segments.at);
    return at;
}
