#include "plan/make.h"

#include "clock.h"
#include "grow.h"
#include "plan/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_ENTRIES (UINT64_C(1) << 28) /* of an arena that plan_holds can check: it counts steps in 32 bits */

/* By step: how many allocations were made before it. */
static uint32_t *count_allocations(const arena *a)
{
    uint32_t *before = grow_new((size_t)a->steps + 2, sizeof *before);
    for (size_t i = 0; i < a->count; i++) before[a->blocks[i].start + 1]++;
    for (uint32_t step = 0; step <= a->steps; step++) before[step + 1] += before[step];
    return before;
}

static void write_entries(const arena *a, const layout *l, const uint64_t *offset, weir_plan_entry *entries)
{
    uint32_t *before = count_allocations(a);
    for (size_t i = 0; i < a->count; i++) {
        const arena_block *b = &a->blocks[i];
        size_t number = loop_entry(&l->loop, i);
        weir_plan_entry *e = &entries[number];
        bool loops = number >= l->loop.first && number < l->loop.first + l->loop.count;
        uint32_t lives = before[b->end] - (uint32_t)i - 1;
        if (b->end == a->steps && !loops) lives = WEIR_PLAN_FOREVER;
        if (lives < e->lives) lives = e->lives; /* the longest of all iterations */
        *e = (weir_plan_entry){ offset[l->block_of[number]], b->bytes, lives, b->stream };
    }
    free(before);
}

static uint64_t waits_of(const arena *a, const layout *l, const uint64_t *offset)
{
    uint64_t *each = grow_new(a->count, sizeof *each);
    for (size_t i = 0; i < a->count; i++) each[i] = offset[layout_block(l, i)];
    uint64_t waits = count_waits(a, each);
    free(each);
    return waits;
}

/* Blocks of the loop are found by their order, so they do not count as residents. */
static uint64_t residents_of(const arena *a, const loop *l)
{
    return l->times && l->first < a->residents ? l->first : a->residents;
}

static double seconds_since(uint64_t began)
{
    return (double)(clock_now_ns() - began) * 1e-9;
}

static void plan_arena(made_plan *m, size_t number, const arena *a, const solve_options *options, bool one_stream)
{
    layout l;
    solution s;
    solve_options rest = *options;
    const uint64_t began = clock_now_ns();
    layout_init(&l, a);
    rest.seconds -= seconds_since(began);
    if (rest.seconds < 0) rest.seconds = 0;
    solve(&l, &rest, &s);

    size_t first = (size_t)m->plan.entry_count;
    write_entries(a, &l, s.offset, m->entries + first);
    m->plan.entry_count += l.entries;
    m->facts[number] = (arena_facts){ s.residents, s.load, s.how };
    m->arenas[number] = (weir_plan_arena){
        .device = a->device,
        .pool = a->pool,
        .flags = one_stream ? WEIR_PLAN_ONE_STREAM : 0,
        .streams = (uint32_t)a->stream_count,
        .bytes = s.height,
        .bound = s.bound,
        .waits = waits_of(a, &l, s.offset),
        .first = first,
        .entries = l.entries,
        .loop_first = l.loop.first,
        .loop_entries = l.loop.count,
        .loop_times = l.loop.times,
        .residents = residents_of(a, &l.loop),
    };
    solution_release(&s);
    layout_release(&l);
}

void make_plan(const problem *p, const solve_options *options, bool streams_apart, made_plan *out)
{
    size_t entries = 0;
    for (size_t i = 0; i < p->count; i++) entries += p->arenas[i].count;
    size_t blocks = entries; /* in arenas still to be planned; no arena is empty */
    *out = (made_plan){ .arenas = grow_new(p->count, sizeof *out->arenas),
                        .entries = grow_new(entries, sizeof *out->entries),
                        .facts = grow_new(p->count, sizeof *out->facts) };
    out->plan = (weir_plan){ p->hash, p->count, 0, out->arenas, out->entries };

    uint64_t began = clock_now_ns();
    for (size_t i = 0; i < p->count; i++) {
        solve_options share = *options;
        double used = seconds_since(began);
        double left = used < options->seconds ? options->seconds - used : 0;
        share.seconds = left * (double)p->arenas[i].count / (double)blocks;
        blocks -= p->arenas[i].count;
        plan_arena(out, i, &p->arenas[i], &share, streams_apart);
    }
}

void made_plan_release(made_plan *m)
{
    free(m->arenas);
    free(m->entries);
    free(m->facts);
    *m = (made_plan){ 0 };
}

static loop loop_in(const weir_plan_arena *a)
{
    return (loop){ .first = a->loop_first, .count = a->loop_entries, .times = a->loop_times };
}

static bool arena_serves(const weir_plan *plan, size_t number, const arena *a, char *error, size_t error_size)
{
    const weir_plan_arena *planned = &plan->arenas[number];
    loop l = loop_in(planned);
    bool too_long = l.times && l.times > a->count / l.count;
    uint64_t again = l.times && !too_long ? l.count * (l.times - 1) : 0;
    if (too_long || planned->device != a->device || planned->pool != a->pool || planned->entries + again != a->count ||
        planned->residents != residents_of(a, &l)) {
        snprintf(error, error_size, "arena %zu does not match the allocations of the trace", number);
        return false;
    }
    bool good = true;
    uint64_t *offset = grow_new(a->count, sizeof *offset);
    for (size_t i = 0; good && i < a->count; i++) {
        const weir_plan_entry *e = &plan->entries[planned->first + loop_entry(&l, i)];
        good = e->bytes == a->blocks[i].bytes && e->stream == a->blocks[i].stream;
        if (!good) snprintf(error, error_size, "arena %zu: allocation %zu differs from that of the trace", number, i);
        offset[i] = e->offset;
    }
    char reason[160];
    if (good && !verify(a, offset, planned->bytes, reason, sizeof reason)) {
        good = false;
        snprintf(error, error_size, "arena %zu: %s", number, reason);
    }
    free(offset);
    return good;
}

bool plan_serves(const weir_plan *plan, const problem *p, char *error, size_t error_size)
{
    if (plan->arena_count != p->count || plan->trace != p->hash) {
        snprintf(error, error_size, "it belongs to another trace");
        return false;
    }
    for (size_t i = 0; i < p->count; i++)
        if (!arena_serves(plan, i, &p->arenas[i], error, error_size)) return false;
    return true;
}

/* Sets the blocks' steps from the lives of their entries: blocks to be freed before an allocation are freed in the
 * steps just before it. */
static void play_lives(arena *a, const uint32_t *lives)
{
    uint32_t *freed = grow_new(a->count + 1, sizeof *freed); /* total before each allocation */
    for (size_t i = 0; i < a->count; i++)
        if (lives[i] < a->count - i - 1) freed[i + lives[i] + 1]++;
    for (size_t i = 0; i < a->count; i++) freed[i + 1] += freed[i];

    uint32_t *next = grow_new(a->count + 1, sizeof *next); /* the next step for a free before each allocation */
    for (size_t i = 0; i < a->count; i++) {
        a->blocks[i].start = (uint32_t)i + freed[i];
        next[i] = (uint32_t)i + (i ? freed[i - 1] : 0);
    }
    a->steps = (uint32_t)a->count + freed[a->count];
    for (size_t i = 0; i < a->count; i++) {
        bool dies = lives[i] < a->count - i - 1;
        a->blocks[i].end = dies ? next[i + lives[i] + 1]++ : a->steps;
    }
    free(next);
    free(freed);
}

/* Two iterations show every possible fault. A block that lives for a whole iteration meets its successor in the second,
 * and later iterations equal that one. A block from before the loop meets in the first iteration what it meets in any.
 * *left_out: allocations of the other iterations. */
static loop played_loop(const weir_plan_arena *a, uint64_t *left_out)
{
    loop l = loop_in(a);
    *left_out = 0;
    if (l.times && __builtin_mul_overflow(l.count, l.times - 2, left_out)) *left_out = UINT64_MAX;
    if (l.times) l.times = 2;
    return l;
}

/* The life of an entry when only two iterations are played. For an entry before the loop: shortened by `left_out` if it
 * outlives the loop, else cut at the loop's end. */
static uint32_t played_life(const weir_plan_entry *e, size_t number, const loop *l, uint64_t left_out)
{
    if (!l->times || number >= l->first || e->lives == WEIR_PLAN_FOREVER) return e->lives;
    const uint64_t to_end = l->first + 2 * l->count - number - 1;
    if (e->lives <= to_end) return e->lives;
    return (uint32_t)(e->lives - to_end > left_out ? e->lives - left_out : to_end);
}

static bool arena_holds(const weir_plan *plan, const weir_plan_arena *planned, char *error, size_t error_size)
{
    uint64_t left_out;
    loop l = played_loop(planned, &left_out);
    if (planned->entries > MOST_ENTRIES) {
        snprintf(error, error_size, "it has more than %" PRIu64 " entries", MOST_ENTRIES);
        return false;
    }
    arena a = { .count = planned->entries + (l.times ? l.count * (l.times - 1) : 0) };
    a.blocks = grow_new(a.count, sizeof *a.blocks);
    uint64_t *offset = grow_new(a.count, sizeof *offset);
    uint32_t *lives = grow_new(a.count, sizeof *lives);
    for (size_t i = 0; i < a.count; i++) {
        const size_t number = loop_entry(&l, i);
        const weir_plan_entry *e = &plan->entries[planned->first + number];
        a.blocks[i].bytes = e->bytes;
        offset[i] = e->offset;
        lives[i] = played_life(e, number, &l, left_out);
    }
    play_lives(&a, lives);
    bool good = verify(&a, offset, planned->bytes, error, error_size);
    free(lives);
    free(offset);
    free(a.blocks);
    return good;
}

bool plan_holds(const weir_plan *plan, char *error, size_t error_size)
{
    char reason[160];
    for (size_t i = 0; i < plan->arena_count; i++) {
        if (arena_holds(plan, &plan->arenas[i], reason, sizeof reason)) continue;
        snprintf(error, error_size, "arena %zu: %s%s", i, reason,
                 plan->arenas[i].loop_times > 2 ? ", its loop played twice" : "");
        return false;
    }
    return true;
}
