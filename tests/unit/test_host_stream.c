#include "unit/host.h"

#include "thread_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static void count_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static uint64_t step(void *stream, uint64_t count)
{
    uint64_t ran;
    ok(weir_host_stream_step(0, stream, count, &ran));
    return ran;
}

static void held_stream_only_queues(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    char *memory = new_segment(0, 4096);
    ok(weir_host_stream_hold(0, stream));
    ok(b->stream_query(0, stream));
    ok(b->fill(0, stream, memory, 1, 1));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_NOT_READY);
    assert_int_equal(memory[0], 0);
    ok(weir_host_stream_release(0, stream));
    assert_int_equal(memory[0], 1);
    ok(b->stream_query(0, stream));
}

static void steps_run_so_many_items(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, stream));
    for (int i = 0; i < 5; i++) ok(b->stream_callback(0, stream, count_up, &count));
    assert_int_equal(step(stream, 2), 2);
    assert_int_equal(atomic_load(&count), 2);
    assert_int_equal(step(stream, 0), 0);
    assert_int_equal(step(stream, 100), 3);
    assert_int_equal(atomic_load(&count), 5);
    assert_int_equal(step(stream, 1), 0);
}

static void event_on_a_held_idle_stream_is_pending(void **state)
{
    (void)state;
    void *stream = new_stream(0), *event = new_event(0);
    ok(weir_host_stream_hold(0, stream));
    ok(b->event_record(0, event, stream));
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    assert_int_equal(step(stream, 1), 1);
    ok(b->event_query(0, event));
}

static void step_stops_at_a_wait_for_another_stream(void **state)
{
    (void)state;
    void *first = new_stream(0), *second = new_stream(0), *event = new_event(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, first));
    ok(weir_host_stream_hold(0, second));
    ok(b->event_record(0, event, first));
    ok(b->stream_callback(0, second, count_up, &count));
    ok(b->stream_wait(0, second, event));
    ok(b->stream_callback(0, second, count_up, &count));
    assert_int_equal(step(second, 100), 1);
    assert_int_equal(atomic_load(&count), 1);
    assert_int_equal(step(first, 1), 1);
    assert_int_equal(step(second, 100), 2);
    assert_int_equal(atomic_load(&count), 2);
}

static void release_leaves_blocked_work_to_the_stream(void **state)
{
    (void)state;
    void *first = new_stream(0), *second = new_stream(0), *event = new_event(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, first));
    ok(weir_host_stream_hold(0, second));
    ok(b->event_record(0, event, first));
    ok(b->stream_wait(0, second, event));
    ok(b->stream_callback(0, second, count_up, &count));
    ok(weir_host_stream_release(0, second));
    assert_int_equal(b->stream_query(0, second), WEIR_ERR_NOT_READY);
    ok(weir_host_stream_release(0, first));
    ok(b->stream_synchronize(0, second));
    assert_int_equal(atomic_load(&count), 1);
}

static void default_stream_can_be_held(void **state)
{
    (void)state;
    char *memory = new_segment(0, 4096);
    ok(weir_host_stream_hold(0, NULL));
    ok(b->fill(0, NULL, memory, 1, 1));
    assert_int_equal(step(NULL, 1), 1);
    assert_int_equal(memory[0], 1);
    ok(weir_host_stream_release(0, NULL));
}

static void step_of_a_running_stream_is_refused(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    uint64_t ran = 77;
    assert_int_equal(weir_host_stream_step(0, stream, 1, &ran), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(ran, 77);
    ok(weir_host_stream_release(0, stream));
}

static void destroyed_held_stream_runs_its_work(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, stream));
    for (int i = 0; i < 3; i++) ok(b->stream_callback(0, stream, count_up, &count));
    ok(b->stream_destroy(0, stream));
    ok(b->device_synchronize(0));
    assert_int_equal(atomic_load(&count), 3);
}

static void closing_drops_what_is_held(void **state)
{
    (void)state;
    void *first = new_stream(0), *second = new_stream(1), *event = new_event(0);
    atomic_int count = 0;
    ok(weir_host_stream_hold(0, first));
    ok(b->stream_callback(0, first, count_up, &count));
    ok(b->event_record(0, event, first));
    ok(b->stream_wait(1, second, event)); /* its worker waits now */
    ok(b->stream_callback(1, second, count_up, &count));
    ok(b->device_close(1));
    ok(b->device_close(0));
    assert_int_equal(atomic_load(&count), 0);
    weir_device_caps caps;
    ok(b->device_open(0, &caps));
    ok(b->device_open(1, &caps));
}

static void copy_on_an_idle_stream_is_done_at_once(void **state)
{
    (void)state;
    char *memory = new_segment(0, 4096);
    ok(b->fill(0, NULL, memory, 9, 1));
    assert_int_equal(memory[0], 9);
    ok(b->stream_query(0, NULL));
}

static void graph_with_callbacks_does_not_run_in_the_caller(void **state)
{
    (void)state;
    void *stream = new_stream(0), *graph, *exec;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    ok(b->stream_callback(0, stream, (void (*)(void *))(void *)pthread_mutex_lock, &lock));
    ok(b->stream_callback(0, stream, (void (*)(void *))(void *)pthread_mutex_unlock, &lock));
    ok(b->capture_end(0, stream, &graph));
    ok(b->graph_instantiate(0, graph, &exec));
    pthread_mutex_lock(&lock);
    ok(b->graph_launch(0, exec, stream));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_NOT_READY);
    pthread_mutex_unlock(&lock);
    ok(b->stream_synchronize(0, stream));
}

static void launches_of_one_graph_do_not_overlap(void **state)
{
    (void)state;
    void *one = new_stream(0), *two = new_stream(0), *graph, *exec;
    char *memory = new_segment(0, 4096);
    ok(b->capture_begin(0, one, WEIR_CAPTURE_RELAXED));
    ok(b->fill(0, one, memory, 1, 1));
    ok(b->capture_end(0, one, &graph));
    ok(b->graph_instantiate(0, graph, &exec));
    ok(weir_host_stream_hold(0, one));
    ok(b->graph_launch(0, exec, one));
    ok(b->graph_launch(0, exec, two));
    assert_int_equal(b->stream_query(0, two), WEIR_ERR_NOT_READY);
    ok(weir_host_stream_release(0, one));
    ok(b->stream_synchronize(0, two));
    assert_int_equal(memory[0], 1);
}

static void launch_inside_a_capture_is_recorded(void **state)
{
    (void)state;
    void *stream = new_stream(0), *graph, *inner, *outer;
    char *memory = new_segment(0, 4096);
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    ok(b->fill(0, stream, memory, 5, 1));
    ok(b->capture_end(0, stream, &graph));
    ok(b->graph_instantiate(0, graph, &inner));
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    ok(b->graph_launch(0, inner, stream));
    ok(b->copy(0, stream, memory + 1, memory, 1));
    ok(b->capture_end(0, stream, &graph));
    ok(b->graph_instantiate(0, graph, &outer));
    ok(b->graph_exec_destroy(0, inner));
    assert_int_equal(memory[0], 0);
    ok(b->graph_launch(0, outer, stream));
    ok(b->stream_synchronize(0, stream));
    assert_int_equal(memory[1], 5);
}

static void *end_capture(void *stream)
{
    void *graph;
    return (void *)(intptr_t)b->capture_end(0, stream, &graph);
}

static intptr_t end_elsewhere(void *stream)
{
    return (intptr_t)in_a_thread(end_capture, stream);
}

static void capture_ends_in_the_thread_that_began_it(void **state)
{
    (void)state;
    void *stream = new_stream(0), *graph;
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_THREAD_LOCAL));
    assert_int_equal(end_elsewhere(stream), WEIR_ERR_WRONG_THREAD);
    ok(b->capture_end(0, stream, &graph));
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    assert_int_equal(end_elsewhere(stream), WEIR_OK);
}

static void capture_that_would_merge_with_another_invalidates_both(void **state)
{
    (void)state;
    void *one = new_stream(0), *two = new_stream(0), *event = new_event(0), *graph;
    ok(b->capture_begin(0, one, WEIR_CAPTURE_RELAXED));
    ok(b->capture_begin(0, two, WEIR_CAPTURE_RELAXED));
    ok(b->event_record(0, event, one));
    assert_int_equal(b->stream_wait(0, two, event), WEIR_ERR_CAPTURE);
    assert_int_equal(b->capture_end(0, one, &graph), WEIR_ERR_CAPTURE);
    assert_int_equal(b->capture_end(0, two, &graph), WEIR_ERR_CAPTURE);
    assert_non_null(strstr(weir_error_text(), "merge"));
}

static void stream_in_a_capture_is_not_destroyed(void **state)
{
    (void)state;
    void *stream = new_stream(0), *graph;
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    assert_int_equal(b->stream_destroy(0, stream), WEIR_ERR_CAPTURE);
    ok(b->capture_end(0, stream, &graph));
    ok(b->stream_destroy(0, stream));
}

static void capture_left_open_is_closed_with_the_device(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    char *memory = new_segment(0, 4096);
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_GLOBAL));
    ok(b->fill(0, stream, memory, 1, 1));
    host_close(NULL);
    host_open(NULL);
}

static void worker_that_went_idle_is_replaced(void **state)
{
    (void)state;
    void *stream = new_stream(0);
    atomic_int count = 0;
    struct timespec pause = { 0, 300000000 };
    ok(b->stream_callback(0, stream, count_up, &count));
    ok(b->stream_synchronize(0, stream));
    nanosleep(&pause, NULL);
    ok(b->stream_callback(0, stream, count_up, &count));
    ok(b->stream_synchronize(0, stream));
    assert_int_equal(atomic_load(&count), 2);
    nanosleep(&pause, NULL);
    ok(b->stream_destroy(0, stream));
}

static void objects_of_another_device_are_refused(void **state)
{
    (void)state;
    void *stream = new_stream(1), *event = new_event(1);
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_WRONG_DEVICE);
    assert_int_equal(b->event_query(0, event), WEIR_ERR_WRONG_DEVICE);
    assert_int_equal(b->event_record(0, event, NULL), WEIR_ERR_WRONG_DEVICE);
    assert_int_equal(b->event_query(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->stream_destroy(1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->stream_create(0, 1, &stream), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->stream_create(0, -6, &stream), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->stream_callback(0, NULL, NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        host_test(held_stream_only_queues),
        host_test(steps_run_so_many_items),
        host_test(event_on_a_held_idle_stream_is_pending),
        host_test(step_stops_at_a_wait_for_another_stream),
        host_test(release_leaves_blocked_work_to_the_stream),
        host_test(default_stream_can_be_held),
        host_test(step_of_a_running_stream_is_refused),
        host_test(destroyed_held_stream_runs_its_work),
        host_test(closing_drops_what_is_held),
        host_test(copy_on_an_idle_stream_is_done_at_once),
        host_test(graph_with_callbacks_does_not_run_in_the_caller),
        host_test(launches_of_one_graph_do_not_overlap),
        host_test(launch_inside_a_capture_is_recorded),
        host_test(capture_ends_in_the_thread_that_began_it),
        host_test(capture_that_would_merge_with_another_invalidates_both),
        host_test(stream_in_a_capture_is_not_destroyed),
        host_test(capture_left_open_is_closed_with_the_device),
        host_test(worker_that_went_idle_is_replaced),
        host_test(objects_of_another_device_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
