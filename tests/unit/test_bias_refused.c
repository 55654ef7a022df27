/*
 * Biased locks (base/bias.h) of a process in which membarrier(2) is forbidden once locks are biased, as by a sandbox
 * that it enters late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bias.h"
#include "thread_support.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

static wr_bias_lock lock;
static unsigned slept;

/* A signal comes in the first sleep. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (slept++ != 0) return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    if (left) *left = *time;
    errno = EINTR;
    return -1;
}

static void *take(void *unused)
{
    wr_bias_acquire(&lock, WR_BIAS_INNER);
    wr_bias_release(&lock, WR_BIAS_INNER);
    return unused;
}

static void take_many(void)
{
    for (int i = 0; i < 1000; i++) (void)take(NULL);
}

static bool forbid_membarrier(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = { sizeof steps / sizeof steps[0], steps };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void a_bias_ends_for_good_after_a_wait_that_no_signal_cuts_short(void **state)
{
    (void)state;
    wr_bias_prepare();
    wr_bias_init(&lock, WR_BIAS_INNER, WR_RANK_LEAF, "lock");
    take_many();
    if (WR_THREAD_SANITIZER || !wr_bias_is_owned(&lock) || !forbid_membarrier()) skip();
    (void)in_a_thread(take, NULL);
    assert_int_equal(slept, 2);
    take_many();
    assert_false(wr_bias_is_owned(&lock));
    assert_false(wr_bias_prepare_thread());
    wr_bias_destroy(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_ends_for_good_after_a_wait_that_no_signal_cuts_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
