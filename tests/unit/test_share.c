/*
 * Mapped memory shared with other devices and processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "pool_support.h"

#include <pthread.h>
#include <unistd.h>

/* The device's table, with vm_access watched. The host has one page table for all devices, so grants of access are
 * counted here. */
static wr_device *device;
static weir_backend watched;
static const weir_backend *real;

#define GIVEN_MAX 4096
static struct {
    void *base;
    int accessor;
} given[GIVEN_MAX];
static atomic_int given_count;
static int refused_accessor; /* device whose next access fails */

static weir_status watch_access(int ordinal, void *base, size_t bytes, int accessor)
{
    assert_int_equal(ordinal, 0);
    if (accessor == refused_accessor) {
        refused_accessor = -1;
        return WEIR_ERR_DRIVER;
    }
    const int i = atomic_fetch_add(&given_count, 1) % GIVEN_MAX;
    given[i].base = base;
    given[i].accessor = accessor;
    return real->vm_access(ordinal, base, bytes, accessor);
}

static int times_given(const void *pointer, int accessor)
{
    int found = 0;
    const void *base = info_of(pointer).segment;
    for (int i = 0; i < atomic_load(&given_count) && i < GIVEN_MAX; i++)
        found += given[i].base == base && given[i].accessor == accessor;
    return found;
}

static int open_devices(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .host_devices = 3 });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    real = device->cache.backend;
    watched = *real;
    watched.vm_access = watch_access;
    device->cache.backend = &watched;
    atomic_store(&given_count, 0);
    refused_accessor = -1;
    return 0;
}

static int close_devices(void **state)
{
    device->cache.backend = real;
    return close_host(state);
}

/* ---- other devices ----------------------------------------------------------------------------------------------- */

static void a_peer_reaches_present_and_later_memory(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    void *before = alloc_from(pool, 3 * MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(times_given(before, 0), 1);
    assert_int_equal(times_given(before, 2), 0);
    assert_ok(weir_device_enable_peer(2, 0));
    assert_int_equal(times_given(before, 2), 1);
    void *after = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(times_given(after, 0), 1);
    assert_int_equal(times_given(after, 2), 1);
    assert_int_equal(times_given(after, 1), 0);
    assert_ok(weir_device_enable_peer(2, 0));
    assert_int_equal(times_given(before, 2), 1); /* it had access already */
}

static void a_peers_work_can_use_mapped_memory(void **state)
{
    (void)state;
    weir_stream theirs = new_stream(1);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    unsigned char *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_device_enable_peer(1, 0));
    assert_ok(weir_fill(block, 0x77, MIB, theirs));
    assert_ok(weir_stream_synchronize(theirs));
    assert_int_equal(block[MIB - 1], 0x77);
}

static void peers_reach_resumed_memory(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "a"));
    void *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    assert_ok(weir_device_enable_peer(1, 0));
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_device_enable_peer(2, 0)); /* there is no memory to give access to now */
    assert_int_equal(times_given(block, 2), 0);
    assert_ok(weir_resume(0, "a"));
    assert_int_equal(times_given(block, 1), 2);
    assert_int_equal(times_given(block, 2), 1);
}

static void a_peer_that_is_lost_takes_no_memory_from_others(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    assert_ok(weir_device_enable_peer(1, 0));
    assert_ok(weir_device_enable_peer(2, 0));
    assert_ok(weir_host_lose_device(1));
    void *block = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT), *chunks = alloc(30 * MIB);
    assert_int_equal(times_given(block, 2), 1);
    assert_ok(weir_free(block));
    assert_ok(weir_free(chunks));
}

static int close_without_1(void **state)
{
    (void)state;
    device->cache.backend = real;
    assert_ok(weir_validate(0));
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    return 0;
}

static void access_that_fails_is_asked_for_again(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "a"));
    void *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    refused_accessor = 1;
    assert_status(weir_device_enable_peer(1, 0), WEIR_ERR_DRIVER);
    void *later = alloc_from(pool, 30 * MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(times_given(later, 1), 0);
    assert_ok(weir_device_enable_peer(1, 0));
    assert_int_equal(times_given(block, 1), 1);
    assert_int_equal(times_given(later, 1), 1);
    refused_accessor = 1;
    void *refused = NULL;
    assert_status(weir_alloc_from(pool, 40 * MIB, WEIR_STREAM_CURRENT, &refused), WEIR_ERR_DRIVER);
    assert_ok(weir_validate(0));
}

/* Another device gets access between mapping and adding the segment. */
static weir_status reserve_and_share(int ordinal, void *base, size_t bytes, int accessor)
{
    watched.vm_access = watch_access;
    weir_status status = watch_access(ordinal, base, bytes, accessor);
    assert_ok(weir_device_enable_peer(1, 0));
    return status;
}

static void memory_that_comes_while_access_is_given_gets_it_too(void **state)
{
    (void)state;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, "a"));
    watched.vm_access = reserve_and_share;
    void *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    assert_int_equal(times_given(block, 1), 1);
}

/* ---- other processes --------------------------------------------------------------------------------------------- */

typedef struct exported {
    int descriptor;
    uint64_t offset, bytes;
} exported;

static exported export(const void *pointer)
{
    exported e = { .descriptor = -1 };
    assert_ok(weir_export(pointer, &e.descriptor, &e.offset, &e.bytes));
    assert_true(e.descriptor >= 0);
    return e;
}

static void an_export_and_its_import_are_the_same_memory(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    alloc_from(pool, 3000, WEIR_STREAM_CURRENT);
    unsigned char *block = alloc_from(pool, 5000, WEIR_STREAM_CURRENT);
    write_pattern(block, 5000, 4);
    exported e = export(block + 100);
    assert_int_equal(e.bytes, info_of(block).segment_bytes);
    assert_int_equal(e.offset, (uintptr_t)block + 100 - (uintptr_t)info_of(block).segment);
    assert_ok(weir_import(0, e.descriptor, e.bytes, &base));
    close(e.descriptor);
    unsigned char *same = (unsigned char *)base + e.offset - 100;
    assert_ptr_not_equal(same, block);
    assert_true(has_pattern(same, 5000, 4));
    same[17] = 99;
    assert_int_equal(block[17], 99);
    assert_ok(weir_import_close(base));
    assert_int_equal(block[17], 99);
}

static void only_imports_can_be_closed_and_only_once(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    void *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    exported e = export(block);
    const uint64_t unmaps = calls_of(WEIR_BACKEND_vm_unmap);
    assert_status(weir_import_close(NULL), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_import_close(block), WEIR_ERR_UNKNOWN_POINTER);
    assert_ok(weir_import(0, e.descriptor, e.bytes, &base));
    close(e.descriptor);
    assert_status(weir_import_close((char *)base + 2 * MIB), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_free(base), WEIR_ERR_UNKNOWN_POINTER);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), unmaps);
    assert_ok(weir_import_close(base));
    assert_status(weir_import_close(base), WEIR_ERR_UNKNOWN_POINTER);
}

static void imports_are_found_whatever_device_they_are_of(void **state)
{
    (void)state;
    void *one = NULL, *two = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    exported e = export(alloc_from(pool, MIB, WEIR_STREAM_CURRENT));
    assert_ok(weir_import(1, e.descriptor, e.bytes, &one));
    assert_ok(weir_import(2, e.descriptor, e.bytes, &two));
    close(e.descriptor);
    assert_ok(weir_import_close(two));
    assert_ok(weir_import_close(one));
}

static void an_import_survives_the_exporting_pool(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    void *block = alloc_from(pool, MIB, WEIR_STREAM_CURRENT);
    write_pattern(block, MIB, 8);
    exported e = export(block);
    assert_ok(weir_import(1, e.descriptor, e.bytes, &base));
    close(e.descriptor);
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
    assert_true(has_pattern((char *)base + e.offset, MIB, 8));
    assert_ok(weir_import_close(base));
}

static void an_import_that_cannot_end_can_be_ended_later(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    exported e = export(alloc_from(pool, MIB, WEIR_STREAM_CURRENT));
    assert_ok(weir_import(0, e.descriptor, e.bytes, &base));
    close(e.descriptor);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    assert_status(weir_import_close(base), WEIR_ERR_DRIVER);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(weir_import_close(base), WEIR_ERR_DRIVER);
    ((char *)base)[0] = 1; /* mapped again */
    assert_ok(weir_import_close(base));
}

static void peers_reach_imports(void **state)
{
    (void)state;
    void *base = NULL, *later = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    exported e = export(alloc_from(pool, MIB, WEIR_STREAM_CURRENT));
    assert_ok(weir_import(0, e.descriptor, e.bytes, &base));
    const int before = atomic_load(&given_count);
    assert_ok(weir_device_enable_peer(1, 0));
    assert_int_equal(atomic_load(&given_count), before + 2); /* the pool's segment and the import */
    assert_ok(weir_import(0, e.descriptor, e.bytes, &later));
    assert_int_equal(atomic_load(&given_count), before + 4);
    close(e.descriptor);
    assert_ok(weir_import_close(base)); /* the other import goes when weir closes */
}

static void memory_that_cannot_be_exported_is_refused(void **state)
{
    (void)state;
    int descriptor = 77;
    uint64_t offset = 1, bytes = 2;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    weir_mempool good = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, "x"));
    void *mapped = alloc_from(pool, MIB, WEIR_STREAM_CURRENT), *block = alloc_from(good, MIB, WEIR_STREAM_CURRENT);
    assert_status(weir_export(mapped, &descriptor, &offset, &bytes), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_export(alloc(MIB), &descriptor, &offset, &bytes), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_export(&bytes, &descriptor, &offset, &bytes), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_export(block, NULL, &offset, &bytes), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_pause(0, "x", WEIR_PAUSE_KEEP));
    assert_status(weir_export(block, &descriptor, &offset, &bytes), WEIR_ERR_BUSY);
    assert_ok(weir_resume(0, "x"));
    assert_ok(weir_free(block));
    assert_status(weir_export(block, &descriptor, &offset, &bytes), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(descriptor, 77);
    assert_true(offset == 1 && bytes == 2);
}

static void descriptors_that_cannot_be_imported_are_refused(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    exported e = export(alloc_from(pool, MIB, WEIR_STREAM_CURRENT));
    const uint64_t reserves = calls_of(WEIR_BACKEND_vm_reserve);
    assert_status(weir_import(0, -1, e.bytes, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_import(0, e.descriptor, 0, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_import(0, e.descriptor, e.bytes + 2 * MIB, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_import(0, STDIN_FILENO, e.bytes, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_import(9, e.descriptor, e.bytes, &base), WEIR_ERR_NO_DEVICE);
    assert_status(weir_import(0, e.descriptor, e.bytes, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_null(base);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_reserve), reserves);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 1, WEIR_ERR_NOT_SUPPORTED)); /* CUDA's word for a wrong size */
    assert_status(weir_import(0, e.descriptor, e.bytes, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "segment_bytes"));
    assert_null(base);
    close(e.descriptor);
}

#define SHARE_TEST(test) cmocka_unit_test_setup_teardown(test, open_devices, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARE_TEST(a_peer_reaches_present_and_later_memory),
        SHARE_TEST(a_peers_work_can_use_mapped_memory),
        SHARE_TEST(peers_reach_resumed_memory),
        cmocka_unit_test_setup_teardown(a_peer_that_is_lost_takes_no_memory_from_others, open_devices, close_without_1),
        SHARE_TEST(access_that_fails_is_asked_for_again),
        SHARE_TEST(memory_that_comes_while_access_is_given_gets_it_too),
        SHARE_TEST(an_export_and_its_import_are_the_same_memory),
        SHARE_TEST(only_imports_can_be_closed_and_only_once),
        SHARE_TEST(imports_are_found_whatever_device_they_are_of),
        SHARE_TEST(an_import_survives_the_exporting_pool),
        SHARE_TEST(an_import_that_cannot_end_can_be_ended_later),
        SHARE_TEST(peers_reach_imports),
        SHARE_TEST(memory_that_cannot_be_exported_is_refused),
        SHARE_TEST(descriptors_that_cannot_be_imported_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
