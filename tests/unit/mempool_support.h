/*
 * mempool_support: shared by tests of private pools that look at which pool a block is from. Include after cmocka.
 */
#ifndef WEIR_TESTS_UNIT_MEMPOOL_SUPPORT_H
#define WEIR_TESTS_UNIT_MEMPOOL_SUPPORT_H

#include "pool_support.h"

static inline weir_mempool_options options_on(int device)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = device;
    return options;
}

static inline weir_mempool plain(void)
{
    return make_pool(options_on(0));
}

static inline void *alloc_in(weir_mempool pool, size_t bytes)
{
    return alloc_from(pool, bytes, WEIR_STREAM_CURRENT);
}

static inline void assert_pool(const void *pointer, weir_mempool pool)
{
    const weir_pointer_info info = info_of(pointer);
    assert_int_equal(info.pool.user, pool.user);
    assert_int_equal(info.pool.capture, pool.capture);
}

static const weir_mempool default_pool = { 0, 0 };

static inline void assert_gone(weir_mempool pool)
{
    weir_mempool_info info = { .size = sizeof info };
    assert_status(weir_mempool_info_get(pool, &info), WEIR_ERR_POOL_MISMATCH);
}

#endif
