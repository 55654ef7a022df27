/*
 * plan_support: arenas for the tests of tools/plan. Include after cmocka.h.
 */
#ifndef WEIR_TESTS_UNIT_PLAN_SUPPORT_H
#define WEIR_TESTS_UNIT_PLAN_SUPPORT_H

#include "plan/layout.h"
#include "plan/problem.h"
#include "plan/random.h"
#include "plan/solve.h"

#include <stdlib.h>
#include <string.h>

/* Builds an arena step by step. Blocks are named by their index. */
static inline uint32_t arena_alloc(arena *a, uint64_t units, uint32_t stream)
{
    a->blocks = realloc(a->blocks, (a->count + 1) * sizeof *a->blocks);
    assert_non_null(a->blocks);
    a->blocks[a->count] = (arena_block){ units * PLAN_ALIGNMENT, a->steps++, UINT32_MAX, stream };
    if (stream >= a->stream_count) a->stream_count = stream + 1;
    return (uint32_t)a->count++;
}

static inline void arena_free(arena *a, uint32_t block)
{
    assert_int_equal(a->blocks[block].end, UINT32_MAX);
    a->blocks[block].end = a->steps++;
}

/* Blocks that were not freed live to the end. */
static inline void arena_close(arena *a)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->blocks[i].end == UINT32_MAX) a->blocks[i].end = a->steps;
}

static inline void arena_release(arena *a)
{
    free(a->blocks);
    *a = (arena){ 0 };
}

/* Random allocations and frees: `most` units a block, about `live` blocks at a time. */
static inline void arena_random(arena *a, uint64_t *random, size_t count, uint64_t most, size_t live, uint32_t streams)
{
    uint32_t *held = malloc((count + 1) * sizeof *held);
    assert_non_null(held);
    size_t have = 0;
    while (a->count < count) {
        bool frees = have > 0 && random_below(random, 2 * live) < have;
        if (frees) {
            size_t k = (size_t)random_below(random, have);
            arena_free(a, held[k]);
            held[k] = held[--have];
        } else {
            held[have++] = arena_alloc(a, 1 + random_below(random, most), (uint32_t)random_below(random, streams));
        }
    }
    free(held);
    arena_close(a);
}

/* Solves an arena; the caller releases both. */
static inline void solve_arena(const arena *a, const solve_options *options, layout *l, solution *s)
{
    layout_init(l, a);
    solve(l, options, s);
}

/* Offsets by the arena's blocks; the caller frees them. */
static inline uint64_t *offsets_of(const arena *a, const layout *l, const solution *s)
{
    uint64_t *each = malloc((a->count + 1) * sizeof *each);
    assert_non_null(each);
    for (size_t i = 0; i < a->count; i++) each[i] = s->offset[layout_block(l, i)];
    return each;
}

/* The most bytes live at once, counted naively. */
static inline uint64_t plain_load(const arena *a)
{
    uint64_t most = 0;
    for (uint32_t step = 0; step < a->steps; step++) {
        uint64_t live = 0;
        for (size_t i = 0; i < a->count; i++)
            if (a->blocks[i].start <= step && step < a->blocks[i].end) live += a->blocks[i].bytes;
        if (live > most) most = live;
    }
    return most;
}

static inline bool plain_meet(const arena_block *a, const arena_block *b)
{
    return a->start < b->end && b->start < a->end;
}

/* True when no two blocks overlap, found by looking at every pair. */
static inline bool plain_right(const arena *a, const uint64_t *offset)
{
    for (size_t i = 0; i < a->count; i++)
        for (size_t j = i + 1; j < a->count; j++)
            if (plain_meet(&a->blocks[i], &a->blocks[j]) && offset[i] < offset[j] + a->blocks[j].bytes &&
                offset[j] < offset[i] + a->blocks[i].bytes)
                return false;
    return true;
}

#endif
