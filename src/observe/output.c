#include "observe/output.h"

#include "base/descriptor.h"
#include "base/meta.h"
#include "base/thread_number.h"
#include "base/unsignalled.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Temporary names to try: killed processes may have left files under the first ones, since in containers every process
 * may be number 1. */
enum { NAMES = 1000 };

enum { LINKS_MAX = 40 }; /* the system's limit */

weir_status wr_output_to(int descriptor, wr_output **out)
{
    void *made;
    WR_TRY(wr_meta_alloc(sizeof **out, "output", &made));
    *out = made;
    (*out)->descriptor = descriptor;
    return WEIR_OK;
}

/* The process's own descriptor that a path such as /proc/self/fd/1 names; -1: none. Opened again, a file behind it
 * would be cut, and written from its beginning. */
static int named_descriptor(const char *path)
{
    struct stat folder, descriptors;
    char name[sizeof((wr_output *)NULL)->target], *end;
    const char *slash = strrchr(path, '/');
    if (!slash) return -1;
    snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
    if (stat(name, &folder) != 0 || stat("/proc/self/fd", &descriptors) != 0) return -1;
    if (folder.st_dev != descriptors.st_dev || folder.st_ino != descriptors.st_ino) return -1;
    const long number = strtol(slash + 1, &end, 10);
    return end != slash + 1 && *end == '\0' ? (int)number : -1;
}

/* What is not a plain file. `target` is the path, or the first of the links it leads to that cannot be followed. */
static weir_status open_in_place(wr_output *out, const char *call, const char *path)
{
    const int named = named_descriptor(out->target);
    out->descriptor = named >= 0 ? fcntl(named, F_DUPFD_CLOEXEC, WR_DESCRIPTOR_LEAST)
                                 : wr_descriptor_moved(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC));
    WR_ENSURE(out->descriptor >= 0, WEIR_ERR_IO, "%s: cannot write %s: %s", call, path, strerror(errno));
    return WEIR_OK;
}

/* Replaces the link in out->target by what it leads to. */
static bool follow(wr_output *out)
{
    char text[sizeof out->target];
    const ssize_t length = readlink(out->target, text, sizeof text);
    if (length <= 0) return false;
    char *slash = strrchr(out->target, '/'), *from = slash && text[0] != '/' ? slash + 1 : out->target;
    if (from - out->target + length >= (ssize_t)sizeof out->target) return false;
    memcpy(from, text, (size_t)length);
    from[length] = '\0';
    return true;
}

/* Whether the target can be replaced: not a file that is open through a descriptor's link (/dev/stdout), whose owner
 * would not see the replacement, and not behind more links than the system follows. *mode 0: there is no file yet. */
static bool replaceable(wr_output *out, mode_t *mode)
{
    struct stat status, descriptors;
    *mode = 0;
    if (stat(out->target, &status) != 0 && errno != ENOENT) return false;
    const bool known = stat("/proc/self/fd", &descriptors) == 0;
    for (int links = 0; lstat(out->target, &status) == 0; links++) {
        *mode = status.st_mode;
        if (!S_ISLNK(status.st_mode)) return S_ISREG(status.st_mode);
        if (links == LINKS_MAX || (known && status.st_dev == descriptors.st_dev) || !follow(out)) return false;
    }
    *mode = 0;
    return errno == ENOENT;
}

static weir_status open_file(wr_output *out, const char *call, const char *path)
{
    mode_t mode;
    out->ours = true;
    WR_ENSURE(snprintf(out->target, sizeof out->target, "%s", path) < (int)sizeof out->target, WEIR_ERR_IO,
              "%s: the path is longer than %zu bytes", call, sizeof out->target);
    if (!replaceable(out, &mode)) return open_in_place(out, call, path);
    const char *slash = strrchr(out->target, '/');
    const int folder = slash ? (int)(slash + 1 - out->target) : 0;
    for (unsigned name = 0; out->descriptor < 0 && name < NAMES; name++) {
        const int length = snprintf(out->beside, sizeof out->beside, "%.*s.weir.%ld.%u.%u.tmp", folder, out->target,
                                    (long)getpid(), wr_thread_number(), name);
        WR_ENSURE(length < (int)sizeof out->beside, WEIR_ERR_IO, "%s: the path is longer than %zu bytes", call,
                  sizeof out->beside);
        out->descriptor = wr_descriptor_moved(open(out->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        if (out->descriptor < 0 && errno != EEXIST) break;
    }
    WR_ENSURE(out->descriptor >= 0, WEIR_ERR_IO, "%s: cannot write %s: cannot create %s beside it: %s", call, path,
              out->beside, strerror(errno));
    if (mode != 0) (void)!fchmod(out->descriptor, mode & 0777); /* who may read the old file may read the new one */
    return WEIR_OK;
}

weir_status wr_output_open(const char *call, const char *path, wr_output **out)
{
    wr_output *made;
    WR_TRY(wr_output_to(-1, &made));
    const weir_status status = open_file(made, call, path);
    if (status == WEIR_OK)
        *out = made;
    else
        wr_meta_free(made);
    return status;
}

/* The caller's descriptor may be non-blocking. */
static void wait_for_room(int descriptor)
{
    struct pollfd one = { .fd = descriptor, .events = POLLOUT };
    (void)poll(&one, 1, -1); /* whatever happened, the next write tells */
}

/* Returns the errno; 0: all is written. */
static int write_all(int descriptor, const char *bytes, size_t count)
{
    while (count != 0) {
        const ssize_t written = write(descriptor, bytes, count);
        if (written >= 0) {
            bytes += written;
            count -= (size_t)written;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            wait_for_room(descriptor);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static void write_out(wr_output *out, const char *bytes, size_t count)
{
    wr_unsignalled u;
    if (count == 0 || out->error) return;
    wr_unsignalled_begin(&u);
    out->error = write_all(out->descriptor, bytes, count);
    wr_unsignalled_end(&u, out->error);
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
    if (out->ours) close(out->descriptor);
    if (out->beside[0] != '\0') unlink(out->beside);
    wr_meta_free(out);
}

static weir_status finish(wr_output *out, const char *call, const char *path)
{
    write_out(out, out->buffer, out->used);
    if (!path) {
        WR_ENSURE(out->error == 0, WEIR_ERR_IO, "%s: cannot write: %s", call, strerror(out->error));
        return WEIR_OK;
    }
    const bool beside = out->beside[0] != '\0';
    if (close(out->descriptor) != 0 && out->error == 0) out->error = errno;
    if (out->error == 0 && (!beside || rename(out->beside, out->target) == 0)) return WEIR_OK;
    if (out->error == 0) out->error = errno;
    if (beside) unlink(out->beside);
    return wr_fail(WEIR_ERR_IO, "%s: cannot write %s: %s", call, path, strerror(out->error));
}

weir_status wr_output_close(wr_output *out, const char *call, const char *path)
{
    const weir_status status = finish(out, call, path);
    wr_meta_free(out);
    return status;
}
