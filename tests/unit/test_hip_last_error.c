#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/hip_support.h"

/* ROCm 7 clears a thread's last error only when it is read. */
static int open_new(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(HIP_STANDIN_7);
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
    return 0;
}

static hipError_t last_error(void)
{
    return wr_hip_runtime.hipGetLastError();
}

static void a_refused_call_leaves_no_last_error(void **state)
{
    (void)state;
    void *base;
    standin_fail("hipMalloc", 1, 2);
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(last_error(), 0);
}

static void a_stream_that_cannot_be_asked_leaves_no_last_error(void **state)
{
    (void)state;
    void *first = new_stream(), *second;
    ok(b->stream_destroy(0, first)); /* kept for the next */
    standin_fail("hipStreamQuery", 1, 400);
    second = new_stream();
    assert_ptr_not_equal(second, first);
    assert_int_equal(last_error(), 0);
    ok(b->stream_destroy(0, second));
}

static void a_refused_hint_leaves_no_last_error(void **state)
{
    (void)state;
    void *base, *other;
    ok(b->vm_reserve(0, 4 * MIB, 0, &base));
    standin_fail("hipMemAddressReserve", 1, 2);
    ok(b->vm_reserve(0, 4 * MIB, (uintptr_t)base, &other));
    assert_int_equal(last_error(), 0);
    ok(b->vm_release(0, base, 4 * MIB));
    ok(b->vm_release(0, other, 4 * MIB));
}

static void an_unsupported_query_leaves_no_last_error(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_close(0));
    standin_fail("hipDeviceGetAttribute", 1, 1);
    ok(b->device_open(0, &caps));
    assert_int_equal(last_error(), 0);
}

/* An error that the program has not read yet is the program's. */
static void fail_as_program(void)
{
    int current;
    standin_fail("hipGetDevice", 1, 1);
    assert_int_equal(wr_hip_runtime.hipGetDevice(&current), 1);
}

static void a_call_that_succeeds_leaves_the_programs_last_error(void **state)
{
    (void)state;
    void *base;
    fail_as_program();
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->segment_free(0, base, 2 * MIB));
    assert_int_equal(last_error(), 1);
}

static void unfinished_work_leaves_the_programs_last_error(void **state)
{
    (void)state;
    void *event = new_event();
    ok(b->event_record(0, event, NULL));
    fail_as_program();
    standin_fail("hipEventElapsedTime", 1, 600);
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    assert_int_equal(last_error(), 1);
    ok(b->event_destroy(0, event));
}

static void an_event_that_was_never_recorded_leaves_no_last_error(void **state)
{
    (void)state;
    void *event = new_event();
    ok(b->event_query(0, event));
    assert_int_equal(last_error(), 0);
    ok(b->event_destroy(0, event));
}

#define new_test(test) cmocka_unit_test_setup_teardown(test, open_new, close_vendor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        new_test(a_refused_call_leaves_no_last_error),
        new_test(a_stream_that_cannot_be_asked_leaves_no_last_error),
        new_test(a_refused_hint_leaves_no_last_error),
        new_test(an_unsupported_query_leaves_no_last_error),
        new_test(a_call_that_succeeds_leaves_the_programs_last_error),
        new_test(unfinished_work_leaves_the_programs_last_error),
        new_test(an_event_that_was_never_recorded_leaves_no_last_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
