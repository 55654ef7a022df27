/*
 * log_support: captures weir's log as text. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_UNIT_LOG_SUPPORT_H
#define WEIR_TESTS_UNIT_LOG_SUPPORT_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Captures the log from begin_log to end_log. */
static int real_stderr;
static inline void begin_log(void)
{
    fflush(stderr);
    real_stderr = dup(STDERR_FILENO);
    const int file = open("log", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(real_stderr >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    close(file);
}

static inline const char *log_so_far(void)
{
    static char text[1 << 16];
    FILE *file = fopen("log", "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static inline const char *end_log(void)
{
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
    close(real_stderr);
    return log_so_far();
}

#endif
