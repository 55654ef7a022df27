#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/cuda_support.h"

static void codes_have_their_meaning(void **state)
{
    (void)state;
    static const struct {
        CUresult code;
        weir_status status;
    } expected[] = {
        { 1, WEIR_ERR_INVALID_ARGUMENT },
        { 2, WEIR_ERR_OUT_OF_MEMORY },
        { 3, WEIR_ERR_DRIVER },
        { 46, WEIR_ERR_BUSY },
        { 101, WEIR_ERR_NO_DEVICE },
        { 201, WEIR_ERR_DRIVER },
        { 217, WEIR_ERR_NOT_SUPPORTED },
        { 304, WEIR_ERR_DRIVER },
        { 400, WEIR_ERR_INVALID_ARGUMENT },
        { 401, WEIR_ERR_CAPTURE },
        { 402, WEIR_ERR_NOT_SUPPORTED },
        { 701, WEIR_ERR_DRIVER },
        { 712, WEIR_ERR_INVALID_ARGUMENT },
        { 713, WEIR_ERR_UNKNOWN_POINTER },
        { 800, WEIR_ERR_NOT_SUPPORTED },
        { 801, WEIR_ERR_NOT_SUPPORTED },
        { 803, WEIR_ERR_INCOMPATIBLE },
        { 900, WEIR_ERR_CAPTURE },
        { 901, WEIR_ERR_CAPTURE },
        { 902, WEIR_ERR_CAPTURE },
        { 903, WEIR_ERR_CAPTURE },
        { 904, WEIR_ERR_CAPTURE },
        { 905, WEIR_ERR_CAPTURE },
        { 906, WEIR_ERR_CAPTURE },
        { 907, WEIR_ERR_CAPTURE },
        { 908, WEIR_ERR_WRONG_THREAD },
        { 909, WEIR_ERR_TIMEOUT },
        { 999, WEIR_ERR_DRIVER },
        { 12345, WEIR_ERR_DRIVER },
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        void *event = &event;
        standin_fail("cuEventCreate", 1, expected[i].code);
        assert_int_equal(b->event_create(0, &event), expected[i].status);
        assert_ptr_equal(event, &event);
        assert_int_equal(native_code(), expected[i].code);
        event = new_event(); /* none of these ends the device */
        ok(b->event_destroy(0, event));
    }
}

static void text_names_call_code_and_remedy(void **state)
{
    (void)state;
    void *base;
    standin_fail("cuMemAlloc", 1, 2);
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "cuMemAlloc on device 0"));
    assert_non_null(strstr(weir_error_text(), "CUDA_ERROR_OUT_OF_MEMORY, 2"));
    assert_non_null(strstr(weir_error_text(), "nvidia-smi"));
}

static void text_says_whether_a_capture_is_lost(void **state)
{
    (void)state;
    for (int code = 900; code <= 907; code++) {
        void *event;
        standin_fail("cuEventCreate", 1, code);
        assert_int_equal(b->event_create(0, &event), WEIR_ERR_CAPTURE);
        const bool lost = strstr(weir_error_text(), "the capture is lost") != NULL;
        assert_int_equal(lost, code >= 901 && code <= 905);
        assert_int_equal(!lost, strstr(weir_error_text(), "end the capture, then call again") != NULL);
    }
}

static void code_without_a_name_is_shown_as_a_number(void **state)
{
    (void)state;
    void *event;
    standin_fail("cuEventCreate", 1, 12345);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "unknown error (unnamed code, 12345)"));
}

static void not_ready_is_no_error(void **state)
{
    (void)state;
    void *event = new_event(), *untouched;
    standin_fail("cuEventCreate", 1, 801);
    assert_int_equal(b->event_create(0, &untouched), WEIR_ERR_NOT_SUPPORTED);
    standin_fail("cuEventQuery", 1, 600);
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    assert_int_equal(native_code(), 801);
    ok(b->event_query(0, event));
    ok(b->event_destroy(0, event));
}

static void pinned_memory_runs_out_on_the_host(void **state)
{
    (void)state;
    void *base = &base;
    standin_fail("cuMemHostAlloc", 1, 2);
    assert_int_equal(b->pinned_alloc(0, 4096, &base), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ptr_equal(base, &base);
    assert_int_equal(native_code(), 2);
    static char page[4096] __attribute__((aligned(4096)));
    standin_fail("cuMemHostRegister", 1, 2);
    assert_int_equal(b->host_register(0, page, sizeof page), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(native_code(), 2);
    ok(b->host_register(0, page, sizeof page));
    ok(b->host_unregister(0, page, sizeof page));
}

static void more_than_the_device_has_is_not_asked_for(void **state)
{
    (void)state;
    void *base;
    weir_chunk chunk;
    unsigned long before = standin_calls(NULL);
    assert_int_equal(b->segment_alloc(0, (size_t)1 << 60, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(b->vm_create(0, (size_t)1 << 60, &chunk), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(b->vm_create_exportable(0, (size_t)1 << 60, &chunk), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(standin_calls(NULL), before);
}

static void what_cannot_be_is_not_asked_for(void **state)
{
    (void)state;
    const unsigned long before = standin_calls(NULL);
    refuse_what_cannot_be();
    assert_int_equal(b->host_register(0, (void *)1, 4096), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(standin_calls(NULL), before);
}

static void copies_and_fills_of_no_bytes_are_not_asked_for(void **state)
{
    (void)state;
    const unsigned long before = standin_calls("cuMemcpyAsync") + standin_calls("cuMemsetD8Async");
    ok(b->copy(0, NULL, NULL, NULL, 0));
    ok(b->fill(0, NULL, NULL, 1, 0));
    assert_int_equal(standin_calls("cuMemcpyAsync") + standin_calls("cuMemsetD8Async"), before);
}

static void taken_hint_is_no_failure(void **state)
{
    (void)state;
    void *base, *other;
    ok(b->vm_reserve(0, 4 * MIB, 0, &base));
    standin_fail("cuMemAddressReserve", 1, 2);
    ok(b->vm_reserve(0, 4 * MIB, (uintptr_t)base, &other));
    assert_ptr_not_equal(other, base);
    ok(b->vm_release(0, base, 4 * MIB));
    ok(b->vm_release(0, other, 4 * MIB));
}

static void failed_open_of_a_device_leaves_no_context(void **state)
{
    (void)state;
    static const char *const calls[] = { "cuDevicePrimaryCtxRetain",
                                         "cuCtxGetId",
                                         "cuCtxSetCurrent",
                                         "cuDeviceGetName",
                                         "cuMemGetInfo",
                                         "cuCtxGetStreamPriorityRange",
                                         "cuDeviceGetAttribute",
                                         "cuMemGetAllocationGranularity" };
    weir_device_caps caps = { .total_memory = 77 };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        standin_fail(calls[i], 1, 999);
        assert_int_equal(b->device_open(1, &caps), WEIR_ERR_DRIVER);
        assert_int_equal(caps.total_memory, 77);
        assert_false(has_context(1));
        assert_null(current_context());
    }
    ok(b->device_open(1, &caps));
    ok(b->device_close(1));
}

static void closed_device_is_refused(void **state)
{
    (void)state;
    void *event;
    assert_int_equal(b->event_create(1, &event), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->device_close(1), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->device_set_current(1), WEIR_ERR_INVALID_ARGUMENT);
}

static void devices_open_once(void **state)
{
    (void)state;
    weir_device_caps caps;
    assert_int_equal(b->device_open(0, &caps), WEIR_ERR_BUSY);
    assert_int_equal(b->device_open(2, &caps), WEIR_ERR_NO_DEVICE);
}

static const struct CMUnitTest tests[] = {
    cuda_test(codes_have_their_meaning),
    cuda_test(text_names_call_code_and_remedy),
    cuda_test(text_says_whether_a_capture_is_lost),
    cuda_test(code_without_a_name_is_shown_as_a_number),
    cuda_test(not_ready_is_no_error),
    cuda_test(pinned_memory_runs_out_on_the_host),
    cuda_test(more_than_the_device_has_is_not_asked_for),
    cuda_test(what_cannot_be_is_not_asked_for),
    cuda_test(copies_and_fills_of_no_bytes_are_not_asked_for),
    cuda_test(taken_hint_is_no_failure),
    cuda_test(failed_open_of_a_device_leaves_no_context),
    cuda_test(closed_device_is_refused),
    cuda_test(devices_open_once),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
