/*
 * Pausing, resuming and sharing memory on a real GPU, by the driver's own figures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "gpu_support.h"
#include "sanitized.h"

#include <time.h>
#include <unistd.h>

static const weir_backend *const b = &wr_backend_cuda;
static weir_stream stream;
static void *native;

static int open_stream(void **state)
{
    open_weir(state);
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    assert_ok(weir_stream_native(stream, &native));
    return 0;
}

static weir_device_info info(void)
{
    weir_device_info i = { .size = sizeof i };
    assert_ok(weir_device_info_get(0, &i));
    return i;
}

static void need_mapping(void)
{
    if (info().memory_granularity == 0) skip();
}

static weir_mempool make_pool(weir_memory_kind memory)
{
    weir_mempool pool = { 0 };
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = memory;
    snprintf(options.tag, sizeof options.tag, "a");
    assert_ok(weir_mempool_create(&options, &pool));
    return pool;
}

static void *alloc_from(weir_mempool pool, size_t bytes)
{
    void *block = NULL;
    assert_ok(weir_alloc_from(pool, bytes, stream, &block));
    return block;
}

static void *pattern(size_t bytes, unsigned seed)
{
    const size_t words = bytes / sizeof(uint64_t) + 1;
    uint64_t *p = malloc(words * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < words; i++) p[i] = (i + 1) * 0x9e3779b97f4a7c15 + seed;
    return p;
}

static void write_pattern(void *block, size_t bytes, unsigned seed)
{
    void *sent = pattern(bytes, seed);
    assert_ok(weir_copy(block, sent, bytes, stream));
    assert_ok(weir_stream_synchronize(stream));
    free(sent);
}

static bool has_pattern(const void *block, size_t bytes, unsigned seed)
{
    void *expected = pattern(bytes, seed), *received = malloc(bytes);
    assert_non_null(received);
    assert_ok(weir_copy(received, block, bytes, stream));
    assert_ok(weir_stream_synchronize(stream));
    const bool same = memcmp(expected, received, bytes) == 0;
    free(expected);
    free(received);
    return same;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

#define BLOCKS 10
static const size_t sizes[BLOCKS] = { 100, 5000, 70000, 3 * MIB, 512, 12 * MIB, 999999, 1, 40 * MIB, 2 * MIB };

static void contents_are_back_after_resuming(void **state)
{
    (void)state;
    need_mapping();
    weir_mempool pool = make_pool(WEIR_MEMORY_MAPPED);
    void *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = alloc_from(pool, sizes[i]);
        write_pattern(blocks[i], sizes[i], i);
    }
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP)); /* makes now what the driver makes once */
    assert_ok(weir_resume(0, "a"));
    const uint64_t left = info().free_memory;
    double start = seconds();
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    const double paused = seconds() - start;
    assert_true(info().free_memory >= left + 60 * MIB);
    assert_ok(weir_free(blocks[4]));
    start = seconds();
    assert_ok(weir_resume(0, "a"));
    print_message("60 MiB: paused in %.2f ms, resumed in %.2f ms\n", paused * 1e3, (seconds() - start) * 1e3);
    for (unsigned i = 0; i < BLOCKS; i++)
        if (i != 4 && !has_pattern(blocks[i], sizes[i], i)) fail_msg("block %u is not what it was", i);
    assert_int_equal(info().free_memory, left);
}

static void dropped_memory_is_usable_after_resuming(void **state)
{
    (void)state;
    need_mapping();
    void *block = alloc_from(make_pool(WEIR_MEMORY_MAPPED), 40 * MIB);
    const uint64_t left = info().free_memory;
    write_pattern(block, 40 * MIB, 1);
    assert_ok(weir_pause(0, NULL, WEIR_PAUSE_DROP));
    assert_true(info().free_memory >= left + 40 * MIB);
    assert_ok(weir_resume(0, NULL));
    write_pattern(block, 40 * MIB, 2);
    assert_true(has_pattern(block, 40 * MIB, 2));
}

/* What the driver itself may leave behind does not count. */
#define CYCLES (SANITIZED || on_standin() ? 40 : 1000)

static long resident_pages(void)
{
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &all, &resident), 2);
    fclose(file);
    return resident;
}

static void a_thousand_cycles_leave_nothing_behind(void **state)
{
    (void)state;
    need_mapping();
    weir_mempool pool = make_pool(WEIR_MEMORY_MAPPED);
    void *small = alloc_from(pool, 70000), *large = alloc_from(pool, 12 * MIB);
    write_pattern(small, 70000, 1);
    write_pattern(large, 12 * MIB, 2);
    for (int i = 0; i < 20; i++) { /* makes now what the driver makes once */
        assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
        assert_ok(weir_resume(0, "a"));
    }
    const uint64_t left = info().free_memory;
    const long resident = resident_pages();
    const double start = seconds();
    for (int i = 0; i < CYCLES; i++) {
        assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
        assert_ok(weir_resume(0, "a"));
    }
    print_message("%d cycles of 12 MiB in %.2f s\n", CYCLES, seconds() - start);
    assert_true(has_pattern(small, 70000, 1));
    assert_true(has_pattern(large, 12 * MIB, 2));
    assert_int_equal(info().free_memory, left);
    const long grown = resident_pages() - resident;
    if (!SANITIZED && grown * sysconf(_SC_PAGESIZE) > (long)(8 * MIB)) fail_msg("the process grew by %ld pages", grown);
}

static void a_graph_over_paused_memory_is_valid_after_resuming(void **state)
{
    (void)state;
    need_mapping();
    void *graph = NULL, *exec = NULL;
    weir_mempool pool = make_pool(WEIR_MEMORY_MAPPED);
    void *from = alloc_from(pool, 5 * MIB), *to = alloc_from(pool, 5 * MIB);
    write_pattern(from, 5 * MIB, 3);
    assert_ok(b->capture_begin(0, native, WEIR_CAPTURE_RELAXED));
    assert_ok(b->copy(0, native, to, from, 5 * MIB));
    assert_ok(b->fill(0, native, from, 0, 5 * MIB));
    assert_ok(b->capture_end(0, native, &graph));
    assert_ok(b->graph_instantiate(0, graph, &exec));
    for (unsigned i = 0; i < 3; i++) {
        write_pattern(from, 5 * MIB, 3 + i);
        assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
        assert_ok(weir_resume(0, "a"));
        assert_ok(b->graph_launch(0, exec, native));
        assert_ok(weir_stream_synchronize(stream));
        assert_true(has_pattern(to, 5 * MIB, 3 + i));
    }
    assert_ok(b->graph_exec_destroy(0, exec));
    assert_ok(b->graph_destroy(0, graph));
}

static void pausing_leaves_a_capture_alone(void **state)
{
    (void)state;
    need_mapping();
    void *graph = NULL;
    void *block = alloc_from(make_pool(WEIR_MEMORY_MAPPED), MIB);
    assert_ok(b->capture_begin(0, native, WEIR_CAPTURE_GLOBAL));
    assert_int_equal(weir_pause(0, "a", WEIR_PAUSE_KEEP), WEIR_ERR_CAPTURE);
    assert_ok(b->capture_end(0, native, &graph));
    assert_ok(b->graph_destroy(0, graph));
    write_pattern(block, MIB, 1);
    assert_true(has_pattern(block, MIB, 1));
}

static void an_export_and_its_import_are_the_same_memory(void **state)
{
    (void)state;
    need_mapping();
    if (!b->vm_import) skip();
    void *base = NULL;
    weir_export_part part;
    uint64_t offset = 0;
    size_t count = 0;
    weir_mempool pool = make_pool(WEIR_MEMORY_EXPORTABLE);
    void *first = alloc_from(pool, 3000), *block = alloc_from(pool, 70000);
    write_pattern(block, 70000, 5);
    assert_ok(weir_export(block, &part, 1, &count, &offset));
    assert_int_equal(count, 1);
    assert_int_equal(offset, (uintptr_t)block - (uintptr_t)first);
    const uint64_t left = info().free_memory;
    assert_ok(weir_import(0, &part, 1, &base));
    close(part.descriptor);
    assert_int_equal(info().free_memory, left);
    assert_ptr_not_equal((char *)base + offset, block);
    assert_true(has_pattern((char *)base + offset, 70000, 5));
    write_pattern((char *)base + offset, 70000, 6);
    assert_true(has_pattern(block, 70000, 6));
    assert_ok(weir_import_close(base));
    assert_int_equal(weir_import_close(base), WEIR_ERR_UNKNOWN_POINTER);
    assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
    assert_ok(weir_resume(0, "a"));
    assert_true(has_pattern(block, 70000, 6));
}

static void a_peer_reaches_mapped_memory(void **state)
{
    (void)state;
    need_mapping();
    int count = 0;
    weir_stream theirs = { 0 };
    assert_ok(weir_device_count(&count));
    if (count < 2 || weir_device_enable_peer(1, 0) != WEIR_OK) skip();
    weir_mempool pool = make_pool(WEIR_MEMORY_MAPPED);
    void *block = alloc_from(pool, MIB);
    assert_ok(weir_stream_create(1, WEIR_PRIORITY_DEFAULT, &theirs));
    for (int i = 0; i < 2; i++) {
        unsigned char last = 0;
        assert_ok(weir_fill(block, (unsigned char)(0x31 + i), MIB, theirs));
        assert_ok(weir_stream_synchronize(theirs));
        assert_ok(weir_copy(&last, (char *)block + MIB - 1, 1, stream));
        assert_ok(weir_stream_synchronize(stream));
        assert_int_equal(last, 0x31 + i);
        assert_ok(weir_pause(0, "a", WEIR_PAUSE_KEEP));
        assert_ok(weir_resume(0, "a"));
    }
}

static void pinned_and_managed_pools_work(void **state)
{
    (void)state;
    const weir_memory_kind kinds[] = { WEIR_MEMORY_PINNED, WEIR_MEMORY_MANAGED };
    for (int i = 0; i < 2; i++) {
        if (kinds[i] == WEIR_MEMORY_MANAGED && !b->managed_alloc) continue;
        weir_mempool pool = make_pool(kinds[i]);
        void *small = alloc_from(pool, 5000), *large = alloc_from(pool, 5 * MIB);
        write_pattern(small, 5000, 1);
        write_pattern(large, 5 * MIB, 2);
        assert_true(has_pattern(small, 5000, 1));
        assert_true(has_pattern(large, 5 * MIB, 2));
        assert_ok(weir_free(small));
        assert_ok(weir_free(large));
        assert_ok(weir_mempool_unref(pool));
    }
}

#define GPU_TEST(test) cmocka_unit_test_setup_teardown(test, open_stream, close_valid)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GPU_TEST(contents_are_back_after_resuming),       GPU_TEST(dropped_memory_is_usable_after_resuming),
        GPU_TEST(a_thousand_cycles_leave_nothing_behind), GPU_TEST(a_graph_over_paused_memory_is_valid_after_resuming),
        GPU_TEST(pausing_leaves_a_capture_alone),         GPU_TEST(an_export_and_its_import_are_the_same_memory),
        GPU_TEST(a_peer_reaches_mapped_memory),           GPU_TEST(pinned_and_managed_pools_work),
    };
    const int missing = no_gpu();
    if (missing != 0) return missing;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
