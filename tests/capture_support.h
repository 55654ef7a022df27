/*
 * capture_support: beginning and ending captures on whatever back end is open. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_CAPTURE_SUPPORT_H
#define WEIR_TESTS_CAPTURE_SUPPORT_H

#include "assert_weir.h"
#include "weir/weir.h"

static inline weir_graph begin_in(weir_stream stream, weir_mempool pool)
{
    weir_graph graph = { 0 };
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = pool;
    options.mode = WEIR_CAPTURE_RELAXED;
    assert_ok(weir_graph_begin(stream, &options, &graph));
    return graph;
}

static inline weir_graph begin_on(weir_stream stream)
{
    return begin_in(stream, (weir_mempool){ 0, 0 });
}

static inline void launch_and_wait(weir_graph graph, weir_stream stream)
{
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_stream_synchronize(stream));
}

/* Ends a capture that nothing has invalidated, and with it the graph. */
static inline void end_unharmed(weir_graph graph, weir_stream stream)
{
    assert_ok(weir_graph_end(graph));
    launch_and_wait(graph, stream);
    assert_ok(weir_graph_destroy(graph));
}

#endif
