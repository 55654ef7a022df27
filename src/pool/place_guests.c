#include "pool/place_guests.h"

#include "base/compiler.h"
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
    int64_t *load;         /* live bytes at each step; one entry more */
    int64_t *room;         /* what each stream has to itself at most */
    wr_item *placed;       /* items at one stream's addresses */
    candidate *candidates; /* of one stream */
} sharing;

enum { ALL = UINT32_MAX };

static weir_status init(sharing *s)
{
    void *memory = NULL;
    const size_t each = sizeof(int64_t) + sizeof(wr_item) + sizeof(candidate), steps = s->count + (size_t)1;
    WR_TRY(wr_meta_alloc(steps * each + s->streams * sizeof(int64_t), "streams that share", &memory));
    s->load = memory;
    s->room = s->load + steps;
    s->placed = (wr_item *)(void *)(s->room + s->streams);
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
static uint32_t give_room(sharing *s)
{
    uint32_t host = 0;
    int64_t highest = -1;
    find_load(s, ALL);
    const uint32_t moment = fullest(s);
    for (uint32_t stream = 0; stream < s->streams; stream++) {
        find_load(s, stream);
        s->room[stream] = s->load[moment];
        const int64_t peak = s->load[fullest(s)];
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

static bool has_room(const sharing *s, const wr_item *item, uint32_t life, int64_t room)
{
    for (uint32_t i = 0; i < life; i++)
        if (s->load[(item->start + i) % s->count] + (int64_t)item->bytes > room) return false;
    return true;
}

/* The longest-lived get the guest's own room: what is lent is soon given back. */
static void lend(sharing *s, uint32_t guest)
{
    const uint32_t count = list_candidates(s, guest);
    memset(s->load, 0, (s->count + (size_t)1) * sizeof *s->load);
    for (uint32_t k = 0; k < count; k++) {
        wr_guest_item *g = &s->items[s->candidates[k].item];
        g->lent = !has_room(s, &g->item, s->candidates[k].life, s->room[guest]);
        for (uint32_t i = 0; i < s->candidates[k].life && !g->lent; i++)
            s->load[(g->item.start + i) % s->count] += (int64_t)g->item.bytes;
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
    *bytes = 0;
    if (count) WR_TRY(wr_place(s->placed, count, s->count, WR_PLACE_WORK, bytes, &live));
    for (uint32_t i = 0; i < count; i++) s->items[s->candidates[i].item].item.offset = s->placed[i].offset;
    return WEIR_OK;
}

weir_status wr_place_guests(wr_guest_item *items, uint32_t count, uint32_t streams, uint64_t *bytes, uint32_t *host)
{
    sharing s = { .items = items, .count = count, .streams = streams };
    weir_status status = WEIR_OK;
    WR_TRY(init(&s));
    *host = give_room(&s);
    for (uint32_t i = 0; i < count; i++) items[i].lent = false;
    for (uint32_t i = 0; i < streams; i++)
        if (i != *host) lend(&s, i);
    for (uint32_t i = 0; i < streams && status == WEIR_OK; i++) status = place(&s, i, i == *host, &bytes[i]);
    wr_meta_free(s.load);
    return status;
}
