#include "pool/plan/place.h"

#include "base/meta.h"

#include <stdlib.h>
#include <string.h>

/* A stretch of an item's life; an item that goes on in the next round has two. */
typedef struct life {
    uint32_t start, end, item;
} life;

typedef enum order { BY_SIZE, BY_AREA, BY_LIFE, BY_START } order;

typedef struct extent {
    uint64_t low, high;
} extent;

/* An item that is placed. */
typedef struct placed {
    extent at;
    uint32_t start, life;
} placed;

/* The state of placing. To find lives that overlap a given one, a tree over them, by start, has in each node the latest
 * end below. That and a sort of what was found are for few: where more than 1 in MANY_MET of what is placed lives at
 * the same time, all that is placed is gone through by address. */
typedef struct placer {
    wr_item *items;
    size_t count;
    uint32_t steps;
    order by;
    life *lives; /* by start */
    size_t life_count, leaves;
    uint32_t *latest; /* node 1 is the root; 0: nothing is placed below */
    uint32_t *rank;   /* of each item's lives, two per item; UINT32_MAX: none */
    uint32_t *order, *met;
    size_t met_count, met_most;
    placed *pile;  /* what is placed, by address, without the floor; */
    placed *fresh; /* and what was placed since that was put in order */
    size_t pile_count, fresh_count;
    extent *found;
    uint64_t work; /* how much was looked at */
    wr_place_limit limit;
} placer;

/* An item that the tree found, and that is sorted, costs as much as so many that are gone through. */
enum { MANY_MET = 32, FOUND_COSTS = 8 };

static int by_start(const void *left, const void *right)
{
    const life *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item;
}

static void add_life(placer *p, uint32_t start, uint32_t end, size_t item)
{
    if (start < end) p->lives[p->life_count++] = (life){ start, end, (uint32_t)item };
}

static weir_status init(placer *p)
{
    void *memory = NULL;
    p->leaves = 1;
    while (p->leaves < 2 * p->count) p->leaves *= 2;
    const size_t lives = 2 * p->count * sizeof(life);
    const size_t numbers = 2 * p->leaves + 2 * p->count + p->count + 4 * p->count; /* each of two lives may meet two */
    WR_TRY(wr_meta_alloc(lives + numbers * sizeof(uint32_t), "blocks to place", &memory));
    p->lives = memory;
    p->latest = (uint32_t *)(void *)(p->lives + 2 * p->count);
    p->rank = p->latest + 2 * p->leaves;
    p->order = p->rank + 2 * p->count;
    p->met = p->order + p->count;
    for (size_t i = 0; i < p->count; i++) {
        const wr_item *item = &p->items[i];
        const bool wraps = item->end <= item->start;
        add_life(p, item->start, wraps ? p->steps : item->end, i);
        if (wraps) add_life(p, 0, item->end, i);
        p->order[i] = (uint32_t)i;
        p->rank[2 * i] = p->rank[2 * i + 1] = UINT32_MAX;
    }
    qsort(p->lives, p->life_count, sizeof(life), by_start);
    for (size_t i = 0; i < p->life_count; i++) {
        uint32_t *rank = &p->rank[2 * (size_t)p->lives[i].item];
        rank[rank[0] != UINT32_MAX] = (uint32_t)i;
    }
    return WEIR_OK;
}

static uint64_t rank_of(const placer *p, const wr_item *item)
{
    switch (p->by) {
    case BY_SIZE: return item->bytes;
    case BY_AREA: return item->bytes / 512 * wr_item_life(item, p->steps);
    case BY_LIFE: return wr_item_life(item, p->steps);
    default: return UINT64_MAX - item->start;
    }
}

/* Among equals, large items first, then long-lived ones. A heap sort, since qsort has no argument for the items. */
static bool goes_before(const placer *p, uint32_t a, uint32_t b)
{
    const wr_item *left = &p->items[a], *right = &p->items[b];
    const uint64_t left_rank = rank_of(p, left), right_rank = rank_of(p, right);
    if (left_rank != right_rank) return left_rank > right_rank;
    if (left->bytes != right->bytes) return left->bytes > right->bytes;
    const uint64_t left_life = wr_item_life(left, p->steps), right_life = wr_item_life(right, p->steps);
    if (left_life != right_life) return left_life > right_life;
    return a < b;
}

static void sift_down(placer *p, size_t at, size_t count)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && goes_before(p, p->order[child], p->order[child + 1])) child++;
        if (goes_before(p, p->order[child], p->order[at])) return;
        const uint32_t swapped = p->order[at];
        p->order[at] = p->order[child];
        p->order[child] = swapped;
    }
}

static void sort_order(placer *p, order by)
{
    p->by = by;
    for (size_t i = p->count / 2; i-- > 0;) sift_down(p, i, p->count);
    for (size_t end = p->count; end-- > 1;) {
        const uint32_t last = p->order[0];
        p->order[0] = p->order[end];
        p->order[end] = last;
        sift_down(p, 0, end);
    }
}

/* ---- who lives when ---------------------------------------------------------------------------------------------- */

static void add(placer *p, uint32_t item)
{
    for (int k = 0; k < 2; k++) {
        const uint32_t rank = p->rank[2 * (size_t)item + (size_t)k];
        if (rank == UINT32_MAX) continue;
        const uint32_t end = p->lives[rank].end;
        for (size_t node = p->leaves + rank; node > 0 && p->latest[node] < end; node /= 2) p->latest[node] = end;
    }
}

/* Among the lives below the node, which begin with number `first`: those that are placed, start before `end`, and end
 * after `start`. */
static void meet_below(placer *p, size_t node, size_t first, size_t width, uint32_t start, uint32_t end)
{
    if (p->met_count > p->met_most || p->latest[node] <= start || first >= p->life_count ||
        p->lives[first].start >= end)
        return;
    if (width == 1) {
        p->met[p->met_count++] = p->lives[first].item;
        return;
    }
    meet_below(p, 2 * node, first, width / 2, start, end);
    meet_below(p, 2 * node + 1, first + width / 2, width / 2, start, end);
}

static int by_low(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->low != b->low) return a->low < b->low ? -1 : 1;
    return a->high < b->high ? -1 : a->high > b->high;
}

static int by_address(const void *left, const void *right)
{
    return by_low(&((const placed *)left)->at, &((const placed *)right)->at);
}

/* How many of the first `count` of the pile are not above the address. */
static size_t up_to(const placer *p, size_t count, uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (p->pile[middle].at.low <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put_in_order(placer *p)
{
    size_t old = p->pile_count;
    if (p->fresh_count > 1) qsort(p->fresh, p->fresh_count, sizeof *p->fresh, by_address);
    for (size_t new = p->fresh_count; new --> 0;) {
        const size_t below = up_to(p, old, p->fresh[new].at.low);
        memmove(&p->pile[below + new + 1], &p->pile[below], (old - below) * sizeof *p->pile);
        p->pile[below + new] = p->fresh[new];
        old = below;
    }
    p->pile_count += p->fresh_count;
    p->fresh_count = 0;
}

/* Goes through all that is placed. Of two that live at the same time one is there when the other one starts. */
static void meet_in_order(placer *p, const wr_item *item)
{
    const uint32_t lives = wr_item_life(item, p->steps);
    put_in_order(p);
    p->met_count = 0;
    for (size_t i = 0; i < p->pile_count; i++) {
        const placed *other = &p->pile[i];
        const uint32_t behind = other->start - item->start + (other->start < item->start ? p->steps : 0);
        const uint32_t ahead = item->start - other->start + (item->start < other->start ? p->steps : 0);
        p->found[p->met_count] = other->at;
        p->met_count += behind < lives || ahead < other->life;
    }
    p->work += p->pile_count;
}

static void meet(placer *p, uint32_t item)
{
    p->met_count = 0;
    p->met_most = 64 + (p->pile_count + p->fresh_count) / MANY_MET;
    for (int k = 0; k < 2; k++) {
        const uint32_t rank = p->rank[2 * (size_t)item + (size_t)k];
        if (rank != UINT32_MAX) meet_below(p, 1, 0, p->leaves, p->lives[rank].start, p->lives[rank].end);
    }
    p->work += FOUND_COSTS * p->met_count;
    if (p->met_count > p->met_most) {
        meet_in_order(p, &p->items[item]);
        return;
    }
    for (size_t i = 0; i < p->met_count; i++) {
        const wr_item *other = &p->items[p->met[i]];
        p->found[i] = (extent){ other->offset, other->offset + other->bytes };
    }
    if (p->met_count) qsort(p->found, p->met_count, sizeof *p->found, by_low);
}

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static uint64_t find_gap(const extent *found, size_t count, uint64_t floor, uint64_t bytes, bool tightest)
{
    uint64_t cursor = floor, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (found[i].low > cursor && found[i].low - cursor >= bytes && found[i].low - cursor < best_gap) {
            best = cursor;
            best_gap = found[i].low - cursor;
            if (!tightest) return best;
        }
        if (found[i].high > cursor) cursor = found[i].high;
    }
    return best == UINT64_MAX ? cursor : best;
}

/* Any two that each live for more than half of the round are alive together at some time: these are stacked, and form a
 * floor. */
static bool is_piled(const placer *p, const wr_item *item)
{
    return 2 * (uint64_t)wr_item_life(item, p->steps) > p->steps;
}

static uint64_t pile_up(const placer *p)
{
    uint64_t floor = 0;
    for (size_t i = 0; i < p->count; i++) {
        wr_item *item = &p->items[i];
        if (!is_piled(p, item)) continue;
        item->offset = floor;
        floor += item->bytes;
    }
    return floor;
}

/* UINT64_MAX: it takes too long. */
static uint64_t fill(placer *p, uint64_t floor, bool tightest)
{
    uint64_t height = floor;
    p->pile_count = p->fresh_count = 0;
    memset(p->latest, 0, 2 * p->leaves * sizeof *p->latest);
    for (size_t i = 0; i < p->count; i++) {
        wr_item *item = &p->items[p->order[i]];
        if (is_piled(p, item)) continue;
        if (p->work > p->limit.work || wr_place_stopped(p->limit.stop)) return UINT64_MAX;
        meet(p, p->order[i]);
        item->offset = find_gap(p->found, p->met_count, floor, item->bytes, tightest);
        if (item->offset + item->bytes > height) height = item->offset + item->bytes;
        add(p, p->order[i]);
        p->fresh[p->fresh_count++] =
            (placed){ { item->offset, item->offset + item->bytes }, item->start, wr_item_life(item, p->steps) };
    }
    return height;
}

static weir_status find_bound(const placer *p, uint64_t *bound)
{
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(((size_t)p->steps + 1) * sizeof(int64_t), "bytes that live", &memory));
    int64_t *change = memory, now = 0;
    for (size_t i = 0; i < p->life_count; i++) {
        change[p->lives[i].start] += (int64_t)p->items[p->lives[i].item].bytes;
        change[p->lives[i].end] -= (int64_t)p->items[p->lives[i].item].bytes;
    }
    *bound = 0;
    for (uint32_t step = 0; step < p->steps; step++) {
        now += change[step];
        if ((uint64_t)now > *bound) *bound = (uint64_t)now;
    }
    wr_meta_free(memory);
    return WEIR_OK;
}

/* With more items only the first attempts are made, which take seconds then. */
enum { ATTEMPTS_ALL_UP_TO = 20000 };

/* The lowest of several attempts; one that comes down to what lives at once ends them. A quarter of the work must do
 * for all but the first. */
static uint64_t try_orders(placer *p, uint64_t *offsets, uint64_t bound)
{
    static const struct {
        order by;
        bool tightest;
    } attempts[] = { { BY_SIZE, false }, { BY_SIZE, true },  { BY_AREA, true }, { BY_AREA, false },
                     { BY_LIFE, true },  { BY_LIFE, false }, { BY_START, true } };
    const size_t most = p->count > ATTEMPTS_ALL_UP_TO ? 2 : sizeof attempts / sizeof *attempts;
    const uint64_t floor = pile_up(p);
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < most && best > bound; i++) {
        sort_order(p, attempts[i].by);
        const uint64_t height = fill(p, floor, attempts[i].tightest);
        if (i == 0) p->limit.work /= 4;
        if (height >= best) continue;
        best = height;
        for (size_t k = 0; k < p->count; k++) offsets[k] = p->items[k].offset;
    }
    for (size_t k = 0; k < p->count && best != UINT64_MAX; k++) p->items[k].offset = offsets[k];
    return best;
}

static weir_status place(placer *p, uint64_t *bytes, uint64_t *live)
{
    void *memory = NULL;
    const size_t each = 4 * sizeof(extent) + 2 * sizeof(placed) + sizeof(uint64_t);
    WR_TRY(find_bound(p, live));
    WR_TRY(wr_meta_alloc(p->count * each + sizeof(extent), "placed blocks", &memory));
    p->found = memory;
    p->pile = (placed *)(p->found + 4 * p->count + 1);
    p->fresh = p->pile + p->count;
    *bytes = try_orders(p, (uint64_t *)(p->fresh + p->count), *live);
    wr_meta_free(memory);
    return WEIR_OK;
}

weir_status wr_place(wr_item *items, size_t count, uint32_t steps, wr_place_limit limit, uint64_t *bytes,
                     uint64_t *live)
{
    placer p = { .items = items, .count = count, .steps = steps, .limit = limit };
    WR_TRY(init(&p));
    weir_status status = place(&p, bytes, live);
    wr_meta_free(p.lives);
    return status;
}
