#include "source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t gzip_magic[2] = { 0x1f, 0x8b };

void source_set_error(source *s, uint64_t offset, const char *format, ...)
{
    if (s->failed) return;
    s->failed = true;
    s->error.offset = offset;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(s->error.text, sizeof s->error.text, format, arguments);
    va_end(arguments);
    for (char *at = s->error.text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?'; /* text from the file may be shown on a terminal */
    }
}

/* Up to `capacity` bytes of the file; 0 at its end and on failure. */
static size_t read_raw(source *s, uint8_t *to, size_t capacity)
{
    if (s->fd < 0 || s->raw_done) return 0;
    ssize_t got;
    do got = read(s->fd, to, capacity);
    while (got < 0 && errno == EINTR);
    if (got <= 0) s->raw_done = true;
    if (got < 0) source_set_error(s, s->end_offset, "cannot be read: %s", strerror(errno));
    if (got <= 0) return 0;
    s->raw_offset += (uint64_t)got;
    if (s->progress) s->progress(s->user, s->raw_offset, s->raw_total);
    return (size_t)got;
}

static bool more_compressed(source *s)
{
    if (s->raw_at < s->raw_end) return true;
    if (!s->raw) return false; /* the source is memory, which was all given at the start */
    s->raw_at = s->raw;
    s->raw_end = s->raw + read_raw(s, s->raw, SOURCE_WINDOW);
    return s->raw_at < s->raw_end;
}

/* Files may be several gzip members in a row, and may be padded with zeros. */
static bool next_member(source *s)
{
    if (!more_compressed(s)) return false;
    if (*s->raw_at != gzip_magic[0]) {
        while (more_compressed(s)) {
            if (*s->raw_at++ != 0) return source_fail(s, s->end_offset, "the gzip data is followed by something else");
        }
        return false;
    }
    if (inflateReset(&s->zip) != Z_OK) return source_fail_memory(s);
    s->member_open = true;
    return true;
}

/* Up to `capacity` decompressed bytes; 0 at the end and on failure. */
static size_t inflate_some(source *s, uint8_t *to, size_t capacity)
{
    s->zip.next_out = to;
    s->zip.avail_out = (uInt)capacity;
    while (s->zip.avail_out == capacity) {
        if (!s->member_open && !next_member(s)) return 0;
        if (!more_compressed(s)) {
            source_set_error(s, s->end_offset, "the gzip data is cut off: the file is not complete");
            return 0;
        }
        size_t left = (size_t)(s->raw_end - s->raw_at);
        s->zip.next_in = (Bytef *)(uintptr_t)s->raw_at; /* zlib's type lacks the const, it does not write */
        s->zip.avail_in = left > SOURCE_WINDOW ? (uInt)SOURCE_WINDOW : (uInt)left;
        int result = inflate(&s->zip, Z_NO_FLUSH);
        s->raw_at = s->zip.next_in;
        if (result == Z_STREAM_END) s->member_open = false;
        if (result != Z_OK && result != Z_STREAM_END) {
            source_set_error(s, s->end_offset + (capacity - s->zip.avail_out), "the gzip data is damaged: %s",
                             s->zip.msg ? s->zip.msg : "it needs a dictionary");
            break;
        }
    }
    return capacity - s->zip.avail_out;
}

size_t source_fill(source *s, size_t wanted)
{
    assert(wanted <= SOURCE_WINDOW);
    size_t have = (size_t)(s->end - s->at);
    if (!s->window || s->exhausted) return have;

    memmove(s->window, s->at, have);
    while (have < wanted && !s->exhausted) {
        uint8_t *to = s->window + have;
        size_t room = SOURCE_WINDOW - have;
        size_t got = s->zipped ? inflate_some(s, to, room) : read_raw(s, to, room);
        if (got == 0) s->exhausted = true;
        have += got;
        s->end_offset += got;
    }
    s->at = s->window;
    s->end = s->window + have;
    return have;
}

bool source_skip(source *s, uint64_t count)
{
    while (count > 0) {
        uint64_t have = source_need(s, 1);
        if (have == 0) return false;
        uint64_t step = have < count ? have : count;
        s->at += step;
        count -= step;
    }
    return true;
}

const uint8_t *source_line(source *s, size_t *length, bool *whole)
{
    const uint8_t *newline = NULL;
    size_t have = 0;
    for (size_t wanted = 256; !newline && wanted <= SOURCE_LINE_MAX; wanted *= 2) {
        have = source_need(s, wanted);
        if (have == 0) return NULL;
        newline = memchr(s->at, '\n', have);
        if (have < wanted) break;
    }
    if (!newline && have >= SOURCE_LINE_MAX) {
        source_set_error(s, source_offset(s), "a line of more than %zu bytes, the limit", SOURCE_LINE_MAX);
        return NULL;
    }
    const uint8_t *line = s->at;
    *whole = newline != NULL;
    *length = newline ? (size_t)(newline - line) : have;
    s->at += *length + *whole;
    if (*length && line[*length - 1] == '\r') (*length)--;
    return line;
}

static bool start_gzip(source *s)
{
    s->window = malloc(SOURCE_WINDOW);
    if (!s->window || inflateInit2(&s->zip, 16 + MAX_WBITS) != Z_OK) return source_fail_memory(s);
    s->zipped = s->member_open = true;
    s->at = s->end = s->window;
    s->end_offset = 0;
    return true;
}

bool source_open_memory(source *s, const void *bytes, size_t count)
{
    *s = (source){ .fd = -1, .at = bytes };
    s->end = s->at + count;
    s->end_offset = count;
    if (count < sizeof gzip_magic || memcmp(bytes, gzip_magic, sizeof gzip_magic) != 0) return true;
    s->raw_at = s->at;
    s->raw_end = s->end;
    return start_gzip(s);
}

bool source_open(source *s, const char *path, trace_progress progress, void *user)
{
    bool standard = strcmp(path, "-") == 0;
    *s = (source){ .fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC),
                   .progress = progress,
                   .user = user };
    if (s->fd < 0) return source_fail(s, 0, "cannot be opened: %s", strerror(errno));
    struct stat about;
    if (fstat(s->fd, &about) == 0 && S_ISREG(about.st_mode)) s->raw_total = (uint64_t)about.st_size;

    s->window = malloc(SOURCE_WINDOW);
    if (!s->window) return source_fail_memory(s);
    s->at = s->end = s->window;
    size_t have = source_fill(s, sizeof gzip_magic);
    if (s->failed) return false;
    if (have < sizeof gzip_magic || memcmp(s->at, gzip_magic, sizeof gzip_magic) != 0) return true;

    s->raw = s->window;
    s->window = NULL;
    s->raw_at = s->at;
    s->raw_end = s->end;
    return start_gzip(s);
}

void source_close(source *s)
{
    if (s->fd > STDIN_FILENO) close(s->fd);
    if (s->zipped) inflateEnd(&s->zip);
    free(s->window);
    free(s->raw);
    s->window = s->raw = NULL;
}
