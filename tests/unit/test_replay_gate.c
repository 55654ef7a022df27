/*
 * Gates of a replay on a real driver (tools/replay/gate.h), on a machine whose wall clock is being set.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "replay/gate.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What the program is told of the wall clock is so much ahead of what it is when somebody waits for it. */
static time_t ahead;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME) now->tv_sec += ahead;
    return 0;
}

static void a_gate_that_nobody_lets_pass_opens_though_the_clock_was_set_back(void **state)
{
    (void)state;
    gates g;
    const int device = 0;
    ahead = 3600;
    alarm(100); /* ends a test that would last an hour */
    assert_ok(gates_open(&g, &device, 1, false));
    assert_ok(gate_free(&g, 0, NULL));
    assert_ok(weir_stream_synchronize(g.at[0].stream));
    gates_close(&g);
    alarm(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_gate_that_nobody_lets_pass_opens_though_the_clock_was_set_back,
                                        open_small_host, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
