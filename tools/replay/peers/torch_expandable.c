/*
 * torch-expandable: PyTorch's allocator with expandable_segments:True.
 *
 * A line is a set of requests that share blocks: a stream's small ones (up to 1 MiB, pages of 2 MiB) or its large ones
 * (pages of 20 MiB). It has one address range, of 9/8 of the device's memory, and another only when that is used up.
 * Freed blocks are merged with their neighbours. Pages are mapped where they are missing and stay mapped until memory
 * runs out.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(512)
#define SMALL_MOST (UINT64_C(1) << 20)
#define PAGE_LEAST (UINT64_C(2) << 20) /* the driver's granularity; pages are multiples of it */
#define PAGE_MOST (UINT64_C(1) << 30)

enum { SMALL_PAGE, LARGE_PAGE, MAX_SPLIT, NON_SPLIT_ROUNDING };

typedef struct line line;

typedef struct segment {
    struct segment *next;
    line *line;
    uint64_t base, bytes;
} segment;

struct line {
    struct chunk_tree mapped, unmapped; /* free chunks */
    segment *segments;
    uint64_t page;
    bool kept; /* of a private pool */
};

typedef struct state {
    driver *driver;
    const uint64_t *values;
    line **lines; /* two per stream; NULL until used */
    size_t count, capacity;
    chunks chunks;
    uint64_t later; /* blocks that another stream still uses */
} state;

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->values = values;
    return s;
}

static void drop_segment(state *s, segment *g, chunk *c)
{
    segment **at = &g->line->segments;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    driver_unreserve(s->driver);
    chunk_drop(&s->chunks, c);
    free(g);
}

static line *line_of(state *s, uint32_t stream, bool large)
{
    size_t index = 2 * (size_t)stream + large;
    if (index >= s->count) {
        s->lines = grow_array(s->lines, index + 1, &s->capacity, sizeof *s->lines);
        while (s->count <= index) s->lines[s->count++] = NULL;
    }
    if (!s->lines[index]) {
        s->lines[index] = grow_new(1, sizeof **s->lines);
        s->lines[index]->page = round_up(s->values[large ? LARGE_PAGE : SMALL_PAGE], PAGE_LEAST);
    }
    return s->lines[index];
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Maps enough pages at the beginning of an unmapped chunk. Returns the free chunk of at least that size, merged with
 * its neighbours. NULL: the device lacks that much. */
static chunk *map_pages(state *s, line *l, chunk *c, uint64_t bytes)
{
    uint64_t physical, mapped = round_up(bytes, l->page);
    if (!driver_create(s->driver, mapped, l->page, &physical)) return NULL;
    driver_map_at(s->driver, c->address, mapped, l->page, physical);
    driver_access(s->driver, mapped, l->page);

    chunk_take_front(&s->chunks, &l->unmapped, c, mapped);
    c->unmapped = false;
    return chunk_give(&s->chunks, &l->mapped, c);
}

/* Unmaps the whole pages of a free chunk; remainders at its ends stay free. */
static void unmap_pages(state *s, line *l, chunk *c)
{
    segment *g = c->owner;
    uint64_t begin = round_up(c->address - g->base, l->page) + g->base;
    uint64_t end = (c->address + c->bytes - g->base) / l->page * l->page + g->base;
    if (begin >= end) return;

    driver_call(s->driver, WEIR_BACKEND_stream_synchronize);
    driver_unmap(s->driver, begin, end - begin);
    driver_destroy(s->driver, end - begin, l->page);

    chunk_take(&l->mapped, c);
    if (begin > c->address) {
        chunk *front = c;
        c = chunk_cut(&s->chunks, front, begin - front->address);
        chunk_put(&l->mapped, front);
    }
    if (end < c->address + c->bytes) chunk_put(&l->mapped, chunk_cut(&s->chunks, c, end - c->address));
    c->unmapped = true;
    c = chunk_give(&s->chunks, &l->unmapped, c);
    if (c->bytes < g->bytes) return;
    chunk_take(&l->unmapped, c);
    drop_segment(s, g, c);
}

static void empty_line(state *s, size_t index)
{
    line *l = index < s->count ? s->lines[index] : NULL;
    for (chunk *c = l ? chunk_best(&l->mapped, 0) : NULL, *next; c; c = next) {
        next = chunk_next(c); /* remainders are smaller: they come before, and have no whole page */
        unmap_pages(s, l, c);
    }
}

static void empty(void *self)
{
    state *s = self;
    for (size_t i = 0; i < s->count; i++)
        if (s->lines[i] && !s->lines[i]->kept) empty_line(s, i);
}

static void keep_stream(void *self, uint32_t stream)
{
    for (int large = 0; large < 2; large++) line_of(self, stream, large)->kept = true;
}

static void empty_stream(void *self, uint32_t stream)
{
    for (size_t large = 0; large < 2; large++) empty_line(self, 2 * (size_t)stream + large);
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* How large the free chunk could become by mapping. */
static uint64_t potential(const chunk *c)
{
    return c->bytes + (c->after && c->after->unmapped ? c->after->bytes : 0);
}

/* What max_split_size keeps whole serves neither smaller requests nor those much smaller than itself. */
static bool is_spared(const state *s, const chunk *c, uint64_t bytes)
{
    const uint64_t oversize = s->values[MAX_SPLIT];
    if (oversize == 0) return false;
    return bytes < oversize ? c->bytes >= oversize : c->bytes >= bytes + s->values[NON_SPLIT_ROUNDING];
}

/* Best fit by potential size, so that a chunk that can grow is the last resort. NULL: that must not serve. */
static chunk *find(const state *s, line *l, uint64_t bytes)
{
    chunk *best = chunk_best(&l->mapped, bytes);
    for (chunk *c = best ? chunk_next(best) : NULL; c && potential(c) < potential(best); c = chunk_next(c)) best = c;
    return best && is_spared(s, best, bytes) ? NULL : best;
}

/* Whether contiguous free chunks from `c` on, mapped or not, have `bytes` in all. */
static bool has_room(const chunk *c, uint64_t bytes)
{
    uint64_t sum = 0;
    for (; c && c->free && sum < bytes; c = c->after) sum += c->bytes;
    return sum >= bytes;
}

/* Where mapping makes room: at the lowest fitting unmapped chunk, or the free chunk before it; else in a new
 * segment. */
static chunk *find_room(state *s, line *l, uint64_t bytes)
{
    chunk *found = NULL;
    for (chunk *c = chunk_best(&l->unmapped, 0); c; c = chunk_next(c)) {
        chunk *first = c->before && c->before->free ? c->before : c;
        if (has_room(first, bytes) && (!found || first->address < found->address)) found = first;
    }
    if (found) return found;

    segment *g = grow_new(1, sizeof *g);
    uint64_t wanted = s->driver->limit / 8 * 9;
    g->line = l;
    g->next = l->segments;
    l->segments = g;
    g->bytes = round_up(wanted > bytes ? wanted : bytes, l->page);
    g->base = driver_reserve(s->driver, g->bytes);
    found = chunk_new(&s->chunks, g->base, g->bytes, g);
    found->unmapped = true;
    chunk_put(&l->unmapped, found);
    return found;
}

static chunk *grow(state *s, line *l, uint64_t bytes)
{
    chunk *c = find_room(s, l, bytes);
    while (c && (c->unmapped || c->bytes < bytes)) {
        chunk *missing = c->unmapped ? c : c->after;
        uint64_t wanted = c->unmapped ? bytes : bytes - c->bytes;
        c = map_pages(s, l, missing, wanted < missing->bytes ? wanted : missing->bytes);
    }
    return c;
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    uint64_t rounded = round_up(bytes, UNIT);
    line *l = line_of(s, stream, rounded > SMALL_MOST);
    if (s->later) driver_call(s->driver, WEIR_BACKEND_event_query);

    chunk *c = find(s, l, rounded);
    if (!c) c = grow(s, l, rounded);
    if (!c) {
        empty(s);
        c = grow(s, l, rounded);
    }
    if (!c) return false;

    chunk_take_front(&s->chunks, &l->mapped, c, rounded);
    *out = (peer_block){ c->address, c };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    chunk *c = block->node;
    const segment *g = c->owner;
    chunk_give(&s->chunks, &g->line->mapped, c);
}

static void begin_use(void *self, const peer_block *block, uint32_t stream)
{
    (void)block;
    (void)stream;
    state *s = self;
    driver_call(s->driver, WEIR_BACKEND_event_record);
    s->later++;
}

static void end_use(void *self, const peer_block *block, uint32_t stream)
{
    state *s = self;
    s->later--;
    free_block(self, block, stream);
}

static void close_peer(void *self)
{
    state *s = self;
    for (size_t i = 0; i < s->count; i++) {
        line *l = s->lines[i];
        if (!l) continue;
        while (l->segments) {
            segment *g = l->segments;
            l->segments = g->next;
            free(g);
        }
        free(l);
    }
    free(s->lines);
    chunks_release(&s->chunks);
    free(s);
}

const peer peer_torch_expandable = {
    .name = "torch-expandable",
    .about = "PyTorch with expandable_segments:True",
    .options = { { .name = "small-page",
                   .about = "handles for requests up to 1 MiB",
                   .least = PAGE_LEAST,
                   .most = PAGE_MOST,
                   .standard = UINT64_C(2) << 20,
                   .bytes = true },
                 { .name = "page",
                   .about = "handles for larger requests (large_segment_size_mb)",
                   .least = PAGE_LEAST,
                   .most = PAGE_MOST,
                   .standard = UINT64_C(20) << 20,
                   .bytes = true,
                   .recorded = PEER_LARGE_SEGMENT },
                 { .name = "max-split",
                   .about = "blocks of at least this size are never split (max_split_size_mb); 0 splits all",
                   .most = PEER_UNLIMITED,
                   .bytes = true,
                   .recorded = PEER_MAX_SPLIT },
                 { .name = "non-split-rounding",
                   .about = "such a block serves requests smaller by less than this (max_non_split_rounding_mb)",
                   .most = PEER_UNLIMITED,
                   .standard = UINT64_C(20) << 20,
                   .bytes = true,
                   .recorded = PEER_NON_SPLIT_ROUNDING } },
    .torch = true,
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .begin_use = begin_use,
    .end_use = end_use,
    .empty = empty,
    .keep_stream = keep_stream,
    .empty_stream = empty_stream,
};
