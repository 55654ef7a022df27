/*
 * fuzz_support: the bytes that a fuzzer was given, read one after another, and what its models share.
 */
#ifndef WEIR_TESTS_FUZZ_SUPPORT_H
#define WEIR_TESTS_FUZZ_SUPPORT_H

#include "must.h"

#include <limits.h>
#include <stdint.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

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

/* The first index, from a random one on, of which that is so; -1: there is none. */
static inline int next_index(int count, bool (*is)(int index), bool wanted)
{
    const int from = next_byte() % count;
    for (int i = 0; i < count; i++)
        if (is((from + i) % count) == wanted) return (from + i) % count;
    return -1;
}

/* Another value to fill memory with; never 0. */
static inline unsigned char value_after(unsigned char value)
{
    return (unsigned char)(value % UCHAR_MAX + 1);
}

static inline bool are_apart(const void *one, size_t one_bytes, const void *other, size_t other_bytes)
{
    const char *a = one, *b = other;
    return a + one_bytes <= b || b + other_bytes <= a;
}

static inline void *native_of(weir_stream stream)
{
    void *native = NULL;
    must(weir_stream_native(stream, &native) == WEIR_OK);
    return native;
}

/* Whether memory that was filled with a value still has it: all of its ends, and some of what is between. */
static inline bool is_filled(const unsigned char *memory, size_t bytes, unsigned char value)
{
    for (size_t i = 0; i < bytes; i += i < 64 || bytes - i < 200 ? 1 : 61)
        if (memory[i] != value) return false;
    return true;
}

#endif
