/*
 * ggml: the legacy pool of ggml's CUDA back end (ggml_cuda_pool_leg), used without virtual memory. It keeps up to 256
 * buffers per stream. A request gets the smallest buffer that fits, whole, else a cudaMalloc of 5 % more than asked
 * for. ggml's other pool, a stack, takes frees in reverse order only, so recorded jobs cannot be played on it.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(256)

enum { HEADROOM, BUFFERS };

typedef struct state {
    driver *driver;
    const uint64_t *values;
    chunks chunks;
    chunk_lists pools; /* per stream; a buffer's owner is its pool */
    uint64_t *kept;    /* buffers in each pool */
    size_t kept_count, kept_capacity;
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
    chunk_lists_release(&s->pools);
    chunks_release(&s->chunks);
    free(s->kept);
    free(s);
}

static uint64_t *kept_in(state *s, uint32_t stream)
{
    s->kept = grow_array(s->kept, (size_t)stream + 1, &s->kept_capacity, sizeof *s->kept);
    while (s->kept_count <= stream) s->kept[s->kept_count++] = 0;
    return &s->kept[stream];
}

static void empty(void *self)
{
    state *s = self;
    for (size_t i = 0; i < s->pools.count; i++) chunk_release_idle(&s->chunks, s->pools.at[i], s->driver);
    for (size_t i = 0; i < s->kept_count; i++) s->kept[i] = 0;
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    struct chunk_tree *pool = chunk_list(&s->pools, stream);
    chunk *c = chunk_best(pool, bytes);
    if (c) {
        chunk_take(pool, c);
        --*kept_in(s, stream);
    } else {
        const uint64_t percent = s->values[HEADROOM];
        const uint64_t wanted = round_up(bytes + bytes / 100 * percent + bytes % 100 * percent / 100, UNIT);
        c = chunk_alloc(&s->chunks, s->driver, wanted, pool);
        if (!c) {
            empty(s);
            c = chunk_alloc(&s->chunks, s->driver, wanted, pool);
        }
        if (!c) return false;
    }
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    state *s = self;
    chunk *c = block->node;
    uint64_t *kept = kept_in(s, stream);
    if (*kept == s->values[BUFFERS]) {
        chunk_free(&s->chunks, s->driver, c);
        return;
    }
    ++*kept;
    chunk_put(c->owner, c);
}

const peer peer_ggml = {
    .name = "ggml",
    .about = "ggml's legacy CUDA pool: up to 256 whole buffers per stream, 5 % headroom",
    .options = { { .name = "headroom", .about = "percent that a new buffer is larger", .most = 100, .standard = 5 },
                 { .name = "buffers", .about = "kept per stream", .most = 65536, .standard = 256 } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .empty = empty,
};
