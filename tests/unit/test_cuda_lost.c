#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/cuda_support.h"
#include "unit/vendor_lost.h"

static void reopen(void)
{
    weir_device_caps caps;
    assert_int_equal(b->device_close(0), WEIR_ERR_DEVICE_LOST);
    assert_false(has_context(0));
    ok(b->device_open(0, &caps));
    ok(b->event_destroy(0, new_event()));
}

static void codes_that_end_the_context_lose_the_device(void **state)
{
    (void)state;
    static const CUresult codes[] = { 4, 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911 };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        lose(codes[i]);
        reopen();
    }
}

static void lost_device_is_not_asked_again(void **state)
{
    (void)state;
    void *stream = new_stream();
    lose(700);
    unsigned long before = standin_calls("cuCtxSetCurrent") + standin_calls("cuThreadExchangeStreamCaptureMode");
    unsigned long events = standin_calls("cuEventCreate"), frees = standin_calls("cuMemFree");
    assert_lost(stream, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(standin_calls("cuCtxSetCurrent") + standin_calls("cuThreadExchangeStreamCaptureMode"), before);
    assert_int_equal(standin_calls("cuEventCreate"), events);
    assert_int_equal(standin_calls("cuMemFree"), frees);
}

static void lost_device_is_released_and_can_be_opened_again(void **state)
{
    (void)state;
    lose(700);
    reopen();
}

static void context_that_ends_beside_the_primary_one_is_a_streams(void **state)
{
    (void)state;
    void *stream = new_stream();
    static const CUresult codes[] = { 709, 917 }; /* the latter since CUDA 13.1 */
    for (int i = 0; i < 2; i++) {
        standin_fail("cuStreamQuery", 1, codes[i]);
        assert_int_equal(b->stream_query(0, stream), WEIR_ERR_INVALID_STREAM);
        assert_int_equal(native_code(), codes[i]);
        assert_non_null(strstr(weir_error_text(), "green context"));
        ok(b->stream_query(0, stream));
    }
    ok(b->stream_destroy(0, stream));
}

/* Which it does not tell from one that was made anew. */
static void context_that_ends_under_an_old_driver_is_the_primary_one(void **state)
{
    (void)state;
    wr_cuda.devices[0].generation = 0;
    lose(709);
    reopen();
}

static void reset_by_others_is_noticed(void **state)
{
    (void)state;
    void *stream = new_stream();
    driver_ok(standin_reset(0));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(native_code(), 709);
    reopen();
}

/* So newer drivers call a context that was destroyed. */
static void a_context_that_cannot_be_made_current_is_lost(void **state)
{
    (void)state;
    void *stream = new_stream();
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    standin_fail("cuCtxSetCurrent", 1, WR_CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(native_code(), WR_CUDA_ERROR_CONTEXT_IS_DESTROYED);
    reopen();
}

/* The new context has the old one's address, and nothing of ours is in it. */
static void context_made_anew_by_others_is_noticed(void **state)
{
    (void)state;
    void *stream = new_stream();
    CUcontext theirs;
    driver_ok(standin_reset(0));
    driver_ok(wr_cu.cuDevicePrimaryCtxRetain(&theirs, 0));
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_close(0), WEIR_ERR_DEVICE_LOST);
    assert_true(has_context(0)); /* our retain is gone, theirs is not */
    driver_ok(wr_cu.cuDevicePrimaryCtxRelease(0));
    assert_false(has_context(0));
}

static const struct CMUnitTest tests[] = {
    cuda_test(codes_that_end_the_context_lose_the_device),
    cuda_test(lost_device_is_not_asked_again),
    cuda_test(first_reason_stays),
    cuda_test(other_devices_go_on),
    cuda_test(memory_of_others_is_not_made_reachable_for_a_lost_device),
    cuda_test(lost_device_is_released_and_can_be_opened_again),
    cuda_test(context_that_ends_beside_the_primary_one_is_a_streams),
    cuda_test(context_that_ends_under_an_old_driver_is_the_primary_one),
    cuda_test(reset_by_others_is_noticed),
    cuda_test(a_context_that_cannot_be_made_current_is_lost),
    cuda_test(context_made_anew_by_others_is_noticed),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
