/*
 * vendor_capture: captures on a stream of the cuda or hip back end, and tests of them that hold for both. Include after
 * cuda_support.h or hip_support.h.
 */
#ifndef WEIR_TESTS_VENDOR_CAPTURE_H
#define WEIR_TESTS_VENDOR_CAPTURE_H

#include "thread_support.h"

#include <unistd.h>

static void *origin;

static void begin(int mode)
{
    origin = new_stream();
    ok(b->capture_begin(0, origin, (weir_capture_mode)mode));
}

static weir_capture_state state_of(void *stream)
{
    weir_capture_state now;
    uint64_t id = 0;
    ok(b->capture_status(0, stream, &now, &id));
    assert_true(now != WEIR_CAPTURE_ACTIVE || id != 0);
    return now;
}

static void end_well(void)
{
    void *graph;
    assert_int_equal(state_of(origin), WEIR_CAPTURE_ACTIVE);
    ok(b->capture_end(0, origin, &graph));
    ok(b->graph_destroy(0, graph));
    ok(b->stream_destroy(0, origin));
}

static void end_badly(int code)
{
    void *graph = &graph;
    assert_int_equal(b->capture_end(0, origin, &graph), WEIR_ERR_CAPTURE);
    assert_int_equal(native_code(), code);
    assert_ptr_equal(graph, &graph);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_NONE);
    ok(b->stream_synchronize(0, origin));
    ok(b->stream_destroy(0, origin));
}

static void bystand_with_more_kinds(void)
{
    void *pages = aligned_alloc(4096, 4096), *managed;
    int descriptor;
    weir_chunk chunk, imported;
    if (b->host_register) {
        ok(b->host_register(0, pages, 4096));
        ok(b->host_unregister(0, pages, 4096));
    }
    free(pages);
    ok(b->managed_alloc(0, 4096, &managed));
    ok(b->managed_free(0, managed, 4096));
    if (!b->vm_create_exportable) return;
    ok(b->vm_create_exportable(0, 2 * MIB, &chunk));
    ok(b->vm_export(0, chunk, &descriptor));
    ok(b->vm_import(0, descriptor, 2 * MIB, &imported));
    close(descriptor);
    ok(b->vm_destroy(0, imported, 2 * MIB));
    ok(b->vm_destroy(0, chunk, 2 * MIB));
}

/* Every entry that a capture on another stream must survive. */
static void *bystand(void *unused)
{
    void *event = new_event(), *stream = new_stream(), *base, *pinned;
    uint64_t free_bytes, total;
    weir_chunk chunk;
    ok(b->event_record(0, event, stream));
    ok(b->stream_wait(0, stream, event));
    ok(b->event_synchronize(0, event));
    ok(b->event_query(0, event));
    ok(b->stream_synchronize(0, stream));
    ok(b->stream_query(0, stream));
    ok(b->stream_query(0, NULL));
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->fill(0, stream, base, 1, 2 * MIB));
    ok(b->copy(0, stream, base, (char *)base + 1024, 512));
    ok(b->stream_synchronize(0, stream));
    ok(b->segment_free(0, base, 2 * MIB));
    ok(b->pinned_alloc(0, 4096, &pinned));
    ok(b->pinned_free(0, pinned, 4096));
    ok(b->vm_reserve(0, 4 * MIB, 0, &base));
    ok(b->vm_create(0, 2 * MIB, &chunk));
    ok(b->vm_map(0, base, 2 * MIB, chunk));
    ok(b->vm_access(0, base, 2 * MIB, 0));
    ok(b->vm_unmap(0, base, 2 * MIB));
    ok(b->vm_destroy(0, chunk, 2 * MIB));
    ok(b->vm_release(0, base, 4 * MIB));
    bystand_with_more_kinds();
    ok(b->device_memory(0, &free_bytes, &total));
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
    return unused;
}

static void captures_survive_everything_else(void **state)
{
    (void)state;
    for (int mode = WEIR_CAPTURE_GLOBAL; mode <= WEIR_CAPTURE_RELAXED; mode++) {
        begin(mode);
        bystand(NULL);
        in_a_thread(bystand, NULL);
        end_well();
    }
}

static void *end_elsewhere(void *unused)
{
    (void)unused;
    void *graph;
    weir_status status = b->capture_end(0, origin, &graph);
    if (status == WEIR_OK) ok(b->graph_destroy(0, graph));
    return (void *)(intptr_t)status;
}

static void ending_in_another_thread_is_refused(void **state)
{
    (void)state;
    begin(WEIR_CAPTURE_GLOBAL);
    assert_int_equal((intptr_t)in_a_thread(end_elsewhere, NULL), WEIR_ERR_WRONG_THREAD);
    end_well();
}

static void relaxed_capture_ends_in_any_thread(void **state)
{
    (void)state;
    begin(WEIR_CAPTURE_RELAXED);
    assert_int_equal((intptr_t)in_a_thread(end_elsewhere, NULL), WEIR_OK);
    ok(b->stream_destroy(0, origin));
}

static void unjoined_work_gives_no_graph(void **state)
{
    (void)state;
    void *event = new_event(), *side = new_stream(), *base;
    ok(b->segment_alloc(0, 2 * MIB, &base));
    begin(WEIR_CAPTURE_GLOBAL);
    ok(b->event_record(0, event, origin));
    ok(b->stream_wait(0, side, event));
    ok(b->fill(0, side, base, 1, 16));
    end_badly(904);
    ok(b->stream_query(0, side));
    ok(b->stream_destroy(0, side));
    ok(b->event_destroy(0, event));
    ok(b->segment_free(0, base, 2 * MIB));
}

static void array_with_room_to_spare_needs_one_call(void **state)
{
    (void)state;
    void *base, *tip, *nodes[2];
    size_t count;
    ok(b->segment_alloc(0, 2 * MIB, &base));
    begin(WEIR_CAPTURE_GLOBAL);
    ok(b->fill(0, origin, base, 1, 16));
    ok(b->fill(0, origin, base, 2, 16));
    ok(b->capture_tips(0, origin, &tip, 1, &count));
    const unsigned long before = standin_calls(NODE_DEPENDENCIES);
    ok(b->node_dependencies(0, tip, nodes, 2, &count));
    assert_int_equal(count, 1);
    assert_int_equal(standin_calls(NODE_DEPENDENCIES), before + 1);
    ok(b->node_dependencies(0, tip, nodes, 1, &count));
    assert_int_equal(count, 1);
    assert_int_equal(standin_calls(NODE_DEPENDENCIES), before + 3);
    end_well();
    ok(b->segment_free(0, base, 2 * MIB));
}

#endif
