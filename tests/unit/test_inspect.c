#include "pool/bin.h"
#include "pool/report/inspect.h"
#include "pool/starts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "host_support.h"
#include "pool/address.h"
#include "pool_support.h"

#include <string.h>

static wr_cache *cache;

static int open_device(void **state)
{
    wr_device *device = NULL;
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    cache = &device->cache;
    return 0;
}

static wr_segment *segment_of(const void *pointer)
{
    wr_segment *segment = wr_address_find(pointer);
    assert_non_null(segment);
    return segment;
}

static wr_block *block_of(const void *pointer)
{
    return wr_starts_block_at(segment_of(pointer), pointer);
}

/* ---- pointers ---------------------------------------------------------------------------------------------------- */

static void a_pointer_is_described_by_its_block(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    char *first = alloc_on(100, stream), *block = alloc_on(1000, stream);
    weir_pointer_info info = info_of(block + 999);
    assert_ptr_equal(info.base, block);
    assert_int_equal(info.bytes, 1024);
    assert_int_equal(info.requested, 1000);
    assert_ptr_equal(info.segment, first);
    assert_int_equal(info.segment_bytes, 2 * MIB);
    assert_int_equal(info.stream.id, stream.id);
    assert_int_equal(info.device, 0);
    assert_int_equal(info.size, sizeof info);
}

static void every_byte_of_a_block_is_found(void **state)
{
    (void)state;
    char *before = alloc(512), *block = alloc(1536), *after = alloc(512);
    for (size_t i = 0; i < 1536; i++) assert_ptr_equal(info_of(block + i).base, block);
    assert_ptr_equal(info_of(block - 1).base, before);
    assert_ptr_equal(info_of(block + 1536).base, after);
}

static void interior_pointers_of_large_blocks_are_found(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(100 * MIB)));
    char *first = alloc(3 * MIB + 70000), *second = alloc(5 * MIB + 1);
    assert_ptr_equal(info_of(second).segment, first);
    for (size_t at = 0; at < 3 * MIB; at += 4096) assert_ptr_equal(info_of(first + at).base, first);
    for (size_t at = 0; at < 5 * MIB; at += 4096) assert_ptr_equal(info_of(second + at).base, second);
    assert_ptr_equal(info_of(second - 1).base, first);
}

static void free_and_unknown_pointers_are_refused_untouched(void **state)
{
    (void)state;
    weir_pointer_info info = { .size = sizeof info, .bytes = 42 };
    char *block = alloc(1000);
    assert_status(weir_pointer_info_get(block + 1024, &info), WEIR_ERR_DOUBLE_FREE); /* the free rest of the segment */
    assert_status(weir_pointer_info_get(&info, &info), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_pointer_info_get(NULL, &info), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(info.bytes, 42);
    info.size = sizeof info - 1;
    assert_status(weir_pointer_info_get(block, &info), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_pointer_info_get(block, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

/* ---- validation -------------------------------------------------------------------------------------------------- */

static void a_wrong_block_size_is_noticed(void **state)
{
    (void)state;
    wr_block *block = block_of(alloc(3000)); /* it has 3072 */
    block->bytes -= 64;
    assert_noticed("ends at");
    block->bytes += 64;
}

static void free_neighbours_are_noticed(void **state)
{
    (void)state;
    void *first = alloc(4096), *second = alloc(4096);
    wr_block *block = block_of(first);
    assert_ok(weir_free(second));
    (void)stats_of(0); /* parked blocks have gone to the cache */
    block->state = WR_BLOCK_FREE;
    assert_noticed("free neighbours");
    block->state = WR_BLOCK_LIVE;
}

static void a_block_missing_from_the_index_is_noticed(void **state)
{
    (void)state;
    alloc(4096);
    char *second = alloc(4096);
    wr_segment *segment = segment_of(second);
    wr_starts *starts = segment->cache->starts;
    wr_block *block = block_of(second);
    wr_starts_take_out(starts, block);
    assert_noticed("index");
    wr_starts_put(starts, block);
}

static void a_free_block_missing_from_its_tree_is_noticed(void **state)
{
    (void)state;
    void *block = alloc(4096);
    wr_block *rest = block_of(block)->next;
    wr_bin_remove(rest->segment->bin, rest);
    assert_noticed("in a tree");
    wr_bin_insert(rest->segment->bin, rest);
}

static void a_segment_missing_from_the_address_map_is_noticed(void **state)
{
    (void)state;
    wr_segment *segment = segment_of(alloc(4096)); /* a region, of which the first chunk has memory */
    wr_address_remove(segment->base, WR_SEGMENT_UNIT);
    assert_noticed("address map");
    assert_int_equal(wr_address_insert(segment->base, WR_SEGMENT_UNIT, segment), WEIR_OK);
}

static void wrong_statistics_are_noticed(void **state)
{
    (void)state;
    alloc(4096);
    int64_t *counted[] = {
        &cache->stats.allocation[WEIR_STAT_ALL].current,       &cache->stats.allocated_bytes[WEIR_STAT_SMALL].current,
        &cache->stats.active[WEIR_STAT_ALL].current,           &cache->stats.requested_bytes[WEIR_STAT_ALL].current,
        &cache->stats.reserved_bytes[WEIR_STAT_LARGE].current, &cache->stats.inactive_split[WEIR_STAT_ALL].current
    };
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        ++*counted[i];
        assert_noticed("statistics");
        --*counted[i];
        assert_ok(weir_validate(0));
    }
    cache->stats.pending_frees++;
    assert_noticed("pending");
    cache->stats.pending_frees--;
}

static void a_peak_below_the_present_is_noticed(void **state)
{
    (void)state;
    alloc(4096);
    weir_stat *stat = &cache->stats.segment[WEIR_STAT_ALL];
    stat->peak = 0;
    assert_noticed("peak");
    stat->peak = 1;
}

static void a_pool_that_a_list_lacks_is_noticed(void **state)
{
    (void)state;
    (void)make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    wr_mempool *pool = cache->last_pool;
    cache->last_pool = cache->pools;
    assert_noticed("not the last");
    cache->last_pool = pool;
    pool->before = pool;
    assert_noticed("linked");
    pool->before = cache->pools;
    TAILQ_INSERT_TAIL(&cache->released_pools, pool, released);
    assert_noticed("listed as released");
    TAILQ_REMOVE(&cache->released_pools, pool, released);
}

#define DEVICE_TEST(test) cmocka_unit_test_setup_teardown(test, open_device, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(a_pointer_is_described_by_its_block),
        DEVICE_TEST(every_byte_of_a_block_is_found),
        DEVICE_TEST(interior_pointers_of_large_blocks_are_found),
        DEVICE_TEST(free_and_unknown_pointers_are_refused_untouched),
        DEVICE_TEST(a_wrong_block_size_is_noticed),
        DEVICE_TEST(free_neighbours_are_noticed),
        DEVICE_TEST(a_block_missing_from_the_index_is_noticed),
        DEVICE_TEST(a_free_block_missing_from_its_tree_is_noticed),
        DEVICE_TEST(a_segment_missing_from_the_address_map_is_noticed),
        DEVICE_TEST(wrong_statistics_are_noticed),
        DEVICE_TEST(a_peak_below_the_present_is_noticed),
        DEVICE_TEST(a_pool_that_a_list_lacks_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
