#include "base/log.h"

#include "base/unsignalled.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

atomic_int wr_log_threshold = WR_LOG_OFF;

/* Room for an error text of the longest kind and what is put in front of it. */
enum { LINE_SIZE = 1280 };

void wr_log_write(wr_log_level level, const char *format, ...)
{
    static const char *const names[] = { "off", "error", "warn", "info", "debug" };
    int saved = errno;
    char line[LINE_SIZE];
    size_t length = (size_t)snprintf(line, sizeof line, "weir: %s: ", names[level]);

    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
    if (added > 0) length += (size_t)added;
    if (length > sizeof line - 1) length = sizeof line - 1;
    line[length++] = '\n';

    /* A log that cannot be written is no reason to disturb the program. */
    wr_unsignalled u;
    wr_unsignalled_begin(&u);
    ssize_t written = 0;
    do written = write(STDERR_FILENO, line, length);
    while (written < 0 && errno == EINTR);
    wr_unsignalled_end(&u, written < 0 ? errno : 0);
    errno = saved;
}
