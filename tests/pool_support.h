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

static inline void *alloc_from(weir_mempool pool, size_t bytes, weir_stream stream)
{
    void *pointer = NULL;
    assert_ok(weir_alloc_from(pool, bytes, stream, &pointer));
    assert_non_null(pointer);
    return pointer;
}

/* Device memory of the host back end can be written and read in place. */
static inline void write_pattern(void *pointer, size_t bytes, unsigned seed)
{
    unsigned char *b = pointer;
    for (size_t i = 0; i < bytes; i++) b[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static inline bool has_pattern(const void *pointer, size_t bytes, unsigned seed)
{
    const unsigned char *b = pointer;
    for (size_t i = 0; i < bytes; i++)
        if (b[i] != (unsigned char)(i * 7 + i / 251 + seed)) return false;
    return true;
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
