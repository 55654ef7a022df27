/*
 * cupy: cupy.cuda.MemoryPool. Sizes are multiples of 512 B. Best fit per stream, split whenever a unit is left; else a
 * cudaMalloc of exactly the size. Frees are merged with free neighbours of the stream. When memory is short, all chunks
 * that are whole allocations go back. The original does that again after running Python's garbage collector, which is
 * not modelled.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(512)

enum { LIMIT };

typedef struct state {
    driver *driver;
    const uint64_t *values;
    chunks chunks;
    chunk_lists arenas; /* per stream; a chunk's owner is its arena */
} state;

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->values = values;
    return s;
}

static void close_peer(void *self)
{
    state *s = self;
    chunk_lists_release(&s->arenas);
    chunks_release(&s->chunks);
    free(s);
}

static void empty(void *self)
{
    state *s = self;
    for (size_t i = 0; i < s->arenas.count; i++) chunk_release_idle(&s->chunks, s->arenas.at[i], s->driver);
}

static chunk *make(state *s, struct chunk_tree *arena, uint64_t bytes)
{
    if (s->driver->used + bytes > s->values[LIMIT]) return NULL;
    return chunk_alloc(&s->chunks, s->driver, bytes, arena);
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    const uint64_t rounded = round_up(bytes, UNIT);
    struct chunk_tree *arena = chunk_list(&s->arenas, stream);
    chunk *c = chunk_best(arena, rounded);
    if (c) {
        chunk_take_front(&s->chunks, arena, c, rounded);
    } else {
        c = make(s, arena, rounded);
        if (!c) {
            empty(s);
            c = make(s, arena, rounded);
        }
        if (!c) return false;
    }
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    chunk *c = block->node;
    chunk_give(&s->chunks, c->owner, c);
}

const peer peer_cupy = {
    .name = "cupy",
    .about = "CuPy's MemoryPool: best fit per stream, always split, cudaMalloc of the exact size",
    .options = { { .name = "limit",
                   .about = "bytes that may be reserved (set_limit)",
                   .least = UNIT,
                   .most = PEER_UNLIMITED,
                   .standard = PEER_UNLIMITED,
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .empty = empty,
};
