/* Allocators on top of cudaMalloc, by their published rules: docs/policies.md has the sources. */
#include "unit/peer_support.h"

static uint64_t used(void)
{
    return f.driver.used;
}

/* ---- cub: "five bin-sizes: 512B, 4KB, 32KB, 256KB, and 2MB and a maximum of 6,291,455 cached bytes per device" --- */

static void cub_rounds_to_its_bins(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = { { 1, 512 },
                                         { 512, 512 },
                                         { 513, 4 * KIB },
                                         { 4 * KIB + 1, 32 * KIB },
                                         { 32 * KIB + 1, 256 * KIB },
                                         { 256 * KIB + 1, 2 * MIB },
                                         { 2 * MIB, 2 * MIB },
                                         { 2 * MIB + 1, 2 * MIB + 1 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        peer_open("cub", GIB);
        peer_get(0, sizes[i][0], 0);
        assert_int_equal(used(), sizes[i][1]);
        peer_close();
    }
}

static void cub_reuses_blocks_of_the_same_bin_only(void **state)
{
    (void)state;
    peer_open("cub", GIB);
    uint64_t first = peer_get(0, 256 * KIB, 0);
    peer_give(0);
    assert_int_not_equal(peer_get(0, 32 * KIB, 0), first);
    assert_int_equal(peer_get(1, 40 * KIB, 1), first); /* on another stream too */
    peer_close();
}

static void cub_reuses_the_oldest_and_asks_for_the_event_on_another_stream(void **state)
{
    (void)state;
    peer_open("cub", GIB);
    uint64_t first = peer_get(0, 2 * MIB, 0), second = peer_get(1, 2 * MIB, 0);
    peer_give(1);
    peer_give(0);
    uint64_t before = f.driver.nanoseconds;
    assert_int_equal(peer_get(1, 2 * MIB, 0), second);
    assert_int_equal(f.driver.nanoseconds, before);
    assert_int_equal(peer_get(0, 2 * MIB, 1), first);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_event_query, 0));
    peer_close();
}

static void cub_caches_no_more_than_its_maximum_and_nothing_above_its_bins(void **state)
{
    (void)state;
    peer_open("cub", GIB);
    for (size_t i = 0; i < 4; i++) peer_get(i, 2 * MIB, 0);
    for (size_t i = 0; i < 4; i++) peer_give(i);
    assert_int_equal(used(), 4 * MIB); /* a third would make 6,291,456 */
    peer_get(0, 3 * MIB, 0);
    peer_give(0);
    assert_int_equal(used(), 4 * MIB);
    peer_close();
}

static void cub_caches_its_maximum_to_the_byte(void **state)
{
    (void)state;
    peer_open("cub:cached=4MiB", GIB);
    for (size_t i = 0; i < 3; i++) peer_get(i, 2 * MIB, 0);
    for (size_t i = 0; i < 3; i++) peer_give(i);
    assert_int_equal(used(), 4 * MIB);
    peer_close();
}

static void cub_counts_as_cached_what_is_cached_now(void **state)
{
    (void)state;
    peer_open("cub:cached=2MiB", 4 * MIB);
    for (size_t i = 0; i < 2; i++) {
        peer_get(0, 2 * MIB, 0);
        peer_give(0);
        assert_int_equal(used(), 2 * MIB);
    }
    peer_get(0, 3 * MIB, 0); /* the cache is emptied for it */
    peer_give(0);
    peer_get(0, 2 * MIB, 0);
    peer_give(0);
    assert_int_equal(used(), 2 * MIB);
    peer_close();
}

static void cub_records_an_event_at_each_free(void **state)
{
    (void)state;
    peer_open("cub", GIB);
    peer_get(0, 512, 0);
    uint64_t before = f.driver.nanoseconds;
    peer_give(0);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_event_record, 0));
    peer_get(0, 512, 0);
    assert_int_equal(f.driver.nanoseconds - before, peer_cost(WEIR_BACKEND_event_record, 0));
    peer_close();
}

static void cub_makes_an_event_with_each_block_of_the_driver(void **state)
{
    (void)state;
    peer_open("cub:cached=0", GIB);
    peer_get(0, 2 * MIB, 0);
    const uint64_t made = f.driver.nanoseconds;
    assert_int_equal(made, peer_cost(WEIR_BACKEND_segment_alloc, 2 * MIB) + peer_cost(WEIR_BACKEND_event_create, 0));
    peer_give(0);
    const uint64_t gone = peer_cost(WEIR_BACKEND_segment_free, 2 * MIB) + peer_cost(WEIR_BACKEND_event_destroy, 0);
    assert_int_equal(f.driver.nanoseconds - made, gone);
    peer_close();
}

static void cub_asks_for_the_event_of_the_stream_that_used_the_block_last(void **state)
{
    (void)state;
    const uint64_t record = peer_cost(WEIR_BACKEND_event_record, 0), query = peer_cost(WEIR_BACKEND_event_query, 0);
    peer_open("cub", GIB);
    peer_get(0, 512, 1);
    const uint64_t before = f.driver.nanoseconds;
    for (size_t i = 0; i < 2; i++) {
        peer_give(0);
        peer_get(0, 512, 2);
    }
    assert_int_equal(f.driver.nanoseconds - before, 2 * record + query);
    peer_close();
}

/* ---- bfc --------------------------------------------------------------------------------------------------------- */

static void bfc_takes_regions_of_doubling_sizes(void **state)
{
    (void)state;
    peer_open("bfc", GIB);
    peer_get(0, 256, 0);
    assert_int_equal(used(), 2 * MIB);
    peer_get(1, 3 * MIB, 0); /* the next region is of 4 MiB */
    assert_int_equal(used(), 6 * MIB);
    peer_get(2, 30 * MIB, 0); /* 8 is doubled until it is enough */
    assert_int_equal(used(), 38 * MIB);
    peer_get(3, 30 * MIB, 0); /* not enlarged for a request, it is doubled after it */
    assert_int_equal(used(), 70 * MIB);
    peer_get(4, 10 * MIB, 0);
    assert_int_equal(used(), 134 * MIB);
    peer_close();
}

static void bfc_splits_at_twice_the_size_or_128_mib_too_much(void **state)
{
    (void)state;
    peer_open("bfc", 4 * GIB);
    uint64_t first = peer_get(0, 16 * MIB, 0);
    peer_give(0);
    peer_get(0, 9 * MIB, 0); /* whole */
    assert_int_not_equal(peer_get(1, MIB, 0), first + 9 * MIB);
    peer_close();

    peer_open("bfc", 4 * GIB);
    first = peer_get(0, 16 * MIB, 0);
    peer_give(0);
    peer_get(0, 8 * MIB, 0);
    assert_int_equal(peer_get(1, MIB, 0), first + 8 * MIB);
    peer_close();

    peer_open("bfc:region=1GiB", 4 * GIB);
    first = peer_get(0, 600 * MIB, 0); /* 424 MiB too much */
    assert_int_equal(peer_get(1, MIB, 0), first + 600 * MIB);
    peer_close();

    peer_open("bfc:region=1GiB", 4 * GIB);
    first = peer_get(0, 896 * MIB, 0);
    assert_int_equal(peer_get(1, MIB, 0), first + 896 * MIB);
    peer_close();
}

static void bfc_takes_the_best_fit(void **state)
{
    (void)state;
    peer_open("bfc:region=1GiB", 4 * GIB);
    uint64_t first = peer_get(0, 8 * MIB, 0);
    peer_get(1, MIB, 0);
    peer_give(0);
    assert_int_equal(peer_get(0, 8 * MIB, 0), first); /* not the rest of the region */
    peer_close();
}

static void bfc_takes_what_the_limit_leaves_where_a_region_does_not_fit(void **state)
{
    (void)state;
    peer_open("bfc:region=64MiB,limit=1GiB", 100 * MIB);
    peer_get(0, 64 * MIB, 0);
    assert_true(peer_take(1, 20 * MIB, 0));
    assert_true(used() > 64 * MIB + 20 * MIB && used() <= 100 * MIB);
    peer_close();
}

static void bfc_gives_free_regions_back_when_memory_is_short(void **state)
{
    (void)state;
    peer_open("bfc", 100 * MIB);
    peer_get(0, 40 * MIB, 0);
    peer_give(0);
    assert_true(peer_take(0, 90 * MIB, 0));
    peer_close();
    peer_open("bfc:collect=0", 100 * MIB);
    peer_get(0, 40 * MIB, 0);
    peer_give(0);
    assert_false(peer_take(0, 90 * MIB, 0));
    peer_close();
}

static void bfc_keeps_to_its_limit(void **state)
{
    (void)state;
    peer_open("bfc:limit=100MiB", GIB);
    peer_get(0, 60 * MIB, 0); /* a region of 64 MiB */
    assert_false(peer_take(1, 37 * MIB, 0));
    assert_true(peer_take(1, 36 * MIB, 0));
    assert_int_equal(used(), 100 * MIB);
    peer_close();
}

/* ---- tlsf -------------------------------------------------------------------------------------------------------- */

static void tlsf_rounds_a_request_up_to_the_next_list(void **state)
{
    (void)state;
    peer_open("tlsf", GIB);
    uint64_t first = peer_get(0, 1040 * KIB, 0);
    peer_get(1, 256, 0);
    peer_give(0);                                            /* its list is that of 1024 to 1055 KiB */
    assert_int_not_equal(peer_get(0, 1030 * KIB, 0), first); /* which need not fit, so it is not looked into */
    assert_int_equal(peer_get(2, 1024 * KIB, 0), first);
    peer_close();
}

static void tlsf_serves_the_latest_of_a_list(void **state)
{
    (void)state;
    uint64_t places[3];
    peer_open("tlsf", GIB);
    for (size_t i = 0; i < 3; i++) {
        places[i] = peer_get(2 * i, 4 * KIB, 0);
        peer_get(2 * i + 1, 256, 0);
    }
    peer_give(0);
    peer_give(4);
    peer_give(2);
    assert_int_equal(peer_get(10, 4 * KIB, 0), places[1]);
    assert_int_equal(peer_get(11, 4 * KIB, 0), places[2]);
    assert_int_equal(peer_get(12, 4 * KIB, 0), places[0]);
    peer_close();
}

static void tlsf_merges_both_neighbours(void **state)
{
    (void)state;
    peer_open("tlsf", GIB);
    uint64_t first = peer_get(0, 64 * KIB, 0);
    peer_get(1, 64 * KIB, 0);
    peer_get(2, 64 * KIB, 0);
    peer_get(3, 256, 0);
    peer_give(0);
    peer_give(2);
    peer_give(1);
    assert_int_equal(peer_get(0, 192 * KIB, 0), first);
    peer_close();
}

static void tlsf_blocks_grow_from_an_eighth_to_the_preferred_size(void **state)
{
    (void)state;
    peer_open("tlsf", 4 * GIB);
    peer_get(0, MIB, 0);
    assert_int_equal(used(), 32 * MIB);
    peer_get(1, 31 * MIB, 0); /* half of 64 MiB */
    assert_int_equal(used(), 32 * MIB);
    peer_get(2, 31 * MIB, 0);
    assert_int_equal(used(), 96 * MIB);
    peer_get(3, 129 * MIB, 0); /* memory of its own */
    assert_int_equal(used(), 225 * MIB);
    peer_give(3);
    assert_int_equal(used(), 96 * MIB);
    peer_close();
}

static void tlsf_blocks_double_until_they_have_the_preferred_size(void **state)
{
    (void)state;
    static const uint64_t blocks[] = { 8, 16, 32, 64, 64 };
    size_t slot = 0;
    uint64_t sum = 0;
    peer_open("tlsf:block=64MiB", 4 * GIB);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        sum += blocks[i];
        for (uint64_t k = 0; k < blocks[i] / 4; k++) { /* until the block is full */
            peer_get(slot++, 4 * MIB, 0);
            assert_int_equal(used(), sum * MIB);
        }
    }
    peer_close();
}

static void tlsf_blocks_are_twice_the_request_or_what_the_device_has(void **state)
{
    (void)state;
    static const uint64_t cases[][3] = { { 4 * KIB, 20, 64 },   /* an eighth would do, but is not twice as large */
                                         { 4 * KIB, 128, 256 }, /* half a block is no request for memory of its own */
                                         { 100, 40, 64 },       /* 128 MiB are refused */
                                         { 40, 36, 36 } };      /* so is every block */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        peer_open("tlsf", cases[i][0] * MIB);
        peer_get(0, cases[i][1] * MIB, 0);
        assert_int_equal(used(), cases[i][2] * MIB);
        peer_close();
    }
}

static void tlsf_keeps_one_empty_block(void **state)
{
    (void)state;
    peer_open("tlsf", 4 * GIB);
    peer_get(0, 32 * MIB, 0);
    peer_get(1, 100 * MIB, 0);
    const uint64_t all = used();
    peer_give(0);
    assert_int_equal(used(), all);
    peer_give(1);
    assert_true(used() < all && used() > 0);
    peer_close();
}

static void tlsf_gives_the_empty_block_back_when_memory_is_short(void **state)
{
    (void)state;
    peer_open("tlsf:block=64MiB", 100 * MIB);
    peer_get(0, 30 * MIB, 0);
    peer_give(0);
    assert_int_equal(used(), 64 * MIB);
    assert_true(peer_take(0, 90 * MIB, 0));
    peer_close();
}

/* ---- cupy -------------------------------------------------------------------------------------------------------- */

static void cupy_takes_the_exact_size_and_always_splits(void **state)
{
    (void)state;
    peer_open("cupy", GIB);
    uint64_t first = peer_get(0, 10 * MIB + 1, 0);
    assert_int_equal(used(), 10 * MIB + 512);
    peer_give(0);
    assert_int_equal(peer_get(0, 10 * MIB, 0), first);
    assert_int_equal(peer_get(1, 512, 0), first + 10 * MIB);
    peer_close();
}

static void cupy_does_not_share_between_streams(void **state)
{
    (void)state;
    peer_open("cupy", GIB);
    peer_get(0, MIB, 0);
    peer_give(0);
    peer_get(0, MIB, 1);
    assert_int_equal(used(), 2 * MIB);
    peer_close();
}

static void cupy_keeps_to_its_limit_and_frees_whole_chunks_for_it(void **state)
{
    (void)state;
    peer_open("cupy:limit=100MiB", GIB);
    peer_get(0, 60 * MIB, 0);
    peer_give(0);
    assert_true(peer_take(0, 80 * MIB, 0));
    assert_int_equal(used(), 80 * MIB);
    assert_false(peer_take(1, 20 * MIB + 1, 0));
    assert_true(peer_take(1, 20 * MIB, 0));
    peer_close();
}

/* ---- ggml -------------------------------------------------------------------------------------------------------- */

static void ggml_adds_headroom_and_hands_buffers_out_whole(void **state)
{
    (void)state;
    peer_open("ggml", GIB);
    uint64_t first = peer_get(0, 100 * MIB, 0);
    assert_int_equal(used(), 105 * MIB);
    peer_give(0);
    assert_int_equal(peer_get(0, MIB, 0), first);
    peer_get(1, MIB, 0);
    assert_int_equal(used(), 105 * MIB + (MIB + MIB / 20 + 255) / 256 * 256);
    peer_close();
}

static void ggml_adds_headroom_for_each_byte(void **state)
{
    (void)state;
    static const uint64_t sizes[][2] = { { 244, 256 }, { 245, 512 } }; /* 5 % more than 245 are 257 */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        peer_open("ggml", GIB);
        peer_get(0, sizes[i][0], 0);
        assert_int_equal(used(), sizes[i][1]);
        peer_close();
    }
}

static void ggml_keeps_256_buffers_of_a_stream(void **state)
{
    (void)state;
    peer_open("ggml", GIB);
    for (size_t i = 0; i < 300; i++) peer_get(i, MIB, 0);
    const uint64_t each = used() / 300;
    for (size_t i = 0; i < 300; i++) peer_give(i);
    assert_int_equal(used(), 256 * each);
    peer_close();
}

static void ggml_counts_the_buffers_that_a_stream_keeps_now(void **state)
{
    (void)state;
    peer_open("ggml:buffers=1", GIB);
    for (unsigned stream = 0; stream < 2; stream++) peer_get(stream, MIB, stream);
    const uint64_t both = used();
    for (unsigned time = 0; time < 2; time++) {
        for (unsigned stream = 0; stream < 2; stream++) peer_give(stream);
        assert_int_equal(used(), both);
        for (unsigned stream = 0; stream < 2; stream++) peer_get(stream, MIB, stream);
    }
    peer_give(0);
    f.choice.peer->empty(f.self);
    peer_get(0, MIB, 0);
    peer_give(0);
    assert_int_equal(used(), both);
    peer_close();
}

static void ggml_without_buffers_calls_the_driver_each_time(void **state)
{
    (void)state;
    const uint64_t alloc = peer_cost(WEIR_BACKEND_segment_alloc, 512 * MIB);
    peer_open("ggml:buffers=0,headroom=0", GIB);
    peer_get(0, 512 * MIB, 0);
    assert_false(peer_take(1, 600 * MIB, 0)); /* asks twice; what a refusal takes was not measured */
    assert_int_equal(f.driver.calls, 3);
    assert_int_equal(f.driver.nanoseconds, alloc);
    peer_give(0);
    assert_int_equal(f.driver.calls, 4);
    assert_int_equal(f.driver.nanoseconds, alloc + peer_cost(WEIR_BACKEND_segment_free, 512 * MIB));
    peer_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cub_rounds_to_its_bins),
        cmocka_unit_test(cub_reuses_blocks_of_the_same_bin_only),
        cmocka_unit_test(cub_reuses_the_oldest_and_asks_for_the_event_on_another_stream),
        cmocka_unit_test(cub_caches_no_more_than_its_maximum_and_nothing_above_its_bins),
        cmocka_unit_test(cub_caches_its_maximum_to_the_byte),
        cmocka_unit_test(cub_counts_as_cached_what_is_cached_now),
        cmocka_unit_test(cub_records_an_event_at_each_free),
        cmocka_unit_test(cub_makes_an_event_with_each_block_of_the_driver),
        cmocka_unit_test(cub_asks_for_the_event_of_the_stream_that_used_the_block_last),
        cmocka_unit_test(bfc_takes_regions_of_doubling_sizes),
        cmocka_unit_test(bfc_splits_at_twice_the_size_or_128_mib_too_much),
        cmocka_unit_test(bfc_takes_the_best_fit),
        cmocka_unit_test(bfc_takes_what_the_limit_leaves_where_a_region_does_not_fit),
        cmocka_unit_test(bfc_gives_free_regions_back_when_memory_is_short),
        cmocka_unit_test(bfc_keeps_to_its_limit),
        cmocka_unit_test(tlsf_rounds_a_request_up_to_the_next_list),
        cmocka_unit_test(tlsf_serves_the_latest_of_a_list),
        cmocka_unit_test(tlsf_merges_both_neighbours),
        cmocka_unit_test(tlsf_blocks_grow_from_an_eighth_to_the_preferred_size),
        cmocka_unit_test(tlsf_blocks_double_until_they_have_the_preferred_size),
        cmocka_unit_test(tlsf_blocks_are_twice_the_request_or_what_the_device_has),
        cmocka_unit_test(tlsf_keeps_one_empty_block),
        cmocka_unit_test(tlsf_gives_the_empty_block_back_when_memory_is_short),
        cmocka_unit_test(cupy_takes_the_exact_size_and_always_splits),
        cmocka_unit_test(cupy_does_not_share_between_streams),
        cmocka_unit_test(cupy_keeps_to_its_limit_and_frees_whole_chunks_for_it),
        cmocka_unit_test(ggml_adds_headroom_and_hands_buffers_out_whole),
        cmocka_unit_test(ggml_adds_headroom_for_each_byte),
        cmocka_unit_test(ggml_keeps_256_buffers_of_a_stream),
        cmocka_unit_test(ggml_counts_the_buffers_that_a_stream_keeps_now),
        cmocka_unit_test(ggml_without_buffers_calls_the_driver_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
