#include "base/status.h"

#include "base/exit_key.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The calling thread's last failure, allocated at its first: static TLS is scarce in a library that is loaded late.
 * When there is no memory for it, only the status is kept, in `bare`. */
typedef struct failure {
    weir_status status;
    int64_t native_code;
    char library[32];
    char text[4096];
    void *detail; /* NULL: none */
    wr_detail_write *write_detail;
} failure;
static WR_THREAD_LOCAL failure *last;
static WR_THREAD_LOCAL weir_status bare;

/* A text that does not fit ends so. */
static void cut_off(char *text, size_t size)
{
    static const char cut[] = "...";
    memcpy(text + wr_utf8_whole(text, size - sizeof cut), cut, sizeof cut);
}

static void discard(failure *error)
{
    free(error->detail);
    free(error);
}

static void at_thread_exit(void *of_thread)
{
    last = NULL;
    discard(of_thread);
}

static wr_exit_key exit_key = { .at_exit = at_thread_exit };

/* NULL when there is no memory for it. */
static failure *own_error(void)
{
    if (last) return last;
    failure *made = calloc(1, sizeof *made);
    if (made && !wr_exit_key_set(&exit_key, made)) {
        free(made);
        return NULL;
    }
    last = made;
    return last;
}

bool wr_status_is_error(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                           \
    case name: return value != 0;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return false;
}

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
    if (last) return last->text;
    return bare == WEIR_OK ? "" : weir_status_text(bare);
}

weir_status weir_last_error(weir_error *out)
{
    WR_TRY(wr_sized_check_out("weir_last_error", "weir_error", out, sizeof *out));
    weir_error error = { .status = last ? last->status : bare };
    if (last) {
        error.native_code = last->native_code;
        memcpy(error.library, last->library, sizeof error.library);
        if (snprintf(error.text, sizeof error.text, "%s", last->text) >= (int)sizeof error.text)
            cut_off(error.text, sizeof error.text);
    }
    wr_sized_give(out, &error, sizeof error);
    return WEIR_OK;
}

void *wr_fail_detail(size_t bytes, wr_detail_write *write)
{
    if (!last) return NULL;
    free(last->detail);
    last->detail = calloc(1, bytes);
    last->write_detail = write;
    return last->detail;
}

void wr_last_detail(void *to)
{
    if (last && last->detail) last->write_detail(last->detail, to);
}

void weir_check_failed(const char *call, weir_status status, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, call, weir_status_name(status), weir_status_text(status));
    if (last && last->status == status && last->text[0] != '\0') fprintf(stderr, "%s\n", last->text);
    exit(1);
}

/* By way of a copy, because the arguments may point into the text that is being replaced. */
static void set_text(failure *error, const char *format, va_list arguments, const char *tail)
{
    char text[sizeof error->text];

    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length < 0) length = 0;
    if ((size_t)length < sizeof text) length += snprintf(text + length, sizeof text - (size_t)length, "%s", tail);
    if ((size_t)length >= sizeof text) cut_off(text, sizeof text);
    wr_utf8_plain(text);
    memcpy(error->text, text, strlen(text) + 1);
}

static void fail(weir_status status, const char *library, int64_t native, const char *format, va_list arguments)
{
    failure *error = own_error();
    bare = status;
    if (!error) return;
    free(error->detail);
    error->detail = NULL;
    set_text(error, format, arguments, "");
    error->status = status;
    error->native_code = native;
    snprintf(error->library, sizeof error->library, "%s", library);
    if (library[0])
        wr_log(WR_LOG_DEBUG, "%s: %s error %" PRId64 ": %s", weir_status_name(status), library, native, error->text);
    else
        wr_log(WR_LOG_DEBUG, "%s: %s", weir_status_name(status), error->text);
}

weir_status wr_fail(weir_status status, const char *format, ...)
{
    if (status == WEIR_ERR_NOT_READY) return status;
    va_list arguments;
    va_start(arguments, format);
    fail(status, "", 0, format, arguments);
    va_end(arguments);
    return status;
}

weir_status wr_fail_native(weir_status status, const char *library, int64_t native, const char *format, ...)
{
    if (status == WEIR_ERR_NOT_READY) return status;
    va_list arguments;
    va_start(arguments, format);
    fail(status, library, native, format, arguments);
    va_end(arguments);
    return status;
}

void wr_fail_prefix(const char *format, ...)
{
    va_list arguments;
    if (!last) return;
    va_start(arguments, format);
    set_text(last, format, arguments, last->text);
    va_end(arguments);
}

weir_status wr_fail_in(const char *call, weir_status status)
{
    if (status == WEIR_ERR_DOUBLE_FREE || status == WEIR_ERR_UNKNOWN_POINTER || status == WEIR_ERR_INVALID_ARGUMENT)
        wr_fail_prefix("%s: ", call);
    return status;
}

wr_saved_failure wr_fail_save(void)
{
    const wr_saved_failure saved = { last, bare };
    last = NULL;
    bare = WEIR_OK;
    return saved;
}

void wr_fail_restore(wr_saved_failure saved)
{
    if (last) discard(last);
    /* Also if nothing failed meanwhile: what was saved and restored within may have left another there. */
    if (last || saved.error) (void)wr_exit_key_set(&exit_key, saved.error); /* cannot fail: the slot exists */
    last = saved.error;
    bare = saved.status;
}
