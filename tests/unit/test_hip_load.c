#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/library.h"
#include "unit/hip_support.h"

#include <sys/wait.h>
#include <unistd.h>

static const weir_backend *opened;

static void calls_before_open_are_refused(void **state)
{
    (void)state;
    int count = 5;
    void *event;
    assert_int_equal(b->device_count(&count), WEIR_ERR_NO_DEVICE);
    assert_int_equal(count, 5);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_NO_DEVICE);
}

static void absent_library_is_named(void **state)
{
    (void)state;
    setenv("WEIR_LIB_HIP", "/nonexistent/libamdhip64.so.6", 1);
    assert_int_equal(wr_backend_open("hip", &vendor_config, &opened), WEIR_ERR_NO_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "WEIR_LIB_HIP"));
    assert_non_null(strstr(weir_error_text(), "/nonexistent/libamdhip64.so.6"));
}

static void auto_goes_on_without_the_library(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "/nonexistent/libcuda.so.1", 1);
    setenv("WEIR_LIB_HIP", "/nonexistent/libamdhip64.so.6", 1);
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_string_equal(opened->name, "host");
    ok(wr_backend_close(opened));
}

static void auto_takes_a_device(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "/nonexistent/libcuda.so.1", 1);
    use_standin(HIP_STANDIN_6);
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_string_equal(opened->name, "hip");
    ok(wr_backend_close(opened));
}

static void auto_takes_cuda_first(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", CUDA_STANDIN, 1);
    use_standin(HIP_STANDIN_6);
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_string_equal(opened->name, "cuda");
    ok(wr_backend_close(opened));
}

static void the_first_driver_that_fails_is_told_of(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "libm.so.6", 1);
    use_standin(HIP_STANDIN_6);
    standin_fail("hipInit", 1, 999);
    assert_int_equal(wr_backend_open("auto", &vendor_config, &opened), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "libm.so.6"));
}

static void a_driver_that_fails_once_is_taken(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "/nonexistent/libcuda.so.1", 1);
    use_standin(HIP_STANDIN_6);
    standin_fail("hipInit", 1, 999);
    opened = NULL;
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_ptr_equal(opened, b);
    assert_int_equal(wr_driver_calls[WEIR_BACKEND_open], 1);
    ok(wr_backend_close(opened));
}

static void library_that_is_no_runtime_is_named(void **state)
{
    (void)state;
    setenv("WEIR_LIB_HIP", "libm.so.6", 1);
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "hipInit"));
    assert_non_null(strstr(weir_error_text(), "libm.so.6"));
}

static void failing_initialisation_is_explained_and_tried_again(void **state)
{
    (void)state;
    static const struct {
        hipError_t code;
        weir_status status;
        const char *text;
    } expected[] = {
        { 35, WEIR_ERR_INCOMPATIBLE, "update the amdgpu driver" },
        { 999, WEIR_ERR_DRIVER, "999" },
    };
    use_standin(HIP_STANDIN_6);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        standin_fail("hipInit", 1, expected[i].code);
        assert_int_equal(wr_backend_open("hip", &vendor_config, &opened), expected[i].status);
        assert_non_null(strstr(weir_error_text(), expected[i].text));
        ok(wr_backend_open("hip", &vendor_config, &opened));
        ok(wr_backend_close(opened));
    }
}

static void opening_twice_is_refused(void **state)
{
    (void)state;
    use_standin(HIP_STANDIN_6);
    ok(b->open(&vendor_config));
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_BUSY);
    ok(b->close());
    ok(b->open(&vendor_config));
    ok(b->close());
}

static void closing_closes_devices_left_open(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(HIP_STANDIN_6);
    for (int i = 0; i < 2; i++) {
        ok(b->open(&vendor_config));
        ok(b->device_open(0, &caps));
        ok(b->device_open(1, &caps));
        ok(b->close());
    }
}

/* The process then has both versions, whichever the back end would have used. */
static void two_runtimes_in_a_process_are_refused(void **state)
{
    (void)state;
    use_standin(HIP_STANDIN_6);
    setenv("WEIR_LIB_HIP", HIP_STANDIN_7, 1);
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "libamdhip64.so.7"));
    assert_non_null(strstr(weir_error_text(), "libamdhip64.so.6"));
    assert_non_null(strstr(weir_error_text(), "WEIR_LIB_HIP"));
    use_standin(HIP_STANDIN_6); /* the other was unloaded */
    ok(b->open(&vendor_config));
    ok(b->close());
}

/* A library of another ROCm release brings that release's runtime along, and unloading the refused library unloads it,
 * too. Here the runtime itself stands for the library. */
static void a_library_that_brings_another_runtime_is_refused_and_unloaded(void **state)
{
    (void)state;
    wr_kind *kind;
    const wr_library_row *row = wr_hip_kinds;
    while (row->kind != WEIR_ROCBLAS) row++;
    use_standin(HIP_STANDIN_6);
    setenv("WEIR_LIB_ROCBLAS", HIP_STANDIN_7, 1);
    ok(wr_library_kind(row, &kind));
    assert_int_equal(kind->load(kind->self), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "rocblas"));
    assert_non_null(strstr(weir_error_text(), "libamdhip64.so.7"));
    assert_null(dlopen("libamdhip64.so.7", RTLD_NOW | RTLD_NOLOAD));
    ok(b->open(&vendor_config));
    ok(b->close());
}

/* In a child, as a runtime that had no device has none for the process. */
static void expect_to_be_asked_once(const char *call, int code)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        standin_fail(call, 1, code);
        bool fine = b->open(&vendor_config) == WEIR_ERR_NO_DEVICE;
        const unsigned long calls = standin_calls(NULL);
        fine = fine && b->open(&vendor_config) == WEIR_ERR_NO_DEVICE && standin_calls(NULL) == calls;
        _exit(fine ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void whatever_says_that_there_is_no_device_says_it_once(void **state)
{
    (void)state;
    use_standin(HIP_STANDIN_6);
    expect_to_be_asked_once("hipInit", 100);
    expect_to_be_asked_once("hipInit", 101);
    expect_to_be_asked_once("hipGetDeviceCount", 100);
    expect_to_be_asked_once("hipGetDeviceCount", 101);
}

/* Runs last: from then on this runtime has no device for the process. */
static void a_runtime_without_a_device_is_asked_once(void **state)
{
    (void)state;
    use_standin(HIP_STANDIN_6);
    standin_fail("hipInit", 1, 100);
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_NO_DEVICE);
    assert_non_null(strstr(weir_error_text(), "HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"));
    const unsigned long calls = standin_calls(NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(b->open(&vendor_config), WEIR_ERR_NO_DEVICE);
        assert_int_equal(native_code(), 100);
        assert_non_null(strstr(weir_error_text(), "/dev/kfd"));
    }
    assert_int_equal(standin_calls(NULL), calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_before_open_are_refused),
        cmocka_unit_test(absent_library_is_named),
        cmocka_unit_test(auto_goes_on_without_the_library),
        cmocka_unit_test(auto_takes_a_device),
        cmocka_unit_test(auto_takes_cuda_first),
        cmocka_unit_test(the_first_driver_that_fails_is_told_of),
        cmocka_unit_test(a_driver_that_fails_once_is_taken),
        cmocka_unit_test(library_that_is_no_runtime_is_named),
        cmocka_unit_test(failing_initialisation_is_explained_and_tried_again),
        cmocka_unit_test(opening_twice_is_refused),
        cmocka_unit_test(closing_closes_devices_left_open),
        cmocka_unit_test(two_runtimes_in_a_process_are_refused),
        cmocka_unit_test(a_library_that_brings_another_runtime_is_refused_and_unloaded),
        cmocka_unit_test(whatever_says_that_there_is_no_device_says_it_once),
        cmocka_unit_test(a_runtime_without_a_device_is_asked_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
