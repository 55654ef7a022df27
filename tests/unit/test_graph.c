/*
 * What graphs keep alive and release, from beginning to end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "graph_scene.h"
#include "thread_support.h"

#include <pthread.h>
#include <string.h>

/* ---- running ----------------------------------------------------------------------------------------------------- */

static void every_launch_reads_the_current_contents(void **state)
{
    (void)state;
    unsigned char *in = alloc_on(MIB, origin), *out = alloc_on(MIB, origin);
    weir_graph g = begin_on(origin);
    void *scratch = alloc_on(MIB, origin);
    assert_ok(weir_copy(scratch, in, MIB, origin));
    assert_ok(weir_copy(out, scratch, MIB, origin));
    assert_ok(weir_free(scratch));
    assert_ok(weir_graph_end(g));
    for (int i = 1; i < 4; i++) {
        assert_ok(weir_fill(in, (unsigned char)i, MIB, origin));
        launch_and_wait(g, origin);
        assert_int_equal(out[MIB - 1], i);
    }
    assert_int_equal(calls_of(WEIR_BACKEND_graph_instantiate), 1);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(in));
    assert_ok(weir_free(out));
    expect_nothing_left();
}

static void idle_memory_goes_where_the_driver_has_none_for_a_launch(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on(40 * MIB, origin)));
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_host_fail(WEIR_BACKEND_graph_instantiate, 1, WEIR_ERR_OUT_OF_MEMORY));
    launch_and_wait(g, origin);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_graph_destroy(g));
}

static void a_result_is_usable_after_the_graph_is_gone(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    unsigned char *result = alloc_on(3 * MIB, origin);
    weir_mempool pool = pool_of(g);
    assert_ok(weir_fill(result, 9, 3 * MIB, origin));
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(result[3 * MIB - 1], 9);
    assert_true(reserved_on(0) > 0);
    assert_ok(weir_free(result));
    expect_nothing_left();
    assert_status(weir_mempool_ref(pool), WEIR_ERR_POOL_MISMATCH);
}

static void free_memory_of_a_graph_is_kept_until_it_goes(void **state)
{
    (void)state;
    void *block = NULL;
    weir_graph g = begin_on(origin);
    void *scratch = alloc_on(100 * MIB, origin);
    assert_ok(weir_fill(scratch, 4, 100 * MIB, origin));
    assert_ok(weir_free(scratch));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 100 * MIB);
    assert_status(weir_mempool_empty_cache(pool_of(g)), WEIR_ERR_BUSY);
    assert_status(weir_alloc_on(200 * MIB, origin, &block), WEIR_ERR_OUT_OF_MEMORY);
    launch_and_wait(g, side);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_alloc_on(200 * MIB, origin, &block));
    assert_ok(weir_free(block));
    expect_nothing_left();
}

static void a_graph_goes_with_what_the_driver_has_of_it(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(calls_of(WEIR_BACKEND_graph_exec_destroy), 1);
    assert_int_equal(calls_of(WEIR_BACKEND_graph_destroy), 1);
}

static void a_graph_may_be_captured_again_after_another_is_gone(void **state)
{
    (void)state;
    void *first = NULL;
    for (int i = 0; i < 3; i++) {
        weir_graph g = begin_on(origin);
        void *block = alloc_on(MIB, origin);
        if (!first) first = block;
        assert_ptr_equal(block, first); /* the memory went back and came again */
        assert_ok(weir_fill(block, (unsigned char)i, 16, origin));
        assert_ok(weir_free(block));
        assert_ok(weir_graph_end(g));
        launch_and_wait(g, origin);
        assert_ok(weir_graph_destroy(g));
    }
    expect_nothing_left();
}

static void a_graph_launched_inside_a_capture_is_needed_by_the_outer_one(void **state)
{
    (void)state;
    weir_graph inner = begin_on(origin);
    unsigned char *block = alloc_on(MIB, origin);
    assert_ok(weir_fill(block, 6, MIB, origin));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(inner));
    weir_graph outer = begin_on(side);
    assert_ok(weir_graph_launch(inner, side));
    assert_ok(weir_graph_end(outer));
    assert_ok(weir_graph_destroy(inner));
    assert_ok(weir_empty_cache(0));
    launch_and_wait(outer, side);
    assert_int_equal(block[0], 6);
    assert_ok(weir_graph_destroy(outer));
    expect_nothing_left();
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static void two_graphs_share_a_pool_and_its_memory(void **state)
{
    (void)state;
    weir_graph one = begin_on(origin);
    void *scratch = alloc_on(50 * MIB, origin);
    assert_ok(weir_free(scratch));
    assert_ok(weir_graph_end(one));
    weir_mempool pool = pool_of(one);
    weir_graph two = begin_in(origin, pool);
    assert_ptr_equal(alloc_on(50 * MIB, origin), scratch);
    assert_ok(weir_free(scratch));
    assert_ok(weir_graph_end(two));
    assert_int_equal(pool_info(pool).graphs, 2);
    assert_ok(weir_graph_destroy(one));
    assert_int_equal(pool_info(pool).graphs, 1);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 50 * MIB);
    assert_ok(weir_graph_destroy(two));
    expect_nothing_left();
}

static void a_reserved_id_becomes_a_pool_with_the_first_capture_that_names_it(void **state)
{
    (void)state;
    weir_mempool id;
    assert_ok(weir_mempool_reserve(&id));
    assert_status(weir_mempool_ref(id), WEIR_ERR_POOL_MISMATCH);
    weir_graph one = begin_in(origin, id);
    assert_true(SAME_POOL(pool_of(one), id));
    assert_ok(weir_graph_end(one));
    weir_graph two = begin_in(side, id);
    assert_int_equal(pool_info(id).graphs, 2);
    assert_int_equal(pool_info(id).references, 2);
    assert_ok(weir_graph_end(two));
    assert_ok(weir_graph_destroy(one));
    assert_ok(weir_graph_destroy(two));
    assert_status(weir_mempool_ref(id), WEIR_ERR_POOL_MISMATCH);
}

static void a_capture_that_does_not_begin_leaves_a_reserved_id_as_it_was(void **state)
{
    (void)state;
    weir_mempool id;
    weir_graph none;
    assert_ok(weir_mempool_reserve(&id));
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_begin, 1, WEIR_ERR_DRIVER));
    assert_status(try_begin(origin, id, &none), WEIR_ERR_DRIVER);
    weir_graph g = begin_in(origin, id);
    assert_true(SAME_POOL(pool_of(g), id));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_status(weir_mempool_ref(id), WEIR_ERR_POOL_MISMATCH);
    assert_status(try_begin(origin, id, &none), WEIR_ERR_POOL_MISMATCH);
}

static void a_reserved_id_can_be_given_back_after_a_capture_that_did_not_begin(void **state)
{
    (void)state;
    weir_mempool id;
    weir_graph none;
    assert_ok(weir_mempool_reserve(&id));
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_begin, 1, WEIR_ERR_DRIVER));
    assert_status(try_begin(origin, id, &none), WEIR_ERR_DRIVER);
    assert_ok(weir_mempool_unref(id));
    assert_status(try_begin(origin, id, &none), WEIR_ERR_POOL_MISMATCH);
}

static void a_capture_that_does_not_begin_leaves_no_record(void **state)
{
    (void)state;
    weir_graph none;
    uint64_t before = 0;
    for (int i = 0; i < 10; i++) {
        assert_ok(weir_host_fail(WEIR_BACKEND_capture_begin, 1, WEIR_ERR_DRIVER));
        assert_status(try_begin(origin, (weir_mempool){ 0, 0 }, &none), WEIR_ERR_DRIVER);
        if (i == 0) before = wr_meta_live(); /* tables are made */
    }
    assert_int_equal(wr_meta_live(), before);
}

static void a_pool_of_a_user_outlives_its_last_reference_while_a_graph_uses_it(void **state)
{
    (void)state;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    weir_graph g = begin_in(origin, pool);
    void *block = alloc_on(MIB, origin);
    assert_true(SAME_POOL(info_of(block).pool, pool));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_fill(block, 1, 1, origin));
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(g));
    expect_nothing_left();
}

static void a_pool_of_another_device_is_refused(void **state)
{
    (void)state;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    weir_graph g = { 77 };
    options.device = 1;
    assert_ok(weir_mempool_create(&options, &pool));
    assert_status(try_begin(origin, pool, &g), WEIR_ERR_WRONG_DEVICE);
    assert_int_equal(g.id, 77);
    assert_int_equal(pool_info(pool).references, 1);
    assert_ok(weir_mempool_unref(pool));
    assert_status(try_begin(origin, pool, &g), WEIR_ERR_POOL_MISMATCH);
}

static void a_retained_pool_stays_as_long_as_the_graph(void **state)
{
    (void)state;
    const weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    const weir_mempool during = make_pool(options), after = make_pool(options);
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_retain_pool(g, during));
    assert_ok(weir_graph_retain_pool(g, during)); /* once is enough */
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_retain_pool(g, after));
    assert_ok(weir_mempool_unref(during));
    assert_ok(weir_mempool_unref(after));
    assert_int_equal(pool_info(during).references, 1);
    assert_int_equal(pool_info(after).references, 1);
    assert_ok(weir_graph_destroy(g));
    assert_status(weir_mempool_ref(during), WEIR_ERR_POOL_MISMATCH);
    assert_status(weir_mempool_ref(after), WEIR_ERR_POOL_MISMATCH);
}

static void a_pool_that_is_not_there_cannot_be_retained(void **state)
{
    (void)state;
    const weir_mempool gone = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    weir_mempool reserved;
    assert_ok(weir_mempool_unref(gone));
    assert_ok(weir_mempool_reserve(&reserved));
    weir_graph g = begin_on(origin);
    assert_status(weir_graph_retain_pool(g, gone), WEIR_ERR_POOL_MISMATCH);
    assert_status(weir_graph_retain_pool(g, reserved), WEIR_ERR_POOL_MISMATCH);
    assert_non_null(strstr(weir_error_text(), "does not exist yet"));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void the_default_pool_cannot_be_retained(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_status(weir_graph_retain_pool(g, (weir_mempool){ 0, 0 }), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "private pool"));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

static void an_invalidated_capture_gives_an_empty_graph(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    void *block = alloc_on(MIB, origin), *native = &native, *executable = &executable;
    assert_status(b->stream_query(0, native_of(origin)), WEIR_ERR_CAPTURE);
    assert_status(weir_graph_end(g), WEIR_ERR_CAPTURE);
    assert_status(weir_graph_launch(g, origin), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "its capture failed"));
    assert_status(weir_graph_end(g), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_graph_native(g, &native, &executable));
    assert_null(native);
    assert_null(executable);
    void *eager = alloc_on(MIB, origin);
    assert_int_equal(info_of(eager).pool.capture, 0);
    assert_ok(weir_free(eager));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(block));
    expect_nothing_left();
}

/* A capture whose work on another stream has not come back. */
static weir_graph begin_unjoined(void)
{
    weir_graph g = begin_on(origin);
    void *block = alloc_on(MIB, origin);
    assert_ok(weir_stream_wait(side, origin));
    assert_ok(weir_record_stream(block, side));
    assert_ok(weir_fill(block, 1, 1, side));
    assert_ok(weir_free(block));
    return g;
}

static void unjoined_work_gives_an_empty_graph(void **state)
{
    (void)state;
    weir_graph g = begin_unjoined();
    assert_status(weir_graph_end(g), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_destroy(g));
    expect_nothing_left();
}

static void an_abandoned_capture_leaves_nothing_behind(void **state)
{
    (void)state;
    weir_graph g = begin_unjoined();
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_stream_synchronize(origin));
    assert_ok(weir_stream_query(side));
    assert_status(weir_graph_end(g), WEIR_ERR_INVALID_ARGUMENT);
    expect_nothing_left();
    assert_ok(weir_stream_destroy(side));
}

/* The failure may be that of an earlier call, which the query reports. */
static void the_driver_is_asked_again_after_a_failed_query_of_a_capture(void **state)
{
    (void)state;
    weir_graph g = begin_unjoined();
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_stream_synchronize(origin));
    expect_nothing_left();
}

/* The capture may go on, and would do so for ever if nobody could end it any more. */
static void a_capture_whose_query_fails_can_be_ended_later(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    for (uint64_t i = 1; i <= 2; i++) assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, i, WEIR_ERR_DRIVER));
    assert_status(weir_graph_end(g), WEIR_ERR_DRIVER);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_ok(weir_graph_destroy(g));
    g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

/* What the driver said of the end is what the program is told. */
static void a_capture_that_does_not_end_nor_says_whether_it_goes_on_can_be_ended_later(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_end, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 2, WEIR_ERR_DRIVER)); /* the first is before the end */
    assert_status(weir_graph_end(g), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "capture_end"));
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    assert_ok(weir_graph_destroy(g));
}

static void an_adopted_capture_whose_query_fails_stays_known(void **state)
{
    (void)state;
    weir_graph g = { 0 };
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_status(weir_graph_end(g), WEIR_ERR_DRIVER);
    void *block = alloc_on(MIB, origin);
    assert_true(SAME_POOL(info_of(block).pool, pool_of(g)));
    assert_ok(weir_free(block));
    end_natively(native_of(origin));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void the_captures_of_a_lost_device_are_over(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_host_lose_device(0));
    assert_status(weir_graph_end(g), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_graph_end(g), WEIR_ERR_INVALID_ARGUMENT);
}

static int close_lost(void **state)
{
    (void)state;
    (void)weir_close();
    assert_int_equal(wr_meta_live(), 1); /* what the library knows of this thread */
    return 0;
}

static void *begin_globally(void *graph)
{
    assert_ok(try_begin(origin, (weir_mempool){ 0, 0 }, graph));
    return NULL;
}

static void a_capture_of_a_thread_that_is_gone_holds_no_memory_of_weirs(void **state)
{
    (void)state;
    weir_graph g;
    (void)in_a_thread(begin_globally, &g);
    void *block = alloc_on(MIB, origin);
    assert_status(weir_graph_end(g), WEIR_ERR_WRONG_THREAD); /* the driver's rule; the capture goes on */
    assert_ok(weir_free(block));
    assert_status(weir_graph_destroy(g), WEIR_ERR_WRONG_THREAD);
    assert_status(weir_graph_destroy(g), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(stats_of(0).allocated_bytes[WEIR_STAT_ALL].current, 0);
    weir_graph next = begin_on(side); /* other captures are not disturbed */
    assert_ok(weir_graph_end(next));
    assert_ok(weir_graph_destroy(next));
}

static void *destroy_elsewhere(void *graph)
{
    assert_status(weir_graph_destroy(*(weir_graph *)graph), WEIR_ERR_WRONG_THREAD);
    return NULL;
}

static void a_thread_that_may_not_end_a_capture_does_not_destroy_its_graph(void **state)
{
    (void)state;
    weir_graph g;
    (void)begin_globally(&g);
    void *block = alloc_on(MIB, origin);
    (void)in_a_thread(destroy_elsewhere, &g);
    void *after = alloc_on(MIB, origin);
    assert_true(info_of(after).pool.capture != 0); /* the capture goes on */
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_free(block));
    assert_ok(weir_free(after));
    assert_ok(weir_stream_synchronize(origin));
}

static void *capture_and_end(void *unused)
{
    (void)unused;
    weir_graph g;
    assert_ok(try_begin(side, (weir_mempool){ 0, 0 }, &g));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    return NULL;
}

static void a_thread_that_ends_leaves_the_captures_of_others_to_them(void **state)
{
    (void)state;
    weir_graph g;
    (void)begin_globally(&g);
    (void)in_a_thread(capture_and_end, NULL);
    (void)in_a_thread(destroy_elsewhere, &g);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static int close_with_a_capture_of_another_thread(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    weir_status status = weir_close();
    return (status == WEIR_ERR_CAPTURE && wr_meta_live() < before) ? 0 : -1;
}

static void a_capture_ended_without_weir_is_over(void **state)
{
    (void)state;
    void *native = NULL;
    weir_graph g = begin_on(origin);
    assert_ok(b->capture_end(0, native_of(origin), &native));
    assert_status(weir_graph_end(g), WEIR_ERR_CAPTURE);
    assert_ok(b->graph_destroy(0, native));
    assert_ok(weir_graph_destroy(g));
}

/* The program ended the capture, and has begun another one there. */
static weir_graph begin_and_begin_another(bool adopt)
{
    weir_graph g = { 0 };
    if (adopt) {
        assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
        assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    } else {
        g = begin_on(origin);
    }
    end_natively(native_of(origin));
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    return g;
}

static void another_capture_on_its_stream_is_not_ended_with_a_graph(void **state)
{
    (void)state;
    weir_graph g = begin_and_begin_another(false);
    assert_status(weir_graph_end(g), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_destroy(g));
    end_natively(native_of(origin)); /* it went on */
}

static void an_adopted_capture_is_over_though_another_has_begun_on_its_stream(void **state)
{
    (void)state;
    weir_graph g = begin_and_begin_another(true);
    assert_ok(weir_graph_end(g));
    end_natively(native_of(origin));
    assert_ok(weir_graph_destroy(g));
}

static void beginning_where_a_capture_is_underway_is_refused(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin), other = { 77 };
    assert_status(try_begin(origin, (weir_mempool){ 0, 0 }, &other), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "weir_graph_adopt()"));
    assert_int_equal(other.id, 77);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void a_captured_stream_is_not_told_to_wait_for_work_outside(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_status(weir_stream_wait(origin, side), WEIR_ERR_CAPTURE);
    assert_status(weir_stream_wait(origin, default_stream(1)), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "cannot wait for the default stream"));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_stream_wait(origin, side));
}

static void default_streams_are_not_told_to_wait_for_a_captured_one(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    for (int device = 0; device < 2; device++) {
        assert_status(weir_stream_wait(default_stream(device), origin), WEIR_ERR_CAPTURE);
        assert_ptr_equal(strstr(weir_error_text(), "weir_stream_wait: "), weir_error_text());
    }
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, side);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_stream_wait(default_stream(0), origin));
}

static void streams_of_two_captures_are_not_told_to_wait_for_each_other(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin), other = begin_on(side);
    assert_status(weir_stream_wait(side, origin), WEIR_ERR_CAPTURE);
    assert_status(weir_stream_wait(origin, side), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_end(other));
    assert_ok(weir_stream_wait(side, origin)); /* joins the capture */
    assert_ok(weir_stream_wait(origin, side));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_graph_destroy(other));
}

static void the_default_stream_and_bad_options_are_refused(void **state)
{
    (void)state;
    weir_graph g = { 77 };
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    assert_status(weir_graph_begin(default_stream(0), &options, &g), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_begin(origin, NULL, &g), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_begin(origin, &options, NULL), WEIR_ERR_INVALID_ARGUMENT);
    const int none = 9;
    memcpy(&options.mode, &none, sizeof options.mode);
    assert_status(weir_graph_begin(origin, &options, &g), WEIR_ERR_INVALID_ARGUMENT);
    options = (weir_graph_options){ .size = 1 };
    assert_status(weir_graph_begin(origin, &options, &g), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(g.id, 77);
}

static void a_graph_is_launched_on_its_own_device_only_and_after_its_end(void **state)
{
    (void)state;
    weir_stream far = new_stream(1);
    weir_graph g = begin_on(origin);
    assert_status(weir_graph_launch(g, side), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_graph_end(g));
    assert_status(weir_graph_launch(g, far), WEIR_ERR_WRONG_DEVICE);
    launch_and_wait(g, side);
    assert_ok(weir_graph_destroy(g));
}

static void stale_ids_are_refused(void **state)
{
    (void)state;
    weir_mempool pool;
    void *native, *executable;
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    weir_graph next = begin_on(origin); /* in the same place */
    assert_int_not_equal(g.id, next.id);
    assert_status(weir_graph_end(g), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_launch(g, origin), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_destroy(g), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_pool(g, &pool), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_native(g, &native, &executable), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_destroy((weir_graph){ 0 }), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_destroy((weir_graph){ UINT64_MAX }), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_graph_destroy(next));
}

/* Each part of an id alone may be one that exists. */
static void ids_that_were_never_given_are_refused(void **state)
{
    (void)state;
    void *pinned = NULL;
    enum { INDEX_BITS = 20, SERIAL_AT = 28, DEVICES = 64 };
    weir_graph g = begin_on(origin);
    assert_ok(weir_pinned_alloc(4096, WEIR_NUMA_ANY, &pinned)); /* what lies behind the table of devices exists */
    const uint64_t serial = g.id >> SERIAL_AT << SERIAL_AT;
    assert_status(weir_graph_destroy((weir_graph){ serial | ((1 << INDEX_BITS) - 1) }), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_destroy((weir_graph){ serial | 1 << INDEX_BITS }), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_destroy((weir_graph){ serial | DEVICES << INDEX_BITS }), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_pinned_free(pinned));
}

static void a_paused_pool_makes_a_launch_wait(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    device_0()->cache.pools->next->paused = true;
    assert_status(weir_graph_launch(g, origin), WEIR_ERR_BUSY);
    device_0()->cache.pools->next->paused = false;
    launch_and_wait(g, origin);
    assert_ok(weir_graph_destroy(g));
}

static int close_with_graphs_alive(void **state)
{
    (void)state;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph underway, captured = begin_on(side);
    alloc_on(MIB, side);
    assert_ok(weir_graph_end(captured));
    launch_and_wait(captured, side);
    assert_ok(weir_graph_begin(origin, &options, &underway));
    alloc_on(MIB, origin);
    assert_ok(weir_close());
    assert_status(weir_graph_destroy(captured), WEIR_ERR_CLOSED);
    return 0;
}

static void graphs_alive_are_ended_by_close(void **state)
{
    const uint64_t before = wr_meta_live();
    assert_ok(weir_close());
    const uint64_t closed = wr_meta_live();
    assert_true(closed < before);
    open_scene(state);
    assert_int_equal(close_with_graphs_alive(state), 0);
    assert_int_equal(wr_meta_live(), closed);
    open_scene(state);
}

static void close_reports_a_graph_that_the_driver_does_not_destroy(void **state)
{
    assert_ok(weir_graph_end(begin_on(origin)));
    assert_ok(weir_host_fail(WEIR_BACKEND_graph_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(weir_close(), WEIR_ERR_DRIVER);
    open_scene(state);
}

static void close_reports_a_capture_that_the_driver_does_not_end(void **state)
{
    (void)begin_on(origin);
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_end, 1, WEIR_ERR_DRIVER));
    assert_status(weir_close(), WEIR_ERR_DRIVER);
    open_scene(state);
}

static void close_waits_for_launches_before_it_takes_their_memory(void **state)
{
    weir_graph g = begin_on(origin);
    void *block = alloc_on(8 * MIB, origin);
    assert_ok(weir_fill(block, 1, 8 * MIB, origin));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_host_stream_hold(0, native_of(side)));
    assert_ok(weir_graph_launch(g, side));
    assert_ok(weir_close()); /* runs the launch, which writes there */
    open_scene(state);
}

/* ---- at the same time -------------------------------------------------------------------------------------------- */

typedef struct launcher {
    pthread_t thread;
    weir_graph graph;
    weir_stream stream;
    weir_mempool pool;
    weir_status last;
} launcher;

/* Launches until the graph is gone. */
static void *launch_often(void *argument)
{
    launcher *l = argument;
    do {
        l->last = weir_graph_launch(l->graph, l->stream);
        if (l->last == WEIR_OK) l->last = weir_stream_synchronize(l->stream);
        if (l->last == WEIR_OK) l->last = weir_graph_retain_pool(l->graph, l->pool);
    } while (l->last == WEIR_OK);
    return NULL;
}

static void a_graph_destroyed_while_other_threads_use_it_is_gone_for_them(void **state)
{
    (void)state;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    for (int i = 0; i < 50; i++) {
        launcher all[3];
        weir_graph g = begin_on(origin);
        void *block = alloc_on(MIB, origin);
        assert_ok(weir_fill(block, 1, 64, origin));
        assert_ok(weir_free(block));
        assert_ok(weir_graph_end(g));
        for (int t = 0; t < 3; t++) {
            all[t] = (launcher){ .graph = g, .stream = new_stream(0), .pool = pool };
            assert_int_equal(pthread_create(&all[t].thread, NULL, launch_often, &all[t]), 0);
        }
        assert_ok(weir_graph_destroy(g));
        for (int t = 0; t < 3; t++) {
            pthread_join(all[t].thread, NULL);
            assert_int_equal(all[t].last, WEIR_ERR_INVALID_ARGUMENT);
            assert_ok(weir_stream_destroy(all[t].stream));
        }
        assert_int_equal(pool_info(pool).references, 1);
    }
    assert_ok(weir_mempool_unref(pool));
    expect_nothing_left();
}

typedef struct namer {
    pthread_t thread;
    pthread_barrier_t *together;
    weir_stream stream;
    weir_mempool pool;
    weir_graph graph;
    weir_status status;
} namer;

static void *name_a_pool(void *argument)
{
    namer *n = argument;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = n->pool;
    options.mode = WEIR_CAPTURE_RELAXED;
    pthread_barrier_wait(n->together);
    n->status = weir_graph_begin(n->stream, &options, &n->graph);
    return NULL;
}

static void of_captures_that_name_an_id_first_one_makes_the_pool(void **state)
{
    (void)state;
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, 3);
    weir_stream streams[] = { origin, side, new_stream(1) };
    for (int i = 0; i < 100; i++) {
        namer all[3];
        weir_mempool id;
        assert_ok(weir_mempool_reserve(&id));
        for (int t = 0; t < 3; t++) {
            all[t] = (namer){ .together = &together, .stream = streams[t], .pool = id };
            assert_int_equal(pthread_create(&all[t].thread, NULL, name_a_pool, &all[t]), 0);
        }
        for (int t = 0; t < 3; t++) pthread_join(all[t].thread, NULL);
        const int device = pool_info(id).device;
        for (int t = 0; t < 3; t++) {
            const bool there = device_of(streams[t]) == device;
            assert_int_equal(all[t].status, there ? WEIR_OK : WEIR_ERR_WRONG_DEVICE);
            if (there) assert_ok(weir_graph_destroy(all[t].graph));
        }
    }
    pthread_barrier_destroy(&together);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(every_launch_reads_the_current_contents),
        on_device(idle_memory_goes_where_the_driver_has_none_for_a_launch),
        on_device(a_result_is_usable_after_the_graph_is_gone),
        on_device(free_memory_of_a_graph_is_kept_until_it_goes),
        on_device(a_graph_goes_with_what_the_driver_has_of_it),
        on_device(a_graph_may_be_captured_again_after_another_is_gone),
        on_device(a_graph_launched_inside_a_capture_is_needed_by_the_outer_one),
        on_device(two_graphs_share_a_pool_and_its_memory),
        on_device(a_reserved_id_becomes_a_pool_with_the_first_capture_that_names_it),
        on_device(a_capture_that_does_not_begin_leaves_a_reserved_id_as_it_was),
        on_device(a_reserved_id_can_be_given_back_after_a_capture_that_did_not_begin),
        on_device(a_capture_that_does_not_begin_leaves_no_record),
        on_device(a_pool_of_a_user_outlives_its_last_reference_while_a_graph_uses_it),
        on_device(a_pool_of_another_device_is_refused),
        on_device(a_retained_pool_stays_as_long_as_the_graph),
        on_device(a_pool_that_is_not_there_cannot_be_retained),
        on_device(the_default_pool_cannot_be_retained),
        on_device(an_invalidated_capture_gives_an_empty_graph),
        on_device(unjoined_work_gives_an_empty_graph),
        on_device(an_abandoned_capture_leaves_nothing_behind),
        on_device(the_driver_is_asked_again_after_a_failed_query_of_a_capture),
        on_device(a_capture_whose_query_fails_can_be_ended_later),
        on_device(a_capture_that_does_not_end_nor_says_whether_it_goes_on_can_be_ended_later),
        on_device(an_adopted_capture_whose_query_fails_stays_known),
        cmocka_unit_test_setup_teardown(the_captures_of_a_lost_device_are_over, open_scene, close_lost),
        cmocka_unit_test_setup_teardown(a_capture_of_a_thread_that_is_gone_holds_no_memory_of_weirs, open_scene,
                                        close_with_a_capture_of_another_thread),
        on_device(a_thread_that_may_not_end_a_capture_does_not_destroy_its_graph),
        on_device(a_thread_that_ends_leaves_the_captures_of_others_to_them),
        on_device(a_capture_ended_without_weir_is_over),
        on_device(another_capture_on_its_stream_is_not_ended_with_a_graph),
        on_device(an_adopted_capture_is_over_though_another_has_begun_on_its_stream),
        on_device(beginning_where_a_capture_is_underway_is_refused),
        on_device(a_captured_stream_is_not_told_to_wait_for_work_outside),
        on_device(default_streams_are_not_told_to_wait_for_a_captured_one),
        on_device(streams_of_two_captures_are_not_told_to_wait_for_each_other),
        on_device(the_default_stream_and_bad_options_are_refused),
        on_device(a_graph_is_launched_on_its_own_device_only_and_after_its_end),
        on_device(stale_ids_are_refused),
        on_device(ids_that_were_never_given_are_refused),
        on_device(a_paused_pool_makes_a_launch_wait),
        on_device(graphs_alive_are_ended_by_close),
        on_device(close_reports_a_graph_that_the_driver_does_not_destroy),
        on_device(close_reports_a_capture_that_the_driver_does_not_end),
        on_device(close_waits_for_launches_before_it_takes_their_memory),
        on_device(a_graph_destroyed_while_other_threads_use_it_is_gone_for_them),
        on_device(of_captures_that_name_an_id_first_one_makes_the_pool),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
