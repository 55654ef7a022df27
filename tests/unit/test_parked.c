/*
 * Blocks parked by one stream while another needs memory. Asking for statistics would return parked blocks to the
 * cache, so these tests look at driver calls instead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool_support.h"

enum { BLOCKS = 12 };
#define BLOCK (8 * MIB)
#define WORK (BLOCKS * BLOCK)

/* Blocks come and go, and stay parked. */
static void work_on(weir_stream stream, int blocks)
{
    void *taken[BLOCKS];
    for (int i = 0; i < blocks; i++) taken[i] = alloc_on(BLOCK, stream);
    for (int i = 0; i < blocks; i++) assert_ok(weir_free(taken[i]));
}

static uint64_t chunks_made(void)
{
    return calls_of(WEIR_BACKEND_vm_create);
}

static void parked_memory_of_other_streams_serves_when_it_is_much(void **state)
{
    (void)state;
    work_on(new_stream(0), BLOCKS);
    const uint64_t made = chunks_made();
    (void)alloc_on(WORK, new_stream(0));
    assert_int_equal(chunks_made(), made);
}

static void parked_memory_of_one_stream_of_many_serves(void **state)
{
    enum { OTHERS = 12 };
    (void)state;
    for (int i = 0; i < OTHERS; i++) (void)alloc_on(512, new_stream(0));
    work_on(new_stream(0), BLOCKS);
    const uint64_t made = chunks_made();
    (void)alloc_on(WORK, new_stream(0));
    assert_int_equal(chunks_made(), made);
}

static void parked_memory_of_other_streams_does_not_count_as_live(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on(WORK, new_stream(0))));
    const uint64_t made = chunks_made();
    (void)alloc_on(WORK, new_stream(0)); /* as much as ever before, and not more */
    assert_int_equal(chunks_made(), made);
}

static void less_than_64_mib_parked_by_other_streams_stays_theirs(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    work_on(other, 7); /* 56 MiB */
    const uint64_t made = chunks_made();
    (void)alloc_on(7 * BLOCK, new_stream(0));
    assert_true(chunks_made() > made);
    const uint64_t called = driver_calls();
    work_on(other, 7);
    assert_int_equal(driver_calls(), called);
}

static void less_than_a_16th_of_all_parked_by_other_streams_stays_theirs(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    (void)alloc_on(UINT64_C(1600) * MIB, new_stream(0));
    work_on(other, BLOCKS); /* 96 of 1696 MiB */
    const uint64_t made = chunks_made();
    (void)alloc_on(WORK, new_stream(0));
    assert_true(chunks_made() > made);
    const uint64_t called = driver_calls();
    work_on(other, BLOCKS);
    assert_int_equal(driver_calls(), called);
}

static void parked_memory_of_a_busy_stream_stays_its_own(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    make_busy(other);
    work_on(other, BLOCKS);
    const uint64_t made = chunks_made();
    (void)alloc_on(WORK, new_stream(0));
    assert_true(chunks_made() > made);
    let_run(other);
}

/* Each turn takes back the memory that the other stream has taken, where it is mapped for both. */
static void streams_that_work_by_turns_have_the_same_memory_without_mapping(void **state)
{
    enum { TURNS = 200 };
    (void)state;
    assert_ok(weir_host_clock_hold(true)); /* mapping takes no time, whatever the machine does */
    weir_stream streams[2] = { new_stream(0), new_stream(0) };
    uint64_t mapped = 0;
    for (int i = 0; i < TURNS; i++) {
        if (i == TURNS / 2) mapped = calls_of(WEIR_BACKEND_vm_map) + calls_of(WEIR_BACKEND_vm_unmap);
        work_on(streams[i % 2], BLOCKS);
    }
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map) + calls_of(WEIR_BACKEND_vm_unmap), mapped);
    assert_in_range(reserved_on(0), WORK, WORK + WORK / 8);
}

static void parked_memory_is_taken_again_once_memory_was_given_back(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        work_on(new_stream(0), BLOCKS);
        const uint64_t made = chunks_made();
        void *large = alloc_on(WORK, new_stream(0));
        assert_int_equal(chunks_made(), made);
        assert_ok(weir_free(large));
        assert_ok(weir_empty_cache(0));
    }
}

#define PARKED_TEST(test) cmocka_unit_test_setup_teardown(test, open_large_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PARKED_TEST(parked_memory_of_other_streams_serves_when_it_is_much),
        PARKED_TEST(parked_memory_of_one_stream_of_many_serves),
        PARKED_TEST(parked_memory_of_other_streams_does_not_count_as_live),
        PARKED_TEST(less_than_64_mib_parked_by_other_streams_stays_theirs),
        PARKED_TEST(less_than_a_16th_of_all_parked_by_other_streams_stays_theirs),
        PARKED_TEST(parked_memory_of_a_busy_stream_stays_its_own),
        PARKED_TEST(streams_that_work_by_turns_have_the_same_memory_without_mapping),
        PARKED_TEST(parked_memory_is_taken_again_once_memory_was_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
