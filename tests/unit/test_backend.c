#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"

#include <string.h>

static const weir_backend_config config = { .size = sizeof config, .host_devices = 3, .host_memory = 1 << 24 };

static void auto_falls_back_to_host(void **state)
{
    (void)state;
    const weir_backend *backend;
    assert_int_equal(wr_backend_open("auto", &config, &backend), WEIR_OK);
    assert_non_null(backend->name);
    assert_string_equal(weir_error_text(), "");              /* that others are absent is no failure */
    assert_int_equal(wr_driver_calls[WEIR_BACKEND_open], 1); /* its own */
    assert_int_equal(wr_backend_close(backend), WEIR_OK);
}

static void host_has_the_configured_devices(void **state)
{
    (void)state;
    const weir_backend *backend;
    int count;
    assert_int_equal(wr_backend_open("host", &config, &backend), WEIR_OK);
    assert_string_equal(backend->name, "host");
    assert_int_equal(backend->device_count(&count), WEIR_OK);
    assert_int_equal(count, 3);
    assert_int_equal(wr_backend_close(backend), WEIR_OK);
}

static void unknown_name_lists_what_there_is(void **state)
{
    (void)state;
    const weir_backend *backend = &wr_backend_host;
    assert_int_equal(wr_backend_open("vulkan", &config, &backend), WEIR_ERR_NO_LIBRARY);
    assert_ptr_equal(backend, &wr_backend_host);
    assert_non_null(strstr(weir_error_text(), "\"vulkan\""));
    assert_non_null(strstr(weir_error_text(), "\"host\""));
}

static void bad_configuration_is_refused(void **state)
{
    (void)state;
    const weir_backend *backend;
    weir_backend_config bad = config;
    bad.host_devices = 65;
    assert_int_equal(wr_backend_open("host", &bad, &backend), WEIR_ERR_INVALID_ARGUMENT);
    bad = config;
    bad.host_memory = 0;
    assert_int_equal(wr_backend_open("host", &bad, &backend), WEIR_ERR_INVALID_ARGUMENT);
}

static void calls_are_counted_while_open(void **state)
{
    (void)state;
    const weir_backend *backend;
    uint64_t now;
    int devices;
    assert_int_equal(wr_backend_open("host", &config, &backend), WEIR_OK);
    uint64_t before = wr_backend_calls(), counted = wr_driver_calls[WEIR_BACKEND_device_count];
    assert_int_equal(wr_driver(backend, device_count, &devices), WEIR_OK);
    assert_int_equal(wr_backend_calls(), before + 1);
    assert_int_equal(wr_driver_calls[WEIR_BACKEND_device_count], counted + 1);
    assert_int_equal(wr_driver(backend, clock_ns, &now), WEIR_OK); /* that is no driver's */
    assert_int_equal(wr_backend_calls(), before + 1);
    assert_int_equal(wr_driver_calls[WEIR_BACKEND_clock_ns], 1);
    assert_int_equal(wr_backend_close(backend), WEIR_OK);
    assert_int_equal(wr_backend_calls(), 0);
}

static void missing_required_entry_is_named(void **state)
{
    (void)state;
    weir_backend table = wr_backend_host;
    table.segment_free = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "segment_free"));
}

static void half_a_group_is_refused(void **state)
{
    (void)state;
    weir_backend table = wr_backend_host;
    table.vm_map = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_ERR_INCOMPATIBLE);
    assert_non_null(strstr(weir_error_text(), "vm_map"));
}

static void each_entry_of_a_pair_needs_the_other(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        const char *name;
    } entries[] = {
#define ENTRY(name) { offsetof(weir_backend, name), #name }
        ENTRY(host_register), ENTRY(host_unregister), ENTRY(managed_alloc), ENTRY(managed_free),
        ENTRY(vm_export),     ENTRY(vm_import),       ENTRY(capture_tips),  ENTRY(node_dependencies),
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        weir_backend table = wr_backend_host;
        memset((char *)&table + entries[i].offset, 0, sizeof(void *));
        assert_int_equal(wr_backend_check(&table), WEIR_ERR_INCOMPATIBLE);
        assert_non_null(strstr(weir_error_text(), entries[i].name));
    }
}

static void missing_group_is_fine(void **state)
{
    (void)state;
    weir_backend table = wr_backend_host;
    table.vm_reserve = NULL;
    table.vm_release = NULL;
    table.vm_create = NULL;
    table.vm_destroy = NULL;
    table.vm_map = NULL;
    table.vm_unmap = NULL;
    table.vm_access = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
    table.host_register = table.host_unregister = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
    table.managed_alloc = NULL;
    table.managed_free = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
    table.vm_create_exportable = NULL;
    table.vm_export = NULL;
    table.vm_import = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
    table.capture_tips = table.node_dependencies = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
    table.stream_check = NULL;
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
}

static void table_of_a_later_version_is_fine(void **state)
{
    (void)state;
    weir_backend table = wr_backend_host;
    table.size += sizeof(void *);
    assert_int_equal(wr_backend_check(&table), WEIR_OK);
}

static void small_table_is_refused(void **state)
{
    (void)state;
    weir_backend table = wr_backend_host;
    table.size -= sizeof(void *);
    assert_int_equal(wr_backend_check(&table), WEIR_ERR_INCOMPATIBLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_falls_back_to_host),
        cmocka_unit_test(host_has_the_configured_devices),
        cmocka_unit_test(unknown_name_lists_what_there_is),
        cmocka_unit_test(bad_configuration_is_refused),
        cmocka_unit_test(calls_are_counted_while_open),
        cmocka_unit_test(missing_required_entry_is_named),
        cmocka_unit_test(half_a_group_is_refused),
        cmocka_unit_test(each_entry_of_a_pair_needs_the_other),
        cmocka_unit_test(missing_group_is_fine),
        cmocka_unit_test(table_of_a_later_version_is_fine),
        cmocka_unit_test(small_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
