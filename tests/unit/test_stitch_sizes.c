/*
 * How large chunks are, which blocks share them, and when new ones are made.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "stitch_support.h"
#include "weir/observe.h"

static void a_first_small_block_holds_one_unit(void **state)
{
    (void)state;
    (void)alloc(100);
    assert_int_equal(reserved_on(0), 2 * MIB);
}

static uint64_t chunks_for(size_t bytes)
{
    const uint64_t before = calls_of(WEIR_BACKEND_vm_create);
    (void)alloc(bytes);
    return calls_of(WEIR_BACKEND_vm_create) - before;
}

static void chunks_grow_with_what_is_held(void **state)
{
    (void)state;
    assert_int_equal(chunks_for(56 * MIB), 3); /* of 20 MiB at most */
    for (int i = 0; i < 10; i++) (void)alloc(104 * MIB);
    assert_int_equal(chunks_for(104 * MIB), 4); /* of 30: a 40th of 1200 */
}

static void chunks_for_a_large_request_are_a_part_of_it(void **state)
{
    (void)state;
    assert_int_equal(chunks_for(600 * MIB), 12);
    assert_int_equal(chunks_for(4480 * MIB), 40); /* of 112; a 12th were 374 */
}

/* Pinned memory is not on the device. */
static void pinned_pools_make_no_chunks_small(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 512 * MIB));
    (void)alloc_from(make_pool(pool_options(WEIR_MEMORY_PINNED, "")), 450 * MIB, default_stream(0));
    assert_int_equal(chunks_for(56 * MIB), 3);
}

static void chunks_are_smaller_beyond_half_of_the_device(void **state)
{
    (void)state;
    assert_int_equal(chunks_for(6720 * MIB), 60);
    assert_int_equal(chunks_for(2000 * MIB), 100);
}

static void chunks_are_smaller_from_an_eighth_of_a_limit_on(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, UINT64_C(12000) * MIB));
    assert_int_equal(chunks_for(1400 * MIB), 13); /* of 112 */
    assert_int_equal(chunks_for(1000 * MIB), 50);
}

static void chunks_are_small_in_the_last_eighth(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, UINT64_C(1600) * MIB));
    assert_int_equal(chunks_for(1400 * MIB), 70);
    assert_int_equal(chunks_for(160 * MIB), 20); /* of 8 */
}

static void chunks_are_small_in_the_last_eighth_of_a_device(void **state)
{
    (void)state;
    (void)alloc(14336 * MIB);
    assert_int_equal(chunks_for(160 * MIB), 20);
}

static void chunks_are_small_where_others_have_nearly_all_of_the_device(void **state)
{
    (void)state;
    const wr_cache *cache = front_of(alloc(512))->cache;
    void *others = NULL;
    assert_ok(cache->backend->segment_alloc(0, 15360 * MIB, &others));
    for (int i = 0; i < 17; i++) (void)alloc(52 * MIB); /* the driver is asked at the last of them */
    assert_int_equal(chunks_for(80 * MIB), 10);
    assert_ok(cache->backend->segment_free(0, others, 15360 * MIB));
    (void)chunks_for(32 * MIB);
    assert_int_equal(chunks_for(100 * MIB), 4);
}

static void chunks_are_small_after_the_driver_has_refused(void **state)
{
    (void)state;
    (void)alloc(880 * MIB);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_create, 1, WEIR_ERR_OUT_OF_MEMORY));
    assert_int_equal(chunks_for(80 * MIB), 1 + 10); /* of 8, by the second attempt */
    assert_int_equal(chunks_for(100 * MIB), 4);     /* it succeeded, so there was more */
}

static void chunks_stay_large_after_a_request_for_more_than_there_is(void **state)
{
    (void)state;
    void *none = NULL;
    (void)alloc(1024 * MIB);
    assert_int_equal(weir_alloc(15500 * MIB, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(chunks_for(960 * MIB), 12); /* of 80: a 12th of it */
}

/* A 512th of the request would exceed 8 MiB. */
static void a_very_large_request_gets_no_small_chunks(void **state)
{
    (void)state;
    assert_int_equal(chunks_for(15360 * MIB), 768); /* of 20 */
}

static uint64_t reserved_by(weir_stream stream)
{
    weir_stream_stats stats = { .size = sizeof stats };
    assert_ok(weir_stream_stats_get(stream, &stats));
    return stats.reserved_bytes;
}

static void many_streams_have_smaller_chunks(void **state)
{
    enum { STREAMS = 8 };
    weir_stream streams[STREAMS];
    (void)state;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        (void)alloc_on(128 * MIB, streams[i]);
        (void)alloc_on(2 * MIB, streams[i]);
    }
    assert_int_equal(reserved_by(streams[0]), (128 + 16) * MIB);
    assert_int_equal(reserved_by(streams[STREAMS - 1]), (128 + 2) * MIB);
}

static void small_blocks_lie_apart_from_large_ones(void **state)
{
    (void)state;
    char *large = alloc(16 * MIB);
    assert_ok(weir_free(large));
    assert_int_equal(reserved_on(0), 16 * MIB);
    char *small = alloc(MIB);
    assert_true(small + MIB <= large || small >= large + 16 * MIB);
    assert_int_equal(reserved_on(0), (16 + 2) * MIB);
    const uint64_t called = driver_calls();
    assert_ptr_equal(alloc(16 * MIB), large);
    assert_int_equal(driver_calls(), called);
}

/* Leaves 30 MiB free among large blocks, with the limit reached. */
static char *reach_a_limit(void)
{
    assert_ok(weir_memory_limit_set(0, (uint64_t)reserved_on(0) + 64 * MIB));
    char *large = alloc(30 * MIB);
    (void)alloc(34 * MIB);
    assert_ok(weir_free(large));
    return large;
}

static void short_memory_serves_small_blocks_among_large_ones(void **state)
{
    (void)state;
    const char *large = reach_a_limit();
    char *small = alloc(MIB);
    assert_true(small >= large && small + MIB <= large + 30 * MIB);
    assert_int_equal(reserved_on(0), 64 * MIB);
}

static void small_blocks_lie_apart_again_once_there_is_memory(void **state)
{
    (void)state;
    const char *large = reach_a_limit();
    (void)alloc(MIB);
    assert_ok(weir_memory_limit_set(0, 0));
    (void)alloc(32 * MIB); /* more than is free in one piece */
    char *small = alloc(MIB);
    assert_true(small + MIB <= large || small >= large + 30 * MIB);
}

static void short_memory_serves_large_blocks_among_small_ones(void **state)
{
    enum { SMALL = 64 };
    char *blocks[SMALL];
    (void)state;
    for (int i = 0; i < SMALL; i++) blocks[i] = alloc(MIB / 2);
    const int64_t reserved = reserved_on(0);
    assert_ok(weir_memory_limit_set(0, (uint64_t)reserved));
    for (int i = 0; i < SMALL; i++)
        if (i % 8 != 0 && i % 8 != 7) assert_ok(weir_free(blocks[i])); /* 3 MiB in one piece, and no chunk is free */
    (void)alloc(3 * MIB);
    assert_int_equal(reserved_on(0), reserved);
}

static void a_small_blocks_chunk_completes_a_large_block_when_memory_is_short(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 100 * MIB));
    assert_ok(weir_free(alloc_on(100 * MIB, new_stream(0))));
    (void)alloc(MIB); /* takes one of the thirteen chunks */
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), 13);
    (void)alloc(99 * MIB);
    assert_int_equal(reserved_on(0), 100 * MIB);
}

static void requests_that_need_no_new_memory_are_served_above_the_limit(void **state)
{
    char *blocks[CHUNKS];
    (void)state;
    take_chunks(blocks, default_stream(0));
    free_every_other(blocks);
    const int64_t reserved = reserved_on(0);
    assert_ok(weir_memory_limit_set(0, CHUNK));
    const uint64_t made = calls_of(WEIR_BACKEND_vm_create);
    (void)alloc(2 * CHUNK);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), made);
    assert_int_equal(reserved_on(0), reserved);
}

static void few_small_blocks_keep_their_chunks(void **state)
{
    (void)state;
    char *small = alloc(MIB);
    assert_ok(weir_free(small));
    assert_ok(weir_free(alloc(16 * MIB)));
    assert_int_equal(reserved_on(0), (16 + 2) * MIB);
    const uint64_t called = driver_calls();
    assert_ptr_equal(alloc(MIB), small);
    assert_int_equal(driver_calls(), called);
}

static void free_chunks_of_many_small_blocks_serve_large_ones(void **state)
{
    enum { SMALL = 400 };
    void *blocks[SMALL];
    (void)state;
    for (int i = 0; i < SMALL; i++) blocks[i] = alloc(MIB);
    for (int i = 0; i < SMALL; i++) assert_ok(weir_free(blocks[i]));
    const int64_t reserved = reserved_on(0);
    (void)alloc(SMALL * MIB);
    assert_true(reserved_on(0) <= reserved + (int64_t)(16 * MIB));
}

/* 32 MiB, plus what may be held beyond the live bytes. */
static void small_blocks_have_little_of_their_own_while_large_ones_are_free(void **state)
{
    enum { SMALL = 400 };
    (void)state;
    assert_ok(weir_free(alloc(SMALL * MIB)));
    for (int i = 0; i < SMALL; i++) (void)alloc(MIB);
    assert_true(reserved_on(0) <= (int64_t)((SMALL + 32 + SMALL / 40) * MIB));
}

static void small_blocks_have_nothing_of_their_own_near_a_limit(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 400 * MIB));
    assert_ok(weir_free(alloc(200 * MIB)));
    for (int i = 0; i < 30; i++) (void)alloc(MIB);
    assert_true(reserved_on(0) <= (int64_t)((200 + 200 / 40) * MIB));
}

static void small_blocks_among_large_ones_need_no_driver(void **state)
{
    (void)state;
    char *large = alloc(400 * MIB);
    void *more = NULL;
    while (weir_alloc(2 * MIB, &more) == WEIR_OK) continue;
    assert_ok(weir_free(large));
    (void)alloc(MIB / 2);
    const uint64_t called = driver_calls();
    for (int i = 0; i < 100; i++) (void)alloc(MIB / 2);
    assert_int_equal(driver_calls(), called);
}

/* Otherwise each request would free all parked blocks, and the next ones would find none. */
static void small_blocks_among_large_ones_leave_parked_blocks_alone(void **state)
{
    (void)state;
    char *first = alloc(MIB / 4), *second = alloc(MIB / 4);
    assert_ptr_equal(second, first + MIB / 4);
    (void)alloc(MIB);
    (void)alloc(MIB / 2); /* nothing is left of 2 MiB */
    const char *large = reach_a_limit();
    (void)alloc(MIB);
    assert_ok(weir_free(first));
    assert_ok(weir_free(second));
    const char *small = alloc(MIB / 2); /* would fit where the two are */
    assert_true(small >= large && small + MIB / 2 <= large + 30 * MIB);
    assert_ptr_equal(alloc(MIB / 4), second);
    assert_ptr_equal(alloc(MIB / 4), first);
}

/* Its chunks would be larger otherwise. */
static void all_of_a_limit_can_be_allocated(void **state)
{
    (void)state;
    for (uint64_t limit = 40 * MIB; limit <= 76 * MIB; limit += 6 * MIB) {
        void *blocks[76];
        int count = 0;
        assert_ok(weir_memory_limit_set(0, limit));
        while (weir_alloc(MIB, &blocks[count]) == WEIR_OK) count++;
        assert_int_equal(count, limit / MIB);
        while (count > 0) assert_ok(weir_free(blocks[--count]));
        assert_ok(weir_empty_cache(0));
    }
}

static void all_of_a_device_can_be_allocated(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(512 * MIB)));
    assert_int_equal(reserved_on(0), 512 * MIB);
}

/* Making many chunks, only to give them back once one is refused, takes long. */
static void a_request_without_room_makes_no_chunks(void **state)
{
    void *none = NULL;
    (void)state;
    (void)alloc(10240 * MIB);
    const uint64_t mapped = calls_of(WEIR_BACKEND_vm_map), destroyed = calls_of(WEIR_BACKEND_vm_destroy);
    assert_status(weir_alloc(8192 * MIB, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), mapped);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_destroy), destroyed);
    (void)alloc(6144 * MIB);
    assert_ok(weir_validate(0));
}

static weir_status says_that_all_is_used(int device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)device;
    *free_bytes = 0;
    *total_bytes = 16384 * MIB;
    return WEIR_OK;
}

static void memory_missing_from_the_drivers_figure_is_found(void **state)
{
    wr_cache *cache = front_of(alloc(512))->cache;
    const weir_backend *real = cache->backend;
    weir_backend wrong = *real;
    (void)state;
    wrong.device_memory = says_that_all_is_used;
    cache->backend = &wrong;
    (void)alloc(8192 * MIB);
    cache->backend = real;
    assert_in_range(reserved_on(0), 8192 * MIB, 8300 * MIB);
    assert_ok(weir_validate(0));
}

static void a_device_that_does_not_report_free_memory_serves_too(void **state)
{
    (void)state;
    (void)alloc(512);
    assert_ok(weir_host_fail(WEIR_BACKEND_device_memory, 1, WEIR_ERR_DRIVER));
    (void)alloc(2048 * MIB);
    assert_ok(weir_validate(0));
}

static void a_trial_chunk_that_the_driver_does_not_take_back_fails_the_request(void **state)
{
    wr_cache *cache = front_of(alloc(512))->cache;
    const weir_backend *real = cache->backend;
    weir_backend wrong = *real;
    void *none = NULL;
    (void)state;
    wrong.device_memory = says_that_all_is_used;
    cache->backend = &wrong;
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(weir_alloc(2048 * MIB, &none), WEIR_ERR_DRIVER);
    cache->backend = real;
    assert_int_equal(reserved_on(0), 2 * MIB);
    assert_ok(weir_memory_limit_set(0, 3072 * MIB));
    assert_status(weir_alloc(2048 * MIB, &none), WEIR_ERR_OUT_OF_MEMORY); /* the device still has that chunk */
    assert_ok(weir_memory_limit_set(0, 0));
    (void)alloc(2048 * MIB);
    assert_ok(weir_validate(0));
}

/* As a language model's cache of tokens: at each token each block is replaced by a slightly larger one. */
static void blocks_that_grow_a_little_take_no_memory_of_each_other(void **state)
{
    enum { BLOCKS = 64, STEPS = 20 };
    const size_t more = 64 * 1024;
    size_t bytes = 12 * MIB;
    void *blocks[BLOCKS];
    (void)state;
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc(bytes);
    for (int step = 0; step < STEPS; step++) {
        bytes += more;
        for (int i = 0; i < BLOCKS; i++) {
            void *scratch = alloc(MIB / 2), *larger = alloc(bytes);
            assert_ok(weir_free(blocks[i]));
            assert_ok(weir_free(scratch));
            blocks[i] = larger;
        }
    }
    assert_true((size_t)reserved_on(0) < (BLOCKS + 1) * bytes / 100 * 103);
}

/* 1000 MiB are in use, except two blocks of 25 MiB that are not neighbours. Returns how much more is held for another
 * request. */
static int64_t held_more_for(size_t bytes)
{
    enum { BLOCKS = 40 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc(25 * MIB);
    assert_ok(weir_free(blocks[10]));
    assert_ok(weir_free(blocks[20]));
    const int64_t reserved = reserved_on(0);
    (void)alloc(bytes);
    return reserved_on(0) - reserved;
}

static void new_memory_is_created_for_a_small_request(void **state)
{
    (void)state;
    assert_int_equal(held_more_for(40 * MIB), 40 * MIB);
}

static void free_pieces_serve_a_larger_request(void **state)
{
    (void)state;
    assert_true(held_more_for(52 * MIB) < (int64_t)(52 * MIB));
}

static void free_pieces_serve_when_several_streams_have_memory(void **state)
{
    (void)state;
    (void)alloc_on(2 * MIB, new_stream(0));
    assert_true(held_more_for(40 * MIB) < (int64_t)(40 * MIB));
}

/* Others take memory, and give it back. */
static void the_driver_is_asked_what_there_is_once_in_sixteen_growths(void **state)
{
    (void)state;
    (void)alloc(CHUNK);
    const uint64_t asked = calls_of(WEIR_BACKEND_device_memory);
    for (int i = 0; i < 2 * 17; i++) (void)alloc(16 * MIB); /* of a chunk each */
    assert_int_equal(calls_of(WEIR_BACKEND_device_memory), asked + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STITCH_TEST(a_first_small_block_holds_one_unit),
        cmocka_unit_test_setup_teardown(chunks_grow_with_what_is_held, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_for_a_large_request_are_a_part_of_it, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_are_smaller_beyond_half_of_the_device, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_are_smaller_from_an_eighth_of_a_limit_on, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_are_small_in_the_last_eighth, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_are_small_in_the_last_eighth_of_a_device, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_are_small_where_others_have_nearly_all_of_the_device, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(chunks_are_small_after_the_driver_has_refused, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(chunks_stay_large_after_a_request_for_more_than_there_is, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_very_large_request_gets_no_small_chunks, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(many_streams_have_smaller_chunks, open_large_host, close_host),
        STITCH_TEST(small_blocks_lie_apart_from_large_ones),
        STITCH_TEST(short_memory_serves_small_blocks_among_large_ones),
        STITCH_TEST(small_blocks_lie_apart_again_once_there_is_memory),
        STITCH_TEST(short_memory_serves_large_blocks_among_small_ones),
        STITCH_TEST(a_small_blocks_chunk_completes_a_large_block_when_memory_is_short),
        STITCH_TEST(requests_that_need_no_new_memory_are_served_above_the_limit),
        STITCH_TEST(few_small_blocks_keep_their_chunks),
        cmocka_unit_test_setup_teardown(free_chunks_of_many_small_blocks_serve_large_ones, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(small_blocks_have_little_of_their_own_while_large_ones_are_free,
                                        open_large_host, close_host),
        STITCH_TEST(small_blocks_have_nothing_of_their_own_near_a_limit),
        STITCH_TEST(small_blocks_among_large_ones_need_no_driver),
        STITCH_TEST(small_blocks_among_large_ones_leave_parked_blocks_alone),
        STITCH_TEST(all_of_a_limit_can_be_allocated),
        STITCH_TEST(all_of_a_device_can_be_allocated),
        cmocka_unit_test_setup_teardown(a_request_without_room_makes_no_chunks, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(memory_missing_from_the_drivers_figure_is_found, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(a_device_that_does_not_report_free_memory_serves_too, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_trial_chunk_that_the_driver_does_not_take_back_fails_the_request,
                                        open_large_host, close_host),
        cmocka_unit_test_setup_teardown(blocks_that_grow_a_little_take_no_memory_of_each_other, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(new_memory_is_created_for_a_small_request, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(free_pieces_serve_a_larger_request, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(free_pieces_serve_when_several_streams_have_memory, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(pinned_pools_make_no_chunks_small, open_large, close_host),
        cmocka_unit_test_setup_teardown(the_driver_is_asked_what_there_is_once_in_sixteen_growths, open_large,
                                        close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
