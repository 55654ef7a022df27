/*
 * On a real GPU, what the contract tests cannot cover: how weir shares the driver with others, and the library as a
 * whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "gpu_support.h"
#include "thread_support.h"
#include "whole_library.h"

static const weir_backend *const b = &wr_backend_cuda;
static const weir_backend_config config = { .size = sizeof config, .host_devices = 1, .host_memory = 1 << 24 };
static weir_device_caps caps;

static int open_device(void **state)
{
    (void)state;
    assert_ok(b->open(&config));
    assert_ok(b->device_open(0, &caps));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    assert_ok(b->close());
    return 0;
}

static void device_is_described(void **state)
{
    (void)state;
    print_message("%s, %llu MiB, compute %u.%u, granularity %llu, priorities %d to %d\n", caps.name,
                  (unsigned long long)(caps.total_memory / MIB), caps.compute_major, caps.compute_minor,
                  (unsigned long long)caps.granularity, caps.priority_least, caps.priority_greatest);
    assert_true(strlen(caps.name) > 0);
    assert_true(caps.compute_major >= 3);
}

static void only_open_devices_have_a_context(void **state)
{
    (void)state;
    assert_true(has_context(0));
    for (int i = 1; i < wr_cuda.count; i++) assert_false(has_context(i));
    assert_ok(b->device_close(0));
    assert_false(has_context(0));
}

static void current_context_and_capture_mode_stay(void **state)
{
    (void)state;
    void *event;
    CUstreamCaptureMode mode = WR_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    assert_null(current_context());
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, WR_CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_ok(b->event_create(0, &event));
    assert_ok(b->event_query(0, event));
    assert_ok(b->event_destroy(0, event));
    assert_null(current_context());
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, WR_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void thread_without_a_context_is_on_device_0(void **state)
{
    (void)state;
    int current = 7;
    assert_ok(b->device_get_current(&current));
    assert_int_equal(current, 0);
    assert_null(current_context());
    assert_ok(b->device_set_current(0));
    assert_ptr_equal(current_context(), wr_cuda.devices[0].context);
    assert_ok(b->device_get_current(&current));
    assert_int_equal(current, 0);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

static void closing_leaves_no_dead_context_current(void **state)
{
    (void)state;
    assert_ok(b->device_set_current(0));
    assert_ok(b->device_close(0));
    assert_null(current_context());
}

/* The rule behind the exchange of the capture mode: polling without it ends the capture of another thread. */
static void *poll_directly(void *event)
{
    driver_ok(wr_cu.cuCtxSetCurrent(wr_cuda.devices[0].context));
    return (void *)(intptr_t)wr_cu.cuEventQuery(event);
}

static void direct_poll_kills_a_capture(void **state)
{
    (void)state;
    void *event, *stream, *graph;
    assert_ok(b->event_create(0, &event));
    assert_ok(b->stream_create(0, caps.priority_least, &stream));
    assert_ok(b->capture_begin(0, stream, WEIR_CAPTURE_GLOBAL));
    assert_int_equal((intptr_t)in_a_thread(poll_directly, event), 900);
    assert_int_equal(b->capture_end(0, stream, &graph), WEIR_ERR_CAPTURE);
    weir_error error = { .size = sizeof error };
    assert_ok(weir_last_error(&error));
    assert_int_equal(error.native_code, 901);
    assert_ok(b->stream_destroy(0, stream));
    assert_ok(b->event_destroy(0, event));
}

static void scope_protects_other_peoples_calls(void **state)
{
    (void)state;
    for (int mode = WEIR_CAPTURE_GLOBAL; mode <= WEIR_CAPTURE_RELAXED; mode++) {
        void *stream, *graph;
        weir_backend_scope scope;
        CUdeviceptr base;
        assert_ok(b->stream_create(0, caps.priority_least, &stream));
        assert_ok(b->capture_begin(0, stream, (weir_capture_mode)mode));
        assert_ok(b->scope_enter(0, &scope));
        driver_ok(wr_cu.cuMemAlloc(&base, MIB));
        driver_ok(wr_cu.cuMemFree(base));
        b->scope_leave(&scope);
        assert_ok(b->capture_end(0, stream, &graph));
        assert_ok(b->graph_destroy(0, graph));
        assert_ok(b->stream_destroy(0, stream));
    }
}

static void virtual_memory_is_legal_while_capturing(void **state)
{
    (void)state;
    if (caps.granularity == 0) skip();
    size_t bytes = caps.granularity;
    void *stream, *graph, *base;
    weir_chunk chunk;
    assert_ok(b->stream_create(0, caps.priority_least, &stream));
    assert_ok(b->capture_begin(0, stream, WEIR_CAPTURE_GLOBAL));
    assert_ok(b->vm_reserve(0, 2 * bytes, 0, &base));
    assert_ok(b->vm_create(0, bytes, &chunk));
    assert_ok(b->vm_map(0, base, bytes, chunk));
    assert_ok(b->vm_access(0, base, bytes, 0));
    assert_ok(b->vm_unmap(0, base, bytes));
    assert_ok(b->vm_destroy(0, chunk, bytes));
    assert_ok(b->vm_release(0, base, 2 * bytes));
    assert_ok(b->capture_end(0, stream, &graph));
    assert_ok(b->graph_destroy(0, graph));
    assert_ok(b->stream_destroy(0, stream));
}

static void reservation_takes_a_hint(void **state)
{
    (void)state;
    if (caps.granularity == 0) skip();
    void *base, *other;
    assert_ok(b->vm_reserve(0, 2 * caps.granularity, 0, &base));
    assert_ok(b->vm_reserve(0, 2 * caps.granularity, (uintptr_t)base, &other));
    assert_ptr_not_equal(base, other);
    assert_ok(b->vm_release(0, other, 2 * caps.granularity));
    assert_ok(b->vm_release(0, base, 2 * caps.granularity));
}

/* The device is half full; the request would take some thousand chunks. */
static void request_without_room_is_refused_with_few_calls(void **state)
{
    weir_settings settings = { .size = sizeof settings, .backend = "cuda" };
    weir_device_info info = { .size = sizeof info };
    uint64_t before, after;
    void *half, *none = NULL;
    (void)state;
    assert_ok(b->open(&config));
    assert_ok(b->device_open(0, &caps));
    assert_ok(b->close());
    if (caps.total_memory < 8192 * MIB) skip(); /* a stand-in, whose memory is small */
    assert_ok(weir_open(&settings));
    assert_ok(weir_alloc(caps.total_memory / 2, &half));
    assert_ok(weir_device_info_get(0, &info));
    assert_ok(weir_driver_calls(&before));
    assert_status(weir_alloc(info.free_memory + caps.total_memory / 64, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_driver_calls(&after));
    print_message("%llu calls of the driver\n", (unsigned long long)(after - before));
    assert_in_range(after - before, 1, 40);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(alloc_on(caps.total_memory / 64, WEIR_STREAM_CURRENT)));
    assert_ok(weir_free(half));
    assert_ok(weir_close());
}

/* The driver moves it; nothing is touched here. */
static void managed_memory_may_be_more_than_the_device_has(void **state)
{
    weir_device_info info = { .size = sizeof info };
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool;
    void *block = NULL;
    (void)state;
    assert_ok(weir_device_info_get(0, &info));
    if (info.total_memory < 8192 * MIB) skip(); /* a stand-in */
    options.device = 0;
    options.memory = WEIR_MEMORY_MANAGED;
    assert_ok(weir_mempool_create(&options, &pool));
    assert_ok(weir_alloc_from(pool, info.total_memory + 1024 * MIB, WEIR_STREAM_CURRENT, &block));
    assert_ok(weir_free(block));
    assert_ok(weir_mempool_unref(pool));
}

static void *empty(void *emptied)
{
    assert_ok(weir_empty_cache(0));
    atomic_store((atomic_bool *)emptied, true);
    return NULL;
}

static void other_threads_get_memory_while_a_trim_waits_for_work(void **state)
{
    (void)state;
    const struct timespec tenth = { 0, 100000000 };
    atomic_bool ends = false, emptied = false;
    weir_memory_stats stats = { .size = sizeof stats };
    weir_stream one = { 0 }, two = { 0 };
    pthread_t thread;
    assert_ok(weir_stream_create(0, 0, &one));
    assert_ok(weir_stream_create(0, 0, &two));
    void *block = alloc_on(64 * MIB, one);
    assert_ok(weir_stream_callback(one, last_until, &ends));
    assert_ok(weir_free(block));
    assert_int_equal(pthread_create(&thread, NULL, empty, &emptied), 0);
    nanosleep(&tenth, NULL); /* it waits by then */
    block = alloc_on(48 * MIB, two);
    assert_false(atomic_load(&emptied));
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    assert_ok(weir_stats_get(0, &stats));
    assert_int_equal(stats.reserved_bytes[WEIR_STAT_ALL].current, 48 * MIB);
    assert_ok(weir_free(block));
    assert_ok(weir_stream_destroy(one));
    assert_ok(weir_stream_destroy(two));
}

static void whole_library_runs(void **state)
{
    (void)state;
    run_whole_library("cuda");
}

#define device_test(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(device_is_described),
        device_test(only_open_devices_have_a_context),
        device_test(current_context_and_capture_mode_stay),
        device_test(thread_without_a_context_is_on_device_0),
        device_test(closing_leaves_no_dead_context_current),
        device_test(direct_poll_kills_a_capture),
        device_test(scope_protects_other_peoples_calls),
        device_test(virtual_memory_is_legal_while_capturing),
        device_test(reservation_takes_a_hint),
        cmocka_unit_test(request_without_room_is_refused_with_few_calls),
        cmocka_unit_test_setup_teardown(managed_memory_may_be_more_than_the_device_has, open_weir, close_valid),
        cmocka_unit_test_setup_teardown(other_threads_get_memory_while_a_trim_waits_for_work, open_weir, close_valid),
        cmocka_unit_test(whole_library_runs),
    };
    const int missing = no_gpu();
    if (missing != 0) return missing;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
