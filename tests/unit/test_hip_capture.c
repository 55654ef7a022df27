#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "thread_support.h"
#include "unit/hip_support.h"

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

static void end_badly(hipError_t code)
{
    void *graph = &graph;
    assert_int_equal(b->capture_end(0, origin, &graph), WEIR_ERR_CAPTURE);
    assert_int_equal(native_code(), code);
    assert_ptr_equal(graph, &graph);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_NONE);
    ok(b->stream_synchronize(0, origin));
    ok(b->stream_destroy(0, origin));
}

/* ---- the runtime's rules, which are not quite CUDA's ------------------------------------------------------------- */

static void *alloc_directly(void *unused)
{
    void *base;
    (void)unused;
    return (void *)(intptr_t)wr_hip_runtime.hipMalloc(&base, MIB);
}

static void direct_allocation_ends_a_capture_of_another_thread(void **state)
{
    (void)state;
    begin(WEIR_CAPTURE_GLOBAL);
    assert_int_equal((intptr_t)in_a_thread(alloc_directly, NULL), 900);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_INVALIDATED);
    end_badly(901);
    begin(WEIR_CAPTURE_THREAD_LOCAL);
    assert_int_equal((intptr_t)in_a_thread(alloc_directly, NULL), 0);
    end_well();
    begin(WEIR_CAPTURE_RELAXED);
    assert_int_equal((intptr_t)alloc_directly(NULL), 0);
    end_well();
}

static void direct_event_query_ends_no_capture(void **state)
{
    (void)state;
    void *event = new_event();
    begin(WEIR_CAPTURE_GLOBAL);
    runtime_ok(wr_hip_runtime.hipEventQuery((hipEvent_t)event));
    end_well();
    ok(b->event_destroy(0, event));
}

/* Although it was recorded before the capture began, and whatever the thread's mode. */
static void direct_query_of_an_event_of_the_capturing_stream_ends_the_capture(void **state)
{
    (void)state;
    void *event = new_event();
    origin = new_stream();
    ok(b->event_record(0, event, origin));
    ok(b->capture_begin(0, origin, WEIR_CAPTURE_RELAXED));
    const hipStreamCaptureMode before = exchange(WR_hipStreamCaptureModeRelaxed);
    assert_int_equal(wr_hip_runtime.hipEventQuery((hipEvent_t)event), 907);
    exchange(before);
    end_badly(901);
    ok(b->event_destroy(0, event));
}

static void synchronizing_a_device_ends_captures_of_every_mode(void **state)
{
    (void)state;
    for (int mode = WEIR_CAPTURE_GLOBAL; mode <= WEIR_CAPTURE_RELAXED; mode++) {
        begin(mode);
        assert_int_equal(b->device_synchronize(0), WEIR_ERR_CAPTURE);
        end_badly(901);
    }
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

/* ---- what weir makes of them ------------------------------------------------------------------------------------- */

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

static void scope_protects_other_peoples_calls(void **state)
{
    (void)state;
    weir_backend_scope scope;
    void *base;
    begin(WEIR_CAPTURE_GLOBAL);
    ok(b->scope_enter(0, &scope));
    runtime_ok(wr_hip_runtime.hipMalloc(&base, MIB));
    runtime_ok(wr_hip_runtime.hipFree(base));
    b->scope_leave(&scope);
    end_well();

    begin(WEIR_CAPTURE_GLOBAL);
    assert_int_equal(wr_hip_runtime.hipMalloc(&base, MIB), 900); /* the same outside a scope */
    end_badly(901);
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
    begin(WEIR_CAPTURE_RELAXED);
    assert_int_equal((intptr_t)in_a_thread(end_elsewhere, NULL), WEIR_OK);
    ok(b->stream_destroy(0, origin));
}

static void default_stream_is_in_no_capture(void **state)
{
    (void)state;
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
    assert_int_equal(state_of((void *)1), WEIR_CAPTURE_NONE);
    begin(WEIR_CAPTURE_GLOBAL); /* of a stream that does not synchronise with it */
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
    end_well();
    standin_fail("hipStreamGetCaptureInfo", 1, 1); /* an answer that means nothing */
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
}

static void default_stream_is_not_to_be_used_while_a_blocking_one_captures(void **state)
{
    (void)state;
    hipStream_t blocking;
    runtime_ok(wr_hip_runtime.hipStreamCreateWithPriority(&blocking, 0, 0));
    origin = blocking;
    ok(b->capture_begin(0, origin, WEIR_CAPTURE_GLOBAL));
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_IMPLICIT);
    assert_int_equal(state_of((void *)1), WEIR_CAPTURE_IMPLICIT);
    end_well();
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
}

static const struct CMUnitTest tests[] = {
    hip_test(direct_allocation_ends_a_capture_of_another_thread),
    hip_test(direct_event_query_ends_no_capture),
    hip_test(direct_query_of_an_event_of_the_capturing_stream_ends_the_capture),
    hip_test(synchronizing_a_device_ends_captures_of_every_mode),
    hip_test(unjoined_work_gives_no_graph),
    hip_test(captures_survive_everything_else),
    hip_test(scope_protects_other_peoples_calls),
    hip_test(ending_in_another_thread_is_refused),
    hip_test(default_stream_is_in_no_capture),
    hip_test(default_stream_is_not_to_be_used_while_a_blocking_one_captures),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
