/*
 * Graphs beside a served plan: each has its own memory, whatever is planned.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "weir/plan.h"

enum { ENTRIES = 40, EDGE = 4096 };

/* Blocks of 1, 2, 3, ... half MiB, one after another. */
typedef struct sample {
    weir_plan_entry entries[ENTRIES];
    weir_plan_arena arena;
} sample;

static size_t bytes_of(int entry)
{
    return (size_t)(1 + entry) * MIB / 2;
}

static sample make_plan(void)
{
    sample s = { .arena = { .streams = 1, .entries = ENTRIES } };
    for (int i = 0; i < ENTRIES; i++) {
        s.entries[i] = (weir_plan_entry){ s.arena.bytes, bytes_of(i), WEIR_PLAN_FOREVER, 0 };
        s.arena.bytes += bytes_of(i);
    }
    return s;
}

static void serve(const sample *s)
{
    const weir_plan plan = { .arena_count = 1, .entry_count = ENTRIES, .arenas = &s->arena, .entries = s->entries };
    assert_ok(weir_plan_serve(0, &plan));
}

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 2048 * MIB });
    return 0;
}

static bool lies_in(const char *block, const char *from, uint64_t bytes)
{
    return block >= from && block < from + bytes;
}

/* A graph has a pool of its own, which no plan is about. */
static void a_capture_in_the_middle_disturbs_no_plan(void **state)
{
    (void)state;
    const sample s = make_plan();
    char *blocks[ENTRIES];
    weir_stream origin = new_stream(0);
    serve(&s);
    for (int i = 0; i < 10; i++) blocks[i] = alloc_on(bytes_of(i), origin);
    weir_graph graph = begin_on(origin);
    char *captured[10];
    for (int i = 0; i < 10; i++) {
        captured[i] = alloc_on(bytes_of(10 + i), origin); /* of the sizes that the plan expects next */
        assert_ok(weir_fill(captured[i], (unsigned char)i, EDGE, origin));
    }
    assert_ok(weir_graph_end(graph));
    for (int i = 10; i < ENTRIES; i++) blocks[i] = alloc_on(bytes_of(i), origin);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
    for (int i = 0; i < 10; i++) assert_false(lies_in(captured[i], blocks[0], s.arena.bytes));
    assert_int_equal(stats_of(0).plan_missed, 0);
    assert_ok(weir_graph_destroy(graph));
}

/* The graph keeps its addresses until it goes, whatever is planned and served after its capture. */
static void a_graph_keeps_its_addresses_while_plans_come_and_go(void **state)
{
    (void)state;
    const sample s = make_plan();
    char *blocks[ENTRIES];
    weir_stream origin = new_stream(0);
    weir_graph graph = begin_on(origin);
    unsigned char *captured = alloc_on(30 * MIB, origin);
    assert_ok(weir_fill(captured, 77, 30 * MIB, origin));
    assert_ok(weir_free(captured));
    assert_ok(weir_graph_end(graph));
    for (int round = 0; round < 3; round++) {
        serve(&s);
        for (int i = 0; i < ENTRIES; i++) {
            blocks[i] = alloc(bytes_of(i));
            memset(blocks[i], i, EDGE);
        }
        for (int i = 0; i < ENTRIES; i++)
            assert_false(lies_in((char *)captured, blocks[i], bytes_of(i)) ||
                         lies_in(blocks[i], (char *)captured, 30 * MIB));
        launch_and_wait(graph, origin);
        assert_int_equal(captured[30 * MIB - 1], 77);
        for (int i = 0; i < ENTRIES; i++) {
            assert_true(blocks[i][0] == i && blocks[i][EDGE - 1] == i);
            assert_ok(weir_free(blocks[i]));
        }
    }
    assert_ok(weir_graph_destroy(graph));
}

/* Its use would become part of the graph, so nothing can say that it is over before the capture is. */
static void a_place_that_a_capture_uses_is_not_given_out(void **state)
{
    (void)state;
    const sample s = make_plan();
    char *blocks[ENTRIES];
    weir_stream origin = new_stream(0);
    serve(&s);
    for (int i = 0; i < ENTRIES; i++) blocks[i] = alloc(bytes_of(i));
    weir_graph graph = begin_on(origin);
    assert_ok(weir_record_stream(blocks[5], origin));
    for (int i = 0; i < ENTRIES; i++) assert_ok(weir_free(blocks[i]));
    char *again[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) again[i] = alloc_on(bytes_of(i), default_stream(0));
    assert_ptr_equal(again[4], blocks[4]);
    for (int i = 0; i < ENTRIES; i++)
        assert_false(lies_in(blocks[5], again[i], bytes_of(i)) || lies_in(again[i], blocks[5], bytes_of(5)));
    assert_int_equal(stats_of(0).plan_late, 1);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
}

#define SERVE_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVE_TEST(a_capture_in_the_middle_disturbs_no_plan),
        SERVE_TEST(a_graph_keeps_its_addresses_while_plans_come_and_go),
        SERVE_TEST(a_place_that_a_capture_uses_is_not_given_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
