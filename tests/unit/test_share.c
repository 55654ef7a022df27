/*
 * Mapped memory shared with other devices and processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device/device.h"
#include "pool_support.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
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

static int open_devices_of(uint64_t memory)
{
    open_host((weir_settings){ .host_memory = memory, .host_devices = 3 });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    real = device->cache.backend;
    watched = *real;
    watched.vm_access = watch_access;
    device->cache.backend = &watched;
    atomic_store(&given_count, 0);
    refused_accessor = -1;
    return 0;
}

static int open_devices(void **state)
{
    (void)state;
    return open_devices_of(256 * MIB);
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

static void a_peer_reaches_chunks_that_are_there(void **state)
{
    (void)state;
    void *before = alloc(3 * MIB);
    assert_int_equal(times_given(before, 0), 1);
    assert_ok(weir_device_enable_peer(2, 0));
    assert_int_equal(times_given(before, 2), 1);
    assert_int_equal(times_given(before, 1), 0);
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
    weir_export_part part;
    uint64_t offset;
} exported;

static exported export(const void *pointer)
{
    exported e = { .part.descriptor = -1 };
    size_t count = 0;
    assert_ok(weir_export(pointer, &e.part, 1, &count, &e.offset));
    assert_int_equal(count, 1);
    assert_true(e.part.descriptor >= 0);
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
    assert_int_equal(e.part.bytes, info_of(block).segment_bytes);
    assert_int_equal(e.offset, (uintptr_t)block + 100 - (uintptr_t)info_of(block).segment);
    assert_ok(weir_import(0, &e.part, 1, &base));
    close(e.part.descriptor);
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
    assert_ok(weir_import(0, &e.part, 1, &base));
    close(e.part.descriptor);
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
    assert_ok(weir_import(1, &e.part, 1, &one));
    assert_ok(weir_import(2, &e.part, 1, &two));
    close(e.part.descriptor);
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
    assert_ok(weir_import(1, &e.part, 1, &base));
    close(e.part.descriptor);
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
    assert_ok(weir_import(0, &e.part, 1, &base));
    close(e.part.descriptor);
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
    assert_ok(weir_import(0, &e.part, 1, &base));
    const int before = atomic_load(&given_count);
    assert_ok(weir_device_enable_peer(1, 0));
    assert_int_equal(atomic_load(&given_count), before + 2); /* the pool's segment and the import */
    assert_ok(weir_import(0, &e.part, 1, &later));
    assert_int_equal(atomic_load(&given_count), before + 4);
    close(e.part.descriptor);
    assert_ok(weir_import_close(base)); /* the other import goes when weir closes */
}

static void memory_that_cannot_be_exported_is_refused(void **state)
{
    (void)state;
    weir_export_part part = { .descriptor = 77 };
    uint64_t offset = 1;
    size_t count = 2;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_MAPPED, ""));
    weir_mempool good = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, "x"));
    weir_mempool managed = make_pool(pool_options(WEIR_MEMORY_MANAGED, ""));
    void *mapped = alloc_from(pool, MIB, WEIR_STREAM_CURRENT), *block = alloc_from(good, MIB, WEIR_STREAM_CURRENT);
    assert_status(weir_export(mapped, &part, 1, &count, &offset), WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_export(alloc(MIB), &part, 1, &count, &offset), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "WEIR_MEMORY_EXPORTABLE"));
    assert_status(weir_export(alloc_from(managed, MIB, WEIR_STREAM_CURRENT), &part, 1, &count, &offset),
                  WEIR_ERR_NOT_SUPPORTED);
    assert_status(weir_export(&part, &part, 1, &count, &offset), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_export(block, NULL, 1, &count, &offset), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_pause(0, "x", WEIR_PAUSE_KEEP));
    assert_status(weir_export(block, &part, 1, &count, &offset), WEIR_ERR_BUSY);
    assert_ok(weir_resume(0, "x"));
    assert_ok(weir_free(block));
    assert_status(weir_export(block, &part, 1, &count, &offset), WEIR_ERR_DOUBLE_FREE);
    assert_int_equal(part.descriptor, 77);
    assert_true(offset == 1 && count == 2);
}

static void descriptors_that_cannot_be_imported_are_refused(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    exported e = export(alloc_from(pool, MIB, WEIR_STREAM_CURRENT));
    weir_export_part parts[] = { e.part, e.part };
    const uint64_t reserved = calls_of(WEIR_BACKEND_vm_reserve), released = calls_of(WEIR_BACKEND_vm_release);
    assert_status(weir_import(0, parts, 0, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_import(9, parts, 1, &base), WEIR_ERR_NO_DEVICE);
    assert_status(weir_import(0, parts, 1, NULL), WEIR_ERR_INVALID_ARGUMENT);
    parts[1].descriptor = -1;
    assert_status(weir_import(0, parts, 2, &base), WEIR_ERR_INVALID_ARGUMENT);
    parts[1] = (weir_export_part){ .bytes = 0, .descriptor = e.part.descriptor };
    assert_status(weir_import(0, parts, 2, &base), WEIR_ERR_INVALID_ARGUMENT);
    parts[1].bytes = UINT64_MAX - parts[0].bytes + 1;
    assert_status(weir_import(0, parts, 2, &base), WEIR_ERR_INVALID_ARGUMENT);
    parts[1].bytes = e.part.bytes + 2 * MIB;
    assert_status(weir_import(0, parts, 2, &base), WEIR_ERR_INVALID_ARGUMENT);
    parts[1] = (weir_export_part){ .bytes = e.part.bytes, .descriptor = STDIN_FILENO };
    assert_status(weir_import(0, parts, 2, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 1, WEIR_ERR_NOT_SUPPORTED)); /* CUDA's word for a wrong size */
    assert_status(weir_import(0, &e.part, 1, &base), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "give the bytes"));
    assert_null(base);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release) - released, calls_of(WEIR_BACKEND_vm_reserve) - reserved);
    close(e.part.descriptor);
}

/* ---- chunks, where the back end can export those of every pool, as CUDA ------------------------------------------ */

static int open_exporting_of(uint64_t memory)
{
    (void)open_devices_of(memory);
    watched.vm_create = real->vm_create_exportable;
    return 0;
}

static int open_exporting(void **state)
{
    (void)state;
    return open_exporting_of(256 * MIB);
}

static int open_exporting_much(void **state)
{
    (void)state;
    return open_exporting_of(16384 * MIB);
}

enum { PARTS = 64 };

typedef struct exports {
    weir_export_part parts[PARTS];
    size_t count;
    uint64_t offset;
} exports;

static weir_status export_all(const void *pointer, exports *out)
{
    return weir_export(pointer, out->parts, PARTS, &out->count, &out->offset);
}

static void close_all(const exports *e)
{
    for (size_t i = 0; i < e->count; i++) close(e->parts[i].descriptor);
}

/* How many are open. */
static int descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    assert_non_null(all);
    while (readdir(all)) count++;
    closedir(all);
    return count;
}

/* Exports a block and imports it. Returns where it is then, in the import that begins at *base. */
static char *import_of(int importer, const void *block, exports *e, void **base)
{
    assert_ok(export_all(block, e));
    assert_ok(weir_import(importer, e->parts, e->count, base));
    close_all(e);
    return (char *)*base + e->offset;
}

static uint64_t total_of(const exports *e)
{
    uint64_t total = 0;
    for (size_t i = 0; i < e->count; i++) total += e->parts[i].bytes;
    return total;
}

static void a_device_that_imports_nothing_says_so(void **state)
{
    (void)state;
    void *base = NULL;
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, ""));
    exported e = export(alloc_from(pool, MIB, WEIR_STREAM_CURRENT));
    wr_device *device = wr_runtime_opened(0);
    const weir_backend *real = device->backend;
    weir_backend driver = *real;
    driver.vm_import = NULL;
    device->backend = &driver;
    const weir_status status = weir_import(0, &e.part, 1, &base);
    device->backend = real;
    assert_status(status, WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(close(e.part.descriptor), 0);
}

static void a_block_of_many_chunks_is_exported_whole(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL;
    assert_non_null(alloc(3 * MIB));
    unsigned char *block = alloc(70 * MIB);
    write_pattern(block, 70 * MIB, 3);
    unsigned char *same = (unsigned char *)import_of(1, block, &e, &base);
    assert_true(e.count > 1 && e.count <= PARTS);
    assert_true(e.offset + 70 * MIB <= total_of(&e));
    assert_true(has_pattern(same, 70 * MIB, 3));
    same[69 * MIB] = 77;
    assert_int_equal(block[69 * MIB], 77);
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(same[69 * MIB], 77); /* the memory stays as long as it is imported */
    assert_ok(weir_import_close(base));
}

static void any_address_in_a_block_names_the_same_memory(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    size_t count = 0;
    uint64_t start = 0;
    char *block = alloc(70 * MIB);
    assert_ok(weir_export(block, NULL, 0, &count, &start));
    assert_ok(export_all(block + 60 * MIB, &e));
    close_all(&e);
    assert_int_equal(e.count, count);
    assert_int_equal(e.offset, start + 60 * MIB);
}

static void memory_that_was_mapped_elsewhere_is_exported_where_it_is_now(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL, *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = alloc(20 * MIB);
    const uint64_t created = calls_of(WEIR_BACKEND_vm_create_exportable);
    assert_ok(weir_free(blocks[0]));
    assert_ok(weir_free(blocks[2]));
    unsigned char *block = alloc(40 * MIB); /* of the chunks of both, at a new address */
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create_exportable), created);
    write_pattern(block, 40 * MIB, 9);
    assert_true(has_pattern(import_of(0, block, &e, &base), 40 * MIB, 9));
    assert_ok(weir_import_close(base));
}

static void too_little_room_for_descriptors_makes_none(void **state)
{
    (void)state;
    weir_export_part part = { .descriptor = 77 };
    size_t count = 0;
    uint64_t offset = 1;
    void *block = alloc(70 * MIB);
    const int before = descriptors();
    for (int i = 0; i < 2; i++) {
        assert_ok(weir_export(block, &part, 1, &count, &offset));
        assert_true(count > 1);
        assert_int_equal(part.descriptor, 77);
        assert_int_equal(descriptors(), before + 1); /* which is kept for the next export */
    }
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_export, 1, WEIR_ERR_NOT_SUPPORTED));
    assert_status(weir_export(alloc(70 * MIB), NULL, 0, &count, &offset), WEIR_ERR_NOT_SUPPORTED);
}

static void an_export_that_fails_leaves_no_descriptors_but_those_kept(void **state)
{
    (void)state;
    exports e = { .count = 99 };
    void *block = alloc(70 * MIB);
    const int before = descriptors();
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_export, 3, WEIR_ERR_DRIVER));
    assert_status(export_all(block, &e), WEIR_ERR_DRIVER);
    assert_int_equal(e.count, 99);
    assert_int_equal(descriptors(), before + 2);
}

static void what_was_exported_is_exported_again_without_the_driver(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *block = alloc(70 * MIB), *base = NULL;
    write_pattern(block, 70 * MIB, 5);
    const int before = descriptors();
    for (int i = 0; i < 3; i++) {
        assert_true(has_pattern(import_of(0, block, &e, &base), 70 * MIB, 5));
        assert_int_equal(calls_of(WEIR_BACKEND_vm_export), e.count);
        assert_ok(weir_import_close(base));
        assert_int_equal(descriptors(), before + (int)e.count);
    }
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_true(descriptors() < before); /* on the host each chunk that can be exported has one of its own, too */
}

static void a_child_of_fork_keeps_no_exported_memory(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    const void *block = alloc(3 * MIB);
    const int before = descriptors();
    assert_ok(export_all(block, &e));
    close_all(&e);
    assert_true(descriptors() > before); /* weir's own, for the next export */
    const pid_t child = fork();
    if (child == 0) _exit(descriptors() > before);
    int ended = -1;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_ok(export_all(block, &e)); /* the parent's is still there */
    close_all(&e);
}

static void a_chunk_without_a_descriptor_to_spare_is_an_error_that_says_so(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    struct rlimit before, few;
    void *block = alloc(70 * MIB);
    assert_ok(export_all(block, &e));
    close_all(&e);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)e.parts[0].descriptor;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const weir_status status = export_all(block, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "ulimit -n"));
}

static weir_status refuse_export(int ordinal, weir_chunk chunk, int *descriptor)
{
    (void)ordinal;
    (void)chunk;
    (void)descriptor;
    return WEIR_ERR_OUT_OF_MEMORY;
}

static void a_driver_that_does_not_say_that_descriptors_are_used_up_is_explained(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    struct rlimit before, few;
    void *block = alloc(70 * MIB);
    watched.vm_export = refuse_export;
    assert_status(export_all(block, &e), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const weir_status status = export_all(block, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "ulimit -n"));
}

/* Skips the test where the process may not have so many. */
static void need_descriptors(rlim_t count)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur >= count) return;
    limit.rlim_cur = count;
    if (limit.rlim_max < count || setrlimit(RLIMIT_NOFILE, &limit) != 0) skip();
}

static void so_many_chunks_keep_a_descriptor_and_no_more(void **state)
{
    (void)state;
    enum { BLOCKS = 400, KEPT = 256 };
    need_descriptors(1024);
    exports e = { .count = 0 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = alloc(20 * MIB);
    const int before = descriptors();
    assert_true(calls_of(WEIR_BACKEND_vm_create_exportable) > KEPT);
    for (int i = 0; i < BLOCKS; i++) {
        assert_ok(export_all(blocks[i], &e));
        close_all(&e);
    }
    assert_int_equal(descriptors(), before + KEPT);
    for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_true(descriptors() < before);
    void *block = alloc(20 * MIB); /* there is room for descriptors again */
    const int without = descriptors();
    assert_ok(export_all(block, &e));
    close_all(&e);
    assert_int_equal(descriptors(), without + (int)e.count);
}

static void all_devices_together_keep_no_more(void **state)
{
    (void)state;
    enum { BLOCKS = 160, KEPT = 256 };
    need_descriptors(1024);
    exports e = { .count = 0 };
    wr_device *other = NULL;
    void *blocks[2 * BLOCKS];
    assert_int_equal(wr_runtime_device(1, &other), WEIR_OK);
    watched.vm_access = real->vm_access;
    other->cache.backend = &watched;
    for (int i = 0; i < 2 * BLOCKS; i++) {
        assert_ok(weir_device_set_current(i % 2));
        blocks[i] = alloc(20 * MIB);
    }
    const int before = descriptors();
    for (int i = 0; i < 2 * BLOCKS; i++) {
        assert_ok(export_all(blocks[i], &e));
        close_all(&e);
    }
    assert_int_equal(descriptors(), before + KEPT);
    for (int i = 0; i < 2 * BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(1));
    other->cache.backend = real;
    assert_ok(weir_device_set_current(0));
}

static void an_import_of_many_parts_fails_as_a_whole(void **state)
{
    (void)state;
    static const enum weir_backend_entry entries[] = { WEIR_BACKEND_vm_reserve, WEIR_BACKEND_vm_import,
                                                       WEIR_BACKEND_vm_map, WEIR_BACKEND_vm_access };
    exports e = { .count = 0 };
    void *base = NULL;
    assert_ok(export_all(alloc(70 * MIB), &e));
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const uint64_t destroyed = calls_of(WEIR_BACKEND_vm_destroy), released = calls_of(WEIR_BACKEND_vm_release);
        const uint64_t imported = calls_of(WEIR_BACKEND_vm_import);
        assert_ok(weir_host_fail(entries[i], i == 0 || i == 3 ? 1 : 2, WEIR_ERR_DRIVER));
        assert_status(weir_import(0, e.parts, e.count, &base), WEIR_ERR_DRIVER);
        assert_null(base);
        const uint64_t made = calls_of(WEIR_BACKEND_vm_import) - imported;
        assert_int_equal(calls_of(WEIR_BACKEND_vm_destroy) - destroyed, i == 1 ? 1 : made);
        assert_int_equal(calls_of(WEIR_BACKEND_vm_release) - released, i == 0 ? 0 : 1);
    }
    close_all(&e);
}

static void import_in_vain(const exports *e)
{
    void *none = NULL;
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 2, WEIR_ERR_DRIVER));
    assert_status(weir_import(0, e->parts, e->count, &none), WEIR_ERR_DRIVER);
}

static void imports_that_ended_or_failed_leave_no_records(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL;
    assert_ok(export_all(alloc(70 * MIB), &e));
    import_in_vain(&e); /* the thread's error text is made once */
    const uint64_t records = wr_meta_live();
    for (int i = 0; i < 3; i++) {
        assert_ok(weir_import(0, e.parts, e.count, &base));
        assert_ok(weir_import_close(base));
        import_in_vain(&e);
    }
    assert_int_equal(wr_meta_live(), records);
    close_all(&e);
}

/* Else the driver would never be asked again to take it back. */
static void an_import_that_fails_and_cannot_be_undone_is_kept_until_weir_closes(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL;
    assert_ok(export_all(alloc(70 * MIB), &e));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_map, 2, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    assert_status(weir_import(0, e.parts, e.count, &base), WEIR_ERR_DRIVER);
    assert_null(base);
    assert_non_null(device->cache.imports);
    close_all(&e);
}

/* The driver does not take the memory back, which cannot be used any more either. */
static void addresses_where_an_import_stays_mapped_are_not_given_back(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL;
    (void)import_of(0, alloc(MIB), &e, &base);
    const uint64_t released = calls_of(WEIR_BACKEND_vm_release);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_destroy, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));
    assert_ok(weir_import_close(base));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_release), released);
    assert_status(weir_import_close(base), WEIR_ERR_UNKNOWN_POINTER);
}

static const char *import_base;
static size_t import_unmapped;

static weir_status watch_unmap(int ordinal, void *base, size_t bytes)
{
    if (base == import_base + import_unmapped) import_unmapped += bytes;
    return real->vm_unmap(ordinal, base, bytes);
}

static void an_import_ends_when_weir_closes(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL;
    (void)import_of(0, alloc(70 * MIB), &e, &base);
    import_base = base;
    import_unmapped = 0;
    watched.vm_unmap = watch_unmap;
    assert_ok(weir_close());
    assert_int_equal(import_unmapped, total_of(&e));
}

static void an_import_that_ended_in_part_can_be_ended_later(void **state)
{
    (void)state;
    exports e = { .count = 0 };
    void *base = NULL;
    (void)import_of(0, alloc(70 * MIB), &e, &base);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 2, WEIR_ERR_DRIVER));
    assert_status(weir_import_close(base), WEIR_ERR_DRIVER);
    assert_ok(weir_device_enable_peer(1, 0)); /* reaches the part that is left */
    assert_ok(weir_import_close(base));
    assert_status(weir_import_close(base), WEIR_ERR_UNKNOWN_POINTER);
}

#define SHARE_TEST(test) cmocka_unit_test_setup_teardown(test, open_devices, close_devices)
#define EXPORT_TEST(test) cmocka_unit_test_setup_teardown(test, open_exporting, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARE_TEST(a_peer_reaches_present_and_later_memory),
        SHARE_TEST(a_peer_reaches_chunks_that_are_there),
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
        EXPORT_TEST(a_device_that_imports_nothing_says_so),
        EXPORT_TEST(a_block_of_many_chunks_is_exported_whole),
        EXPORT_TEST(any_address_in_a_block_names_the_same_memory),
        EXPORT_TEST(memory_that_was_mapped_elsewhere_is_exported_where_it_is_now),
        EXPORT_TEST(too_little_room_for_descriptors_makes_none),
        EXPORT_TEST(an_export_that_fails_leaves_no_descriptors_but_those_kept),
        EXPORT_TEST(what_was_exported_is_exported_again_without_the_driver),
        EXPORT_TEST(a_child_of_fork_keeps_no_exported_memory),
        EXPORT_TEST(a_chunk_without_a_descriptor_to_spare_is_an_error_that_says_so),
        EXPORT_TEST(a_driver_that_does_not_say_that_descriptors_are_used_up_is_explained),
        cmocka_unit_test_setup_teardown(so_many_chunks_keep_a_descriptor_and_no_more, open_exporting_much,
                                        close_devices),
        cmocka_unit_test_setup_teardown(all_devices_together_keep_no_more, open_exporting_much, close_devices),
        EXPORT_TEST(an_import_of_many_parts_fails_as_a_whole),
        EXPORT_TEST(imports_that_ended_or_failed_leave_no_records),
        EXPORT_TEST(an_import_that_fails_and_cannot_be_undone_is_kept_until_weir_closes),
        EXPORT_TEST(addresses_where_an_import_stays_mapped_are_not_given_back),
        cmocka_unit_test_setup(an_import_ends_when_weir_closes, open_exporting),
        EXPORT_TEST(an_import_that_ended_in_part_can_be_ended_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
