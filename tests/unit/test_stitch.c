/*
 * Policy weir: the default pool's memory in chunks, mapped again where it is needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "records_support.h"
#include "stitch_support.h"
#include "weir/observe.h"
#include "weir/plan.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(addresses_that_stay_mapped_are_not_given_back, open_large_host, close_host),
        STITCH_TEST(free_chunks_are_mapped_together_before_memory_is_created),
        STITCH_TEST(addresses_are_used_again_without_the_driver),
        STITCH_TEST(free_ends_of_chunks_in_use_serve),
        STITCH_TEST(a_short_free_beginning_serves_when_memory_is_short),
        STITCH_TEST(short_free_ends_serve_when_memory_is_short),
        STITCH_TEST(a_free_tail_that_serves_is_used_when_memory_is_short),
        cmocka_unit_test_setup_teardown(a_short_free_beginning_is_left_alone_when_new_memory_is_needed, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(a_long_free_beginning_completes_new_memory, open_large_host, close_host),
        STITCH_TEST(the_limit_counts_new_chunks_only),
        STITCH_TEST(a_failure_for_lack_of_whole_chunks_recommends_plans),
        STITCH_TEST(a_failure_recommends_no_plans_where_one_is_served),
        cmocka_unit_test_setup_teardown(a_failure_recommends_no_plans_where_they_are_made, open_planning, close_host),
        STITCH_TEST(addresses_that_the_driver_does_not_take_back_are_told_of_and_go_later),
        STITCH_TEST(chunks_mapped_together_count_as_a_hit),
        STITCH_TEST(resetting_statistics_changes_no_placement),
        cmocka_unit_test_setup(closing_gives_back_each_chunk_once_and_all_its_places, open_default),
        STITCH_TEST(no_more_chunks_are_given_back_than_another_pool_needs),
        cmocka_unit_test_setup_teardown(parts_that_come_and_go_are_recorded, open_recording, close_host),
        STITCH_TEST(addresses_that_stay_mapped_begin_no_range),
        cmocka_unit_test_setup_teardown(a_request_refused_before_it_has_addresses_gives_none_back, open_large,
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
