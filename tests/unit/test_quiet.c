/*
 * Waiting for whole devices while others capture: the wait neither ends a capture nor delays the beginning of one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "graph_support.h"
#include "stream/gate.h"
#include "stream/quiet.h"
#include "thread_support.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

static weir_stream stream;

static int open_both(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2 });
    stream = new_stream(0);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "a"));
    (void)alloc_from(pool, MIB, stream);
    return 0;
}

/* Work that lasts until the test lets it end. A held stream would not do: a thread that waits for it would run it. */
static sem_t may_end;

static void wait_to_end(void *unused)
{
    (void)unused;
    wait_for(&may_end);
}

static void occupy(weir_stream busy)
{
    sem_init(&may_end, 0, 0);
    assert_ok(weir_stream_callback(busy, wait_to_end, NULL));
}

static void let_end(void)
{
    sem_post(&may_end);
}

/* A thread that waits for device 0, by one of the calls that do. */
typedef struct waiter {
    pthread_t thread;
    weir_status (*call)(void);
    weir_status status;
} waiter;

static weir_status pause_it(void)
{
    return weir_pause(0, "a", WEIR_PAUSE_DROP);
}

static weir_status synchronize_it(void)
{
    return weir_device_synchronize(0);
}

static void *wait_for_device(void *argument)
{
    waiter *w = argument;
    w->status = w->call();
    return NULL;
}

static uint64_t waits(void)
{
    return calls_of(WEIR_BACKEND_event_synchronize) + calls_of(WEIR_BACKEND_device_synchronize);
}

/* Returns when the thread waits. */
static void start_waiting(waiter *w, weir_status (*call)(void))
{
    *w = (waiter){ .call = call, .status = WEIR_ERR_INTERNAL };
    const uint64_t before = waits();
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_device, w), 0);
    while (waits() == before) sched_yield();
}

static weir_status end_waiting(const waiter *w)
{
    pthread_join(w->thread, NULL);
    return w->status;
}

static void captures_begin_while_pools_wait_for_their_device_to_be_paused(void **state)
{
    (void)state;
    waiter w;
    for (int device = 0; device < 2; device++) {
        occupy(stream);
        start_waiting(&w, pause_it);
        weir_graph graph = begin_on(new_stream(device)); /* the stream's work may be waiting for it */
        assert_ok(weir_graph_end(graph));
        let_end();
        assert_ok(end_waiting(&w));
        assert_ok(weir_resume(0, "a"));
    }
}

static void the_events_of_one_wait_serve_the_next(void **state)
{
    (void)state;
    waiter w;
    uint64_t events = 0;
    for (int i = 0; i < 3; i++) {
        occupy(stream);
        start_waiting(&w, pause_it);
        let_end();
        assert_ok(end_waiting(&w));
        assert_ok(weir_resume(0, "a"));
        if (i == 0) events = calls_of(WEIR_BACKEND_event_create);
    }
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), events);
}

static void a_pause_that_met_a_capture_changes_nothing(void **state)
{
    (void)state;
    waiter w;
    weir_stream other = new_stream(0);
    occupy(stream);
    start_waiting(&w, pause_it);
    weir_graph graph = begin_on(other);
    let_end();
    assert_status(end_waiting(&w), WEIR_ERR_CAPTURE);
    assert_ok(weir_graph_end(graph));
    launch_and_wait(graph, other);
    assert_ok(pause_it());
    assert_ok(weir_resume(0, "a"));
}

/* After each wait there is more work. */
static atomic_int left;

static void queue_again(void *unused)
{
    const struct timespec moment = { 0, 2000000 };
    (void)unused;
    nanosleep(&moment, NULL);
    if (atomic_fetch_sub(&left, 1) > 0) (void)weir_stream_callback(stream, queue_again, NULL);
}

static void a_device_that_is_never_idle_is_paused_too(void **state)
{
    (void)state;
    atomic_store(&left, 1000000);
    queue_again(NULL);
    assert_ok(pause_it());
    assert_true(atomic_exchange(&left, 0) > 0);
    assert_ok(weir_stream_synchronize(stream));
    assert_ok(weir_resume(0, "a"));
}

static void beside_captures_of_other_devices_streams_are_not_asked(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 20 };
    weir_graph graph = begin_on(new_stream(1));
    const uint64_t queries = calls_of(WEIR_BACKEND_stream_query);
    start_slow_work(stream, &work);
    assert_ok(pause_it());
    assert_true(atomic_load(&work.done));
    assert_int_equal(calls_of(WEIR_BACKEND_stream_query), queries); /* a stream may be joining that capture */
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_resume(0, "a"));
}

/* ---- waiting for a device ---------------------------------------------------------------------------------------- */

static weir_stream beside;
static void *block_of_both;

static void *wait_for_all(void *unused)
{
    assert_ok(weir_device_synchronize(0));
    return unused;
}

static void *ask_stream(void *unused)
{
    const weir_status status = weir_stream_query(stream);
    assert_true(status == WEIR_OK || status == WEIR_ERR_NOT_READY);
    return unused;
}

static void *chain_streams(void *unused)
{
    assert_ok(weir_stream_wait(beside, stream));
    return unused;
}

static void *free_what_both_use(void *unused)
{
    assert_ok(weir_free(block_of_both));
    return unused;
}

/* The call queries no stream before the gate is open, and then does. */
static void expect_no_question(void *(*call)(void *))
{
    const struct timespec while_ = { 0, 20000000 };
    pthread_t thread;
    const uint64_t asked = calls_of(WEIR_BACKEND_capture_status);
    wr_gate_close();
    assert_int_equal(pthread_create(&thread, NULL, call, NULL), 0);
    nanosleep(&while_, NULL);
    assert_int_equal(calls_of(WEIR_BACKEND_capture_status), asked);
    wr_gate_open();
    pthread_join(thread, NULL);
    assert_true(calls_of(WEIR_BACKEND_capture_status) > asked);
}

static void no_stream_is_asked_while_a_capture_is_being_ended(void **state)
{
    (void)state;
    beside = new_stream(0);
    expect_no_question(wait_for_all);
    expect_no_question(ask_stream);
    expect_no_question(chain_streams);
    weir_graph graph = begin_on(stream);
    block_of_both = alloc_on(MIB, stream);
    assert_ok(weir_record_stream(block_of_both, beside));
    expect_no_question(free_what_both_use);
    assert_ok(weir_graph_end(graph));
}

static void *mark_stream(void *unused)
{
    wr_event_pool *events = &device_0()->events;
    void *event = NULL;
    assert_ok(wr_event_behind(events, native_of(stream), &event));
    assert_non_null(event);
    wr_event_put(events, event);
    return unused;
}

static void *ask_for_work(void *unused)
{
    assert_ok(wr_event_ask_stream(&device_0()->events, native_of(stream), false));
    return unused;
}

static void *chain_if_uncaptured(void *unused)
{
    wr_device *d = device_0();
    bool chained = false;
    assert_ok(
        wr_event_chain_uncaptured(&d->events, native_of(beside), wr_stream_find(&d->streams, stream.id), &chained));
    assert_true(chained);
    return unused;
}

static void no_event_is_recorded_while_a_capture_is_being_ended(void **state)
{
    (void)state;
    beside = new_stream(0);
    expect_no_question(mark_stream);
    expect_no_question(ask_for_work);
    expect_no_question(chain_if_uncaptured);
}

static weir_status synchronize_stream(void)
{
    return weir_stream_synchronize(stream);
}

static void a_capture_may_begin_on_a_stream_that_is_waited_for(void **state)
{
    (void)state;
    waiter w;
    occupy(stream);
    start_waiting(&w, synchronize_stream);
    weir_graph graph = begin_on(stream);
    let_end();
    assert_ok(end_waiting(&w));
    assert_ok(weir_graph_end(graph));
}

static void waiting_for_a_device_leaves_its_captures_alone(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    weir_graph graph = begin_on(other);
    assert_status(weir_device_synchronize(0), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "weir_device_synchronize"));
    assert_ok(weir_device_synchronize(1)); /* no capture there */
    assert_ok(weir_graph_end(graph));
    launch_and_wait(graph, other);
    assert_ok(weir_device_synchronize(0));
}

static void captures_begin_while_a_device_is_waited_for(void **state)
{
    (void)state;
    waiter w;
    for (int device = 0; device < 2; device++) {
        occupy(stream);
        start_waiting(&w, synchronize_it);
        weir_graph graph = begin_on(new_stream(device));
        assert_ok(weir_graph_end(graph));
        let_end();
        assert_ok(end_waiting(&w));
    }
}

/* The device must not be waited for then. */
static void closing_beside_a_capture_of_the_program_waits_for_other_streams(void **state)
{
    (void)state;
    const weir_stream busy = new_stream(0), capturing = new_stream(0);
    slow_work work = { .milliseconds = 100 };
    assert_ok(device_0()->backend->capture_begin(0, native_of(capturing), WEIR_CAPTURE_RELAXED));
    start_slow_work(busy, &work);
    assert_ok(weir_fill(alloc_on(8 * MIB, busy), 1, 8 * MIB, busy));
    assert_status(weir_close(), WEIR_ERR_CAPTURE);
    assert_true(atomic_load(&work.done));
}

static weir_status wait_for_streams(void)
{
    return wr_quiet_wait_for_streams(&device_0()->events, &device_0()->streams);
}

static void a_stream_that_has_ended_is_not_waited_for(void **state)
{
    (void)state;
    assert_ok(weir_stream_destroy(new_stream(0)));
    const uint64_t asked = calls_of(WEIR_BACKEND_capture_status);
    assert_ok(wait_for_streams());
    assert_int_equal(calls_of(WEIR_BACKEND_capture_status), asked + 2); /* the default stream and the other one */
}

static void the_events_of_a_failed_wait_serve_the_next(void **state)
{
    (void)state;
    assert_ok(wait_for_streams());
    const uint64_t events = calls_of(WEIR_BACKEND_event_create);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(wait_for_streams(), WEIR_ERR_DRIVER);
    assert_ok(wait_for_streams());
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), events);
}

static void a_device_whose_work_cannot_be_waited_for_is_not_waited_for(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 20 };
    start_slow_work(stream, &work);
    const uint64_t before = calls_of(WEIR_BACKEND_device_synchronize);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(weir_device_synchronize(0), WEIR_ERR_DRIVER);
    assert_int_equal(calls_of(WEIR_BACKEND_device_synchronize), before);
    assert_true(atomic_load(&work.done));
}

static void *capture_something(void *unused)
{
    assert_ok(weir_graph_end(begin_on(new_stream(0))));
    return unused;
}

static void a_device_that_cannot_be_asked_keeps_no_capture_from_beginning(void **state)
{
    (void)state;
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_status(weir_device_synchronize(0), WEIR_ERR_DRIVER);
    (void)in_a_thread(capture_something, NULL);
}

static void a_lost_device_is_reported(void **state)
{
    (void)state;
    assert_ok(weir_host_lose_device(0));
    assert_status(weir_device_synchronize(0), WEIR_ERR_DEVICE_LOST);
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
}

#define QUIET_TEST(test) cmocka_unit_test_setup_teardown(test, open_both, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        QUIET_TEST(captures_begin_while_pools_wait_for_their_device_to_be_paused),
        QUIET_TEST(the_events_of_one_wait_serve_the_next),
        QUIET_TEST(a_pause_that_met_a_capture_changes_nothing),
        QUIET_TEST(a_device_that_is_never_idle_is_paused_too),
        QUIET_TEST(beside_captures_of_other_devices_streams_are_not_asked),
        QUIET_TEST(no_stream_is_asked_while_a_capture_is_being_ended),
        QUIET_TEST(no_event_is_recorded_while_a_capture_is_being_ended),
        QUIET_TEST(a_capture_may_begin_on_a_stream_that_is_waited_for),
        QUIET_TEST(waiting_for_a_device_leaves_its_captures_alone),
        QUIET_TEST(captures_begin_while_a_device_is_waited_for),
        QUIET_TEST(a_stream_that_has_ended_is_not_waited_for),
        QUIET_TEST(the_events_of_a_failed_wait_serve_the_next),
        QUIET_TEST(a_device_whose_work_cannot_be_waited_for_is_not_waited_for),
        QUIET_TEST(a_device_that_cannot_be_asked_keeps_no_capture_from_beginning),
        cmocka_unit_test_setup(closing_beside_a_capture_of_the_program_waits_for_other_streams, open_both),
        cmocka_unit_test_setup(a_lost_device_is_reported, open_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
