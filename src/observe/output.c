#include "observe/output.h"

#include "base/thread_number.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What killed processes can have left behind under names that come again: in containers all processes may be number 1. */
enum { NAMES = 1000 };

void wr_output_to(wr_output *out, int descriptor)
{
    out->descriptor = descriptor;
    out->error = 0;
    out->used = 0;
    out->beside[0] = '\0';
}

weir_status wr_output_open(wr_output *out, const char *call, const char *path)
{
    wr_output_to(out, -1);
    for (unsigned name = 0; out->descriptor < 0 && name < NAMES; name++) {
        const int length = snprintf(out->beside, sizeof out->beside, "%s.%ld.%u.%u.tmp", path, (long)getpid(),
                                    wr_thread_number(), name);
        WR_ENSURE(length < (int)sizeof out->beside, WEIR_ERR_IO, "%s: the path is longer than %zu bytes", call,
                  sizeof out->beside);
        out->descriptor = open(out->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->descriptor < 0 && errno != EEXIST) break;
    }
    WR_ENSURE(out->descriptor >= 0, WEIR_ERR_IO, "%s: cannot create %s: %s", call, out->beside, strerror(errno));
    return WEIR_OK;
}

static void write_out(wr_output *out, const char *bytes, size_t count)
{
    while (count != 0 && out->error == 0) {
        const ssize_t written = write(out->descriptor, bytes, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            out->error = errno;
            return;
        }
        bytes += written;
        count -= (size_t)written;
    }
}

void wr_output_write(wr_output *out, const void *bytes, size_t count)
{
    if (count > sizeof out->buffer - out->used) {
        write_out(out, out->buffer, out->used);
        out->used = 0;
    }
    if (count >= sizeof out->buffer) {
        write_out(out, bytes, count);
    } else {
        memcpy(out->buffer + out->used, bytes, count);
        out->used += count;
    }
}

void wr_output_text(wr_output *out, const char *text, size_t count)
{
    for (const char *end = text + count; text != end;) {
        size_t bytes;
        const char *character = wr_utf8_next(&text, end, &bytes);
        wr_output_write(out, character, bytes);
    }
}

void wr_output_abandon(wr_output *out)
{
    if (out->beside[0] == '\0') return;
    close(out->descriptor);
    unlink(out->beside);
}

weir_status wr_output_close(wr_output *out, const char *call, const char *path)
{
    write_out(out, out->buffer, out->used);
    if (!path) {
        WR_ENSURE(out->error == 0, WEIR_ERR_IO, "%s: cannot write: %s", call, strerror(out->error));
        return WEIR_OK;
    }
    if (close(out->descriptor) != 0 && out->error == 0) out->error = errno;
    if (out->error == 0 && rename(out->beside, path) == 0) return WEIR_OK;
    if (out->error == 0) out->error = errno;
    unlink(out->beside);
    return wr_fail(WEIR_ERR_IO, "%s: cannot write %s: %s", call, path, strerror(out->error));
}
