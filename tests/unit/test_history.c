#include "observe/history.h"

#include "base/meta.h"
#include "base/thread_number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static wr_history history;

static int open_four(void **state)
{
    (void)state;
    assert_int_equal(wr_history_init(&history, 3, 4), WEIR_OK);
    return 0;
}

static int release(void **state)
{
    (void)state;
    wr_history_release(&history);
    assert_int_equal(wr_meta_live(), 0);
    return 0;
}

static void record(int count)
{
    for (int i = 0; i < count; i++)
        wr_history_record(&history, WEIR_EVENT_ALLOC, (void *)(uintptr_t)(0x1000 + i), (uint64_t)i, &history);
}

static void an_event_has_all_its_parts(void **state)
{
    (void)state;
    weir_event event;
    uint64_t count = 0, dropped = 1;
    wr_history_record(&history, WEIR_EVENT_SEGMENT_FREE, (void *)(uintptr_t)0x123000, 77, (void *)(uintptr_t)0x99);
    wr_history_copy(&history, &event, 1, &count, &dropped);
    assert_int_equal(count, 1);
    assert_int_equal(dropped, 0);
    assert_int_equal(event.kind, WEIR_EVENT_SEGMENT_FREE);
    assert_int_equal(event.address, 0x123000);
    assert_int_equal(event.size, 77);
    assert_int_equal(event.stream, 0x99);
    assert_int_equal(event.device, 3);
    assert_int_equal(event.thread, wr_thread_number());
    assert_true(event.time_ns != 0);
    assert_true(event.pool[0] == 0 && event.pool[1] == 0);
}

static void the_latest_events_are_kept_oldest_first(void **state)
{
    (void)state;
    weir_event events[8];
    uint64_t count = 0, dropped = 0;
    record(10);
    wr_history_copy(&history, events, 8, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(dropped, 6);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(events[i].size, 6 + i);
        assert_true(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
    }
}

static void a_full_ring_has_dropped_nothing(void **state)
{
    (void)state;
    weir_event events[4];
    uint64_t count = 0, dropped = 1;
    record(4);
    wr_history_copy(&history, events, 4, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(dropped, 0);
    assert_int_equal(events[0].size, 0);
}

static void a_short_buffer_gets_the_oldest(void **state)
{
    (void)state;
    weir_event events[2] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    record(5);
    wr_history_copy(&history, events, 2, &count, &dropped);
    assert_int_equal(count, 2);
    assert_int_equal(dropped, 1);
    assert_int_equal(events[0].size, 1);
    assert_int_equal(events[1].size, 2);
}

static void without_capacity_nothing_is_recorded(void **state)
{
    (void)state;
    uint64_t count = 1, dropped = 1;
    assert_int_equal(wr_history_init(&history, 0, 0), WEIR_OK);
    record(3);
    wr_history_copy(&history, NULL, 0, &count, &dropped);
    assert_int_equal(count, 0);
    assert_int_equal(dropped, 0);
    assert_int_equal(history.written, 0);
}

static void a_capacity_beyond_the_address_space_is_refused(void **state)
{
    (void)state;
    assert_int_equal(wr_history_init(&history, 0, UINT64_MAX / 8), WEIR_ERR_OPTION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_has_all_its_parts, open_four, release),
        cmocka_unit_test_setup_teardown(the_latest_events_are_kept_oldest_first, open_four, release),
        cmocka_unit_test_setup_teardown(a_full_ring_has_dropped_nothing, open_four, release),
        cmocka_unit_test_setup_teardown(a_short_buffer_gets_the_oldest, open_four, release),
        cmocka_unit_test_teardown(without_capacity_nothing_is_recorded, release),
        cmocka_unit_test_teardown(a_capacity_beyond_the_address_space_is_refused, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
