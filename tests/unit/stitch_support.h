/*
 * stitch_support: a device with some hundred MiB, and chunks on it to map elsewhere. Include after cmocka.h.
 */
#ifndef WEIR_TESTS_UNIT_STITCH_SUPPORT_H
#define WEIR_TESTS_UNIT_STITCH_SUPPORT_H

#include "pool_support.h"

#define CHUNK (8 * MIB)
#define CHUNKS 8

static inline int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .host_devices = 2 });
    return 0;
}

/* Blocks of a chunk each. */
static inline void take_chunks(char *blocks[CHUNKS], weir_stream stream)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        blocks[i] = alloc_on(CHUNK, stream);
        write_pattern(blocks[i], CHUNK, i);
    }
}

static inline void free_every_other(char *blocks[CHUNKS])
{
    for (int i = 0; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
}

static inline uint64_t queued_on(weir_stream stream)
{
    uint64_t count = 0;
    assert_ok(weir_host_stream_queued(device_of(stream), native_of(stream), &count));
    return count;
}

static inline int open_large(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB });
    return 0;
}

#define STITCH_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

#endif
