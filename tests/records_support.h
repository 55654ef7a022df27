/*
 * records_support: a device that has only few of weir's own block records to spare. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_RECORDS_SUPPORT_H
#define WEIR_TESTS_RECORDS_SUPPORT_H

#include "device_support.h"

/* Leaves only so many block records to spare, until the others are put back. */
static inline wr_block *take_spare_records(size_t left)
{
    wr_block *taken = NULL, *all_left = NULL;
    wr_cache *cache = &device_0()->cache;
    wr_cache_lock(cache);
    assert_ok(wr_records_set_aside(cache, left, &all_left));
    assert_ok(wr_records_set_aside(cache, cache->ledger.unused_block_count, &taken));
    wr_records_put_back(cache, &all_left);
    assert_int_equal(cache->ledger.unused_block_count, left);
    wr_cache_unlock(cache);
    return taken;
}

static inline void put_records_back(wr_block *taken)
{
    wr_cache *cache = &device_0()->cache;
    wr_cache_lock(cache);
    wr_records_put_back(cache, &taken);
    wr_cache_unlock(cache);
    assert_ok(weir_validate(0));
}

#endif
