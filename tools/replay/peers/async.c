/*
 * async: the driver's stream-ordered pool (cudaMallocAsync). Its rules are not published; these were inferred from the
 * addresses and reserved bytes that an H200's driver gave for recorded traces. docs/policies.md says how near they
 * come.
 *
 * There is one address range, which only grows; its free parts are holes. Physical memory comes in pages of 32 MiB,
 * each mapped somewhere in the range. Pages missing under a new block are taken from under holes, and only then from
 * the device. A hole is recent at first: kept per stream, and merged only with recent holes of that stream. When
 * neither the stream's recent holes nor the old ones can serve, all recent holes become old and are merged with old
 * ones.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>
#include <string.h>

#define UNIT UINT64_C(512)
#define PAGE_LEAST (UINT64_C(2) << 20) /* the driver's granularity */
#define ADDRESSES (UINT64_C(1) << 55)
/* Warm calls on an H200, 2026-11-20: 350 to 630 and 450 to 730 ns. */
#define ALLOC_NS 490
#define FREE_NS 590

enum { PAGE, THRESHOLD };

typedef struct state {
    driver *driver;
    uint64_t page, threshold;
    chunks chunks;
    chunk_lists recent;             /* per stream; a recent hole's owner is its tree, an old hole has none */
    struct chunk_tree backed, bare; /* old holes: those with all their memory, and those that lack some */
    chunk *last;                    /* of the range; free or not */
    uint64_t base;                  /* of the range, which consists of whole pages */
    uint64_t *pages;                /* 1 + physical address of each page of the range; 0: not backed */
    size_t page_capacity;
    uint64_t *spare; /* pages mapped nowhere at present */
    size_t spare_count, spare_capacity;
    uint64_t serial; /* numbers holes by age */
} state;

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->page = round_up(values[PAGE], PAGE_LEAST);
    s->threshold = values[THRESHOLD];
    s->base = driver_reserve(d, ADDRESSES);
    return s;
}

static void close_peer(void *self)
{
    state *s = self;
    chunks_release(&s->chunks);
    chunk_lists_release(&s->recent);
    free(s->pages);
    free(s->spare);
    free(s);
}

/* ---- holes ------------------------------------------------------------------------------------------------------- */

static uint64_t page_of(const state *s, uint64_t address)
{
    return (address - s->base) / s->page;
}

static bool is_backed(const state *s, const chunk *c)
{
    uint64_t last = page_of(s, c->address + c->bytes - 1);
    for (uint64_t p = page_of(s, c->address); p <= last; p++)
        if (!s->pages[p]) return false;
    return true;
}

static struct chunk_tree *tree_of(state *s, const chunk *hole)
{
    if (hole->owner) return hole->owner;
    return hole->unmapped ? &s->bare : &s->backed;
}

/* Adds a hole whose owner is set, as recent or as old. */
static void put(state *s, chunk *hole)
{
    hole->unmapped = !hole->owner && !is_backed(s, hole);
    chunk_put_ranked(tree_of(s, hole), hole, ++s->serial);
}

static void take(state *s, chunk *hole)
{
    chunk_take(tree_of(s, hole), hole);
    hole->unmapped = false;
}

static void swallow(state *s, chunk *c)
{
    if (c->after == s->last) s->last = c;
    chunk_swallow(&s->chunks, c);
}

/* Merges a hole with adjacent ones of the same owner, and adds the result. */
static void put_merged(state *s, chunk *c)
{
    chunk *next = c->after, *before = c->before;
    if (next && next->free && next->owner == c->owner) {
        take(s, next);
        swallow(s, c);
    }
    if (before && before->free && before->owner == c->owner) {
        take(s, before);
        swallow(s, before);
        c = before;
    }
    put(s, c);
}

static int latest_first(const void *left, const void *right)
{
    const chunk *const *a = left, *const *b = right;
    return ((*a)->rank < (*b)->rank) - ((*a)->rank > (*b)->rank);
}

/* The holes of a tree, latest first; the caller frees the array. */
static chunk **by_age(struct chunk_tree *tree, size_t *count)
{
    chunk **holes = NULL;
    size_t capacity = 0;
    *count = 0;
    for (chunk *c = chunk_best(tree, 0); c; c = chunk_next(c)) {
        holes = grow_array(holes, *count + 1, &capacity, sizeof(chunk *));
        holes[(*count)++] = c;
    }
    if (*count) qsort(holes, *count, sizeof(chunk *), latest_first);
    return holes;
}

static void make_old(state *s)
{
    for (size_t i = 0; i < s->recent.count; i++) {
        size_t count;
        chunk **holes = by_age(s->recent.at[i], &count);
        for (size_t k = 0; k < count; k++) {
            take(s, holes[k]);
            holes[k]->owner = NULL;
            put_merged(s, holes[k]);
        }
        free(holes);
    }
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Makes the memory of at most `wanted` whole pages of the hole, the last ones first, spare. */
static uint64_t strip_hole(state *s, chunk *hole, uint64_t wanted)
{
    const uint64_t first = page_of(s, hole->address + s->page - 1), rank = hole->rank;
    uint64_t got = 0;
    for (uint64_t p = page_of(s, hole->address + hole->bytes); p > first && got < wanted; p--) {
        if (!s->pages[p - 1]) continue;
        s->spare = grow_array(s->spare, s->spare_count + 1, &s->spare_capacity, sizeof *s->spare);
        s->spare[s->spare_count++] = s->pages[p - 1];
        s->pages[p - 1] = 0;
        driver_unmap(s->driver, s->base + (p - 1) * s->page, s->page);
        got++;
    }
    if (!got) return 0;
    take(s, hole);
    hole->unmapped = !hole->owner;
    chunk_put_ranked(tree_of(s, hole), hole, rank);
    return got;
}

/* Strips the largest holes first; of equal ones, the first. */
static uint64_t strip_tree(state *s, struct chunk_tree *tree, uint64_t wanted)
{
    uint64_t got = 0;
    chunk *c = chunk_largest(tree);
    if (c) c = chunk_best(tree, c->bytes);
    while (c && c->bytes >= s->page && got < wanted) {
        chunk *following = chunk_next(c);
        if (!following || following->bytes > c->bytes) {
            following = chunk_previous(chunk_best(tree, c->bytes));
            if (following) following = chunk_best(tree, following->bytes);
        }
        got += strip_hole(s, c, wanted - got);
        c = following;
    }
    return got;
}

static void strip(state *s, uint64_t wanted)
{
    wanted -= strip_tree(s, &s->backed, wanted);
    wanted -= strip_tree(s, &s->bare, wanted);
    for (size_t i = 0; i < s->recent.count; i++) wanted -= strip_tree(s, s->recent.at[i], wanted);
}

/* Backs every page of the chunk, which is in no tree, with memory. */
static bool back(state *s, const chunk *c)
{
    const uint64_t page = s->page, first = page_of(s, c->address), end = page_of(s, c->address + c->bytes - 1) + 1;
    uint64_t missing = 0;
    for (uint64_t p = first; p < end; p++) missing += !s->pages[p];
    if (missing > s->spare_count) strip(s, missing - s->spare_count);
    for (uint64_t p = first; p < end; p++) {
        if (s->pages[p]) continue;
        uint64_t physical;
        if (s->spare_count) {
            physical = s->spare[--s->spare_count];
        } else {
            if (!driver_create(s->driver, page, page, &physical)) return false;
            physical++;
        }
        s->pages[p] = physical;
        driver_map_at(s->driver, s->base + p * page, page, page, physical - 1);
        driver_access(s->driver, page, page);
    }
    return true;
}

static void trim(state *s, uint64_t keep)
{
    make_old(s);
    if (s->driver->used > keep) strip(s, (s->driver->used - keep + s->page - 1) / s->page);
    for (; s->spare_count; s->spare_count--) driver_destroy(s->driver, s->page, s->page);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* The best fit among old holes, except the one at the end of the range, which is the last resort. */
static chunk *find_old(state *s, struct chunk_tree *tree, uint64_t bytes)
{
    chunk *c = chunk_best(tree, bytes);
    while (c && c == s->last) c = chunk_next(c);
    return c;
}

/* The hole at the end of the range, made long enough. */
static chunk *extend(state *s, uint64_t bytes)
{
    chunk *c = s->last;
    if (c && c->free) {
        take(s, c);
    } else {
        c = chunk_new(&s->chunks, c ? c->address + c->bytes : s->base, 0, NULL);
        c->before = s->last;
        if (c->before) c->before->after = c;
        s->last = c;
    }
    if (c->bytes < bytes) {
        const uint64_t end = s->base + round_up(c->address + bytes - s->base, s->page);
        const size_t had = s->page_capacity;
        s->pages = grow_array(s->pages, (size_t)page_of(s, end), &s->page_capacity, sizeof *s->pages);
        if (s->page_capacity > had) memset(s->pages + had, 0, (s->page_capacity - had) * sizeof *s->pages);
        c->bytes = end - c->address;
    }
    return c;
}

static chunk *find(state *s, uint64_t bytes, uint32_t stream)
{
    chunk *c = chunk_best(chunk_list(&s->recent, stream), bytes);
    if (!c) c = find_old(s, &s->backed, bytes);
    if (!c) {
        make_old(s);
        c = find_old(s, &s->backed, bytes);
    }
    if (!c) c = find_old(s, &s->bare, bytes);
    if (!c) return extend(s, bytes);
    take(s, c);
    return c;
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    const uint64_t rounded = round_up(bytes, UNIT);
    driver_spend(s->driver, ALLOC_NS);
    chunk *c = find(s, rounded, stream), *rest = NULL;
    if (c->bytes > rounded) {
        rest = chunk_cut(&s->chunks, c, rounded);
        if (s->last == c) s->last = rest;
    }
    const bool good = back(s, c);
    if (rest) put(s, rest);
    if (!good) {
        c->owner = NULL;
        put_merged(s, c);
        return false;
    }
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    state *s = self;
    chunk *c = block->node;
    driver_spend(s->driver, FREE_NS);
    c->owner = chunk_list(&s->recent, stream);
    put_merged(s, c);
    if (s->driver->used > s->threshold) trim(s, s->threshold);
}

static void empty(void *self)
{
    trim(self, 0);
}

const peer peer_async = {
    .name = "async",
    .about = "cudaMallocAsync: the driver's own pool, as far as it can be inferred",
    .options = { { .name = "page",
                   .about = "unit in which physical memory is taken and moved",
                   .least = PAGE_LEAST,
                   .most = UINT64_C(1) << 30,
                   .standard = UINT64_C(32) << 20,
                   .bytes = true },
                 { .name = "threshold",
                   .about = "reserved memory beyond this is given back at every free (cudaMemPoolAttrReleaseThreshold)",
                   .most = PEER_UNLIMITED,
                   .standard = PEER_UNLIMITED,
                   .bytes = true } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .empty = empty,
};
