#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "unit/hip_support.h"

#include <stdatomic.h>

/* ROCm 5: the old layout of device properties, no virtual memory to rely on, and before 5.3 no hipLaunchHostFunc. */
static weir_device_caps caps;

static int open_old(void **state)
{
    (void)state;
    use_standin(HIP_STANDIN_5);
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
    return 0;
}

static void architecture_is_read_from_the_old_layout(void **state)
{
    (void)state;
    assert_null(wr_hip_runtime.hipGetDevicePropertiesR0600);
    assert_non_null(strstr(caps.name, "(gfx90a:sramecc+:xnack-)"));
    assert_int_equal(caps.compute_major, 9);
    assert_int_equal(caps.compute_minor, 0);
}

static void codes_have_weirs_words(void **state)
{
    (void)state;
    void *base;
    standin_fail("hipMalloc", 1, 2);
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), weir_status_text(WEIR_ERR_OUT_OF_MEMORY)));
    assert_non_null(strstr(weir_error_text(), "(hipErrorOutOfMemory, 2)"));
}

/* ROCm 5 has the functions, with structures that weir does not know. */
static void virtual_memory_is_not_used(void **state)
{
    (void)state;
    void *base;
    weir_chunk chunk;
    assert_int_equal(caps.granularity, 0);
    assert_null(wr_hip_runtime.hipMemCreate);
    assert_int_equal(b->vm_reserve(0, 2 * MIB, 0, &base), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_create(0, 2 * MIB, &chunk), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(standin_calls("hipMemCreate"), 0);
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->segment_free(0, base, 2 * MIB));
}

static void count_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void callbacks_run_without_the_newer_function(void **state)
{
    (void)state;
    atomic_int count = 0;
    void *stream = new_stream();
    const uint64_t before = wr_meta_live();
    assert_null(wr_hip_runtime.hipLaunchHostFunc);
    for (int i = 0; i < 20; i++) ok(b->stream_callback(0, stream, count_up, &count));
    ok(b->stream_synchronize(0, stream));
    assert_int_equal(atomic_load(&count), 20);
    assert_int_equal(wr_meta_live(), before);
    ok(b->stream_destroy(0, stream));
}

static void a_callback_in_a_capture_is_refused_and_the_capture_goes_on(void **state)
{
    (void)state;
    atomic_int count = 0;
    void *stream = new_stream(), *graph;
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_GLOBAL));
    assert_int_equal(b->stream_callback(0, stream, count_up, &count), WEIR_ERR_NOT_SUPPORTED);
    ok(b->capture_end(0, stream, &graph));
    ok(b->graph_destroy(0, graph));
    assert_int_equal(atomic_load(&count), 0);
    ok(b->stream_destroy(0, stream));
}

static void a_failed_callback_leaves_nothing(void **state)
{
    (void)state;
    atomic_int count = 0;
    void *stream = new_stream();
    const uint64_t live = wr_meta_live();
    standin_fail("hipStreamAddCallback", 1, 2);
    assert_int_equal(b->stream_callback(0, stream, count_up, &count), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(wr_meta_live(), live);
    ok(b->stream_synchronize(0, stream));
    assert_int_equal(atomic_load(&count), 0);
    ok(b->stream_destroy(0, stream));
}

/* The runtime takes any pointer for a stream, and may crash. */
static void the_runtime_is_not_asked_whose_a_stream_is(void **state)
{
    (void)state;
    void *stream = new_stream();
    const unsigned long calls = standin_calls("hipGetStreamDeviceId");
    ok(b->stream_check(0, stream));
    assert_int_equal(standin_calls("hipGetStreamDeviceId"), calls);
    ok(b->stream_destroy(0, stream));
}

#define old_test(test) cmocka_unit_test_setup_teardown(test, open_old, close_vendor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        old_test(architecture_is_read_from_the_old_layout),
        old_test(codes_have_weirs_words),
        old_test(virtual_memory_is_not_used),
        old_test(callbacks_run_without_the_newer_function),
        old_test(a_callback_in_a_capture_is_refused_and_the_capture_goes_on),
        old_test(a_failed_callback_leaves_nothing),
        old_test(the_runtime_is_not_asked_whose_a_stream_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
