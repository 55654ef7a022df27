/*
 * ladder_support: shared by tests of what happens when memory is short: a small device with three streams. Include
 * after the cmocka headers.
 */
#ifndef WEIR_TESTS_UNIT_LADDER_SUPPORT_H
#define WEIR_TESTS_UNIT_LADDER_SUPPORT_H

#include "host_support.h"

static weir_stream one, two, three;

static inline int open_with(const char *policy, weir_settings settings)
{
    settings.policy = policy;
    settings.host_memory = 64 * MIB;
    open_host(settings);
    one = new_stream(0);
    two = new_stream(0);
    three = new_stream(0);
    return 0;
}

static inline void refuse(size_t bytes, weir_stream stream)
{
    void *block = &block;
    assert_status(weir_alloc_on(bytes, stream, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(block, &block);
}

/* Frees a block on `stream`, which leaves its segment idle. */
static inline void *leave_idle(size_t bytes, weir_stream stream)
{
    void *block = alloc_on(bytes, stream);
    assert_ok(weir_free(block));
    return block;
}

#endif
