/*
 * python_support: tests in which Python reads what the library writes. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_PYTHON_SUPPORT_H
#define WEIR_TESTS_PYTHON_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>

/* Skips the test where there is no Python. */
static inline void need_python(void)
{
    if (system("python3 -c pass") != 0) skip(); /* NOLINT(concurrency-mt-unsafe): the test's one thread */
}

/* Runs a command that must succeed on a text, which it frees. */
static inline void run_on(const char *command, char *text)
{
    FILE *to = popen(command, "w");
    assert_non_null(to);
    assert_true(fputs(text, to) >= 0);
    assert_int_equal(pclose(to), 0);
    free(text);
}

#endif
