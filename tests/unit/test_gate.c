#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/gate.h"

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

/* Whether the thread gets by within a while. */
static bool passes(pthread_t *thread, void *(*function)(void *))
{
    const struct timespec while_ = { 0, 20000000 };
    atomic_store(&passed, false);
    assert_int_equal(pthread_create(thread, NULL, function, NULL), 0);
    nanosleep(&while_, NULL);
    return atomic_load(&passed);
}

static void closing_waits_for_those_inside(void **state)
{
    (void)state;
    pthread_t thread;
    wr_gate_enter();
    wr_gate_enter();
    assert_false(passes(&thread, close_it));
    wr_gate_leave();
    assert_false(atomic_load(&passed));
    wr_gate_leave();
    pthread_join(thread, NULL);
    assert_true(atomic_load(&passed));
    wr_gate_open();
}

static void entering_waits_until_all_have_opened_it(void **state)
{
    (void)state;
    pthread_t thread;
    wr_gate_close();
    wr_gate_close();
    assert_false(passes(&thread, enter_it));
    wr_gate_open();
    assert_false(atomic_load(&passed));
    wr_gate_open();
    pthread_join(thread, NULL);
    assert_true(atomic_load(&passed));
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
        cmocka_unit_test(closing_waits_for_those_inside),
        cmocka_unit_test(entering_waits_until_all_have_opened_it),
        cmocka_unit_test(known_captures_are_counted),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL);
}
