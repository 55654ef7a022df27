#include "pool/plan/place_guests.h"

#include "base/meta.h"

#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    uint32_t life, item;
} candidate;

typedef struct sharing {
    wr_guest_item *items;
    uint32_t count; /* of items, and of steps */
    uint32_t streams;
    wr_place_limit limit;
    int64_t *load;         /* live bytes at each step; one entry more */
    size_t leaves;         /* of a tree over the steps, whose node 1 is the root: of what is not lent to one guest, */
    int64_t *most;         /* the most live bytes at any step below each node, */
    int64_t *added;        /* and those that are live at all of these */
    int64_t *room;         /* what each stream has to itself at most */
    wr_item *placed;       /* items at one stream's addresses */
    candidate *candidates; /* of one stream */
} sharing;

enum { ALL = UINT32_MAX };

static weir_status init(sharing *s)
{
    void *memory = NULL;
    const size_t each = sizeof(int64_t) + sizeof(wr_item) + sizeof(candidate), steps = s->count + (size_t)1;
    for (s->leaves = 1; s->leaves < s->count;) s->leaves *= 2;
    WR_TRY(wr_meta_alloc(steps * each + (s->streams + 4 * s->leaves) * sizeof(int64_t), "streams that share", &memory));
    s->load = memory;
    s->room = s->load + steps;
    s->most = s->room + s->streams;
    s->added = s->most + 2 * s->leaves;
    s->placed = (wr_item *)(void *)(s->added + 2 * s->leaves);
    s->candidates = (candidate *)(void *)(s->placed + steps);
    return WEIR_OK;
}

static void find_load(sharing *s, uint32_t stream)
{
    memset(s->load, 0, (s->count + (size_t)1) * sizeof *s->load);
    for (uint32_t i = 0; i < s->count; i++) {
        const wr_item *item = &s->items[i].item;
        if (stream != ALL && s->items[i].stream != stream) continue;
        s->load[item->start] += (int64_t)item->bytes;
        s->load[item->end] -= (int64_t)item->bytes;
        if (item->end <= item->start) s->load[0] += (int64_t)item->bytes;
    }
    for (uint32_t i = 1; i < s->count; i++) s->load[i] += s->load[i - 1];
}

static uint32_t fullest(const sharing *s)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < s->count; i++)
        if (s->load[i] > s->load[most]) most = i;
    return most;
}

/* The stream with the largest peak is the host. The others get room for what they hold when most is live in all. */
static uint32_t give_room(sharing *s, uint64_t *alone)
{
    uint32_t host = 0;
    int64_t highest = -1;
    find_load(s, ALL);
    const uint32_t moment = fullest(s);
    for (uint32_t stream = 0; stream < s->streams; stream++) {
        find_load(s, stream);
        s->room[stream] = s->load[moment];
        const int64_t peak = s->load[fullest(s)];
        alone[stream] = (uint64_t)peak;
        if (peak <= highest) continue;
        highest = peak;
        host = stream;
    }
    return host;
}

static int by_life(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->life != b->life) return a->life > b->life ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

static uint32_t list_candidates(sharing *s, uint32_t stream)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const wr_guest_item *g = &s->items[i];
        if (g->stream == stream) s->candidates[count++] = (candidate){ wr_item_life(&g->item, s->count), i };
    }
    if (count) qsort(s->candidates, count, sizeof *s->candidates, by_life);
    return count;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The most that lives in steps [from, to) of those below the node, which begin with `first`. */
static int64_t most_below(const sharing *s, size_t node, size_t first, size_t width, size_t from, size_t to)
{
    if (to <= first || first + width <= from) return 0;
    if (from <= first && first + width <= to) return s->most[node];
    const size_t half = width / 2;
    return s->added[node] + larger(most_below(s, 2 * node, first, half, from, to),
                                   most_below(s, 2 * node + 1, first + half, half, from, to));
}

static void add_below(sharing *s, size_t node, size_t first, size_t width, size_t from, size_t to, int64_t bytes)
{
    if (to <= first || first + width <= from) return;
    if (from <= first && first + width <= to) {
        s->added[node] += bytes;
        s->most[node] += bytes;
        return;
    }
    add_below(s, 2 * node, first, width / 2, from, to, bytes);
    add_below(s, 2 * node + 1, first + width / 2, width / 2, from, to, bytes);
    s->most[node] = s->added[node] + larger(s->most[2 * node], s->most[2 * node + 1]);
}

static bool wraps(const wr_item *item)
{
    return item->end <= item->start;
}

static bool has_room(const sharing *s, const wr_item *item, int64_t room)
{
    int64_t most = most_below(s, 1, 0, s->leaves, item->start, wraps(item) ? s->count : item->end);
    if (wraps(item)) most = larger(most, most_below(s, 1, 0, s->leaves, 0, item->end));
    return most + (int64_t)item->bytes <= room;
}

static void keep(sharing *s, const wr_item *item)
{
    add_below(s, 1, 0, s->leaves, item->start, wraps(item) ? s->count : item->end, (int64_t)item->bytes);
    if (wraps(item)) add_below(s, 1, 0, s->leaves, 0, item->end, (int64_t)item->bytes);
}

/* The longest-lived get the guest's own room: what is lent is soon given back. */
static void lend(sharing *s, uint32_t guest)
{
    const uint32_t count = list_candidates(s, guest);
    memset(s->most, 0, 4 * s->leaves * sizeof *s->most);
    for (uint32_t k = 0; k < count; k++) {
        wr_guest_item *g = &s->items[s->candidates[k].item];
        g->lent = !has_room(s, &g->item, s->room[guest]);
        if (!g->lent) keep(s, &g->item);
    }
}

static weir_status place(sharing *s, uint32_t stream, bool is_host, uint64_t *bytes)
{
    uint32_t count = 0;
    uint64_t live = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->items[i].lent ? !is_host : s->items[i].stream != stream) continue;
        s->candidates[count].item = i;
        s->placed[count++] = s->items[i].item;
    }
    WR_TRY(wr_place(s->placed, count, s->count, s->limit, bytes, &live));
    for (uint32_t i = 0; i < count; i++) s->items[s->candidates[i].item].item.offset = s->placed[i].offset;
    return WEIR_OK;
}

weir_status wr_place_guests(wr_guest_item *items, uint32_t count, uint32_t streams, wr_place_limit limit,
                            uint64_t *bytes, uint64_t *alone, uint32_t *host)
{
    sharing s = { .items = items, .count = count, .streams = streams, .limit = limit };
    weir_status status = WEIR_OK;
    WR_TRY(init(&s));
    *host = give_room(&s, alone);
    for (uint32_t i = 0; i < count; i++) items[i].lent = false;
    for (uint32_t i = 0; i < streams; i++)
        if (i != *host) lend(&s, i);
    for (uint32_t i = 0; i < streams && status == WEIR_OK; i++) status = place(&s, i, i == *host, &bytes[i]);
    wr_meta_free(s.load);
    return status;
}
