/*
 * source: the bytes of a trace, from a file, standard input or memory, decompressed if they are gzip. A window slides
 * over them, so that a reader sees contiguous bytes without holding the whole input. It also keeps the first error, so
 * that damaged gzip data is reported instead of the truncation it causes.
 * Owner: trace_read, for one reading. No locks.
 */
#ifndef WEIR_TOOLS_INPUT_SOURCE_H
#define WEIR_TOOLS_INPUT_SOURCE_H

#include "input.h"

#include <zlib.h>

/* The most that source_need can be asked for. */
#define SOURCE_WINDOW ((size_t)256 * 1024)
#define SOURCE_LINE_MAX ((size_t)64 * 1024)

typedef struct source {
    const uint8_t *at, *end; /* read and not yet taken; readers advance `at` */
    uint64_t end_offset;     /* of `end`, in decompressed bytes */
    trace_error error;       /* the first one */
    bool failed, exhausted;

    int fd;                             /* -1: memory */
    uint8_t *window;                    /* NULL: `at` points into the caller's memory */
    uint8_t *raw;                       /* compressed bytes of a file */
    const uint8_t *raw_at, *raw_end;    /* compressed bytes not yet inflated */
    bool zipped, member_open, raw_done; /* member_open: inside a gzip member */
    z_stream zip;
    uint64_t raw_offset, raw_total; /* of the file, for progress; total 0: unknown */
    trace_progress progress;
    void *user;
} source;

/* On false, `error` is set and source_close must still be called. */
bool source_open(source *s, const char *path, trace_progress progress, void *user);
bool source_open_memory(source *s, const void *bytes, size_t count);
void source_close(source *s);

/* Records the error unless there is one already. Always false, visibly to the compiler. */
#define source_fail(s, ...) (source_set_error((s), __VA_ARGS__), false)
#define source_fail_memory(s) source_fail((s), source_offset(s), "out of memory while reading this trace")
void source_set_error(source *s, uint64_t offset, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Slow path of source_need. */
size_t source_fill(source *s, size_t wanted);

/* Takes the next line, without its end ("\n" or "\r\n"); it stays valid until the next call. NULL: the input ended, or
 * the error is set. *whole: the line had an end. */
const uint8_t *source_line(source *s, size_t *length, bool *whole);

/* Skips `count` bytes. False: the input ended before. */
bool source_skip(source *s, uint64_t count);

/* How many bytes are available at `at`: at least `wanted`, or fewer when the input ends or cannot be read further. */
static inline size_t source_need(source *s, size_t wanted)
{
    size_t have = (size_t)(s->end - s->at);
    return have >= wanted ? have : source_fill(s, wanted);
}

/* The offset of `at`, in decompressed bytes. */
static inline uint64_t source_offset(const source *s)
{
    return s->end_offset - (uint64_t)(s->end - s->at);
}

static inline uint64_t little_endian(const uint8_t *bytes, size_t count)
{
    uint64_t value = 0;
    while (count-- > 0) value = value << 8 | bytes[count];
    return value;
}

static inline void put_little_endian(uint8_t *to, size_t count, uint64_t value)
{
    for (size_t i = 0; i < count; i++) to[i] = (uint8_t)(value >> 8 * i);
}

#endif
