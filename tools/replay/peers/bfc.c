/*
 * bfc: TensorFlow's and XLA's BFCAllocator. Sizes are multiples of 256 B. It takes the best fit among free chunks of
 * all streams, since the original serves one compute stream. A chunk is split when it has twice the size or 128 MiB too
 * much, else handed out whole. Regions are taken from the driver in doubling sizes, from 2 MiB on. When memory is
 * short, empty regions go back. That the original asks for 10 % less at a time when the driver refuses is not modelled:
 * the modelled driver has all that the limit leaves.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(256)

enum { REGION, SLACK, COLLECT, LIMIT };

typedef struct state {
    driver *driver;
    const uint64_t *values;
    chunks chunks;
    struct chunk_tree free;
    uint64_t next_region, limit;
} state;

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->values = values;
    s->limit = (values[LIMIT] < d->limit ? values[LIMIT] : d->limit) / UNIT * UNIT;
    s->next_region = round_up(values[REGION] < s->limit ? values[REGION] : s->limit, UNIT);
    if (s->next_region == 0) s->next_region = UNIT;
    return s;
}

static void close_peer(void *self)
{
    state *s = self;
    chunks_release(&s->chunks);
    free(s);
}

static bool extend(state *s, uint64_t rounded)
{
    const uint64_t available = s->limit - s->driver->used;
    bool grown = false;
    if (rounded > available) return false;
    while (rounded > s->next_region) {
        s->next_region *= 2;
        grown = true;
    }
    const uint64_t bytes = s->next_region < available ? s->next_region : available / UNIT * UNIT;
    chunk *c = chunk_alloc(&s->chunks, s->driver, bytes, NULL);
    if (!c) return false;
    if (!grown && s->next_region < s->limit) s->next_region *= 2; /* more is never used, and it must not wrap */
    chunk_put(&s->free, c);
    return true;
}

static void empty(void *self)
{
    state *s = self;
    chunk_release_idle(&s->chunks, &s->free, s->driver);
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    (void)stream;
    state *s = self;
    const uint64_t rounded = round_up(bytes, UNIT);
    chunk *c = chunk_best(&s->free, rounded);
    if (!c && extend(s, rounded)) c = chunk_best(&s->free, rounded);
    if (!c && s->values[COLLECT]) {
        empty(s);
        if (extend(s, rounded)) c = chunk_best(&s->free, rounded);
    }
    if (!c) return false;
    const bool split = c->bytes >= 2 * rounded || c->bytes - rounded >= s->values[SLACK];
    chunk_take_front(&s->chunks, &s->free, c, split ? rounded : c->bytes);
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    chunk_give(&s->chunks, &s->free, block->node);
}

const peer peer_bfc = {
    .name = "bfc",
    .about = "TensorFlow's BFCAllocator with allow_growth: best fit, regions that double",
    .options = { { .name = "region",
                   .about = "size of the first region; the device's memory: no growth, TensorFlow's own default",
                   .least = UNIT,
                   .most = PEER_UNLIMITED,
                   .standard = UINT64_C(2) << 20,
                   .bytes = true },
                 { .name = "slack",
                   .about = "excess from which a chunk is split even if it is less than twice the size",
                   .most = PEER_UNLIMITED,
                   .standard = UINT64_C(128) << 20,
                   .bytes = true },
                 { .name = "collect",
                   .about = "1: regions without blocks are given back when memory is short",
                   .most = 1,
                   .standard = 1 },
                 { .name = "limit",
                   .about = "bytes that may be reserved",
                   .least = UNIT,
                   .most = PEER_UNLIMITED,
                   .standard = PEER_UNLIMITED,
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
};
