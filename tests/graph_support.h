/*
 * graph_support: shared by tests of captures. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_GRAPH_SUPPORT_H
#define WEIR_TESTS_GRAPH_SUPPORT_H

#include "pool_support.h"

#define SAME_POOL(a, b) ((a).capture == (b).capture && (a).user == (b).user)

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

static inline weir_status try_begin(weir_stream stream, weir_mempool pool, weir_graph *graph)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = pool;
    return weir_graph_begin(stream, &options, graph);
}

static inline weir_status try_adopt(weir_stream stream, weir_mempool pool, weir_graph *graph)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    options.pool = pool;
    return weir_graph_adopt(stream, &options, graph);
}

static inline weir_mempool pool_of(weir_graph graph)
{
    weir_mempool pool = { 0, 0 };
    assert_ok(weir_graph_pool(graph, &pool));
    return pool;
}

static inline void launch_and_wait(weir_graph graph, weir_stream stream)
{
    assert_ok(weir_graph_launch(graph, stream));
    assert_ok(weir_stream_synchronize(stream));
}

#endif
