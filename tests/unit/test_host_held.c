/*
 * Streams held by hand, and threads that synchronise with them and so must run the work that they wait for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"

#include <pthread.h>
#include <sched.h>

static weir_stream first, second;
static unsigned char *memory;

static int open_held(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB });
    first = new_stream(0);
    second = new_stream(0);
    memory = alloc_on(4096, first);
    memory[0] = 0;
    hold(first);
    return 0;
}

static void synchronising_with_a_held_stream_runs_its_work(void **state)
{
    (void)state;
    assert_ok(weir_fill(memory, 1, 1, first));
    assert_int_equal(memory[0], 0);
    assert_ok(weir_stream_synchronize(first));
    assert_int_equal(memory[0], 1);
}

static void a_held_stream_stays_held(void **state)
{
    (void)state;
    assert_ok(weir_fill(memory, 1, 1, first));
    assert_ok(weir_stream_synchronize(first));
    assert_ok(weir_fill(memory, 2, 1, first));
    assert_status(weir_stream_query(first), WEIR_ERR_NOT_READY);
    assert_int_equal(memory[0], 1);
}

static void work_queued_after_the_event_is_not_run(void **state)
{
    (void)state;
    assert_ok(weir_fill(memory, 1, 1, first));
    assert_ok(weir_stream_wait(second, first));
    assert_ok(weir_fill(memory, 2, 1, first));
    assert_ok(weir_stream_synchronize(second));
    assert_int_equal(memory[0], 1);
    assert_status(weir_stream_query(first), WEIR_ERR_NOT_READY);
}

static void a_stream_behind_a_held_one_can_be_waited_for(void **state)
{
    (void)state;
    assert_ok(weir_fill(memory, 1, 1, first));
    assert_ok(weir_stream_wait(second, first));
    assert_ok(weir_fill(memory, 2, 1, second));
    assert_ok(weir_stream_synchronize(second));
    assert_int_equal(memory[0], 2);
}

static void held_streams_that_wait_for_each_other_in_turn_are_run_in_order(void **state)
{
    (void)state;
    hold(second);
    for (unsigned char i = 1; i <= 10; i++) {
        weir_stream turn = i % 2 ? first : second, other = i % 2 ? second : first;
        assert_ok(weir_copy(memory + i, memory + i - 1, 1, turn));
        assert_ok(weir_stream_wait(other, turn));
    }
    memory[0] = 42;
    assert_ok(weir_stream_synchronize(second));
    for (int i = 1; i <= 9; i++) assert_int_equal(memory[i], 42);
    assert_ok(weir_stream_synchronize(first));
}

static void synchronising_the_device_runs_all_held_work(void **state)
{
    (void)state;
    hold(second);
    assert_ok(weir_fill(memory, 1, 1, first));
    assert_ok(weir_fill(memory + 1, 2, 1, second));
    assert_ok(weir_device_synchronize(0));
    assert_int_equal(memory[0], 1);
    assert_int_equal(memory[1], 2);
}

static void an_allocation_that_must_wait_for_a_held_stream_gets_its_memory(void **state)
{
    (void)state;
    void *block = alloc_on(60 * MIB, second);
    assert_ok(weir_fill(memory, 1, 1, first));
    assert_ok(weir_record_stream(block, first));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(60 * MIB, second), block);
    assert_int_equal(memory[0], 1);
}

static void *synchronise(void *argument)
{
    (void)argument;
    return (void *)(intptr_t)weir_stream_synchronize(second);
}

static void several_threads_may_wait_for_the_same_held_work(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 100; i++) assert_ok(weir_fill(memory, (unsigned char)i, 1, first));
    assert_ok(weir_stream_wait(second, first));
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, synchronise, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *status = NULL;
        pthread_join(threads[i], &status);
        assert_int_equal((intptr_t)status, WEIR_OK);
    }
    assert_int_equal(memory[0], 99);
}

/* Holds the stream once for each time that it is told to. */
typedef struct holding {
    atomic_int told, done;
    atomic_bool stop;
    void *native;
} holding;

static void *hold_when_told(void *argument)
{
    holding *h = argument;
    int round = 0;
    while (!atomic_load(&h->stop)) {
        if (atomic_load(&h->told) == round) {
            sched_yield();
            continue;
        }
        round++;
        for (volatile int i = round % 64 * 8; i > 0; i--); /* another moment each time */
        (void)weir_host_stream_hold(0, h->native);
        atomic_store(&h->done, round);
    }
    return NULL;
}

static void a_thread_that_waits_when_the_stream_is_held_goes_on(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    holding h = { .native = native_of(second) };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold_when_told, &h), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        atomic_store(&h.told, round);
        assert_ok(weir_stream_callback(second, do_nothing, NULL));
        assert_ok(weir_stream_synchronize(second));
        while (atomic_load(&h.done) != round) sched_yield();
        assert_ok(weir_host_stream_release(0, h.native));
    }
    atomic_store(&h.stop, true);
    pthread_join(thread, NULL);
}

#define HELD_TEST(test) cmocka_unit_test_setup_teardown(test, open_held, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HELD_TEST(synchronising_with_a_held_stream_runs_its_work),
        HELD_TEST(a_held_stream_stays_held),
        HELD_TEST(work_queued_after_the_event_is_not_run),
        HELD_TEST(a_stream_behind_a_held_one_can_be_waited_for),
        HELD_TEST(held_streams_that_wait_for_each_other_in_turn_are_run_in_order),
        HELD_TEST(synchronising_the_device_runs_all_held_work),
        HELD_TEST(an_allocation_that_must_wait_for_a_held_stream_gets_its_memory),
        HELD_TEST(several_threads_may_wait_for_the_same_held_work),
        HELD_TEST(a_thread_that_waits_when_the_stream_is_held_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
