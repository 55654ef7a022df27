/*
 * The statistics, by PyTorch's definitions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "host_support.h"
#include "pool/count.h"
#include "weir/observe.h"
#include "weir/trace.h"

static int open_torch(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "torch", .host_memory = 256 * MIB });
    return 0;
}

static void check_stat(weir_stat stat, int64_t current, int64_t peak, int64_t added, int64_t removed)
{
    assert_int_equal(stat.current, current);
    assert_int_equal(stat.peak, peak);
    assert_int_equal(stat.added, added);
    assert_int_equal(stat.removed, removed);
}

static void everything_starts_at_zero(void **state)
{
    (void)state;
    weir_memory_stats zero = { .size = sizeof zero }, stats = stats_of(0);
    assert_memory_equal(&stats, &zero, sizeof zero);
}

static int open_two(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 2, .memory_limit = 64 * MIB, .history = 100 });
    return 0;
}

/* A context takes some hundred MiB of device memory, so a process that only looks at all devices must make none. */
static void asking_opens_no_device(void **state)
{
    (void)state;
    weir_memory_stats zero = { .size = sizeof zero };
    weir_handle_stats no_handles = { .size = sizeof no_handles }, handles = { .size = sizeof handles, .bytes = 1 };
    alloc(1000);
    weir_memory_stats stats = stats_of(1);
    assert_memory_equal(&stats, &zero, sizeof zero);
    assert_ok(weir_handle_stats_get(WEIR_CUBLAS, 1, &handles));
    assert_memory_equal(&handles, &no_handles, sizeof handles);
    assert_ok(weir_stats_reset(1));
    assert_ok(weir_handle_stats_reset(0, 1));
    assert_ok(weir_empty_cache(1));
    assert_ok(weir_validate(1));
    uint64_t limit = 0, dropped = 1;
    assert_ok(weir_memory_limit_get(1, &limit));
    assert_int_equal(limit, 64 * MIB);
    weir_event event;
    size_t events = 1;
    assert_ok(weir_history_read(1, &event, 1, &events, &dropped));
    assert_int_equal(events + dropped, 0);
    assert_ok(weir_history_clear(1));
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 1);
    assert_int_equal(weir_stats_get(2, &stats), WEIR_ERR_NO_DEVICE);
}

static void a_device_that_is_opened_has_the_limit_of_the_option(void **state)
{
    (void)state;
    uint64_t limit = 0;
    alloc(1000);
    assert_ok(weir_memory_limit_get(0, &limit));
    assert_int_equal(limit, 64 * MIB);
}

static void an_allocation_moves_what_it_should(void **state)
{
    (void)state;
    alloc(1000);
    weir_memory_stats s = stats_of(0);
    check_stat(s.allocation[WEIR_STAT_ALL], 1, 1, 1, 0);
    check_stat(s.allocation[WEIR_STAT_SMALL], 1, 1, 1, 0);
    check_stat(s.allocation[WEIR_STAT_LARGE], 0, 0, 0, 0);
    check_stat(s.allocated_bytes[WEIR_STAT_SMALL], 1024, 1024, 1024, 0);
    check_stat(s.active[WEIR_STAT_ALL], 1, 1, 1, 0);
    check_stat(s.active_bytes[WEIR_STAT_ALL], 1024, 1024, 1024, 0);
    check_stat(s.requested_bytes[WEIR_STAT_SMALL], 1000, 1000, 1000, 0);
    check_stat(s.segment[WEIR_STAT_SMALL], 1, 1, 1, 0);
    check_stat(s.reserved_bytes[WEIR_STAT_ALL], 2 * MIB, 2 * MIB, 2 * MIB, 0);
    check_stat(s.inactive_split[WEIR_STAT_SMALL], 1, 1, 1, 0);
    check_stat(s.inactive_split_bytes[WEIR_STAT_ALL], 2 * MIB - 1024, 2 * MIB - 1024, 2 * MIB - 1024, 0);
    assert_int_equal(s.driver_allocs, 1);
    assert_int_equal(s.hits, 0);
}

static void a_free_moves_it_back(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(3 * MIB)));
    weir_memory_stats s = stats_of(0);
    check_stat(s.allocation[WEIR_STAT_LARGE], 0, 1, 1, 1);
    check_stat(s.allocated_bytes[WEIR_STAT_LARGE], 0, 3 * MIB, 3 * MIB, 3 * MIB);
    check_stat(s.active_bytes[WEIR_STAT_ALL], 0, 3 * MIB, 3 * MIB, 3 * MIB);
    check_stat(s.requested_bytes[WEIR_STAT_ALL], 0, 3 * MIB, 3 * MIB, 3 * MIB);
    check_stat(s.reserved_bytes[WEIR_STAT_LARGE], 20 * MIB, 20 * MIB, 20 * MIB, 0);
    check_stat(s.inactive_split[WEIR_STAT_ALL], 0, 1, 1, 1);
    assert_int_equal(s.driver_frees, 0);
}

static void peaks_stay_and_totals_add_up(void **state)
{
    (void)state;
    void *a = alloc(512), *b = alloc(512);
    assert_ok(weir_free(a));
    assert_ok(weir_free(b));
    alloc(512);
    weir_memory_stats s = stats_of(0);
    check_stat(s.allocation[WEIR_STAT_ALL], 1, 2, 3, 2);
    check_stat(s.allocated_bytes[WEIR_STAT_ALL], 512, 1024, 1536, 1024);
    assert_int_equal(s.hits, 2);
}

static void inactive_splits_follow_splitting_and_merging(void **state)
{
    (void)state;
    void *blocks[3];
    for (int i = 0; i < 3; i++) blocks[i] = alloc(512);
    assert_int_equal(stats_of(0).inactive_split[WEIR_STAT_ALL].current, 1); /* the rest */
    assert_ok(weir_free(blocks[0]));
    assert_int_equal(stats_of(0).inactive_split[WEIR_STAT_ALL].current, 2);
    assert_ok(weir_free(blocks[2])); /* merges with the rest */
    assert_int_equal(stats_of(0).inactive_split[WEIR_STAT_ALL].current, 2);
    assert_int_equal(stats_of(0).inactive_split_bytes[WEIR_STAT_ALL].current, 2 * MIB - 512);
    assert_ok(weir_free(blocks[1]));
    assert_int_equal(stats_of(0).inactive_split[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats_of(0).inactive_split_bytes[WEIR_STAT_ALL].current, 0);
}

static void giving_back_counts_segments(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(3 * MIB)));
    assert_ok(weir_free(alloc(512)));
    assert_ok(weir_empty_cache(0));
    weir_memory_stats s = stats_of(0);
    check_stat(s.segment[WEIR_STAT_ALL], 0, 2, 2, 2);
    check_stat(s.reserved_bytes[WEIR_STAT_ALL], 0, 22 * MIB, 22 * MIB, 22 * MIB);
    assert_int_equal(s.driver_allocs, 2);
    assert_int_equal(s.driver_frees, 2);
}

static void resetting_keeps_what_is_current(void **state)
{
    (void)state;
    void *kept = alloc(1000);
    assert_ok(weir_free(alloc(5000)));
    assert_ok(weir_stats_reset(0));
    weir_memory_stats s = stats_of(0);
    check_stat(s.allocation[WEIR_STAT_ALL], 1, 1, 0, 0);
    check_stat(s.allocated_bytes[WEIR_STAT_SMALL], 1024, 1024, 0, 0);
    check_stat(s.inactive_split_bytes[WEIR_STAT_ALL], 2 * MIB - 1024, 2 * MIB - 1024, 0, 0);
    check_stat(s.reserved_bytes[WEIR_STAT_ALL], 2 * MIB, 2 * MIB, 0, 0);
    assert_int_equal(s.hits, 0);
    assert_int_equal(s.driver_allocs, 0);
    assert_ok(weir_free(kept));
    check_stat(stats_of(0).allocation[WEIR_STAT_ALL], 0, 1, 0, 1);
}

static void resetting_keeps_pending_frees(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    void *block = alloc(512);
    hold(other);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ok(weir_stats_reset(0));
    assert_int_equal(stats_of(0).pending_frees, 1);
    let_run(other);
}

static weir_status all_is_free(int device, uint64_t *free_bytes, uint64_t *total)
{
    (void)device;
    *free_bytes = *total = 256 * MIB;
    return WEIR_OK;
}

/* The driver may give memory back late or early. */
static void no_more_is_outside_than_there_is(void **state)
{
    (void)state;
    weir_device_memory memory = { .size = sizeof memory };
    wr_device *device = device_0();
    const weir_backend *real = device->backend;
    weir_backend driver = *real;
    void *block = alloc(40 * MIB);
    driver.device_memory = all_is_free;
    device->backend = &driver;
    const weir_status measured = weir_device_memory_get(0, &memory);
    device->backend = real;
    assert_ok(measured);
    assert_true(memory.reserved_bytes != 0);
    assert_int_equal(memory.outside_bytes, 0);
    assert_ok(weir_free(block));
}

/* Plans and chunks are laid out for it. */
static void resetting_forgets_not_how_much_was_requested_at_once(void **state)
{
    (void)state;
    wr_cache *cache = &device_0()->cache;
    assert_ok(weir_free(alloc(40 * MIB)));
    assert_ok(weir_stats_reset(0));
    assert_int_equal(stats_of(0).requested_bytes[WEIR_STAT_ALL].peak, 0);
    wr_cache_lock(cache);
    assert_int_equal(wr_count_most_requested_locked(cache), 40 * MIB);
    wr_cache_unlock(cache);
}

static void a_struct_without_its_size_is_refused(void **state)
{
    (void)state;
    weir_memory_stats s = { .size = sizeof s - 1 };
    assert_status(weir_stats_get(0, &s), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stats_get(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stats_get(1, &(weir_memory_stats){ .size = sizeof s }), WEIR_ERR_NO_DEVICE);
    assert_status(weir_driver_calls(NULL), WEIR_ERR_INVALID_ARGUMENT);
}

/* reserved >= active >= allocated >= 0, at every step of a random walk. */
static void the_order_of_the_totals_holds(void **state)
{
    (void)state;
    enum { SLOTS = 32 };
    weir_stream other = new_stream(0);
    void *slots[SLOTS] = { NULL };
    uint32_t random = 12345;
    for (int i = 0; i < 2000; i++) {
        random = random * 1664525 + 1013904223;
        void **slot = &slots[(random >> 8) % SLOTS];
        if (*slot) {
            if (random & 64) assert_ok(weir_record_stream(*slot, other));
            assert_ok(weir_free(*slot));
            *slot = NULL;
        } else {
            *slot = alloc(1 + (random >> 13) % (random & 1 ? 5000 : 3 * MIB));
        }
        weir_memory_stats s = stats_of(0);
        for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
            assert_true(s.reserved_bytes[kind].current >= s.active_bytes[kind].current);
            assert_true(s.active_bytes[kind].current >= s.allocated_bytes[kind].current);
            assert_true(s.active_bytes[kind].current >= s.requested_bytes[kind].current);
            assert_true(s.allocated_bytes[kind].current >= 0);
            assert_int_equal(s.allocation[kind].current, s.allocation[kind].added - s.allocation[kind].removed);
            assert_int_equal(s.active_bytes[kind].current, s.active_bytes[kind].added - s.active_bytes[kind].removed);
        }
        assert_ok(weir_validate(0));
    }
}

#define STATS_TEST(test) cmocka_unit_test_setup_teardown(test, open_torch, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STATS_TEST(everything_starts_at_zero),
        cmocka_unit_test_setup_teardown(asking_opens_no_device, open_two, close_host),
        cmocka_unit_test_setup_teardown(a_device_that_is_opened_has_the_limit_of_the_option, open_two, close_host),
        STATS_TEST(an_allocation_moves_what_it_should),
        STATS_TEST(a_free_moves_it_back),
        STATS_TEST(peaks_stay_and_totals_add_up),
        STATS_TEST(inactive_splits_follow_splitting_and_merging),
        STATS_TEST(giving_back_counts_segments),
        STATS_TEST(resetting_keeps_what_is_current),
        STATS_TEST(resetting_keeps_pending_frees),
        STATS_TEST(no_more_is_outside_than_there_is),
        STATS_TEST(resetting_forgets_not_how_much_was_requested_at_once),
        STATS_TEST(a_struct_without_its_size_is_refused),
        STATS_TEST(the_order_of_the_totals_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
