/*
 * Memory that a graph uses is not handed out elsewhere, and weir's own driver calls do not disturb captures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/capture.h"
#include "device/graph.h"
#include "device_support.h"
#include "graph_support.h"
#include "stream/event.h"

static int open_small_split(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB, .max_split_size = 24 * MIB });
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Captures a graph that fills a block and frees it again. */
static weir_graph capture_a_fill(weir_stream stream, weir_mempool pool, size_t bytes)
{
    weir_graph graph = begin_in(stream, pool);
    void *inside = alloc_on(bytes, stream);
    assert_ok(weir_fill(inside, 1, bytes, stream));
    assert_ok(weir_free(inside));
    assert_ok(weir_graph_end(graph));
    return graph;
}

static void what_a_graph_has_freed_is_not_given_back(weir_stream stream, size_t bytes, weir_stream other)
{
    void *none = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    weir_graph graph = capture_a_fill(stream, pool, bytes);
    const int64_t reserved = pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current;
    assert_status(weir_alloc_from(pool, 48 * MIB, other, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current, reserved);
    launch_and_wait(graph, stream);
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_alloc_from(pool, 48 * MIB, other, &none)); /* no graph holds it any more */
}

static void a_request_of_the_graphs_own_pool_gets_no_memory_that_it_uses(void **state)
{
    (void)state;
    what_a_graph_has_freed_is_not_given_back(new_stream(0), 24 * MIB, new_stream(0));
}

static void an_oversize_segment_that_the_graph_uses_stays(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    what_a_graph_has_freed_is_not_given_back(stream, 30 * MIB, stream);
}

static void a_pool_that_a_graph_holds_lends_nothing(void **state)
{
    (void)state;
    void *block = NULL;
    weir_stream stream = new_stream(0);
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.use_on_oom = true;
    weir_graph graph = capture_a_fill(stream, make_pool(options), 48 * MIB);
    assert_status(weir_alloc_on(40 * MIB, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(stats_of(0).lent, 0);
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_alloc_on(40 * MIB, stream, &block));
    assert_int_equal(stats_of(0).lent, 1);
}

/* The allocating thread had found the capture before it ended. */
static void memory_allocated_after_the_end_of_a_capture_is_not_kept(void **state)
{
    (void)state;
    wr_capture *capture = NULL;
    wr_mempool *found = NULL;
    wr_mempool_name name;
    weir_stream stream = new_stream(0);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    weir_graph graph = begin_on(stream);
    assert_ok(wr_capture_of(device_0(), native_of(stream), &capture));
    assert_non_null(capture);
    assert_ok(weir_graph_end(graph));
    assert_ok(wr_mempool_find(pool, &name, &found));
    assert_ok(wr_capture_keep(capture, wr_keep_pool(found, name)));
    assert_int_equal(pool_info(pool).graphs, 0);
    wr_capture_unref(capture);
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(pool_info(pool).graphs, 0);
}

enum { MANY = 100000 };

static uint8_t held[MANY];

static weir_status hold_one(void *object, uint64_t name)
{
    (void)name;
    ++*(uint8_t *)object;
    return WEIR_OK;
}

static void let_go_of_one(void *object, uint64_t name)
{
    (void)name;
    --*(uint8_t *)object;
}

static void each_held(uint8_t times)
{
    for (size_t i = 0; i < MANY; i++) assert_int_equal(held[i], times);
}

static void each_of_many_objects_is_kept_once(void **state)
{
    (void)state;
    static const wr_keeper keeper = { hold_one, let_go_of_one };
    wr_keeps keeps = { 0 };
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < MANY; i++) assert_ok(wr_keeps_add(&keeps, (wr_kept){ &keeper, &held[i], 0 }));
    assert_int_equal(keeps.count, MANY);
    each_held(1);
    assert_ok(wr_keeps_add(&keeps, (wr_kept){ &keeper, &held[0], 1 })); /* another that reused its address */
    assert_int_equal(held[0], 2);
    wr_keeps_release(&keeps);
    each_held(0);
}

/* While they are few: then they are compared one by one. */
static void an_object_of_another_name_or_kind_is_another(void **state)
{
    (void)state;
    static const wr_keeper keeper = { hold_one, let_go_of_one }, other = { hold_one, let_go_of_one };
    wr_keeps keeps = { 0 };
    assert_ok(wr_keeps_add(&keeps, (wr_kept){ &keeper, &held[0], 0 }));
    assert_ok(wr_keeps_add(&keeps, (wr_kept){ &keeper, &held[0], 1 }));
    assert_ok(wr_keeps_add(&keeps, (wr_kept){ &other, &held[0], 0 }));
    assert_int_equal(held[0], 3);
    wr_keeps_release(&keeps);
    assert_int_equal(held[0], 0);
}

/* Every launch looks at the pools of its graph, and at nothing else that it keeps. */
static void pools_are_kept_before_all_else(void **state)
{
    (void)state;
    static const wr_keeper keeper = { hold_one, let_go_of_one };
    wr_keeps keeps = { 0 };
    weir_mempool ids[4];
    for (size_t i = 0; i < 4; i++) ids[i] = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 80; i++) {
            wr_mempool *pool = NULL;
            wr_mempool_name name;
            assert_ok(wr_keeps_add(&keeps, (wr_kept){ &keeper, &held[i], 0 }));
            if (i % 20 != 9) continue;
            assert_ok(wr_mempool_find(ids[i / 20], &name, &pool));
            assert_ok(wr_keeps_add(&keeps, wr_keep_pool(pool, name)));
        }
        assert_int_equal(keeps.pools, 4);
        assert_int_equal(keeps.count, 84);
    }
    for (uint32_t i = 0; i < 4; i++) {
        wr_mempool *pool = NULL;
        wr_mempool_name name;
        assert_ok(wr_mempool_find(ids[i], &name, &pool));
        assert_ptr_equal(wr_kept_pool(&keeps.items[i]), pool);
        assert_int_equal(pool_info(ids[i]).graphs, 1);
    }
    wr_keeps_release(&keeps);
    each_held(0);
    assert_int_equal(pool_info(ids[3]).graphs, 0);
}

/* ---- questions to the driver ------------------------------------------------------------------------------------- */

/* The program itself ended the capture before. */
static weir_graph begin_on_a_stream_that_ends(void)
{
    weir_stream stream = new_stream(0);
    weir_graph graph = begin_on(stream);
    end_natively(native_of(stream));
    assert_ok(weir_stream_destroy(stream));
    return graph;
}

static void a_graph_whose_stream_has_ended_is_destroyed_without_asking_it(void **state)
{
    (void)state;
    const weir_graph graph = begin_on_a_stream_that_ends();
    const uint64_t asked = calls_of(WEIR_BACKEND_capture_status);
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(calls_of(WEIR_BACKEND_capture_status), asked);
}

static void a_capture_whose_stream_has_ended_is_not_ended_by_the_driver(void **state)
{
    (void)state;
    const weir_graph graph = begin_on_a_stream_that_ends();
    const uint64_t ends = calls_of(WEIR_BACKEND_capture_end);
    assert_status(weir_graph_end(graph), WEIR_ERR_CAPTURE);
    assert_int_equal(calls_of(WEIR_BACKEND_capture_end), ends);
    assert_ok(weir_graph_destroy(graph));
}

static void no_stream_is_asked_for_its_work_while_captures_are_known(void **state)
{
    (void)state;
    wr_event_pool pool;
    weir_stream origin = new_stream(0), side = new_stream(0);
    wr_events_init(&pool, device_0()->backend, 0);
    weir_graph graph = begin_on(origin);
    const uint64_t asked = calls_of(WEIR_BACKEND_stream_query);
    assert_status(wr_event_ask_stream(&pool, native_of(side), false), WEIR_ERR_NOT_READY);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_query), asked);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(wr_events_release(&pool));
}

static const weir_backend *real;
static weir_stream capturing, joining;

static weir_status record_and_join(int device, void *event, void *native)
{
    weir_status status = real->event_record(device, event, native);
    assert_ok(weir_stream_wait(joining, capturing));
    return status;
}

/* Whoever records an event of the pool finds that its stream has joined a capture meanwhile. */
static weir_graph begin_for(wr_event_pool *pool, weir_backend *wrapped)
{
    capturing = new_stream(0);
    joining = new_stream(0);
    real = device_0()->backend;
    *wrapped = *real;
    wrapped->event_record = record_and_join;
    wr_events_init(pool, wrapped, 0);
    return begin_on(capturing);
}

static void end_without_events(wr_event_pool *pool, weir_graph graph)
{
    assert_int_equal(pool->made, 0);
    assert_ok(weir_stream_wait(capturing, joining));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_ok(wr_events_release(pool));
}

static void an_event_of_a_stream_that_joins_a_capture_meanwhile_is_thrown_away(void **state)
{
    (void)state;
    wr_event_pool pool;
    weir_backend wrapped;
    void *event = &pool;
    const weir_graph graph = begin_for(&pool, &wrapped);
    assert_ok(wr_event_behind(&pool, native_of(joining), &event));
    assert_null(event);
    end_without_events(&pool, graph);
}

/* The same of a wait. */
static void the_event_of_a_wait_for_a_stream_that_joins_a_capture_meanwhile_is_thrown_away(void **state)
{
    (void)state;
    wr_event_pool pool;
    weir_backend wrapped;
    bool chained = true;
    wr_stream *to = wr_stream_find(&device_0()->streams, new_stream(0).id);
    const weir_graph graph = begin_for(&pool, &wrapped);
    assert_ok(wr_event_chain_uncaptured(&pool, native_of(joining), to, &chained));
    assert_false(chained);
    end_without_events(&pool, graph);
}

static void an_event_of_a_wait_inside_a_capture_is_not_used_again(void **state)
{
    (void)state;
    weir_stream origin = new_stream(0), side = new_stream(0);
    weir_graph graph = begin_on(origin);
    const uint32_t made = device_0()->events.made;
    assert_ok(weir_stream_wait(side, origin));
    assert_int_equal(device_0()->events.made, made);
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
}

#define KEEPS_TEST(test) cmocka_unit_test_setup_teardown(test, open_small_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEEPS_TEST(a_request_of_the_graphs_own_pool_gets_no_memory_that_it_uses),
        cmocka_unit_test_setup_teardown(an_oversize_segment_that_the_graph_uses_stays, open_small_split, close_host),
        KEEPS_TEST(a_pool_that_a_graph_holds_lends_nothing),
        KEEPS_TEST(memory_allocated_after_the_end_of_a_capture_is_not_kept),
        cmocka_unit_test(each_of_many_objects_is_kept_once),
        cmocka_unit_test(an_object_of_another_name_or_kind_is_another),
        KEEPS_TEST(pools_are_kept_before_all_else),
        KEEPS_TEST(a_graph_whose_stream_has_ended_is_destroyed_without_asking_it),
        KEEPS_TEST(a_capture_whose_stream_has_ended_is_not_ended_by_the_driver),
        KEEPS_TEST(no_stream_is_asked_for_its_work_while_captures_are_known),
        KEEPS_TEST(an_event_of_a_stream_that_joins_a_capture_meanwhile_is_thrown_away),
        KEEPS_TEST(the_event_of_a_wait_for_a_stream_that_joins_a_capture_meanwhile_is_thrown_away),
        KEEPS_TEST(an_event_of_a_wait_inside_a_capture_is_not_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
