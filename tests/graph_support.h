/*
 * graph_support: shared by tests of captures. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_GRAPH_SUPPORT_H
#define WEIR_TESTS_GRAPH_SUPPORT_H

#include "capture_support.h"
#include "pool_support.h"

#define SAME_POOL(a, b) ((a).capture == (b).capture && (a).user == (b).user)

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

#endif
