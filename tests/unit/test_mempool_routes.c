/*
 * Which pool a request comes from: pools entered by threads, routes of streams, filters. On two host devices of 64 MiB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device/device.h"
#include "mempool_support.h"
#include "thread_support.h"

#include <pthread.h>
#include <string.h>

static void the_default_pool_is_left_whatever_the_current_device(void **state)
{
    (void)state;
    assert_ok(weir_mempool_enter(default_pool));
    assert_ok(weir_host_fail(WEIR_BACKEND_device_get_current, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_mempool_leave(default_pool));
    assert_status(weir_mempool_leave(default_pool), WEIR_ERR_POOL_MISMATCH);
}

static void the_pool_entered_last_serves(void **state)
{
    (void)state;
    weir_mempool outer = plain(), inner = plain();
    assert_ok(weir_mempool_enter(outer));
    void *first = alloc(MIB);
    assert_ok(weir_mempool_enter(inner));
    void *second = alloc(MIB);
    assert_ok(weir_mempool_enter(default_pool));
    void *third = alloc(MIB);
    assert_ok(weir_mempool_leave(default_pool));
    assert_ok(weir_mempool_leave(inner));
    void *fourth = alloc(MIB);
    assert_ok(weir_mempool_leave(outer));
    void *fifth = alloc(MIB);
    assert_pool(first, outer);
    assert_pool(second, inner);
    assert_pool(third, default_pool);
    assert_pool(fourth, outer);
    assert_pool(fifth, default_pool);
}

static void leaving_a_pool_that_is_not_the_innermost_changes_nothing(void **state)
{
    (void)state;
    weir_mempool outer = plain(), inner = plain();
    assert_status(weir_mempool_leave(outer), WEIR_ERR_POOL_MISMATCH);
    assert_ok(weir_mempool_enter(outer));
    assert_ok(weir_mempool_enter(inner));
    assert_status(weir_mempool_leave(outer), WEIR_ERR_POOL_MISMATCH);
    assert_pool(alloc(MIB), inner);
    assert_ok(weir_mempool_leave(inner));
    assert_ok(weir_mempool_leave(outer));
}

static void *alloc_as_another_thread(void *nothing)
{
    (void)nothing;
    return alloc(MIB);
}

static void a_thread_can_enter_so_many_pools(void **state)
{
    (void)state;
    const weir_mempool pool = plain();
    for (int i = 0; i < 32; i++) assert_ok(weir_mempool_enter(pool));
    assert_status(weir_mempool_enter(pool), WEIR_ERR_BUSY);
    assert_non_null(strstr(weir_error_text(), "entered 32 pools"));
    for (int i = 0; i < 32; i++) assert_ok(weir_mempool_leave(pool));
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_mempool_leave(pool));
}

static void a_pool_that_could_not_be_entered_is_not_held(void **state)
{
    (void)state;
    const weir_mempool pool = plain();
    for (int i = 0; i < 32; i++) assert_ok(weir_mempool_enter(pool));
    assert_status(weir_mempool_enter(pool), WEIR_ERR_BUSY);
    assert_int_equal(pool_info(pool).references, 33);
    for (int i = 0; i < 32; i++) assert_ok(weir_mempool_leave(pool));
    assert_int_equal(pool_info(pool).references, 1);
}

static bool accept_all(void *user, weir_stream stream, size_t bytes)
{
    (void)user, (void)stream, (void)bytes;
    return true;
}

static void a_filter_that_could_not_be_added_holds_no_pool(void **state)
{
    (void)state;
    const weir_mempool pool = plain();
    wr_meta_fail_nth(1);
    assert_status(weir_mempool_route_filter(pool, accept_all, NULL), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_int_equal(pool_info(pool).references, 1);
    assert_int_equal(atomic_load(&wr_runtime_opened(0)->routes.any), 0);
}

/* What was opened between two equal filters counts again when one of them has gone. */
static void of_equal_filters_the_newest_goes_first(void **state)
{
    (void)state;
    const weir_mempool filtered = plain(), entered = plain(), usual = { 0, 0 };
    assert_ok(weir_mempool_route_filter(filtered, accept_all, NULL));
    assert_ok(weir_mempool_enter(entered));
    assert_ok(weir_mempool_route_filter(filtered, accept_all, NULL));
    assert_pool(alloc(MIB), filtered);
    assert_ok(weir_mempool_unroute_filter(filtered, accept_all, NULL));
    assert_pool(alloc(MIB), entered);
    assert_ok(weir_mempool_leave(entered));
    assert_pool(alloc(MIB), filtered);
    assert_ok(weir_mempool_unroute_filter(filtered, accept_all, NULL));
    assert_pool(alloc(MIB), usual);
    /* Requests need not ask any more. */
    assert_int_equal(atomic_load(&atomic_load(&wr_runtime_global.devices[0])->routes.any), 0);
}

static void a_thread_that_entered_no_pool_is_not_routed(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_enter(pool));
    assert_pool(in_a_thread(alloc_as_another_thread, NULL), default_pool);
    assert_ok(weir_mempool_leave(pool));
}

static weir_mempool entered_by_a_thread;

/* The threads end without leaving the pool. */
static void *enter_and_alloc(void *nothing)
{
    (void)nothing;
    assert_ok(weir_mempool_enter(entered_by_a_thread));
    return alloc(MIB);
}

static void threads_may_be_in_one_pool_at_once_and_leave_it_by_ending(void **state)
{
    (void)state;
    entered_by_a_thread = plain();
    assert_ok(weir_mempool_enter(entered_by_a_thread));
    assert_pool(in_a_thread(enter_and_alloc, NULL), entered_by_a_thread);
    assert_int_equal(pool_info(entered_by_a_thread).references, 2);
    assert_ok(weir_mempool_leave(entered_by_a_thread));
}

static void a_thread_may_end_inside_the_default_pool(void **state)
{
    (void)state;
    entered_by_a_thread = default_pool;
    assert_pool(in_a_thread(enter_and_alloc, NULL), default_pool);
    assert_ok(weir_validate(0));
}

static void a_route_of_a_stream_holds_for_every_thread(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_route_stream(pool, default_stream(0)));
    assert_pool(in_a_thread(alloc_as_another_thread, NULL), pool);
    weir_stream other = new_stream(0);
    assert_pool(alloc_on(MIB, other), default_pool);
    assert_ok(weir_mempool_route_stream(default_pool, default_stream(0)));
    assert_pool(alloc(MIB), default_pool);
    assert_int_equal(pool_info(pool).references, 1);
}

static void the_current_stream_can_be_routed_without_its_name(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    weir_stream stream = new_stream(0);
    assert_ok(weir_stream_set_current(stream));
    assert_ok(weir_mempool_route_stream(pool, WEIR_STREAM_CURRENT));
    assert_pool(alloc_on(MIB, stream), pool);
    assert_pool(alloc_on(MIB, default_stream(0)), default_pool);
    assert_ok(weir_mempool_route_stream(default_pool, WEIR_STREAM_CURRENT));
    assert_pool(alloc_on(MIB, stream), default_pool);
    assert_ok(weir_stream_set_current(default_stream(0)));
}

/* As long as a route is counted, no stream is served by its front alone. */
static void no_route_of_a_stream_is_counted_once_it_is_gone(void **state)
{
    (void)state;
    weir_mempool one = plain(), two = plain();
    weir_stream stream = new_stream(0);
    const wr_device *device = wr_runtime_opened(0);
    assert_ok(weir_mempool_route_stream(one, stream));
    assert_ok(weir_mempool_route_stream(two, stream));
    assert_int_equal(atomic_load(&device->routes.any), 1);
    assert_ok(weir_mempool_route_stream(default_pool, stream));
    assert_ok(weir_mempool_route_stream(default_pool, stream));
    assert_int_equal(atomic_load(&device->routes.any), 0);
    assert_ok(weir_mempool_route_stream(one, stream));
    assert_ok(weir_stream_destroy(stream));
    assert_int_equal(atomic_load(&device->routes.any), 0);
}

static void a_stream_that_ends_ends_its_route(void **state)
{
    (void)state;
    weir_mempool pool = plain();
    weir_stream stream = new_stream(0);
    assert_ok(weir_mempool_route_stream(pool, stream));
    assert_int_equal(pool_info(pool).references, 2);
    assert_ok(weir_stream_destroy(stream));
    assert_int_equal(pool_info(pool).references, 1);
    assert_pool(alloc_on(MIB, new_stream(0)), default_pool); /* which may reuse the record of the other */
}

static bool above_a_mebibyte(void *user, weir_stream stream, size_t bytes)
{
    (void)stream;
    ++*(int *)user;
    return bytes > MIB;
}

static void a_filter_chooses_for_every_thread(void **state)
{
    (void)state;
    int asked = 0;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_route_filter(pool, above_a_mebibyte, &asked));
    assert_pool(alloc(2 * MIB), pool);
    assert_pool(alloc(MIB), default_pool);
    assert_pool(in_a_thread(alloc_as_another_thread, NULL), default_pool);
    assert_int_equal(asked, 3);
    assert_ok(weir_mempool_unroute_filter(pool, above_a_mebibyte, &asked));
    assert_status(weir_mempool_unroute_filter(pool, above_a_mebibyte, &asked), WEIR_ERR_INVALID_ARGUMENT);
    assert_pool(alloc(2 * MIB), default_pool);
    assert_int_equal(asked, 3);
    assert_int_equal(pool_info(pool).references, 1);
}

static void the_default_pool_needs_no_reference_and_can_be_emptied(void **state)
{
    (void)state;
    const uint64_t references = pool_info(default_pool).references;
    assert_ok(weir_mempool_ref(default_pool));
    assert_int_equal(pool_info(default_pool).references, references);
    for (int i = 0; i < 3; i++) assert_ok(weir_mempool_unref(default_pool));
    assert_ok(weir_free(alloc(3 * MIB)));
    assert_int_not_equal(reserved_on(0), 0);
    assert_ok(weir_mempool_empty_cache(default_pool));
    assert_int_equal(reserved_on(0), 0);
    assert_pool(alloc(MIB), default_pool);
}

/* The routes differ in the pool, or else in what the filter is given, so each is told from the others. */
static void a_filter_that_goes_leaves_the_others_in_their_order(void **state)
{
    (void)state;
    int asked[4] = { 0 };
    const weir_mempool low = plain(), high = plain();
    assert_ok(weir_mempool_route_filter(low, above_a_mebibyte, &asked[0]));
    assert_ok(weir_mempool_route_filter(high, above_a_mebibyte, &asked[1]));
    assert_ok(weir_mempool_route_filter(low, above_a_mebibyte, &asked[2]));
    assert_ok(weir_mempool_route_filter(low, above_a_mebibyte, &asked[3]));
    assert_status(weir_mempool_unroute_filter(high, above_a_mebibyte, &asked[2]), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_mempool_unroute_filter(low, above_a_mebibyte, &asked[2]));
    assert_pool(alloc(MIB), default_pool);
    assert_true(asked[0] == 1 && asked[1] == 1 && asked[2] == 0 && asked[3] == 1);
    assert_pool(alloc(2 * MIB), low);
    assert_ok(weir_mempool_unroute_filter(low, above_a_mebibyte, &asked[3]));
    assert_pool(alloc(2 * MIB), high);
    assert_ok(weir_mempool_unroute_filter(high, above_a_mebibyte, &asked[1]));
    assert_pool(alloc(2 * MIB), low);
    assert_true(asked[0] == 2 && asked[1] == 2 && asked[2] == 0 && asked[3] == 2);
    assert_ok(weir_mempool_unroute_filter(low, above_a_mebibyte, &asked[0]));
    assert_pool(alloc(2 * MIB), default_pool);
}

typedef struct meeting {
    sem_t asked, answers;
} meeting;

static bool declines_later(void *user, weir_stream stream, size_t bytes)
{
    meeting *m = user;
    (void)stream, (void)bytes;
    sem_post(&m->asked);
    wait_for(&m->answers);
    return false;
}

static void *alloc_large(void *unused)
{
    (void)unused;
    return alloc(2 * MIB);
}

static void a_filter_is_asked_though_newer_ones_go_meanwhile(void **state)
{
    (void)state;
    int asked[2] = { 0 };
    void *pointer = NULL;
    pthread_t thread;
    meeting m;
    const weir_mempool pool = plain(), other = plain();
    sem_init(&m.asked, 0, 0);
    sem_init(&m.answers, 0, 0);
    assert_ok(weir_mempool_route_filter(pool, above_a_mebibyte, &asked[0]));
    assert_ok(weir_mempool_route_filter(other, above_a_mebibyte, &asked[1]));
    assert_ok(weir_mempool_route_filter(other, declines_later, &m));
    assert_int_equal(pthread_create(&thread, NULL, alloc_large, NULL), 0);
    wait_for(&m.asked);
    assert_ok(weir_mempool_unroute_filter(other, declines_later, &m));
    assert_ok(weir_mempool_unroute_filter(other, above_a_mebibyte, &asked[1]));
    sem_post(&m.answers);
    assert_int_equal(pthread_join(thread, &pointer), 0);
    assert_pool(pointer, pool);
    assert_true(asked[0] == 1 && asked[1] == 0);
    sem_destroy(&m.asked);
    sem_destroy(&m.answers);
}

static bool accepts_later(void *user, weir_stream stream, size_t bytes)
{
    meeting *m = user;
    (void)stream, (void)bytes;
    sem_post(&m->asked);
    wait_for(&m->answers);
    return true;
}

/* By the time that the filter has answered, its pool has gone. */
static void a_request_whose_pool_goes_meanwhile_is_routed_anew(void **state)
{
    (void)state;
    void *pointer = NULL;
    pthread_t thread;
    meeting m;
    const weir_mempool pool = plain();
    sem_init(&m.asked, 0, 0);
    sem_init(&m.answers, 0, 0);
    assert_ok(weir_mempool_route_filter(pool, accepts_later, &m));
    assert_int_equal(pthread_create(&thread, NULL, alloc_large, NULL), 0);
    wait_for(&m.asked);
    assert_ok(weir_mempool_unroute_filter(pool, accepts_later, &m));
    assert_ok(weir_mempool_unref(pool));
    assert_gone(pool);
    sem_post(&m.answers);
    assert_int_equal(pthread_join(thread, &pointer), 0);
    assert_pool(pointer, default_pool);
    sem_destroy(&m.asked);
    sem_destroy(&m.answers);
}

static void a_filter_may_route_to_the_default_pool(void **state)
{
    (void)state;
    int asked = 0;
    weir_mempool pool = plain();
    assert_ok(weir_mempool_enter(pool));
    assert_ok(weir_mempool_route_filter(default_pool, above_a_mebibyte, &asked));
    assert_pool(alloc(2 * MIB), default_pool);
    assert_ok(weir_mempool_unroute_filter(default_pool, above_a_mebibyte, &asked));
    assert_pool(alloc(2 * MIB), pool);
    assert_ok(weir_mempool_leave(pool));
}

static void of_all_routes_the_one_opened_last_wins(void **state)
{
    (void)state;
    int asked = 0;
    weir_mempool by_thread = plain(), by_stream = plain(), by_filter = plain(), current = { 0, 0 };
    assert_ok(weir_mempool_enter(by_thread));
    assert_ok(weir_mempool_route_stream(by_stream, default_stream(0)));
    assert_pool(alloc(2 * MIB), by_stream);
    assert_ok(weir_mempool_route_filter(by_filter, above_a_mebibyte, &asked));
    assert_pool(alloc(2 * MIB), by_filter);
    assert_pool(alloc(MIB), by_stream);
    assert_ok(weir_mempool_enter(by_thread));
    assert_pool(alloc(2 * MIB), by_thread);
    assert_ok(weir_mempool_current(WEIR_STREAM_CURRENT, &current));
    assert_int_equal(current.user, by_thread.user);
    assert_ok(weir_mempool_leave(by_thread));
    assert_ok(weir_mempool_unroute_filter(by_filter, above_a_mebibyte, &asked));
    assert_ok(weir_mempool_route_stream(default_pool, default_stream(0)));
    assert_pool(alloc(MIB), by_thread);
    assert_ok(weir_mempool_leave(by_thread));
}

#define test(name) cmocka_unit_test_setup_teardown(name, open_two_small_hosts, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(the_default_pool_is_left_whatever_the_current_device),
        test(the_pool_entered_last_serves),
        test(a_thread_can_enter_so_many_pools),
        test(a_pool_that_could_not_be_entered_is_not_held),
        test(a_filter_that_could_not_be_added_holds_no_pool),
        test(of_equal_filters_the_newest_goes_first),
        test(leaving_a_pool_that_is_not_the_innermost_changes_nothing),
        test(a_thread_that_entered_no_pool_is_not_routed),
        test(threads_may_be_in_one_pool_at_once_and_leave_it_by_ending),
        test(a_thread_may_end_inside_the_default_pool),
        test(a_route_of_a_stream_holds_for_every_thread),
        test(the_current_stream_can_be_routed_without_its_name),
        test(no_route_of_a_stream_is_counted_once_it_is_gone),
        test(a_stream_that_ends_ends_its_route),
        test(a_filter_chooses_for_every_thread),
        test(the_default_pool_needs_no_reference_and_can_be_emptied),
        test(a_filter_that_goes_leaves_the_others_in_their_order),
        test(a_filter_is_asked_though_newer_ones_go_meanwhile),
        test(a_request_whose_pool_goes_meanwhile_is_routed_anew),
        test(a_filter_may_route_to_the_default_pool),
        test(of_all_routes_the_one_opened_last_wins),
    };
    return cmocka_run_group_tests_name("mempool_routes", tests, NULL, NULL);
}
