/* RAPIDS RMM's allocators, by their published rules: docs/policies.md has the sources. */
#include "unit/peer_support.h"

static uint64_t used(void)
{
    return f.driver.used;
}

/* ---- rmm-pool ---------------------------------------------------------------------------------------------------- */

static void rmm_pool_doubles(void **state)
{
    (void)state;
    peer_open("rmm-pool:initial=64MiB", GIB);
    assert_int_equal(used(), 64 * MIB);
    peer_get(0, 60 * MIB, 0);
    peer_get(1, 10 * MIB, 0);
    assert_int_equal(used(), 128 * MIB);
    peer_get(2, 400 * MIB, 0);
    assert_int_equal(used(), 528 * MIB);
    peer_get(3, 70 * MIB, 0);
    assert_int_equal(used(), 528 * MIB + 264 * MIB); /* 528 MiB more are not there, half of them are */
    peer_close();
}

static void rmm_pool_begins_with_no_more_than_its_maximum(void **state)
{
    (void)state;
    peer_open("rmm-pool:initial=1000,maximum=1000", GIB);
    assert_int_equal(used(), 768); /* 1024 would be too many */
    peer_close();
}

static void rmm_pool_grows_by_half_of_what_its_maximum_leaves(void **state)
{
    (void)state;
    peer_open("rmm-pool:initial=100MiB,maximum=500MiB", GIB);
    peer_get(0, 100 * MIB, 0);
    peer_get(1, MIB, 0);
    assert_int_equal(used(), 300 * MIB);
    assert_false(peer_take(2, 250 * MIB, 0));
    assert_true(peer_take(2, 200 * MIB, 0));
    assert_int_equal(used(), 500 * MIB);
    peer_close();
}

static void rmm_pool_takes_a_block_of_another_stream_and_all_that_stream_has(void **state)
{
    (void)state;
    peer_open("rmm-pool", GIB);
    uint64_t first = peer_get(0, 30 * MIB, 1);
    uint64_t second = peer_get(1, 40 * MIB, 1);
    peer_give(0);
    peer_give(1);
    uint64_t before = f.driver.nanoseconds;
    assert_int_equal(peer_get(0, 40 * MIB, 2), second);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_stream_wait, 0));
    assert_int_equal(peer_get(1, 30 * MIB, 2), first); /* without another wait: it is on this stream's list now */
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_stream_wait, 0));
    peer_close();
}

static void rmm_pool_gives_a_block_back_to_the_stream_that_took_it_over(void **state)
{
    (void)state;
    peer_open("rmm-pool", GIB);
    peer_get(0, 30 * MIB, 1);
    peer_give(0);
    peer_get(0, 30 * MIB, 2);
    peer_give(0);
    const uint64_t before = f.driver.nanoseconds;
    peer_get(0, 30 * MIB, 2);
    assert_int_equal(f.driver.nanoseconds, before);
    peer_close();
}

/* Whichever of the two lists is longer. */
static void rmm_pool_gives_a_stream_both_lists_that_were_merged(void **state)
{
    (void)state;
    for (unsigned first = 2; first <= 6; first += 4) { /* stream 1 gives back one block, or three of five */
        peer_open("rmm-pool:initial=55MiB", GIB);
        for (unsigned i = 0; i < 10; i++) peer_get(i, (i + 1) * MIB, i < first ? 1 : 2);
        for (unsigned i = 0; i < 10; i += 2) peer_give(i); /* no two are neighbours */
        const uint64_t before = f.driver.nanoseconds, wait = peer_cost(WEIR_BACKEND_stream_wait, 0);
        peer_get(8, 8 * MIB, 1); /* and the rest of that block */
        peer_get(6, 7 * MIB, 1);
        peer_get(4, 5 * MIB, 1);
        assert_int_equal(f.driver.nanoseconds - before, wait);
        peer_get(0, MIB, 2);
        assert_int_equal(f.driver.nanoseconds - before, 2 * wait);
        peer_close();
    }
}

static void rmm_pool_merges_lists_when_no_block_is_large_enough(void **state)
{
    (void)state;
    peer_open("rmm-pool:initial=100MiB", GIB);
    uint64_t first = peer_get(0, 50 * MIB, 1);
    peer_get(1, 50 * MIB, 2);
    peer_give(0);
    peer_give(1);
    assert_int_equal(peer_get(0, 100 * MIB, 3), first);
    assert_int_equal(used(), 100 * MIB);
    peer_close();
}

static void rmm_pool_records_an_event_at_each_free(void **state)
{
    (void)state;
    peer_open("rmm-pool", GIB);
    peer_get(0, MIB, 0);
    uint64_t before = f.driver.nanoseconds;
    peer_give(0);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_event_record, 0));
    peer_close();
}

/* ---- rmm-arena --------------------------------------------------------------------------------------------------- */

static void rmm_arena_takes_half_of_the_device_and_never_more(void **state)
{
    (void)state;
    peer_open("rmm-arena", GIB);
    assert_int_equal(used(), 512 * MIB);
    peer_get(0, 512 * MIB, 0);
    assert_false(peer_take(1, 1, 0));
    assert_int_equal(used(), 512 * MIB);
    peer_close();
}

static void rmm_does_not_start_with_more_than_the_device_has(void **state)
{
    (void)state;
    static const char *const choices[] = { "rmm-arena:size=2GiB", "rmm-pool:initial=2GiB" };
    for (size_t i = 0; i < 2; i++) {
        peer_open(choices[i], GIB);
        assert_int_equal(used(), 0);
        assert_false(peer_take(0, 1, 0));
        peer_close();
    }
}

static void rmm_arena_rounds_to_size_classes(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = { { 1, 256 },
                                         { 2 * KIB, 2 * KIB },
                                         { 2 * KIB + 1, 2560 },
                                         { 49 * KIB, 54 * KIB },
                                         { 54 * KIB, 54 * KIB },
                                         { 54 * KIB + 1, 64 * KIB },
                                         { 65 * KIB, 80 * KIB } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        peer_open("rmm-arena", GIB);
        uint64_t first = peer_get(0, sizes[i][0], 0);
        assert_int_equal(peer_get(1, 1, 0) - first, sizes[i][1]);
        peer_close();
    }
}

static void rmm_arena_keeps_small_blocks_of_streams_in_superblocks_of_their_own(void **state)
{
    (void)state;
    peer_open("rmm-arena", GIB);
    uint64_t first = peer_get(0, 1000, 0);
    assert_int_equal(peer_get(1, 1000, 1), first + MIB);
    assert_int_equal(peer_get(2, 1000, 0), first + 1024);
    assert_int_equal(peer_get(3, 3 * MIB, 0), first + 2 * MIB);
    peer_give(0);
    peer_give(2);
    assert_int_equal(peer_get(0, MIB, 1), first + 5 * MIB); /* the empty superblock is still stream 0's */
    peer_close();
}

static void rmm_arena_serves_1_mib_from_a_superblock_of_the_stream(void **state)
{
    (void)state;
    peer_open("rmm-arena", GIB);
    uint64_t first = peer_get(0, MIB, 0);
    peer_give(0);
    assert_int_equal(peer_get(0, MIB, 1), first + MIB); /* the first one is stream 0's */
    peer_close();
}

static void rmm_arena_cuts_off_no_superblock_below_1_mib(void **state)
{
    (void)state;
    peer_open("rmm-arena:size=16MiB", GIB);
    peer_get(0, 14 * MIB, 0);
    peer_get(1, 1000, 1); /* of the rest, in the first MiB */
    peer_get(2, 1000, 2);
    peer_close();

    peer_open("rmm-arena:size=14.5MiB", GIB);
    peer_get(0, 14 * MIB, 0);
    peer_get(1, 1000, 1); /* behind it, so that the whole superblock is stream 1's now */
    peer_give(0);
    assert_false(peer_take(2, 1000, 2));
    assert_true(peer_take(2, 1000, 1));
    peer_close();
}

static void rmm_arena_leaves_streams_their_empty_superblocks_when_neighbours_merge(void **state)
{
    (void)state;
    peer_open("rmm-arena", GIB);
    uint64_t first = peer_get(0, 2 * MIB, 0);
    peer_get(1, 1000, 0);
    peer_get(2, 1000, 1);
    peer_give(1);
    peer_give(0);
    assert_int_equal(peer_get(0, 3 * MIB, 1), first + 4 * MIB);
    peer_close();
}

static void rmm_arena_gives_empty_superblocks_back_when_memory_runs_out(void **state)
{
    (void)state;
    peer_open("rmm-arena:size=16MiB", GIB);
    uint64_t first = peer_get(0, 1000, 0);
    peer_give(0);
    assert_int_equal(peer_get(0, 16 * MIB, 0), first);
    peer_close();
}

static void rmm_arena_serves_large_requests_first_fit(void **state)
{
    (void)state;
    peer_open("rmm-arena:size=256MiB", GIB);
    uint64_t first = peer_get(0, 32 * MIB, 0);
    peer_get(1, 2 * MIB, 0);
    peer_get(2, 8 * MIB, 0);
    peer_get(3, 2 * MIB, 0);
    peer_give(0);
    peer_give(2);
    assert_int_equal(peer_get(0, 8 * MIB, 0), first); /* not the hole that fits exactly */
    peer_close();
}

static void rmm_arena_waits_for_the_stream_at_a_free_above_1_mib(void **state)
{
    (void)state;
    peer_open("rmm-arena", GIB);
    peer_get(0, MIB, 0);
    peer_get(1, MIB + 1, 0);
    const uint64_t before = f.driver.nanoseconds;
    peer_give(0);
    assert_int_equal(f.driver.nanoseconds, before);
    peer_give(1);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_stream_synchronize, 0));
    peer_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmm_pool_doubles),
        cmocka_unit_test(rmm_pool_begins_with_no_more_than_its_maximum),
        cmocka_unit_test(rmm_pool_grows_by_half_of_what_its_maximum_leaves),
        cmocka_unit_test(rmm_pool_takes_a_block_of_another_stream_and_all_that_stream_has),
        cmocka_unit_test(rmm_pool_gives_a_block_back_to_the_stream_that_took_it_over),
        cmocka_unit_test(rmm_pool_gives_a_stream_both_lists_that_were_merged),
        cmocka_unit_test(rmm_pool_merges_lists_when_no_block_is_large_enough),
        cmocka_unit_test(rmm_pool_records_an_event_at_each_free),
        cmocka_unit_test(rmm_arena_takes_half_of_the_device_and_never_more),
        cmocka_unit_test(rmm_does_not_start_with_more_than_the_device_has),
        cmocka_unit_test(rmm_arena_rounds_to_size_classes),
        cmocka_unit_test(rmm_arena_keeps_small_blocks_of_streams_in_superblocks_of_their_own),
        cmocka_unit_test(rmm_arena_serves_1_mib_from_a_superblock_of_the_stream),
        cmocka_unit_test(rmm_arena_cuts_off_no_superblock_below_1_mib),
        cmocka_unit_test(rmm_arena_leaves_streams_their_empty_superblocks_when_neighbours_merge),
        cmocka_unit_test(rmm_arena_gives_empty_superblocks_back_when_memory_runs_out),
        cmocka_unit_test(rmm_arena_serves_large_requests_first_fit),
        cmocka_unit_test(rmm_arena_waits_for_the_stream_at_a_free_above_1_mib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
