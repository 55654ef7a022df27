/*
 * Graphs as users see them: check, find the graph, call down.
 */
#include "device/graph.h"
#include "base/sized.h"
#include "thread/thread.h"

static weir_status open_graph(const char *call, weir_stream stream, const weir_graph_options *options, bool adopt,
                              weir_graph *out)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    wr_thread *t = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "%s: out is NULL", call);
    WR_TRY(wr_sized_check_in(call, "options", "WEIR_GRAPH_OPTIONS_INIT", options, sizeof *options));
    WR_ENSURE((unsigned)options->mode <= WEIR_CAPTURE_RELAXED, WEIR_ERR_INVALID_ARGUMENT,
              "%s: options.mode is %d, which is not a value of enum weir_capture_mode", call, (int)options->mode);
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    if (!adopt) WR_TRY(wr_thread_own(&t));
    if (t) t->captures = true;
    return wr_graph_open(device, s, options->pool, options->mode, adopt, out);
}

weir_status weir_graph_begin(weir_stream stream, const weir_graph_options *options, weir_graph *out)
{
    return open_graph("weir_graph_begin", stream, options, false, out);
}

weir_status weir_graph_adopt(weir_stream stream, const weir_graph_options *options, weir_graph *out)
{
    return open_graph("weir_graph_adopt", stream, options, true, out);
}

weir_status weir_graph_end(weir_graph graph)
{
    wr_graph *g = NULL;
    WR_TRY(wr_runtime_enter());
    WR_TRY(wr_graph_enter(graph, &g));
    weir_status status = wr_graph_end(g);
    wr_graph_done(g);
    return status;
}

weir_status weir_graph_launch(weir_graph graph, weir_stream stream)
{
    wr_device *device = NULL;
    wr_stream *s = NULL;
    wr_graph *g = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    WR_TRY(wr_graph_enter(graph, &g));
    weir_status status = wr_graph_launch(g, device, s);
    wr_graph_done(g);
    return status;
}

weir_status weir_graph_destroy(weir_graph graph)
{
    WR_TRY(wr_runtime_enter());
    return wr_graph_destroy(graph);
}

weir_status weir_graph_pool(weir_graph graph, weir_mempool *pool)
{
    wr_graph *g = NULL;
    WR_ENSURE(pool, WEIR_ERR_INVALID_ARGUMENT, "weir_graph_pool: pool is NULL");
    WR_TRY(wr_runtime_enter());
    WR_TRY(wr_graph_enter(graph, &g));
    *pool = wr_graph_pool(g);
    wr_graph_done(g);
    return WEIR_OK;
}

weir_status weir_graph_retain_pool(weir_graph graph, weir_mempool pool)
{
    wr_graph *g = NULL;
    WR_TRY(wr_runtime_enter());
    WR_TRY(wr_graph_enter(graph, &g));
    weir_status status = wr_graph_retain(g, pool);
    wr_graph_done(g);
    return status;
}

weir_status weir_graph_native(weir_graph graph, void **native, void **executable)
{
    wr_graph *g = NULL;
    WR_ENSURE(native && executable, WEIR_ERR_INVALID_ARGUMENT, "weir_graph_native: %s is NULL",
              native ? "executable" : "native");
    WR_TRY(wr_runtime_enter());
    WR_TRY(wr_graph_enter(graph, &g));
    wr_graph_native(g, native, executable);
    wr_graph_done(g);
    return WEIR_OK;
}
