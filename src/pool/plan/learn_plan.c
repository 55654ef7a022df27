#include "pool/plan/learn_internal.h"

#include "base/log.h"
#include "base/meta.h"

#include <string.h>

/* The i-th block of the last round but one, whose blocks, if they live no longer than a round, have all been freed by
 * now. Time is counted in allocations of the line: only then does it matter what lives. */
static wr_item item_of(const wr_learner *l, const wr_line *of, uint32_t i)
{
    const uint32_t first = of->count - 2 * of->round;
    const uint32_t lives = wr_learn_life_of(l, of, first + i), end = lives < of->round ? i + lives : i;
    return (wr_item){ .bytes = l->births[of->at[first + i]].bytes,
                      .start = i,
                      .end = end > of->round ? end - of->round : end };
}

static weir_plan_entry entry_at(uint64_t offset, uint64_t bytes)
{
    return (weir_plan_entry){ .offset = offset, .bytes = bytes, .lives = WEIR_PLAN_FOREVER };
}

typedef struct draft {
    weir_plan *plan;
    weir_plan_arena *arenas;
    weir_plan_entry *entries;
    wr_arena_user *users;
} draft;

static weir_status begin_draft(draft *d, uint64_t arenas, uint64_t entries)
{
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(sizeof(weir_plan) + arenas * (sizeof(weir_plan_arena) + sizeof(wr_arena_user)) +
                             entries * sizeof(weir_plan_entry),
                         "a plan", &memory));
    d->plan = memory;
    d->arenas = (weir_plan_arena *)(d->plan + 1);
    d->entries = (weir_plan_entry *)(d->arenas + arenas);
    d->users = (wr_arena_user *)(d->entries + entries);
    *d->plan = (weir_plan){ .arenas = d->arenas, .entries = d->entries };
    return WEIR_OK;
}

static void add_arena(draft *d, int device, uint64_t stream, uint64_t entries)
{
    const uint64_t n = d->plan->arena_count++;
    d->arenas[n] = (weir_plan_arena){
        .device = device,
        .flags = WEIR_PLAN_ONE_STREAM,
        .streams = 1,
        .first = d->plan->entry_count,
        .entries = entries,
        .loop_entries = entries,
        .loop_times = 2,
    };
    d->users[n] = (wr_arena_user){ .native = stream, .host = WR_ARENA_ALONE };
    d->plan->entry_count += entries;
}

static wr_place_limit limit_of(const wr_learner *l)
{
    return (wr_place_limit){ WR_PLACE_WORK, l->options->stop };
}

/* ---- streams apart ----------------------------------------------------------------------------------------------- */

static weir_status place_line(const wr_learner *l, const wr_line *of, draft *d, uint64_t arena)
{
    void *memory = NULL;
    weir_plan_arena *a = &d->arenas[arena];
    WR_TRY(wr_meta_alloc(of->round * sizeof(wr_item), "blocks to place", &memory));
    wr_item *items = memory;
    for (uint32_t i = 0; i < of->round; i++) items[i] = item_of(l, of, i);
    weir_status status = wr_place(items, of->round, of->round, limit_of(l), &a->bytes, &a->bound);
    for (uint32_t i = 0; i < of->round; i++) d->entries[a->first + i] = entry_at(items[i].offset, items[i].bytes);
    d->users[arena].own = a->bytes;
    wr_meta_free(items);
    return status;
}

/* At most half of what the type holds. */
static uint64_t sum_of(uint64_t total, uint64_t bytes)
{
    return total + bytes < total || total + bytes > UINT64_MAX / 2 ? UINT64_MAX / 2 : total + bytes;
}

static void drop_arena(draft *d, uint64_t arena)
{
    weir_plan_arena *a = &d->arenas[arena];
    const uint64_t entries = a->entries, behind = --d->plan->arena_count - arena;
    d->plan->entry_count -= entries;
    memmove(&d->entries[a->first], &d->entries[a->first + entries],
            (d->plan->entry_count - a->first) * sizeof *d->entries);
    memmove(a, a + 1, behind * sizeof *a);
    memmove(&d->users[arena], &d->users[arena + 1], behind * sizeof *d->users);
    for (uint64_t i = 0; i < behind; i++) a[i].first -= entries;
}

/* What fixed places cost more than what lives at once. More than anything if blocks take too long to place. */
static uint64_t waste(const weir_plan_arena *a)
{
    return a->bytes - a->bound;
}

/* Each stream that had a birth has one. */
static wr_line *line_of(const wr_learner *l, uint64_t stream)
{
    wr_line *of = l->lines;
    while (of->stream != stream) of++;
    return of;
}

/* The stream of the arena gets no plan. */
static void leave_out(const wr_learner *l, draft *d, uint64_t arena)
{
    line_of(l, d->users[arena].native)->cost = d->arenas[arena].bound;
    drop_arena(d, arena);
}

/* Streams that cost most, until the rest is worth a plan. */
static void drop_wasteful(const wr_learner *l, draft *d)
{
    while (d->plan->arena_count != 0) {
        uint64_t wasted = 0, lives = 0, worst = 0;
        for (uint64_t k = 0; k < d->plan->arena_count; k++) {
            wasted = sum_of(wasted, waste(&d->arenas[k]));
            lives = sum_of(lives, d->arenas[k].bound);
            if (waste(&d->arenas[k]) > waste(&d->arenas[worst])) worst = k;
        }
        if (wasted <= lives / WR_LEARN_WASTES) return;
        leave_out(l, d, worst);
    }
}

static bool is_planned(const draft *d, uint64_t stream)
{
    for (uint64_t k = 0; k < d->plan->arena_count; k++)
        if (d->users[k].native == stream) return true;
    return false;
}

/* The first event of the stream's last two rounds. */
static uint32_t begin_of(const wr_learner *l, const wr_line *of)
{
    return l->births[of->at[of->count - 2 * of->round]].event;
}

/* The same of all planned streams. */
static uint32_t begin_of_all(const wr_learner *l, const draft *d)
{
    uint32_t begin = UINT32_MAX;
    for (uint64_t k = 0; k < d->plan->arena_count; k++) {
        const uint32_t event = begin_of(l, line_of(l, d->users[k].native));
        if (event < begin) begin = event;
    }
    return begin;
}

/* What its stream had before those rounds, and still has, is in none of the plan's places. */
static bool needs_place(const wr_learner *l, const draft *d, const wr_birth *b)
{
    if (!is_planned(d, b->stream)) return false;
    return b->end != UINT32_MAX || b->event >= begin_of(l, line_of(l, b->stream));
}

/* The most that lives at once on all planned streams, in their last two rounds. `freed`: room for a sum per event. */
static uint64_t live_together(const wr_learner *l, const draft *d, uint64_t *freed)
{
    const uint32_t begin = begin_of_all(l, d);
    uint64_t now = 0, most = 0;
    memset(freed, 0, l->events * sizeof *freed);
    for (uint32_t i = 0, event = 0; i < l->count; i++) {
        const wr_birth *b = &l->births[i];
        for (; event < b->event; event++) now -= freed[event];
        if (!needs_place(l, d, b)) continue;
        now += b->bytes;
        if (b->end != UINT32_MAX) freed[b->end] += b->bytes;
        if (b->event >= begin && now > most) most = now;
    }
    return most;
}

static void drop_least(const wr_learner *l, draft *d)
{
    uint64_t least = 0;
    for (uint64_t k = 1; k < d->plan->arena_count; k++)
        if (d->arenas[k].bytes < d->arenas[least].bytes) least = k;
    leave_out(l, d, least);
}

static bool is_worth_its_places(const wr_learner *l, const draft *d, uint64_t *freed)
{
    const uint64_t together = live_together(l, d, freed);
    uint64_t all = 0;
    for (uint64_t k = 0; k < d->plan->arena_count; k++) all = sum_of(all, d->arenas[k].bytes);
    return all <= together + together / WR_LEARN_WASTES;
}

/* Streams that hold memory by turns need less together than places of their own have: the least get none, until the
 * rest is worth a plan. There is none where most of the allocations would be left out, or after so many looks, which
 * take time. */
static weir_status drop_those_that_take_turns(const wr_learner *l, draft *d)
{
    enum { LOOKS_MOST = 64 };
    const uint64_t entries = d->plan->entry_count;
    void *freed = NULL;
    if (d->plan->arena_count < 2) return WEIR_OK;
    WR_TRY(wr_meta_alloc(l->events * sizeof(uint64_t), "history to learn from", &freed));
    for (int looks = 1; !is_worth_its_places(l, d, freed); looks++) {
        drop_least(l, d);
        const bool worth = looks < LOOKS_MOST && 2 * d->plan->entry_count >= entries;
        while (!worth && d->plan->arena_count != 0) drop_least(l, d);
    }
    wr_meta_free(freed);
    return WEIR_OK;
}

static weir_status plan_apart(const wr_learner *l, int device, draft *d)
{
    uint64_t arenas = 0, entries = 0;
    for (size_t k = 0; k < l->line_count; k++) {
        arenas += l->lines[k].round != 0;
        entries += l->lines[k].round;
    }
    if (arenas == 0) {
        wr_log(
            WR_LOG_INFO,
            "device %d: no plan: at the end of what is recorded (allocations: %u, streams: %zu) no stream asks twice "
            "for the same, for a quarter of its allocations or more; with weir_history_clear(), or fewer events, less "
            "has to repeat",
            device, l->count, l->line_count);
        return WEIR_ERR_NOT_READY;
    }
    WR_TRY(begin_draft(d, arenas, entries));
    weir_status status = WEIR_OK;
    for (size_t k = 0; k < l->line_count && status == WEIR_OK; k++) {
        if (l->lines[k].round == 0) continue;
        add_arena(d, device, l->lines[k].stream, l->lines[k].round);
        status = place_line(l, &l->lines[k], d, d->plan->arena_count - 1);
        l->lines[k].cost = d->arenas[d->plan->arena_count - 1].bytes;
    }
    WR_TRY(status);
    drop_wasteful(l, d);
    return drop_those_that_take_turns(l, d);
}

/* ---- streams that share ------------------------------------------------------------------------------------------ */

/* Lists each stream's blocks in the common round, in order. The stream of an item is the number of its arena. *others:
 * increased by what streams cost that have none. */
static weir_status draft_shared(const wr_learner *l, int device, wr_guest_item *items, draft *d, uint64_t *others)
{
    const wr_line *all = &l->all;
    WR_TRY(begin_draft(d, l->line_count, all->round));
    for (uint32_t i = 0; i < all->round; i++) items[i].item = item_of(l, all, i);
    for (size_t k = 0; k < l->line_count; k++) {
        uint64_t count = 0;
        for (uint32_t i = 0; i < all->round; i++) {
            if (l->births[all->at[all->count - 2 * all->round + i]].stream != l->lines[k].stream) continue;
            items[i].stream = (uint32_t)d->plan->arena_count;
            count++;
        }
        if (count)
            add_arena(d, device, l->lines[k].stream, count);
        else
            *others = sum_of(*others, l->lines[k].cost);
    }
    return WEIR_OK;
}

static void enter_shared(const wr_guest_item *items, uint32_t count, const uint64_t *bytes, uint32_t host, draft *d)
{
    for (uint64_t k = 0; k < d->plan->arena_count; k++) {
        uint64_t next = d->arenas[k].first;
        const bool guest = k != host;
        d->arenas[k].bytes = bytes[k] + (guest ? bytes[host] : 0);
        d->users[k].own = bytes[k];
        if (guest) d->users[k].host = host;
        for (uint32_t i = 0; i < count; i++) {
            const wr_guest_item *s = &items[i];
            if (s->stream != k) continue;
            d->entries[next++] = entry_at(s->item.offset + (s->lent ? bytes[k] : 0), s->item.bytes);
        }
    }
}

/* A stream that has no round of its own has memory without a plan where it does not share. */
static void set_missing_costs(const wr_learner *l, const draft *d, const uint64_t *alone)
{
    for (uint64_t k = 0; k < d->plan->arena_count; k++) {
        wr_line *of = line_of(l, d->users[k].native);
        if (of->round == 0) of->cost = alone[k];
    }
}

/* *total: bytes of all arenas, and of the streams that are not in it; more than any plan if placing takes too long. */
static weir_status plan_shared(const wr_learner *l, int device, draft *d, uint64_t *total)
{
    void *memory = NULL, *sizes = NULL;
    uint32_t host = 0;
    WR_TRY(wr_meta_alloc(l->all.round * sizeof(wr_guest_item), "blocks to place", &memory));
    weir_status status = wr_meta_alloc(2 * l->line_count * sizeof(uint64_t), "blocks to place", &sizes);
    wr_guest_item *items = memory;
    uint64_t *bytes = sizes; /* of each stream, and then what lives there at once */
    *total = 0;
    if (status == WEIR_OK) status = draft_shared(l, device, items, d, total);
    if (status == WEIR_OK)
        status = wr_place_guests(items, l->all.round, (uint32_t)d->plan->arena_count, limit_of(l), bytes,
                                 bytes + l->line_count, &host);
    if (status == WEIR_OK) enter_shared(items, l->all.round, bytes, host, d);
    if (status == WEIR_OK) set_missing_costs(l, d, bytes + l->line_count);
    for (uint64_t k = 0; status == WEIR_OK && k < d->plan->arena_count; k++) *total = sum_of(*total, bytes[k]);
    wr_meta_free(bytes);
    wr_meta_free(items);
    return status;
}

static uint64_t cost_of_all(const wr_learner *l)
{
    uint64_t total = 0;
    for (size_t k = 0; k < l->line_count; k++) total = sum_of(total, l->lines[k].cost);
    return total;
}

weir_status wr_learn_plan(const wr_learner *l, int device, weir_plan **out, const wr_arena_user **users)
{
    draft best = { 0 }, shared = { 0 };
    uint64_t total = 0;
    weir_status status = plan_apart(l, device, &best);
    if (status == WEIR_OK && l->all.round) {
        status = plan_shared(l, device, &shared, &total);
        if (status == WEIR_OK && total + total / WR_LEARN_SAVES < cost_of_all(l)) {
            const draft apart = best;
            best = shared;
            shared = apart;
        }
    }
    if (status == WEIR_OK && wr_place_stopped(l->options->stop)) {
        status = WEIR_ERR_NOT_READY;
    } else if (status == WEIR_OK && best.plan->arena_count == 0) {
        wr_log(WR_LOG_INFO,
               "device %d: no plan: fixed places for all blocks that repeat would need much more memory than is in use "
               "at any one time, or take too long to find",
               device);
        status = WEIR_ERR_NOT_READY;
    }
    wr_meta_free(shared.plan);
    if (status != WEIR_OK) {
        wr_meta_free(best.plan);
        return status;
    }
    *out = best.plan;
    *users = best.users;
    return WEIR_OK;
}
