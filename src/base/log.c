#include "base/log.h"

#include "base/unsignalled.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

atomic_int wr_log_threshold = WR_LOG_OFF;

/* Room for an error text of the longest kind and what is put in front of it. */
enum { LINE_SIZE = 1280 };

/* Puts as much of the text as fits at the end of the line of `length` bytes, whose new length this returns. Its further
 * lines are indented, so that nothing that it quotes can be taken for another entry. */
static size_t put(char *line, size_t length, const char *text)
{
    static const char indented[] = "\n  ";
    for (; *text; text++) {
        const bool breaks = *text == '\n';
        const size_t bytes = breaks ? sizeof indented - 1 : 1;
        if (length + bytes >= LINE_SIZE) return wr_utf8_whole(line, length);
        memcpy(line + length, breaks ? indented : text, bytes);
        length += bytes;
    }
    return length;
}

void wr_log_write(wr_log_level level, const char *format, ...)
{
    static const char *const names[] = { "off", "error", "warn", "info", "debug" };
    int saved = errno;
    char text[LINE_SIZE] = "", line[LINE_SIZE];
    size_t length = (size_t)snprintf(line, sizeof line, "weir: %s: ", names[level]);

    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    wr_utf8_plain(text);
    length = put(line, length, text);
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
