#include "unit/host.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

static void count_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void every_call_says_lost(void **state)
{
    (void)state;
    void *stream = new_stream(0), *event = new_event(0), *base = new_segment(0, 2 * MIB);
    uint64_t free_bytes, total;
    ok(weir_host_lose_device(0));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->event_query(0, event), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->segment_free(0, base, 2 * MIB), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_memory(0, &free_bytes, &total), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_synchronize(0), WEIR_ERR_DEVICE_LOST);
}

static void other_devices_go_on(void **state)
{
    (void)state;
    ok(weir_host_lose_device(0));
    void *stream = new_stream(1);
    ok(b->stream_synchronize(1, stream));
    ok(b->segment_free(1, new_segment(1, 2 * MIB), 2 * MIB));
}

static void it_stays_lost_until_the_back_end_closes(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(weir_host_lose_device(0));
    assert_int_equal(b->device_close(0), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_open(0, &caps), WEIR_ERR_DEVICE_LOST);
    ok(b->device_close(1));
    ok(wr_backend_close(b));
    host_open(NULL);
    ok(b->device_synchronize(0));
}

static void queued_work_is_dropped(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, stream));
    ok(b->stream_callback(0, stream, count_up, &count));
    ok(weir_host_lose_device(0));
    host_close(NULL);
    assert_int_equal(atomic_load(&count), 0);
    host_open(NULL);
}

static void *synchronize(void *stream)
{
    return (void *)(intptr_t)b->stream_synchronize(0, stream);
}

static void wait_for_post(void *argument)
{
    sem_wait(argument);
}

static void waiting_threads_are_told_of_the_loss(void **state)
{
    (void)state;
    void *stream = new_stream(0), *status;
    pthread_t thread;
    uint64_t count = 0;
    static sem_t posted; /* the callback may still use it when the test is over */
    sem_init(&posted, 0, 0);
    ok(b->stream_callback(0, stream, wait_for_post, &posted));
    assert_int_equal(pthread_create(&thread, NULL, synchronize, stream), 0);
    while (count == 0) ok(weir_host_calls(WEIR_BACKEND_stream_synchronize, &count));
    ok(weir_host_lose_device(0));
    sem_post(&posted);
    pthread_join(thread, &status);
    assert_int_equal((intptr_t)status, WEIR_ERR_DEVICE_LOST);
}

static void stream_of_another_device_stops_waiting(void **state)
{
    (void)state;
    void *lost = new_stream(0), *other = new_stream(1), *event = new_event(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, lost));
    ok(b->event_record(0, event, lost));
    ok(b->stream_wait(1, other, event));
    ok(b->stream_callback(1, other, count_up, &count));
    ok(weir_host_lose_device(0));
    ok(b->stream_synchronize(1, other));
    assert_int_equal(atomic_load(&count), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        host_test(every_call_says_lost),
        host_test(other_devices_go_on),
        host_test(it_stays_lost_until_the_back_end_closes),
        host_test(queued_work_is_dropped),
        host_test(waiting_threads_are_told_of_the_loss),
        host_test(stream_of_another_device_stops_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
