#include "base/status.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The calling thread's last failure; `size` is unused here. */
static WR_THREAD_LOCAL weir_error last;

const char *weir_status_name(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                           \
    case name: return #name;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "WEIR_ERR_UNKNOWN";
}

const char *weir_status_text(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                           \
    case name: return text;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *weir_error_text(void)
{
    return last.text;
}

weir_status weir_last_error(weir_error *out)
{
    WR_ENSURE(out != NULL, WEIR_ERR_INVALID_ARGUMENT, "weir_last_error: out is NULL");
    WR_ENSURE(out->size >= sizeof(weir_error), WEIR_ERR_INVALID_ARGUMENT,
              "weir_last_error: out->size is %zu, needs %zu; set it to sizeof(weir_error) before the call", out->size,
              sizeof(weir_error));

    size_t size = out->size;
    *out = last;
    out->size = size;
    return WEIR_OK;
}

void weir_check_failed(const char *call, weir_status status, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, weir_status_name(status), weir_status_text(status));
    if (last.status == status && last.text[0] != '\0') fprintf(stderr, "%s\n", last.text);
    exit(1);
}

/* Through a copy, because the arguments may point into the text that is being replaced. */
static void set_text(const char *format, va_list arguments, const char *tail)
{
    static const char cut[] = "...";
    char text[sizeof last.text];

    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length < 0) length = 0;
    if ((size_t)length < sizeof text) length += snprintf(text + length, sizeof text - (size_t)length, "%s", tail);
    if ((size_t)length >= sizeof text) memcpy(text + sizeof text - sizeof cut, cut, sizeof cut);
    memcpy(last.text, text, sizeof text);
}

weir_status wr_fail(weir_status status, const char *format, ...)
{
    if (status == WEIR_ERR_NOT_READY) return status;

    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, "");
    va_end(arguments);
    last.status = status;
    last.native_code = 0;
    last.library[0] = '\0';
    wr_log(WR_LOG_DEBUG, "%s: %s", weir_status_name(status), last.text);
    return status;
}

weir_status wr_fail_native(weir_status status, const char *library, int64_t native, const char *format, ...)
{
    if (status == WEIR_ERR_NOT_READY) return status;

    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, "");
    va_end(arguments);
    last.status = status;
    last.native_code = native;
    snprintf(last.library, sizeof last.library, "%s", library);
    wr_log(WR_LOG_DEBUG, "%s: %s error %" PRId64 ": %s", weir_status_name(status), library, native, last.text);
    return status;
}

void wr_fail_prefix(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments, last.text);
    va_end(arguments);
}
