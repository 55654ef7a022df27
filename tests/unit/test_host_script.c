#include "unit/host.h"

#include <stdio.h>
#include <time.h>

static uint64_t calls(enum weir_backend_entry entry)
{
    uint64_t count;
    ok(weir_host_calls(entry, &count));
    return count;
}

static uint64_t device_clock(void)
{
    uint64_t now;
    ok(b->clock_ns(&now));
    return now;
}

static void nth_call_fails_once(void **state)
{
    (void)state;
    void *event;
    ok(weir_host_fail(WEIR_BACKEND_event_create, 2, WEIR_ERR_DRIVER));
    void *first = new_event(0);
    event = &event;
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DRIVER);
    assert_ptr_equal(event, &event);
    assert_non_null(strstr(weir_error_text(), "event_create"));
    ok(b->event_destroy(0, new_event(0)));
    ok(b->event_destroy(0, first));
}

static void failure_comes_before_any_effect(void **state)
{
    (void)state;
    uint64_t before, after, total;
    void *base;
    ok(b->device_memory(0, &before, &total));
    ok(weir_host_fail(WEIR_BACKEND_segment_alloc, 1, WEIR_ERR_OUT_OF_MEMORY));
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_OUT_OF_MEMORY);
    ok(b->device_memory(0, &after, &total));
    assert_int_equal(before, after);

    base = new_segment(0, 2 * MIB);
    ok(weir_host_fail(WEIR_BACKEND_segment_free, 1, WEIR_ERR_DRIVER));
    assert_int_equal(b->segment_free(0, base, 2 * MIB), WEIR_ERR_DRIVER);
    memset(base, 1, 2 * MIB);
    ok(b->segment_free(0, base, 2 * MIB));
}

static void scripts_add_up(void **state)
{
    (void)state;
    void *event = new_event(0);
    for (uint64_t i = 1; i <= 20; i += 2) ok(weir_host_fail(WEIR_BACKEND_event_query, i, WEIR_ERR_DRIVER));
    for (int i = 1; i <= 20; i++) assert_int_equal(b->event_query(0, event), i % 2 == 1 ? WEIR_ERR_DRIVER : WEIR_OK);
    ok(b->event_query(0, event));
}

static void any_entry_can_be_the_nth(void **state)
{
    (void)state;
    ok(weir_host_fail_any(3, WEIR_ERR_DRIVER));
    void *event = new_event(0);
    ok(b->event_query(0, event));
    assert_int_equal(b->event_destroy(0, event), WEIR_ERR_DRIVER);
    ok(b->event_destroy(0, event));
}

static void cleared_scripts_do_nothing(void **state)
{
    (void)state;
    ok(weir_host_fail(WEIR_BACKEND_event_create, 1, WEIR_ERR_DRIVER));
    ok(weir_host_fail_any(1, WEIR_ERR_DRIVER));
    ok(weir_host_fail_clear());
    ok(b->event_destroy(0, new_event(0)));
}

static void not_ready_can_be_scripted_and_is_no_failure(void **state)
{
    (void)state;
    void *event = new_event(0), *base;
    assert_int_equal(b->segment_alloc(0, HOST_MEMORY + 1, &base), WEIR_ERR_OUT_OF_MEMORY);
    char before[256];
    snprintf(before, sizeof before, "%s", weir_error_text());
    ok(weir_host_fail(WEIR_BACKEND_event_query, 1, WEIR_ERR_NOT_READY));
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    assert_string_equal(weir_error_text(), before);
}

static void bad_scripts_are_refused(void **state)
{
    (void)state;
    assert_int_equal(weir_host_fail(WEIR_BACKEND_open, 0, WEIR_ERR_DRIVER), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_fail(WEIR_BACKEND_open, 1, WEIR_OK), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_fail(WEIR_BACKEND_ENTRY_COUNT, 1, WEIR_ERR_DRIVER), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_latency(WEIR_BACKEND_ENTRY_COUNT, 1), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_calls(WEIR_BACKEND_open, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void failed_calls_are_counted(void **state)
{
    (void)state;
    void *base;
    uint64_t before = calls(WEIR_BACKEND_segment_alloc);
    ok(weir_host_fail(WEIR_BACKEND_segment_alloc, 1, WEIR_ERR_DRIVER));
    assert_int_equal(b->segment_alloc(0, MIB, &base), WEIR_ERR_DRIVER);
    assert_int_equal(b->segment_alloc(0, HOST_MEMORY + 1, &base), WEIR_ERR_OUT_OF_MEMORY);
    ok(b->segment_alloc(0, MIB, &base));
    assert_int_equal(calls(WEIR_BACKEND_segment_alloc), before + 3);
}

static void latency_is_slept(void **state)
{
    (void)state;
    void *event = new_event(0);
    uint64_t before = device_clock();
    ok(weir_host_latency(WEIR_BACKEND_event_query, 20000000));
    ok(b->event_query(0, event));
    assert_true(device_clock() - before >= 20000000);
    ok(weir_host_latency(WEIR_BACKEND_event_query, 0));
}

static void held_clock_moves_by_hand_and_by_latency_only(void **state)
{
    (void)state;
    void *event = new_event(0);
    ok(weir_host_clock_hold(true));
    uint64_t start = device_clock();
    struct timespec pause = { 0, 2000000 };
    nanosleep(&pause, NULL);
    assert_int_equal(device_clock(), start);
    ok(weir_host_clock_advance(1000));
    assert_int_equal(device_clock(), start + 1000);
    ok(weir_host_latency(WEIR_BACKEND_event_query, (uint64_t)3600 * 1000000000));
    ok(b->event_query(0, event));
    assert_int_equal(device_clock(), start + 1000 + (uint64_t)3600 * 1000000000);
}

static void released_clock_goes_on_from_where_it_stood(void **state)
{
    (void)state;
    ok(weir_host_clock_hold(true));
    ok(weir_host_clock_advance((uint64_t)5000 * 1000000000));
    uint64_t held = device_clock();
    ok(weir_host_clock_hold(false));
    uint64_t running = device_clock();
    assert_true(running >= held && running < held + (uint64_t)1000 * 1000000000);
    assert_int_equal(weir_host_clock_advance(1), WEIR_ERR_INVALID_ARGUMENT);
}

static void closing_forgets_everything(void **state)
{
    (void)state;
    ok(weir_host_fail_any(100, WEIR_ERR_DRIVER));
    ok(weir_host_latency(WEIR_BACKEND_event_create, 5));
    ok(weir_host_clock_hold(true));
    host_close(NULL);
    host_open(NULL);
    assert_int_equal(calls(WEIR_BACKEND_open), 1);
    assert_int_equal(calls(WEIR_BACKEND_device_open), 2);
    assert_int_equal(calls(WEIR_BACKEND_event_create), 0);
    assert_int_equal(weir_host_clock_advance(1), WEIR_ERR_INVALID_ARGUMENT);
    for (int i = 0; i < 200; i++) device_clock();
}

static void failing_close_closes_all_the_same(void **state)
{
    (void)state;
    new_segment(0, 2 * MIB);
    ok(weir_host_fail(WEIR_BACKEND_device_close, 1, WEIR_ERR_DRIVER));
    ok(weir_host_fail(WEIR_BACKEND_close, 1, WEIR_ERR_DRIVER));
    assert_int_equal(b->device_close(0), WEIR_ERR_DRIVER);
    assert_int_equal(wr_backend_close(b), WEIR_ERR_DRIVER);
    assert_int_equal(wr_meta_live(), 0);
    host_open(NULL);
}

static void without_the_back_end_there_is_nothing_to_script(void **state)
{
    (void)state;
    uint64_t number = 0;
    assert_int_equal(weir_host_fail(WEIR_BACKEND_open, 1, WEIR_ERR_DRIVER), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_fail_any(1, WEIR_ERR_DRIVER), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_fail_clear(), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_lose_device(0), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_latency(WEIR_BACKEND_open, 1), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_clock_hold(true), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_clock_advance(1), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_calls(WEIR_BACKEND_open, &number), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_stream_hold(0, NULL), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_stream_step(0, NULL, 1, &number), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_stream_release(0, NULL), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_place_segments(0, NULL, 0), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_address_range(0, &number), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(weir_host_driver_time(&number), WEIR_ERR_NOT_SUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        host_test(nth_call_fails_once),
        host_test(failure_comes_before_any_effect),
        host_test(scripts_add_up),
        host_test(any_entry_can_be_the_nth),
        host_test(cleared_scripts_do_nothing),
        host_test(not_ready_can_be_scripted_and_is_no_failure),
        host_test(bad_scripts_are_refused),
        host_test(failed_calls_are_counted),
        host_test(latency_is_slept),
        host_test(held_clock_moves_by_hand_and_by_latency_only),
        host_test(released_clock_goes_on_from_where_it_stood),
        host_test(closing_forgets_everything),
        host_test(failing_close_closes_all_the_same),
        cmocka_unit_test(without_the_back_end_there_is_nothing_to_script),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
