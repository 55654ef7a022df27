#include "base/bias.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sanitized.h"
#include "thread_support.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static wr_bias_lock outer, inner;

static int set_up(void **state)
{
    (void)state;
    wr_bias_prepare();
    wr_bias_init(&outer, WR_BIAS_OUTER, WR_RANK_FRONT, "outer");
    wr_bias_init(&inner, WR_BIAS_INNER, WR_RANK_CACHE, "inner");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wr_bias_destroy(&outer);
    wr_bias_destroy(&inner);
    return 0;
}

static bool is_own(const wr_bias_lock *lock)
{
    return wr_bias_self && atomic_load(&lock->owner) == wr_bias_self;
}

static bool is_inside(const wr_bias_lock *lock)
{
    return wr_bias_self && atomic_load(&wr_bias_self->inside[lock->depth]) == lock;
}

/* Takes the lock often enough to get the bias. */
static void take_again_and_again(wr_bias_lock *lock)
{
    for (int i = 0; i < 100; i++) {
        wr_bias_acquire(lock, lock->depth);
        wr_bias_release(lock, lock->depth);
    }
}

/* Without membarrier there is no bias to test. */
static void own(wr_bias_lock *lock)
{
    if (!WR_THREAD_SANITIZER && syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) skip();
    take_again_and_again(lock);
    assert_true(is_own(lock));
}

static void a_thread_that_often_takes_both_locks_needs_neither_mutex(void **state)
{
    (void)state;
    own(&outer);
    own(&inner);
    wr_bias_acquire(&outer, WR_BIAS_OUTER);
    assert_true(wr_bias_try(&inner, WR_BIAS_INNER));
    assert_true(is_inside(&outer) && is_inside(&inner));
    assert_true(wr_lock_held(&outer.mutex) && wr_lock_held(&inner.mutex));
    assert_true(wr_lock_is_free(&outer.mutex) && wr_lock_is_free(&inner.mutex));
    wr_bias_release(&inner, WR_BIAS_INNER);
    assert_true(is_inside(&outer) && !is_inside(&inner));
    wr_bias_release(&outer, WR_BIAS_OUTER);
    assert_false(is_inside(&outer));
}

static void a_lock_is_released_as_it_was_taken_whatever_the_other_is(void **state)
{
    (void)state;
    own(&outer);
    for (int i = 0; i < 100; i++) { /* on the way `inner` gets its bias */
        wr_bias_acquire(&outer, WR_BIAS_OUTER);
        wr_bias_acquire(&inner, WR_BIAS_INNER);
        assert_int_equal(is_inside(&inner), wr_lock_is_free(&inner.mutex));
        wr_bias_release(&inner, WR_BIAS_INNER);
        assert_true(is_inside(&outer));
        wr_bias_release(&outer, WR_BIAS_OUTER);
    }
    assert_true(is_own(&inner) && wr_lock_is_free(&inner.mutex) && wr_lock_is_free(&outer.mutex));
}

static void *visit_outer(void *unused)
{
    wr_bias_visit(&outer);
    wr_bias_release(&outer, WR_BIAS_OUTER);
    return unused;
}

static void *take_inner(void *unused)
{
    wr_bias_acquire(&inner, WR_BIAS_INNER);
    wr_bias_release(&inner, WR_BIAS_INNER);
    return unused;
}

static void *try_inner(void *got)
{
    *(bool *)got = wr_bias_try(&inner, WR_BIAS_INNER);
    if (*(bool *)got) wr_bias_release(&inner, WR_BIAS_INNER);
    return NULL;
}

static void a_visitor_gives_the_bias_back_and_others_do_not(void **state)
{
    (void)state;
    bool got = false;
    own(&outer);
    (void)in_a_thread(visit_outer, NULL);
    assert_true(is_own(&outer));
    own(&inner);
    (void)in_a_thread(take_inner, NULL);
    assert_false(is_own(&inner));
    for (int i = 0; i < 100 && !is_own(&inner); i++) take_again_and_again(&inner);
    assert_true(is_own(&inner));
    (void)in_a_thread(try_inner, &got);
    assert_true(got);
    assert_false(is_own(&inner));
}

/* Else a lock whose bias was withdrawn too soon some times would stay without one for ever, while the same program that
 * did not begin so gets it in each turn. */
static void a_long_turn_shows_that_a_bias_is_worthwhile_even_without_one(void **state)
{
    (void)state;
    own(&outer); /* or there is nothing to test */
    inner.threshold = 1 << 20;
    take_again_and_again(&inner);
    assert_false(is_own(&inner));
    nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    (void)in_a_thread(take_inner, NULL);
    own(&inner);
}

static void a_bias_that_was_taken_away_does_not_come_back(void **state)
{
    (void)state;
    own(&inner);
    wr_bias_take_away(&inner);
    wr_bias_release(&inner, WR_BIAS_INNER);
    assert_null(atomic_load(&inner.owner));
}

static void threads_that_take_a_lock_by_turns_get_no_bias(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        (void)take_inner(NULL);
        assert_null(atomic_load(&inner.owner));
        (void)in_a_thread(take_inner, NULL);
        assert_null(atomic_load(&inner.owner));
    }
}

static void a_try_finds_the_mutex_taken(void **state)
{
    (void)state;
    bool got = true;
    wr_bias_acquire(&inner, WR_BIAS_INNER);
    (void)in_a_thread(try_inner, &got);
    assert_false(got);
    wr_bias_release(&inner, WR_BIAS_INNER);
    (void)in_a_thread(try_inner, &got);
    assert_true(got);
}

/* The thread that had it last cannot tell by that, if it is fast enough to have it every time. */
static void a_lock_is_contested_while_another_thread_waits_for_it(void **state)
{
    (void)state;
    pthread_t waiter;
    wr_bias_acquire(&inner, WR_BIAS_INNER);
    assert_false(wr_bias_is_contested(&inner));
    assert_int_equal(pthread_create(&waiter, NULL, take_inner, NULL), 0);
    while (!wr_bias_is_contested(&inner)) sched_yield();
    wr_bias_release(&inner, WR_BIAS_INNER);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_true(wr_bias_is_contested(&inner)); /* the other one had it last */
    wr_bias_acquire(&inner, WR_BIAS_INNER);
    wr_bias_release(&inner, WR_BIAS_INNER);
    assert_false(wr_bias_is_contested(&inner));
}

/* ---- an owner that is not running -------------------------------------------------------------------------------- */

typedef struct stay {
    sem_t inside;
    bool began;
} stay;

static void *stay_inside(void *argument)
{
    stay *s = argument;
    take_again_and_again(&inner);
    wr_bias_acquire(&inner, WR_BIAS_INNER);
    s->began = is_inside(&inner);
    sem_post(&s->inside);
    nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
    wr_bias_release(&inner, WR_BIAS_INNER);
    return NULL;
}

/* Without this, a waiter of a higher priority would keep the owner from running on the only processor that both may
 * use. */
static void a_waiter_sleeps_while_the_owner_is_not_running(void **state)
{
    (void)state;
    pthread_t thread;
    stay s = { .began = false };
    assert_int_equal(sem_init(&s.inside, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, stay_inside, &s), 0);
    wait_for(&s.inside);
    const uint64_t before = wr_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    (void)take_inner(NULL);
    const uint64_t worked = wr_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
    assert_int_equal(pthread_join(thread, NULL), 0);
    sem_destroy(&s.inside);
    if (!s.began) skip();
    assert_in_range(worked, 0, 100000000);
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, ROUNDS = SANITIZED ? 20000 : 100000 };

static uint64_t by_outer, by_inner; /* nothing but the locks keeps these whole */

static void count_inner(unsigned how)
{
    if (how % 3 != 0 || !wr_bias_try(&inner, WR_BIAS_INNER)) wr_bias_acquire(&inner, WR_BIAS_INNER);
    by_inner++;
    wr_bias_release(&inner, WR_BIAS_INNER);
}

static void *count(void *number)
{
    const unsigned me = (unsigned)(uintptr_t)number;
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* Most of the time only one thread runs, so that it has a bias to be withdrawn. */
        if (i / 1000 % THREADS != me && i % 50 != 0) continue;
        if (me == 0 && i % 50 == 0)
            wr_bias_visit(&outer);
        else
            wr_bias_acquire(&outer, WR_BIAS_OUTER);
        by_outer++;
        count_inner(i);
        wr_bias_release(&outer, WR_BIAS_OUTER);
        count_inner(i);
    }
    return NULL;
}

static void both_locks_exclude(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    by_outer = by_inner = 0;
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    const uint64_t each = ROUNDS / THREADS + ROUNDS / 50 - ROUNDS / 50 / THREADS;
    assert_int_equal(by_outer, THREADS * each);
    assert_int_equal(by_inner, 2 * by_outer);
}

static void *take_both(void *unused)
{
    take_again_and_again(&outer);
    take_again_and_again(&inner);
    return unused;
}

/* Later threads reuse the records. */
static void threads_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) (void)in_a_thread(take_both, NULL);
    for (int i = 0; i < 20000 && !is_own(&outer); i++) take_again_and_again(&outer);
    own(&outer);
}

enum { RECORDS = 1024 }; /* all that there are */

static sem_t had, may_end;

static void *have_a_record(void *unused)
{
    (void)wr_bias_prepare_thread();
    sem_post(&had);
    wait_for(&may_end);
    return unused;
}

static void *try_to_have_a_record(void *got)
{
    *(bool *)got = wr_bias_prepare_thread();
    return NULL;
}

static void begin_with_records(pthread_t threads[RECORDS])
{
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, (size_t)256 << 10);
    for (int i = 0; i < RECORDS; i++) assert_int_equal(pthread_create(&threads[i], &small, have_a_record, NULL), 0);
    for (int i = 0; i < RECORDS; i++) wait_for(&had);
    pthread_attr_destroy(&small);
}

static void a_thread_can_have_a_bias_as_soon_as_one_of_too_many_has_ended(void **state)
{
    (void)state;
    static pthread_t threads[RECORDS];
    bool got = true;
    own(&outer); /* or there is nothing to test */
    sem_init(&had, 0, 0);
    sem_init(&may_end, 0, 0);
    begin_with_records(threads);
    (void)in_a_thread(try_to_have_a_record, &got);
    assert_false(got);
    for (int i = 0; i < RECORDS; i++) sem_post(&may_end);
    for (int i = 0; i < RECORDS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2 * RECORDS; i++) {
        (void)in_a_thread(try_to_have_a_record, &got);
        assert_true(got);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_thread_that_often_takes_both_locks_needs_neither_mutex),
        TEST(a_lock_is_released_as_it_was_taken_whatever_the_other_is),
        TEST(a_visitor_gives_the_bias_back_and_others_do_not),
        TEST(a_long_turn_shows_that_a_bias_is_worthwhile_even_without_one),
        TEST(a_bias_that_was_taken_away_does_not_come_back),
        TEST(threads_that_take_a_lock_by_turns_get_no_bias),
        TEST(a_try_finds_the_mutex_taken),
        TEST(a_lock_is_contested_while_another_thread_waits_for_it),
        TEST(a_waiter_sleeps_while_the_owner_is_not_running),
        TEST(both_locks_exclude),
        TEST(threads_come_and_go),
        TEST(a_thread_can_have_a_bias_as_soon_as_one_of_too_many_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
