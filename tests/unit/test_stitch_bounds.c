/*
 * How much may be held (pool/chunk/stitch_bounds.h): what is left, and what mapping chunks again costs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "host_support.h"
#include "pool/chunk/stitch_bounds.h"
#include "pool/count.h"
#include "pool_support.h"

/* ---- what is left ------------------------------------------------------------------------------------------------ */

static uint64_t left_of(const wr_mempool *pool)
{
    wr_cache_lock(pool->cache);
    const uint64_t left = wr_stitch_left(pool);
    wr_cache_unlock(pool->cache);
    return left;
}

static wr_mempool *default_pool(void)
{
    return front_of(alloc_on(512, default_stream(0)))->pool;
}

static void what_is_held_is_not_left_on_the_device(void **state)
{
    (void)state;
    const wr_mempool *pool = default_pool();
    const uint64_t left = left_of(pool);
    const int64_t held = reserved_on(0);
    assert_int_equal(left + (uint64_t)held, pool->cache->chunks.region_bytes);
    (void)alloc_on(100 * MIB, default_stream(0));
    assert_true(reserved_on(0) >= held + (int64_t)(100 * MIB));
    assert_int_equal(left - left_of(pool), reserved_on(0) - held);
}

static void nothing_is_left_where_others_have_the_memory(void **state)
{
    (void)state;
    wr_mempool *pool = default_pool();
    wr_chunks *chunks = &pool->cache->chunks;
    (void)alloc_on(20 * MIB, default_stream(0));
    const uint64_t held = (uint64_t)reserved_on(0), room = chunks->room;
    chunks->room = held + 3 * MIB;
    assert_int_equal(left_of(pool), 3 * MIB);
    chunks->room = held - MIB;
    assert_int_equal(left_of(pool), 0);
    chunks->room = 2 * chunks->region_bytes; /* no region is larger than the device */
    assert_int_equal(left_of(pool), chunks->region_bytes - held);
    chunks->room = room;
}

static void a_limit_leaves_what_is_below_it(void **state)
{
    (void)state;
    const wr_mempool *pool = default_pool();
    const uint64_t left = left_of(pool), held = (uint64_t)reserved_on(0);
    assert_ok(weir_memory_limit_set(0, held + 5 * MIB));
    assert_int_equal(left_of(pool), 5 * MIB);
    assert_ok(weir_memory_limit_set(0, held - 1));
    assert_int_equal(left_of(pool), 0);
    assert_ok(weir_memory_limit_set(0, held + left + MIB));
    assert_int_equal(left_of(pool), left);
}

static void a_cap_leaves_what_is_below_it(void **state)
{
    (void)state;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "capped");
    options.cap = 32 * MIB;
    const weir_mempool pool = make_pool(options);
    void *block = alloc_from(pool, 512, default_stream(0));
    const wr_mempool *capped = front_of(block)->pool;
    const uint64_t held = (uint64_t)pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current;
    assert_int_equal(left_of(capped), 32 * MIB - held);
    assert_ok(weir_memory_limit_set(0, (uint64_t)reserved_on(0) + MIB));
    assert_int_equal(left_of(capped), MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

/* With this option nothing is made of chunks; what the driver has for segments is not known. */
static void segments_are_bounded_by_limit_and_cap_alone(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .max_split_size = 64 * MIB });
    const wr_mempool *pool = default_pool();
    assert_int_equal(left_of(pool), UINT64_MAX);
    assert_ok(weir_memory_limit_set(0, 1024 * MIB));
    assert_int_equal(left_of(pool), 1024 * MIB - (uint64_t)reserved_on(0));
}

/* ---- what mapping costs ------------------------------------------------------------------------------------------ */

static const uint64_t NOW = UINT64_C(1000) * 1000 * 1000 * 1000;

/* The time that must pass for what was mapped, if `held` bytes were held and `most` live at most. */
static uint64_t time_for(size_t count, uint64_t took, int64_t held, int64_t most)
{
    wr_cache *cache = default_pool()->cache;
    wr_cache_lock(cache);
    int64_t *reserved = &cache->stats.reserved_bytes[WEIR_STAT_ALL].current;
    const int64_t before = *reserved, before_most = wr_count_most_requested_locked(cache);
    *reserved = held;
    cache->most_requested = most;
    cache->chunks.paid_at = 0;
    wr_stitch_note_moved(cache, count, MIB, took, NOW);
    const uint64_t time = cache->chunks.paid_at - NOW;
    *reserved = before;
    cache->most_requested = before_most;
    cache->chunks.paid_at = 0;
    wr_cache_unlock(cache);
    return time;
}

static void mapping_takes_a_share_of_the_time_that_grows_with_what_is_held(void **state)
{
    (void)state;
    const int64_t most = 100 * MIB;
    assert_int_equal(time_for(1, 1000 * 1000, most, most), 200 * 1000 * 1000);
    assert_int_equal(time_for(1, 1000 * 1000, most / 2, most), 200 * 1000 * 1000);
    assert_int_equal(time_for(1, 1000 * 1000, 2 * most, most), 50 * 1000 * 1000);
    assert_int_equal(time_for(1, 1000 * 1000, 100 * most, most), 20 * 1000 * 1000);
}

/* Unmapping is still to come. */
static void mapping_a_chunk_counts_60_microseconds_at_least(void **state)
{
    (void)state;
    const int64_t most = 100 * MIB;
    assert_int_equal(time_for(10, 1, most, most), UINT64_C(200) * 10 * 60000);
    assert_int_equal(time_for(10, 10 * 60000 + 1, most, most), UINT64_C(200) * (10 * 60000 + 1));
}

static void what_is_mapped_while_threads_meet_counts_until_memory_is_scarce(void **state)
{
    (void)state;
    wr_cache *cache = default_pool()->cache;
    wr_chunks *chunks = &cache->chunks;
    wr_cache_lock(cache);
    const bool before = chunks->crowded;
    chunks->crowded = false;
    wr_stitch_note_moved(cache, 1, MIB, 1, NOW);
    wr_stitch_note_reused(cache, MIB);
    assert_int_equal(chunks->crowded_bytes, 0);
    chunks->crowded = true;
    for (int i = 0; i < 2; i++) wr_stitch_note_moved(cache, 1, 10 * MIB, 1, NOW);
    for (int i = 0; i < 2; i++) wr_stitch_note_reused(cache, MIB);
    assert_int_equal(chunks->crowded_bytes, 22 * MIB);
    wr_stitch_note_scarce(cache);
    assert_int_equal(chunks->crowded_bytes, 0);
    chunks->crowded = before;
    wr_cache_unlock(cache);
}

#define BOUNDS_TEST(test) cmocka_unit_test_setup_teardown(test, open_medium_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOUNDS_TEST(what_is_held_is_not_left_on_the_device),
        BOUNDS_TEST(nothing_is_left_where_others_have_the_memory),
        BOUNDS_TEST(a_limit_leaves_what_is_below_it),
        BOUNDS_TEST(a_cap_leaves_what_is_below_it),
        cmocka_unit_test_teardown(segments_are_bounded_by_limit_and_cap_alone, close_host),
        BOUNDS_TEST(mapping_takes_a_share_of_the_time_that_grows_with_what_is_held),
        BOUNDS_TEST(mapping_a_chunk_counts_60_microseconds_at_least),
        BOUNDS_TEST(what_is_mapped_while_threads_meet_counts_until_memory_is_scarce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
