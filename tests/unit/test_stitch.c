/*
 * Policy weir: the default pool's memory in chunks, mapped again where it is needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "detach_support.h"
#include "graph_support.h"
#include "pool/chunk/chunk.h"
#include "pool_support.h"
#include "random_support.h"
#include "records_support.h"
#include "weir/observe.h"
#include "weir/plan.h"

#define CHUNK (8 * MIB)
#define CHUNKS 8

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .host_devices = 2 });
    return 0;
}

/* Blocks of a chunk each. */
static void take_chunks(char *blocks[CHUNKS], weir_stream stream)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        blocks[i] = alloc_on(CHUNK, stream);
        write_pattern(blocks[i], CHUNK, i);
    }
}

static void free_every_other(char *blocks[CHUNKS])
{
    for (int i = 0; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
}

static uint64_t queued_on(weir_stream stream)
{
    uint64_t count = 0;
    assert_ok(weir_host_stream_queued(device_of(stream), native_of(stream), &count));
    return count;
}

/* ---- one stream -------------------------------------------------------------------------------------------------- */

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

static void addresses_that_stay_mapped_are_not_given_back(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(MIB)));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER)); /* the memory is mapped again, */
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));  /* in vain, */
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));   /* and that cannot be undone */
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_free(alloc(MIB)));
    assert_ok(weir_validate(0));
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

static void chunks_mapped_together_count_as_a_hit(void **state)
{
    (void)state;
    void *a = alloc(60 * MIB), *between = alloc(2 * MIB), *b = alloc(60 * MIB);
    assert_ok(weir_free(a));
    assert_ok(weir_free(b));
    const weir_memory_stats before = stats_of(0);
    void *both = alloc(100 * MIB);
    assert_int_equal(stats_of(0).driver_allocs, before.driver_allocs);
    assert_int_equal(stats_of(0).hits, before.hits + 1);
    assert_ok(weir_free(both));
    assert_ok(weir_free(between));
}

/* The most ever live says how much may be held before memory is mapped again. */
static void resetting_statistics_changes_no_placement(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(400 * MIB)));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_stats_reset(0));
    void *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = alloc(20 * MIB);
    for (int i = 0; i < 10; i += 2) assert_ok(weir_free(blocks[i]));
    (void)alloc(60 * MIB);
    assert_int_equal(reserved_on(0), 260 * MIB);
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

static void free_chunks_are_mapped_together_before_memory_is_created(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    take_chunks(blocks, default_stream(0));
    free_every_other(blocks);
    const uint64_t created = calls_of(WEIR_BACKEND_vm_create);
    char *large = alloc(4 * CHUNK);
    write_pattern(large, 4 * CHUNK, 99);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), created);
    assert_int_equal(reserved_on(0), CHUNKS * CHUNK);
    for (unsigned i = 1; i < CHUNKS; i += 2) assert_true(has_pattern(blocks[i], CHUNK, i));
}

/* The first three of the chunks are free, the first and the third of them at addresses behind the others. */
static void leave_first_three(char *blocks[CHUNKS])
{
    for (int i = 0; i < CHUNKS; i++) blocks[i] = alloc(CHUNK);
    assert_ok(weir_free(blocks[0]));
    assert_ok(weir_free(blocks[2]));
    char *both = alloc(2 * CHUNK);
    assert_true(both > blocks[CHUNKS - 1]);
    assert_ok(weir_free(both));
    assert_ok(weir_free(blocks[1]));
}

static void addresses_are_used_again_without_the_driver(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    leave_first_three(blocks);
    const uint64_t called = driver_calls();
    assert_ptr_equal(alloc(3 * CHUNK), blocks[0]);
    assert_int_equal(driver_calls(), called);
}

/* Of chunks of 20 MiB one has 16 MiB free at its end and another at its beginning; the memory between is in use. */
static void free_ends_of_chunks_in_use_serve(void **state)
{
    (void)state;
    char *first = alloc(20 * MIB), *between = alloc(20 * MIB), *last = alloc(20 * MIB);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), 3);
    assert_ok(weir_free(last));
    char *before = alloc(16 * MIB);
    last = alloc(4 * MIB);
    assert_ok(weir_free(first));
    first = alloc(4 * MIB);
    assert_ok(weir_free(before));
    write_pattern(first, 4 * MIB, 1);
    write_pattern(between, 20 * MIB, 2);
    write_pattern(last, 4 * MIB, 3);
    char *large = alloc(32 * MIB);
    write_pattern(large, 32 * MIB, 4);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), 3);
    assert_true(has_pattern(first, 4 * MIB, 1));
    assert_true(has_pattern(between, 20 * MIB, 2));
    assert_true(has_pattern(last, 4 * MIB, 3));
    assert_true(has_pattern(large, 32 * MIB, 4));
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

static weir_status reserve_little(int device, uint64_t bytes, uintptr_t wish, void **base)
{
    return bytes > 64 * MIB ? WEIR_ERR_OUT_OF_MEMORY : wr_backend_host.vm_reserve(device, bytes, wish, base);
}

static void without_addresses_to_grow_into_a_request_gets_what_it_needs(void **state)
{
    (void)state;
    wr_cache *cache = front_of(alloc(512))->cache;
    const weir_backend *real = cache->backend;
    weir_backend few = *real;
    void *block = NULL;
    few.vm_reserve = reserve_little;
    cache->backend = &few;
    const weir_status status = weir_alloc_on(20 * MIB, new_stream(0), &block);
    cache->backend = real;
    assert_ok(status);
    assert_ok(weir_free(block));
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

/* Twelve chunks of 100 MiB, three of which have a free beginning; no chunk is free. */
static void free_beginnings(size_t bytes)
{
    enum { PAIRS = 12 };
    const size_t chunk = 100 * MIB;
    void *beginnings[PAIRS];
    assert_ok(weir_free(alloc(PAIRS * chunk)));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), PAIRS);
    for (int i = 0; i < PAIRS; i++) {
        beginnings[i] = alloc(bytes);
        (void)alloc(chunk - bytes);
    }
    for (int i = 0; i < PAIRS; i += 4) assert_ok(weir_free(beginnings[i]));
}

static void a_short_free_beginning_is_left_alone_when_new_memory_is_needed(void **state)
{
    (void)state;
    free_beginnings(20 * MIB);
    const int64_t reserved = reserved_on(0);
    (void)alloc(100 * MIB);
    assert_int_equal(reserved_on(0), reserved + (int64_t)(100 * MIB));
}

static void a_long_free_beginning_completes_new_memory(void **state)
{
    (void)state;
    free_beginnings(30 * MIB);
    const int64_t reserved = reserved_on(0);
    (void)alloc(100 * MIB);
    assert_int_equal(reserved_on(0), reserved + (int64_t)(70 * MIB));
    (void)alloc(32 * MIB);
    assert_int_equal(reserved_on(0), reserved + (int64_t)(72 * MIB)); /* no more than is missing */
}

/* The limit leaves room for the part that the short free beginning lacks, but not for the whole request. */
static void a_short_free_beginning_serves_when_memory_is_short(void **state)
{
    void *beginnings[4];
    (void)state;
    assert_ok(weir_free(alloc(80 * MIB)));
    for (int i = 0; i < 4; i++) {
        beginnings[i] = alloc(16 * MIB);
        (void)alloc(4 * MIB);
    }
    assert_int_equal(reserved_on(0), 80 * MIB);
    assert_ok(weir_memory_limit_set(0, 90 * MIB));
    assert_ok(weir_free(beginnings[0]));
    (void)alloc(24 * MIB);
    assert_int_equal(reserved_on(0), 88 * MIB);
}

/* Chunks of 8 MiB, of which 2 are free at the end of one and at the beginning of another. */
static void short_free_ends_serve_when_memory_is_short(void **state)
{
    void *pieces[8];
    (void)state;
    assert_ok(weir_memory_limit_set(0, 16 * MIB));
    assert_ok(weir_free(alloc(16 * MIB)));
    for (int i = 0; i < 8; i++) pieces[i] = alloc(2 * MIB);
    assert_ok(weir_free(pieces[0]));
    assert_ok(weir_free(pieces[7]));
    (void)alloc(4 * MIB);
    assert_int_equal(reserved_on(0), 16 * MIB);
}

/* The free tail and the other chunk's free beginning are enough, though that chunk's free end is larger than the
 * tail. */
static void a_free_tail_that_serves_is_used_when_memory_is_short(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 16 * MIB));
    assert_ok(weir_free(alloc(16 * MIB)));
    void *beginning = alloc(3 * MIB);
    (void)alloc(MIB + MIB / 2);
    void *end = alloc(3 * MIB + MIB / 2);
    (void)alloc(4 * MIB + 3 * MIB / 4);
    assert_ok(weir_free(beginning));
    assert_ok(weir_free(end));
    (void)alloc(6 * MIB);
    assert_int_equal(reserved_on(0), 16 * MIB);
}

static void the_limit_counts_new_chunks_only(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    take_chunks(blocks, default_stream(0));
    free_every_other(blocks);
    assert_ok(weir_memory_limit_set(0, CHUNKS * CHUNK));
    (void)alloc(4 * CHUNK);
    void *none = NULL;
    assert_status(weir_alloc(CHUNK, &none), WEIR_ERR_OUT_OF_MEMORY);
}

/* Most chunks have a live block in them, so they cannot go elsewhere. */
static void fail_for_want_of_whole_chunks(void)
{
    enum { BLOCKS = 62 };
    char *blocks[BLOCKS];
    void *none = NULL;
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc(CHUNK);
    for (int i = 0; i < BLOCKS; i += 2) assert_ok(weir_free(blocks[i]));
    assert_status(weir_alloc(150 * MIB, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "scattered over chunks that are partly in use"));
}

static void a_failure_for_lack_of_whole_chunks_recommends_plans(void **state)
{
    (void)state;
    fail_for_want_of_whole_chunks();
    assert_non_null(strstr(weir_error_text(), "set WEIR_PLAN=auto and WEIR_HISTORY="));
}

static void a_failure_recommends_no_plans_where_one_is_served(void **state)
{
    (void)state;
    const weir_plan_entry entry = { 0, MIB, WEIR_PLAN_FOREVER, 0 };
    const weir_plan_arena arena = { .streams = 1, .bytes = MIB, .entries = 1 };
    const weir_plan plan = { .arena_count = 1, .entry_count = 1, .arenas = &arena, .entries = &entry };
    assert_ok(weir_plan_serve(0, &plan));
    fail_for_want_of_whole_chunks();
    assert_null(strstr(weir_error_text(), "WEIR_PLAN"));
}

static int open_planning(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .plan = "auto", .history = 100000 });
    return 0;
}

static void a_failure_recommends_no_plans_where_they_are_made(void **state)
{
    (void)state;
    fail_for_want_of_whole_chunks();
    assert_null(strstr(weir_error_text(), "WEIR_PLAN"));
}

/* ---- other streams ----------------------------------------------------------------------------------------------- */

static void free_memory_of_an_idle_stream_is_used(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    assert_ok(weir_free(alloc_on(64 * MIB, other)));
    assert_int_equal(reserved_on(0), 64 * MIB); /* reading statistics frees parked blocks */
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_wait);
    (void)alloc(64 * MIB);
    assert_int_equal(reserved_on(0), 64 * MIB);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), waits);
}

static void free_memory_of_a_busy_stream_is_left_while_there_is_room(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    void *block = alloc_on(64 * MIB, other);
    make_busy(other);
    assert_ok(weir_free(block));
    (void)alloc(64 * MIB);
    assert_int_equal(reserved_on(0), 128 * MIB);
    assert_int_equal(queued_on(other), 1);
    let_run(other);
}

static void free_memory_of_an_idle_stream_is_used_though_others_are_busy(void **state)
{
    (void)state;
    enum { BUSY = 3 };
    weir_stream busy[BUSY], idle = new_stream(0);
    void *theirs[BUSY];
    for (int i = 0; i < BUSY; i++) {
        busy[i] = new_stream(0);
        theirs[i] = alloc_on(64 * MIB, busy[i]);
    }
    assert_ok(weir_free(alloc_on(64 * MIB, idle)));
    for (int i = 0; i < BUSY; i++) {
        make_busy(busy[i]);
        assert_ok(weir_free(theirs[i]));
    }
    assert_int_equal(reserved_on(0), (BUSY + 1) * 64 * MIB);
    (void)alloc(64 * MIB);
    assert_int_equal(reserved_on(0), (BUSY + 1) * 64 * MIB);
    for (int i = 0; i < BUSY; i++) {
        assert_int_equal(queued_on(busy[i]), 1);
        let_run(busy[i]);
    }
}

static void out_of_memory_a_stream_waits_for_the_busy_one_whose_memory_it_gets(void **state)
{
    (void)state;
    weir_stream other = new_stream(0), mine = new_stream(0);
    void *block = alloc_on(400 * MIB, other);
    make_busy(other);
    assert_ok(weir_free(block));
    (void)alloc_on(400 * MIB, mine);
    assert_int_equal(reserved_on(0), 400 * MIB);
    assert_true(queued_on(other) > 0); /* nobody waited on the host */
    assert_status(weir_stream_query(mine), WEIR_ERR_NOT_READY);
    let_run(other);
    assert_ok(weir_stream_synchronize(mine));
}

/* It may use the memory at each launch, and cannot be waited for. */
static void out_of_memory_a_stream_gets_no_memory_of_one_that_captures(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    void *block = NULL;
    const weir_stream stream = new_stream(0);
    (void)alloc(512 * MIB - CHUNKS * CHUNK);
    take_chunks(blocks, stream);
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
    const weir_graph graph = begin_on(stream);
    assert_status(weir_alloc(CHUNKS * CHUNK, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_alloc(CHUNKS * CHUNK, &block));
}

static void memory_of_an_ended_stream_goes_to_the_default_stream(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    char *blocks[CHUNKS];
    take_chunks(blocks, other);
    free_every_other(blocks);
    assert_ok(weir_stream_destroy(other));
    const uint64_t created = calls_of(WEIR_BACKEND_vm_create);
    (void)alloc(4 * CHUNK);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), created);
    for (unsigned i = 1; i < CHUNKS; i += 2) assert_true(has_pattern(blocks[i], CHUNK, i));
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static int open_large(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB });
    return 0;
}

enum { STREAMS = 200 };

/* The first stream's first region has addresses for all of the device. */
static void many_streams_get_addresses(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++) (void)alloc_on(4 * MIB, new_stream(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, STREAMS);
    assert_ok(weir_validate(0));
}

/* More than the addresses suffice for if each has a gibibyte to grow into. */
static void streams_get_addresses_as_long_as_there_is_memory(void **state)
{
    (void)state;
    enum { MANY = 1200 };
    for (int i = 0; i < MANY; i++) (void)alloc_on(1000, new_stream(0));
    const wr_chunks *chunks = &front_of(alloc(1000))->cache->chunks;
    assert_in_range(chunks->addresses, 1, WR_REGIONS_TIMES * (chunks->region_bytes + WR_REGION_MORE) + MANY * 4 * MIB);
    assert_ok(weir_validate(0));
}

static void streams_that_come_and_go_leave_few_addresses(void **state)
{
    (void)state;
    const wr_cache *cache = front_of(alloc(4096))->cache;
    for (int i = 0; i < STREAMS; i++) {
        const weir_stream stream = new_stream(0);
        assert_ok(weir_free(alloc_on(4 * MIB, stream)));
        assert_ok(weir_stream_destroy(stream));
        assert_in_range(cache->chunks.addresses, 1, WR_REGIONS_TIMES * cache->chunks.region_bytes);
    }
    assert_ok(weir_validate(0));
}

/* A chunk of the default stream and one of an ended stream are mapped side by side, with work queued on both. The count
 * of addresses says that other streams have so many that unused ones are searched for. */
typedef struct scarce {
    wr_chunks *chunks;
    const wr_bin *bin; /* of the default stream */
    uint64_t others;
} scarce;

static scarce make_addresses_scarce(void)
{
    const weir_stream ended = new_stream(0);
    char *own = alloc(CHUNK);
    assert_ok(weir_free(alloc_on(CHUNK, ended)));
    assert_ok(weir_stream_destroy(ended));
    char *theirs = alloc(CHUNK);
    const wr_segment *region = wr_address_find(own);
    wr_chunks *chunks = &front_of(own)->cache->chunks;
    const uint64_t others = 2 * WR_REGIONS_TIMES * (chunks->region_bytes + WR_REGION_MORE);
    chunks->addresses += others;
    make_busy(default_stream(0));
    assert_ok(weir_free(theirs));
    assert_ok(weir_free(own));
    (void)alloc(2 * CHUNK);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), 3); /* side by side */
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    return (scarce){ chunks, region->bin, others };
}

/* Makes a request, with more addresses in use elsewhere than before. */
static void look_for_addresses(scarce *s)
{
    s->chunks->addresses += WR_REGION_MORE;
    s->others += WR_REGION_MORE;
    (void)alloc(2 * CHUNK);
}

static void end_scarcity(const scarce *s)
{
    s->chunks->addresses -= s->others;
    assert_ok(weir_validate(0));
}

static void addresses_that_queued_work_may_use_stay(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    let_run(default_stream(0));
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 1);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 1);
    end_scarcity(&s);
}

/* The addresses were left after the event was recorded, and before it was looked at. */
static void addresses_left_after_the_event_was_recorded_stay_mapped(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    assert_non_null(s.bin->fence);
    for (const wr_segment *r = s.bin->segments; r; r = r->next)
        if (!TAILQ_EMPTY(&r->region->stale)) TAILQ_FIRST(&r->region->stale)->stale_since = ++s.chunks->moments;
    let_run(default_stream(0));
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 1);
    end_scarcity(&s);
}

/* The driver has refused to unmap something there. */
static void addresses_where_something_stays_mapped_are_kept_though_scarce(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    for (const wr_segment *r = s.bin->segments; r; r = r->next) r->region->closed = !TAILQ_EMPTY(&r->region->stale);
    let_run(default_stream(0));
    look_for_addresses(&s);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 0);
    for (const wr_segment *r = s.bin->segments; r; r = r->next) r->region->closed = false;
    end_scarcity(&s);
}

/* A launch writes there. */
static void addresses_that_graphs_use_are_kept_though_scarce(void **state)
{
    (void)state;
    scarce s = make_addresses_scarce();
    s.bin->pool->graphed = true;
    let_run(default_stream(0));
    look_for_addresses(&s);
    s.bin->pool->graphed = false;
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), 0);
    end_scarcity(&s);
}

static void a_stream_gets_what_it_needs_when_addresses_run_out(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    (void)alloc(CHUNK);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_reserve, 1, WEIR_ERR_OUT_OF_MEMORY));
    char *block = alloc_on(CHUNK, other), *next = alloc_on(CHUNK, other);
    assert_int_equal(reserved_on(0), 3 * CHUNK);
    assert_true(info_of(block).segment_bytes <= 2 * CHUNK);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(block));
    assert_ok(weir_free(next));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), CHUNK);
}

/* The free chunk that serves the request is larger than what a region gets that has nothing to grow into. */
static void a_region_without_addresses_to_grow_into_holds_the_chunk_that_it_gets(void **state)
{
    (void)state;
    char *own = alloc(CHUNK);
    wr_chunks *chunks = &front_of(own)->cache->chunks;
    const uint64_t others = 2 * WR_REGIONS_TIMES * (chunks->region_bytes + WR_REGION_MORE);
    assert_ok(weir_free(own));
    chunks->addresses += others;
    assert_ok(weir_memory_limit_set(0, CHUNK));
    const wr_segment *region = wr_address_find(alloc_on(100, new_stream(0)));
    assert_int_equal(region->region->end, CHUNK);
    assert_true(region->bytes > CHUNK);
    assert_int_equal(reserved_on(0), CHUNK);
    assert_ok(weir_validate(0));
    chunks->addresses -= others;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

/* Maps the memory of some blocks of one size together, for a moment. */
static void map_together(char **blocks, size_t bytes, const unsigned *which, unsigned count)
{
    for (unsigned i = 0; i < count; i++) assert_ok(weir_free(blocks[which[i]]));
    assert_ok(weir_free(alloc(count * bytes)));
    for (unsigned i = 0; i < count; i++) blocks[which[i]] = alloc(bytes);
}

/* DEAR_ROUNDS rounds of mapping exceed the patience for mapping if the program spends nearly no other time. */
enum { LONG_BLOCKS = 24, LONG_ROUNDS = 768, DEAR_ROUNDS = 360, DEAR_TURN_MS = 36 };

#define LONG_BLOCK (2 * CHUNK)
#define LONG_BYTES (LONG_BLOCKS * LONG_BLOCK)
#define LONG_BYTES_MOST (LONG_BYTES + LONG_BYTES / 4 + LONG_BYTES / 100)

static void take_long(char *blocks[LONG_BLOCKS])
{
    for (int i = 0; i < LONG_BLOCKS; i++) blocks[i] = alloc(LONG_BLOCK);
}

/* The same with a clock that moves by hand. */
static void take_long_by_hand(char *blocks[LONG_BLOCKS])
{
    assert_ok(weir_host_clock_hold(true));
    take_long(blocks);
}

/* Maps the memory of three blocks together that are not neighbours, others each time. Returns the number of map
 * calls. */
static uint64_t run_rounds(char *blocks[LONG_BLOCKS], int rounds, uint32_t *random)
{
    const uint64_t mapped = calls_of(WEIR_BACKEND_vm_map);
    for (int i = 0; i < rounds; i++) {
        unsigned three[3];
        const uint32_t r = next_random(random);
        three[0] = r % LONG_BLOCKS;
        three[1] = (three[0] + 2 + (r >> 12) % 5) % LONG_BLOCKS;
        three[2] = (three[1] + 2 + (r >> 18) % 5) % LONG_BLOCKS;
        map_together(blocks, LONG_BLOCK, three, 3);
    }
    return calls_of(WEIR_BACKEND_vm_map) - mapped;
}

/* A chunk is a block here: the number of map calls that mapped a chunk and were not undone. */
static uint64_t places(void)
{
    return calls_of(WEIR_BACKEND_vm_map) - calls_of(WEIR_BACKEND_vm_unmap);
}

/* Places may cover so many times the held bytes. */
enum { MAPPED_TIMES = 16 };

/* Runs until places cover more than so many times the held bytes. Without a limit more memory is held, from 32 times
 * on. */
static void map_times(char *blocks[LONG_BLOCKS], uint64_t times, uint32_t *random)
{
    for (int i = 0; places() <= times * LONG_BLOCKS; i++) {
        if (i == 4 * LONG_ROUNDS) fail_msg("never more than %llu times mapped", (unsigned long long)times);
        (void)run_rounds(blocks, 1, random);
    }
}

static uint64_t run_for_long(char *blocks[LONG_BLOCKS], uint32_t *random)
{
    return run_rounds(blocks, DEAR_ROUNDS + LONG_ROUNDS, random);
}

/* The same, with so much of the program's time passing in each round. */
static uint64_t run_for_long_with(unsigned milliseconds, char *blocks[LONG_BLOCKS], uint32_t *random)
{
    uint64_t mapped = 0;
    for (int i = 0; i < DEAR_ROUNDS + LONG_ROUNDS; i++) {
        assert_ok(weir_host_clock_advance((uint64_t)milliseconds * 1000000));
        mapped += run_rounds(blocks, 1, random);
    }
    return mapped;
}

static void places_that_nobody_uses_are_unmapped_when_too_much_is_mapped(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    assert_int_equal(places(), LONG_BLOCKS);
    map_times(blocks, MAPPED_TIMES - 1, &random);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    (void)run_rounds(blocks, LONG_ROUNDS / 8, &random);
    assert_true(calls_of(WEIR_BACKEND_vm_unmap) > 0);
    assert_in_range(places(), MAPPED_TIMES * LONG_BLOCKS - 3, MAPPED_TIMES * LONG_BLOCKS);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void places_that_queued_work_may_use_stay_mapped(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    make_busy(default_stream(0));
    map_times(blocks, MAPPED_TIMES + 4, &random);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    let_run(default_stream(0));
}

/* The first event that can tell follows the first work only. */
static void places_that_later_work_may_use_stay_mapped_when_earlier_work_is_over(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    uint64_t ran = 0;
    weir_stream stream = default_stream(0);
    take_long(blocks);
    assert_ok(weir_memory_limit_set(0, LONG_BYTES)); /* no more is ever held */
    make_busy(stream);
    map_times(blocks, MAPPED_TIMES, &random);
    const uint64_t before = places(), queued = queued_on(stream);
    assert_ok(weir_stream_callback(stream, do_nothing, NULL));
    map_times(blocks, 2 * MAPPED_TIMES + 2, &random);
    assert_ok(weir_host_stream_step(0, native_of(stream), queued, &ran));
    assert_int_equal(ran, queued);
    (void)run_rounds(blocks, 8, &random);
    assert_in_range(calls_of(WEIR_BACKEND_vm_unmap), 1, before - LONG_BLOCKS);
    assert_true(places() > MAPPED_TIMES * LONG_BLOCKS);
    let_run(stream);
    (void)run_rounds(blocks, LONG_ROUNDS / 8, &random);
    assert_in_range(places(), MAPPED_TIMES * LONG_BLOCKS - 3, MAPPED_TIMES * LONG_BLOCKS);
}

static void a_place_that_the_driver_does_not_take_back_stays(void **state)
{
    (void)state;
    enum { REFUSED = 8 };
    char *blocks[LONG_BLOCKS];
    const uint64_t left = free_memory(0);
    uint32_t random = 1;
    take_long(blocks);
    map_times(blocks, MAPPED_TIMES - 1, &random);
    for (uint64_t nth = 1; nth <= REFUSED; nth++)
        assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, nth, WEIR_ERR_DRIVER));
    (void)run_rounds(blocks, LONG_ROUNDS / 8, &random);
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), LONG_BYTES);
    for (int i = 0; i < LONG_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), calls_of(WEIR_BACKEND_vm_map) + REFUSED);
    assert_int_equal(free_memory(0), left);
}

static void a_long_running_program_stops_mapping(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    assert_int_equal(reserved_on(0), LONG_BYTES);
    assert_true(run_for_long(blocks, &random) > LONG_ROUNDS);
    assert_int_equal(run_for_long(blocks, &random), 0);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
}

static void a_program_that_spends_little_time_on_mapping_holds_no_more(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long_by_hand(blocks);
    for (int i = 0; i < 4; i++) assert_true(run_for_long_with(DEAR_TURN_MS, blocks, &random) > LONG_ROUNDS);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void a_program_that_spends_its_time_on_mapping_stops_however_long_it_was_idle(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long_by_hand(blocks);
    assert_ok(weir_host_clock_advance(UINT64_C(3600) * 1000000000));
    (void)run_for_long_with(DEAR_TURN_MS / 4, blocks, &random);
    (void)run_for_long_with(DEAR_TURN_MS / 4, blocks, &random);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
}

static void mapping_that_is_cheap_again_makes_no_program_hold_more(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long_by_hand(blocks);
    (void)run_rounds(blocks, DEAR_ROUNDS + LONG_ROUNDS / 4, &random);
    assert_int_equal(reserved_on(0), LONG_BYTES);
    for (int i = 0; i < 4; i++) (void)run_for_long_with(DEAR_TURN_MS + 1, blocks, &random);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

enum { TURN_STREAMS = 24, TURN_BLOCKS = 40, TURNS = 1000 };

static size_t up_to(uint32_t *random, size_t most)
{
    return 1 + next_random(random) % most;
}

/* Streams allocate blocks by turns, with no time in between: of so many MiB. With `keeps` the first of a turn stays to
 * the stream's next one. Returns the map calls in the last tenth. */
static uint64_t take_turns(size_t least, size_t most, bool keeps)
{
    weir_stream streams[TURN_STREAMS];
    void *blocks[TURN_BLOCKS], *kept[TURN_STREAMS] = { NULL };
    uint32_t random = 1;
    uint64_t mapped = 0;
    assert_ok(weir_host_clock_hold(true));
    for (int i = 0; i < TURN_STREAMS; i++) streams[i] = new_stream(0);
    for (int turn = 0; turn < TURNS; turn++) {
        const int which = turn % TURN_STREAMS;
        if (turn == TURNS - TURNS / 10) mapped = calls_of(WEIR_BACKEND_vm_map);
        for (int i = 0; i < TURN_BLOCKS; i++)
            blocks[i] = alloc_on((least - 1 + up_to(&random, most - least + 1)) * MIB, streams[which]);
        if (keeps && kept[which]) assert_ok(weir_free(kept[which]));
        if (keeps) kept[which] = blocks[0];
        for (int i = keeps; i < TURN_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    }
    return calls_of(WEIR_BACKEND_vm_map) - mapped;
}

static double held_of_live(void)
{
    const weir_memory_stats s = stats_of(0);
    return (double)s.reserved_bytes[WEIR_STAT_ALL].peak / (double)s.allocated_bytes[WEIR_STAT_ALL].peak;
}

static void streams_that_take_turns_have_the_same_memory_without_mapping(void **state)
{
    (void)state;
    assert_int_equal(take_turns(2, 2, false), 0);
    assert_true(held_of_live() < 1.25);
}

static void streams_that_take_turns_with_other_sizes_do_so_too(void **state)
{
    (void)state;
    assert_int_equal(take_turns(1, 13, false), 0);
    assert_true(held_of_live() < 1.25);
}

/* At first that takes much mapping, and then hardly any. */
static void streams_that_take_turns_and_keep_a_block_do_so_too(void **state)
{
    (void)state;
    assert_true(take_turns(1, 4, true) < TURNS / 10);
    assert_true(held_of_live() < 2);
}

/* As above, but each stream also keeps some blocks, and the sizes are others each time: what is free lies in pieces
 * that have to be mapped. Returns the map calls in the second half. */
static uint64_t take_turns_in_pieces(unsigned milliseconds)
{
    enum { STREAMS = 4, KEPT = 100, LAYERS = 14, LAYER = 800000, TURNS_IN_PIECES = 1600 };
    weir_stream streams[STREAMS];
    uint32_t random = 1;
    uint64_t mapped = 0;
    assert_ok(weir_host_clock_hold(true));
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        for (int k = 0; k < KEPT; k++) (void)alloc_on(up_to(&random, 8) * MIB / 4, streams[i]);
    }
    for (int turn = 0; turn < TURNS_IN_PIECES; turn++) {
        if (turn == TURNS_IN_PIECES / 2) mapped = calls_of(WEIR_BACKEND_vm_map);
        const size_t which = up_to(&random, STREAMS), batch = up_to(&random, 64);
        void *previous = NULL;
        for (size_t l = 0; l < LAYERS; l++) {
            void *block = alloc_on(batch * which * (1 + l % 2) * LAYER / (1 + l % 3), streams[which - 1]);
            if (previous) assert_ok(weir_free(previous));
            previous = block;
        }
        assert_ok(weir_free(previous));
        assert_ok(weir_host_clock_advance((uint64_t)milliseconds * 1000000));
    }
    return calls_of(WEIR_BACKEND_vm_map) - mapped;
}

static void streams_share_what_lies_in_pieces_while_mapping_takes_little_time(void **state)
{
    (void)state;
    assert_true(take_turns_in_pieces(1000) > 4000);
    assert_true(held_of_live() < 1.125);
}

static void streams_hold_more_of_their_own_when_mapping_takes_much_time(void **state)
{
    (void)state;
    assert_true(take_turns_in_pieces(0) < 4000);
    assert_true(held_of_live() > 1.25);
}

/* Mapping would stop with a third more memory. In this sequence no block comes to lie across two chunks, which takes
 * more. */
static void no_more_than_a_quarter_is_held_to_stop_mapping(void **state)
{
    enum { TOGETHER = LONG_BLOCKS / 3 };
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 4;
    uint64_t mapped = 0;
    take_long_by_hand(blocks);
    for (int i = 0; i < 2 * LONG_ROUNDS; i++) {
        if (i == LONG_ROUNDS) mapped = calls_of(WEIR_BACKEND_vm_map);
        const uint32_t r = next_random(&random);
        unsigned some[TOGETHER] = { r % LONG_BLOCKS };
        for (int j = 1; j < TOGETHER; j++) some[j] = (some[j - 1] + 2 + (r >> (4 + j) & 1)) % LONG_BLOCKS;
        map_together(blocks, LONG_BLOCK, some, TOGETHER);
    }
    assert_true(calls_of(WEIR_BACKEND_vm_map) > mapped);
    assert_in_range(reserved_on(0), LONG_BYTES_MOST - LONG_BYTES / 8, LONG_BYTES_MOST);
}

static void under_a_limit_chunks_are_mapped_again_for_ever(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    assert_ok(weir_memory_limit_set(0, LONG_BYTES));
    take_long(blocks);
    (void)run_for_long(blocks, &random);
    assert_true(run_for_long(blocks, &random) > 0);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void memory_that_was_given_back_is_not_held_again_at_once(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    (void)run_for_long(blocks, &random);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), LONG_BYTES);
    assert_true(run_for_long(blocks, &random) > LONG_ROUNDS / 2);
}

static void a_program_refused_memory_to_stop_mapping_asks_again_much_later(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    const uint64_t asked = calls_of(WEIR_BACKEND_vm_create);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_create, 1, WEIR_ERR_OUT_OF_MEMORY));
    (void)run_rounds(blocks, DEAR_ROUNDS + LONG_ROUNDS / 2, &random);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), asked + 1);
    assert_int_equal(reserved_on(0), LONG_BYTES);
    (void)run_for_long(blocks, &random);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
}

static int open_nearly_full(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = LONG_BYTES + LONG_BYTES / 7 });
    return 0;
}

static void the_last_eighth_of_a_device_is_left_to_others(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    for (int i = 0; i < 2; i++) (void)run_for_long(blocks, &random);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void addresses_that_the_driver_does_not_take_back_are_told_of_and_go_later(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(CHUNK)));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_release, 1, WEIR_ERR_DRIVER));
    assert_status(weir_empty_cache(0), WEIR_ERR_DRIVER);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), calls_of(WEIR_BACKEND_vm_reserve) + 1);
}

static void emptying_the_cache_gives_back_everything(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    const uint64_t left = free_memory(0);
    uint32_t random = 1;
    take_long(blocks);
    (void)run_rounds(blocks, LONG_ROUNDS / 4, &random);
    for (int i = 0; i < LONG_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(free_memory(0), left);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), calls_of(WEIR_BACKEND_vm_destroy));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_reserve), calls_of(WEIR_BACKEND_vm_release));
}

static weir_backend counting;
static const weir_backend *counted;
static uint64_t unmapped, destroyed, released;

static weir_status count_unmap(int device, void *base, size_t bytes)
{
    unmapped++;
    return counted->vm_unmap(device, base, bytes);
}

static weir_status count_destroy(int device, weir_chunk chunk, size_t bytes)
{
    destroyed++;
    return counted->vm_destroy(device, chunk, bytes);
}

static weir_status count_release(int device, void *base, size_t bytes)
{
    released++;
    return counted->vm_release(device, base, bytes);
}

/* The back end's own figures are gone by then. */
static void closing_gives_back_each_chunk_once_and_all_its_places(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    wr_cache *cache = &device_0()->cache;
    take_chunks(blocks, default_stream(0));
    free_every_other(blocks);
    (void)alloc(CHUNKS / 2 * CHUNK);
    (void)alloc(MIB / 2);
    const uint64_t created = calls_of(WEIR_BACKEND_vm_create), reserved = calls_of(WEIR_BACKEND_vm_reserve);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), created + CHUNKS / 2);
    counted = cache->backend;
    counting = *counted;
    counting.vm_unmap = count_unmap;
    counting.vm_destroy = count_destroy;
    counting.vm_release = count_release;
    cache->backend = &counting;
    unmapped = destroyed = released = 0;
    assert_ok(weir_close());
    assert_int_equal(unmapped, created + CHUNKS / 2);
    assert_int_equal(destroyed, created);
    assert_int_equal(released, reserved);
}

static void no_more_chunks_are_given_back_than_another_pool_needs(void **state)
{
    (void)state;
    void *blocks[CHUNKS];
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    (void)alloc(512 * MIB - CHUNKS * CHUNK);
    for (int i = 0; i < CHUNKS; i++) blocks[i] = alloc(CHUNK);
    for (int i = 0; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
    (void)alloc_from(pool, 2 * CHUNK, default_stream(0));
    assert_int_equal(pool_stats(pool).reserved_bytes[WEIR_STAT_ALL].current, 2 * CHUNK);
    assert_int_equal(reserved_on(0), 512 * MIB);
}

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .history = 1000 });
    return 0;
}

/* All of three chunks is in use but for the end of the second. That end and a new chunk serve the request. */
static char *begin_with_an_end(void)
{
    (void)alloc(20 * MIB);
    char *second = alloc(20 * MIB);
    (void)alloc(20 * MIB);
    assert_ok(weir_free(second));
    assert_ptr_equal(alloc(4 * MIB), second);
    return alloc(36 * MIB);
}

static void parts_that_come_and_go_are_recorded(void **state)
{
    (void)state;
    static weir_event events[1000];
    size_t count = 0;
    uint64_t dropped = 0, mapped = 0, unmapped_since = 0;
    (void)begin_with_an_end();
    assert_ok(weir_history_read(0, events, sizeof events / sizeof events[0], &count, &dropped));
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == WEIR_EVENT_SEGMENT_MAP) mapped += events[i].size;
        if (events[i].kind == WEIR_EVENT_SEGMENT_UNMAP) unmapped_since += events[i].size;
    }
    assert_int_equal(reserved_on(0), 80 * MIB);
    assert_int_equal(mapped, 96 * MIB);
    assert_int_equal(unmapped_since, 16 * MIB);
}

/* There the driver took memory back neither from its address nor for good. */
static void addresses_that_stay_mapped_begin_no_range(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc(20 * MIB)));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    char *large = begin_with_an_end();
    write_pattern(large, 36 * MIB, 1);
    assert_int_equal(reserved_on(0), 80 * MIB);
    assert_true(has_pattern(large, 36 * MIB, 1));
}

static void a_request_refused_before_it_has_addresses_gives_none_back(void **state)
{
    (void)state;
    void *none = NULL;
    const weir_stream stream = new_stream(0);
    (void)alloc(5120 * MIB);
    assert_ok(weir_free(alloc_on(20 * MIB, stream)));
    assert_ok(weir_empty_cache(0)); /* leaves a record that says where the stream's addresses were */
    const uint64_t reserved = calls_of(WEIR_BACKEND_vm_reserve), released = calls_of(WEIR_BACKEND_vm_release);
    assert_status(weir_alloc_on(4096 * MIB, stream, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_reserve), reserved);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), released);
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

static void a_peer_reaches_each_new_place(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    assert_ok(weir_device_enable_peer(1, 0));
    take_chunks(blocks, default_stream(0));
    free_every_other(blocks);
    const uint64_t accesses = calls_of(WEIR_BACKEND_vm_access);
    (void)alloc(4 * CHUNK);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_access), accesses + 2);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* More than any of the requests below needs. */
enum { RECORDS = 24 };

/* Chunks of which every other one is free, and not parked. */
static void leave_every_other(char *blocks[CHUNKS])
{
    for (int i = 0; i < CHUNKS; i++) blocks[i] = alloc(CHUNK);
    free_every_other(blocks);
    (void)stats_of(0);
}

static void free_the_others(char *blocks[CHUNKS])
{
    for (int i = 1; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void however_few_records_are_to_spare_chunks_are_mapped_together(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    for (size_t left = 0; left < RECORDS; left++) {
        leave_every_other(blocks);
        wr_block *taken = take_spare_records(left);
        char *large = alloc(CHUNKS / 2 * CHUNK);
        put_records_back(taken);
        assert_ok(weir_free(large));
        free_the_others(blocks);
    }
}

static void however_few_records_are_to_spare_addresses_are_used_again(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    for (size_t left = 0; left < RECORDS; left++) {
        leave_first_three(blocks);
        (void)stats_of(0);
        wr_block *taken = take_spare_records(left);
        assert_ptr_equal(alloc(3 * CHUNK), blocks[0]);
        put_records_back(taken);
        assert_ok(weir_free(blocks[0]));
        for (int i = 3; i < CHUNKS; i++) assert_ok(weir_free(blocks[i]));
        assert_ok(weir_empty_cache(0));
    }
}

static void however_few_records_are_to_spare_chunks_are_given_back(void **state)
{
    (void)state;
    char *blocks[CHUNKS];
    for (size_t left = 0; left < RECORDS; left++) {
        leave_every_other(blocks);
        assert_ok(weir_free(blocks[1]));
        (void)stats_of(0);
        wr_block *taken = take_spare_records(left);
        assert_ok(weir_empty_cache(0));
        put_records_back(taken);
        blocks[1] = NULL;
        free_the_others(blocks);
    }
}

/* One round of what takes records; driver calls may fail in it. */
static void take_and_give_back(enum weir_backend_entry broken)
{
    char *blocks[CHUNKS];
    void *large = NULL;
    leave_every_other(blocks);
    assert_ok(weir_host_fail(broken, 1, WEIR_ERR_DRIVER));
    (void)!weir_alloc(CHUNKS / 2 * CHUNK, &large);
    assert_ok(weir_free(large));
    for (int i = 1; i < CHUNKS; i += 2) assert_ok(weir_free(blocks[i]));
    (void)!weir_empty_cache(0);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void records_are_used_again_whatever_the_driver_refuses(void **state)
{
    (void)state;
    static const enum weir_backend_entry broken[] = { WEIR_BACKEND_vm_map, WEIR_BACKEND_vm_access,
                                                      WEIR_BACKEND_vm_destroy, WEIR_BACKEND_vm_release,
                                                      WEIR_BACKEND_pinned_alloc /* none */ };
    enum { KINDS = sizeof broken / sizeof broken[0], ROUNDS = 40 };
    for (int i = 0; i < KINDS; i++) take_and_give_back(broken[i]);
    const uint64_t records = wr_meta_live();
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < KINDS; i++) take_and_give_back(broken[i]);
    assert_int_equal(wr_meta_live(), records);
}

/* ---- where there are none ---------------------------------------------------------------------------------------- */

static int open_max_split(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .max_split_size = 64 * MIB });
    return 0;
}

static int open_collecting(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .memory_limit = 400 * MIB, .gc_threshold = 0.5 });
    return 0;
}

static void options_about_segments_disable_chunks(void **state)
{
    (void)state;
    (void)alloc(30 * MIB);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc), 1);
}

#define STITCH_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STITCH_TEST(a_first_small_block_holds_one_unit),
        cmocka_unit_test_setup_teardown(addresses_that_stay_mapped_are_not_given_back, open_large_host, close_host),
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
        STITCH_TEST(free_chunks_are_mapped_together_before_memory_is_created),
        STITCH_TEST(addresses_are_used_again_without_the_driver),
        STITCH_TEST(free_ends_of_chunks_in_use_serve),
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
        STITCH_TEST(without_addresses_to_grow_into_a_request_gets_what_it_needs),
        STITCH_TEST(a_short_free_beginning_serves_when_memory_is_short),
        STITCH_TEST(short_free_ends_serve_when_memory_is_short),
        STITCH_TEST(a_free_tail_that_serves_is_used_when_memory_is_short),
        cmocka_unit_test_setup_teardown(blocks_that_grow_a_little_take_no_memory_of_each_other, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(new_memory_is_created_for_a_small_request, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(free_pieces_serve_a_larger_request, open_large_host, close_host),
        cmocka_unit_test_setup_teardown(free_pieces_serve_when_several_streams_have_memory, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_short_free_beginning_is_left_alone_when_new_memory_is_needed, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_long_free_beginning_completes_new_memory, open_large_host, close_host),
        STITCH_TEST(the_limit_counts_new_chunks_only),
        STITCH_TEST(a_failure_for_lack_of_whole_chunks_recommends_plans),
        STITCH_TEST(a_failure_recommends_no_plans_where_one_is_served),
        cmocka_unit_test_setup_teardown(a_failure_recommends_no_plans_where_they_are_made, open_planning, close_host),
        STITCH_TEST(free_memory_of_an_idle_stream_is_used),
        STITCH_TEST(free_memory_of_a_busy_stream_is_left_while_there_is_room),
        STITCH_TEST(free_memory_of_an_idle_stream_is_used_though_others_are_busy),
        STITCH_TEST(out_of_memory_a_stream_waits_for_the_busy_one_whose_memory_it_gets),
        STITCH_TEST(out_of_memory_a_stream_gets_no_memory_of_one_that_captures),
        STITCH_TEST(memory_of_an_ended_stream_goes_to_the_default_stream),
        STITCH_TEST(addresses_that_queued_work_may_use_stay),
        cmocka_unit_test_setup_teardown(many_streams_get_addresses, open_large, close_host),
        cmocka_unit_test_setup_teardown(streams_get_addresses_as_long_as_there_is_memory, open_large, close_host),
        cmocka_unit_test_setup_teardown(streams_that_come_and_go_leave_few_addresses, open_large, close_host),
        STITCH_TEST(places_that_nobody_uses_are_unmapped_when_too_much_is_mapped),
        STITCH_TEST(places_that_queued_work_may_use_stay_mapped),
        STITCH_TEST(places_that_later_work_may_use_stay_mapped_when_earlier_work_is_over),
        STITCH_TEST(a_place_that_the_driver_does_not_take_back_stays),
        STITCH_TEST(addresses_left_after_the_event_was_recorded_stay_mapped),
        STITCH_TEST(addresses_where_something_stays_mapped_are_kept_though_scarce),
        STITCH_TEST(addresses_that_graphs_use_are_kept_though_scarce),
        STITCH_TEST(a_stream_gets_what_it_needs_when_addresses_run_out),
        STITCH_TEST(a_region_without_addresses_to_grow_into_holds_the_chunk_that_it_gets),
        STITCH_TEST(a_long_running_program_stops_mapping),
        STITCH_TEST(a_program_that_spends_little_time_on_mapping_holds_no_more),
        STITCH_TEST(a_program_that_spends_its_time_on_mapping_stops_however_long_it_was_idle),
        STITCH_TEST(mapping_that_is_cheap_again_makes_no_program_hold_more),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_have_the_same_memory_without_mapping, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_with_other_sizes_do_so_too, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_and_keep_a_block_do_so_too, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_share_what_lies_in_pieces_while_mapping_takes_little_time,
                                        open_large_host, close_host),
        cmocka_unit_test_setup_teardown(streams_hold_more_of_their_own_when_mapping_takes_much_time, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(no_more_than_a_quarter_is_held_to_stop_mapping, open_large_host, close_host),
        STITCH_TEST(under_a_limit_chunks_are_mapped_again_for_ever),
        STITCH_TEST(memory_that_was_given_back_is_not_held_again_at_once),
        STITCH_TEST(a_program_refused_memory_to_stop_mapping_asks_again_much_later),
        cmocka_unit_test_setup_teardown(the_last_eighth_of_a_device_is_left_to_others, open_nearly_full, close_host),
        STITCH_TEST(emptying_the_cache_gives_back_everything),
        STITCH_TEST(addresses_that_the_driver_does_not_take_back_are_told_of_and_go_later),
        cmocka_unit_test_setup_teardown(pinned_pools_make_no_chunks_small, open_large, close_host),
        STITCH_TEST(chunks_mapped_together_count_as_a_hit),
        STITCH_TEST(resetting_statistics_changes_no_placement),
        cmocka_unit_test_setup(closing_gives_back_each_chunk_once_and_all_its_places, open_default),
        STITCH_TEST(no_more_chunks_are_given_back_than_another_pool_needs),
        cmocka_unit_test_setup_teardown(parts_that_come_and_go_are_recorded, open_recording, close_host),
        STITCH_TEST(addresses_that_stay_mapped_begin_no_range),
        cmocka_unit_test_setup_teardown(a_request_refused_before_it_has_addresses_gives_none_back, open_large,
                                        close_host),
        cmocka_unit_test_setup_teardown(the_driver_is_asked_what_there_is_once_in_sixteen_growths, open_large,
                                        close_host),
        STITCH_TEST(a_peer_reaches_each_new_place),
        STITCH_TEST(however_few_records_are_to_spare_chunks_are_mapped_together),
        STITCH_TEST(however_few_records_are_to_spare_addresses_are_used_again),
        STITCH_TEST(however_few_records_are_to_spare_chunks_are_given_back),
        STITCH_TEST(records_are_used_again_whatever_the_driver_refuses),
        cmocka_unit_test_setup_teardown(options_about_segments_disable_chunks, open_max_split, close_host),
        cmocka_unit_test_setup_teardown(options_about_segments_disable_chunks, open_collecting, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
