/*
 * input_support: shared by the tests of tools/input. Include after cmocka.h.
 */
#ifndef WEIR_TESTS_UNIT_INPUT_SUPPORT_H
#define WEIR_TESTS_UNIT_INPUT_SUPPORT_H

#include "input/input.h"

#include <stdlib.h>
#include <string.h>

#ifndef WEIR_TEST_DATA
#ifdef WEIR_SOURCE_DIR
#define WEIR_TEST_DATA WEIR_SOURCE_DIR "/tests/data"
#else
#define WEIR_TEST_DATA "tests/data"
#endif
#endif

typedef struct file_bytes {
    uint8_t *bytes;
    size_t count;
} file_bytes;

/* The caller frees the bytes. */
static inline file_bytes read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be opened: tests need tests/data", path);
    file_bytes f = { NULL, 0 };
    for (size_t got = 1; got > 0;) {
        f.bytes = realloc(f.bytes, f.count + 65536);
        assert_non_null(f.bytes);
        got = fread(f.bytes + f.count, 1, 65536, file);
        f.count += got;
    }
    fclose(file);
    return f;
}

/* Reads from a copy of exactly that size, so that a sanitizer notices reads past the end. */
static inline bool read_exact(const void *bytes, size_t count, const trace_limits *limits, trace *t, trace_error *e)
{
    void *copy = malloc(count ? count : 1);
    assert_non_null(copy);
    if (count) memcpy(copy, bytes, count);
    bool good = trace_read_memory(copy, count, limits, t, e);
    free(copy);
    return good;
}

/* Reading must fail with a text that has `part` in it, and leave nothing behind. Returns the offset. */
static inline uint64_t refused(const void *bytes, size_t count, const trace_limits *limits, const char *part)
{
    trace t;
    trace_error e = { .text = "" };
    if (read_exact(bytes, count, limits, &t, &e)) fail_msg("was read, but should be refused with \"%s\"", part);
    if (!strstr(e.text, part)) fail_msg("\"%s\" does not say \"%s\"", e.text, part);
    assert_null(t.events);
    assert_null(t.live);
    assert_null(t.name);
    return e.offset;
}

/* A literal with zero bytes in it. */
#define REFUSED(literal, part) refused(literal, sizeof(literal) - 1, NULL, part)

#endif
