/*
 * A captured graph with memory of its own works on weights in a pool that is paused between uses: the pool's memory
 * goes back to the driver, its addresses and contents are kept, and the graph is launched again afterwards.
 */
#include <stdio.h>
#include <weir/weir.h>

enum { BYTES = 1 << 20 };

static weir_mempool make_weights(void)
{
    weir_mempool pool;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = WEIR_MEMORY_MAPPED;
    snprintf(options.tag, sizeof options.tag, "weights");
    WEIR_CHECK(weir_mempool_create(&options, &pool));
    return pool;
}

/* The scratch memory belongs to the graph: freed in the capture, it is reused only there. */
static weir_graph capture(weir_stream stream, const void *weights, void *result)
{
    void *scratch;
    weir_graph graph;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    WEIR_CHECK(weir_graph_begin(stream, &options, &graph));
    WEIR_CHECK(weir_alloc_on(BYTES, stream, &scratch));
    WEIR_CHECK(weir_copy(scratch, weights, BYTES, stream));
    WEIR_CHECK(weir_copy(result, scratch, BYTES, stream));
    WEIR_CHECK(weir_free(scratch));
    WEIR_CHECK(weir_graph_end(graph));
    return graph;
}

int main(void)
{
    weir_stream stream;
    void *weights, *result, *host;
    const weir_mempool pool = make_weights();
    WEIR_CHECK(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    WEIR_CHECK(weir_alloc_from(pool, BYTES, stream, &weights));
    WEIR_CHECK(weir_alloc_on(BYTES, stream, &result));
    WEIR_CHECK(weir_pinned_alloc(BYTES, WEIR_NUMA_ANY, &host));
    WEIR_CHECK(weir_fill(weights, 42, BYTES, stream));
    const weir_graph graph = capture(stream, weights, result);

    WEIR_CHECK(weir_pause(0, "weights", WEIR_PAUSE_KEEP)); /* waits for the device first */
    weir_mempool_info info = { .size = sizeof info };
    WEIR_CHECK(weir_mempool_info_get(pool, &info));
    printf("paused: %s\n", info.paused ? "yes" : "no");
    WEIR_CHECK(weir_resume(0, "weights"));

    WEIR_CHECK(weir_graph_launch(graph, stream));
    WEIR_CHECK(weir_copy(host, result, BYTES, stream));
    WEIR_CHECK(weir_stream_synchronize(stream));
    const int last = ((unsigned char *)host)[BYTES - 1];
    printf("result %d\n", last);

    WEIR_CHECK(weir_graph_destroy(graph));
    WEIR_CHECK(weir_mempool_unref(pool)); /* the weights are still allocated and stay valid */
    WEIR_CHECK(weir_free(weights));
    WEIR_CHECK(weir_close());
    return last == 42 ? 0 : 1;
}
