/*
 * Threads of the library's own.
 */
#include "base/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>

static void *ask_mask(void *argument)
{
    pthread_sigmask(SIG_SETMASK, NULL, argument);
    return NULL;
}

/* A handler of the program's would run on a small stack, or while a lock of the library's is held. */
static void a_thread_of_the_librarys_own_takes_no_signals(void **state)
{
    (void)state;
    pthread_t worker;
    sigset_t mask;
    sigemptyset(&mask);
    assert_int_equal(wr_worker_start(&worker, ask_mask, &mask), 0);
    assert_int_equal(pthread_join(worker, NULL), 0);
    static const int signals[] = { SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) assert_true(sigismember(&mask, signals[i]));
}

static void starting_one_leaves_the_callers_signals_as_they_were(void **state)
{
    (void)state;
    pthread_t worker;
    sigset_t mask, before;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(wr_worker_start(&worker, ask_mask, &mask), 0);
    assert_int_equal(pthread_join(worker, NULL), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_true(sigismember(&mask, SIGUSR2));
    assert_false(sigismember(&mask, SIGUSR1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_of_the_librarys_own_takes_no_signals),
        cmocka_unit_test(starting_one_leaves_the_callers_signals_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
