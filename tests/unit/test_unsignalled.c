#include "base/unsignalled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <time.h>

static const int signals[] = { SIGPIPE, SIGXFSZ };
static const int errors[] = { EPIPE, EFBIG };

static bool is_pending(int number)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, number) == 1;
}

static bool is_blocked(int number)
{
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, number) == 1;
}

static void block(int how, int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(how, &one, NULL);
}

static void a_signal_sent_meanwhile_is_taken_away(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        wr_unsignalled u;
        wr_unsignalled_begin(&u);
        raise(signals[i]);
        assert_true(is_pending(signals[i]));
        wr_unsignalled_end(&u, errors[i]); /* unblocks it */
        assert_false(is_pending(signals[i]));
        assert_false(is_blocked(SIGPIPE));
        assert_false(is_blocked(SIGXFSZ));
    }
}

static void a_signal_that_the_program_was_sent_before_stays(void **state)
{
    (void)state;
    const struct timespec at_once = { 0 };
    for (int i = 0; i < 2; i++) {
        sigset_t one;
        wr_unsignalled u;
        block(SIG_BLOCK, signals[i]);
        raise(signals[i]);
        wr_unsignalled_begin(&u);
        wr_unsignalled_end(&u, errors[i]);
        assert_true(is_pending(signals[i]));
        assert_true(is_blocked(signals[i]));
        sigemptyset(&one);
        sigaddset(&one, signals[i]);
        assert_int_equal(sigtimedwait(&one, NULL, &at_once), signals[i]);
        block(SIG_UNBLOCK, signals[i]);
    }
}

static void a_write_that_succeeded_leaves_everything(void **state)
{
    (void)state;
    wr_unsignalled u;
    wr_unsignalled_begin(&u);
    errno = EDOM;
    wr_unsignalled_end(&u, 0);
    assert_int_equal(errno, EDOM);
    assert_false(is_blocked(SIGPIPE));
}

static void the_error_is_kept(void **state)
{
    (void)state;
    wr_unsignalled u;
    wr_unsignalled_begin(&u);
    errno = EPIPE;
    wr_unsignalled_end(&u, EPIPE); /* looks for a signal in vain, which sets errno */
    assert_int_equal(errno, EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_sent_meanwhile_is_taken_away),
        cmocka_unit_test(a_signal_that_the_program_was_sent_before_stays),
        cmocka_unit_test(a_write_that_succeeded_leaves_everything),
        cmocka_unit_test(the_error_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
