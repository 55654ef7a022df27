/*
 * The word `streams` of the option `debug`: uses of memory on streams that it is not ordered with, each beside a
 * correct program, about which nothing is reported.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/meta.h"
#include "debug_streams_support.h"
#include "device/debug_internal.h"
#include "device/runtime.h"
#include "graph_support.h"
#include "observe/stacks.h"
#include "thread_support.h"

#include <stdio.h>

/* ---- a use that is not recorded ---------------------------------------------------------------------------------- */

static void an_unrecorded_use_is_reported_when_the_block_is_freed(void **state)
{
    (void)state;
    char streams[2][64];
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_int_equal(misuses(), 0);
    assert_ok(weir_free(block));
    snprintf(streams[0], sizeof streams[0], "(1000 bytes, stream %p) was used on stream %p by weir_copy",
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

static void a_recorded_use_is_correct(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_record_stream(block, other)); /* before or after the use */
    use(block, other);
    assert_ok(weir_free(block));
    expect_silence();
}

static void a_record_that_fails_does_not_count(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    wr_meta_fail_nth(1);
    assert_status(weir_record_stream(block, other), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
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

static void waiting_through_a_third_stream_counts(void **state)
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

static void waiting_in_the_wrong_direction_does_not_help(void **state)
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

/* The host has waited: for the stream, for the device, by a query, or by ending the stream. */
static void work_that_the_host_has_waited_for_is_over(void **state)
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

static void copying_to_a_block_and_filling_it_are_uses(void **state)
{
    (void)state;
    void *copied = alloc_on(1000, home), *filled = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_copy(copied, host, 64, other));
    assert_ok(weir_fill(filled, 1, 64, other));
    assert_ok(weir_free(copied));
    assert_int_equal(misuses(), 1);
    assert_ok(weir_free(filled));
    assert_int_equal(misuses(), 2);
}

static void work_that_a_query_finds_is_not_over(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    hold(other);
    use(block, other);
    assert_status(weir_stream_query(other), WEIR_ERR_NOT_READY);
    assert_ok(weir_free(block));
    assert_int_equal(misuses(), 1);
    let_run(other);
}

static void a_wait_for_a_stream_that_fails_does_not_count(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(weir_stream_synchronize(other), WEIR_ERR_DRIVER);
    assert_ok(weir_free(block));
    assert_int_equal(misuses(), 1);
}

/* Ending a stream waits for what that has waited for, too. */
static void what_an_ended_stream_waited_for_is_over(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    use(block, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_stream_destroy(other));
    assert_ok(weir_fill(block, 1, 64, third));
    assert_ok(weir_stream_wait(home, third));
    assert_ok(weir_free(block));
    expect_silence();
}

static void a_wait_counts_while_another_stream_captures(void **state)
{
    (void)state;
    for (int by_host = 0; by_host < 2; by_host++) {
        void *block = alloc_on(1000, home);
        use(block, home);
        weir_graph graph = begin_on(third);
        assert_ok(by_host ? weir_stream_synchronize(home) : weir_stream_wait(other, home));
        assert_ok(weir_graph_end(graph));
        assert_ok(weir_fill(block, 1, 64, other));
        assert_ok(weir_stream_wait(home, other));
        assert_ok(weir_free(block));
        assert_ok(weir_graph_destroy(graph));
    }
    expect_silence();
}

static void a_wait_inside_a_capture_of_two_devices_orders_nothing_outside(void **state)
{
    (void)state;
    weir_graph graph;
    weir_stream neighbour = new_stream(1);
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 64, home));
    assert_ok(try_begin(home, (weir_mempool){ 0, 0 }, &graph));
    assert_ok(weir_stream_wait(neighbour, home));
    assert_ok(weir_stream_wait(home, neighbour));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_fill(block, 2, 64, neighbour));
    assert_int_equal(misuses(), 1);
    assert_ok(weir_graph_destroy(graph));
}

static void many_uses_on_one_stream_hide_none_on_another(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    for (int i = 0; i < 20; i++) use(block, home);
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
}

static void a_read_does_not_hide_the_write_before_it(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_stream_wait(third, home));
    assert_ok(weir_fill(block, 1, 64, other));
    use(block, other);
    use(block, third);
    assert_int_equal(misuses(), 1);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_record_stream(block, third));
    assert_ok(weir_free(block));
}

static void use_here(const void *block)
{
    assert_ok(weir_copy(host, block, 64, other));
}

static void use_there(const void *block)
{
    assert_ok(weir_copy(host, block, 64, third));
}

static WR_NOINLINE void use_unrecorded(void (*place)(const void *))
{
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    assert_ok(weir_stream_wait(third, home));
    place(block);
    assert_ok(weir_free(block));
}

static void two_places_that_use_blocks_of_one_are_both_reported(void **state)
{
    (void)state;
    void (*const places[])(const void *) = { use_here, use_there };
    for (int i = 0; i < 2; i++) {
        use_unrecorded(places[i]);
        assert_non_null(strstr(said(), "was used on stream"));
    }
    assert_int_equal(misuses(), 2);
}

static void memory_that_was_with_the_driver_in_between_is_fresh(void **state)
{
    (void)state;
    void *block = alloc_on(3 * MIB, home);
    assert_ok(weir_fill(block, 1, 64, home));
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    void *again = alloc_on(3 * MIB, home);
    assert_ptr_equal(again, block);
    assert_ok(weir_fill(again, 1, 64, other));
    assert_ok(weir_stream_wait(home, other));
    assert_ok(weir_free(again));
    expect_silence();
}

/* More than can be followed, and more than are remembered: in doubt nothing is reported. */
static void what_many_streams_hide_is_not_reported(void **state)
{
    (void)state;
    enum { MANY = 70 };
    void *block = alloc_on(1000, home);
    for (int i = 0; i < MANY; i++) assert_ok(weir_stream_wait(other, new_stream(0)));
    use(block, other);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    expect_silence();
    block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    for (int i = 0; i < 9; i++) assert_ok(weir_record_stream(block, new_stream(0)));
    assert_ok(weir_free(block));
    expect_silence();
}

static void the_oldest_use_is_forgotten_first(void **state)
{
    (void)state;
    weir_stream users[7]; /* one more than are remembered */
    void *block = alloc_on(1000, home);
    for (int i = 0; i < 7; i++) {
        users[i] = new_stream(0);
        assert_ok(weir_stream_wait(users[i], home));
    }
    for (int i = 0; i < 6; i++) use(block, users[i]);
    use(block, users[0]);
    use(block, users[6]);
    for (int i = 1; i < 7; i++) assert_ok(weir_stream_wait(home, users[i]));
    assert_ok(weir_free(block));
    expect_said("used on stream", "by weir_copy", "not recorded");
}

static void uses_on_the_blocks_own_stream_need_no_record(void **state)
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

static void a_repeated_misuse_is_reported_once_and_counted(void **state)
{
    (void)state;
    void *blocks[5];
    for (volatile int i = 0; i < 5; i++) blocks[i] = one_site(); /* not unrolled: one place */
    free_unrecorded(alloc_on(1000, home));
    assert_non_null(strstr(said(), "not recorded"));
    for (volatile int i = 0; i < 5; i++) {
        free_unrecorded(blocks[i]);
        if (i == 0) assert_non_null(strstr(said(), "not recorded"));
    }
    assert_string_equal(said(), "");
    assert_int_equal(misuses(), 6);
    assert_ok(weir_stats_reset(0));
    assert_int_equal(misuses(), 0);
}

static void after_many_different_findings_more_are_counted_only(void **state)
{
    (void)state;
    wr_device *device = wr_runtime_global.devices[0];
    for (uint32_t i = 0; i < WR_DEBUG_TOLD; i++)
        assert_true(wr_debug_is_new(device, WEIR_EVENT_UNRECORDED_USE, i / 16, i % 16));
    assert_string_equal(said(), "");
    free_unrecorded(alloc_on(1000, home));
    assert_string_equal(said(), "weir: warn: debug=streams: 256 different findings were reported; any further one is "
                                "counted only\n");
    free_unrecorded(alloc_on(1000, home));
    assert_string_equal(said(), "");
    assert_int_equal(misuses(), 2);
}

static void streams_of_other_devices_are_checked(void **state)
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

/* ---- two uses at the same time ----------------------------------------------------------------------------------- */

static void writing_on_one_stream_and_reading_on_another_is_reported(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    use(block, other);
    assert_int_equal(misuses(), 1);
    const char *text = said();
    assert_non_null(strstr(text, "weir_copy: the block at"));
    assert_non_null(strstr(text, "where weir_fill may still be using the same memory. Call weir_stream_wait()"));
    assert_non_null(strstr(text, "error: used first by thread"));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

static void reading_on_both_is_correct(void **state)
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

static void what_comes_after_a_finding_does_not_have_its_stack(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    use(block, other);
    assert_int_equal(misuses(), 1);
    assert_int_equal(wr_stack_now, 0);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

static void a_use_inside_a_block_is_a_use_of_the_block(void **state)
{
    (void)state;
    char *block = alloc_on(100000, home);
    assert_ok(weir_fill(block + 5000, 1, 1000, home));
    use(block + 90000, other);
    expect_said("weir_copy: the block at", "100000 bytes", "may still be using the same memory");
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

/* The block is new to the program, but the stream that had its memory before may still use it. */
static void a_use_on_another_stream_must_wait_for_earlier_uses_of_the_memory(void **state)
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
    expect_said("weir_fill: the block at",
                "where whatever used the block that was freed there may still be using the same memory",
                "freed before by");
}

static void a_read_on_another_stream_must_wait_for_earlier_uses_of_the_memory(void **state)
{
    (void)state;
    void *before = alloc_on(1000, home);
    assert_ok(weir_free(before));
    void *block = alloc_on(1000, home);
    assert_ptr_equal(block, before);
    use(block, other);
    assert_int_equal(misuses(), 1);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

static void memory_that_went_while_a_block_was_in_use_hides_no_use_of_the_blocks_memory(void **state)
{
    (void)state;
    void *before = alloc_on(1000, home);
    assert_ok(weir_free(alloc_on(30 * MIB, third)));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_free(before));
    void *block = alloc_on(1000, home);
    assert_ptr_equal(block, before);
    assert_ok(weir_fill(block, 1, 1000, other));
    assert_int_equal(misuses(), 1);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

/* ---- the current stream ------------------------------------------------------------------------------------------ */

static void *free_while_another_is_current(void)
{
    weir_stream_guard guard;
    assert_ok(weir_stream_set_current(home));
    void *block = alloc(1000);
    assert_ok(weir_stream_enter(other, &guard));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_leave(&guard));
    return block;
}

static void freeing_while_another_stream_is_current_is_suspect(void **state)
{
    (void)state;
    free_while_another_is_current();
    expect_said("warn: weir_free: the block at", "If that other stream uses the block, call weir_record_stream()",
                "warn: freed by");
}

static void a_free_ordered_with_the_other_stream_is_not_suspect(void **state)
{
    (void)state;
    weir_stream_guard guard;
    assert_ok(weir_stream_set_current(home));
    for (int way = 0; way < 5; way++) {
        void *block = way == 0 ? alloc_on(1000, home) : alloc(1000); /* a named stream need not be current */
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

static void frees_of_a_thread_without_a_current_stream_are_not_suspect(void **state)
{
    (void)state;
    assert_ok(weir_stream_set_current(home));
    assert_null(in_a_thread(free_it, alloc(1000)));
    expect_silence();
}

static void *allocate_it(void *bytes)
{
    return alloc((size_t)(uintptr_t)bytes);
}

static void blocks_of_a_thread_without_a_current_stream_are_not_suspect(void **state)
{
    (void)state;
    assert_ok(weir_stream_set_current(home));
    assert_ok(weir_free(in_a_thread(allocate_it, (void *)(uintptr_t)1000)));
    expect_silence();
}

static void *allocate_from(void *pool)
{
    void *block = NULL;
    assert_ok(weir_alloc_from(*(weir_mempool *)pool, 1000, WEIR_STREAM_CURRENT, &block));
    return block;
}

static void blocks_of_a_pool_from_a_thread_without_a_current_stream_are_not_suspect(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_stream_set_current(home));
    assert_ok(weir_free(in_a_thread(allocate_from, &pool)));
    assert_ok(weir_mempool_unref(pool));
    expect_silence();
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

static void a_record_that_comes_too_late_reports_who_freed(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_free(block));
    assert_status(weir_record_stream(block, other), WEIR_ERR_DOUBLE_FREE);
    assert_non_null(strstr(weir_error_text(), " bytes allocated by thread"));
    assert_non_null(strstr(weir_error_text(), "\nfreed by thread"));
}

static void uses_inside_a_capture_are_not_checked(void **state)
{
    (void)state;
    weir_graph graph;
    assert_ok(try_begin(home, (weir_mempool){ 0, 0 }, &graph));
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

static void host_memory_and_foreign_memory_are_not_checked(void **state)
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

/* The driver may order the default stream with a stream of the program's own. */
static void uses_that_the_driver_may_order_are_not_reported(void **state)
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

/* After more waits than are remembered, unknown orders are not reported. */
static void uses_that_are_too_long_ago_are_not_reported(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_stream_wait(other, home));
    use(block, other);
    for (int i = 0; i < 2000; i++) assert_ok(weir_stream_wait(third, home));
    assert_ok(weir_free(block));
    expect_silence();
}

/* ---- in the history ---------------------------------------------------------------------------------------------- */

static int open_recording(void **state)
{
    (void)state;
    history = 1000;
    open_streams("poison,streams");
    history = 0;
    return 0;
}

static void each_unrecorded_use_is_an_event(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* the second is not logged again */
        void *block = alloc_on(1000, home);
        assert_ok(weir_stream_wait(other, home));
        use(block, other);
        assert_ok(weir_free(block));
        expect_event(WEIR_EVENT_UNRECORDED_USE, block, 1000, other);
    }
}

static void uses_at_the_same_time_are_an_event(void **state)
{
    (void)state;
    void *block = alloc_on(1000, home);
    assert_ok(weir_fill(block, 1, 1000, home));
    use(block, other);
    expect_event(WEIR_EVENT_UNORDERED_USE, block, 1000, other);
}

static void a_suspicion_is_an_event(void **state)
{
    (void)state;
    void *block = free_while_another_is_current();
    expect_event(WEIR_EVENT_SUSPECT_FREE, block, 1000, other);
}

static void a_misuse_event_names_the_blocks_pool(void **state)
{
    (void)state;
    weir_mempool pool;
    weir_mempool_options o = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_event events[8];
    void *block = NULL;
    size_t count = 0;
    o.device = 0;
    assert_ok(weir_mempool_create(&o, &pool));
    assert_ok(weir_alloc_from(pool, 1000, home, &block));
    use(block, other);
    assert_ok(weir_history_clear(0));
    assert_ok(weir_free(block));
    assert_ok(weir_history_read(0, events, 8, &count, NULL));
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(events[i].pool[0], pool.capture);
        assert_int_equal(events[i].pool[1], pool.user);
    }
    assert_int_equal(events[2].kind, WEIR_EVENT_UNRECORDED_USE);
    assert_ok(weir_mempool_unref(pool));
}

#define RECORDING(test) cmocka_unit_test_setup_teardown(test, open_recording, close_them)
#define STREAMS(test) cmocka_unit_test_setup_teardown(test, open_them, close_them)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STREAMS(an_unrecorded_use_is_reported_when_the_block_is_freed),
        STREAMS(a_recorded_use_is_correct),
        STREAMS(a_record_that_fails_does_not_count),
        STREAMS(recording_another_stream_does_not_help),
        STREAMS(a_stream_that_waits_for_the_use_needs_no_record),
        STREAMS(waiting_before_the_use_does_not_help),
        STREAMS(waiting_through_a_third_stream_counts),
        STREAMS(waiting_in_the_wrong_direction_does_not_help),
        STREAMS(work_that_the_host_has_waited_for_is_over),
        STREAMS(copying_to_a_block_and_filling_it_are_uses),
        STREAMS(work_that_a_query_finds_is_not_over),
        STREAMS(a_wait_for_a_stream_that_fails_does_not_count),
        STREAMS(what_an_ended_stream_waited_for_is_over),
        STREAMS(a_wait_counts_while_another_stream_captures),
        STREAMS(a_wait_inside_a_capture_of_two_devices_orders_nothing_outside),
        STREAMS(many_uses_on_one_stream_hide_none_on_another),
        STREAMS(a_read_does_not_hide_the_write_before_it),
        STREAMS(what_many_streams_hide_is_not_reported),
        STREAMS(the_oldest_use_is_forgotten_first),
        STREAMS(uses_on_the_blocks_own_stream_need_no_record),
        STREAMS(a_repeated_misuse_is_reported_once_and_counted),
        STREAMS(after_many_different_findings_more_are_counted_only),
        STREAMS(streams_of_other_devices_are_checked),
        STREAMS(writing_on_one_stream_and_reading_on_another_is_reported),
        STREAMS(reading_on_both_is_correct),
        STREAMS(what_comes_after_a_finding_does_not_have_its_stack),
        STREAMS(a_use_inside_a_block_is_a_use_of_the_block),
        STREAMS(a_use_on_another_stream_must_wait_for_earlier_uses_of_the_memory),
        STREAMS(a_read_on_another_stream_must_wait_for_earlier_uses_of_the_memory),
        STREAMS(memory_that_went_while_a_block_was_in_use_hides_no_use_of_the_blocks_memory),
        STREAMS(two_places_that_use_blocks_of_one_are_both_reported),
        STREAMS(memory_that_was_with_the_driver_in_between_is_fresh),
        STREAMS(freeing_while_another_stream_is_current_is_suspect),
        STREAMS(a_free_ordered_with_the_other_stream_is_not_suspect),
        STREAMS(frees_of_a_thread_without_a_current_stream_are_not_suspect),
        STREAMS(blocks_of_a_thread_without_a_current_stream_are_not_suspect),
        STREAMS(blocks_of_a_pool_from_a_thread_without_a_current_stream_are_not_suspect),
        STREAMS(a_record_that_comes_too_late_reports_who_freed),
        STREAMS(uses_inside_a_capture_are_not_checked),
        STREAMS(host_memory_and_foreign_memory_are_not_checked),
        STREAMS(uses_that_the_driver_may_order_are_not_reported),
        STREAMS(uses_that_are_too_long_ago_are_not_reported),
        RECORDING(each_unrecorded_use_is_an_event),
        RECORDING(uses_at_the_same_time_are_an_event),
        RECORDING(a_suspicion_is_an_event),
        RECORDING(a_misuse_event_names_the_blocks_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
