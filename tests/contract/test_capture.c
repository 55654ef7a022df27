#include "contract/contract.h"

#include <pthread.h>
#include <stdatomic.h>

static void *origin, *side;
static char *memory;

static int set_up(void **state)
{
    (void)state;
    if (b->capture_begin == NULL) return 0;
    origin = new_stream(0);
    side = new_stream(0);
    memory = new_segment(0, 2 * MIB);
    fill_now(0, memory, 0, 4096);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (b->capture_begin == NULL) return 0;
    ok(b->device_synchronize(0));
    ok(b->stream_destroy(0, origin));
    ok(b->stream_destroy(0, side));
    ok(b->segment_free(0, memory, 2 * MIB));
    return 0;
}

static void begin(void)
{
    if (b->capture_begin == NULL) skip();
    ok(b->capture_begin(0, origin, WEIR_CAPTURE_GLOBAL));
}

static weir_capture_state state_of(void *stream)
{
    weir_capture_state now;
    uint64_t id;
    ok(b->capture_status(0, stream, &now, &id));
    return now;
}

/* Ends a capture that was invalidated: no graph, and the stream works again. */
static void expect_invalidated(void)
{
    void *graph = &graph;
    assert_int_equal(state_of(origin), WEIR_CAPTURE_INVALIDATED);
    assert_int_equal(b->capture_end(0, origin, &graph), WEIR_ERR_CAPTURE);
    assert_ptr_equal(graph, &graph);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_NONE);
    ok(b->stream_synchronize(0, origin));
}

/* Ends a capture that must have survived. */
static void *expect_graph(void)
{
    void *graph, *exec;
    ok(b->capture_end(0, origin, &graph));
    ok(b->graph_instantiate(0, graph, &exec));
    ok(b->graph_destroy(0, graph));
    return exec;
}

static void launch_and_wait(void *exec)
{
    ok(b->graph_launch(0, exec, origin));
    ok(b->stream_synchronize(0, origin));
}

static void captured_work_does_not_run(void **state)
{
    (void)state;
    begin();
    assert_int_equal(state_of(origin), WEIR_CAPTURE_ACTIVE);
    assert_int_equal(state_of(side), WEIR_CAPTURE_NONE);
    ok(b->fill(0, origin, memory, 7, 16));
    void *exec = expect_graph();
    assert_int_equal(state_of(origin), WEIR_CAPTURE_NONE);
    ok(b->device_synchronize(0));
    assert_int_equal(byte_at(0, memory, 0), 0);
    ok(b->graph_exec_destroy(0, exec));
}

static void every_launch_runs_it_again(void **state)
{
    (void)state;
    begin();
    ok(b->fill(0, origin, memory, 7, 16));
    ok(b->copy(0, origin, memory + 1024, memory, 16));
    void *exec = expect_graph();
    for (int i = 0; i < 2; i++) {
        fill_now(0, memory, 0, 4096);
        launch_and_wait(exec);
        assert_int_equal(byte_at(0, memory, 15), 7);
        assert_int_equal(byte_at(0, memory, 1039), 7);
    }
    ok(b->graph_exec_destroy(0, exec));
}

static void count_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void callbacks_run_at_every_launch(void **state)
{
    (void)state;
    atomic_int count = 0;
    begin();
    ok(b->stream_callback(0, origin, count_up, &count));
    void *exec = expect_graph();
    assert_int_equal(atomic_load(&count), 0);
    launch_and_wait(exec);
    launch_and_wait(exec);
    assert_int_equal(atomic_load(&count), 2);
    ok(b->graph_exec_destroy(0, exec));
}

static void launch_is_ordered_in_its_stream(void **state)
{
    (void)state;
    gate g;
    begin();
    ok(b->fill(0, origin, memory, 7, 16));
    void *exec = expect_graph();
    gate_close(&g, 0, side);
    ok(b->graph_launch(0, exec, side));
    assert_int_equal(byte_at(0, memory, 0), 0);
    gate_open(&g);
    ok(b->stream_synchronize(0, side));
    assert_int_equal(byte_at(0, memory, 0), 7);
    gate_end(&g);
    ok(b->graph_exec_destroy(0, exec));
}

static void events_join_streams_into_the_capture(void **state)
{
    (void)state;
    void *fork = new_event(0), *join = new_event(0);
    begin();
    ok(b->fill(0, origin, memory, 1, 16));
    ok(b->event_record(0, fork, origin));
    ok(b->stream_wait(0, side, fork));
    assert_int_equal(state_of(side), WEIR_CAPTURE_ACTIVE);
    ok(b->copy(0, side, memory + 1024, memory, 16));
    ok(b->event_record(0, join, side));
    ok(b->stream_wait(0, origin, join));
    ok(b->copy(0, origin, memory + 2048, memory + 1024, 16));
    void *exec = expect_graph();
    assert_int_equal(state_of(side), WEIR_CAPTURE_NONE);
    assert_int_equal(byte_at(0, memory, 0), 0);
    launch_and_wait(exec);
    assert_int_equal(byte_at(0, memory, 2048), 1);
    ok(b->graph_exec_destroy(0, exec));
    ok(b->event_destroy(0, fork));
    ok(b->event_destroy(0, join));
}

static void streams_of_a_capture_share_its_id(void **state)
{
    (void)state;
    void *fork = new_event(0), *join = new_event(0), *graph;
    weir_capture_state now;
    uint64_t one = 0, two = 0, three = 0;
    begin();
    ok(b->event_record(0, fork, origin));
    ok(b->stream_wait(0, side, fork));
    ok(b->capture_status(0, origin, &now, &one));
    ok(b->capture_status(0, side, &now, &two));
    assert_int_equal(one, two);
    ok(b->event_record(0, join, side));
    ok(b->stream_wait(0, origin, join));
    ok(b->capture_end(0, origin, &graph));
    ok(b->graph_destroy(0, graph));
    begin();
    ok(b->capture_status(0, origin, &now, &three));
    assert_int_not_equal(one, three);
    ok(b->capture_end(0, origin, &graph));
    ok(b->graph_destroy(0, graph));
    ok(b->event_destroy(0, fork));
    ok(b->event_destroy(0, join));
}

static void unjoined_work_invalidates(void **state)
{
    (void)state;
    void *fork = new_event(0), *graph = &graph;
    begin();
    ok(b->event_record(0, fork, origin));
    ok(b->stream_wait(0, side, fork));
    ok(b->fill(0, side, memory, 9, 16));
    assert_int_equal(b->capture_end(0, origin, &graph), WEIR_ERR_CAPTURE);
    assert_ptr_equal(graph, &graph);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_NONE);
    assert_int_equal(state_of(side), WEIR_CAPTURE_NONE);
    ok(b->stream_synchronize(0, side));
    assert_int_equal(byte_at(0, memory, 0), 0);
    ok(b->event_destroy(0, fork));
}

static void querying_the_capturing_stream_invalidates(void **state)
{
    (void)state;
    begin();
    assert_int_equal(b->stream_query(0, origin), WEIR_ERR_CAPTURE);
    expect_invalidated();
}

static void synchronizing_the_capturing_stream_invalidates(void **state)
{
    (void)state;
    begin();
    assert_int_equal(b->stream_synchronize(0, origin), WEIR_ERR_CAPTURE);
    expect_invalidated();
}

static void querying_a_captured_event_invalidates(void **state)
{
    (void)state;
    void *event = new_event(0);
    begin();
    ok(b->event_record(0, event, origin));
    assert_int_equal(b->event_query(0, event), WEIR_ERR_CAPTURE);
    expect_invalidated();
    ok(b->event_destroy(0, event));
}

static void synchronizing_the_device_invalidates(void **state)
{
    (void)state;
    begin();
    assert_int_equal(b->device_synchronize(0), WEIR_ERR_CAPTURE);
    expect_invalidated();
}

static void waiting_for_work_outside_invalidates(void **state)
{
    (void)state;
    void *event = new_event(0);
    begin();
    ok(b->event_record(0, event, side));
    assert_int_equal(b->stream_wait(0, origin, event), WEIR_ERR_CAPTURE);
    expect_invalidated();
    ok(b->event_destroy(0, event));
}

static void work_on_an_invalidated_capture_is_refused(void **state)
{
    (void)state;
    begin();
    assert_int_equal(b->stream_query(0, origin), WEIR_ERR_CAPTURE);
    assert_int_equal(b->fill(0, origin, memory, 1, 16), WEIR_ERR_CAPTURE);
    expect_invalidated();
    assert_int_equal(byte_at(0, memory, 0), 0);
}

/* Everything that an allocator does besides the capture. */
static void bystand(void)
{
    void *event = new_event(0), *stream = new_stream(0), *segment, *pinned;
    void *on_device = new_segment(0, 2 * MIB);
    uint64_t free_bytes, total, now;
    ok(b->event_record(0, event, stream));
    weir_status status = b->event_query(0, event);
    assert_true(status == WEIR_OK || status == WEIR_ERR_NOT_READY);
    ok(b->event_synchronize(0, event));
    ok(b->stream_query(0, stream));
    ok(b->stream_synchronize(0, stream));
    ok(b->stream_query(0, NULL));
    ok(b->segment_alloc(0, 4 * MIB, &segment));
    ok(b->segment_free(0, segment, 4 * MIB));
    ok(b->pinned_alloc(0, 4096, &pinned));
    ok(b->pinned_free(0, pinned, 4096));
    ok(b->device_memory(0, &free_bytes, &total));
    ok(b->clock_ns(&now));
    ok(b->segment_free(0, on_device, 2 * MIB));
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
}

static void uninvolved_calls_do_not_harm_a_capture(void **state)
{
    (void)state;
    begin();
    ok(b->fill(0, origin, memory, 3, 16));
    bystand();
    assert_int_equal(state_of(origin), WEIR_CAPTURE_ACTIVE);
    void *exec = expect_graph();
    launch_and_wait(exec);
    assert_int_equal(byte_at(0, memory, 0), 3);
    ok(b->graph_exec_destroy(0, exec));
}

static void *bystand_thread(void *argument)
{
    bystand();
    return argument;
}

static void uninvolved_calls_of_another_thread_do_not_harm_it(void **state)
{
    (void)state;
    pthread_t thread;
    begin();
    assert_int_equal(pthread_create(&thread, NULL, bystand_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_ACTIVE);
    ok(b->graph_exec_destroy(0, expect_graph()));
}

static void beginning_twice_is_refused(void **state)
{
    (void)state;
    begin();
    assert_int_equal(b->capture_begin(0, origin, WEIR_CAPTURE_GLOBAL), WEIR_ERR_CAPTURE);
    void *graph;
    weir_status status = b->capture_end(0, origin, &graph);
    if (status == WEIR_OK) ok(b->graph_destroy(0, graph));
    assert_int_equal(state_of(origin), WEIR_CAPTURE_NONE);
}

static void ending_without_beginning_is_refused(void **state)
{
    (void)state;
    if (b->capture_begin == NULL) skip();
    void *graph = &graph;
    refused(b->capture_end(0, origin, &graph));
    assert_ptr_equal(graph, &graph);
}

static void default_stream_is_not_captured(void **state)
{
    (void)state;
    if (b->capture_begin == NULL) skip();
    refused(b->capture_begin(0, NULL, WEIR_CAPTURE_GLOBAL));
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
}

static void event_is_usable_again_after_the_capture(void **state)
{
    (void)state;
    void *event = new_event(0);
    begin();
    ok(b->event_record(0, event, origin));
    void *exec = expect_graph();
    ok(b->event_record(0, event, origin));
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    ok(b->graph_exec_destroy(0, exec));
    ok(b->event_destroy(0, event));
}

static void empty_capture_gives_an_empty_graph(void **state)
{
    (void)state;
    begin();
    void *exec = expect_graph();
    launch_and_wait(exec);
    ok(b->graph_exec_destroy(0, exec));
}

static void running_graph_can_be_destroyed(void **state)
{
    (void)state;
    gate g;
    atomic_int count = 0;
    begin();
    ok(b->stream_callback(0, origin, count_up, &count));
    void *exec = expect_graph();
    gate_close(&g, 0, origin);
    ok(b->graph_launch(0, exec, origin));
    ok(b->graph_exec_destroy(0, exec));
    gate_open(&g);
    ok(b->stream_synchronize(0, origin));
    assert_int_equal(atomic_load(&count), 1);
    gate_end(&g);
}

#define capture_test(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    capture_test(captured_work_does_not_run),
    capture_test(every_launch_runs_it_again),
    capture_test(callbacks_run_at_every_launch),
    capture_test(launch_is_ordered_in_its_stream),
    capture_test(events_join_streams_into_the_capture),
    capture_test(streams_of_a_capture_share_its_id),
    capture_test(unjoined_work_invalidates),
    capture_test(querying_the_capturing_stream_invalidates),
    capture_test(synchronizing_the_capturing_stream_invalidates),
    capture_test(querying_a_captured_event_invalidates),
    capture_test(synchronizing_the_device_invalidates),
    capture_test(waiting_for_work_outside_invalidates),
    capture_test(work_on_an_invalidated_capture_is_refused),
    capture_test(uninvolved_calls_do_not_harm_a_capture),
    capture_test(uninvolved_calls_of_another_thread_do_not_harm_it),
    capture_test(beginning_twice_is_refused),
    capture_test(ending_without_beginning_is_refused),
    capture_test(default_stream_is_not_captured),
    capture_test(event_is_usable_again_after_the_capture),
    capture_test(empty_capture_gives_an_empty_graph),
    capture_test(running_graph_can_be_destroyed),
};

CONTRACT_MAIN(tests)
