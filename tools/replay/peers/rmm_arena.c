/*
 * rmm-arena: RAPIDS RMM's arena_memory_resource. One range of memory, taken at the start and never extended, is cut
 * into superblocks of at least 1 MiB. Sizes are rounded up to jemalloc's size classes. A request above 1 MiB takes the
 * first superblock by address that has room, which is cut to size if it is empty. Smaller requests are served by
 * superblocks of the stream's arena. An arena takes another superblock from the range when none of its own has room,
 * and gives empty ones back only when memory runs out. Within a superblock: first fit by address, merged on free.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(256)
#define SUPERBLOCK (UINT64_C(1) << 20)

enum { SIZE };
enum { GLOBAL = -1 };

typedef struct superblock {
    struct superblock *before, *after; /* by address: together they are the range */
    uint64_t bytes;
    chunk *first;           /* its chunks, by address */
    struct chunk_tree free; /* the free ones */
    int64_t arena;          /* the stream that it belongs to, or GLOBAL */
} superblock;

typedef struct state {
    driver *driver;
    chunks chunks;
    superblock *first;
} state;

static superblock *new_superblock(state *s, uint64_t address, uint64_t bytes)
{
    superblock *made = grow_new(1, sizeof *made);
    made->bytes = bytes;
    made->arena = GLOBAL;
    made->first = chunk_new(&s->chunks, address, bytes, made);
    chunk_put(&made->free, made->first);
    return made;
}

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    uint64_t address, size = values[SIZE] ? values[SIZE] : d->limit / 2;
    s->driver = d;
    size = size / UNIT * UNIT;
    if (size >= SUPERBLOCK && driver_alloc(d, size, &address)) s->first = new_superblock(s, address, size);
    return s;
}

static void close_peer(void *self)
{
    state *s = self;
    for (superblock *b = s->first, *next; b; b = next) {
        next = b->after;
        free(b);
    }
    chunks_release(&s->chunks);
    free(s);
}

/* Classes are 256 B apart up to 2 KiB, then four to each power of two. RMM has 54 KiB where jemalloc has 56. */
static uint64_t size_class(uint64_t bytes)
{
    uint64_t step = UNIT;
    while (bytes > 8 * step) step *= 2;
    const uint64_t rounded = round_up(bytes, step);
    if (rounded != UINT64_C(56) << 10) return rounded;
    return (bytes <= UINT64_C(54) << 10 ? UINT64_C(54) : UINT64_C(64)) << 10;
}

static bool is_empty(const superblock *b)
{
    return b->first->free && b->first->bytes == b->bytes;
}

static bool has_room(superblock *b, uint64_t bytes)
{
    return chunk_best(&b->free, bytes) != NULL;
}

/* Cuts an empty superblock in two if both parts are large enough. */
static void cut(state *s, superblock *b, uint64_t bytes)
{
    if (bytes < SUPERBLOCK) bytes = SUPERBLOCK;
    if (!is_empty(b) || b->bytes < bytes + SUPERBLOCK) return;
    chunk_take(&b->free, b->first);
    superblock *rest = new_superblock(s, b->first->address + bytes, b->bytes - bytes);
    b->bytes = b->first->bytes = bytes;
    chunk_put(&b->free, b->first);
    rest->before = b;
    rest->after = b->after;
    if (rest->after) rest->after->before = rest;
    b->after = rest;
}

static void swallow(state *s, superblock *b)
{
    superblock *gone = b->after;
    chunk_take(&b->free, b->first);
    b->bytes += gone->bytes;
    b->first->bytes = b->bytes;
    chunk_put(&b->free, b->first);
    b->after = gone->after;
    if (b->after) b->after->before = b;
    chunk_take(&gone->free, gone->first);
    chunk_drop(&s->chunks, gone->first);
    free(gone);
}

/* Returns an empty superblock to the range, merged with empty neighbours that belong to no arena. */
static superblock *release(state *s, superblock *b)
{
    b->arena = GLOBAL;
    if (b->after && b->after->arena == GLOBAL && is_empty(b->after)) swallow(s, b);
    if (b->before && b->before->arena == GLOBAL && is_empty(b->before)) {
        b = b->before;
        swallow(s, b);
    }
    return b;
}

static chunk *first_fit(state *s, superblock *b, uint64_t bytes)
{
    chunk *c = b->first;
    while (!c->free || c->bytes < bytes) c = c->after;
    chunk_take_front(&s->chunks, &b->free, c, bytes);
    return c;
}

static superblock *find(state *s, int64_t arena, uint64_t bytes)
{
    superblock *b = s->first;
    while (b && !(b->arena == arena && has_room(b, bytes))) b = b->after;
    return b;
}

static chunk *serve(state *s, uint64_t bytes, uint32_t stream)
{
    const bool large = bytes > SUPERBLOCK;
    superblock *b = large ? NULL : find(s, stream, bytes);
    if (!b) {
        b = find(s, GLOBAL, bytes);
        if (!b) return NULL;
        cut(s, b, bytes);
        if (!large) b->arena = stream;
    }
    return first_fit(s, b, bytes);
}

static void empty(void *self)
{
    state *s = self;
    for (superblock *b = s->first; b; b = b->after)
        if (b->arena != GLOBAL && is_empty(b)) b = release(s, b);
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    const uint64_t rounded = size_class(bytes);
    chunk *c = serve(s, rounded, stream);
    if (!c) {
        empty(s);
        c = serve(s, rounded, stream);
    }
    if (!c) return false;
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    chunk *c = block->node;
    superblock *b = c->owner;
    if (c->bytes > SUPERBLOCK) driver_call(s->driver, WEIR_BACKEND_stream_synchronize);
    chunk_give(&s->chunks, &b->free, c);
    if (b->arena == GLOBAL && is_empty(b)) release(s, b);
}

const peer peer_rmm_arena = {
    .name = "rmm-arena",
    .about = "RAPIDS RMM's arena_memory_resource: first fit in one range of memory that does not grow",
    .options = { { .name = "size",
                   .about = "size of the range; 0: half of the device's memory, RMM's own default",
                   .most = PEER_UNLIMITED,
                   .standard = 0,
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
};
