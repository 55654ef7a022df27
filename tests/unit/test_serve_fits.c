/*
 * How well a served plan fits, by how many of the last requests got their places.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "device/runtime.h"
#include "host_support.h"
#include "pool/plan/serve.h"

enum { ENTRIES = 40, TWO_ROUNDS = 2 * ENTRIES };

static size_t bytes_of(int entry)
{
    return (size_t)(1 + entry) * MIB / 2;
}

/* Blocks that are freed at once. Each of `arenas` streams repeats as many of them. */
static void serve_loops(uint64_t arenas)
{
    weir_plan_entry entries[ENTRIES];
    weir_plan_arena each[ENTRIES];
    const uint64_t round = ENTRIES / arenas;
    for (int i = 0; i < ENTRIES; i++) entries[i] = (weir_plan_entry){ 0, bytes_of(i), 1, 0 };
    for (uint64_t i = 0; i < arenas; i++)
        each[i] = (weir_plan_arena){ .streams = 1,
                                     .bytes = bytes_of(ENTRIES - 1),
                                     .first = i * round,
                                     .entries = round,
                                     .loop_entries = round,
                                     .loop_times = 2 };
    const weir_plan plan = { .arenas = each, .arena_count = arenas, .entries = entries, .entry_count = ENTRIES };
    assert_ok(weir_plan_serve(0, &plan));
}

static wr_cache *the_cache(void)
{
    return &atomic_load(&wr_runtime_global.devices[0])->cache;
}

static wr_serve_fit fit(void)
{
    return wr_serve_fits(the_cache());
}

static void follow(int requests)
{
    for (int i = 0; i < requests; i++) assert_ok(weir_free(alloc(bytes_of(i % ENTRIES))));
}

/* Requests that the plan does not have. */
static void depart_on(weir_stream stream, int requests)
{
    for (int i = 0; i < requests; i++) assert_ok(weir_free(alloc_on(3 * MIB + 512, stream)));
}

static void depart(int requests)
{
    depart_on(default_stream(0), requests);
}

/* Of two rounds, all but one in sixteen. */
static void mostly_follow(void)
{
    for (int i = 0; i < TWO_ROUNDS; i++) {
        assert_ok(weir_free(alloc(bytes_of(i % ENTRIES))));
        if (i % 16 == 8) depart(1);
    }
}

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 1024 * MIB });
    return 0;
}

static void at_first_it_is_enough_that_half_of_the_requests_are_placed(void **state)
{
    (void)state;
    serve_loops(1);
    follow(ENTRIES);
    depart(ENTRIES);
    assert_int_equal(fit(), WR_FITS);
    depart(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS_NOT);
}

static void once_free_memory_has_gone_back_nearly_all_requests_must_be_placed(void **state)
{
    (void)state;
    serve_loops(1);
    mostly_follow();
    assert_int_equal(fit(), WR_FITS);
    assert_ok(wr_serve_settle(the_cache()));
    mostly_follow();
    assert_int_equal(fit(), WR_FITS_NOT);
}

static void before_two_rounds_nothing_can_be_told(void **state)
{
    (void)state;
    serve_loops(1);
    depart(TWO_ROUNDS - 1);
    assert_int_equal(fit(), WR_FITS);
    depart(1);
    assert_int_equal(fit(), WR_FITS_NOT);
}

static void two_rounds_are_those_of_all_arenas(void **state)
{
    (void)state;
    serve_loops(2);
    follow(1);
    depart(TWO_ROUNDS - 2);
    assert_int_equal(fit(), WR_FITS);
    depart(1);
    assert_int_equal(fit(), WR_FITS_NOT);
}

static void requests_that_were_judged_count_no_more(void **state)
{
    (void)state;
    serve_loops(1);
    follow(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS);
    depart(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS_NOT);
    depart(5 * ENTRIES);
    assert_int_equal(fit(), WR_FITS_NOT);
    follow(5 * ENTRIES);
    assert_int_equal(fit(), WR_FITS);
}

static void requests_of_other_streams_are_told_from_those_of_its_own(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    serve_loops(1);
    follow(ENTRIES / 2);
    depart_on(other, TWO_ROUNDS - ENTRIES / 2 - 1);
    assert_int_equal(fit(), WR_FITS); /* as far as can be told */
    depart_on(other, 1);
    assert_int_equal(fit(), WR_FITS_ITS_STREAMS);
    assert_int_equal(fit(), WR_FITS);
}

static void requests_of_other_streams_add_to_those_that_are_not_placed(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    serve_loops(1);
    follow(ENTRIES * 3 / 2);
    depart(ENTRIES);
    depart_on(other, ENTRIES * 3 / 4);
    assert_int_equal(fit(), WR_FITS_ITS_STREAMS);
}

#define FITS_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FITS_TEST(at_first_it_is_enough_that_half_of_the_requests_are_placed),
        FITS_TEST(once_free_memory_has_gone_back_nearly_all_requests_must_be_placed),
        FITS_TEST(before_two_rounds_nothing_can_be_told),
        FITS_TEST(two_rounds_are_those_of_all_arenas),
        FITS_TEST(requests_that_were_judged_count_no_more),
        FITS_TEST(requests_of_other_streams_are_told_from_those_of_its_own),
        FITS_TEST(requests_of_other_streams_add_to_those_that_are_not_placed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
