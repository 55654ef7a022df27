#include "contract/contract.h"
#include "thread_support.h"

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

/* Some drivers cannot capture a callback (ROCm's before 5.3): they say so, and the capture goes on. */
static void capture_counting(atomic_int *count)
{
    weir_status status = b->stream_callback(0, origin, count_up, count);
    if (status == WEIR_ERR_NOT_SUPPORTED) {
        ok(b->graph_exec_destroy(0, expect_graph()));
        skip();
    }
    ok(status);
}

static void callbacks_run_at_every_launch(void **state)
{
    (void)state;
    atomic_int count = 0;
    begin();
    capture_counting(&count);
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

static void asking_about_work_before_the_capture_is_harmless(void **state)
{
    (void)state;
    void *event = new_event(0);
    ok(b->fill(0, origin, memory, 2, 16));
    ok(b->event_record(0, event, origin));
    begin();
    weir_status status = b->event_query(0, event);
    assert_true(status == WEIR_OK || status == WEIR_ERR_NOT_READY);
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    assert_int_equal(state_of(origin), WEIR_CAPTURE_ACTIVE);
    ok(b->graph_exec_destroy(0, expect_graph()));
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
    if (strcmp(b->name, "hip") == 0) skip(); /* it says nothing, and the graph does not wait */
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

static void bystand_with_optional_memory(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *pages = aligned_alloc(bytes, bytes), *managed;
    assert_non_null(pages);
    if (b->host_register != NULL) {
        ok(b->host_register(0, pages, bytes));
        ok(b->host_unregister(0, pages, bytes));
    }
    free(pages);
    weir_status status = b->managed_alloc != NULL ? b->managed_alloc(0, 2 * MIB, &managed) : WEIR_ERR_NOT_SUPPORTED;
    if (status == WEIR_ERR_NOT_SUPPORTED) return;
    ok(status);
    ok(b->managed_free(0, managed, 2 * MIB));
}

/* Everything that an allocator may do beside the capture. */
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
    bystand_with_optional_memory();
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
    begin();
    (void)in_a_thread(bystand_thread, NULL);
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

/* Streams of a back end do not synchronise with the default one. */
static void default_stream_is_usable_beside_a_capture(void **state)
{
    (void)state;
    begin();
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
    ok(b->fill(0, NULL, memory, 1, 16));
    ok(b->graph_exec_destroy(0, expect_graph()));
    ok(b->stream_synchronize(0, NULL));
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
    capture_counting(&count);
    void *exec = expect_graph();
    gate_close(&g, 0, origin);
    ok(b->graph_launch(0, exec, origin));
    ok(b->graph_exec_destroy(0, exec));
    gate_open(&g);
    ok(b->stream_synchronize(0, origin));
    assert_int_equal(atomic_load(&count), 1);
    gate_end(&g);
}

/* ---- the order inside a capture ---------------------------------------------------------------------------------- */

#define NODES 32

static void begin_ordered(void)
{
    if (b->capture_tips == NULL) skip();
    begin();
}

/* How many nodes the stream's next work would depend on, and the first of them. */
static size_t tips_of(void *stream, void **nodes)
{
    size_t count = SIZE_MAX;
    ok(b->capture_tips(0, stream, nodes, NODES, &count));
    assert_true(count <= NODES);
    return count;
}

/* The stream's only tip. */
static void *tip_of(void *stream)
{
    void *nodes[NODES];
    assert_int_equal(tips_of(stream, nodes), 1);
    return nodes[0];
}

static bool is_in(void *node, void *const *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == node) return true;
    return false;
}

/* Whether the node is one of the stream's tips or comes before one. */
static bool is_before_the_tips(void *stream, void *node)
{
    void *seen[NODES], *before[NODES];
    size_t count = tips_of(stream, seen), more;
    for (size_t i = 0; i < count; i++) {
        ok(b->node_dependencies(0, seen[i], before, NODES, &more));
        assert_true(more <= NODES);
        for (size_t j = 0; j < more; j++) {
            if (is_in(before[j], seen, count)) continue;
            assert_true(count < NODES);
            seen[count++] = before[j];
        }
    }
    return is_in(node, seen, count);
}

static void *mark(void *stream)
{
    ok(b->fill(0, stream, memory, 1, 16));
    return tip_of(stream);
}

static void follow(void *stream, void *of, void *event)
{
    ok(b->event_record(0, event, of));
    ok(b->stream_wait(0, stream, event));
}

static void fresh_capture_has_no_tips(void **state)
{
    (void)state;
    void *nodes[NODES];
    begin_ordered();
    assert_int_equal(tips_of(origin, nodes), 0);
    ok(b->graph_exec_destroy(0, expect_graph()));
}

static void work_on_one_stream_is_a_chain(void **state)
{
    (void)state;
    void *node[4], *before[NODES];
    size_t count;
    begin_ordered();
    for (int i = 0; i < 4; i++) node[i] = mark(origin);
    ok(b->node_dependencies(0, node[0], before, NODES, &count));
    assert_int_equal(count, 0);
    for (int i = 1; i < 4; i++) {
        ok(b->node_dependencies(0, node[i], before, NODES, &count));
        assert_int_equal(count, 1);
        assert_ptr_equal(before[0], node[i - 1]);
    }
    assert_true(is_before_the_tips(origin, node[0]));
    ok(b->graph_exec_destroy(0, expect_graph()));
}

static void forked_stream_comes_after_the_fork_only(void **state)
{
    (void)state;
    void *fork = new_event(0), *join = new_event(0);
    begin_ordered();
    void *first = mark(origin);
    follow(side, origin, fork);
    assert_ptr_equal(tip_of(side), first);
    void *second = mark(origin), *beside = mark(side);
    assert_true(is_before_the_tips(side, first));
    assert_false(is_before_the_tips(side, second));
    assert_false(is_before_the_tips(origin, beside));
    follow(origin, side, join);
    ok(b->graph_exec_destroy(0, expect_graph()));
    ok(b->event_destroy(0, fork));
    ok(b->event_destroy(0, join));
}

static void joined_stream_comes_after_both(void **state)
{
    (void)state;
    void *fork = new_event(0), *join = new_event(0), *nodes[NODES];
    begin_ordered();
    void *first = mark(origin);
    follow(side, origin, fork);
    void *second = mark(origin), *beside = mark(side);
    follow(origin, side, join);
    assert_int_equal(tips_of(origin, nodes), 2);
    assert_true(is_in(second, nodes, 2));
    assert_true(is_in(beside, nodes, 2));
    void *last = mark(origin);
    assert_true(is_before_the_tips(origin, last));
    assert_true(is_before_the_tips(origin, second));
    assert_true(is_before_the_tips(origin, beside));
    assert_true(is_before_the_tips(origin, first));
    assert_ptr_equal(tip_of(side), beside);
    ok(b->graph_exec_destroy(0, expect_graph()));
    ok(b->event_destroy(0, fork));
    ok(b->event_destroy(0, join));
}

/* Many forks and joins in a row do not stop the walk. */
static void joins_of_joins_are_seen_through(void **state)
{
    (void)state;
    void *event = new_event(0);
    begin_ordered();
    void *first = mark(origin);
    for (int i = 0; i < 5; i++) {
        follow(side, origin, event);
        mark(side);
        if (i % 2) mark(origin);
        follow(origin, side, event);
    }
    void *last = mark(origin);
    assert_true(is_before_the_tips(origin, first));
    follow(side, origin, event);
    assert_true(is_before_the_tips(side, last));
    assert_true(is_before_the_tips(side, first));
    follow(origin, side, event);
    ok(b->graph_exec_destroy(0, expect_graph()));
    ok(b->event_destroy(0, event));
}

static void too_little_room_tells_the_number(void **state)
{
    (void)state;
    void *fork = new_event(0), *join = new_event(0), *all[NODES];
    size_t count = 0;
    begin_ordered();
    follow(side, origin, fork);
    mark(origin), mark(side);
    follow(origin, side, join);
    assert_int_equal(tips_of(origin, all), 2);
    for (size_t capacity = 0; capacity < 2; capacity++) {
        void *nodes[2] = { &count, &count };
        ok(b->capture_tips(0, origin, nodes, capacity, &count));
        assert_int_equal(count, 2);
        assert_ptr_equal(nodes[capacity], &count);
        if (capacity > 0) assert_true(is_in(nodes[0], all, 2));
    }
    void *last = mark(origin);
    for (size_t capacity = 0; capacity < 2; capacity++) {
        void *nodes[2] = { &count, &count };
        ok(b->node_dependencies(0, last, nodes, capacity, &count));
        assert_int_equal(count, 2);
        assert_ptr_equal(nodes[capacity], &count);
        if (capacity > 0) assert_true(is_in(nodes[0], all, 2));
    }
    ok(b->capture_tips(0, origin, NULL, 0, &count));
    assert_int_equal(count, 1);
    void *nodes[2] = { &count, &count };
    ok(b->capture_tips(0, origin, nodes, 2, &count));
    assert_ptr_equal(nodes[0], last);
    assert_ptr_equal(nodes[1], &count);
    ok(b->graph_exec_destroy(0, expect_graph()));
    ok(b->event_destroy(0, fork));
    ok(b->event_destroy(0, join));
}

static void only_capturing_streams_have_tips(void **state)
{
    (void)state;
    void *nodes[1] = { nodes };
    size_t count = 7;
    begin_ordered();
    assert_int_equal(b->capture_tips(0, side, nodes, 1, &count), WEIR_ERR_CAPTURE);
    assert_int_equal(b->capture_tips(0, NULL, nodes, 1, &count), WEIR_ERR_CAPTURE);
    ok(b->graph_exec_destroy(0, expect_graph()));
    assert_int_equal(b->capture_tips(0, origin, nodes, 1, &count), WEIR_ERR_CAPTURE);
    begin();
    assert_int_equal(b->stream_query(0, origin), WEIR_ERR_CAPTURE);
    assert_int_equal(b->capture_tips(0, origin, nodes, 1, &count), WEIR_ERR_CAPTURE);
    expect_invalidated();
    refused(b->node_dependencies(0, NULL, nodes, 1, &count));
    assert_int_equal(count, 7);
    assert_ptr_equal(nodes[0], nodes);
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
    capture_test(asking_about_work_before_the_capture_is_harmless),
    capture_test(synchronizing_the_device_invalidates),
    capture_test(waiting_for_work_outside_invalidates),
    capture_test(work_on_an_invalidated_capture_is_refused),
    capture_test(uninvolved_calls_do_not_harm_a_capture),
    capture_test(uninvolved_calls_of_another_thread_do_not_harm_it),
    capture_test(beginning_twice_is_refused),
    capture_test(ending_without_beginning_is_refused),
    capture_test(default_stream_is_not_captured),
    capture_test(default_stream_is_usable_beside_a_capture),
    capture_test(event_is_usable_again_after_the_capture),
    capture_test(empty_capture_gives_an_empty_graph),
    capture_test(running_graph_can_be_destroyed),
    capture_test(fresh_capture_has_no_tips),
    capture_test(work_on_one_stream_is_a_chain),
    capture_test(forked_stream_comes_after_the_fork_only),
    capture_test(joined_stream_comes_after_both),
    capture_test(joins_of_joins_are_seen_through),
    capture_test(too_little_room_tells_the_number),
    capture_test(only_capturing_streams_have_tips),
};

CONTRACT_MAIN(tests)
