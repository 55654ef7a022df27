/*
 * Driver calls of the cache, with other events between its two locked steps.
 */
#include "pool/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "host_support.h"

static wr_device *device;
static weir_backend driver; /* the device's, with entries replaced */
static const weir_backend *real;

static int open_policy(const char *policy)
{
    open_host((weir_settings){
        .host_memory = 64 * MIB, .history = 100, .memory_limit = 60 * MIB, .gc_threshold = 0.5, .policy = policy });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    real = device->cache.backend;
    driver = *real;
    device->cache.backend = device->events.backend = &driver;
    return 0;
}

static int open_device(void **state)
{
    (void)state;
    return open_policy(NULL);
}

static int open_torch(void **state)
{
    (void)state;
    return open_policy("torch");
}

static int close_device(void **state)
{
    device->cache.backend = device->events.backend = real;
    return close_host(state);
}

/* As soon as the driver has the addresses, another thread may get them again. */
static weir_status free_and_grow(int ordinal, void *base, size_t bytes)
{
    void *block = NULL;
    wr_stream *stream = wr_stream_default_of(&device->streams);
    const wr_request request = wr_cache_request(device->cache.pools, 0, stream, bytes);
    driver.segment_free = real->segment_free;
    weir_status status = real->segment_free(ordinal, base, bytes);
    return status == WEIR_OK ? wr_cache_grow(&device->cache, &request, NULL, &block) : status;
}

static void a_segment_leaves_the_record_before_its_addresses_come_again(void **state)
{
    (void)state;
    weir_event events[100];
    size_t count = 0;
    void *first = alloc(20 * MIB);
    assert_ok(weir_free(first));
    driver.segment_free = free_and_grow;
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_history_read(0, events, 100, &count, NULL));
    assert_true(count >= 3);
    assert_int_equal(events[count - 3].kind, WEIR_EVENT_SEGMENT_FREE);
    assert_int_equal(events[count - 2].kind, WEIR_EVENT_SEGMENT_ALLOC);
    assert_int_equal(events[count - 1].kind, WEIR_EVENT_ALLOC);
    assert_int_equal(events[count - 3].address, (uintptr_t)first);
    assert_int_equal(events[count - 2].address, (uintptr_t)first); /* the lowest that is free */
}

static void a_segment_the_driver_refuses_is_in_the_record_again(void **state)
{
    (void)state;
    weir_event events[100];
    size_t count = 0;
    assert_ok(weir_free(alloc(20 * MIB)));
    assert_ok(weir_host_fail(WEIR_BACKEND_segment_free, 1, WEIR_ERR_DRIVER));
    assert_status(weir_empty_cache(0), WEIR_ERR_DRIVER);
    assert_ok(weir_history_read(0, events, 100, &count, NULL));
    assert_int_equal(events[count - 2].kind, WEIR_EVENT_SEGMENT_FREE);
    assert_int_equal(events[count - 1].kind, WEIR_EVENT_SEGMENT_ALLOC);
    assert_int_equal(events[count - 1].address, events[count - 2].address);
    assert_int_equal(events[count - 1].size, 20 * MIB);
}

static weir_status always_capturing(int ordinal, void *native, weir_capture_state *state, uint64_t *id)
{
    (void)ordinal, (void)native;
    *state = WEIR_CAPTURE_ACTIVE;
    *id = 1;
    return WEIR_OK;
}

static void segments_kept_by_a_capturing_stream_do_not_count_as_collected(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    void *kept = alloc(40 * MIB);
    assert_ok(weir_free(kept));
    driver.capture_status = always_capturing;
    alloc_on(10 * MIB, other);
    assert_int_equal(stats_of(0).collected, 0);
    assert_int_equal(stats_of(0).driver_frees, 0);
    driver.capture_status = real->capture_status;
    alloc_on(10 * MIB, other);
    assert_int_equal(stats_of(0).collected, 1);
    assert_int_equal(stats_of(0).driver_frees, 1);
}

/* The order in which PyTorch collects, and in which addresses are asked for again. */
static void collected_segments_go_by_size(void **state)
{
    (void)state;
    weir_event events[100];
    size_t count = 0;
    weir_stream other = new_stream(0);
    void *smaller = alloc(12 * MIB), *larger = alloc(22 * MIB);
    assert_ok(weir_free(larger));
    assert_ok(weir_free(smaller));
    alloc_on(10 * MIB, other);
    assert_int_equal(stats_of(0).collected, 2);
    assert_ok(weir_history_read(0, events, 100, &count, NULL));
    /* before the segment's allocation, the block's, and the decision */
    assert_int_equal(events[count - 5].kind, WEIR_EVENT_SEGMENT_FREE);
    assert_int_equal(events[count - 5].size, 12 * MIB);
    assert_int_equal(events[count - 4].kind, WEIR_EVENT_SEGMENT_FREE);
    assert_int_equal(events[count - 4].size, 22 * MIB);
}

/* As in PyTorch, where a collection that finds nothing is not counted twice. */
static void the_clock_of_collection_ticks_once_per_request(void **state)
{
    (void)state;
    void *block = alloc(12 * MIB); /* a miss */
    assert_int_equal(device->cache.searches[WR_LARGE], 1);
    assert_ok(weir_free(block));
    alloc(12 * MIB); /* a hit */
    assert_int_equal(device->cache.searches[WR_LARGE], 2);
    alloc(512);
    assert_int_equal(device->cache.searches[WR_LARGE], 2);
}

#define DEVICE_TEST(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(a_segment_leaves_the_record_before_its_addresses_come_again),
        DEVICE_TEST(a_segment_the_driver_refuses_is_in_the_record_again),
        DEVICE_TEST(segments_kept_by_a_capturing_stream_do_not_count_as_collected),
        cmocka_unit_test_setup_teardown(collected_segments_go_by_size, open_torch, close_device),
        DEVICE_TEST(the_clock_of_collection_ticks_once_per_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
