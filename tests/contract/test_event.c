#include "contract/contract.h"

static void never_recorded_event_is_complete(void **state)
{
    (void)state;
    void *event = new_event(0), *stream = new_stream(0);
    ok(b->event_query(0, event));
    ok(b->event_synchronize(0, event));
    ok(b->stream_wait(0, stream, event));
    ok(b->stream_query(0, stream));
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
}

static void event_on_an_idle_stream_completes(void **state)
{
    (void)state;
    void *event = new_event(0), *stream = new_stream(0);
    ok(b->event_record(0, event, stream));
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
}

static void event_completes_with_the_work_before_it(void **state)
{
    (void)state;
    gate g;
    void *event = new_event(0), *stream = new_stream(0);
    gate_close(&g, 0, stream);
    ok(b->event_record(0, event, stream));
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    ok(b->stream_synchronize(0, stream));
    gate_end(&g);
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
}

static void event_does_not_wait_for_later_work(void **state)
{
    (void)state;
    gate first, second;
    void *event = new_event(0), *stream = new_stream(0);
    gate_close(&first, 0, stream);
    ok(b->event_record(0, event, stream));
    gate_open(&first);
    gate_close(&second, 0, stream);
    ok(b->event_query(0, event));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_NOT_READY);
    gate_open(&second);
    ok(b->stream_synchronize(0, stream));
    gate_end(&first);
    gate_end(&second);
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
}

static void query_is_about_the_last_record(void **state)
{
    (void)state;
    gate g;
    void *event = new_event(0), *idle = new_stream(0), *busy = new_stream(0);
    ok(b->event_record(0, event, idle));
    ok(b->event_synchronize(0, event));
    gate_close(&g, 0, busy);
    ok(b->event_record(0, event, busy));
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    ok(b->event_record(0, event, idle));
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    gate_open(&g);
    ok(b->stream_synchronize(0, busy));
    gate_end(&g);
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, idle));
    ok(b->stream_destroy(0, busy));
}

static void wait_keeps_the_record_it_saw(void **state)
{
    (void)state;
    gate g;
    void *event = new_event(0), *busy = new_stream(0), *waiter = new_stream(0), *idle = new_stream(0);
    gate_close(&g, 0, busy);
    ok(b->event_record(0, event, busy));
    ok(b->stream_wait(0, waiter, event));
    ok(b->event_record(0, event, idle));
    ok(b->event_synchronize(0, event));
    assert_int_equal(b->stream_query(0, waiter), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(0, waiter));
    ok(b->stream_synchronize(0, busy));
    gate_end(&g);
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, busy));
    ok(b->stream_destroy(0, waiter));
    ok(b->stream_destroy(0, idle));
}

static void pending_event_can_be_destroyed(void **state)
{
    (void)state;
    gate g;
    void *event = new_event(0), *busy = new_stream(0), *waiter = new_stream(0);
    gate_close(&g, 0, busy);
    ok(b->event_record(0, event, busy));
    ok(b->stream_wait(0, waiter, event));
    ok(b->event_destroy(0, event));
    assert_int_equal(b->stream_query(0, waiter), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(0, waiter));
    ok(b->stream_synchronize(0, busy));
    gate_end(&g);
    ok(b->stream_destroy(0, busy));
    ok(b->stream_destroy(0, waiter));
}

static void event_outlives_its_stream(void **state)
{
    (void)state;
    gate g;
    if (destroying_waits()) skip();
    void *event = new_event(0), *stream = new_stream(0);
    gate_close(&g, 0, stream);
    ok(b->event_record(0, event, stream));
    ok(b->stream_destroy(0, stream));
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    ok(b->device_synchronize(0));
    gate_end(&g);
    ok(b->event_destroy(0, event));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(never_recorded_event_is_complete),        cmocka_unit_test(event_on_an_idle_stream_completes),
    cmocka_unit_test(event_completes_with_the_work_before_it), cmocka_unit_test(event_does_not_wait_for_later_work),
    cmocka_unit_test(query_is_about_the_last_record),          cmocka_unit_test(wait_keeps_the_record_it_saw),
    cmocka_unit_test(pending_event_can_be_destroyed),          cmocka_unit_test(event_outlives_its_stream),
};

CONTRACT_MAIN(tests)
