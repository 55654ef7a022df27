/*
 * Other threads at work while a capture begins or ends, or while a stream's capture is queried.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "graph_support.h"
#include "meanwhile_support.h"

static weir_stream origin, side;

static int open_with(const char *debug)
{
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = debug });
    origin = new_stream(0);
    side = new_stream(0);
    return 0;
}

static int open_scene(void **state)
{
    (void)state;
    return open_with(NULL);
}

static int open_zoned(void **state)
{
    (void)state;
    return open_with("redzone");
}

static int open_poisoned(void **state)
{
    (void)state;
    return open_with("poison");
}

static void *free_it(void *block)
{
    assert_ok(weir_free(block));
    return NULL;
}

static void *end_it(void *graph)
{
    assert_ok(weir_graph_end(*(weir_graph *)graph));
    return NULL;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The native stream is destroyed with it, so not before the driver has answered. */
static void expect_to_end_only_after(weir_stream stream, uint64_t asked_at)
{
    assert_ok(weir_stream_destroy(stream));
    assert_true(now_ms() - asked_at >= SLOW_MS - 1);
}

static weir_graph adopt_on(weir_stream stream)
{
    weir_graph g = { 0 };
    assert_ok(wr_backend_host.capture_begin(0, native_of(stream), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(stream, (weir_mempool){ 0, 0 }, &g));
    return g;
}

static void end_by_its_owner(weir_stream stream)
{
    end_natively(native_of(stream));
}

/* ---- streams that end -------------------------------------------------------------------------------------------- */

static void the_stream_of_a_freed_block_does_not_end_while_it_is_asked_about_a_capture(void **state)
{
    (void)state;
    pthread_t freeing;
    weir_stream home = new_stream(0);
    void *block = alloc_on(MIB, home);
    assert_ok(weir_record_stream(block, side));
    weir_graph g = begin_on(origin);
    const uint64_t asked_at = now_ms();
    start_slowly(&freeing, free_it, block, WEIR_BACKEND_capture_status);
    expect_to_end_only_after(home, asked_at);
    pthread_join(freeing, NULL);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void the_stream_of_a_capture_does_not_end_while_it_is_asked_whether_that_is_over(void **state)
{
    (void)state;
    pthread_t ending;
    weir_stream home = new_stream(0);
    weir_graph g = adopt_on(home);
    end_by_its_owner(home);
    const uint64_t asked_at = now_ms();
    start_slowly(&ending, end_it, &g, WEIR_BACKEND_capture_status);
    expect_to_end_only_after(home, asked_at);
    pthread_join(ending, NULL);
    assert_ok(weir_graph_destroy(g));
}

/* ---- captures that end ------------------------------------------------------------------------------------------- */

static void a_stream_whose_capture_is_being_ended_is_asked_afterwards(void **state)
{
    (void)state;
    pthread_t ending;
    weir_graph g = begin_on(origin), next;
    start_slowly(&ending, end_it, &g, WEIR_BACKEND_capture_end);
    next = begin_on(origin);
    pthread_join(ending, NULL);
    assert_ok(weir_graph_destroy(g));

    start_slowly(&ending, end_it, &next, WEIR_BACKEND_capture_end);
    assert_status(try_adopt(origin, (weir_mempool){ 0, 0 }, &g), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "is not being captured"));
    pthread_join(ending, NULL);
    assert_ok(weir_graph_destroy(next));
}

static void no_capture_is_asked_whether_it_is_over_while_another_is_being_ended(void **state)
{
    (void)state;
    pthread_t ending;
    weir_graph g = begin_on(origin), other = adopt_on(side);
    const uint64_t asked_at = now_ms();
    start_slowly(&ending, end_it, &g, WEIR_BACKEND_capture_end);
    assert_status(weir_graph_end(other), WEIR_ERR_BUSY);
    assert_true(now_ms() - asked_at >= SLOW_MS - 1);
    pthread_join(ending, NULL);
    end_by_its_owner(side);
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_graph_destroy(other));
}

/* ---- debugging --------------------------------------------------------------------------------------------------- */

static void a_capture_begins_only_after_a_zone_was_copied(void **state)
{
    (void)state;
    pthread_t freeing;
    start_slowly(&freeing, free_it, alloc_on(MIB, origin), WEIR_BACKEND_copy);
    weir_graph g = begin_on(origin);
    pthread_join(freeing, NULL);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void a_capture_may_begin_while_a_zone_waits_for_the_streams_work(void **state)
{
    (void)state;
    pthread_t freeing;
    atomic_bool ends = false;
    void *block = alloc_on(MIB, origin);
    assert_ok(weir_stream_callback(origin, last_until, &ends));
    const uint64_t before = calls_of(WEIR_BACKEND_event_synchronize);
    start(&freeing, free_it, block);
    await_call_of(WEIR_BACKEND_event_synchronize, before);
    weir_graph g = begin_on(origin);
    atomic_store(&ends, true);
    pthread_join(freeing, NULL);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void no_graph_poisons_what_was_freed_as_its_capture_began(void **state)
{
    (void)state;
    pthread_t freeing;
    unsigned char *block = alloc_on(MIB, origin);
    start_slowly(&freeing, free_it, block, WEIR_BACKEND_fill);
    weir_graph g = begin_on(origin);
    pthread_join(freeing, NULL);
    assert_ok(weir_graph_end(g));
    unsigned char *again = alloc_on(MIB, origin);
    assert_ptr_equal(again, block);
    assert_ok(weir_fill(again, 42, MIB, origin));
    launch_and_wait(g, origin);
    assert_int_equal(again[0], 42);
    assert_ok(weir_graph_destroy(g));
}

/* A stream whose work is waited for, and what is held by the time that somebody does. */
typedef struct watcher {
    pthread_t thread;
    uint64_t waits;
    int64_t held;
} watcher;

static void *watch_and_release(void *argument)
{
    watcher *w = argument;
    await_call_of(WEIR_BACKEND_event_synchronize, w->waits);
    w->held = reserved_on(0);
    let_run(side);
    return NULL;
}

/* No stream's queue is asked beside a capture, but events are. */
static void beside_a_capture_idle_memory_goes_back_before_work_is_waited_for(void **state)
{
    (void)state;
    const weir_stream busy = side, idle = new_stream(0);
    watcher w = { 0 };
    void *of_busy = alloc_on(64 * MIB, busy), *of_idle = alloc_on(40 * MIB, idle);
    assert_ok(weir_free(of_busy));
    assert_ok(weir_free(of_idle));
    make_busy(busy);
    const weir_graph graph = begin_on(origin);
    w.waits = calls_of(WEIR_BACKEND_event_synchronize);
    start(&w.thread, watch_and_release, &w);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
    assert_int_equal(w.held, 64 * MIB);
    assert_int_equal(reserved_on(0), 0);
}

#define MEANWHILE_TEST(test) cmocka_unit_test_setup_teardown(test, open_scene, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEANWHILE_TEST(the_stream_of_a_freed_block_does_not_end_while_it_is_asked_about_a_capture),
        MEANWHILE_TEST(the_stream_of_a_capture_does_not_end_while_it_is_asked_whether_that_is_over),
        MEANWHILE_TEST(a_stream_whose_capture_is_being_ended_is_asked_afterwards),
        MEANWHILE_TEST(no_capture_is_asked_whether_it_is_over_while_another_is_being_ended),
        MEANWHILE_TEST(beside_a_capture_idle_memory_goes_back_before_work_is_waited_for),
        cmocka_unit_test_setup_teardown(a_capture_begins_only_after_a_zone_was_copied, open_zoned, close_host),
        cmocka_unit_test_setup_teardown(a_capture_may_begin_while_a_zone_waits_for_the_streams_work, open_zoned,
                                        close_host),
        cmocka_unit_test_setup_teardown(no_graph_poisons_what_was_freed_as_its_capture_began, open_poisoned,
                                        close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
