/*
 * cub: cub::CachingDeviceAllocator. Sizes are rounded up to powers of `growth`; only whole blocks of the very same
 * power are reused, oldest first. Blocks above the largest power, or beyond the bytes that may be cached, go straight
 * back to the driver.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

enum { GROWTH, MIN_BIN, MAX_BIN, CACHED };
enum { BINS = 64 };

typedef struct state {
    driver *driver;
    const uint64_t *values;
    chunks chunks;
    struct chunk_tree bins[BINS]; /* a block's owner is its bin, or NULL when it has none */
    uint64_t cached, serial;
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
    chunks_release(&s->chunks);
    free(s);
}

/* Finds the bin and rounds *bytes up to its size; NULL, with *bytes unchanged, for a size above all bins. */
static struct chunk_tree *bin_of(state *s, uint64_t *bytes)
{
    uint64_t bin = 0, rounded = 1;
    while (rounded < *bytes || bin < s->values[MIN_BIN]) {
        if (bin == s->values[MAX_BIN]) return NULL;
        rounded *= s->values[GROWTH];
        bin++;
    }
    *bytes = rounded;
    return &s->bins[bin];
}

static void give_back(state *s, chunk *c)
{
    chunk_free(&s->chunks, s->driver, c);
    driver_call(s->driver, WEIR_BACKEND_event_destroy);
}

static void empty(void *self)
{
    state *s = self;
    for (int i = 0; i < BINS; i++) {
        chunk *c;
        while ((c = chunk_best(&s->bins[i], 0))) {
            chunk_take(&s->bins[i], c);
            give_back(s, c);
        }
    }
    s->cached = 0;
}

static chunk *make(state *s, struct chunk_tree *bin, uint64_t bytes)
{
    chunk *c = chunk_alloc(&s->chunks, s->driver, bytes, bin);
    if (c) driver_call(s->driver, WEIR_BACKEND_event_create);
    return c;
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    struct chunk_tree *bin = bin_of(s, &bytes);
    chunk *c = bin ? chunk_best(bin, 0) : NULL;
    if (c) {
        chunk_take(bin, c);
        s->cached -= c->bytes;
        if (c->stream != stream) driver_call(s->driver, WEIR_BACKEND_event_query);
    } else {
        c = make(s, bin, bytes);
        if (!c) {
            empty(s);
            c = make(s, bin, bytes);
        }
        if (!c) return false;
    }
    c->stream = stream;
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    chunk *c = block->node;
    if (!c->owner || s->cached + c->bytes > s->values[CACHED]) {
        give_back(s, c);
        return;
    }
    driver_call(s->driver, WEIR_BACKEND_event_record);
    s->cached += c->bytes;
    chunk_put_ranked(c->owner, c, ++s->serial);
}

const peer peer_cub = {
    .name = "cub",
    .about = "cub::CachingDeviceAllocator: bins of powers, no splitting",
    .options = { { .name = "growth",
                   .about = "number to whose powers sizes are rounded up",
                   .least = 2,
                   .most = 64,
                   .standard = 8 },
                 { .name = "min-bin",
                   .about = "power of the smallest bin",
                   .most = 10,
                   .standard = 3,
                   .at_most = "max-bin" },
                 { .name = "max-bin", .about = "power of the largest bin", .least = 1, .most = 10, .standard = 7 },
                 { .name = "cached",
                   .about = "bytes that may be cached",
                   .most = PEER_UNLIMITED,
                   .standard = 6291455, /* three of the largest bin, less a byte */
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .empty = empty,
};
