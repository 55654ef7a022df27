#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "thread_support.h"
#include "weir/observe.h"

#include <pthread.h>
#include <string.h>

static int open_policy(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_memory = 1024 * MIB });
    return 0;
}

/* ---- reuse ------------------------------------------------------------------------------------------------------- */

static void same_stream_reuse_is_immediate_and_at_the_same_address(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 512, 100000, MIB, 3 * MIB, 12 * MIB, 100 * MIB };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *first = alloc(sizes[i]);
        assert_ok(weir_free(first));
        assert_ptr_equal(alloc(sizes[i]), first);
        assert_ok(weir_free(first));
    }
}

static void reuse_does_not_wait_for_the_stream(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    hold(stream);
    void *first = alloc_on(12 * MIB, stream);
    assert_ok(weir_fill(first, 1, 12 * MIB, stream));
    assert_ok(weir_free(first));
    assert_ptr_equal(alloc_on(12 * MIB, stream), first);
    assert_status(weir_stream_query(stream), WEIR_ERR_NOT_READY);
    let_run(stream);
}

static void another_stream_never_gets_a_freed_block(void **state)
{
    (void)state;
    weir_stream one = new_stream(0), two = new_stream(0);
    static const size_t sizes[] = { 512, MIB, 12 * MIB };
    for (size_t i = 0; i < 3; i++) {
        void *freed = alloc_on(sizes[i], one);
        assert_ok(weir_free(freed));
        void *other = alloc_on(sizes[i], two);
        assert_ptr_not_equal(info_of(other).segment, freed);
        assert_ptr_equal(alloc_on(sizes[i], one), freed);
    }
}

static void *free_it(void *pointer)
{
    return (void *)(intptr_t)weir_free(pointer);
}

static void a_block_freed_by_another_thread_goes_back_to_its_stream(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *block = alloc_on(12 * MIB, stream);
    assert_int_equal((intptr_t)in_a_thread(free_it, block), WEIR_OK);
    assert_ptr_equal(alloc_on(12 * MIB, stream), block);
}

static void the_smallest_block_that_fits_is_taken(void **state)
{
    (void)state;
    void *large = alloc(64 * MIB), *middle = alloc(32 * MIB), *small = alloc(16 * MIB);
    assert_ok(weir_free(large));
    assert_ok(weir_free(small));
    assert_ok(weir_free(middle));
    assert_ptr_equal(alloc(30 * MIB), middle);
    assert_ptr_equal(alloc(16 * MIB), small);
    assert_ptr_equal(alloc(33 * MIB), large);
}

/* ---- splitting and merging --------------------------------------------------------------------------------------- */

static void small_blocks_are_cut_from_one_segment_in_order(void **state)
{
    (void)state;
    char *first = alloc(512), *second = alloc(1000), *third = alloc(MIB);
    assert_ptr_equal(second, first + 512);
    assert_ptr_equal(third, first + 512 + 1024);
    assert_int_equal(reserved_on(0), 2 * MIB);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_SMALL].current, 1);
}

static void split_and_merge_restore_the_segment(void **state)
{
    (void)state;
    static const int orders[][4] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 0, 2, 1, 3 }, { 1, 3, 0, 2 }, { 2, 0, 3, 1 } };
    void *base = alloc(MIB);
    assert_ok(weir_free(base));
    for (size_t order = 0; order < sizeof orders / sizeof orders[0]; order++) {
        void *blocks[4];
        for (int i = 0; i < 4; i++) blocks[i] = alloc(100000);
        for (int i = 0; i < 4; i++) {
            assert_ok(weir_free(blocks[orders[order][i]]));
            assert_ok(weir_validate(0));
        }
        weir_memory_stats stats = stats_of(0);
        assert_int_equal(stats.inactive_split[WEIR_STAT_ALL].current, 0);
        assert_int_equal(stats.reserved_bytes[WEIR_STAT_ALL].current, 2 * MIB);
        assert_ptr_equal(alloc(MIB), base);
        assert_ok(weir_free(base));
    }
}

static void a_hole_between_live_blocks_is_filled_again(void **state)
{
    (void)state;
    void *left = alloc(4096), *hole = alloc(8192), *right = alloc(4096);
    assert_ok(weir_free(hole));
    (void)stats_of(0); /* parked blocks have gone to the cache */
    assert_ptr_equal(alloc(4096), hole);
    assert_ptr_equal(alloc(4096), (char *)hole + 4096);
    assert_ok(weir_free(left));
    assert_ok(weir_free(right));
}

static void small_and_large_blocks_never_share_a_segment(void **state)
{
    (void)state;
    void *large = alloc(4 * MIB);
    assert_int_equal(reserved_on(0), 20 * MIB);
    void *small = alloc(512);
    assert_int_equal(reserved_on(0), 22 * MIB);
    assert_ptr_not_equal(info_of(small).segment, info_of(large).segment);
}

static void torch_keeps_up_to_1_mib_uncut(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(20 * MIB)));
    void *block = alloc(19 * MIB);
    assert_int_equal(info_of(block).bytes, 20 * MIB);
    assert_int_equal(info_of(block).requested, 19 * MIB);
}

static void weir_cuts_off_what_torch_would_waste(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(20 * MIB)));
    void *block = alloc(19 * MIB);
    assert_int_equal(info_of(block).bytes, 19 * MIB);
    assert_int_equal(stats_of(0).inactive_split_bytes[WEIR_STAT_LARGE].current, MIB);
}

/* ---- max_split_size ---------------------------------------------------------------------------------------------- */

static int open_max_split(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_memory = 1024 * MIB, .max_split_size = 32 * MIB });
    return 0;
}

static void oversize_blocks_are_not_cut_for_small_requests(void **state)
{
    (void)state;
    void *oversize = alloc(64 * MIB);
    assert_ok(weir_free(oversize));
    void *small = alloc(16 * MIB);
    assert_ptr_not_equal(small, oversize);
    assert_ptr_equal(alloc(60 * MIB), oversize);
    assert_int_equal(info_of(oversize).bytes, 64 * MIB);
}

static void oversize_requests_do_not_take_much_larger_blocks(void **state)
{
    (void)state;
    void *oversize = alloc(64 * MIB);
    assert_ok(weir_free(oversize));
    assert_ptr_not_equal(alloc(40 * MIB), oversize);
    assert_ptr_equal(alloc(46 * MIB), oversize);
}

/* Rounded up to 2 MiB, the segment reaches max_split_size, though the request does not. */
static void a_request_just_below_max_split_size_gets_its_segment_again(void **state)
{
    (void)state;
    void *block = alloc(31 * MIB);
    for (int i = 0; i < 100; i++) { /* the stream's front becomes this thread's */
        assert_ok(weir_free(block));
        assert_ptr_equal(alloc(31 * MIB), block);
    }
    assert_int_equal(info_of(block).bytes, 32 * MIB);
    assert_int_equal(reserved_on(0), 32 * MIB);
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static void hits_make_no_driver_call(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    static const size_t sizes[] = { 512, 70000, 3 * MIB, 14 * MIB };
    for (size_t i = 0; i < 4; i++) {
        void *kept = alloc_on(sizes[i], stream);
        assert_ok(weir_free(kept));
    }
    const uint64_t before = driver_calls(), hits = stats_of(0).hits;
    for (int i = 0; i < 10000; i++) {
        void *block = NULL;
        if (weir_alloc_on(sizes[i % 4], stream, &block) != WEIR_OK || weir_free(block) != WEIR_OK)
            fail_msg("%s", weir_error_text());
    }
    assert_int_equal(driver_calls(), before);
    assert_int_equal(stats_of(0).hits - hits, 10000);
}

static void hits_on_the_current_stream_make_no_driver_call(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    weir_stream_guard guard;
    assert_ok(weir_stream_enter(stream, &guard));
    assert_ok(weir_free(alloc(4096)));
    const uint64_t before = driver_calls();
    for (int i = 0; i < 10000; i++) {
        void *block = NULL;
        if (weir_alloc(4096, &block) != WEIR_OK || weir_free(block) != WEIR_OK) fail_msg("%s", weir_error_text());
    }
    assert_int_equal(driver_calls(), before);
    assert_ok(weir_stream_leave(&guard));
}

typedef struct growing {
    atomic_bool over;
    weir_status status;
} growing;

static void *grow(void *argument)
{
    growing *g = argument;
    void *block = NULL;
    g->status = weir_alloc(64 * MIB, &block);
    atomic_store(&g->over, true);
    return NULL;
}

static void a_thread_in_the_driver_does_not_stop_the_hits_of_others(void **state)
{
    assert_ok(weir_free(alloc(4096)));
    assert_ok(weir_host_latency(taking_entry(state), 1000000000));
    uint64_t before = calls_of(taking_entry(state));
    growing g = { 0 };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, grow, &g), 0);
    await_call_of(taking_entry(state), before);
    for (int i = 0; i < 100; i++) assert_ok(weir_free(alloc(4096)));
    assert_ok(weir_validate(0));
    assert_false(atomic_load(&g.over));
    assert_ok(weir_host_latency(taking_entry(state), 0));
    pthread_join(thread, NULL);
    assert_int_equal(g.status, WEIR_OK);
}

static void *empty(void *argument)
{
    growing *g = argument;
    g->status = weir_empty_cache(0);
    atomic_store(&g->over, true);
    return NULL;
}

static void the_cache_is_valid_while_a_segment_is_given_back(void **state)
{
    assert_ok(weir_free(alloc(64 * MIB)));
    assert_ok(weir_host_latency(giving_entry(state), 1000000000));
    growing g = { 0 };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, empty, &g), 0);
    await_call_of(giving_entry(state), 0);
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
    assert_false(atomic_load(&g.over));
    pthread_join(thread, NULL);
    assert_int_equal(g.status, WEIR_OK);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_host_latency(giving_entry(state), 0));
}

static void a_segment_the_driver_does_not_take_back_stays_usable(void **state)
{
    void *block = alloc(12 * MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_host_fail(giving_entry(state), 1, WEIR_ERR_DRIVER));
    assert_status(weir_empty_cache(0), WEIR_ERR_DRIVER);
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 12 * MIB);
    assert_ptr_equal(alloc(12 * MIB), block);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void a_segment_goes_back_only_after_the_work_of_its_stream(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 30 };
    weir_stream stream = new_stream(0);
    void *block = alloc_on(64 * MIB, stream);
    start_slow_work(stream, &work);
    assert_ok(weir_fill(block, 1, 64 * MIB, stream)); /* would touch memory that is gone */
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_true(atomic_load(&work.done));
    assert_ok(weir_stream_query(stream));
    assert_int_equal(reserved_on(0), 0);
}

static void empty_cache_gives_idle_segments_back_and_keeps_the_others(void **state)
{
    (void)state;
    void *kept = alloc(512), *partly = alloc(3 * MIB);
    assert_ok(weir_free(alloc(64 * MIB)));
    assert_ok(weir_free(alloc(5 * MIB)));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 22 * MIB);
    assert_int_equal(stats_of(0).driver_frees, 1);
    assert_ok(weir_free(kept));
    assert_ok(weir_free(partly));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, 0);
}

/* ---- streams that end -------------------------------------------------------------------------------------------- */

static void free_blocks_of_a_destroyed_stream_become_the_default_streams(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    void *large = alloc_on(64 * MIB, stream), *small = alloc_on(MIB, stream);
    assert_ok(weir_free(large));
    assert_ok(weir_free(small));
    assert_ok(weir_stream_destroy(stream));
    assert_ok(weir_validate(0));
    assert_ptr_equal(alloc(64 * MIB), large);
    assert_ptr_equal(alloc(MIB), small);
}

static void live_blocks_of_a_destroyed_stream_stay_valid_and_freeable(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    unsigned char *block = alloc_on(64 * MIB, stream);
    memset(block, 7, 4096);
    assert_ok(weir_stream_destroy(stream));
    assert_int_equal(block[4095], 7);
    assert_int_equal(info_of(block).stream.id, default_stream(0).id);
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc(64 * MIB), block);
}

static weir_stream_stats stats_on(weir_stream stream)
{
    weir_stream_stats stats = { .size = sizeof stats };
    assert_ok(weir_stream_stats_get(stream, &stats));
    return stats;
}

static void a_new_stream_in_the_place_of_an_old_one_starts_empty(void **state)
{
    (void)state;
    weir_stream old = new_stream(0);
    assert_ok(weir_free(alloc_on(64 * MIB, old)));
    assert_ok(weir_stream_destroy(old));
    const weir_stream_stats stats = stats_on(new_stream(0));
    assert_int_equal(stats.reserved_bytes + stats.free_bytes, 0);
}

/* Leaves holes of every size given between live blocks, and a block that is freed while `user` uses it. */
static void leave_holes(weir_stream stream, const size_t *sizes, size_t count, weir_stream user)
{
    for (size_t i = 0; i < count; i++) {
        void *hole = alloc_on(sizes[i], stream);
        (void)alloc_on(512, stream);
        (void)alloc_on(2 * MIB, stream);
        assert_ok(weir_free(hole));
    }
    void *used = alloc_on(sizes[0], stream);
    assert_ok(weir_record_stream(used, user));
    assert_ok(weir_free(used));
}

static void what_is_free_pending_and_live_on_a_destroyed_stream_is_the_default_streams(void **state)
{
    (void)state;
    static const size_t both[] = { 1536, 3 * MIB, 20 * MIB }, more[] = { 1536, 70000, 3 * MIB, 6 * MIB, 20 * MIB };
    const weir_stream user = new_stream(0), ends = new_stream(0);
    make_busy(user);
    leave_holes(default_stream(0), both, 3, user);
    leave_holes(ends, more, 5, user);
    const weir_stream_stats a = stats_on(default_stream(0)), b = stats_on(ends);
    assert_true(b.free > 0 && b.live == 10 && b.pending == 1);
    assert_ok(weir_stream_destroy(ends));
    const weir_stream_stats now = stats_on(default_stream(0));
    assert_int_equal(now.free, a.free + b.free);
    assert_int_equal(now.free_bytes, a.free_bytes + b.free_bytes);
    assert_int_equal(now.pending, 2);
    assert_int_equal(now.pending_bytes, a.pending_bytes + b.pending_bytes);
    assert_int_equal(now.live_bytes, a.live_bytes + b.live_bytes);
    assert_ok(weir_validate(0));
    let_run(user);
    assert_ok(weir_empty_cache(0)); /* finds what is over */
    assert_int_equal(stats_on(default_stream(0)).pending, 0);
    assert_ok(weir_validate(0));
}

#define POLICY(test, setup, policy) { #test " (" policy ")", test, setup, close_host, (void *)(uintptr_t)policy }
#define SEGMENTS(test) POLICY(test, open_policy, "segments"), POLICY(test, open_policy, "torch")
#define ALL(test) POLICY(test, open_policy, "weir"), SEGMENTS(test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(same_stream_reuse_is_immediate_and_at_the_same_address),
        ALL(reuse_does_not_wait_for_the_stream),
        ALL(another_stream_never_gets_a_freed_block),
        ALL(a_block_freed_by_another_thread_goes_back_to_its_stream),
        SEGMENTS(the_smallest_block_that_fits_is_taken),
        SEGMENTS(small_blocks_are_cut_from_one_segment_in_order),
        SEGMENTS(split_and_merge_restore_the_segment),
        ALL(a_hole_between_live_blocks_is_filled_again),
        SEGMENTS(small_and_large_blocks_never_share_a_segment),
        POLICY(torch_keeps_up_to_1_mib_uncut, open_policy, "torch"),
        POLICY(weir_cuts_off_what_torch_would_waste, open_policy, "segments"),
        POLICY(oversize_blocks_are_not_cut_for_small_requests, open_max_split, "torch"),
        POLICY(oversize_requests_do_not_take_much_larger_blocks, open_max_split, "torch"),
        POLICY(a_request_just_below_max_split_size_gets_its_segment_again, open_max_split, "segments"),
        ALL(hits_make_no_driver_call),
        ALL(hits_on_the_current_stream_make_no_driver_call),
        ALL(a_thread_in_the_driver_does_not_stop_the_hits_of_others),
        SEGMENTS(the_cache_is_valid_while_a_segment_is_given_back),
        ALL(a_segment_the_driver_does_not_take_back_stays_usable),
        ALL(a_segment_goes_back_only_after_the_work_of_its_stream),
        SEGMENTS(empty_cache_gives_idle_segments_back_and_keeps_the_others),
        ALL(free_blocks_of_a_destroyed_stream_become_the_default_streams),
        ALL(live_blocks_of_a_destroyed_stream_stay_valid_and_freeable),
        ALL(what_is_free_pending_and_live_on_a_destroyed_stream_is_the_default_streams),
        ALL(a_new_stream_in_the_place_of_an_old_one_starts_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
