/*
 * What captures that the program begins itself keep alive and release.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "graph_scene.h"
#include "thread_support.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

static void an_adopted_capture_is_ended_and_launched_by_its_owner(void **state)
{
    (void)state;
    weir_graph g, again = { 77 };
    void *native = NULL, *exec = NULL;
    assert_status(try_adopt(origin, (weir_mempool){ 0, 0 }, &g), WEIR_ERR_CAPTURE); /* nothing to adopt */
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    assert_status(try_adopt(origin, (weir_mempool){ 0, 0 }, &again), WEIR_ERR_CAPTURE);
    assert_int_equal(again.id, 77);
    unsigned char *block = alloc_on(MIB, origin);
    assert_true(SAME_POOL(info_of(block).pool, pool_of(g)));
    assert_ok(weir_fill(block, 8, MIB, origin));
    assert_ok(weir_free(block));
    assert_status(weir_graph_end(g), WEIR_ERR_BUSY);
    assert_ok(b->capture_end(0, native_of(origin), &native));
    assert_ok(weir_graph_end(g));
    assert_status(weir_graph_launch(g, origin), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_empty_cache(0));
    assert_ok(b->graph_instantiate(0, native, &exec));
    assert_ok(b->graph_launch(0, exec, native_of(origin)));
    assert_ok(weir_stream_synchronize(origin));
    assert_int_equal(block[MIB - 1], 8);
    assert_ok(b->graph_exec_destroy(0, exec));
    assert_ok(b->graph_destroy(0, native));
    assert_ok(weir_graph_destroy(g));
    expect_nothing_left();
}

/* PyTorch, for one, destroys its graphs while launches of them run. */
static void launches_by_the_owner_are_waited_for_before_pinned_memory_goes(void **state)
{
    (void)state;
    weir_graph g;
    void *native = NULL, *exec = NULL, *pinned = NULL;
    assert_ok(weir_pinned_alloc(4096, WEIR_NUMA_ANY, &pinned));
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    assert_ok(weir_fill(pinned, 9, 4096, origin));
    assert_ok(weir_pinned_record(pinned, origin));
    assert_ok(b->capture_end(0, native_of(origin), &native));
    assert_ok(weir_graph_end(g));
    assert_ok(b->graph_instantiate(0, native, &exec));
    memset(pinned, 0, 4096);
    hold(side);
    assert_ok(b->graph_launch(0, exec, native_of(side)));
    assert_ok(weir_pinned_free(pinned));
    assert_int_equal(*(unsigned char *)pinned, 0);
    assert_ok(weir_graph_destroy(g));
    assert_int_equal(*(unsigned char *)pinned, 9);
    let_run(side);
    assert_ok(b->graph_exec_destroy(0, exec));
    assert_ok(b->graph_destroy(0, native));
}

static void an_adopted_capture_that_goes_on_may_be_let_go(void **state)
{
    (void)state;
    weir_graph g;
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    assert_ok(weir_graph_destroy(g));
    end_natively(native_of(origin)); /* it was not disturbed */
}

static void an_adopted_capture_ends_once_and_is_its_owners_to_launch(void **state)
{
    (void)state;
    weir_graph g;
    void *native = NULL;
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    assert_ok(b->capture_end(0, native_of(origin), &native));
    assert_ok(weir_graph_end(g));
    assert_status(weir_graph_end(g), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_graph_launch(g, origin), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "its owner launches it"));
    assert_ok(weir_graph_destroy(g));
    assert_ok(b->graph_destroy(0, native));
}

static void a_capture_that_the_driver_does_not_end_is_reported(void **state)
{
    (void)state;
    weir_graph g = begin_on(origin);
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_end, 1, WEIR_ERR_CAPTURE));
    assert_status(weir_graph_destroy(g), WEIR_ERR_CAPTURE);
    end_natively(native_of(origin));
}

static void a_begin_that_cannot_be_undone_says_that_the_stream_is_captured(void **state)
{
    (void)state;
    weir_graph g = { 0 };
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 2, WEIR_ERR_DRIVER)); /* the first is before it begins */
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_end, 1, WEIR_ERR_DRIVER));
    assert_status(try_begin(origin, (weir_mempool){ 0, 0 }, &g), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "is still being captured"));
    assert_non_null(strstr(weir_error_text(), "capture_status")); /* what came first */
    end_natively(native_of(origin));
    expect_nothing_left();
}

static weir_status begin_and_spoil(int device, void *native, weir_capture_mode mode)
{
    weir_status status = wr_backend_host.capture_begin(device, native, mode);
    assert_status(wr_backend_host.stream_query(device, native), WEIR_ERR_CAPTURE);
    return status;
}

static void a_capture_invalidated_as_it_begins_is_ended(void **state)
{
    (void)state;
    weir_graph g = { 0 };
    weir_backend driver = wr_backend_host;
    driver.capture_begin = begin_and_spoil;
    device_0()->backend = &driver;
    const weir_status begun = try_begin(origin, (weir_mempool){ 0, 0 }, &g);
    device_0()->backend = &wr_backend_host;
    assert_status(begun, WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "invalidated as it began"));
    g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    assert_ok(weir_graph_destroy(g));
}

static void a_begin_that_is_undone_does_not_say_that_the_stream_is_captured(void **state)
{
    (void)state;
    weir_graph g = { 0 };
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 2, WEIR_ERR_DRIVER));
    assert_status(try_begin(origin, (weir_mempool){ 0, 0 }, &g), WEIR_ERR_DRIVER);
    assert_null(strstr(weir_error_text(), "still being captured"));
    assert_ok(weir_graph_destroy(begin_on(origin)));
}

static void an_invalidated_capture_cannot_be_adopted(void **state)
{
    (void)state;
    weir_graph g = { 77 };
    void *native = NULL;
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_status(b->stream_query(0, native_of(origin)), WEIR_ERR_CAPTURE);
    assert_status(try_adopt(origin, (weir_mempool){ 0, 0 }, &g), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "was invalidated"));
    assert_int_equal(g.id, 77);
    assert_status(b->capture_end(0, native_of(origin), &native), WEIR_ERR_CAPTURE);
}

static void a_back_end_without_captures_has_no_graphs(void **state)
{
    (void)state;
    weir_graph g = { 77 };
    weir_backend driver = wr_backend_host;
    driver.capture_begin = NULL;
    device_0()->backend = &driver;
    const weir_status begun = try_begin(origin, (weir_mempool){ 0, 0 }, &g);
    const weir_status adopted = try_adopt(origin, (weir_mempool){ 0, 0 }, &g);
    device_0()->backend = &wr_backend_host;
    assert_status(begun, WEIR_ERR_NOT_SUPPORTED);
    assert_status(adopted, WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(g.id, 77);
}

static void a_nested_capture_shares_the_pool_of_the_outer_graph(void **state)
{
    (void)state;
    weir_graph body, outer = begin_on(origin);
    assert_ok(b->capture_begin(0, native_of(side), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(side, pool_of(outer), &body));
    void *block = alloc_on(MIB, side);
    assert_true(SAME_POOL(info_of(block).pool, pool_of(outer)));
    assert_ok(weir_free(block));
    end_natively(native_of(side));
    assert_ok(weir_graph_end(body));
    assert_ok(weir_graph_end(outer));
    assert_ok(weir_graph_destroy(body));
    assert_int_equal(pool_info(pool_of(outer)).graphs, 1);
    assert_ok(weir_graph_destroy(outer));
    expect_nothing_left();
}

/* The driver does not take it back. */
static void destroy_a_graph_whose_memory_stays(void)
{
    const weir_graph graph = begin_on(origin);
    assert_ok(weir_free(alloc_on(40 * MIB, origin)));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_segment_free, 1, WEIR_ERR_DRIVER));
    (void)weir_graph_destroy(graph);
    assert_ok(weir_host_fail_clear());
}

static void memory_of_a_graph_that_could_not_go_back_does_at_the_next_beginning(void **state)
{
    (void)state;
    destroy_a_graph_whose_memory_stays();
    assert_true(reserved_on(0) > 0);
    const weir_graph next = begin_on(side);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_graph_end(next));
    assert_ok(weir_graph_destroy(next));
}

static void memory_of_a_graph_whose_frees_were_pending_goes_back_at_the_next_beginning(void **state)
{
    (void)state;
    const weir_graph first = begin_on(origin);
    void *block = alloc_on(40 * MIB, origin);
    assert_ok(weir_graph_end(first));
    assert_ok(weir_record_stream(block, side));
    make_busy(side);
    assert_ok(weir_free(block));
    assert_ok(weir_graph_destroy(first));
    let_run(side);
    assert_int_equal(reserved_on(0), 40 * MIB);
    const weir_graph next = begin_on(side);
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_graph_end(next));
    assert_ok(weir_graph_destroy(next));
}

/* The program's capture is underway by then. */
static void adopting_a_capture_asks_no_events_and_gives_no_memory_back(void **state)
{
    (void)state;
    weir_graph g;
    void *block = alloc_on(4096, origin);
    destroy_a_graph_whose_memory_stays();
    assert_ok(weir_record_stream(block, side));
    make_busy(side);
    assert_ok(weir_free(block));
    const uint64_t reserved = reserved_on(0), queries = calls_of(WEIR_BACKEND_event_query);
    assert_ok(b->capture_begin(0, native_of(origin), WEIR_CAPTURE_RELAXED));
    assert_ok(try_adopt(origin, (weir_mempool){ 0, 0 }, &g));
    assert_int_equal(reserved_on(0), reserved);
    assert_int_equal(calls_of(WEIR_BACKEND_event_query), queries);
    end_natively(native_of(origin));
    assert_ok(weir_graph_end(g));
    let_run(side);
    assert_ok(weir_graph_destroy(g));
}

static void a_begin_that_fails_destroys_the_graph_that_it_gets(void **state)
{
    (void)state;
    weir_graph g = { 0 };
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 2, WEIR_ERR_DRIVER)); /* the first is before it begins */
    assert_status(try_begin(origin, (weir_mempool){ 0, 0 }, &g), WEIR_ERR_DRIVER);
    assert_int_equal(calls_of(WEIR_BACKEND_capture_end), 1);
    assert_int_equal(calls_of(WEIR_BACKEND_graph_destroy), 1);
}

static void a_launch_that_is_refused_holds_off_no_pause(void **state)
{
    (void)state;
    const weir_mempool one = make_pool(pool_options(WEIR_MEMORY_MAPPED, "one"));
    const weir_mempool two = make_pool(pool_options(WEIR_MEMORY_MAPPED, "two"));
    const weir_graph g = begin_in(origin, one);
    assert_ok(weir_graph_retain_pool(g, two));
    assert_ok(weir_graph_end(g));
    assert_ok(weir_pause(0, "two", WEIR_PAUSE_KEEP));
    assert_status(weir_graph_launch(g, origin), WEIR_ERR_BUSY);
    assert_int_equal(calls_of(WEIR_BACKEND_graph_instantiate), 0);
    for (const wr_mempool *p = device_0()->cache.pools; p; p = p->next) assert_int_equal(p->pauses_held_off, 0);
    assert_ok(weir_pause(0, "one", WEIR_PAUSE_KEEP));
    assert_ok(weir_resume(0, "one"));
    assert_ok(weir_resume(0, "two"));
    assert_ok(weir_graph_destroy(g));
    assert_ok(weir_mempool_unref(one));
    assert_ok(weir_mempool_unref(two));
}

/* The outer graph would not keep what the inner one needs. */
static void nothing_is_launched_when_the_capture_around_it_cannot_be_found(void **state)
{
    (void)state;
    const weir_graph inner = begin_on(origin);
    assert_ok(weir_graph_end(inner));
    const weir_graph outer = begin_on(side);
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_status(weir_graph_launch(inner, side), WEIR_ERR_DRIVER);
    assert_int_equal(calls_of(WEIR_BACKEND_graph_instantiate), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_graph_launch), 0);
    assert_ok(weir_graph_end(outer));
    assert_ok(weir_graph_destroy(outer));
    assert_ok(weir_graph_destroy(inner));
}

static void a_launch_holds_off_a_pause_only_while_it_lasts(void **state)
{
    (void)state;
    const weir_graph g = begin_on(origin);
    assert_ok(weir_graph_end(g));
    launch_and_wait(g, origin);
    for (const wr_mempool *p = device_0()->cache.pools; p; p = p->next) assert_int_equal(p->pauses_held_off, 0);
    assert_ok(weir_graph_destroy(g));
}

typedef struct beginner {
    sem_t begun, over;
    weir_graph graph;
    weir_status status;
} beginner;

static void *begin_and_stay(void *argument)
{
    beginner *b = argument;
    b->status = try_begin(origin, (weir_mempool){ 0, 0 }, &b->graph);
    sem_post(&b->begun);
    wait_for(&b->over);
    return NULL;
}

static void closing_releases_the_graph_that_a_living_thread_captures(void **state)
{
    beginner b = { .graph = { 0 } };
    pthread_t thread;
    assert_ok(weir_close());
    const uint64_t closed = wr_meta_live();
    open_scene(state);
    sem_init(&b.begun, 0, 0);
    sem_init(&b.over, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, begin_and_stay, &b), 0);
    wait_for(&b.begun);
    assert_ok(b.status);
    assert_true(weir_close() != WEIR_OK); /* the driver lets only that thread end the capture */
    sem_post(&b.over);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(wr_meta_live(), closed);
    sem_destroy(&b.begun);
    sem_destroy(&b.over);
    open_scene(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_device(an_adopted_capture_is_ended_and_launched_by_its_owner),
        on_device(launches_by_the_owner_are_waited_for_before_pinned_memory_goes),
        on_device(an_adopted_capture_that_goes_on_may_be_let_go),
        on_device(an_adopted_capture_ends_once_and_is_its_owners_to_launch),
        on_device(a_capture_that_the_driver_does_not_end_is_reported),
        on_device(a_begin_that_cannot_be_undone_says_that_the_stream_is_captured),
        on_device(a_capture_invalidated_as_it_begins_is_ended),
        on_device(a_begin_that_is_undone_does_not_say_that_the_stream_is_captured),
        on_device(an_invalidated_capture_cannot_be_adopted),
        on_device(a_back_end_without_captures_has_no_graphs),
        on_device(a_nested_capture_shares_the_pool_of_the_outer_graph),
        on_device(memory_of_a_graph_that_could_not_go_back_does_at_the_next_beginning),
        on_device(memory_of_a_graph_whose_frees_were_pending_goes_back_at_the_next_beginning),
        on_device(adopting_a_capture_asks_no_events_and_gives_no_memory_back),
        on_device(a_begin_that_fails_destroys_the_graph_that_it_gets),
        on_device(a_launch_that_is_refused_holds_off_no_pause),
        on_device(a_launch_holds_off_a_pause_only_while_it_lasts),
        on_device(nothing_is_launched_when_the_capture_around_it_cannot_be_found),
        on_device(closing_releases_the_graph_that_a_living_thread_captures),
    };
    return cmocka_run_group_tests_name("graph_adopted", tests, NULL, NULL);
}
