/*
 * rmm-pool: RAPIDS RMM's pool_memory_resource. Sizes are multiples of 256 B. A free list per stream, best fit, merged
 * with free neighbours of the same list. A free records an event. When the stream's list cannot serve, the first other
 * list with a fitting block is merged into it, after a wait; then all lists, one by one, until a block fits. Then the
 * pool grows by its present size, or by half of what its maximum leaves, halved until the device has that much. It
 * never shrinks.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(256)

enum { INITIAL, MAXIMUM };

typedef struct state {
    driver *driver;
    chunks chunks;
    chunk_lists lists; /* per stream; a free block's owner is its list */
    uint64_t maximum;
} state;

static chunk *grow(state *s, struct chunk_tree *list, uint64_t wanted, uint64_t least)
{
    chunk *c;
    while (!(c = chunk_alloc(&s->chunks, s->driver, wanted, list)) && wanted > least)
        wanted = wanted / 2 > least ? wanted / 2 : least;
    return c;
}

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->maximum = values[MAXIMUM];
    uint64_t initial = round_up(values[INITIAL], UNIT);
    if (initial > s->maximum) initial = s->maximum / UNIT * UNIT; /* undoes rounding up beyond the maximum */
    struct chunk_tree *list = chunk_list(&s->lists, 0);
    chunk *all = initial ? grow(s, list, initial, initial) : NULL;
    if (all)
        chunk_put(list, all);
    else if (initial)
        s->maximum = 0; /* RMM's constructor throws, so nothing is ever served */
    return s;
}

static void close_peer(void *self)
{
    state *s = self;
    chunk_lists_release(&s->lists);
    chunks_release(&s->chunks);
    free(s);
}

/* How much the pool grows for a block; 0: it may not. */
static uint64_t growth(const state *s, uint64_t bytes)
{
    const uint64_t used = s->driver->used;
    if (s->maximum == PEER_UNLIMITED) return bytes > used ? bytes : used;
    const uint64_t left = round_up(s->maximum - used, UNIT);
    if (bytes > s->maximum - used) return 0;
    const uint64_t half = left / 2 / UNIT * UNIT;
    return bytes > half ? bytes : half;
}

static bool is_shorter(struct chunk_tree *list, struct chunk_tree *other)
{
    chunk *a = chunk_best(list, 0), *b = chunk_best(other, 0);
    for (; a && b; a = chunk_next(a)) b = chunk_next(b);
    return b != NULL;
}

/* Merges another list into a stream's. The shorter one's blocks are moved, wherever they belong: streams that take
 * turns would otherwise move all that is free each time. */
static void merge(state *s, uint32_t stream, size_t other)
{
    struct chunk_tree **lists = s->lists.at;
    chunk *c;
    driver_call(s->driver, WEIR_BACKEND_stream_wait);
    if (is_shorter(lists[stream], lists[other])) {
        struct chunk_tree *longer = lists[other];
        lists[other] = lists[stream];
        lists[stream] = longer;
    }
    while ((c = chunk_best(lists[other], 0))) {
        chunk_take(lists[other], c);
        c->owner = lists[stream];
        chunk_give_owned(&s->chunks, lists[stream], c);
    }
}

/* Takes a block from the first other list that has a fitting one, and merges the rest of that list. */
static chunk *steal(state *s, uint32_t stream, uint64_t bytes)
{
    for (size_t i = 0; i < s->lists.count; i++) {
        struct chunk_tree *other = s->lists.at[i];
        chunk *c = i == stream ? NULL : chunk_best(other, bytes);
        if (!c) continue;
        chunk_take(other, c);
        merge(s, stream, i);
        return c;
    }
    return NULL;
}

/* Merges other lists until a block fits. */
static chunk *gather(state *s, uint32_t stream, uint64_t bytes)
{
    for (size_t i = 0; i < s->lists.count; i++) {
        if (i == stream || !chunk_best(s->lists.at[i], 0)) continue;
        merge(s, stream, i);
        struct chunk_tree *list = s->lists.at[stream];
        chunk *c = chunk_best(list, bytes);
        if (!c) continue;
        chunk_take(list, c);
        return c;
    }
    return NULL;
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    const uint64_t rounded = round_up(bytes, UNIT);
    struct chunk_tree *list = chunk_list(&s->lists, stream);
    chunk *c = chunk_best(list, rounded);
    if (c) chunk_take(list, c);
    if (!c) c = steal(s, stream, rounded);
    if (!c) c = gather(s, stream, rounded);
    list = chunk_list(&s->lists, stream);
    if (!c) {
        const uint64_t wanted = growth(s, rounded);
        c = wanted ? grow(s, list, wanted, rounded) : NULL;
    }
    if (!c) return false;
    if (c->bytes > rounded) {
        chunk *rest = chunk_cut(&s->chunks, c, rounded);
        rest->owner = list;
        chunk_give_owned(&s->chunks, list, rest);
    }
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    state *s = self;
    chunk *c = block->node;
    driver_call(s->driver, WEIR_BACKEND_event_record);
    c->owner = chunk_list(&s->lists, stream);
    chunk_give_owned(&s->chunks, c->owner, c);
}

const peer peer_rmm_pool = {
    .name = "rmm-pool",
    .about = "RAPIDS RMM's pool_memory_resource: best fit per stream, takes other streams' blocks, doubles",
    .options = { { .name = "initial",
                   .about = "size of the pool at its beginning; RMM's own default is half of the device's memory",
                   .most = PEER_UNLIMITED,
                   .standard = 0,
                   .bytes = true,
                   .at_most = "maximum" },
                 { .name = "maximum",
                   .about = "most that it may grow to; it then grows by half of what is left, else by doubling",
                   .least = UNIT,
                   .most = PEER_UNLIMITED,
                   .standard = PEER_UNLIMITED,
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
};
