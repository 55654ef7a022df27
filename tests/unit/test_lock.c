#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "thread_support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static wr_lock low = WR_LOCK_INITIALIZER(WR_RANK_OPEN, "the low lock");
static wr_lock middle = WR_LOCK_INITIALIZER(WR_RANK_CACHE, "the middle lock");
static wr_lock high = WR_LOCK_INITIALIZER(WR_RANK_LEAF, "the high lock");

static void rising_ranks_nest(void **state)
{
    (void)state;
    wr_lock_acquire(&low);
    wr_lock_acquire(&middle);
    wr_lock_acquire(&high);
    assert_true(wr_lock_held(&low) && wr_lock_held(&middle) && wr_lock_held(&high));
    wr_lock_release(&high);
    wr_lock_release(&middle);
    wr_lock_release(&low);
}

static void locks_may_be_released_in_any_order(void **state)
{
    (void)state;
    wr_lock_acquire(&low);
    wr_lock_acquire(&middle);
    wr_lock_acquire(&high);
    wr_lock_release(&low);
    wr_lock_release(&high);
    assert_true(wr_lock_held(&middle));
    wr_lock_acquire(&high);
    wr_lock_release(&middle);
    wr_lock_release(&high);
    wr_lock_acquire(&low); /* nothing is left held */
    wr_lock_release(&low);
}

static void an_initialised_lock_works_as_a_static_one(void **state)
{
    (void)state;
    wr_lock lock;
    wr_lock_init(&lock, WR_RANK_EVENTS, "events");
    assert_int_equal(lock.rank, WR_RANK_EVENTS);
    assert_string_equal(lock.name, "events");
    assert_true(wr_lock_try(&lock));
    wr_lock_release(&lock);
    wr_lock_destroy(&lock);
}

static void *try_middle(void *result)
{
    *(bool *)result = wr_lock_try(&middle);
    if (*(bool *)result) wr_lock_release(&middle);
    wr_lock_acquire(&low); /* a refused try leaves nothing held */
    wr_lock_release(&low);
    return NULL;
}

static void try_tells_whether_somebody_else_has_it(void **state)
{
    (void)state;
    bool got = true;
    wr_lock_acquire(&middle);
    (void)in_a_thread(try_middle, &got);
    assert_false(got);
    wr_lock_release(&middle);

    (void)in_a_thread(try_middle, &got);
    assert_true(got);
}

enum { THREADS = 8, ROUNDS = 2000 };

static int counter;

static void *count_up(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        wr_lock_acquire(&middle);
        counter++;
        wr_lock_release(&middle);
    }
    return unused;
}

static void locks_exclude(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(counter, THREADS * ROUNDS);
}

static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

static void *take_turns(void *unused)
{
    wr_lock_acquire(&middle);
    while (turn != 1) wr_lock_wait(&middle, &turned);
    turn = 2;
    pthread_cond_broadcast(&turned);
    wr_lock_release(&middle);
    return unused;
}

static void waiting_gives_the_lock_away_and_gets_it_back(void **state)
{
    (void)state;
    pthread_t thread;
    turn = 0;
    assert_int_equal(pthread_create(&thread, NULL, take_turns, NULL), 0);
    wr_lock_acquire(&low);
    wr_lock_acquire(&middle);
    turn = 1;
    pthread_cond_broadcast(&turned);
    while (turn != 2) wr_lock_wait(&middle, &turned);
    assert_true(wr_lock_held(&middle));
    wr_lock_acquire(&high); /* the order still stands */
    wr_lock_release(&high);
    wr_lock_release(&middle);
    wr_lock_release(&low);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_wait_with_a_deadline_ends_no_earlier(void **state)
{
    (void)state;
    pthread_cond_t never;
    const uint64_t timeout = 20000000, before = wr_clock_ns(CLOCK_MONOTONIC);
    assert_int_equal(wr_lock_condition_init(&never), 0);
    const struct timespec deadline = wr_lock_deadline(timeout);
    wr_lock_acquire(&middle);
    while (wr_lock_wait_until(&middle, &never, &deadline) != ETIMEDOUT) continue;
    wr_lock_release(&middle);
    assert_true(wr_clock_ns(CLOCK_MONOTONIC) - before >= timeout);
    pthread_cond_destroy(&never);
}

static void the_longest_timeout_takes_decades(void **state)
{
    (void)state;
    const struct timespec deadline = wr_lock_deadline(UINT64_MAX);
    const uint64_t seconds = wr_clock_ns(CLOCK_MONOTONIC) / 1000000000u;
    assert_true((uint64_t)deadline.tv_sec > seconds + UINT64_C(20) * 365 * 24 * 60 * 60);
}

#ifndef NDEBUG

static wr_lock equal = WR_LOCK_INITIALIZER(WR_RANK_CACHE, "the equal lock");

/* Runs `body` in a child, which must abort with all of `words` on stderr. */
static void expect_abort(void (*body)(void), const char *const words[])
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        body();
        _exit(0);
    }
    close(ends[1]);
    char output[1024];
    size_t length = 0;
    ssize_t got;
    while (length + 1 < sizeof output && (got = read(ends[0], output + length, sizeof output - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFSIGNALED(ended));
    assert_int_equal(WTERMSIG(ended), SIGABRT);
    for (; *words != NULL; words++) assert_non_null(strstr(output, *words));
}

static void take_middle_then_low(void)
{
    wr_lock_acquire(&middle);
    wr_lock_acquire(&low);
}

static void falling_rank_aborts_naming_both(void **state)
{
    (void)state;
    expect_abort(take_middle_then_low, (const char *const[]){ "the middle lock", "the low lock", NULL });
}

static void take_two_of_a_rank(void)
{
    wr_lock_acquire(&middle);
    wr_lock_acquire(&equal);
}

static void equal_rank_aborts(void **state)
{
    (void)state;
    expect_abort(take_two_of_a_rank, (const char *const[]){ "the middle lock", "the equal lock", NULL });
}

static void take_twice(void)
{
    wr_lock_acquire(&middle);
    wr_lock_acquire(&middle);
}

static void taking_a_lock_twice_aborts(void **state)
{
    (void)state;
    expect_abort(take_twice, (const char *const[]){ "the middle lock", NULL });
}

static void try_middle_then_low(void)
{
    wr_lock_acquire(&middle);
    if (wr_lock_try(&low)) _exit(1);
}

static void try_keeps_to_the_order_too(void **state)
{
    (void)state;
    expect_abort(try_middle_then_low, (const char *const[]){ "the middle lock", "the low lock", NULL });
}

static void take_middle_then_low_soon(void)
{
    wr_lock_acquire(&middle);
    wr_lock_acquire_soon(&low);
}

static void spinning_keeps_to_the_order_too(void **state)
{
    (void)state;
    expect_abort(take_middle_then_low_soon, (const char *const[]){ "the middle lock", "the low lock", NULL });
}

static void release_what_is_not_held(void)
{
    wr_lock_acquire(&low);
    wr_lock_release(&middle);
}

static void releasing_a_lock_that_is_not_held_aborts(void **state)
{
    (void)state;
    expect_abort(release_what_is_not_held, (const char *const[]){ "the middle lock", NULL });
}

static void wait_with_an_outer_lock(void)
{
    wr_lock_acquire(&low);
    wr_lock_acquire(&middle);
    wr_lock_wait(&low, &turned);
}

static void waiting_with_a_lock_that_is_not_innermost_aborts(void **state)
{
    (void)state;
    expect_abort(wait_with_an_outer_lock, (const char *const[]){ "the low lock", "the middle lock", NULL });
}

static void a_lock_is_held_by_its_thread_only(void **state)
{
    (void)state;
    assert_false(wr_lock_held(&middle));
    wr_lock_acquire(&middle);
    assert_true(wr_lock_held(&middle));
    assert_false(wr_lock_held(&equal));
    wr_lock_release(&middle);
    assert_false(wr_lock_held(&middle));
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rising_ranks_nest),
        cmocka_unit_test(locks_may_be_released_in_any_order),
        cmocka_unit_test(an_initialised_lock_works_as_a_static_one),
        cmocka_unit_test(try_tells_whether_somebody_else_has_it),
        cmocka_unit_test(locks_exclude),
        cmocka_unit_test(waiting_gives_the_lock_away_and_gets_it_back),
        cmocka_unit_test(a_wait_with_a_deadline_ends_no_earlier),
        cmocka_unit_test(the_longest_timeout_takes_decades),
#ifndef NDEBUG
        cmocka_unit_test(falling_rank_aborts_naming_both),
        cmocka_unit_test(equal_rank_aborts),
        cmocka_unit_test(taking_a_lock_twice_aborts),
        cmocka_unit_test(try_keeps_to_the_order_too),
        cmocka_unit_test(spinning_keeps_to_the_order_too),
        cmocka_unit_test(releasing_a_lock_that_is_not_held_aborts),
        cmocka_unit_test(waiting_with_a_lock_that_is_not_innermost_aborts),
        cmocka_unit_test(a_lock_is_held_by_its_thread_only),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
