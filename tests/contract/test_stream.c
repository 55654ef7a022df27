#include "contract/contract.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct journal {
    pthread_t thread;
    int count;
    int seen[64];
} journal;

typedef struct entry {
    journal *journal;
    int value;
} entry;

static void write_entry(void *argument)
{
    entry *e = argument;
    e->journal->seen[e->journal->count++] = e->value;
    e->journal->thread = pthread_self();
}

static void new_stream_is_idle(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    ok(b->stream_query(0, stream));
    ok(b->stream_synchronize(0, stream));
    ok(b->stream_destroy(0, stream));
}

static void busy_stream_is_not_ready(void **state)
{
    (void)state;
    gate g;
    void *stream = new_stream(0);
    gate_close(&g, 0, stream);
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(0, stream));
    ok(b->stream_query(0, stream));
    gate_end(&g);
    ok(b->stream_destroy(0, stream));
}

static void callbacks_run_in_order(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    journal log = { 0 };
    entry entries[COUNT];
    void *stream = new_stream(0);
    for (int i = 0; i < COUNT; i++) {
        entries[i] = (entry){ &log, i };
        ok(b->stream_callback(0, stream, write_entry, &entries[i]));
    }
    ok(b->stream_synchronize(0, stream));
    assert_int_equal(log.count, COUNT);
    for (int i = 0; i < COUNT; i++) assert_int_equal(log.seen[i], i);
    ok(b->stream_destroy(0, stream));
}

static void callback_does_not_run_in_the_callers_thread(void **state)
{
    (void)state;
    journal log = { 0 };
    entry e = { &log, 1 };
    void *stream = new_stream(0);
    ok(b->stream_callback(0, stream, write_entry, &e));
    ok(b->stream_synchronize(0, stream));
    assert_false(pthread_equal(log.thread, pthread_self()));
    ok(b->stream_destroy(0, stream));
}

static void work_waits_for_earlier_work(void **state)
{
    (void)state;
    gate g;
    void *stream = new_stream(0);
    char *memory = new_segment(0, 2 * MIB);
    fill_now(0, memory, 1, 16);
    gate_close(&g, 0, stream);
    ok(b->fill(0, stream, memory, 2, 16));
    assert_int_equal(byte_at(0, memory, 0), 1); /* on another stream */
    gate_open(&g);
    ok(b->stream_synchronize(0, stream));
    assert_int_equal(byte_at(0, memory, 0), 2);
    gate_end(&g);
    ok(b->segment_free(0, memory, 2 * MIB));
    ok(b->stream_destroy(0, stream));
}

static void streams_do_not_wait_for_each_other(void **state)
{
    (void)state;
    gate g;
    void *busy = new_stream(0), *other = new_stream(0);
    char *memory = new_segment(0, 2 * MIB);
    gate_close(&g, 0, busy);
    ok(b->fill(0, other, memory, 3, 16));
    ok(b->stream_synchronize(0, other));
    ok(b->stream_synchronize(0, NULL));
    assert_int_equal(b->stream_query(0, busy), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(0, busy));
    gate_end(&g);
    ok(b->segment_free(0, memory, 2 * MIB));
    ok(b->stream_destroy(0, busy));
    ok(b->stream_destroy(0, other));
}

static void default_stream_is_a_stream(void **state)
{
    (void)state;
    gate g;
    gate_close(&g, 0, NULL);
    assert_int_equal(b->stream_query(0, NULL), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(0, NULL));
    ok(b->stream_query(0, NULL));
    gate_end(&g);
}

static void wait_orders_two_streams(void **state)
{
    (void)state;
    gate g;
    void *first = new_stream(0), *second = new_stream(0), *event = new_event(0);
    journal log = { 0 };
    entry before = { &log, 1 }, after = { &log, 2 };
    gate_close(&g, 0, first);
    ok(b->stream_callback(0, first, write_entry, &before));
    ok(b->event_record(0, event, first));
    ok(b->stream_wait(0, second, event));
    ok(b->stream_callback(0, second, write_entry, &after));
    assert_int_equal(b->stream_query(0, second), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(0, second));
    assert_int_equal(log.count, 2);
    assert_int_equal(log.seen[0], 1);
    assert_int_equal(log.seen[1], 2);
    ok(b->stream_synchronize(0, first));
    gate_end(&g);
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, first));
    ok(b->stream_destroy(0, second));
}

static void wait_orders_streams_of_two_devices(void **state)
{
    (void)state;
    if (devices < 2) skip();
    gate g;
    void *first = new_stream(0), *second = new_stream(1), *event = new_event(0);
    gate_close(&g, 0, first);
    ok(b->event_record(0, event, first));
    ok(b->stream_wait(1, second, event));
    assert_int_equal(b->stream_query(1, second), WEIR_ERR_NOT_READY);
    gate_open(&g);
    ok(b->stream_synchronize(1, second));
    ok(b->event_query(0, event));
    ok(b->stream_synchronize(0, first));
    gate_end(&g);
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, first));
    ok(b->stream_destroy(1, second));
}

static void count_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void destroyed_stream_finishes_its_work(void **state)
{
    (void)state;
    gate g;
    atomic_int count = 0;
    if (destroying_waits()) skip();
    void *stream = new_stream(0);
    gate_close(&g, 0, stream);
    for (int i = 0; i < 5; i++) ok(b->stream_callback(0, stream, count_up, &count));
    ok(b->stream_destroy(0, stream));
    assert_int_equal(atomic_load(&count), 0);
    gate_open(&g);
    ok(b->device_synchronize(0));
    assert_int_equal(atomic_load(&count), 5);
    gate_end(&g);
}

static void every_priority_can_be_created(void **state)
{
    (void)state;
    for (int priority = caps[0].priority_greatest; priority <= caps[0].priority_least; priority++) {
        void *stream;
        ok(b->stream_create(0, priority, &stream));
        ok(b->stream_query(0, stream));
        ok(b->stream_destroy(0, stream));
    }
}

static void streams_come_and_go(void **state)
{
    (void)state;
    atomic_int count = 0;
    for (int i = 0; i < 300; i++) {
        void *stream = new_stream(0);
        ok(b->stream_callback(0, stream, count_up, &count));
        if (i % 2 == 0) ok(b->stream_synchronize(0, stream));
        ok(b->stream_destroy(0, stream));
    }
    ok(b->device_synchronize(0));
    assert_int_equal(atomic_load(&count), 300);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(new_stream_is_idle),
    cmocka_unit_test(busy_stream_is_not_ready),
    cmocka_unit_test(callbacks_run_in_order),
    cmocka_unit_test(callback_does_not_run_in_the_callers_thread),
    cmocka_unit_test(work_waits_for_earlier_work),
    cmocka_unit_test(streams_do_not_wait_for_each_other),
    cmocka_unit_test(default_stream_is_a_stream),
    cmocka_unit_test(wait_orders_two_streams),
    cmocka_unit_test(wait_orders_streams_of_two_devices),
    cmocka_unit_test(destroyed_stream_finishes_its_work),
    cmocka_unit_test(every_priority_can_be_created),
    cmocka_unit_test(streams_come_and_go),
};

CONTRACT_MAIN(tests)
