/*
 * The word `streams` of the option `debug`: uses of memory on streams that it is not ordered with, and the right programs
 * beside each, about which nothing is said.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "device/runtime.h"
#include "host_support.h"
#include "log_support.h"

#include <pthread.h>
#include <stdio.h>

static weir_stream home, other, third;
static unsigned char host[4096];

static void open_streams(const char *words)
{
    open_host((weir_settings){ .host_devices = 2, .host_memory = 256 * MIB, .debug = words });
    home = new_stream(0);
    other = new_stream(0);
    third = new_stream(0);
    begin_log();
}

static int open_them(void **state)
{
    (void)state;
    open_streams("streams");
    return 0;
}

static uint64_t misuses(void)
{
    return stats_of(0).stream_misuses;
}

/* What was said since the beginning of the test. */
static const char *said(void)
{
    const char *text = end_log();
    begin_log();
    return text;
}

static void expect_silence(void)
{
    assert_int_equal(misuses(), 0);
    assert_string_equal(said(), "");
}

/* One line with all of these, and the stacks. */
static void expect_said(const char *first, const char *second, const char *third_part)
{
    const char *text = said();
    const char *parts[] = { first, second, third_part, "\nweir: " };
    for (int i = 0; i < 4; i++)
        if (!strstr(text, parts[i])) fail_msg("\"%s\" is not in: %s", parts[i], text);
    assert_int_equal(misuses(), 1);
}

static int close_them(void **state)
{
    end_log();
    return close_host(state);
}

static void use(const void *block, weir_stream stream)
{
    assert_ok(weir_copy(host, block, 64, stream));
}

/* ---- a use that is not recorded --------------------------------------------------------------------------------------- */

static void a_use_that_was_not_recorded_is_told_when_the_block_is_freed(void **state)
{
    (void)state;
    char streams[2][64];
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_int_equal(misuses(), 0);
    assert_ok(weir_free(block));
    snprintf(streams[0], sizeof streams[0], "1000 bytes, of stream %p, was used on stream %p by weir_copy",
             native_of(home), native_of(other));
    const char *text = said();
    assert_non_null(strstr(text, streams[0]));
    assert_non_null(strstr(text, "Call weir_record_stream() before weir_free()"));
    static const char *const calls[] = { "error: allocated by thread", "error: used by thread",
                                         "error: freed by thread" };
    for (int i = 0; i < 3; i++) assert_non_null(strstr(text, calls[i]));
    assert_non_null(strstr(text, "unit_debug_streams"));
    assert_int_equal(misuses(), 1);
}

static void a_use_that_was_recorded_is_right(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_record_stream(block, other)); /* before or after the use */
    use(block, other);
    assert_ok(weir_free(block));
    expect_silence();
}

static void recording_another_stream_does_not_help(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_record_stream(block, home));
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
}

static void a_stream_that_waits_for_the_use_needs_no_record(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_stream_wait(home, other));
    assert_ok(weir_free(block));
    expect_silence();
}

static void waiting_before_the_use_does_not_help(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_stream_wait(home, other));
    use(block, other);
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
}

static void waiting_by_way_of_a_third_stream_is_waiting(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_stream_wait(third, other));
    assert_ok(weir_stream_wait(home, third));
    assert_ok(weir_free(block));
    expect_silence();
}

static void the_wrong_way_round_it_is_not(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_stream_wait(home, third));
    assert_ok(weir_stream_wait(third, other));
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
}

/* The host has waited: for the stream, for the device, by asking; and a stream that ends is waited for. */
static void what_the_host_has_waited_for_is_over(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        void *block = alloc_on(1000, home);
        weir_stream stream = new_stream(0);
        assert_ok(weir_stream_wait(stream, home));
        use(block, stream);
        if (way == 0) assert_ok(weir_stream_synchronize(stream));
        if (way == 1) assert_ok(weir_device_synchronize(0));
        while (way == 2 && weir_stream_query(stream) != WEIR_OK) continue;
        if (way == 3) assert_ok(weir_stream_destroy(stream));
        assert_ok(weir_free(block));
        if (way != 3) assert_ok(weir_stream_destroy(stream));
    }
    expect_silence();
}

static void the_blocks_own_stream_needs_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        void *block = alloc_on(1000, home);
        assert_ok(weir_fill(block, 1, 1000, home));
        use(block, home);
        assert_ok(weir_free(block));
    }
    expect_silence();
}

static WR_NOINLINE void *one_site(void)
{
    return alloc_on(1000, home);
}

static WR_NOINLINE void free_unrecorded(void *block)
{
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_free(block));
}

static void the_same_two_places_are_told_once_and_counted(void **state)
{
    (void)state;
    void *blocks[5];
    for (int i = 0; i < 5; i++) blocks[i] = one_site();
    free_unrecorded(alloc_on(1000, home));
    assert_non_null(strstr(said(), "not recorded"));
    for (int i = 0; i < 5; i++) {
        free_unrecorded(blocks[i]);
        if (i == 0) assert_non_null(strstr(said(), "not recorded"));
    }
    assert_string_equal(said(), "");
    assert_int_equal(misuses(), 6);
    assert_ok(weir_stats_reset(0));
    assert_int_equal(misuses(), 0);
}

static void streams_of_other_devices_are_streams(void **state)
{
    (void)state;
    weir_stream far = new_stream(1);
    void *block = alloc_on(1000, home), *good = alloc_on(1000, home);
    assert_ok(weir_stream_wait(far, home));
    use(block, far);
    use(good, far);
    assert_ok(weir_record_stream(good, far));
    assert_ok(weir_free(good));
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
    assert_ok(weir_stats_reset(0));
    block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(far, home));
    use(block, far);
    assert_ok(weir_device_synchronize(1));
    assert_ok(weir_free(block));
    expect_silence();
}

/* ---- two uses at the same time ---------------------------------------------------------------------------------------- */

static void writing_on_one_stream_and_reading_on_another_is_told(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    use(block, other);
    assert_int_equal(misuses(), 1);
    const char *text = said();
    assert_non_null(strstr(text, "weir_copy: the block at"));
    assert_non_null(strstr(text, "where weir_fill may still be using it. Call weir_stream_wait()"));
    assert_non_null(strstr(text, "error: used first by thread"));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

static void reading_on_both_is_right(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_stream_wait(third, home));
    use(block, other);
    use(block, third);
    use(block, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_free(block));
    expect_silence();
}

static void a_pointer_into_the_block_is_the_block(void **state)
{
    (void)state;
    char *block = alloc_on(100000, home);
    assert_ok(weir_fill(block + 5000, 1, 1000, home));
    use(block + 90000, other);
    expect_said("weir_copy: the block at", "100000 bytes", "may still be using it");
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

/* The memory is fresh for the program, and not for the stream that had it before. */
static void memory_that_its_stream_may_still_use_is_not_another_streams(void **state)
{
    (void)state;
    for (int right = 1; right >= 0; right--) {
        void *before = alloc_on(1000, home);
        assert_ok(weir_free(before));
        void *block = alloc_on(1000, home);
        assert_ptr_equal(block, before);
        if (right) assert_ok(weir_stream_wait(other, home));
        assert_ok(weir_fill(block, 1, 1000, other));
        assert_ok(weir_record_stream(block, other));
        assert_ok(weir_free(block));
        if (right) expect_silence();
        assert_ok(weir_stream_synchronize(other));
    }
    expect_said("weir_fill: the block at", "where what was there before it may still be using it", "freed before by");
}

/* ---- the current stream ----------------------------------------------------------------------------------------------- */

static void freeing_while_another_stream_is_current_is_suspect(void **state)
{
    (void)state;
    weir_stream_guard guard;
    assert_ok(weir_stream_set_current(home));
    void *block = alloc(1000);
    assert_ok(weir_stream_enter(other, &guard));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_leave(&guard));
    expect_said("warn: weir_free: the block at", "If that stream uses it, call weir_record_stream()", "warn: freed by");
}

static void what_makes_it_unsuspicious(void **state)
{
    (void)state;
    weir_stream_guard guard;
    assert_ok(weir_stream_set_current(home));
    for (int way = 0; way < 5; way++) {
        void *block = way == 0 ? alloc_on(1000, home) : alloc(1000); /* who names streams need not have them current */
        assert_ok(weir_stream_enter(other, &guard));
        if (way == 1) assert_ok(weir_record_stream(block, other));
        if (way == 2) assert_ok(weir_stream_wait(home, other));
        if (way == 3) assert_ok(weir_stream_synchronize(other));
        if (way == 4) assert_ok(weir_stream_leave(&guard)); /* the same is current again */
        assert_ok(weir_free(block));
        if (way != 4) assert_ok(weir_stream_leave(&guard));
    }
    expect_silence();
}

static void *free_it(void *block)
{
    return weir_free(block) == WEIR_OK ? NULL : block;
}

static void a_thread_without_a_current_stream_frees_what_it_likes(void **state)
{
    (void)state;
    pthread_t thread;
    void *failed = NULL;
    assert_ok(weir_stream_set_current(home));
    assert_int_equal(pthread_create(&thread, NULL, free_it, alloc(1000)), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    expect_silence();
}

/* ---- others ----------------------------------------------------------------------------------------------------------- */

static void a_record_that_comes_too_late_tells_who_freed(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_free(block));
    assert_status(weir_record_stream(block, other), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), "\nallocated by thread"));
    assert_non_null(strstr(weir_error_text(), "\nfreed by thread"));
}

static void what_a_graph_orders_is_left_to_it(void **state)
{
    (void)state;
    weir_graph graph;
    weir_graph_options o = WEIR_GRAPH_OPTIONS_INIT;
    assert_ok(weir_graph_begin(home, &o, &graph));
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_stream_wait(home, other));
    assert_ok(weir_free(block));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    expect_silence();
}

static void host_memory_and_memory_of_others_is_not_looked_at(void **state)
{
    (void)state;
    void *pinned = NULL;
    assert_ok(weir_pinned_alloc(4096, WEIR_NUMA_ANY, &pinned));
    assert_ok(weir_copy(pinned, host, 64, home));
    assert_ok(weir_copy(host, pinned, 64, other));
    assert_ok(weir_stream_synchronize(other));
    assert_ok(weir_pinned_free(pinned));
    expect_silence();
}

/* The default stream and a stream of the program's own may wait for each other by themselves. */
static void what_the_driver_may_order_is_not_told(void **state)
{
    (void)state;
    weir_stream named = { 0 };
    void *native = NULL;
    assert_ok(wr_driver(wr_runtime_global.backend, stream_create, 0, 0, &native));
    assert_ok(weir_stream_from_native(0, native, &named));
    void *block = alloc_on(1000, default_stream(0));
    assert_ok(weir_fill(block, 1, 1000, default_stream(0)));
    use(block, named);
    assert_ok(weir_free(block));
    expect_silence();
    assert_ok(weir_stream_destroy(named));
    assert_ok(wr_driver(wr_runtime_global.backend, stream_destroy, 0, native));
}

/* More waits than are remembered: what is not known is not told. */
static void what_is_too_long_ago_is_not_told(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    for (int i = 0; i < 2000; i++) assert_ok(weir_stream_wait(third, home));
    assert_ok(weir_free(block));
    expect_silence();
}

static void without_the_word_nothing_is_said(void **state)
{
    (void)state;
    open_streams("all");
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    use(block, other);
    assert_ok(weir_free(block));
    expect_silence();
}

#define STREAMS(test) cmocka_unit_test_setup_teardown(test, open_them, close_them)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STREAMS(a_use_that_was_not_recorded_is_told_when_the_block_is_freed),
        STREAMS(a_use_that_was_recorded_is_right),
        STREAMS(recording_another_stream_does_not_help),
        STREAMS(a_stream_that_waits_for_the_use_needs_no_record),
        STREAMS(waiting_before_the_use_does_not_help),
        STREAMS(waiting_by_way_of_a_third_stream_is_waiting),
        STREAMS(the_wrong_way_round_it_is_not),
        STREAMS(what_the_host_has_waited_for_is_over),
        STREAMS(the_blocks_own_stream_needs_nothing),
        STREAMS(the_same_two_places_are_told_once_and_counted),
        STREAMS(streams_of_other_devices_are_streams),
        STREAMS(writing_on_one_stream_and_reading_on_another_is_told),
        STREAMS(reading_on_both_is_right),
        STREAMS(a_pointer_into_the_block_is_the_block),
        STREAMS(memory_that_its_stream_may_still_use_is_not_another_streams),
        STREAMS(freeing_while_another_stream_is_current_is_suspect),
        STREAMS(what_makes_it_unsuspicious),
        STREAMS(a_thread_without_a_current_stream_frees_what_it_likes),
        STREAMS(a_record_that_comes_too_late_tells_who_freed),
        STREAMS(what_a_graph_orders_is_left_to_it),
        STREAMS(host_memory_and_memory_of_others_is_not_looked_at),
        STREAMS(what_the_driver_may_order_is_not_told),
        STREAMS(what_is_too_long_ago_is_not_told),
        cmocka_unit_test_teardown(without_the_word_nothing_is_said, close_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
