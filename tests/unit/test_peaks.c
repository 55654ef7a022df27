/*
 * Peaks of live memory while freed blocks are parked, which the cache still counts as live; and what a miss leaves
 * parked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool_support.h"
#include "weir/observe.h"

static void give_after(size_t bytes, weir_stream stream)
{
    for (int i = 0; i < 100; i++) assert_ok(weir_free(alloc_on(bytes, stream)));
}

static int64_t live_peak(void)
{
    return stats_of(0).allocated_bytes[WEIR_STAT_ALL].peak;
}

static void a_peak_together_with_a_private_pool_is_seen(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "x"));
    weir_stream_stats own = { .size = sizeof own };
    assert_ok(weir_free(alloc_from(pool, 10 * MIB, stream)));
    give_after(10 * MIB, stream);
    assert_ok(weir_stats_reset_peaks(0));
    give_after(10 * MIB, stream);
    void *private = alloc_from(pool, 10 * MIB, stream);
    void *parked = alloc_on(10 * MIB, stream);
    assert_ok(weir_free(parked));
    assert_ok(weir_free(private));
    assert_int_equal(live_peak(), 20 * MIB);
    assert_ok(weir_stream_stats_get(stream, &own));
    assert_int_equal(own.live_bytes_peak, 20 * MIB);
}

/* By hits alone: there, small blocks stay parked when a large one is missing. */
static void a_peak_of_a_stream_is_seen_below_the_devices(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    weir_stream_stats own = { .size = sizeof own };
    assert_ok(weir_free(alloc_on(100 * MIB, new_stream(0))));
    give_after(900 << 10, stream);
    give_after(10 * MIB, stream);
    void *small = alloc_on(900 << 10, stream), *large = alloc_on(10 * MIB, stream);
    assert_ok(weir_free(small));
    assert_ok(weir_free(large));
    assert_ok(weir_stream_stats_get(stream, &own));
    assert_int_equal(own.live_bytes_peak, 10 * MIB + (900 << 10));
    assert_int_equal(own.live_peak, 2);
    assert_int_equal(live_peak(), 100 * MIB);
}

static void parked_memory_of_many_streams_is_in_no_peak(void **state)
{
    (void)state;
    enum { STREAMS = 12, BLOCKS = 32 };
    weir_stream streams[STREAMS];
    void *blocks[BLOCKS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        assert_ok(weir_free(alloc_on(600 << 10, streams[i])));
    }
    assert_ok(weir_stats_reset_peaks(0));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(MIB, streams[0]);
        void *recorded = alloc_on(3 * MIB, streams[0]);
        for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
        assert_ok(weir_record_stream(recorded, streams[2]));
        assert_ok(weir_free(recorded)); /* by way of the cache */
    }
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc_on(MIB, streams[1]);
    for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_int_equal(live_peak(), (BLOCKS + 3) * MIB);
}

static void a_refused_request_leaves_out_alone(void **state)
{
    (void)state;
    const weir_stream stream = new_stream(0);
    char here;
    void *out = &here;
    give_after(MIB, stream);
    assert_status(weir_alloc_on(900 * MIB, stream, &out), WEIR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(out, &here);
    assert_status(weir_alloc(900 * MIB, &out), WEIR_ERR_OUT_OF_MEMORY);
    assert_ptr_equal(out, &here);
}

/* 32 blocks lie parked between live ones, and 32 more were allocated since; then the parked ones are freed for a
 * reading or a miss. */
static void emptying_parked_blocks_sets_no_peak(void **state)
{
    enum { BLOCKS = 32 };
    const weir_stream stream = new_stream(0);
    for (int by_miss = 0; by_miss < 2; by_miss++) {
        void *small[BLOCKS], *between[BLOCKS], *later[BLOCKS], *large = NULL;
        assert_ok(weir_empty_cache(0));
        assert_ok(weir_stats_reset(0));
        for (int i = 0; i < BLOCKS; i++) {
            small[i] = alloc_on(512, stream);
            between[i] = alloc_on(1024, stream);
        }
        for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(small[i]));
        for (int i = 0; i < BLOCKS; i++) later[i] = alloc_on(1536, stream);
        if (by_miss) large = alloc_on(3 * MIB, stream);
        const weir_memory_stats stats = stats_of(0);
        assert_int_equal(stats.allocation[WEIR_STAT_ALL].peak, 2 * BLOCKS + by_miss);
        assert_int_equal(stats.allocation[WEIR_STAT_SMALL].peak, 2 * BLOCKS);
        assert_int_equal(stats.allocated_bytes[WEIR_STAT_SMALL].peak, BLOCKS * (1024 + 1536));
        assert_int_equal(stats.requested_bytes[WEIR_STAT_SMALL].peak, BLOCKS * (1024 + 1536));
        if (*state) assert_true(stats.inactive_split[WEIR_STAT_SMALL].peak >= BLOCKS);
        for (int i = 0; i < BLOCKS; i++) {
            assert_ok(weir_free(between[i]));
            assert_ok(weir_free(later[i]));
        }
        assert_ok(weir_free(large));
    }
}

/* The program's own count of what it has live. */
typedef struct own_count {
    int64_t now, peak, came;
} own_count;

static void own_add(own_count *count, int64_t amount)
{
    count->now += amount;
    if (amount > 0) count->came += amount;
    if (count->now > count->peak) count->peak = count->now;
}

static void assert_counted(const own_count *own, const weir_stat *stat)
{
    assert_int_equal(stat->current, own->now);
    assert_int_equal(stat->peak, own->peak);
    assert_int_equal(stat->added, own->came);
    assert_int_equal(stat->removed, own->came - own->now);
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Allocates by hits and misses, in both size classes, at and below the peak. */
static void live_memory_of_a_stream_is_counted_to_the_byte(void **state)
{
    (void)state;
    enum { SLOTS = 40, STEPS = 20000, CHECKED = 500 };
    static const size_t sizes[] = { 100, 512, 700, 1024, 5000, 900 << 10, 1200 << 10, 2 * MIB, 3 * MIB + 100 };
    const weir_stream stream = new_stream(0);
    struct {
        void *pointer;
        size_t bytes;
    } live[SLOTS] = { { NULL, 0 } };
    own_count blocks = { 0 }, bytes = { 0 }, requested = { 0 };
    uint32_t random = 11;
    for (int step = 1; step <= STEPS; step++) {
        const uint32_t slot = next_random(&random) % (SLOTS - (uint32_t)(step / 1000 % 4) * 8);
        const int sign = live[slot].pointer ? -1 : 1;
        if (sign > 0) live[slot].bytes = sizes[next_random(&random) % (sizeof sizes / sizeof sizes[0])];
        own_add(&blocks, sign);
        own_add(&bytes, sign * (int64_t)((live[slot].bytes + 511) / 512 * 512));
        own_add(&requested, sign * (int64_t)live[slot].bytes);
        if (sign > 0) {
            live[slot].pointer = alloc_on(live[slot].bytes, stream);
        } else {
            assert_ok(weir_free(live[slot].pointer));
            live[slot].pointer = NULL;
        }
        if (step % CHECKED != 0) continue;
        const weir_memory_stats stats = stats_of(0);
        assert_counted(&blocks, &stats.allocation[WEIR_STAT_ALL]);
        assert_counted(&blocks, &stats.active[WEIR_STAT_ALL]);
        assert_counted(&bytes, &stats.allocated_bytes[WEIR_STAT_ALL]);
        assert_counted(&bytes, &stats.active_bytes[WEIR_STAT_ALL]);
        assert_counted(&requested, &stats.requested_bytes[WEIR_STAT_ALL]);
        assert_ok(weir_validate(0));
    }
    for (int i = 0; i < SLOTS; i++) assert_ok(weir_free(live[i].pointer));
}

/* More streams than are asked for each sum. */
static void streams_in_turn_have_no_peak_together(void **state)
{
    (void)state;
    enum { STREAMS = 12, BLOCKS = 20 };
    for (int i = 0; i < STREAMS; i++) {
        const weir_stream stream = new_stream(0);
        void *blocks[BLOCKS];
        for (int j = 0; j < BLOCKS; j++) blocks[j] = alloc_on(2 * MIB, stream);
        for (int j = 0; j < BLOCKS; j++) assert_ok(weir_free(blocks[j]));
    }
    assert_in_range(live_peak(), 2 * BLOCKS * MIB, (2 * BLOCKS + 1) * MIB);
}

static void take_some(void *blocks[], int count, size_t bytes, weir_stream stream)
{
    for (int i = 0; i < count; i++) blocks[i] = alloc_on(bytes, stream);
}

static void give_some(void *blocks[], int count)
{
    for (int i = 0; i < count; i++) assert_ok(weir_free(blocks[i]));
}

/* Many fronts are not asked what they have parked by each request. A peak may be too high by 64 blocks and 1 MiB. */
static void streams_in_turn_have_no_peak_together_though_they_are_seldom_asked(void **state)
{
    (void)state;
    enum { STREAMS = 40, BLOCKS = 8 };
    void *blocks[BLOCKS];
    for (int i = 0; i < STREAMS; i++) {
        const weir_stream stream = new_stream(0);
        take_some(blocks, BLOCKS, 100 * KIB, stream);
        give_some(blocks, BLOCKS);
    }
    const weir_memory_stats stats = stats_of(0);
    assert_in_range(stats.allocation[WEIR_STAT_ALL].peak, BLOCKS, BLOCKS + 64);
    assert_in_range(live_peak(), BLOCKS * 100 * KIB, BLOCKS * 100 * KIB + MIB);
}

static void streams_in_turn_have_no_peak_together_in_a_pool(void **state)
{
    (void)state;
    enum { STREAMS = 40, BLOCKS = 8 };
    void *blocks[BLOCKS];
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "x"));
    for (int i = 0; i < STREAMS; i++) {
        const weir_stream stream = new_stream(0);
        for (int j = 0; j < BLOCKS; j++) blocks[j] = alloc_from(pool, 100 * KIB, stream);
        give_some(blocks, BLOCKS);
    }
    const weir_memory_stats stats = pool_stats(pool);
    assert_in_range(stats.allocation[WEIR_STAT_ALL].peak, BLOCKS, BLOCKS + 64);
    assert_in_range(stats.allocated_bytes[WEIR_STAT_ALL].peak, BLOCKS * 100 * KIB, BLOCKS * 100 * KIB + MIB);
    assert_ok(weir_mempool_unref(pool));
}

/* What they have parked nobody knows, since no request of theirs has come to the cache since. */
static void streams_that_were_not_met_for_long_are_asked_before_there_is_a_peak(void **state)
{
    (void)state;
    enum { STREAMS = 60, BLOCKS = 100 };
    void *parked[STREAMS], *blocks[BLOCKS];
    for (int i = 0; i < STREAMS; i++) take_some(&parked[i], 1, MIB, new_stream(0));
    give_some(parked, STREAMS);
    take_some(blocks, BLOCKS, MIB, new_stream(0));
    give_some(blocks, BLOCKS);
    assert_in_range(live_peak(), BLOCKS * MIB, (BLOCKS + 2) * MIB);
}

static void no_peak_is_below_the_live_bytes(void **state)
{
    (void)state;
    weir_stream streams[] = { new_stream(0), new_stream(0) };
    for (int i = 0; i < 400; i++) assert_ok(weir_free(alloc_on(4096, streams[i % 2])));
    for (int i = 0; i < 2; i++) (void)alloc_on(4096, streams[i]);
    const weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].current, 2);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].peak, 2);
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_ALL].peak, 8192);
}

#define PEAKS_TEST(test) cmocka_unit_test_setup_teardown(test, open_host_of_policy, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PEAKS_TEST(a_peak_together_with_a_private_pool_is_seen),
        { "a_peak_of_a_stream_is_seen_below_the_devices", a_peak_of_a_stream_is_seen_below_the_devices,
          open_host_of_policy, close_host, (void *)"segments" },
        PEAKS_TEST(parked_memory_of_many_streams_is_in_no_peak),
        PEAKS_TEST(streams_in_turn_have_no_peak_together),
        PEAKS_TEST(streams_in_turn_have_no_peak_together_though_they_are_seldom_asked),
        PEAKS_TEST(streams_in_turn_have_no_peak_together_in_a_pool),
        PEAKS_TEST(streams_that_were_not_met_for_long_are_asked_before_there_is_a_peak),
        PEAKS_TEST(no_peak_is_below_the_live_bytes),
        PEAKS_TEST(a_refused_request_leaves_out_alone),
        PEAKS_TEST(emptying_parked_blocks_sets_no_peak),
        { "emptying_parked_blocks_sets_no_peak (segments)", emptying_parked_blocks_sets_no_peak, open_host_of_policy,
          close_host, (void *)"segments" },
        PEAKS_TEST(live_memory_of_a_stream_is_counted_to_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
