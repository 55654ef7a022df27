#include "unit/host.h"

static void *begin(void)
{
    void *stream = new_stream(0);
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_RELAXED));
    return stream;
}

static void *record(void *stream)
{
    static char byte;
    void *node;
    size_t count;
    ok(b->fill(0, stream, &byte, 1, 1));
    ok(b->capture_tips(0, stream, &node, 1, &count));
    assert_int_equal(count, 1);
    return node;
}

static void end(void *stream)
{
    void *graph;
    ok(b->capture_end(0, stream, &graph));
    ok(b->graph_destroy(0, graph));
}

static void nodes_keep_their_names_while_a_capture_grows(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    void *stream = begin(), *node[COUNT], *before;
    size_t count;
    for (int i = 0; i < COUNT; i++) node[i] = record(stream);
    for (int i = 1; i < COUNT; i++) {
        ok(b->node_dependencies(0, node[i], &before, 1, &count));
        assert_int_equal(count, 1);
        assert_ptr_equal(before, node[i - 1]);
    }
    end(stream);
}

static void nodes_of_an_ended_capture_are_refused(void **state)
{
    (void)state;
    void *stream = begin(), *old = record(stream), *before = &before;
    size_t count = 7;
    end(stream);
    assert_int_equal(b->node_dependencies(0, old, &before, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    stream = begin();
    assert_ptr_not_equal(record(stream), old);
    assert_int_equal(b->node_dependencies(0, old, &before, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(count, 7);
    assert_ptr_equal(before, &before);
    end(stream);
}

static void captures_have_nodes_of_their_own(void **state)
{
    (void)state;
    void *one = begin(), *two = begin(), *before;
    void *first = record(one), *other = record(two), *second = record(one);
    size_t count;
    assert_ptr_not_equal(first, other);
    ok(b->node_dependencies(0, second, &before, 1, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(before, first);
    ok(b->node_dependencies(0, other, &before, 1, &count));
    assert_int_equal(count, 0);
    end(one);
    end(two);
}

static void unknown_nodes_are_refused(void **state)
{
    (void)state;
    void *stream = begin(), *before;
    char *node = record(stream);
    size_t count;
    assert_int_equal(b->node_dependencies(0, node + 1, &before, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->node_dependencies(0, node - 1, &before, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->node_dependencies(0, stream, &before, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    end(stream);
}

static void missing_out_parameters_are_refused(void **state)
{
    (void)state;
    void *stream = begin(), *node = record(stream);
    size_t count;
    assert_int_equal(b->capture_tips(0, stream, &node, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->capture_tips(0, stream, NULL, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->node_dependencies(0, node, &node, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->node_dependencies(0, node, NULL, 1, &count), WEIR_ERR_INVALID_ARGUMENT);
    end(stream);
}

/* A walk over nodes leaves the same marks by which unjoined work is found. */
static void asking_does_not_hide_unjoined_work(void **state)
{
    (void)state;
    void *origin = begin(), *side = new_stream(0), *event = new_event(0), *graph, *nodes[4];
    size_t count;
    record(origin);
    ok(b->event_record(0, event, origin));
    ok(b->stream_wait(0, side, event));
    void *unjoined = record(side);
    ok(b->node_dependencies(0, unjoined, nodes, 4, &count));
    assert_int_equal(b->capture_end(0, origin, &graph), WEIR_ERR_CAPTURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        host_test(nodes_keep_their_names_while_a_capture_grows),
        host_test(nodes_of_an_ended_capture_are_refused),
        host_test(captures_have_nodes_of_their_own),
        host_test(unknown_nodes_are_refused),
        host_test(missing_out_parameters_are_refused),
        host_test(asking_does_not_hide_unjoined_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
