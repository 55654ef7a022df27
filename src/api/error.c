/*
 * The calling thread's last error, for programs.
 */
#include "base/status.h"
#include "observe/emit.h"
#include "weir/observe.h"

#include <string.h>

weir_status weir_error_json(char *buffer, size_t capacity, size_t *length)
{
    /* Not by wr_fail: that would replace the error to be reported. */
    if (!length || (!buffer && capacity != 0)) return WEIR_ERR_INVALID_ARGUMENT;
    weir_error error = { .size = sizeof error };
    (void)!weir_last_error(&error);
    wr_emit e = { .buffer = buffer, .capacity = capacity };
    wr_json_open(&e, NULL, '{');
    wr_json_string(&e, "status", weir_status_name(error.status));
    wr_json_number(&e, "code", error.status);
    wr_json_string(&e, "meaning", weir_status_text(error.status));
    wr_json_number(&e, "native_code", error.native_code);
    wr_json_string(&e, "library", error.library);
    wr_json_string(&e, "text", weir_error_text());
    wr_last_detail(&e);
    wr_json_close(&e, '}');
    wr_emit_finish(&e);
    *length = e.length;
    return WEIR_OK;
}
