#include "stream/event.h"

#include "base/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "host_support.h"

static wr_event_pool pool;

static int open_pool(void **state)
{
    wr_device *device = NULL;
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    wr_events_init(&pool, device->backend, 0);
    return 0;
}

static int close_pool(void **state)
{
    assert_int_equal(wr_events_release(&pool), WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_event_destroy), calls_of(WEIR_BACKEND_event_create));
    return close_host(state);
}

static int close_pool_after_failures(void **state)
{
    assert_int_equal(wr_events_release(&pool), WEIR_OK);
    return close_host(state);
}

static void an_event_given_back_is_handed_out_again(void **state)
{
    (void)state;
    void *first = NULL, *second = NULL;
    assert_int_equal(wr_event_get(&pool, &first), WEIR_OK);
    wr_event_put(&pool, first);
    assert_int_equal(wr_event_get(&pool, &second), WEIR_OK);
    assert_ptr_equal(first, second);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 1);
    wr_event_put(&pool, second);
}

static void events_in_use_are_distinct(void **state)
{
    (void)state;
    void *events[100];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(wr_event_get(&pool, &events[i]), WEIR_OK);
        for (int j = 0; j < i; j++) assert_ptr_not_equal(events[i], events[j]);
    }
    for (int i = 0; i < 100; i++) wr_event_put(&pool, events[i]);
    for (int i = 0; i < 100; i++) assert_int_equal(wr_event_get(&pool, &events[i]), WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 100);
    for (int i = 0; i < 100; i++) wr_event_put(&pool, events[i]);
}

static void a_driver_failure_is_forwarded_and_leaves_nothing(void **state)
{
    (void)state;
    void *event = &pool;
    for (int i = 0; i < 40; i++) {
        assert_ok(weir_host_fail(WEIR_BACKEND_event_create, 1, WEIR_ERR_DRIVER));
        assert_int_equal(wr_event_get(&pool, &event), WEIR_ERR_DRIVER);
        assert_ptr_equal(event, &pool);
    }
    assert_int_equal(pool.made, 0);
    assert_int_equal(pool.capacity, 16);
}

static void without_host_memory_no_event_is_made(void **state)
{
    (void)state;
    void *event = NULL;
    wr_meta_fail_nth(1);
    assert_int_equal(wr_event_get(&pool, &event), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_null(event);
    assert_int_equal(pool.made, 0);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 0);
}

static void an_event_that_was_recorded_in_vain_is_destroyed(void **state)
{
    (void)state;
    void *event = &pool, *stream = native_of(new_stream(0));
    assert_ok(weir_host_fail(WEIR_BACKEND_event_record, 1, WEIR_ERR_DRIVER));
    assert_status(wr_event_behind(&pool, stream, &event), WEIR_ERR_DRIVER);
    assert_null(event);
    assert_int_equal(pool.made, 0);
    assert_int_equal(calls_of(WEIR_BACKEND_event_destroy), 1);
}

static void waiting_for_a_stream_gives_its_event_back(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    make_busy(stream);
    assert_ok(wr_event_ask_stream(&pool, native_of(stream), true));
    assert_int_equal(calls_of(WEIR_BACKEND_event_synchronize), 1);
    assert_int_equal(pool.idle_count, pool.made);
}

static void the_event_of_a_failed_wait_is_given_back_too(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    make_busy(stream);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(wr_event_ask_stream(&pool, native_of(stream), true), WEIR_ERR_DRIVER);
    assert_int_equal(pool.made, 1);
    assert_int_equal(pool.idle_count, 1);
    assert_ok(weir_host_stream_release(0, native_of(stream)));
}

/* A capture of the program's own. */
static void *capturing_stream(void)
{
    void *stream = native_of(new_stream(0));
    assert_ok(pool.backend->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    return stream;
}

static void a_stream_that_captures_is_not_waited_for(void **state)
{
    (void)state;
    void *stream = capturing_stream();
    assert_int_equal(wr_event_ask_stream(&pool, stream, true), WEIR_ERR_NOT_READY);
    end_natively(stream);
}

static void a_stream_that_may_capture_is_not_asked_for_its_work(void **state)
{
    (void)state;
    void *stream = native_of(new_stream(0));
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_int_equal(wr_event_ask_stream(&pool, stream, false), WEIR_ERR_NOT_READY);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_query), 0);
}

/* ---- waits of streams for others --------------------------------------------------------------------------------- */

static wr_stream *record_of(weir_stream stream)
{
    wr_device *device = NULL;
    assert_ok(wr_runtime_device(0, &device));
    return wr_stream_find(&device->streams, stream.id);
}

static void a_stream_that_is_made_to_wait_counts_it(void **state)
{
    (void)state;
    bool chained = false;
    void *from = native_of(new_stream(0));
    wr_stream *to = record_of(new_stream(0));
    const uint64_t queued = to->queued;
    assert_ok(wr_event_chain_uncaptured(&pool, from, to, &chained));
    assert_true(chained);
    assert_int_equal(to->queued, queued + 1);
}

static void a_wait_that_the_driver_refuses_is_none(void **state)
{
    (void)state;
    bool chained = true;
    void *from = native_of(new_stream(0));
    wr_stream *to = record_of(new_stream(0));
    const uint64_t queued = to->queued;
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_wait, 1, WEIR_ERR_DRIVER));
    assert_status(wr_event_chain_uncaptured(&pool, from, to, &chained), WEIR_ERR_DRIVER);
    assert_false(chained);
    assert_int_equal(to->queued, queued);
}

static void the_event_of_an_uncaptured_wait_is_used_again(void **state)
{
    (void)state;
    bool chained = false;
    void *from = native_of(new_stream(0));
    assert_ok(wr_event_chain_uncaptured(&pool, from, record_of(new_stream(0)), &chained));
    assert_true(chained);
    assert_int_equal(pool.idle_count, 1);
}

static void no_event_is_recorded_on_a_stream_that_captures(void **state)
{
    (void)state;
    bool chained = true;
    void *from = capturing_stream();
    assert_ok(wr_event_chain_uncaptured(&pool, from, record_of(new_stream(0)), &chained));
    assert_false(chained);
    assert_int_equal(pool.idle_count, 1);
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), 0);
    end_natively(from);
}

static void a_stream_that_captures_is_not_made_to_wait_for_work_outside(void **state)
{
    (void)state;
    bool chained = true;
    void *from = native_of(new_stream(0));
    wr_stream *to = record_of(new_stream(0));
    assert_ok(pool.backend->capture_begin(0, to->native, WEIR_CAPTURE_RELAXED));
    assert_ok(wr_event_chain_uncaptured(&pool, from, to, &chained));
    assert_false(chained);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), 0);
    end_natively(to->native);
}

/* What the driver says of captures, one answer after the other. Active ones are all the same capture. */
static weir_capture_state answers[3];
static size_t asked;

static weir_status answer(int device, void *native, weir_capture_state *state, uint64_t *id)
{
    (void)device, (void)native;
    assert_true(asked < sizeof answers / sizeof answers[0]);
    *state = answers[asked++];
    if (*state == WEIR_CAPTURE_ACTIVE) *id = 1;
    return WEIR_OK;
}

/* The driver is asked about either stream, and about the one that is waited for once the event is recorded. */
static weir_status chain_when(weir_capture_state from, weir_capture_state to, weir_capture_state from_then)
{
    const weir_backend *real = pool.backend;
    weir_backend driver = *real;
    void *waited_for = native_of(new_stream(0)), *waits = native_of(new_stream(0));
    answers[0] = from;
    answers[1] = to;
    answers[2] = from_then;
    asked = 0;
    driver.capture_status = answer;
    pool.backend = &driver;
    const weir_status status = wr_event_chain(&pool, waited_for, 0, waits);
    pool.backend = real;
    return status;
}

static void the_event_of_a_wait_is_used_again(void **state)
{
    (void)state;
    assert_ok(chain_when(WEIR_CAPTURE_NONE, WEIR_CAPTURE_NONE, WEIR_CAPTURE_NONE));
    assert_int_equal(pool.idle_count, 1);
}

static void an_event_recorded_while_an_unknown_capture_begins_is_not_used_again(void **state)
{
    (void)state;
    assert_ok(chain_when(WEIR_CAPTURE_NONE, WEIR_CAPTURE_NONE, WEIR_CAPTURE_ACTIVE));
    assert_int_equal(pool.made, 0);
}

static void an_event_recorded_in_a_capture_that_has_just_ended_is_not_used_again(void **state)
{
    (void)state;
    assert_ok(chain_when(WEIR_CAPTURE_ACTIVE, WEIR_CAPTURE_ACTIVE, WEIR_CAPTURE_NONE));
    assert_int_equal(pool.made, 0);
}

static void a_default_stream_that_may_not_wait_is_named_as_the_reason(void **state)
{
    (void)state;
    assert_status(chain_when(WEIR_CAPTURE_NONE, WEIR_CAPTURE_IMPLICIT, WEIR_CAPTURE_NONE), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "the default stream can neither wait nor be waited for"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_given_back_is_handed_out_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(events_in_use_are_distinct, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_driver_failure_is_forwarded_and_leaves_nothing, open_pool,
                                        close_pool_after_failures),
        cmocka_unit_test_setup_teardown(without_host_memory_no_event_is_made, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(an_event_that_was_recorded_in_vain_is_destroyed, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(waiting_for_a_stream_gives_its_event_back, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(the_event_of_a_failed_wait_is_given_back_too, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_stream_that_captures_is_not_waited_for, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_stream_that_may_capture_is_not_asked_for_its_work, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_stream_that_is_made_to_wait_counts_it, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_wait_that_the_driver_refuses_is_none, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(the_event_of_an_uncaptured_wait_is_used_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(no_event_is_recorded_on_a_stream_that_captures, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_stream_that_captures_is_not_made_to_wait_for_work_outside, open_pool,
                                        close_pool),
        cmocka_unit_test_setup_teardown(the_event_of_a_wait_is_used_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(an_event_recorded_while_an_unknown_capture_begins_is_not_used_again, open_pool,
                                        close_pool),
        cmocka_unit_test_setup_teardown(an_event_recorded_in_a_capture_that_has_just_ended_is_not_used_again, open_pool,
                                        close_pool),
        cmocka_unit_test_setup_teardown(a_default_stream_that_may_not_wait_is_named_as_the_reason, open_pool,
                                        close_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
