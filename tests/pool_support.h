/*
 * pool_support: shared by tests of private pools. Include after host_support.h.
 */
#ifndef WEIR_TESTS_POOL_SUPPORT_H
#define WEIR_TESTS_POOL_SUPPORT_H

#include "host_support.h"

#include <string.h>

static inline weir_mempool_options pool_options(weir_memory_kind memory, const char *tag)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = memory;
    strncpy(options.tag, tag, sizeof options.tag - 1);
    return options;
}

static inline weir_mempool make_pool(weir_mempool_options options)
{
    weir_mempool pool = { 0 };
    assert_ok(weir_mempool_create(&options, &pool));
    return pool;
}

/* Of device 0, with no other options. */
static inline weir_mempool make_pool_from(const weir_segment_source *source)
{
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.source = source;
    return make_pool(options);
}

static inline void *alloc_from(weir_mempool pool, size_t bytes, weir_stream stream)
{
    void *pointer = NULL;
    assert_ok(weir_alloc_from(pool, bytes, stream, &pointer));
    assert_non_null(pointer);
    return pointer;
}

/* Device memory of the host back end can be written and read in place. Word by word, which need not be aligned:
 * sanitizers look at each access, and blocks have megabytes. */
enum { PATTERN_WORD = sizeof(uint64_t) };

static inline uint64_t pattern_word(size_t at, unsigned seed)
{
    return (at + 1) * 0x9e3779b97f4a7c15 + seed;
}

static inline void write_pattern(void *pointer, size_t bytes, unsigned seed)
{
    const size_t tail = bytes % PATTERN_WORD, end = bytes - tail;
    unsigned char *b = pointer;
    uint64_t word;
    for (size_t i = 0; i < end; i += PATTERN_WORD) {
        word = pattern_word(i, seed);
        memcpy(b + i, &word, PATTERN_WORD);
    }
    word = pattern_word(end, seed);
    memcpy(b + end, &word, tail);
}

static inline bool has_pattern(const void *pointer, size_t bytes, unsigned seed)
{
    const size_t tail = bytes % PATTERN_WORD, end = bytes - tail;
    const unsigned char *b = pointer;
    uint64_t word;
    for (size_t i = 0; i < end; i += PATTERN_WORD) {
        memcpy(&word, b + i, PATTERN_WORD);
        if (word != pattern_word(i, seed)) return false;
    }
    word = pattern_word(end, seed);
    return memcmp(b + end, &word, tail) == 0;
}

static inline weir_mempool_info pool_info(weir_mempool pool)
{
    weir_mempool_info info = { .size = sizeof info };
    assert_ok(weir_mempool_info_get(pool, &info));
    return info;
}

static inline weir_memory_stats pool_stats(weir_mempool pool)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_mempool_stats_get(pool, &stats));
    return stats;
}

/* Free memory by the driver's own figure. */
static inline uint64_t free_memory(int device)
{
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_info_get(device, &info));
    return info.free_memory;
}

#endif
