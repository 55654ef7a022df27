/*
 * One scenario of handles, run for every n with the n-th driver call failing, then with the n-th allocation of weir's
 * own records failing. After each run the same scenario works, closing destroys every handle once, and nothing is left.
 * The scenario has a thread of its own, so that a thread's records count too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fail_support.h"
#include "handle_support.h"
#include "thread_support.h"

/* `hungry` takes device memory and reports when there is none; `roomy` works in a workspace of weir's; `fed` allocates
 * from weir. */
static library hungry = { .name = "hungry" }, roomy = { .name = "roomy" }, fed = { .name = "fed" };
static library *const libraries[] = { &hungry, &roomy, &fed };
#define LIBRARIES (sizeof libraries / sizeof libraries[0])

static int register_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < LIBRARIES; i++) library_register(libraries[i], 0);
    library_works_in_memory_of_weirs(&roomy);
    kind_of(&hungry)->is_out_of_memory = library_is_out_of_memory;
    kind_of(&fed)->set_memory = library_set_memory;
    return 0;
}

static void start(void)
{
    for (size_t i = 0; i < LIBRARIES; i++) library_start(libraries[i]);
    atomic_store(&hungry.bytes, 2 * MIB);
    open_host((weir_settings){ .host_memory = 96 * MIB });
}

static void all_ended(uint64_t records)
{
    for (size_t i = 0; i < LIBRARIES; i++) library_end(libraries[i]);
    assert_int_equal(wr_meta_live(), records);
}

/* ---- the scenario ------------------------------------------------------------------------------------------------ */

typedef struct scene {
    weir_stream streams[2]; /* {0} where making it failed */
    int failures;           /* calls that did not return WEIR_OK */
    int wrong;              /* out-parameters written by a failed call, leases that could not be returned */
} scene;

static char untouched;

static thing *take(scene *s, const library *l, weir_stream stream)
{
    void *handle = &untouched;
    if (as_told(weir_handle_get_on(l->kind, stream, &handle)) == WEIR_OK) return handle;
    s->failures++;
    if (handle != &untouched) s->wrong++;
    return NULL;
}

static void works(scene *s, weir_status status)
{
    if (as_told(status) != WEIR_OK) s->failures++;
}

static weir_lease lend(scene *s, const library *l, weir_stream stream)
{
    weir_lease lease = { 77 };
    if (as_told(weir_handle_borrow(l->kind, stream, 1000, &lease)) == WEIR_OK) return lease;
    s->failures++;
    if (lease.id != 77) s->wrong++;
    return (weir_lease){ 0 };
}

/* Returning has no reason to fail. */
static void give(scene *s, weir_lease lease)
{
    if (lease.id != 0 && (!weir_lease_handle(lease) || weir_handle_return(lease) != WEIR_OK)) s->wrong++;
}

static void getting(scene *s)
{
    for (int i = 0; i < 2; i++) {
        weir_stream stream = { 0 };
        works(s, weir_stream_create(0, 0, &stream));
        s->streams[i] = stream;
    }
    for (size_t i = 0; i < LIBRARIES; i++) {
        take(s, libraries[i], WEIR_STREAM_CURRENT);
        take(s, libraries[i], s->streams[0]);
        take(s, libraries[i], s->streams[1]);
        take(s, libraries[i], s->streams[0]);
        take(s, libraries[i], s->streams[0]); /* a hit */
    }
    thing *t = take(s, &fed, s->streams[0]);
    if (t && !t->fed && t->feeder->alloc(t->feeder->context, 1000, NULL, true, &t->fed) != 0) s->failures++;
    take(s, &fed, s->streams[1]);
}

static void borrowing(scene *s)
{
    for (size_t i = 0; i < LIBRARIES; i++) {
        weir_lease a = lend(s, libraries[i], s->streams[0]), b = lend(s, libraries[i], s->streams[1]);
        give(s, a);
        a = lend(s, libraries[i], s->streams[1]);
        give(s, b);
        give(s, a);
    }
}

/* Memory that the driver refused to take back in an earlier scene is lost. */
static size_t more_than_is_free(void)
{
    weir_device_memory memory = { .size = sizeof memory };
    return weir_device_memory_get(0, &memory) == WEIR_OK ? (size_t)memory.free_bytes + 2 * MIB : 88 * MIB;
}

static void trimming(scene *s)
{
    uint64_t destroyed = 0;
    void *block = NULL;
    works(s, weir_handle_release(roomy.kind, 0));
    works(s, weir_handles_trim(0, 0, &destroyed));
    take(s, &roomy, s->streams[1]);
    works(s, weir_handle_release(fed.kind, 0));
    works(s, weir_handle_release(hungry.kind, 0));
    if (s->streams[1].id) works(s, weir_stream_destroy(s->streams[1]));
    works(s, weir_alloc(more_than_is_free(), &block)); /* idle handles must be destroyed for it */
    works(s, weir_free(block));
    take(s, &roomy, s->streams[0]);
    take(s, &hungry, WEIR_STREAM_CURRENT); /* only cached memory is left */
    if (s->streams[0].id) works(s, weir_stream_destroy(s->streams[0]));
    take(s, &roomy, WEIR_STREAM_CURRENT);
}

static void *run(void *argument)
{
    scene *s = argument;
    getting(s);
    borrowing(s);
    trimming(s);
    return NULL;
}

/* All threads that had a handle have ended, so all handles are idle, and the statistics agree. */
static void assert_pools_valid(void)
{
    assert_ok(weir_validate(0));
    for (size_t i = 0; i < LIBRARIES; i++) {
        weir_handle_stats stats = numbers_of(libraries[i], 0);
        assert_int_equal(stats.created - stats.destroyed, stats.live);
        assert_int_equal(stats.idle, stats.live);
        assert_int_equal(stats.borrowed, 0);
        assert_int_equal(stats.live, (uint64_t)(libraries[i]->creates - libraries[i]->destroys));
    }
}

static void assert_everything_works(void)
{
    scene s = { .failures = 0 };
    assert_ok(weir_host_fail_clear());
    assert_pools_valid();
    in_a_thread(run, &s);
    assert_int_equal(s.failures, 0);
    assert_int_equal(s.wrong, 0);
    assert_pools_valid();
    assert_ok(weir_handles_trim(0, 0, NULL));
    for (size_t i = 0; i < LIBRARIES; i++) {
        assert_int_equal(numbers_of(libraries[i], 0).live, 0);
        assert_int_equal(numbers_of(libraries[i], 0).workspace_bytes, 0);
    }
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).allocated_bytes[WEIR_STAT_ALL].current, 0);
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

/* The driver calls of weir itself, too. */
static uint64_t host_calls(void)
{
    uint64_t sum = 0;
    for (int entry = 0; entry < WEIR_BACKEND_ENTRY_COUNT; entry++) sum += calls_of((enum weir_backend_entry)entry);
    return sum;
}

static void every_driver_call_may_fail(weir_status failure, weir_status then)
{
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        const uint64_t before = wr_meta_live();
        scene s = { .failures = 0 };
        start();
        assert_ok(weir_host_fail_any(nth, failure));
        for (uint64_t later = nth + 1; then != WEIR_OK && later <= nth + FAILING_THEN; later++)
            assert_ok(weir_host_fail_any(later, then));
        const uint64_t called = host_calls();
        in_a_thread(run, &s);
        reached = host_calls() - called >= nth;
        assert_int_equal(s.wrong, 0);
        assert_everything_works();
        assert_ok(weir_close());
        all_ended(before);
    }
    assert_true(nth > 40);
}

static void every_driver_call_may_run_out_of_memory(void **state)
{
    (void)state;
    every_driver_call_may_fail(WEIR_ERR_OUT_OF_MEMORY, WEIR_OK);
}

static void every_driver_call_may_break(void **state)
{
    (void)state;
    every_driver_call_may_fail(WEIR_ERR_DRIVER, WEIR_OK);
}

static void every_driver_call_may_break_and_its_clean_up_too(void **state)
{
    (void)state;
    every_driver_call_may_fail(WEIR_ERR_DRIVER, WEIR_ERR_TIMEOUT);
}

static void every_driver_call_of_closing_may_break(void **state)
{
    (void)state;
    int broken = 0;
    for (uint64_t nth = 1; nth <= 60; nth++) { /* more than there are */
        const uint64_t before = wr_meta_live();
        scene s = { .failures = 0 };
        start();
        in_a_thread(run, &s);
        assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
        for (uint64_t later = nth + 1; later <= nth + FAILING_THEN; later++)
            assert_ok(weir_host_fail_any(later, WEIR_ERR_TIMEOUT));
        weir_status status = as_told(weir_close());
        assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER || status == WEIR_ERR_TIMEOUT);
        broken += status != WEIR_OK;
        all_ended(before);
    }
    assert_true(broken > 5 && broken < 60);
}

static void the_device_may_be_lost_for_good(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    scene s = { .failures = 0 };
    start();
    in_a_thread(run, &s);
    assert_int_equal(s.failures, 0);
    assert_ok(weir_host_lose_device(0));
    in_a_thread(run, &s);
    assert_true(s.failures > 0);
    assert_int_equal(s.wrong, 0);
    assert_pools_valid();
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    all_ended(before);
}

/* ---- weir's own records ------------------------------------------------------------------------------------------ */

static void every_record_may_be_refused(void **state)
{
    (void)state;
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        const uint64_t before = wr_meta_live();
        scene s = { .failures = 0 };
        start();
        wr_meta_fail_nth(nth);
        in_a_thread(run, &s);
        reached = failure_came(nth);
        assert_int_equal(s.wrong, 0);
        assert_everything_works();
        assert_ok(weir_close());
        all_ended(before);
    }
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TEST(every_driver_call_may_run_out_of_memory),
        FAIL_TEST(every_driver_call_may_break),
        FAIL_TEST(every_driver_call_may_break_and_its_clean_up_too),
        FAIL_TEST(every_driver_call_of_closing_may_break),
        FAIL_TEST(the_device_may_be_lost_for_good),
        FAIL_TEST(every_record_may_be_refused),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
