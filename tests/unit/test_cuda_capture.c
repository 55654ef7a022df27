#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/cuda_support.h"
#include "unit/vendor_capture.h"

/* Polling without the exchange of the capture mode ends the capture: the rule that all of this is about. */
static void *poll_directly(void *event)
{
    driver_ok(wr_cu.cuCtxSetCurrent(wr_cuda.devices[0].context));
    return (void *)(intptr_t)wr_cu.cuEventQuery(event);
}

static void direct_poll_kills_a_capture_of_another_thread(void **state)
{
    (void)state;
    void *event = new_event();
    begin(WEIR_CAPTURE_GLOBAL);
    assert_int_equal((intptr_t)in_a_thread(poll_directly, event), 900);
    assert_int_equal(state_of(origin), WEIR_CAPTURE_INVALIDATED);
    end_badly(901);
    begin(WEIR_CAPTURE_THREAD_LOCAL);
    assert_int_equal((intptr_t)in_a_thread(poll_directly, event), 0);
    end_well();
    begin(WEIR_CAPTURE_RELAXED);
    assert_int_equal((intptr_t)poll_directly(event), 0);
    end_well();
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    ok(b->event_destroy(0, event));
}

static void captures_survive_closing_another_device(void **state)
{
    (void)state;
    weir_device_caps caps;
    begin(WEIR_CAPTURE_GLOBAL);
    ok(b->device_open(1, &caps));
    ok(b->device_close(1));
    end_well();
}

static void scope_protects_other_peoples_calls(void **state)
{
    (void)state;
    weir_backend_scope scope;
    CUdeviceptr base;
    begin(WEIR_CAPTURE_GLOBAL);
    ok(b->scope_enter(0, &scope));
    driver_ok(wr_cu.cuMemAlloc(&base, MIB));
    driver_ok(wr_cu.cuMemFree(base));
    b->scope_leave(&scope);
    end_well();

    begin(WEIR_CAPTURE_GLOBAL);
    driver_ok(wr_cu.cuCtxSetCurrent(wr_cuda.devices[0].context));
    assert_int_equal(wr_cu.cuMemAlloc(&base, MIB), 900); /* the same outside a scope */
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    end_badly(901);
}

static void default_stream_is_in_no_capture(void **state)
{
    (void)state;
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
    assert_int_equal(state_of((void *)1), WEIR_CAPTURE_NONE);
    void *node;
    size_t count;
    assert_int_equal(b->capture_tips(0, NULL, &node, 1, &count), WEIR_ERR_CAPTURE);
    assert_int_equal(b->capture_tips(0, (void *)1, &node, 1, &count), WEIR_ERR_CAPTURE);
}

static void default_stream_is_not_to_be_used_while_a_blocking_one_captures(void **state)
{
    (void)state;
    CUstream blocking;
    driver_ok(wr_cu.cuCtxSetCurrent(wr_cuda.devices[0].context));
    driver_ok(wr_cu.cuStreamCreateWithPriority(&blocking, 0, 0));
    origin = blocking;
    ok(b->capture_begin(0, origin, WEIR_CAPTURE_GLOBAL));
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_IMPLICIT);
    assert_int_equal(state_of((void *)1), WEIR_CAPTURE_IMPLICIT);
    end_well();
    assert_int_equal(state_of(NULL), WEIR_CAPTURE_NONE);
}

/* Edges that do not wait for the whole node before them (programmatic launches) must not be reported as if they did. */
static void partial_edges_are_not_supported(void **state)
{
    (void)state;
    void *node = &node;
    size_t count = 7;
    begin(WEIR_CAPTURE_GLOBAL);
    standin_fail("cuStreamGetCaptureInfo", 1, WR_CUDA_ERROR_LOSSY_QUERY);
    assert_int_equal(b->capture_tips(0, origin, &node, 1, &count), WEIR_ERR_NOT_SUPPORTED);
    standin_fail("cuGraphNodeGetDependencies", 1, WR_CUDA_ERROR_LOSSY_QUERY);
    assert_int_equal(b->node_dependencies(0, origin, &node, 1, &count), WEIR_ERR_NOT_SUPPORTED);
    assert_ptr_equal(node, &node);
    assert_int_equal(count, 7);
    end_well();
}

static const struct CMUnitTest tests[] = {
    cuda_test(direct_poll_kills_a_capture_of_another_thread),
    cuda_test(captures_survive_everything_else),
    cuda_test(captures_survive_closing_another_device),
    cuda_test(scope_protects_other_peoples_calls),
    cuda_test(ending_in_another_thread_is_refused),
    cuda_test(relaxed_capture_ends_in_any_thread),
    cuda_test(unjoined_work_gives_no_graph),
    cuda_test(default_stream_is_in_no_capture),
    cuda_test(default_stream_is_not_to_be_used_while_a_blocking_one_captures),
    cuda_test(array_with_room_to_spare_needs_one_call),
    cuda_test(partial_edges_are_not_supported),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
