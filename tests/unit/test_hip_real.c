#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "backend/hip/hip_internal.h"

#include <stdlib.h>
#include <string.h>

/* AMD's real runtime, where one is installed or unpacked (WEIR_LIB_HIP names it), and what it reports without a GPU. */
static const weir_backend_config config = { .size = sizeof config, .host_devices = 1, .host_memory = 1 << 24 };

static void no_device_is_reported_at_every_open(void **state)
{
    (void)state;
    weir_error error = { .size = sizeof error };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wr_backend_hip.open(&config), WEIR_ERR_NO_DEVICE);
        assert_int_equal(weir_last_error(&error), WEIR_OK);
        assert_string_equal(error.library, "hip");
        assert_true(error.native_code == 100 || error.native_code == 101); /* ROCm 5's hipInit says 101 */
        assert_non_null(strstr(error.text, "hipErrorNoDevice") ? error.text
                                                               : strstr(error.text, "hipErrorInvalidDevice"));
        assert_non_null(strstr(error.text, "/dev/kfd"));
    }
    print_message("%s\n", error.text);
}

static void entries_refuse_without_a_device(void **state)
{
    (void)state;
    weir_device_caps caps;
    void *made = &made;
    int count = 7;
    assert_int_equal(wr_backend_hip.device_count(&count), WEIR_ERR_NO_DEVICE);
    assert_int_equal(wr_backend_hip.device_open(0, &caps), WEIR_ERR_NO_DEVICE);
    assert_int_equal(wr_backend_hip.stream_create(0, 0, &made), WEIR_ERR_NO_DEVICE);
    assert_int_equal(wr_backend_hip.segment_alloc(0, 4096, &made), WEIR_ERR_NO_DEVICE);
    assert_int_equal(count, 7);
    assert_ptr_equal(made, &made);
}

static void auto_goes_on_to_another_back_end(void **state)
{
    (void)state;
    const weir_backend *opened = NULL;
    setenv("WEIR_LIB_CUDA", "/nonexistent/libcuda.so.1", 1);
    assert_int_equal(wr_backend_open("auto", &config, &opened), WEIR_OK);
    assert_string_equal(opened->name, "host");
    assert_int_equal(wr_backend_close(opened), WEIR_OK);
}

/* Every code in errors.def has the name that the runtime gives it. Before ROCm 7.14 it does not know the last. */
static void codes_have_the_runtimes_names(void **state)
{
    (void)state;
    static const struct {
        hipError_t code;
        const char *name;
    } known[] = {
#define X(name, code, status, ends) { code, #name },
#include "backend/hip/errors.def"
#undef X
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *name = wr_hip_runtime.hipGetErrorName(known[i].code);
        if (known[i].code != 916 || strcmp(name, "hipErrorUnknown") != 0) assert_string_equal(name, known[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_device_is_reported_at_every_open),
        cmocka_unit_test(entries_refuse_without_a_device),
        cmocka_unit_test(auto_goes_on_to_another_back_end),
        cmocka_unit_test(codes_have_the_runtimes_names),
    };
    weir_status status = wr_backend_hip.open(&config);
    if (status != WEIR_ERR_NO_DEVICE) {
        print_message("skipped: %s\n",
                      status == WEIR_OK ? "there is an AMD GPU; its tests are those of label gpu" : weir_error_text());
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
