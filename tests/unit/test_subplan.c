/*
 * A served plan for private pools: blocks of a graph's pool, or of a program's, lie where the plan has them, in one
 * segment of the pool's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "meanwhile_support.h"
#include "weir/plan.h"
#include "weir/trace.h"

enum { ENTRIES = 16, ARENAS = 2, EDGE = 4096 };

/* Arenas of the same blocks, each of another private pool of the plan. */
typedef struct sample {
    weir_plan_entry entries[ARENAS * ENTRIES];
    weir_plan_arena arenas[ARENAS];
    weir_plan plan;
} sample;

/* Sizes of both classes, none of which private pools round to. */
static size_t bytes_of(int entry)
{
    return (size_t)(1 + entry) * MIB / 2 + (size_t)(entry % 3) * 512;
}

static sample make_plan(uint64_t arenas)
{
    sample s = { .plan = { .arena_count = arenas, .entry_count = arenas * ENTRIES } };
    for (uint64_t a = 0; a < arenas; a++) {
        weir_plan_arena *arena = &s.arenas[a];
        *arena = (weir_plan_arena){ .pool = 1 + (uint32_t)a, .streams = 1, .first = a * ENTRIES, .entries = ENTRIES };
        for (int i = 0; i < ENTRIES; i++) {
            s.entries[arena->first + (uint64_t)i] =
                (weir_plan_entry){ arena->bytes, bytes_of(i), WEIR_PLAN_FOREVER, 0 };
            arena->bytes += bytes_of(i);
        }
    }
    return s;
}

static weir_status try_serve(sample *s)
{
    s->plan.arenas = s->arenas;
    s->plan.entries = s->entries;
    return weir_plan_serve(0, &s->plan);
}

static void serve(sample *s)
{
    assert_ok(try_serve(s));
}

static weir_stream origin;

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 1024 * MIB });
    origin = new_stream(0);
    return 0;
}

static size_t pages_of(uint64_t bytes)
{
    return (size_t)(bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static char *take_from(weir_mempool pool, size_t bytes)
{
    return alloc_from(pool, bytes, origin);
}

static weir_mempool plain_pool(void)
{
    return make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
}

static void take_all(char *blocks[ENTRIES])
{
    for (int i = 0; i < ENTRIES; i++) blocks[i] = alloc_on(bytes_of(i), origin);
}

static void free_all(char *blocks[ENTRIES])
{
    for (int i = 0; i < ENTRIES; i++) assert_ok(weir_free(blocks[i]));
}

static void assert_planned(const sample *s, char *blocks[ENTRIES])
{
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(blocks[i] - blocks[0], s->entries[i].offset);
}

static int64_t segments_of(weir_mempool pool)
{
    return pool_stats(pool).segment[WEIR_STAT_ALL].current;
}

static int64_t reserved_of(weir_mempool pool)
{
    return pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current;
}

/* Captures the plan's blocks, and frees them. */
static weir_graph capture(char *blocks[ENTRIES])
{
    weir_graph graph = begin_on(origin);
    take_all(blocks);
    for (int i = 0; i < ENTRIES; i++) assert_ok(weir_fill(blocks[i], (unsigned char)i, EDGE, origin));
    free_all(blocks);
    assert_ok(weir_graph_end(graph));
    return graph;
}

/* ---- where blocks lie -------------------------------------------------------------------------------------------- */

static void a_capture_lies_as_planned_in_one_segment(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    weir_graph graph = capture(blocks);
    assert_planned(&s, blocks);
    assert_int_equal(segments_of(pool_of(graph)), 1);
    assert_int_equal(reserved_of(pool_of(graph)), pages_of(s.arenas[0].bytes));
    assert_int_equal(pool_stats(pool_of(graph)).plan_served, ENTRIES);
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
    launch_and_wait(graph, origin);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(((unsigned char *)blocks[i])[EDGE - 1], i);
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(reserved_on(0), 0);
}

static void all_requests_but_the_one_that_got_the_segment_are_hits(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    weir_graph graph = capture(blocks);
    assert_int_equal(pool_stats(pool_of(graph)).hits, ENTRIES - 1);
    assert_int_equal(stats_of(0).hits, ENTRIES - 1);
}

static void a_pool_of_the_program_lies_as_planned(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_mempool pool = plain_pool();
    serve(&s);
    for (int i = 0; i < ENTRIES; i++) blocks[i] = take_from(pool, bytes_of(i));
    assert_planned(&s, blocks);
    free_all(blocks);
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(reserved_on(0), 0);
}

/* Places of blocks that never live together overlap: freed places are given out again as planned. */
static void freed_places_are_given_out_again(void **state)
{
    (void)state;
    sample s = make_plan(1);
    s.entries[2] = (weir_plan_entry){ MIB / 2, 3 * MIB / 2, WEIR_PLAN_FOREVER, 0 };
    s.entries[1] = (weir_plan_entry){ MIB / 2, MIB, 0, 0 };
    serve(&s);
    weir_graph graph = begin_on(origin);
    char *first = alloc_on(s.entries[0].bytes, origin), *second = alloc_on(MIB, origin);
    assert_ok(weir_free(second));
    assert_ptr_equal(second, first + MIB / 2);
    char *third = alloc_on(s.entries[2].bytes, origin);
    assert_ptr_equal(third, second);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(first));
    assert_ok(weir_free(third));
    assert_ok(weir_graph_destroy(graph));
}

static void a_place_in_use_is_not_given_out(void **state)
{
    (void)state;
    sample s = make_plan(1);
    s.entries[3].offset = s.entries[2].offset; /* a plan that is wrong */
    serve(&s);
    weir_graph graph = begin_on(origin);
    char *blocks[ENTRIES];
    take_all(blocks);
    for (int i = 0; i < ENTRIES; i++)
        for (int k = 0; k < i; k++)
            assert_true(blocks[i] + bytes_of(i) <= blocks[k] || blocks[k] + bytes_of(k) <= blocks[i]);
    assert_int_equal(pool_stats(pool_of(graph)).plan_late, 1);
    assert_int_equal(pool_stats(pool_of(graph)).plan_served, ENTRIES - 1);
    assert_ok(weir_graph_end(graph));
    free_all(blocks);
    assert_ok(weir_graph_destroy(graph));
}

static void serve_two_blocks_at_one_place(void)
{
    sample s = make_plan(1);
    for (int i = 0; i < 2; i++) s.entries[i] = (weir_plan_entry){ 0, 3 * MIB, 0, 0 };
    serve(&s);
}

static char *free_after_use_on(weir_stream side)
{
    char *block = alloc_on(3 * MIB, origin);
    assert_ok(weir_fill(block, 1, EDGE, origin));
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_fill(block, 2, EDGE, side));
    assert_ok(weir_free(block));
    return block;
}

static void a_place_that_another_stream_of_the_capture_uses_is_not_given_out(void **state)
{
    (void)state;
    weir_stream side = new_stream(0);
    serve_two_blocks_at_one_place();
    weir_graph graph = begin_on(origin);
    char *block = free_after_use_on(side), *other = alloc_on(3 * MIB, origin);
    assert_true(other + 3 * MIB <= block || block + 3 * MIB <= other);
    assert_int_equal(stats_of(0).plan_late, 1);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(other));
    assert_ok(weir_graph_destroy(graph));
}

static void a_place_is_given_out_once_the_graph_has_joined_its_streams(void **state)
{
    (void)state;
    weir_stream side = new_stream(0);
    serve_two_blocks_at_one_place();
    weir_graph graph = begin_on(origin);
    char *block = free_after_use_on(side);
    assert_ok(weir_stream_wait(origin, side));
    assert_ptr_equal(alloc_on(3 * MIB, origin), block);
    assert_int_equal(stats_of(0).plan_late, 0);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(graph));
}

static void a_place_given_out_once_the_graph_has_joined_its_streams_is_a_hit(void **state)
{
    (void)state;
    weir_stream side = new_stream(0);
    serve_two_blocks_at_one_place();
    weir_graph graph = begin_on(origin);
    (void)free_after_use_on(side);
    assert_ok(weir_stream_wait(origin, side));
    const uint64_t hits = stats_of(0).hits;
    void *block = alloc_on(3 * MIB, origin);
    assert_int_equal(stats_of(0).hits - hits, 1);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(graph));
}

/* ---- whose an arena is ------------------------------------------------------------------------------------------- */

static void graphs_get_the_arenas_in_their_order(void **state)
{
    (void)state;
    sample s = make_plan(2);
    char *first[ENTRIES], *second[ENTRIES], *third[ENTRIES];
    serve(&s);
    weir_graph graphs[] = { capture(first), capture(second), capture(third) };
    assert_planned(&s, first);
    assert_planned(&s, second);
    assert_int_equal(pool_stats(pool_of(graphs[1])).plan_served, ENTRIES);
    assert_int_equal(pool_stats(pool_of(graphs[2])).plan_served, 0); /* no arena is left for it */
    assert_int_equal(stats_of(0).plan_missed, 0);
    for (int i = 0; i < 3; i++) assert_ok(weir_graph_destroy(graphs[i]));
    assert_int_equal(reserved_on(0), 0);
}

static void a_pool_that_begins_otherwise_gets_none(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_mempool pool = plain_pool();
    serve(&s);
    char *odd = take_from(pool, 3 * MIB);
    char *like = take_from(pool, bytes_of(0)); /* too late: the capture has begun */
    assert_int_equal(pool_stats(pool).plan_served, 0);
    weir_graph graph = capture(blocks);
    assert_planned(&s, blocks);
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_free(odd));
    assert_ok(weir_free(like));
    assert_ok(weir_mempool_unref(pool));
}

static void a_graph_captured_again_is_served_again(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    for (int i = 1; i <= 3; i++) {
        weir_graph graph = capture(blocks);
        assert_planned(&s, blocks);
        assert_ok(weir_graph_destroy(graph));
        assert_int_equal(stats_of(0).plan_served, i * ENTRIES);
    }
}

/* Streams of one pool of the plan are streams of one pool here. */
static void arenas_of_one_pool_go_to_one_pool(void **state)
{
    (void)state;
    sample s = make_plan(2);
    s.arenas[1].pool = 1;
    weir_stream side = new_stream(0);
    weir_mempool one = plain_pool(), other = plain_pool();
    serve(&s);
    char *blocks[] = { take_from(one, bytes_of(0)), take_from(other, bytes_of(0)), NULL };
    void *on_side = NULL;
    assert_ok(weir_alloc_from(one, bytes_of(0), side, &on_side));
    blocks[2] = on_side;
    assert_int_equal(pool_stats(one).plan_served, 2);
    assert_int_equal(pool_stats(other).plan_served, 0);
    assert_int_equal(segments_of(one), 2);
    for (int i = 0; i < 3; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_mempool_unref(one));
    assert_ok(weir_mempool_unref(other));
}

static void an_arena_of_several_streams_is_left_out(void **state)
{
    (void)state;
    sample s = make_plan(2);
    char *blocks[ENTRIES];
    s.arenas[0].streams = 2;
    serve(&s);
    weir_graph graphs[] = { capture(blocks), capture(blocks) };
    assert_int_equal(pool_stats(pool_of(graphs[0])).plan_served, ENTRIES);
    assert_int_equal(pool_stats(pool_of(graphs[1])).plan_served, 0);
    for (int i = 0; i < 2; i++) assert_ok(weir_graph_destroy(graphs[i]));
    s.plan.arena_count = 1;
    assert_status(try_serve(&s), WEIR_ERR_INVALID_ARGUMENT); /* nothing is left of it */
    assert_non_null(strstr(weir_error_text(), "--streams-apart"));
    s.arenas[0].device = 1;
    assert_status(try_serve(&s), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "no arena for device 0"));
}

static void an_impossible_plan_is_refused(void **state)
{
    (void)state;
    sample s = make_plan(2);
    s.entries[ENTRIES].offset = s.arenas[1].bytes;
    assert_status(try_serve(&s), WEIR_ERR_INVALID_ARGUMENT);
}

static void an_arena_larger_than_the_device_is_left_out(void **state)
{
    (void)state;
    sample s = make_plan(2);
    char *blocks[ENTRIES];
    s.arenas[0].bytes = 4096 * MIB;
    serve(&s);
    weir_graph graph = capture(blocks);
    assert_int_equal(pool_stats(pool_of(graph)).plan_served, ENTRIES);
    assert_ok(weir_graph_destroy(graph));
}

static void an_arena_of_another_device_is_left_out(void **state)
{
    (void)state;
    sample s = make_plan(2);
    char *blocks[ENTRIES];
    s.arenas[0].device = 1;
    serve(&s);
    weir_graph graphs[] = { capture(blocks), capture(blocks) };
    assert_int_equal(pool_stats(pool_of(graphs[0])).plan_served, ENTRIES);
    assert_int_equal(pool_stats(pool_of(graphs[1])).plan_served, 0);
    for (int i = 0; i < 2; i++) assert_ok(weir_graph_destroy(graphs[i]));
}

/* In each arena the last block lies elsewhere. */
static void arenas_that_pools_leave_wait_in_their_order(void **state)
{
    (void)state;
    sample s = make_plan(2);
    char *blocks[ENTRIES];
    s.arenas[1].bytes += 32 * MIB;
    s.entries[2 * ENTRIES - 1].offset += 32 * MIB;
    for (int first = 0; first < 2; first++) {
        serve(&s);
        weir_graph graphs[] = { capture(blocks), capture(blocks) };
        assert_ok(weir_graph_destroy(graphs[first]));
        assert_ok(weir_graph_destroy(graphs[1 - first]));
        weir_graph graph = capture(blocks);
        assert_planned(&s, blocks);
        assert_ok(weir_graph_destroy(graph));
    }
}

static void an_arena_that_a_pool_leaves_half_way_begins_anew(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_mempool pool = plain_pool();
    serve(&s);
    for (int i = 0; i < ENTRIES / 2; i++) assert_ok(weir_free(take_from(pool, bytes_of(i))));
    assert_ok(weir_mempool_unref(pool));
    weir_graph graph = capture(blocks);
    assert_planned(&s, blocks);
    assert_int_equal(stats_of(0).plan_resyncs, 0);
    assert_ok(weir_graph_destroy(graph));
}

static void a_pool_has_arenas_of_one_pool_of_the_plan_only(void **state)
{
    (void)state;
    sample s = make_plan(2);
    weir_mempool pool = plain_pool();
    serve(&s);
    (void)take_from(pool, bytes_of(0));
    (void)alloc_from(pool, bytes_of(0), new_stream(0));
    assert_int_equal(stats_of(0).plan_served, 1);
}

static void a_pool_of_an_earlier_plan_keeps_no_arena_of_the_next_from_others(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    (void)take_from(plain_pool(), bytes_of(0));
    serve(&s);
    (void)take_from(plain_pool(), bytes_of(0));
    assert_int_equal(stats_of(0).plan_served, 2);
}

static void a_learned_plan_leaves_the_arenas_of_pools_waiting(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    assert_ok(weir_history_start(4096, 0));
    for (int i = 0; i < 4 * ENTRIES; i++) assert_ok(weir_free(alloc(bytes_of(i % ENTRIES))));
    assert_ok(weir_plan_learn(0));
    weir_memory_stats before = stats_of(0);
    (void)take_from(plain_pool(), bytes_of(0));
    assert_int_equal(stats_of(0).plan_served - before.plan_served, 1);
}

static void a_pool_used_before_is_asked_about_by_the_plan(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    assert_ok(weir_free(take_from(pool, bytes_of(0))));
    assert_ok(weir_mempool_empty_cache(pool));
    serve(&s);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < ENTRIES; i++) assert_ok(weir_free(take_from(pool, bytes_of(i))));
    assert_int_equal(stats_of(0).plan_served, 2 * ENTRIES);
}

/* ---- frozen ------------------------------------------------------------------------------------------------------ */

static void a_capture_goes_on_as_planned_while_plans_come_and_go(void **state)
{
    (void)state;
    sample s = make_plan(1), other = make_plan(2);
    char *blocks[ENTRIES];
    for (int i = 0; i < 2 * ENTRIES; i++) other.entries[i].offset = 0;
    serve(&s);
    weir_graph graph = begin_on(origin);
    for (int i = 0; i < ENTRIES; i++) {
        if (i == 4) assert_ok(weir_plan_serve(0, NULL));
        if (i == 8) serve(&other);
        blocks[i] = alloc_on(bytes_of(i), origin);
    }
    assert_planned(&s, blocks);
    for (int i = 0; i < ENTRIES; i++) assert_ok(weir_fill(blocks[i], (unsigned char)i, EDGE, origin));
    free_all(blocks);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_plan_serve(0, NULL));
    assert_ok(weir_empty_cache(0));
    launch_and_wait(graph, origin);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(((unsigned char *)blocks[i])[EDGE - 1], i);
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(reserved_on(0), 0);
}

/* The pool's arena belongs to a plan that is no longer served, and is reserved for nobody. */
static void a_pools_arena_of_an_earlier_plan_goes_with_the_pool(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    weir_graph graph = capture(blocks);
    assert_ok(weir_plan_serve(0, NULL));
    assert_ok(weir_graph_destroy(graph));
    graph = capture(blocks);
    assert_int_equal(pool_stats(pool_of(graph)).plan_served, 0);
    assert_ok(weir_graph_destroy(graph));
}

static void a_capture_that_shares_the_pool_starts_the_plan_again(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *first[ENTRIES], *second[ENTRIES];
    serve(&s);
    weir_graph one = capture(first);
    weir_graph two = begin_in(origin, pool_of(one));
    take_all(second);
    assert_ok(weir_graph_end(two));
    for (int i = 0; i < ENTRIES; i++) assert_ptr_equal(second[i], first[i]);
    weir_graph three = begin_in(origin, pool_of(one)); /* its planned places are in use */
    take_all(first);
    for (int i = 0; i < ENTRIES; i++) assert_ptr_not_equal(second[i], first[i]);
    assert_ok(weir_graph_end(three));
    free_all(first);
    free_all(second);
    assert_ok(weir_graph_destroy(one));
    assert_ok(weir_graph_destroy(two));
    assert_ok(weir_graph_destroy(three));
    assert_int_equal(reserved_on(0), 0);
}

/* ---- what is not planned ----------------------------------------------------------------------------------------- */

static void unplanned_blocks_leave_the_places_alone(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *odd[2];
    serve(&s);
    weir_graph graph = begin_on(origin);
    for (int i = 0; i < ENTRIES; i++) {
        if (i == 12) odd[0] = alloc_on(100, origin);
        if (i == 14) odd[1] = alloc_on(5 * MIB + 512, origin);
        blocks[i] = alloc_on(bytes_of(i), origin);
    }
    assert_planned(&s, blocks);
    for (int i = 0; i < 2; i++) assert_true(odd[i] < blocks[0] || odd[i] >= blocks[0] + s.arenas[0].bytes);
    assert_int_equal(pool_stats(pool_of(graph)).plan_missed, 2);
    assert_int_equal(segments_of(pool_of(graph)), 3);
    assert_ok(weir_graph_end(graph));
    free_all(blocks);
    for (int i = 0; i < 2; i++) assert_ok(weir_free(odd[i]));
    assert_ok(weir_graph_destroy(graph));
}

/* Little other memory is left, but enough: small blocks are no reason to use the places. */
static void small_blocks_leave_the_places_alone_while_there_is_other_memory(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *odd = NULL, *elsewhere = alloc_on(20 * MIB, origin);
    serve(&s);
    assert_ok(weir_memory_limit_set(0, 128 * MIB));
    weir_graph graph = begin_on(origin);
    for (int i = 0; i < ENTRIES; i++) {
        if (i == 12) odd = alloc_on(100, origin);
        blocks[i] = alloc_on(bytes_of(i), origin);
    }
    assert_planned(&s, blocks);
    assert_true(odd < blocks[0] || odd >= blocks[0] + s.arenas[0].bytes);
    assert_int_equal(pool_stats(pool_of(graph)).plan_late, 0);
    assert_ok(weir_graph_end(graph));
    free_all(blocks);
    assert_ok(weir_free(odd));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_free(elsewhere));
}

/* A program that departs from the plan uses its memory, in pieces of any size. */
static void a_capture_that_departs_from_the_plan_uses_the_segment(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[8];
    serve(&s);
    weir_graph graph = begin_on(origin);
    char *first = alloc_on(bytes_of(0), origin);
    blocks[0] = alloc_on(18 * MIB, origin); /* a single departure may be chance */
    for (int i = 1; i < 8; i++) blocks[i] = alloc_on(i % 2 ? 700 : 9 * MIB, origin);
    for (int i = 1; i < 8; i++) assert_true(blocks[i] > first && blocks[i] < first + s.arenas[0].bytes);
    assert_int_equal(segments_of(pool_of(graph)), 2);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(first));
    for (int i = 0; i < 8; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_graph_destroy(graph));
}

/* Of no planned size. */
static void depart(weir_mempool pool, int requests)
{
    for (int i = 0; i < requests; i++) assert_ok(weir_free(take_from(pool, 9 * MIB)));
}

static void a_pool_that_departed_from_the_plan_is_not_served(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    for (int i = 0; i < 4; i++) (void)take_from(pool, bytes_of(i));
    depart(pool, 20);
    for (int i = 4; i < ENTRIES; i++) (void)take_from(pool, bytes_of(i));
    assert_int_equal(stats_of(0).plan_served, 4);
}

/* Only the segment of the plan serves small blocks as well. */
static void a_pool_that_departed_cuts_small_blocks_from_no_other_large_segment(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    const char *first = take_from(pool, bytes_of(0)), *other = take_from(pool, 100 * MIB);
    (void)take_from(pool, pages_of(s.arenas[0].bytes) - 20 * MIB);
    depart(pool, 20);
    assert_ok(weir_free((void *)other));
    (void)take_from(pool, 90 * MIB);
    const char *small = take_from(pool, 700);
    assert_true(small > first && small < first + pages_of(s.arenas[0].bytes));
}

/* Unplanned blocks in planned places are better than an error. */
static void places_serve_everything_when_memory_is_short(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    weir_graph graph = begin_on(origin);
    for (int i = 0; i < 12; i++) blocks[i] = alloc_on(bytes_of(i), origin);
    assert_ok(weir_memory_limit_set(0, pages_of(s.arenas[0].bytes)));
    char *odd = alloc_on(5 * MIB + 512, origin), *small = alloc_on(100, origin);
    assert_true(odd > blocks[11] && odd < blocks[0] + s.arenas[0].bytes);
    assert_true(small > blocks[11] && small < blocks[0] + s.arenas[0].bytes);
    assert_int_equal(segments_of(pool_of(graph)), 1);
    assert_ok(weir_graph_end(graph));
    for (int i = 0; i < 12; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_free(odd));
    assert_ok(weir_free(small));
    assert_ok(weir_graph_destroy(graph));
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void without_memory_for_the_segment_a_capture_is_served_without_the_plan(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    weir_graph graph = begin_on(origin);
    char *block = alloc_on(bytes_of(0), origin);
    assert_int_equal(pool_stats(pool_of(graph)).plan_served, 0);
    assert_int_equal(pool_stats(pool_of(graph)).plan_late, 1);
    assert_int_equal(reserved_of(pool_of(graph)), 2 * MIB);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(graph));
}

static void a_segment_without_memory_is_soon_not_asked_for_any_more(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    for (int i = 0; i < ENTRIES / 2; i++) assert_ok(weir_free(take_from(pool, bytes_of(i))));
    assert_int_equal(pool_stats(pool).plan_late, 2);
}

static void *take_first(void *pool)
{
    return take_from(*(weir_mempool *)pool, bytes_of(0));
}

static void a_segment_that_is_being_asked_for_is_not_asked_for_again(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    pthread_t thread;
    serve(&s);
    start_slowly(&thread, take_first, &pool, WEIR_BACKEND_segment_alloc);
    (void)take_from(pool, bytes_of(1));
    pthread_join(thread, NULL);
    assert_in_range(reserved_of(pool), pages_of(s.arenas[0].bytes), pages_of(s.arenas[0].bytes) + 20 * MIB);
}

static void *take_from_one_that_goes(void *pool)
{
    void *none = NULL;
    assert_int_not_equal(weir_alloc_from(*(weir_mempool *)pool, bytes_of(0), origin, &none), WEIR_OK);
    return NULL;
}

static void an_arena_whose_pool_goes_before_it_has_the_segment_waits_again(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    char *blocks[ENTRIES];
    pthread_t thread;
    serve(&s);
    start_slowly(&thread, take_from_one_that_goes, &pool, WEIR_BACKEND_segment_alloc);
    assert_ok(weir_mempool_unref(pool));
    pthread_join(thread, NULL);
    weir_graph graph = capture(blocks);
    assert_planned(&s, blocks);
    assert_ok(weir_graph_destroy(graph));
}

/* The plan goes, too, so that nothing is left of the arena. */
static void an_arena_may_go_while_its_segment_is_asked_for(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    pthread_t thread;
    serve(&s);
    start_slowly(&thread, take_from_one_that_goes, &pool, WEIR_BACKEND_segment_alloc);
    assert_ok(weir_plan_serve(0, NULL));
    assert_ok(weir_mempool_unref(pool));
    pthread_join(thread, NULL);
    assert_int_equal(stats_of(0).plan_served, 0);
}

/* Idle memory of other pools would go anyway, for the capture's own segments. */
static void idle_memory_goes_for_the_segment(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    assert_ok(weir_memory_limit_set(0, pages_of(s.arenas[0].bytes) + 30 * MIB));
    char *in_use = alloc(20 * MIB), *idle = alloc(60 * MIB);
    assert_ok(weir_free(idle));
    weir_graph graph = capture(blocks);
    assert_planned(&s, blocks);
    assert_int_equal(segments_of(pool_of(graph)), 1);
    assert_ok(weir_free(in_use));
    assert_ok(weir_graph_destroy(graph));
}

static void a_cap_is_kept(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.cap = 40 * MIB;
    weir_mempool pool = make_pool(options);
    serve(&s);
    char *block = take_from(pool, bytes_of(0));
    assert_int_equal(reserved_of(pool), 2 * MIB);
    weir_mempool other = plain_pool(); /* the plan is left to a pool that may have it */
    char *planned = take_from(other, bytes_of(0));
    assert_int_equal(reserved_of(other), pages_of(s.arenas[0].bytes));
    assert_ok(weir_free(planned));
    assert_ok(weir_mempool_unref(other));
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void a_cap_as_large_as_the_segment_is_enough(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.cap = pages_of(s.arenas[0].bytes);
    serve(&s);
    (void)take_from(make_pool(options), bytes_of(0));
    assert_int_equal(stats_of(0).plan_served, 1);
}

static void a_pool_of_the_plans_alignment_is_served(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.alignment = WEIR_PLAN_ALIGNMENT;
    serve(&s);
    (void)take_from(make_pool(options), bytes_of(0));
    assert_int_equal(stats_of(0).plan_served, 1);
}

static void places_found_again_are_counted(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    for (int i = 0; i < ENTRIES; i++) {
        if (i == 4) assert_int_equal(pool_stats(pool).plan_resyncs, 0);
        if (i == 4) i = 9; /* the program leaves some out */
        (void)take_from(pool, bytes_of(i));
    }
    assert_int_equal(pool_stats(pool).plan_resyncs, 1);
    assert_int_equal(stats_of(0).plan_resyncs, 1);
}

static void pools_with_other_rules_are_not_served(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool_options rules[4];
    for (int i = 0; i < 4; i++) rules[i] = pool_options(WEIR_MEMORY_DEVICE, "");
    rules[0].alignment = 1024;
    rules[1].no_split = true;
    rules[2].deterministic = true;
    rules[3].memory = WEIR_MEMORY_EXPORTABLE;
    serve(&s);
    for (int i = 0; i < 4; i++) {
        weir_mempool pool = make_pool(rules[i]);
        char *block = take_from(pool, bytes_of(0));
        assert_int_equal(reserved_of(pool), 2 * MIB);
        assert_ok(weir_free(block));
        assert_ok(weir_mempool_unref(pool));
    }
    assert_int_equal(stats_of(0).plan_served, 0);
}

typedef struct own_memory {
    size_t asked;
    bool refuses;
    int segments;
} own_memory;

static weir_status give_own(void *user, size_t bytes, int device, void *native, void **base)
{
    own_memory *own = user;
    (void)device, (void)native;
    own->asked = bytes;
    if (own->refuses && bytes > 20 * MIB) return WEIR_ERR_OUT_OF_MEMORY;
    own->segments++;
    *base = aligned_alloc(2 * MIB, bytes);
    return *base ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status take_own_back(void *user, void *base, size_t bytes, int device, void *native)
{
    (void)bytes, (void)device, (void)native;
    ((own_memory *)user)->segments--;
    free(base);
    return WEIR_OK;
}

static void the_programs_source_gives_the_segment(void **state)
{
    (void)state;
    for (int refuses = 0; refuses < 2; refuses++) {
        sample s = make_plan(1);
        own_memory own = { .refuses = refuses };
        const weir_segment_source source = { give_own, take_own_back, NULL, &own };
        weir_mempool pool = make_pool_from(&source);
        serve(&s);
        char *block = take_from(pool, bytes_of(0));
        assert_int_equal(pool_stats(pool).plan_served, refuses ? 0 : 1);
        assert_int_equal(own.asked, refuses ? 2 * MIB : pages_of(s.arenas[0].bytes));
        assert_int_equal(own.segments, 1);
        assert_ok(weir_free(block));
        assert_ok(weir_mempool_unref(pool));
        assert_int_equal(own.segments, 0);
    }
}

static void a_paused_pool_comes_back_as_planned(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "");
    weir_mempool pool = make_pool(options);
    serve(&s);
    for (int i = 0; i < 8; i++) {
        blocks[i] = take_from(pool, bytes_of(i));
        memset(blocks[i], i, EDGE);
    }
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP));
    void *none = NULL;
    assert_status(weir_alloc_from(pool, bytes_of(8), origin, &none), WEIR_ERR_BUSY);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_resume(0, NULL));
    for (int i = 8; i < ENTRIES; i++) blocks[i] = take_from(pool, bytes_of(i));
    assert_planned(&s, blocks);
    for (int i = 0; i < 8; i++) assert_int_equal(blocks[i][EDGE - 1], i);
    free_all(blocks);
    assert_ok(weir_mempool_unref(pool));
}

static void an_arena_whose_pool_is_paused_before_it_has_the_segment_may_have_it_later(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    char *blocks[ENTRIES];
    pthread_t thread;
    serve(&s);
    start_slowly(&thread, take_from_one_that_goes, &pool, WEIR_BACKEND_vm_create);
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_KEEP));
    pthread_join(thread, NULL);
    assert_ok(weir_resume(0, NULL));
    for (int i = 0; i < ENTRIES; i++) blocks[i] = take_from(pool, bytes_of(i));
    assert_planned(&s, blocks);
    free_all(blocks);
    assert_ok(weir_mempool_unref(pool));
}

/* ---- the segment goes -------------------------------------------------------------------------------------------- */

static void a_pool_that_was_emptied_begins_again(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_mempool pool = plain_pool();
    serve(&s);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < ENTRIES; i++) blocks[i] = take_from(pool, bytes_of(i));
        assert_planned(&s, blocks);
        free_all(blocks);
        assert_ok(weir_mempool_empty_cache(pool));
        assert_int_equal(reserved_on(0), 0);
    }
    assert_ok(weir_mempool_unref(pool));
}

static void a_segment_that_goes_is_not_asked_for_again_while_the_stream_holds_others(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    char *block = take_from(pool, bytes_of(0)), *other = take_from(pool, 100 * MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_empty_cache(pool));
    assert_int_equal(reserved_of(pool), 100 * MIB);
    (void)take_from(pool, bytes_of(1));
    assert_in_range(reserved_of(pool), 100 * MIB, 120 * MIB);
    assert_ok(weir_free(other));
}

static void a_stream_with_the_record_of_one_that_ended_has_no_arena_of_it(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    for (int i = 0; i < 4; i++) assert_ok(weir_free(take_from(pool, bytes_of(i))));
    assert_ok(weir_stream_destroy(origin));
    origin = new_stream(0);
    for (int i = 4; i < ENTRIES; i++) (void)take_from(pool, bytes_of(i));
    assert_int_equal(stats_of(0).plan_served, 4);
}

static void a_stream_that_ends_leaves_the_segment_to_the_default_one(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = plain_pool();
    serve(&s);
    char *block = take_from(pool, bytes_of(0));
    assert_ok(weir_stream_destroy(origin));
    origin = new_stream(0);
    char *later = take_from(pool, bytes_of(1)); /* of another stream, whatever number it has */
    assert_false(later > block && later < block + s.arenas[0].bytes);
    void *heirs = NULL;
    assert_ok(weir_alloc_from(pool, 9 * MIB, default_stream(0), &heirs));
    assert_true((char *)heirs > block && (char *)heirs < block + s.arenas[0].bytes);
    assert_ok(weir_free(heirs));
    assert_ok(weir_free(block));
    assert_ok(weir_free(later));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(reserved_on(0), 0);
}

#define SUBPLAN_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SUBPLAN_TEST(a_capture_lies_as_planned_in_one_segment),
        SUBPLAN_TEST(all_requests_but_the_one_that_got_the_segment_are_hits),
        SUBPLAN_TEST(a_pool_of_the_program_lies_as_planned),
        SUBPLAN_TEST(freed_places_are_given_out_again),
        SUBPLAN_TEST(a_place_in_use_is_not_given_out),
        SUBPLAN_TEST(a_place_that_another_stream_of_the_capture_uses_is_not_given_out),
        SUBPLAN_TEST(a_place_is_given_out_once_the_graph_has_joined_its_streams),
        SUBPLAN_TEST(a_place_given_out_once_the_graph_has_joined_its_streams_is_a_hit),
        SUBPLAN_TEST(graphs_get_the_arenas_in_their_order),
        SUBPLAN_TEST(a_pool_that_begins_otherwise_gets_none),
        SUBPLAN_TEST(a_graph_captured_again_is_served_again),
        SUBPLAN_TEST(arenas_of_one_pool_go_to_one_pool),
        SUBPLAN_TEST(an_arena_of_several_streams_is_left_out),
        SUBPLAN_TEST(an_impossible_plan_is_refused),
        SUBPLAN_TEST(a_segment_that_goes_is_not_asked_for_again_while_the_stream_holds_others),
        SUBPLAN_TEST(a_stream_with_the_record_of_one_that_ended_has_no_arena_of_it),
        SUBPLAN_TEST(a_cap_as_large_as_the_segment_is_enough),
        SUBPLAN_TEST(a_pool_of_the_plans_alignment_is_served),
        SUBPLAN_TEST(a_segment_without_memory_is_soon_not_asked_for_any_more),
        SUBPLAN_TEST(a_segment_that_is_being_asked_for_is_not_asked_for_again),
        SUBPLAN_TEST(an_arena_whose_pool_goes_before_it_has_the_segment_waits_again),
        SUBPLAN_TEST(an_arena_may_go_while_its_segment_is_asked_for),
        SUBPLAN_TEST(a_pool_that_departed_from_the_plan_is_not_served),
        SUBPLAN_TEST(a_pool_that_departed_cuts_small_blocks_from_no_other_large_segment),
        SUBPLAN_TEST(an_arena_larger_than_the_device_is_left_out),
        SUBPLAN_TEST(an_arena_of_another_device_is_left_out),
        SUBPLAN_TEST(arenas_that_pools_leave_wait_in_their_order),
        SUBPLAN_TEST(an_arena_that_a_pool_leaves_half_way_begins_anew),
        SUBPLAN_TEST(a_pool_has_arenas_of_one_pool_of_the_plan_only),
        SUBPLAN_TEST(a_pool_of_an_earlier_plan_keeps_no_arena_of_the_next_from_others),
        SUBPLAN_TEST(a_learned_plan_leaves_the_arenas_of_pools_waiting),
        SUBPLAN_TEST(a_pool_used_before_is_asked_about_by_the_plan),
        SUBPLAN_TEST(a_capture_goes_on_as_planned_while_plans_come_and_go),
        SUBPLAN_TEST(a_pools_arena_of_an_earlier_plan_goes_with_the_pool),
        SUBPLAN_TEST(a_capture_that_shares_the_pool_starts_the_plan_again),
        SUBPLAN_TEST(unplanned_blocks_leave_the_places_alone),
        SUBPLAN_TEST(small_blocks_leave_the_places_alone_while_there_is_other_memory),
        SUBPLAN_TEST(a_capture_that_departs_from_the_plan_uses_the_segment),
        SUBPLAN_TEST(places_serve_everything_when_memory_is_short),
        SUBPLAN_TEST(without_memory_for_the_segment_a_capture_is_served_without_the_plan),
        SUBPLAN_TEST(idle_memory_goes_for_the_segment),
        SUBPLAN_TEST(a_cap_is_kept),
        SUBPLAN_TEST(places_found_again_are_counted),
        SUBPLAN_TEST(pools_with_other_rules_are_not_served),
        SUBPLAN_TEST(the_programs_source_gives_the_segment),
        SUBPLAN_TEST(a_paused_pool_comes_back_as_planned),
        SUBPLAN_TEST(an_arena_whose_pool_is_paused_before_it_has_the_segment_may_have_it_later),
        SUBPLAN_TEST(a_pool_that_was_emptied_begins_again),
        SUBPLAN_TEST(a_stream_that_ends_leaves_the_segment_to_the_default_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
