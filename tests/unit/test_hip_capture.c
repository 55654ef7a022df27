#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/hip_support.h"
#include "unit/vendor_capture.h"

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

/* ---- what weir makes of them ------------------------------------------------------------------------------------- */

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

static void a_refused_wait_is_not_said_to_lose_the_capture(void **state)
{
    (void)state;
    void *event = new_event(), *other = new_stream();
    origin = new_stream();
    ok(b->event_record(0, event, origin));
    ok(b->capture_begin(0, origin, WEIR_CAPTURE_RELAXED));
    assert_int_equal(b->stream_wait(0, other, event), WEIR_ERR_CAPTURE);
    assert_int_equal(native_code(), 905);
    assert_null(strstr(weir_error_text(), "lost"));
    end_well();
    ok(b->stream_destroy(0, other));
    ok(b->event_destroy(0, event));
}

static void what_puts_a_stream_right_leaves_no_graph(void **state)
{
    const unsigned long ends = standin_calls("hipStreamEndCapture"), destroyed = standin_calls("hipGraphDestroy");
    unjoined_work_gives_no_graph(state);
    assert_int_equal(standin_calls("hipStreamEndCapture") - ends, 2); /* the second one gives a graph */
    assert_int_equal(standin_calls("hipGraphDestroy") - destroyed, 1);
}

/* The runtime would end the capture; the stand-in refuses. */
static void a_capturing_stream_is_destroyed_and_not_kept(void **state)
{
    (void)state;
    const unsigned long destroyed = standin_calls("hipStreamDestroy");
    begin(WEIR_CAPTURE_RELAXED);
    assert_int_equal(b->stream_destroy(0, origin), WEIR_ERR_CAPTURE);
    assert_int_equal(standin_calls("hipStreamDestroy") - destroyed, 1);
    end_well();
    assert_int_equal(standin_calls("hipStreamDestroy") - destroyed, 1);
}

static const struct CMUnitTest tests[] = {
    hip_test(direct_allocation_ends_a_capture_of_another_thread),
    hip_test(direct_event_query_ends_no_capture),
    hip_test(direct_query_of_an_event_of_the_capturing_stream_ends_the_capture),
    hip_test(synchronizing_a_device_ends_captures_of_every_mode),
    hip_test(unjoined_work_gives_no_graph),
    hip_test(what_puts_a_stream_right_leaves_no_graph),
    hip_test(a_refused_wait_is_not_said_to_lose_the_capture),
    hip_test(a_capturing_stream_is_destroyed_and_not_kept),
    hip_test(captures_survive_everything_else),
    hip_test(scope_protects_other_peoples_calls),
    hip_test(ending_in_another_thread_is_refused),
    hip_test(relaxed_capture_ends_in_any_thread),
    hip_test(default_stream_is_in_no_capture),
    hip_test(default_stream_is_not_to_be_used_while_a_blocking_one_captures),
    hip_test(array_with_room_to_spare_needs_one_call),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
