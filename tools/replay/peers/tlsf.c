/*
 * tlsf: two-level segregated fit (Masmano, Ripoll, Crespo, Real, 2004). Free lists are indexed by the power of two of a
 * chunk's size and one of 32 linear steps within it; each size below 32 units has a list. A request is rounded up to
 * the next step, so that any chunk of the first non-empty list at or above it fits. The latest chunk of that list is
 * taken and cut at its front. Frees are merged with both neighbours at once.
 *
 * TLSF works inside memory that it is given. Here it comes as in the Vulkan Memory Allocator: in blocks of `block`
 * bytes. The first ones are an eighth, a quarter and a half of that, as long as that is twice the request; blocks are
 * also smaller when the device lacks memory. Requests above half a block get memory of their own. One empty block is
 * kept.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(256)

enum { BLOCK };
enum { STEP_BITS = 5, STEPS = 1 << STEP_BITS, POWERS = 64 - STEP_BITS };
enum { SHIFT_MOST = 3 }; /* a block has at least an eighth of the preferred size */

typedef struct state {
    driver *driver;
    uint64_t block;
    chunks chunks;
    struct chunk_list_head lists[POWERS][STEPS]; /* latest first */
    uint64_t filled;                             /* bits: powers with a chunk */
    uint32_t steps[POWERS];                      /* bits: steps with a chunk, by power */
    uint64_t largest;                            /* the largest block so far */
    chunk *spare;                                /* an empty block; NULL: none */
} state;

typedef struct place {
    unsigned power, step;
} place;

static place place_of(uint64_t units)
{
    if (units < STEPS) return (place){ 0, (unsigned)units };
    const unsigned power = 63 - (unsigned)__builtin_clzll(units);
    return (place){ power - STEP_BITS + 1, (unsigned)(units >> (power - STEP_BITS)) - STEPS };
}

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->block = round_up(values[BLOCK], UNIT << SHIFT_MOST);
    return s;
}

static void close_peer(void *self)
{
    state *s = self;
    chunks_release(&s->chunks);
    free(s);
}

static void insert(state *s, chunk *c)
{
    const place p = place_of(c->bytes / UNIT);
    LIST_INSERT_HEAD(&s->lists[p.power][p.step], c, list);
    s->filled |= UINT64_C(1) << p.power;
    s->steps[p.power] |= UINT32_C(1) << p.step;
    c->free = true;
}

static void withdraw(state *s, chunk *c)
{
    const place p = place_of(c->bytes / UNIT);
    LIST_REMOVE(c, list);
    if (LIST_EMPTY(&s->lists[p.power][p.step])) s->steps[p.power] &= ~(UINT32_C(1) << p.step);
    if (s->steps[p.power] == 0) s->filled &= ~(UINT64_C(1) << p.power);
    c->free = false;
    if (c == s->spare) s->spare = NULL;
}

static chunk *find(state *s, uint64_t units)
{
    if (units >= STEPS) {
        /* Round up to the next step, so that any chunk of the list fits. */
        const unsigned power = 63 - (unsigned)__builtin_clzll(units);
        units += (UINT64_C(1) << (power - STEP_BITS)) - 1;
    }
    place p = place_of(units);
    const uint32_t steps = s->steps[p.power] & (UINT32_MAX << p.step);
    if (steps == 0) {
        const uint64_t powers = s->filled & (UINT64_MAX << p.power << 1);
        if (powers == 0) return NULL;
        p.power = (unsigned)__builtin_ctzll(powers);
        p.step = (unsigned)__builtin_ctz(s->steps[p.power]);
    } else {
        p.step = (unsigned)__builtin_ctz(steps);
    }
    return LIST_FIRST(&s->lists[p.power][p.step]);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void empty(void *self)
{
    state *s = self;
    chunk *c = s->spare;
    if (!c) return;
    withdraw(s, c);
    chunk_free(&s->chunks, s->driver, c);
}

/* Memory for this request alone, not a block; marked by its owner. */
static chunk *make_own(state *s, uint64_t bytes)
{
    return chunk_alloc(&s->chunks, s->driver, bytes, s);
}

/* A new block with room for the request, or memory for it alone; NULL: the device lacks that much. */
static chunk *grow(state *s, uint64_t bytes)
{
    if (bytes > s->block / 2) return make_own(s, bytes);
    unsigned shift = 0;
    while (shift < SHIFT_MOST && s->block >> (shift + 1) > s->largest && s->block >> (shift + 1) >= 2 * bytes) shift++;
    chunk *c = NULL;
    for (; !c && shift <= SHIFT_MOST && s->block >> shift >= bytes; shift++) {
        c = chunk_alloc(&s->chunks, s->driver, s->block >> shift, NULL);
        if (c && c->bytes > s->largest) s->largest = c->bytes;
    }
    return c ? c : make_own(s, bytes);
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    (void)stream;
    state *s = self;
    const uint64_t rounded = round_up(bytes, UNIT);
    chunk *c = find(s, rounded / UNIT);
    if (c) {
        withdraw(s, c);
    } else {
        c = grow(s, rounded);
        if (!c && s->spare) {
            empty(s);
            c = grow(s, rounded);
        }
        if (!c) return false;
    }
    if (c->bytes > rounded) insert(s, chunk_cut(&s->chunks, c, rounded));
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    chunk *c = block->node;
    if (c->owner) {
        chunk_free(&s->chunks, s->driver, c);
        return;
    }
    if (c->after && c->after->free) {
        withdraw(s, c->after);
        chunk_swallow(&s->chunks, c);
    }
    if (c->before && c->before->free) {
        c = c->before;
        withdraw(s, c);
        chunk_swallow(&s->chunks, c);
    }
    const bool whole = !c->before && !c->after;
    if (whole && s->spare) {
        chunk_free(&s->chunks, s->driver, c);
        return;
    }
    insert(s, c);
    if (whole) s->spare = c;
}

const peer peer_tlsf = {
    .name = "tlsf",
    .about = "two-level segregated fit, in blocks as the Vulkan Memory Allocator takes them",
    .options = { { .name = "block",
                   .about = "preferred size of a block; larger requests than half of it get memory of their own",
                   .least = UINT64_C(1) << 20,
                   .most = UINT64_C(1) << 40,
                   .standard = UINT64_C(256) << 20,
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .empty = empty,
};
