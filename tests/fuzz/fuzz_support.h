/*
 * fuzz_support: the bytes that a fuzzer was given, read one after another, and its checks.
 */
#ifndef WEIR_TESTS_FUZZ_SUPPORT_H
#define WEIR_TESTS_FUZZ_SUPPORT_H

#include "weir/weir.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    const uint8_t *data;
    size_t size, at;
} input;

static inline void input_begin(const uint8_t *data, size_t size)
{
    input.data = data;
    input.size = size;
    input.at = 0;
}

static inline bool input_is_left(void)
{
    return input.at < input.size;
}

/* 0 after the end. */
static inline uint8_t next_byte(void)
{
    return input_is_left() ? input.data[input.at++] : 0;
}

static inline size_t next_number(size_t below)
{
    size_t number = next_byte();
    number = number << 8 | next_byte();
    return number % below;
}

static inline void failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s\nlast error: %s\n", file, line, what, weir_error_text());
    abort();
}

/* Also with NDEBUG, unlike assert. */
#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) failed(#condition, __FILE__, __LINE__);                                                      \
    } while (0)

#endif
