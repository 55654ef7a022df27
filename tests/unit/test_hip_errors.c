#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "unit/hip_support.h"
#include "unit/vendor_lost.h"

static void codes_have_their_meaning(void **state)
{
    (void)state;
    static const struct {
        hipError_t code;
        weir_status status;
    } expected[] = {
        { 1, WEIR_ERR_INVALID_ARGUMENT },  { 2, WEIR_ERR_OUT_OF_MEMORY },    { 3, WEIR_ERR_DRIVER },
        { 17, WEIR_ERR_INVALID_ARGUMENT }, { 98, WEIR_ERR_DRIVER },          { 101, WEIR_ERR_NO_DEVICE },
        { 201, WEIR_ERR_DRIVER },          { 217, WEIR_ERR_NOT_SUPPORTED },  { 400, WEIR_ERR_INVALID_ARGUMENT },
        { 401, WEIR_ERR_CAPTURE },         { 709, WEIR_ERR_INVALID_STREAM }, { 916, WEIR_ERR_INVALID_STREAM },
        { 801, WEIR_ERR_NOT_SUPPORTED },   { 900, WEIR_ERR_CAPTURE },        { 901, WEIR_ERR_CAPTURE },
        { 902, WEIR_ERR_CAPTURE },         { 903, WEIR_ERR_CAPTURE },        { 904, WEIR_ERR_CAPTURE },
        { 905, WEIR_ERR_CAPTURE },         { 906, WEIR_ERR_CAPTURE },        { 907, WEIR_ERR_CAPTURE },
        { 908, WEIR_ERR_WRONG_THREAD },    { 999, WEIR_ERR_DRIVER },         { 1052, WEIR_ERR_DRIVER },
        { 12345, WEIR_ERR_DRIVER },
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        void *event = &event;
        standin_fail("hipEventCreateWithFlags", 1, expected[i].code);
        assert_int_equal(b->event_create(0, &event), expected[i].status);
        assert_ptr_equal(event, &event);
        assert_int_equal(native_code(), expected[i].code);
        ok(b->event_destroy(0, new_event())); /* none of these ends the device */
    }
}

static void text_names_call_code_and_remedy(void **state)
{
    (void)state;
    void *base;
    standin_fail("hipMalloc", 1, 2);
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "hipMalloc on device 0"));
    assert_non_null(strstr(weir_error_text(), "hipErrorOutOfMemory, 2"));
    assert_non_null(strstr(weir_error_text(), "amd-smi process"));
}

static void text_says_whether_a_capture_is_lost(void **state)
{
    (void)state;
    for (int code = 900; code <= 907; code++) {
        void *event;
        standin_fail("hipEventCreateWithFlags", 1, code);
        assert_int_equal(b->event_create(0, &event), WEIR_ERR_CAPTURE);
        const bool lost = strstr(weir_error_text(), "the capture is lost") != NULL;
        assert_int_equal(lost, code >= 901 && code <= 904);
        assert_int_equal(!lost, strstr(weir_error_text(), "end the capture, then call again") != NULL);
    }
}

static void text_names_the_call_that_failed_for_an_event(void **state)
{
    (void)state;
    void *event = new_event();
    ok(b->event_record(0, event, NULL));
    standin_fail("hipEventElapsedTime", 1, 999);
    assert_int_equal(b->event_query(0, event), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "hipEventElapsedTime on device 0"));
    standin_fail("hipEventElapsedTime", 1, 400); /* as an event that was never recorded */
    standin_fail("hipEventQuery", 1, 999);
    assert_int_equal(b->event_synchronize(0, event), WEIR_ERR_DRIVER);
    assert_non_null(strstr(weir_error_text(), "hipEventQuery on device 0"));
    ok(b->event_destroy(0, event));
}

static void not_ready_is_no_error(void **state)
{
    (void)state;
    void *event = new_event(), *untouched;
    standin_fail("hipEventCreateWithFlags", 1, 801);
    assert_int_equal(b->event_create(0, &untouched), WEIR_ERR_NOT_SUPPORTED);
    standin_fail("hipEventQuery", 1, 600);
    assert_int_equal(b->event_query(0, event), WEIR_ERR_NOT_READY);
    assert_int_equal(native_code(), 801);
    ok(b->event_query(0, event));
    ok(b->event_destroy(0, event));
}

static void pinned_memory_runs_out_on_the_host(void **state)
{
    (void)state;
    void *base = &base;
    standin_fail("hipHostMalloc", 1, 2);
    assert_int_equal(b->pinned_alloc(0, 4096, &base), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ptr_equal(base, &base);
    assert_int_equal(native_code(), 2);
}

static void more_than_the_device_has_is_not_asked_for(void **state)
{
    (void)state;
    void *base;
    weir_chunk chunk;
    unsigned long before = standin_calls(NULL);
    assert_int_equal(b->segment_alloc(0, (size_t)1 << 60, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(b->vm_create(0, (size_t)1 << 60, &chunk), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(standin_calls(NULL), before);
}

static void what_cannot_be_is_not_asked_for(void **state)
{
    (void)state;
    const unsigned long before = standin_calls(NULL);
    refuse_what_cannot_be();
    assert_int_equal(standin_calls(NULL), before);
}

static void copies_and_fills_of_no_bytes_are_not_asked_for(void **state)
{
    (void)state;
    const unsigned long before = standin_calls("hipMemcpyAsync") + standin_calls("hipMemsetAsync");
    ok(b->copy(0, NULL, NULL, NULL, 0));
    ok(b->fill(0, NULL, NULL, 1, 0));
    assert_int_equal(standin_calls("hipMemcpyAsync") + standin_calls("hipMemsetAsync"), before);
}

static void refused_hint_is_no_failure(void **state)
{
    (void)state;
    void *base, *other;
    ok(b->vm_reserve(0, 4 * MIB, 0, &base));
    standin_fail("hipMemAddressReserve", 1, 2);
    ok(b->vm_reserve(0, 4 * MIB, (uintptr_t)base, &other));
    assert_ptr_not_equal(other, base);
    ok(b->vm_release(0, base, 4 * MIB));
    ok(b->vm_release(0, other, 4 * MIB));
}

/* ---- codes that end a device ------------------------------------------------------------------------------------- */

static void codes_that_end_the_device_lose_it(void **state)
{
    (void)state;
    static const hipError_t codes[] = { 4, 214, 700, 702, 710, 719 };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        weir_device_caps caps;
        lose(codes[i]);
        assert_int_equal(b->device_close(0), WEIR_ERR_DEVICE_LOST);
        ok(b->device_set_current(0)); /* for other code, which may use it */
        ok(b->device_open(0, &caps));
        ok(b->event_destroy(0, new_event()));
    }
}

static void lost_device_is_not_asked_again(void **state)
{
    (void)state;
    void *stream = new_stream();
    lose(700);
    unsigned long before = standin_calls(NULL);
    assert_lost(stream, "hipErrorIllegalAddress");
    assert_int_equal(standin_calls(NULL), before);
}

static void streams_kept_by_a_lost_device_end_with_it(void **state)
{
    (void)state;
    const uint64_t before = wr_meta_live();
    ok(b->stream_destroy(0, new_stream()));
    lose(700);
    assert_int_equal(b->device_close(0), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(wr_meta_live(), before);
}

static void a_destroyed_stream_loses_nothing(void **state)
{
    (void)state;
    void *stream = new_stream();
    standin_fail("hipStreamQuery", 1, 709);
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_INVALID_STREAM);
    ok(b->stream_query(0, stream));
    ok(b->stream_destroy(0, stream));
}

static const struct CMUnitTest tests[] = {
    hip_test(codes_have_their_meaning),
    hip_test(text_names_call_code_and_remedy),
    hip_test(text_says_whether_a_capture_is_lost),
    hip_test(text_names_the_call_that_failed_for_an_event),
    hip_test(not_ready_is_no_error),
    hip_test(pinned_memory_runs_out_on_the_host),
    hip_test(more_than_the_device_has_is_not_asked_for),
    hip_test(what_cannot_be_is_not_asked_for),
    hip_test(copies_and_fills_of_no_bytes_are_not_asked_for),
    hip_test(refused_hint_is_no_failure),
    hip_test(codes_that_end_the_device_lose_it),
    hip_test(lost_device_is_not_asked_again),
    hip_test(first_reason_stays),
    hip_test(other_devices_go_on),
    hip_test(memory_of_others_is_not_made_reachable_for_a_lost_device),
    hip_test(streams_kept_by_a_lost_device_end_with_it),
    hip_test(a_destroyed_stream_loses_nothing),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
