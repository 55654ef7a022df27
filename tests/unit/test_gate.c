#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "stream/gate.h"
#include "thread_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static atomic_bool passed;

static void *close_it(void *unused)
{
    wr_gate_close();
    atomic_store(&passed, true);
    return unused;
}

static void *enter_it(void *unused)
{
    wr_gate_enter();
    atomic_store(&passed, true);
    wr_gate_leave();
    return unused;
}

static void expect_to_pass(void *(*function)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    pthread_join(thread, NULL);
}

/* It has not passed after a while. */
static pthread_t expect_to_wait(void *(*function)(void *))
{
    const struct timespec while_ = { 0, 20000000 };
    pthread_t thread;
    atomic_store(&passed, false);
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    nanosleep(&while_, NULL);
    assert_false(atomic_load(&passed));
    return thread;
}

static void closing_waits_for_threads_inside(void **state)
{
    (void)state;
    wr_gate_enter();
    wr_gate_enter();
    pthread_t thread = expect_to_wait(close_it);
    wr_gate_leave();
    assert_false(atomic_load(&passed));
    wr_gate_leave();
    pthread_join(thread, NULL);
    wr_gate_open();
}

static void entering_waits_until_every_closer_has_opened_the_gate(void **state)
{
    (void)state;
    wr_gate_close();
    wr_gate_close();
    pthread_t thread = expect_to_wait(enter_it);
    wr_gate_open();
    assert_false(atomic_load(&passed));
    wr_gate_open();
    pthread_join(thread, NULL);
}

static void *begin_it(void *unused)
{
    wr_gate_close_to_begin();
    atomic_store(&passed, true);
    wr_gate_open_begun();
    return unused;
}

static void *bar_it(void *unused)
{
    wr_gate_bar();
    atomic_store(&passed, true);
    wr_gate_lift_bar();
    return unused;
}

static void a_beginning_waits_for_all_bars_and_an_end_for_none(void **state)
{
    (void)state;
    wr_gate_bar();
    wr_gate_bar();
    expect_to_pass(close_it);
    wr_gate_open();
    pthread_t beginning = expect_to_wait(begin_it);
    wr_gate_lift_bar();
    assert_false(atomic_load(&passed));
    expect_to_pass(bar_it); /* a second thread that bars does not wait for a beginning that waits */
    expect_to_pass(enter_it);
    wr_gate_lift_bar();
    pthread_join(beginning, NULL);
}

static void a_bar_waits_for_a_beginning_that_goes_on(void **state)
{
    (void)state;
    wr_gate_close_to_begin();
    pthread_t thread = expect_to_wait(bar_it);
    wr_gate_open_begun();
    pthread_join(thread, NULL);
}

static void a_thread_that_bars_beginnings_may_begin(void **state)
{
    (void)state;
    wr_gate_bar();
    begin_it(NULL);
    wr_gate_lift_bar();
}

/* A beginning, or a bar, waits twice until `let_go`. */
static void expect_both_to_pass(void *(*function)(void *), void (*let_go)(void))
{
    pthread_t first = expect_to_wait(function), second = expect_to_wait(function);
    let_go();
    pthread_join(first, NULL);
    pthread_join(second, NULL);
}

static void every_bar_that_waits_for_a_beginning_goes_on_after_it(void **state)
{
    (void)state;
    wr_gate_close_to_begin();
    expect_both_to_pass(bar_it, wr_gate_open_begun);
}

static void every_beginning_that_waits_goes_on_after_the_last_bar(void **state)
{
    (void)state;
    wr_gate_bar();
    expect_both_to_pass(begin_it, wr_gate_lift_bar);
}

static sem_t barred, may_begin;

static void *bar_and_begin(void *unused)
{
    wr_gate_bar();
    sem_post(&barred);
    wait_for(&may_begin);
    begin_it(NULL);
    wr_gate_lift_bar();
    return unused;
}

static void threads_that_bar_beginnings_may_begin_beside_each_other(void **state)
{
    (void)state;
    pthread_t thread;
    sem_init(&barred, 0, 0);
    sem_init(&may_begin, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, bar_and_begin, NULL), 0);
    wait_for(&barred);
    wr_gate_bar();
    wr_gate_close_to_begin();
    sem_post(&may_begin);
    pthread_join(thread, NULL);
    wr_gate_open_begun();
    wr_gate_lift_bar();
}

static void *bar_again_and_again(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) {
        wr_gate_bar();
        const struct timespec moment = { 0, 1000000 };
        nanosleep(&moment, NULL);
        wr_gate_lift_bar();
    }
    return NULL;
}

static void one_beginning_comes_between_two_bars(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_bool stop = false;
    assert_int_equal(pthread_create(&thread, NULL, bar_again_and_again, &stop), 0);
    for (int i = 0; i < 50; i++) begin_it(NULL);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

static uint64_t processor_ns(pthread_t thread)
{
    clockid_t clock;
    assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
    return wr_clock_ns(clock);
}

static void waiting_threads_sleep(void **state)
{
    (void)state;
    void *(*const waits[])(void *) = { begin_it, enter_it, close_it };
    for (int i = 0; i < 3; i++) {
        (i == 0 ? wr_gate_bar : i == 1 ? wr_gate_close : wr_gate_enter)();
        pthread_t thread = expect_to_wait(waits[i]);
        const uint64_t began = wr_clock_ns(CLOCK_MONOTONIC), worked = processor_ns(thread);
        nanosleep(&(struct timespec){ .tv_nsec = 180000000 }, NULL);
        const uint64_t used = processor_ns(thread) - worked;
        assert_in_range(used, 0, (wr_clock_ns(CLOCK_MONOTONIC) - began) / 3);
        (i == 0 ? wr_gate_lift_bar : i == 1 ? wr_gate_open : wr_gate_leave)();
        pthread_join(thread, NULL);
        if (i == 2) wr_gate_open();
    }
}

static void known_captures_are_counted(void **state)
{
    (void)state;
    assert_false(wr_gate_captures());
    wr_gate_capture_comes();
    wr_gate_capture_comes();
    wr_gate_capture_goes();
    assert_true(wr_gate_captures());
    wr_gate_capture_goes();
    assert_false(wr_gate_captures());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_waits_for_threads_inside),
        cmocka_unit_test(entering_waits_until_every_closer_has_opened_the_gate),
        cmocka_unit_test(a_beginning_waits_for_all_bars_and_an_end_for_none),
        cmocka_unit_test(a_bar_waits_for_a_beginning_that_goes_on),
        cmocka_unit_test(a_thread_that_bars_beginnings_may_begin),
        cmocka_unit_test(every_bar_that_waits_for_a_beginning_goes_on_after_it),
        cmocka_unit_test(every_beginning_that_waits_goes_on_after_the_last_bar),
        cmocka_unit_test(threads_that_bar_beginnings_may_begin_beside_each_other),
        cmocka_unit_test(one_beginning_comes_between_two_bars),
        cmocka_unit_test(waiting_threads_sleep),
        cmocka_unit_test(known_captures_are_counted),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
