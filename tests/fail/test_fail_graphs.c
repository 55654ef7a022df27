/*
 * A capture from its beginning to the end of its graph, run for every n with the n-th driver call failing, then with
 * the n-th allocation of weir's own records failing. After each run, whatever its state, everything can be freed, the
 * next capture works, and closing leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/meta.h"
#include "fail_support.h"
#include "graph_support.h"
#include "handle_support.h"

enum { BLOCKS = 4 };

typedef struct scene {
    weir_stream origin, side;
    weir_graph graph, inner;
    void *blocks[BLOCKS];
} scene;

/* Failures are expected here; the checks come afterwards. */
static bool works(weir_status status)
{
    return as_told(status) == WEIR_OK;
}

static library lib = { .name = "graphs that fail" };
static const weir_backend *const b = &wr_backend_host;

static void take(scene *s, int index, size_t bytes, weir_stream stream)
{
    works(weir_alloc_on(bytes, stream, &s->blocks[index]));
}

/* Has no reason to fail. */
static void give(scene *s, int index)
{
    assert_ok(weir_free(s->blocks[index]));
    s->blocks[index] = NULL;
}

static void begin(scene *s, weir_graph *graph)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph made = { 77 };
    if (weir_graph_begin(s->origin, &options, &made) == WEIR_OK)
        *graph = made;
    else
        assert_int_equal(made.id, 77);
}

static void destroy(weir_graph *graph)
{
    if (graph->id == 0) return;
    works(weir_graph_destroy(*graph));
    assert_status(weir_graph_destroy(*graph), WEIR_ERR_INVALID_ARGUMENT); /* gone, whatever the first call returned */
    graph->id = 0;
}

/* A block that the side stream uses, freed before the graph joins the two streams again. */
static void fork_and_join(scene *s)
{
    take(s, 0, 3 * MIB, s->origin);
    if (s->blocks[0]) works(weir_fill(s->blocks[0], 1, 100, s->origin));
    const bool forked = works(weir_stream_wait(s->side, s->origin));
    if (s->blocks[0]) works(weir_record_stream(s->blocks[0], s->side));
    if (s->blocks[0] && forked) works(weir_fill(s->blocks[0], 2, 100, s->side));
    give(s, 0);
    works(weir_stream_wait(s->origin, s->side));
    take(s, 1, 3 * MIB, s->origin);
    if (s->blocks[1]) works(weir_fill(s->blocks[1], 3, 100, s->origin));
    take(s, 2, 12 * MIB, s->side);
    if (s->blocks[2]) works(weir_record_stream(s->blocks[2], s->origin));
    give(s, 2);
}

static void run_scenario(scene *s)
{
    void *handle = NULL;
    begin(s, &s->inner);
    take(s, 3, MIB, s->origin);
    if (s->inner.id) works(weir_graph_end(s->inner));
    begin(s, &s->graph);
    works(weir_handle_get_on(lib.kind, s->origin, &handle));
    fork_and_join(s);
    if (s->inner.id) works(weir_graph_launch(s->inner, s->origin));
    if (s->graph.id && weir_graph_end(s->graph) == WEIR_OK) works(weir_graph_launch(s->graph, s->side));
    destroy(&s->graph);
    begin(s, &s->graph);
    take(s, 0, MIB, s->origin);
    destroy(&s->graph); /* abandoned */
    destroy(&s->inner);
}

static void open_scene(scene *s)
{
    library_start(&lib);
    open_host((weir_settings){ .host_memory = 96 * MIB });
    *s = (scene){ .origin = new_stream(0), .side = new_stream(0) };
}

static void check_aftermath(scene *s)
{
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    destroy(&s->graph);
    destroy(&s->inner);
    end_what_goes_on(b, s->origin);
    for (int i = 0; i < BLOCKS; i++) give(s, i);
    assert_ok(weir_validate(0));
    weir_graph g = begin_on(s->origin);
    get_on(&lib, s->origin);
    unsigned char *block = alloc_on(MIB, s->origin);
    assert_ok(weir_fill(block, 7, MIB, s->origin));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, s->origin);
    assert_int_equal(block[MIB - 1], 7);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_handle_release(lib.kind, 0));
    trim(&lib, 0);
    assert_int_equal(numbers_of(&lib, 0).live, 0); /* no graph holds one any more */
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
    library_end(&lib);
}

static void play(failing *f)
{
    const uint64_t before = wr_meta_live();
    scene s;
    open_scene(&s);
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s);
    assert_records_but_pages(before, f);
}

static void every_driver_call_may_fail(weir_status failure)
{
    fail_each_call(play, failure, NULL, 60);
}

static void every_driver_call_may_break(void **state)
{
    (void)state;
    every_driver_call_may_fail(WEIR_ERR_DRIVER);
}

static void play_with_clean_up(failing *f)
{
    scene s;
    open_scene(&s);
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    destroy(&s.graph);
    destroy(&s.inner);
    end_what_goes_on(b, s.origin);
    for (int i = 0; i < BLOCKS; i++) give(&s, i);
    assert_ok(weir_close());
    library_end(&lib);
}

static void every_driver_call_may_break_and_its_clean_up_too(void **state)
{
    fail_each_call_and_its_clean_up(play_with_clean_up, *state, 60);
}

static void every_driver_call_may_run_out_of_memory(void **state)
{
    (void)state;
    every_driver_call_may_fail(WEIR_ERR_OUT_OF_MEMORY);
}

static void every_driver_call_may_say_that_a_capture_forbids_it(void **state)
{
    (void)state;
    every_driver_call_may_fail(WEIR_ERR_CAPTURE);
}

static void every_record_may_be_refused(void **state)
{
    fail_each_record(play, *state, 20);
}

/* The main thread's own context and the first ids of pools are made once and stay. */
static int warm_up(void **state)
{
    (void)state;
    library_register(&lib, 0);
    library_works_in_memory_of_weirs(&lib);
    scene s;
    open_scene(&s);
    run_scenario(&s);
    check_aftermath(&s);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TEST(every_driver_call_may_break),
        FAIL_TEST(every_driver_call_may_break_and_its_clean_up_too),
        FAIL_TEST(every_driver_call_may_run_out_of_memory),
        FAIL_TEST(every_driver_call_may_say_that_a_capture_forbids_it),
        FAIL_TEST(every_record_may_be_refused),
    };
    return cmocka_run_group_tests_name("graphs that fail", tests, warm_up, NULL);
}
