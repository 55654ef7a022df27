/*
 * The memory limit and collection by age, on a device of 64 MiB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "ladder_support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static int open_policy(void **state)
{
    return open_with(*state, (weir_settings){ 0 });
}

/* ---- the memory limit -------------------------------------------------------------------------------------------- */

static void the_limit_reads_as_it_was_set(void **state)
{
    (void)state;
    uint64_t limit = 1;
    assert_ok(weir_memory_limit_get(0, &limit));
    assert_int_equal(limit, 0);
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    assert_ok(weir_memory_limit_get(WEIR_DEVICE_CURRENT, &limit));
    assert_int_equal(limit, 40 * MIB);
    assert_status(weir_memory_limit_get(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_memory_limit_set(7, MIB), WEIR_ERR_NO_DEVICE);
}

static void growth_beyond_the_limit_is_refused_without_asking_the_driver(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 32 * MIB));
    alloc_on(20 * MIB, one);
    uint64_t before = calls_of(WEIR_BACKEND_segment_alloc);
    refuse(14 * MIB, one);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc), before);
    assert_non_null(strstr(weir_error_text(), "limit is 32.00 MiB"));
    assert_non_null(strstr(weir_error_text(), "WEIR_MEMORY_LIMIT"));
    alloc_on(12 * MIB, one); /* exactly up to it */
    assert_int_equal(reserved_on(0), 32 * MIB);
}

static void raising_the_limit_recovers(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 20 * MIB));
    alloc_on(20 * MIB, one);
    refuse(12 * MIB, one);
    assert_ok(weir_memory_limit_set(0, 32 * MIB));
    alloc_on(12 * MIB, one);
    refuse(12 * MIB, one);
    assert_ok(weir_memory_limit_set(0, 0));
    alloc_on(12 * MIB, one);
}

static void a_limit_below_what_is_held_stops_growth_only(void **state)
{
    (void)state;
    void *held = alloc_on(40 * MIB, one);
    assert_ok(weir_memory_limit_set(0, 20 * MIB));
    refuse(10 * MIB, one);
    assert_ok(weir_free(held));
    assert_ptr_equal(alloc_on(40 * MIB, one), held);
}

static void idle_memory_is_reclaimed_to_stay_within_the_limit(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    leave_idle(20 * MIB, one);
    leave_idle(12 * MIB, two);
    alloc_on(30 * MIB, three);
    assert_true(reserved_on(0) <= (int64_t)(40 * MIB));
}

static void memory_that_is_not_the_devices_does_not_count(void **state)
{
    (void)state;
    static const weir_memory_kind kinds[] = { WEIR_MEMORY_MANAGED, WEIR_MEMORY_PINNED };
    void *blocks[2];
    assert_ok(weir_memory_limit_set(0, 20 * MIB));
    for (int i = 0; i < 2; i++) blocks[i] = alloc_from(make_pool(pool_options(kinds[i], "")), 30 * MIB, one);
    alloc_on(20 * MIB, two);
    refuse(12 * MIB, three);
    assert_non_null(strstr(weir_error_text(), "WEIR_MEMORY_LIMIT"));
    for (int i = 0; i < 2; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    refuse(12 * MIB, three);
    assert_ok(weir_memory_limit_set(0, 32 * MIB));
    alloc_on(12 * MIB, three);
}

static int open_limited(void **state)
{
    return open_with(*state, (weir_settings){ .memory_limit = 32 * MIB });
}

static void the_option_sets_the_limit(void **state)
{
    (void)state;
    uint64_t limit = 0;
    assert_ok(weir_memory_limit_get(0, &limit));
    assert_int_equal(limit, 32 * MIB);
    refuse(34 * MIB, one);
}

static int open_limited_by_environment(void **state)
{
    setenv("WEIR_MEMORY_LIMIT", "24MiB", 1);
    int status = open_with(*state, (weir_settings){ .memory_limit = 32 * MIB });
    unsetenv("WEIR_MEMORY_LIMIT");
    return status;
}

static void the_environment_has_the_last_word_on_the_limit(void **state)
{
    (void)state;
    uint64_t limit = 0;
    assert_ok(weir_memory_limit_get(0, &limit));
    assert_int_equal(limit, 24 * MIB);
    refuse(26 * MIB, one);
}

static void *take_20_mib(void *succeeded)
{
    void *block = NULL;
    if (weir_alloc(20 * MIB, &block) == WEIR_OK) atomic_fetch_add((atomic_int *)succeeded, 1);
    return NULL;
}

static void threads_that_grow_at_once_stay_within_the_limit(void **state)
{
    (void)state;
    pthread_t threads[4];
    atomic_int succeeded = 0;
    assert_ok(weir_memory_limit_set(0, 40 * MIB));
    assert_ok(weir_host_latency(WEIR_BACKEND_segment_alloc, 20000000));
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_20_mib, &succeeded), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&succeeded), 2);
    assert_int_equal(reserved_on(0), 40 * MIB);
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_ALL].peak, 40 * MIB);
}

/* ---- collection by age ------------------------------------------------------------------------------------------- */

static int open_collecting(void **state)
{
    return open_with(*state, (weir_settings){ .memory_limit = 60 * MIB, .gc_threshold = 0.5 });
}

static void old_idle_segments_are_collected_before_growing(void **state)
{
    (void)state;
    void *aged = alloc_on(12 * MIB, one), *fresh = alloc_on(16 * MIB, two);
    assert_ok(weir_free(aged));
    assert_ok(weir_free(fresh));
    for (int i = 0; i < 10; i++) assert_ptr_equal(leave_idle(16 * MIB, two), fresh); /* time passes */
    alloc_on(10 * MIB, three);
    assert_int_equal(stats_of(0).collected, 0); /* 28 of 60 were held */
    alloc_on(14 * MIB, three);                  /* now 38 are */
    weir_memory_stats stats = stats_of(0);
    weir_pointer_info info = { .size = sizeof info };
    assert_int_equal(stats.collected, 1);
    assert_int_equal(stats.alloc_retries, 0);
    assert_status(weir_pointer_info_get(aged, &info), WEIR_ERR_UNKNOWN_POINTER);
    assert_ptr_equal(alloc_on(16 * MIB, two), fresh);
}

static void segments_younger_than_the_mean_are_not_collected(void **state)
{
    (void)state;
    void *older = alloc_on(16 * MIB, one), *younger = alloc_on(12 * MIB, two);
    assert_ok(weir_free(older));
    alloc_on(12 * MIB, three);
    assert_ok(weir_free(younger)); /* one request later: ages of 2 and 1 at the next */
    alloc_on(10 * MIB, three);
    assert_int_equal(stats_of(0).collected, 1);
}

/* The segment that was made first, and lies behind the other in its bin, was used last. */
static void collection_goes_by_the_time_of_the_free(void **state)
{
    (void)state;
    void *kept = alloc_on(16 * MIB, one), *gone = alloc_on(12 * MIB, one);
    assert_ok(weir_free(gone));
    alloc_on(12 * MIB, three);
    assert_ok(weir_free(kept));
    alloc_on(10 * MIB, three);
    assert_int_equal(stats_of(0).collected, 1);
    assert_ok(weir_validate(0));
    assert_ptr_equal(alloc_on(16 * MIB, one), kept);
}

/* Each of PyTorch's pools has a clock of its own. */
static void requests_to_private_pools_make_nothing_older(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    void *first = alloc_on(12 * MIB, one), *second = alloc_on(10 * MIB, two);
    assert_ok(weir_free(first));
    for (int i = 0; i < 2; i++) assert_ok(weir_free(alloc_from(pool, 10 * MIB, three)));
    assert_ok(weir_free(second));
    alloc_on(10 * MIB, three);
    assert_int_equal(stats_of(0).collected, 2);
}

static void a_refused_collection_fails_no_request(void **state)
{
    (void)state;
    void *kept = leave_idle(12 * MIB, one);
    alloc_on(20 * MIB, two);
    assert_ok(weir_host_fail(WEIR_BACKEND_segment_free, 1, WEIR_ERR_DRIVER));
    alloc_on(10 * MIB, three);
    assert_int_equal(stats_of(0).collected, 0);
    assert_ptr_equal(alloc_on(12 * MIB, one), kept);
    assert_ok(weir_validate(0));
}

/* The stream's queue cannot be asked just then; an event behind it can. */
static void collection_goes_on_beside_a_capture(void **state)
{
    (void)state;
    leave_idle(12 * MIB, one);
    alloc_on(20 * MIB, two);
    const weir_graph graph = begin_on(three);
    alloc_on(10 * MIB, two);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(stats_of(0).collected, 1);
}

static void collection_does_not_wait_for_work(void **state)
{
    (void)state;
    leave_idle(12 * MIB, one);
    alloc_on(20 * MIB, two);
    make_busy(one);
    const uint64_t before = calls_of(WEIR_BACKEND_event_synchronize);
    alloc_on(10 * MIB, three);
    assert_int_equal(calls_of(WEIR_BACKEND_event_synchronize), before);
    assert_int_equal(stats_of(0).collected, 0);
    let_run(one);
}

static void looking_at_busy_streams_beside_a_capture_uses_events_again(void **state)
{
    (void)state;
    leave_idle(12 * MIB, one);
    alloc_on(20 * MIB, two);
    const weir_graph graph = begin_on(three);
    make_busy(one);
    alloc_on(10 * MIB, two);
    const uint64_t before = calls_of(WEIR_BACKEND_event_create);
    alloc_on(10 * MIB, two);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), before);
    assert_int_equal(stats_of(0).collected, 0);
    let_run(one);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
}

/* Its work was over when its stream ended, whatever has been queued on the stream that took it over. */
static void what_could_not_be_collected_serves_other_streams_as_before(void **state)
{
    (void)state;
    void *left = leave_idle(12 * MIB, one);
    alloc_on(20 * MIB, two);
    assert_ok(weir_stream_destroy(one));
    make_busy(default_stream(0));
    alloc_on(14 * MIB, two);
    assert_int_equal(stats_of(0).collected, 0);
    assert_ptr_equal(alloc_on(12 * MIB, three), left);
    let_run(default_stream(0));
}

static void nothing_is_collected_below_the_threshold(void **state)
{
    (void)state;
    leave_idle(10 * MIB, one);
    alloc_on(20 * MIB, two);
    alloc_on(12 * MIB, two);
    assert_int_equal(stats_of(0).collected, 0);
}

static int open_collecting_unlimited(void **state)
{
    return open_with(*state, (weir_settings){ .gc_threshold = 0.1 });
}

static void nothing_is_collected_without_a_limit(void **state)
{
    (void)state;
    leave_idle(20 * MIB, one);
    leave_idle(12 * MIB, two);
    alloc_on(14 * MIB, three);
    assert_int_equal(stats_of(0).collected, 0);
}

#define BOTH(test) POLICY(test, open_policy, "weir"), POLICY(test, open_policy, "torch")

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(the_limit_reads_as_it_was_set),
        BOTH(growth_beyond_the_limit_is_refused_without_asking_the_driver),
        BOTH(raising_the_limit_recovers),
        BOTH(a_limit_below_what_is_held_stops_growth_only),
        BOTH(idle_memory_is_reclaimed_to_stay_within_the_limit),
        BOTH(memory_that_is_not_the_devices_does_not_count),
        POLICY(the_option_sets_the_limit, open_limited, "weir"),
        POLICY(the_environment_has_the_last_word_on_the_limit, open_limited_by_environment, "weir"),
        BOTH(threads_that_grow_at_once_stay_within_the_limit),
        POLICY(old_idle_segments_are_collected_before_growing, open_collecting, "weir"),
        POLICY(old_idle_segments_are_collected_before_growing, open_collecting, "torch"),
        POLICY(segments_younger_than_the_mean_are_not_collected, open_collecting, "torch"),
        POLICY(collection_goes_by_the_time_of_the_free, open_collecting, "torch"),
        POLICY(requests_to_private_pools_make_nothing_older, open_collecting, "torch"),
        POLICY(a_refused_collection_fails_no_request, open_collecting, "torch"),
        POLICY(collection_goes_on_beside_a_capture, open_collecting, "segments"),
        POLICY(looking_at_busy_streams_beside_a_capture_uses_events_again, open_collecting, "segments"),
        POLICY(collection_does_not_wait_for_work, open_collecting, "segments"),
        POLICY(collection_goes_on_beside_a_capture, open_collecting, "torch"),
        POLICY(looking_at_busy_streams_beside_a_capture_uses_events_again, open_collecting, "torch"),
        POLICY(collection_does_not_wait_for_work, open_collecting, "torch"),
        POLICY(what_could_not_be_collected_serves_other_streams_as_before, open_collecting, "segments"),
        POLICY(what_could_not_be_collected_serves_other_streams_as_before, open_collecting, "torch"),
        POLICY(nothing_is_collected_below_the_threshold, open_collecting, "torch"),
        POLICY(nothing_is_collected_without_a_limit, open_collecting_unlimited, "torch"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
