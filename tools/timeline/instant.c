#include "timeline/instant.h"

#include "grow.h"

#include <stdlib.h>

typedef struct extent {
    uint64_t address, bytes;
    uint32_t number; /* of the block, or of the segment */
    int device;
    bool mapped;
} extent;

/* By device and address. */
typedef struct extents {
    extent *at;
    size_t count;
} extents;

instant_point instant_point_of_failure(const timeline *l, const timeline_oom *o)
{
    return (instant_point){ o->moment - 1, o->event, l->lanes[o->lane].device };
}

static int by_place(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    return (a->address > b->address) - (a->address < b->address);
}

bool instant_holds(const timeline *l, const instant_point *p, const timeline_block *b)
{
    if (p->device >= 0 && l->lanes[b->lane].device != p->device) return false;
    if (p->event == TIMELINE_NEVER) return b->from <= p->moment && p->moment < b->until;
    return b->from <= p->moment && p->event < b->gone;
}

static bool is_there(const timeline *l, const timeline_segment *s, const instant_point *p)
{
    if (p->device >= 0 && l->lanes[s->lane].device != p->device) return false;
    if (p->event == TIMELINE_NEVER) return s->from <= p->moment && p->moment < s->until;
    return s->made <= p->event && p->event < s->gone;
}

static extents blocks_at(const timeline *l, const instant_point *p, instant *at)
{
    extents out = { grow_new(l->block_count, sizeof *out.at), 0 };
    for (size_t i = 0; i < l->block_count; i++) {
        const timeline_block *b = &l->blocks[i];
        if (!instant_holds(l, p, b)) continue;
        out.at[out.count++] = (extent){ b->address, b->held, (uint32_t)i, l->lanes[b->lane].device, false };
        at->active += b->bytes;
        if (timeline_lives(b, p->moment)) at->requested += b->bytes;
    }
    qsort(out.at, out.count, sizeof *out.at, by_place);
    return out;
}

/* Joins adjacent mapped pieces of one lane: a segment that grows has one stream and one pool. */
static void join(const timeline *l, extents *pieces)
{
    size_t joined = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const extent *piece = &pieces->at[i];
        extent *last = joined ? &pieces->at[joined - 1] : NULL;
        bool one = last && last->mapped && piece->mapped &&
                   l->segments[last->number].lane == l->segments[piece->number].lane &&
                   last->address + last->bytes == piece->address;
        if (one)
            last->bytes += piece->bytes;
        else
            pieces->at[joined++] = *piece;
    }
    pieces->count = joined;
}

static extents segments_at(const timeline *l, const instant_point *p, instant *at)
{
    extents out = { grow_new(l->segment_count, sizeof *out.at), 0 };
    for (size_t i = 0; i < l->segment_count; i++) {
        const timeline_segment *s = &l->segments[i];
        if (!is_there(l, s, p)) continue;
        out.at[out.count++] = (extent){ s->address, s->bytes, (uint32_t)i, l->lanes[s->lane].device, s->mapped };
        at->reserved += s->bytes;
    }
    qsort(out.at, out.count, sizeof *out.at, by_place);
    join(l, &out);
    at->segments = out.count;
    return out;
}

/* Counts the hole from `address` to `end` between two blocks; NULL: the segment ends. True: the largest so far. */
static bool add_hole(instant *at, uint64_t address, uint64_t end, const extent *below, const extent *above)
{
    const uint64_t bytes = end > address ? end - address : 0;
    if (bytes < INSTANT_HOLE) return false;
    at->holes++;
    at->in_holes += bytes;
    if (bytes <= at->largest_hole) return false;
    at->largest_hole = bytes;
    at->largest_at = address;
    at->below = below ? below->number : TIMELINE_NEVER;
    at->above = above ? above->number : TIMELINE_NEVER;
    return true;
}

static void count_holes(const timeline *l, instant *at, const extents *segments, const extents *blocks)
{
    const extent *next = blocks->at, *const last = blocks->at + blocks->count;
    for (const extent *s = segments->at; s < segments->at + segments->count; s++) {
        const uint64_t end = s->address + s->bytes;
        uint64_t reached = s->address;
        const extent *below = NULL; /* the block that ends at `reached` */
        bool largest = false;
        while (next < last && by_place(next, s) < 0) next++;
        for (; next < last && next->device == s->device && next->address < end; next++) {
            largest |= add_hole(at, reached, next->address, below, next);
            if (next->address + next->bytes <= reached) continue;
            reached = next->address + next->bytes;
            below = next;
        }
        largest |= add_hole(at, reached, end, below, NULL);
        if (largest) at->largest_lane = l->segments[s->number].lane;
    }
}

instant instant_at(const timeline *l, const instant_point *p)
{
    instant at = { .moment = p->moment, .below = TIMELINE_NEVER, .above = TIMELINE_NEVER };
    extents blocks = blocks_at(l, p, &at), segments = segments_at(l, p, &at);
    count_holes(l, &at, &segments, &blocks);
    free(blocks.at);
    free(segments.at);
    return at;
}
