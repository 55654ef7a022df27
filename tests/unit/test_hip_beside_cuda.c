#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/hip_support.h"

#include "backend/cuda/cuda_internal.h"

/* A process with both vendors' runtimes, as of a program built for either: two back ends that share nothing. */
static const weir_backend *const cuda = &wr_backend_cuda;

static int open_both(void **state)
{
    weir_device_caps caps;
    setenv("WEIR_LIB_CUDA", CUDA_STANDIN, 1);
    open_hip(state);
    ok(cuda->open(&vendor_config));
    ok(cuda->device_open(0, &caps));
    assert_non_null(strstr(caps.name, "CUDA"));
    return 0;
}

static int close_both(void **state)
{
    ok(cuda->close());
    return close_vendor(state);
}

static void each_has_devices_and_streams_of_its_own(void **state)
{
    (void)state;
    void *theirs, *ours = new_stream(), *memory, *other;
    ok(cuda->stream_create(0, 0, &theirs));
    ok(b->segment_alloc(0, 2 * MIB, &memory));
    ok(cuda->segment_alloc(0, 2 * MIB, &other));
    ok(b->fill(0, ours, memory, 1, 2 * MIB));
    ok(cuda->fill(0, theirs, other, 2, 2 * MIB));
    ok(b->stream_synchronize(0, ours));
    ok(cuda->stream_synchronize(0, theirs));
    assert_int_equal(((unsigned char *)memory)[17], 1);
    assert_int_equal(((unsigned char *)other)[17], 2);
    assert_int_not_equal(b->segment_free(0, other, 2 * MIB), WEIR_OK);
    ok(b->segment_free(0, memory, 2 * MIB));
    ok(cuda->segment_free(0, other, 2 * MIB));
    ok(b->stream_destroy(0, ours));
    ok(cuda->stream_destroy(0, theirs));
}

static void a_capture_of_one_does_not_affect_the_other(void **state)
{
    (void)state;
    void *stream = new_stream(), *graph, *base;
    ok(b->capture_begin(0, stream, WEIR_CAPTURE_GLOBAL));
    ok(cuda->segment_alloc(0, 2 * MIB, &base));
    ok(cuda->segment_free(0, base, 2 * MIB));
    ok(cuda->device_synchronize(0));
    ok(b->capture_end(0, stream, &graph));
    ok(b->graph_destroy(0, graph));
    ok(b->stream_destroy(0, stream));
}

static void current_devices_do_not_mix(void **state)
{
    (void)state;
    weir_device_caps caps;
    int current;
    ok(b->device_open(1, &caps));
    ok(b->device_set_current(1));
    ok(cuda->device_get_current(&current));
    assert_int_equal(current, 0);
    ok(cuda->device_set_current(0));
    ok(b->device_get_current(&current));
    assert_int_equal(current, 1);
    ok(b->device_set_current(0));
}

#define both_test(test) cmocka_unit_test_setup_teardown(test, open_both, close_both)

int main(void)
{
    const struct CMUnitTest tests[] = {
        both_test(each_has_devices_and_streams_of_its_own),
        both_test(a_capture_of_one_does_not_affect_the_other),
        both_test(current_devices_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
