/*
 * gmlake: GMLake's virtual-memory stitching (ASPLOS 2024), from the paper and the project's README. Requests of 2 MiB
 * and more use handles of 2 MiB. A part is a run of handles with an address range of its own; a stitch is an address
 * range over several parts. A request takes, in this order: a free part or stitch of its size; the smallest larger free
 * part, cut in two, which leaves a stitch of the former size behind; if it is large enough for stitching, the largest
 * free parts that together suffice, the last one cut; these parts and a new one for the rest; a new part. A stitch is
 * free while all its parts are. When there are too many stitches, the least recently used one goes.
 *
 * Smaller requests share segments of 2 MiB by PyTorch's rules for small blocks: best fit per stream, merged on free.
 */
#include "grow.h"
#include "replay/peers/peer.h"
#include "replay/peers/segment.h"

#include <stdlib.h>

#define UNIT UINT64_C(512)
#define HANDLE (UINT64_C(2) << 20)

enum { FRAGMENT_LIMIT, STITCHES };

typedef struct stitch stitch;
typedef struct line line;

/* The owner of a chunk, whose neighbours were cut from the same piece; it is in the line's tree while free. */
typedef struct part {
    LIST_ENTRY(part) link; /* all parts of the line */
    chunk *chunk;
    uint64_t physical;
    stitch **over; /* the stitches that contain it */
    size_t over_count, over_capacity;
} part;

struct stitch {
    TAILQ_ENTRY(stitch) link; /* most recently used first */
    uint64_t address, bytes;
    part **parts; /* by address */
    size_t count, capacity;
    size_t busy; /* parts in use */
    bool taken;  /* a block uses the stitch itself, not only parts of it */
    bool own;    /* has its own address range, not that of a part that was cut */
};

struct line {
    struct chunk_tree free, small;
    LIST_HEAD(, part) parts;
    LIST_HEAD(, held) blocks;
    TAILQ_HEAD(stitch_list, stitch) stitches;
    size_t stitch_count;
    bool kept; /* of a private pool */
};

/* A block in use: exactly one of small, part and stitch. */
typedef struct held {
    LIST_ENTRY(held) link;
    line *line;
    uint64_t address;
    chunk *small;
    part *part;
    stitch *stitch;
} held;

typedef struct state {
    driver *driver;
    const uint64_t *values;
    chunks chunks;
    line **lines;
    size_t count, capacity;
} state;

static void *open_peer(driver *d, const uint64_t *values)
{
    state *s = grow_new(1, sizeof *s);
    s->driver = d;
    s->values = values;
    return s;
}

static line *line_of(state *s, uint32_t stream)
{
    while (s->count <= stream) {
        s->lines = grow_array(s->lines, s->count + 1, &s->capacity, sizeof(line *));
        line *l = s->lines[s->count++] = grow_new(1, sizeof *l);
        TAILQ_INIT(&l->stitches);
    }
    return s->lines[stream];
}

/* ---- parts and stitches ------------------------------------------------------------------------------------------ */

static void add_over(part *p, stitch *t)
{
    p->over = grow_array(p->over, p->over_count + 1, &p->over_capacity, sizeof(stitch *));
    p->over[p->over_count++] = t;
}

static void remove_over(part *p, const stitch *t)
{
    for (size_t i = 0; i < p->over_count; i++)
        if (p->over[i] == t) p->over[i--] = p->over[--p->over_count];
}

static void add_part(stitch *t, part *p, size_t at)
{
    t->parts = grow_array(t->parts, t->count + 1, &t->capacity, sizeof(part *));
    for (size_t i = t->count++; i > at; i--) t->parts[i] = t->parts[i - 1];
    t->parts[at] = p;
    add_over(p, t);
}

static void use_part(line *l, part *p)
{
    chunk_take(&l->free, p->chunk);
    for (size_t i = 0; i < p->over_count; i++) p->over[i]->busy++;
}

static void give_part(line *l, part *p)
{
    chunk_put(&l->free, p->chunk);
    for (size_t i = 0; i < p->over_count; i++) p->over[i]->busy--;
}

static void drop_stitch(state *s, line *l, stitch *t)
{
    if (t->own) {
        driver_unmap(s->driver, t->address, t->bytes);
        driver_unreserve(s->driver);
    }
    for (size_t i = 0; i < t->count; i++) remove_over(t->parts[i], t);
    TAILQ_REMOVE(&l->stitches, t, link);
    l->stitch_count--;
    free(t->parts);
    free(t);
}

static void drop_oldest(state *s, line *l)
{
    stitch *t = TAILQ_LAST(&l->stitches, stitch_list);
    while (t && l->stitch_count > s->values[STITCHES]) {
        stitch *before = TAILQ_PREV(t, stitch_list, link);
        if (!t->taken) drop_stitch(s, l, t);
        t = before;
    }
}

static stitch *new_stitch(line *l, uint64_t address, uint64_t bytes, bool own)
{
    stitch *t = grow_new(1, sizeof *t);
    t->address = address;
    t->bytes = bytes;
    t->own = own;
    TAILQ_INSERT_HEAD(&l->stitches, t, link);
    l->stitch_count++;
    return t;
}

static part *new_part(state *s, line *l, uint64_t bytes)
{
    uint64_t physical;
    if (!driver_create(s->driver, bytes, HANDLE, &physical)) return NULL;
    part *p = grow_new(1, sizeof *p);
    p->physical = physical;
    LIST_INSERT_HEAD(&l->parts, p, link);
    p->chunk = chunk_new(&s->chunks, driver_reserve(s->driver, bytes), bytes, p);
    driver_map_at(s->driver, p->chunk->address, bytes, HANDLE, physical);
    driver_access(s->driver, bytes, HANDLE);
    chunk_put(&l->free, p->chunk);
    return p;
}

/* Cuts a free part into two free ones. A stitch over both keeps the former size available. */
static void cut_part(state *s, line *l, part *p, uint64_t bytes)
{
    const uint64_t former = p->chunk->bytes;
    chunk_take(&l->free, p->chunk);
    part *rest = grow_new(1, sizeof *rest);
    rest->physical = p->physical + bytes;
    LIST_INSERT_HEAD(&l->parts, rest, link);
    rest->chunk = chunk_cut(&s->chunks, p->chunk, bytes);
    rest->chunk->owner = rest;
    for (size_t i = 0; i < p->over_count; i++) {
        stitch *t = p->over[i];
        size_t at = 0;
        while (t->parts[at] != p) at++;
        add_part(t, rest, at + 1);
    }
    stitch *t = new_stitch(l, p->chunk->address, former, false);
    add_part(t, p, 0);
    add_part(t, rest, 1);
    chunk_put(&l->free, p->chunk);
    chunk_put(&l->free, rest->chunk);
}

static void drop_part(state *s, line *l, part *p)
{
    chunk *c = p->chunk;
    while (p->over_count) drop_stitch(s, l, p->over[--p->over_count]);
    driver_unmap(s->driver, c->address, c->bytes);
    driver_destroy(s->driver, c->bytes, HANDLE);
    if (!c->before && !c->after) driver_unreserve(s->driver);
    if (c->before) c->before->after = c->after;
    if (c->after) c->after->before = c->before;
    c->before = c->after = NULL;
    chunk_take(&l->free, c);
    chunk_drop(&s->chunks, c);
    LIST_REMOVE(p, link);
    free(p->over);
    free(p);
}

static void empty_line(state *s, line *l)
{
    chunk *c;
    while ((c = chunk_best(&l->free, 0))) drop_part(s, l, c->owner);
    chunk_release_idle(&s->chunks, &l->small, s->driver);
}

static void empty(void *self)
{
    state *s = self;
    for (size_t i = 0; i < s->count; i++)
        if (!s->lines[i]->kept) empty_line(s, s->lines[i]);
}

static void keep_stream(void *self, uint32_t stream)
{
    line_of(self, stream)->kept = true;
}

static void empty_stream(void *self, uint32_t stream)
{
    empty_line(self, line_of(self, stream));
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static stitch *find_stitch(line *l, uint64_t bytes)
{
    stitch *t;
    TAILQ_FOREACH(t, &l->stitches, link)
        if (t->bytes == bytes && t->busy == 0) return t;
    return NULL;
}

static void use_stitch(line *l, stitch *t)
{
    for (size_t i = 0; i < t->count; i++) use_part(l, t->parts[i]);
    t->taken = true;
    TAILQ_REMOVE(&l->stitches, t, link);
    TAILQ_INSERT_HEAD(&l->stitches, t, link);
}

/* Stitches the largest free parts until they suffice, the last one cut to size, with a new part for what they lack.
 * NULL: the device lacks that much. */
static stitch *stitch_together(state *s, line *l, uint64_t bytes)
{
    size_t count = 0, capacity = 0;
    part **parts = NULL;
    uint64_t sum = 0;
    part *last = NULL;
    for (chunk *c = chunk_largest(&l->free); c && sum < bytes; c = chunk_previous(c)) {
        last = c->owner;
        parts = grow_array(parts, count + 1, &capacity, sizeof(part *));
        parts[count++] = last;
        sum += c->bytes;
    }
    if (last && sum > bytes) cut_part(s, l, last, last->chunk->bytes - (sum - bytes));
    if (sum < bytes) {
        last = new_part(s, l, bytes - sum);
        parts = grow_array(parts, count + 1, &capacity, sizeof(part *));
        parts[count++] = last;
    }

    stitch *t = NULL;
    if (last) {
        t = new_stitch(l, driver_reserve(s->driver, bytes), bytes, true);
        uint64_t address = t->address;
        for (size_t i = 0; i < count; i++) {
            const uint64_t length = parts[i]->chunk->bytes;
            driver_map_at(s->driver, address, length, HANDLE, parts[i]->physical);
            driver_access(s->driver, length, HANDLE);
            add_part(t, parts[i], i);
            address += length;
        }
    }
    free(parts);
    return t;
}

static bool take_large(state *s, line *l, uint64_t bytes, held *out)
{
    chunk *c = chunk_best(&l->free, bytes);
    if (!c || c->bytes > bytes) out->stitch = find_stitch(l, bytes);
    if (!out->stitch && !c && bytes >= s->values[FRAGMENT_LIMIT] && chunk_largest(&l->free))
        out->stitch = stitch_together(s, l, bytes);
    if (out->stitch) {
        use_stitch(l, out->stitch);
        out->address = out->stitch->address;
        return true;
    }
    if (c && c->bytes > bytes) cut_part(s, l, c->owner, bytes);
    out->part = c ? c->owner : new_part(s, l, bytes);
    if (!out->part) return false;
    use_part(l, out->part);
    out->address = out->part->chunk->address;
    return true;
}

static bool take_small(state *s, line *l, uint64_t bytes, held *out)
{
    chunk *c = chunk_best(&l->small, bytes);
    if (!c) {
        c = chunk_alloc(&s->chunks, s->driver, HANDLE, NULL);
        if (!c) return false;
        chunk_put(&l->small, c);
    }
    chunk_take_front(&s->chunks, &l->small, c, bytes);
    out->small = c;
    out->address = c->address;
    return true;
}

static bool alloc(void *self, uint64_t bytes, uint32_t stream, peer_block *out)
{
    state *s = self;
    line *l = line_of(s, stream);
    const bool large = bytes >= HANDLE;
    const uint64_t rounded = round_up(bytes, large ? HANDLE : UNIT);
    bool (*take)(state *, line *, uint64_t, held *) = large ? take_large : take_small;
    held h = { .line = l };
    bool good = take(s, l, rounded, &h);
    if (!good) {
        empty(s);
        good = take(s, l, rounded, &h);
    }
    if (!good) return false;
    drop_oldest(s, l);
    held *node = grow_new(1, sizeof *node);
    *node = h;
    LIST_INSERT_HEAD(&l->blocks, node, link);
    *out = (peer_block){ h.address, node };
    return true;
}

static void free_block(void *self, const peer_block *block, uint32_t stream)
{
    (void)stream;
    state *s = self;
    held *h = block->node;
    if (h->small) chunk_give(&s->chunks, &h->line->small, h->small);
    if (h->part) give_part(h->line, h->part);
    if (h->stitch) {
        for (size_t i = 0; i < h->stitch->count; i++) give_part(h->line, h->stitch->parts[i]);
        h->stitch->taken = false;
    }
    LIST_REMOVE(h, link);
    free(h);
}

static void close_peer(void *self)
{
    state *s = self;
    for (size_t i = 0; i < s->count; i++) {
        line *l = s->lines[i];
        for (held *h = LIST_FIRST(&l->blocks), *next; h; h = next) {
            next = LIST_NEXT(h, link);
            free(h);
        }
        for (stitch *t = TAILQ_FIRST(&l->stitches), *next; t; t = next) {
            next = TAILQ_NEXT(t, link);
            free(t->parts);
            free(t);
        }
        for (part *p = LIST_FIRST(&l->parts), *next; p; p = next) {
            next = LIST_NEXT(p, link);
            free(p->over);
            free(p);
        }
        free(l);
    }
    free(s->lines);
    chunks_release(&s->chunks);
    free(s);
}

const peer peer_gmlake = {
    .name = "gmlake",
    .about = "GMLake: free parts stitched together by mapping their handles again",
    .options = { { .name = "fragment-limit",
                   .about = "smallest request for which parts are stitched (fragLimit)",
                   .least = HANDLE,
                   .most = PEER_UNLIMITED,
                   .standard = UINT64_C(512) << 20,
                   .bytes = true },
                 { .name = "stitches", .about = "stitches kept per stream", .most = 100000, .standard = 256 } },
    .open = open_peer,
    .close = close_peer,
    .alloc = alloc,
    .free = free_block,
    .empty = empty,
    .keep_stream = keep_stream,
    .empty_stream = empty_stream,
};
