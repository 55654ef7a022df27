/*
 * graph: captured graphs, by id, and the objects that each keeps alive: pools, handles, and others.
 * Owner: the device; a record lives until weir_graph_destroy or weir_close, and until calls that work on it have
 * returned. Locks: the table's (WR_RANK_LEAF) for finding; each graph's own (WR_RANK_GRAPH), held across driver calls,
 * for the rest.
 */
#ifndef WR_DEVICE_GRAPH_H
#define WR_DEVICE_GRAPH_H

#include "base/lock.h"
#include "stream/stream.h"

typedef struct wr_device wr_device;
typedef struct wr_graph wr_graph;

typedef struct wr_graphs {
    wr_lock lock;
    wr_graph **slots;
    uint32_t capacity;
} wr_graphs;

void wr_graphs_init(wr_graphs *graphs);

/* The calling thread ends: what it began, nobody else can end. */
void wr_graphs_leave(wr_device *device);

/* For weir_close: ends the captures that are underway, and later destroys all graphs. Each returns the first
 * failure. */
weir_status wr_graphs_end_captures(wr_device *device);
weir_status wr_graphs_end(wr_device *device);
void wr_graphs_release(wr_graphs *graphs);

/* Begins a capture on a stream of the device, or adopts one that the program has begun (`adopt`). */
WR_CHECKED weir_status wr_graph_open(wr_device *device, wr_stream *stream, weir_mempool pool, weir_capture_mode mode,
                                     bool adopt, weir_graph *out);

/* Finds and locks the graph of that id, until wr_graph_done(). WEIR_ERR_INVALID_ARGUMENT when there is none. */
WR_CHECKED weir_status wr_graph_enter(weir_graph id, wr_graph **out);
void wr_graph_done(wr_graph *graph);

/* Called between wr_graph_enter() and wr_graph_done(). */
WR_CHECKED weir_status wr_graph_end(wr_graph *graph);
WR_CHECKED weir_status wr_graph_launch(wr_graph *graph, wr_device *device, const wr_stream *stream);
WR_CHECKED weir_status wr_graph_retain(wr_graph *graph, weir_mempool pool);
weir_mempool wr_graph_pool(const wr_graph *graph);
void wr_graph_native(const wr_graph *graph, void **native, void **executable);

/* Destroys the graph of that id, whatever its state. Of concurrent callers one succeeds. WEIR_ERR_WRONG_THREAD: another
 * thread must end its capture; nothing has changed. */
weir_status wr_graph_destroy(weir_graph id);

#endif
