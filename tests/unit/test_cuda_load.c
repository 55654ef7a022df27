#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/cuda_support.h"

static const weir_backend *opened;

static void absent_library_is_named(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "/nonexistent/libcuda.so.1", 1);
    assert_int_equal(wr_backend_open("cuda", &vendor_config, &opened), WEIR_ERR_NO_LIBRARY);
    assert_non_null(strstr(weir_error_text(), "WEIR_LIB_CUDA"));
    assert_non_null(strstr(weir_error_text(), "/nonexistent/libcuda.so.1"));
}

static void auto_goes_on_without_the_library(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "/nonexistent/libcuda.so.1", 1);
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_string_not_equal(opened->name, "cuda");
    ok(wr_backend_close(opened));
}

static void auto_takes_a_device(void **state)
{
    (void)state;
    use_standin(CUDA_STANDIN);
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_string_equal(opened->name, "cuda");
    ok(wr_backend_close(opened));
}

static void library_that_is_no_driver_is_named(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "libm.so.6", 1);
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "cuInit"));
    assert_non_null(strstr(weir_error_text(), "libm.so.6"));
    setenv("WEIR_LIB_CUDA", "libBrokenLocale.so.1", 1); /* which nobody else loads */
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_INCOMPATIBLE);
    assert_null(dlopen("libBrokenLocale.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void failing_initialisation_is_explained(void **state)
{
    (void)state;
    static const struct {
        CUresult code;
        weir_status status;
        const char *text;
    } expected[] = {
        { 100, WEIR_ERR_NO_DEVICE, "CUDA_VISIBLE_DEVICES" },
        { 34, WEIR_ERR_NO_LIBRARY, "stub" },
        { 803, WEIR_ERR_INCOMPATIBLE, "update the NVIDIA driver" },
        { 999, WEIR_ERR_DRIVER, "999" },
    };
    use_standin(CUDA_STANDIN);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        standin_fail("cuInit", 1, expected[i].code);
        assert_int_equal(wr_backend_open("cuda", &vendor_config, &opened), expected[i].status);
        assert_non_null(strstr(weir_error_text(), expected[i].text));
    }
    standin_fail("cuInit", 1, 100);
    ok(wr_backend_open("auto", &vendor_config, &opened));
    assert_string_not_equal(opened->name, "cuda");
    ok(wr_backend_close(opened));
}

static void auto_takes_the_host_in_place_of_no_driver_that_fails(void **state)
{
    (void)state;
    setenv("WEIR_LIB_CUDA", "libm.so.6", 1);
    assert_int_equal(wr_backend_open("auto", &vendor_config, &opened), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "WEIR_BACKEND=host"));
    assert_non_null(strstr(weir_error_text(), "libm.so.6"));
}

static void opening_twice_is_refused(void **state)
{
    (void)state;
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    assert_int_equal(b->open(&vendor_config), WEIR_ERR_BUSY);
    ok(b->close());
    ok(b->open(&vendor_config));
    ok(b->close());
}

static void calls_before_open_are_refused(void **state)
{
    (void)state;
    int count = 5;
    void *event;
    assert_int_equal(b->device_count(&count), WEIR_ERR_NO_DEVICE);
    assert_int_equal(count, 5);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_NO_DEVICE);
}

static void closing_releases_devices_left_open(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
    ok(b->device_open(1, &caps));
    ok(b->close());
    assert_false(has_context(0));
    assert_false(has_context(1));
}

static void device_without_descriptors_for_memory_has_chunks_that_stay(void **state)
{
    (void)state;
    weir_device_caps caps;
    weir_chunk chunk = 0, unmade = 0;
    int descriptor = -1;
    setenv("STANDIN_CUDA_EXPORTS", "0", 1);
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
    ok(b->vm_create(0, 2 * MIB, &chunk));
    assert_int_equal(b->vm_export(0, chunk, &descriptor), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_create_exportable(0, 2 * MIB, &unmade), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(descriptor, -1);
    ok(b->vm_destroy(0, chunk, 2 * MIB));
    ok(b->close());
    unsetenv("STANDIN_CUDA_EXPORTS");
}

static void device_without_virtual_memory_has_plain_segments(void **state)
{
    (void)state;
    weir_device_caps caps;
    weir_chunk chunk = 0;
    void *base;
    setenv("STANDIN_CUDA_VM", "0", 1);
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
    unsetenv("STANDIN_CUDA_VM");
    assert_int_equal(caps.granularity, 0);
    assert_false(caps.chunk_aliases);
    assert_int_equal(b->vm_create(0, 2 * MIB, &chunk), WEIR_ERR_NOT_SUPPORTED);
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->segment_free(0, base, 2 * MIB));
    ok(b->close());
}

/* What is opened where the device offers mapped memory that the variable says does not work. */
static weir_device_caps open_without(const char *variable)
{
    weir_device_caps caps;
    setenv(variable, "0", 1);
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    ok(b->device_open(0, &caps));
    unsetenv(variable);
    return caps;
}

static void mapped_memory_that_is_offered_and_refused_is_done_without(void **state)
{
    (void)state;
    void *base;
    assert_int_equal(open_without("STANDIN_CUDA_VM_WORKS").granularity, 0);
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->segment_free(0, base, 2 * MIB));
    ok(b->close());
}

static void descriptors_that_are_offered_and_refused_are_done_without(void **state)
{
    (void)state;
    weir_chunk chunk = 0, unmade = 0;
    assert_int_equal(open_without("STANDIN_CUDA_EXPORTS_WORK").granularity, 2 * MIB);
    const unsigned long before = standin_rdma_chunks();
    setenv("STANDIN_CUDA_EXPORTS_WORK", "0", 1);
    ok(b->vm_create(0, 2 * MIB, &chunk));
    unsetenv("STANDIN_CUDA_EXPORTS_WORK");
    assert_int_equal(standin_rdma_chunks(), before + 1); /* all the same */
    assert_int_equal(b->vm_create_exportable(0, 2 * MIB, &unmade), WEIR_ERR_NOT_SUPPORTED);
    ok(b->vm_destroy(0, chunk, 2 * MIB));
    ok(b->close());
}

static void a_driver_that_knows_no_granularity_maps_nothing(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    standin_fail("cuMemGetAllocationGranularity", 1, 801);
    ok(b->device_open(0, &caps));
    assert_int_equal(caps.granularity, 0);
    ok(b->close());
}

/* Whether a chunk of a newly opened device is one that network cards reach. Until then `fail`, if there is one,
 * fails. */
static bool reaches_network_cards(const char *fail, int code)
{
    weir_device_caps caps;
    weir_chunk chunk = 0;
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    static const char *const made[] = { "cuMemAddressReserve", "cuMemCreate", "cuMemMap" };
    static const char *const ended[] = { "cuMemAddressFree", "cuMemRelease", "cuMemUnmap" };
    unsigned long more[3];
    for (int i = 0; i < 3; i++) more[i] = standin_calls(made[i]) - standin_calls(ended[i]);
    if (fail) standin_fail(fail, 1, code);
    ok(b->device_open(0, &caps));
    if (fail) standin_fail(fail, 0, 0);
    for (int i = 0; i < 3; i++) { /* what was tried leaves nothing */
        const bool failed = fail && strcmp(fail, made[i]) == 0;
        assert_int_equal(standin_calls(made[i]) - standin_calls(ended[i]), more[i] + failed);
    }
    const unsigned long before = standin_rdma_chunks();
    ok(b->vm_create(0, 2 * MIB, &chunk));
    const unsigned long after = standin_rdma_chunks();
    ok(b->vm_destroy(0, chunk, 2 * MIB));
    ok(b->close());
    return after != before;
}

static void chunks_are_made_for_network_cards_where_the_device_can(void **state)
{
    (void)state;
    assert_true(reaches_network_cards(NULL, 0));
    setenv("STANDIN_CUDA_RDMA", "0", 1);
    assert_false(reaches_network_cards(NULL, 0));
    unsetenv("STANDIN_CUDA_RDMA");
}

static void chunks_are_not_made_for_network_cards_if_such_memory_does_not_work(void **state)
{
    (void)state;
    assert_false(reaches_network_cards("cuMemAddressReserve", 999));
    assert_false(reaches_network_cards("cuMemCreate", 999));
    assert_false(reaches_network_cards("cuMemMap", 999));
    assert_false(reaches_network_cards("cuMemSetAccess", 999));
    assert_true(reaches_network_cards(NULL, 0));
}

static void a_full_device_says_nothing_about_network_cards(void **state)
{
    (void)state;
    assert_true(reaches_network_cards("cuMemCreate", 2));
}

static void what_is_tried_for_network_cards_is_memory_for_them(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(CUDA_STANDIN);
    ok(b->open(&vendor_config));
    const unsigned long before = standin_rdma_chunks();
    ok(b->device_open(0, &caps));
    assert_int_equal(standin_rdma_chunks(), before + 1);
    ok(b->close());
}

static int open_old(void **state)
{
    (void)state;
    use_standin(CUDA_STANDIN_OLD);
    ok(b->open(&vendor_config));
    return 0;
}

static void what_an_old_driver_lacks_is_no_failure_to_be_told(void **state)
{
    (void)state;
    const wr_saved_failure before = wr_fail_save();
    use_standin(CUDA_STANDIN_OLD);
    ok(b->open(&vendor_config));
    assert_string_equal(weir_error_text(), "");
    wr_fail_restore(before);
}

static void old_driver_works_without_virtual_memory(void **state)
{
    (void)state;
    weir_device_caps caps;
    void *base;
    weir_chunk chunk;
    assert_null(wr_cu.cuMemCreate);
    assert_null(wr_cu.cuCtxGetId);
    ok(b->device_open(0, &caps));
    assert_int_equal(caps.granularity, 0);
    assert_int_equal(b->vm_reserve(0, 2 * MIB, 0, &base), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_create(0, 2 * MIB, &chunk), WEIR_ERR_NOT_SUPPORTED);
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->segment_free(0, base, 2 * MIB));
}

static void old_driver_says_what_it_does_not_have(void **state)
{
    (void)state;
    weir_device_caps caps;
    void *base = &base;
    size_t count;
    int descriptor;
    weir_chunk chunk;
    ok(b->device_open(0, &caps));
    assert_int_equal(b->host_register(0, base, 4096), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "cuMemHostRegister"));
    assert_int_equal(b->host_unregister(0, base, 4096), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->managed_alloc(0, 4096, &base), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_create_exportable(0, 2 * MIB, &chunk), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_export(0, 1, &descriptor), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->vm_import(0, 0, 2 * MIB, &chunk), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(b->node_dependencies(0, base, &base, 1, &count), WEIR_ERR_NOT_SUPPORTED);
    assert_ptr_equal(base, &base);
}

static void old_driver_notices_a_reset(void **state)
{
    (void)state;
    weir_device_caps caps;
    uint64_t free_bytes, total;
    ok(b->device_open(0, &caps));
    driver_ok(standin_reset(0));
    assert_int_equal(b->device_memory(0, &free_bytes, &total), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(native_code(), 709);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_before_open_are_refused),
        cmocka_unit_test(absent_library_is_named),
        cmocka_unit_test(auto_goes_on_without_the_library),
        cmocka_unit_test(auto_takes_a_device),
        cmocka_unit_test(library_that_is_no_driver_is_named),
        cmocka_unit_test(failing_initialisation_is_explained),
        cmocka_unit_test(auto_takes_the_host_in_place_of_no_driver_that_fails),
        cmocka_unit_test(opening_twice_is_refused),
        cmocka_unit_test(closing_releases_devices_left_open),
        cmocka_unit_test(device_without_descriptors_for_memory_has_chunks_that_stay),
        cmocka_unit_test(device_without_virtual_memory_has_plain_segments),
        cmocka_unit_test(mapped_memory_that_is_offered_and_refused_is_done_without),
        cmocka_unit_test(descriptors_that_are_offered_and_refused_are_done_without),
        cmocka_unit_test(a_driver_that_knows_no_granularity_maps_nothing),
        cmocka_unit_test(chunks_are_made_for_network_cards_where_the_device_can),
        cmocka_unit_test(a_full_device_says_nothing_about_network_cards),
        cmocka_unit_test(chunks_are_not_made_for_network_cards_if_such_memory_does_not_work),
        cmocka_unit_test(what_is_tried_for_network_cards_is_memory_for_them),
        cmocka_unit_test_teardown(what_an_old_driver_lacks_is_no_failure_to_be_told, close_vendor),
        cmocka_unit_test_setup_teardown(old_driver_works_without_virtual_memory, open_old, close_vendor),
        cmocka_unit_test_setup_teardown(old_driver_says_what_it_does_not_have, open_old, close_vendor),
        cmocka_unit_test_setup_teardown(old_driver_notices_a_reset, open_old, close_vendor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
