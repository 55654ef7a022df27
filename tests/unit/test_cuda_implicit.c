/*
 * Library handles and the default stream while a stream that synchronises with it captures: nothing may be queued on
 * the default stream then, and nothing queued there becomes part of a graph.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/cuda_support.h"

static weir_stream standard, blocking, other;
static CUstream native;

static int open_with_cublas(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    use_standin(CUDA_STANDIN);
    setenv("WEIR_LIB_CUBLAS", WEIR_TEST_STANDINS "/libcublas.so", 1);
    assert_ok(weir_open(&settings));
    assert_ok(weir_device_set_current(0));
    driver_ok(wr_cu.cuStreamCreateWithPriority(&native, 0, 0));
    assert_ok(weir_stream_from_native(0, native, &blocking));
    assert_ok(weir_stream_default(0, &standard));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &other));
    return 0;
}

static int close_with_cublas(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return 0;
}

static void begin(void)
{
    driver_ok(wr_cu.cuStreamBeginCapture(native, WR_CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* The capture went on all the while. */
static void end(void)
{
    CUgraph graph = NULL;
    driver_ok(wr_cu.cuStreamEndCapture(native, &graph));
    driver_ok(wr_cu.cuGraphDestroy(graph));
}

static weir_status get_on(weir_stream stream)
{
    void *handle = NULL;
    return weir_handle_get_on(WEIR_CUBLAS, stream, &handle);
}

static void a_workspace_of_the_default_stream_is_in_no_graph(void **state)
{
    (void)state;
    uint64_t destroyed = 0;
    weir_memory_stats stats = { .size = sizeof stats };
    begin();
    assert_ok(get_on(standard));
    end();
    assert_ok(weir_stats_get(0, &stats));
    assert_true(stats.allocated_bytes[WEIR_STAT_ALL].current > 0);
    assert_ok(weir_handle_release(WEIR_CUBLAS, 0));
    assert_ok(weir_handles_trim(WEIR_CUBLAS, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_ALL].current, 0);
}

static void a_handle_stays_on_the_default_stream_until_the_capture_has_ended(void **state)
{
    (void)state;
    assert_ok(get_on(standard));
    begin();
    assert_int_equal(get_on(other), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "default stream"));
    assert_ok(get_on(standard));
    end();
    const unsigned long waits = standin_calls("cuStreamWaitEvent");
    assert_ok(get_on(other));
    assert_int_equal(standin_calls("cuStreamWaitEvent"), waits + 1);
}

static void a_handle_does_not_come_to_the_default_stream_beside_a_capture(void **state)
{
    (void)state;
    assert_ok(get_on(other));
    begin();
    assert_int_equal(get_on(standard), WEIR_ERR_CAPTURE);
    end();
    assert_ok(get_on(standard));
}

/* docs/handles.md: during a capture of either stream the program orders them. */
static void a_handle_goes_from_the_default_stream_into_the_capture(void **state)
{
    (void)state;
    assert_ok(get_on(standard));
    begin();
    assert_ok(get_on(blocking));
    end();
}

/* A free has made its stream wait for another, so the stream is to end behind the default one, or with no work. Neither
 * that nor the stream itself may be asked just then. */
static void a_stream_ends_beside_the_capture(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_stream third;
    void *block = NULL;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    const weir_graph_options adopt = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph graph;
    options.device = 0;
    options.deterministic = true;
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &third));
    assert_ok(weir_mempool_create(&options, &pool));
    assert_ok(weir_alloc_from(pool, 4096, other, &block));
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_free(block));
    driver_ok(wr_cu.cuStreamBeginCapture(native, WR_CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_ok(weir_graph_adopt(blocking, &adopt, &graph));
    assert_ok(weir_stream_destroy(other)); /* would not return */
    end();
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
}

/* Either would end the capture, whoever the other stream is. */
static void the_default_stream_neither_waits_nor_is_waited_for_beside_a_capture(void **state)
{
    (void)state;
    begin();
    assert_int_equal(weir_stream_wait(blocking, standard), WEIR_ERR_CAPTURE);
    assert_int_equal(weir_stream_wait(other, standard), WEIR_ERR_CAPTURE);
    assert_int_equal(weir_stream_wait(standard, blocking), WEIR_ERR_CAPTURE);
    assert_int_equal(weir_stream_wait(standard, other), WEIR_ERR_CAPTURE);
    end();
    assert_ok(weir_stream_wait(other, standard));
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_with_cublas, close_with_cublas)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_workspace_of_the_default_stream_is_in_no_graph),
        test(a_handle_stays_on_the_default_stream_until_the_capture_has_ended),
        test(a_handle_does_not_come_to_the_default_stream_beside_a_capture),
        test(a_handle_goes_from_the_default_stream_into_the_capture),
        test(a_stream_ends_beside_the_capture),
        test(the_default_stream_neither_waits_nor_is_waited_for_beside_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
