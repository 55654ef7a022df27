/*
 * How well a served plan fits, by how many of the last requests got their places.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "capture_support.h"
#include "device/device.h"
#include "device/plan.h"
#include "device/runtime.h"
#include "host_support.h"
#include "pool/plan/serve_fit.h"
#include "thread_support.h"

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

/* Memory beside the plan, free, and in its stream's front. */
static void leave_memory_beside(void)
{
    assert_ok(weir_free(alloc_on(128 * MIB, new_stream(0))));
}

static void a_plan_that_did_not_fit_in_two_rounds_gives_nothing_back_before_it_does(void **state)
{
    (void)state;
    leave_memory_beside();
    serve_loops(1);
    depart(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS_NOT);
    assert_int_equal(fit(), WR_FITS); /* as far as can be told */
    assert_ok(wr_serve_settle(the_cache()));
    assert_in_range(reserved_on(0), 128 * MIB, 256 * MIB);
}

static void a_plan_that_fits_gives_back_what_fronts_hold(void **state)
{
    (void)state;
    leave_memory_beside();
    serve_loops(1);
    follow(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS);
    assert_ok(wr_serve_settle(the_cache()));
    assert_in_range(reserved_on(0), 1, 64 * MIB);
}

static void *settle(void *nothing)
{
    assert_ok(wr_serve_settle(the_cache()));
    return nothing;
}

static void others_need_not_wait_for_the_work_that_giving_back_waits_for(void **state)
{
    (void)state;
    static atomic_bool ends; /* which the work reads */
    const weir_stream busy = new_stream(0), other = new_stream(0);
    pthread_t thread;
    void *block = alloc_on(128 * MIB, busy);
    atomic_store(&ends, false);
    assert_ok(weir_stream_callback(busy, last_until, &ends));
    assert_ok(weir_free(block));
    serve_loops(1);
    follow(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS);
    const uint64_t asked = calls_of(WEIR_BACKEND_event_query);
    assert_int_equal(pthread_create(&thread, NULL, settle, NULL), 0);
    await_call_of(WEIR_BACKEND_event_query, asked);
    assert_ok(weir_stream_destroy(other)); /* takes the move lock */
    assert_true(reserved_on(0) >= (int64_t)(128 * MIB));
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    assert_in_range(reserved_on(0), 1, 64 * MIB);
}

/* What a capture keeps goes back another time, or never. */
static void a_plan_that_fits_while_a_stream_captures_is_no_failure(void **state)
{
    (void)state;
    weir_stream capturing = new_stream(0);
    assert_ok(weir_free(alloc_on(128 * MIB, capturing)));
    make_busy(capturing); /* so that somebody asks about it */
    serve_loops(1);
    follow(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS);
    weir_graph graph = begin_on(capturing);
    assert_ok(wr_serve_settle(the_cache()));
    assert_ok(weir_host_stream_release(0, native_of(capturing)));
    end_unharmed(graph, capturing);
}

static void a_driver_that_takes_nothing_back_is_reported(void **state)
{
    (void)state;
    leave_memory_beside();
    serve_loops(1);
    follow(TWO_ROUNDS);
    assert_int_equal(fit(), WR_FITS);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    assert_status(wr_serve_settle(the_cache()), WEIR_ERR_DRIVER);
    assert_ok(weir_host_fail_clear());
}

/* ---- whom it is for ---------------------------------------------------------------------------------------------- */

static wr_arena_user user_of(weir_stream stream)
{
    return (wr_arena_user){ .native = (uint64_t)(uintptr_t)native_of(stream), .host = WR_ARENA_ALONE };
}

/* A plan for the stream only. */
static void serve_user(weir_stream stream)
{
    const weir_plan_entry entry = { 0, MIB, 1, 0 };
    const weir_plan_arena arena = { .streams = 1, .bytes = MIB, .entries = 1 };
    const weir_plan plan = { .arenas = &arena, .arena_count = 1, .entries = &entry, .entry_count = 1 };
    const wr_arena_user user = user_of(stream);
    assert_ok(wr_device_serve(atomic_load(&wr_runtime_global.devices[0]), &plan, &user));
}

static void a_stream_that_a_plan_is_for_has_an_arena_before_it_asks(void **state)
{
    (void)state;
    weir_stream planned = new_stream(0);
    const wr_arena_user user = user_of(planned);
    serve_user(planned);
    assert_false(wr_serve_lacks(the_cache(), &user, 1));
}

static void a_plan_lacks_any_of_several_streams(void **state)
{
    (void)state;
    weir_stream planned = new_stream(0);
    const wr_arena_user users[] = { user_of(new_stream(0)), user_of(planned) };
    serve_user(planned);
    assert_true(wr_serve_lacks(the_cache(), users, 2));
    assert_true(wr_serve_lacks(the_cache(), users, 1));
}

/* The arena names no stream, and the default stream's name is 0. */
static void a_plan_for_the_first_to_come_is_not_yet_for_the_default_stream(void **state)
{
    (void)state;
    const wr_arena_user user = { .native = 0, .host = WR_ARENA_ALONE };
    serve_loops(1);
    assert_true(wr_serve_lacks(the_cache(), &user, 1));
    follow(1);
    assert_int_equal(user_of(default_stream(0)).native, 0);
    assert_false(wr_serve_lacks(the_cache(), &user, 1));
}

/* ---- of no use --------------------------------------------------------------------------------------------------- */

enum { LONG = 3000 };

static void serve_long_loop(void)
{
    static weir_plan_entry entries[LONG];
    const weir_plan_arena arena = { .streams = 1, .bytes = MIB, .entries = LONG };
    const weir_plan plan = { .arenas = &arena, .arena_count = 1, .entries = entries, .entry_count = LONG };
    for (int i = 0; i < LONG; i++) entries[i] = (weir_plan_entry){ 0, 512 * (1 + (uint64_t)i % 1000), 1, 0 };
    assert_ok(weir_plan_serve(0, &plan));
}

static void a_long_plan_is_given_up_after_two_rounds_of_no_use(void **state)
{
    (void)state;
    serve_long_loop();
    depart(2 * LONG - 1);
    assert_non_null(atomic_load(&the_cache()->serving));
    depart(1);
    assert_null(atomic_load(&the_cache()->serving));
}

static void a_plan_that_was_given_up_leaves_no_records(void **state)
{
    (void)state;
    uint64_t live[2];
    for (int i = 0; i < 2; i++) {
        serve_long_loop();
        if (i) depart(2 * LONG);
        assert_ok(weir_close());
        live[i] = wr_meta_live();
        open_host((weir_settings){ .host_memory = 1024 * MIB });
    }
    assert_int_equal(live[1], live[0]);
}

static int routes(void)
{
    return (int)atomic_load(&atomic_load(&wr_runtime_global.devices[0])->routes.any);
}

static void a_plan_that_was_given_up_keeps_no_request_from_the_fronts(void **state)
{
    (void)state;
    serve_long_loop();
    assert_int_equal(routes(), 1);
    depart(2 * LONG);
    assert_int_equal(routes(), 0);
}

/* Residents, whose places are in use, cost no trust. */
static void a_plan_whose_places_are_never_free_keeps_no_request_from_the_fronts(void **state)
{
    (void)state;
    const weir_plan_entry entry = { 0, MIB, WEIR_PLAN_FOREVER, 0 };
    const weir_plan_arena arena = { .streams = 1, .bytes = MIB, .entries = 1, .residents = 1 };
    const weir_plan plan = { .arenas = &arena, .arena_count = 1, .entries = &entry, .entry_count = 1 };
    assert_ok(weir_plan_serve(0, &plan));
    void *first = alloc(MIB);
    for (int i = 0; i < 4095; i++) assert_ok(weir_free(alloc(MIB)));
    assert_int_equal(stats_of(0).plan_late, 4095);
    assert_int_equal(routes(), 1);
    assert_ok(weir_free(alloc(MIB)));
    assert_int_equal(routes(), 0);
    assert_ok(weir_free(first));
}

static void a_plan_that_is_of_use_now_and_then_is_kept(void **state)
{
    (void)state;
    serve_loops(1);
    for (int i = 0; i < 3; i++) {
        depart(4000);
        follow(5 * ENTRIES);
    }
    assert_non_null(atomic_load(&the_cache()->serving));
}

static void a_plan_that_is_of_use_is_kept_whatever_others_asked_for(void **state)
{
    (void)state;
    weir_stream other = new_stream(0);
    serve_loops(1);
    follow(1);
    atomic_load(&the_cache()->serving)->in_vain_others = (1 << 20) - 1;
    follow(2);
    depart_on(other, 1);
    assert_non_null(atomic_load(&the_cache()->serving));
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
        FITS_TEST(a_plan_that_did_not_fit_in_two_rounds_gives_nothing_back_before_it_does),
        FITS_TEST(a_plan_that_fits_gives_back_what_fronts_hold),
        FITS_TEST(others_need_not_wait_for_the_work_that_giving_back_waits_for),
        FITS_TEST(a_plan_that_fits_while_a_stream_captures_is_no_failure),
        FITS_TEST(a_driver_that_takes_nothing_back_is_reported),
        FITS_TEST(a_stream_that_a_plan_is_for_has_an_arena_before_it_asks),
        FITS_TEST(a_plan_lacks_any_of_several_streams),
        FITS_TEST(a_plan_for_the_first_to_come_is_not_yet_for_the_default_stream),
        FITS_TEST(a_long_plan_is_given_up_after_two_rounds_of_no_use),
        FITS_TEST(a_plan_that_was_given_up_leaves_no_records),
        FITS_TEST(a_plan_that_was_given_up_keeps_no_request_from_the_fronts),
        FITS_TEST(a_plan_whose_places_are_never_free_keeps_no_request_from_the_fronts),
        FITS_TEST(a_plan_that_is_of_use_now_and_then_is_kept),
        FITS_TEST(a_plan_that_is_of_use_is_kept_whatever_others_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
