/*
 * On a real AMD GPU, what the contract tests cannot cover: how weir shares the runtime with others, and the library as
 * a whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_weir.h"
#include "backend/backend.h"
#include "backend/hip/hip_internal.h"
#include "backend/library.h"
#include "base/dl.h"
#include "thread_support.h"
#include "whole_library.h"

#include <stdlib.h>
#include <string.h>

#define runtime_ok(call) assert_int_equal(call, WR_hipSuccess)

static const weir_backend *const b = &wr_backend_hip;
static const weir_backend_config config = { .size = sizeof config, .host_devices = 1, .host_memory = 1 << 24 };
static weir_device_caps caps;
static void *stream;

static int open_device(void **state)
{
    (void)state;
    assert_ok(b->open(&config));
    assert_ok(b->device_open(0, &caps));
    assert_ok(b->stream_create(0, caps.priority_least, &stream));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    assert_ok(b->stream_destroy(0, stream));
    assert_ok(b->close());
    return 0;
}

static void device_is_described(void **state)
{
    (void)state;
    print_message("%s, %llu MiB, compute %u.%u, granularity %llu, priorities %d to %d\n", caps.name,
                  (unsigned long long)(caps.total_memory / MIB), caps.compute_major, caps.compute_minor,
                  (unsigned long long)caps.granularity, caps.priority_least, caps.priority_greatest);
    assert_non_null(strstr(caps.name, "(gfx"));
    assert_true(caps.compute_major >= 8);
}

static void current_device_and_capture_mode_stay(void **state)
{
    (void)state;
    void *event;
    int device = -1;
    hipStreamCaptureMode mode = WR_hipStreamCaptureModeThreadLocal;
    runtime_ok(wr_hip_runtime.hipThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, WR_hipStreamCaptureModeGlobal);
    assert_ok(b->event_create(0, &event));
    assert_ok(b->event_query(0, event));
    assert_ok(b->event_destroy(0, event));
    runtime_ok(wr_hip_runtime.hipGetDevice(&device));
    assert_int_equal(device, 0);
    runtime_ok(wr_hip_runtime.hipThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, WR_hipStreamCaptureModeThreadLocal);
}

/* The rule behind the exchange of the capture mode: allocating without it ends the capture of another thread. */
static void *alloc_directly(void *unused)
{
    void *base = NULL;
    (void)unused;
    hipError_t code = wr_hip_runtime.hipMalloc(&base, MIB);
    if (code == WR_hipSuccess) (void)wr_hip_runtime.hipFree(base);
    return (void *)(intptr_t)code;
}

static void direct_allocation_ends_a_capture(void **state)
{
    (void)state;
    void *graph;
    assert_ok(b->capture_begin(0, stream, WEIR_CAPTURE_GLOBAL));
    assert_int_equal((intptr_t)in_a_thread(alloc_directly, NULL), 900);
    assert_int_equal(b->capture_end(0, stream, &graph), WEIR_ERR_CAPTURE);
    weir_error error = { .size = sizeof error };
    assert_ok(weir_last_error(&error));
    assert_int_equal(error.native_code, 901);
}

static void scope_protects_other_peoples_calls(void **state)
{
    (void)state;
    for (int mode = WEIR_CAPTURE_GLOBAL; mode <= WEIR_CAPTURE_RELAXED; mode++) {
        void *graph, *base;
        weir_backend_scope scope;
        assert_ok(b->capture_begin(0, stream, (weir_capture_mode)mode));
        assert_ok(b->scope_enter(0, &scope));
        runtime_ok(wr_hip_runtime.hipMalloc(&base, MIB));
        runtime_ok(wr_hip_runtime.hipFree(base));
        b->scope_leave(&scope);
        assert_ok(b->capture_end(0, stream, &graph));
        assert_ok(b->graph_destroy(0, graph));
    }
}

static void virtual_memory_is_legal_while_capturing(void **state)
{
    (void)state;
    if (caps.granularity == 0) skip();
    size_t bytes = caps.granularity;
    void *graph, *base;
    weir_chunk chunk;
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
}

/* Kernels are given the addresses that weir returns. */
static void pinned_memory_has_one_address_for_host_and_device(void **state)
{
    (void)state;
    hipError_t (*ask)(void **base, void *host, unsigned int flags) = NULL;
    void *block, *address = NULL;
    for (const char *const *name = wr_hip_sonames; *name != NULL && ask == NULL; name++) {
        void *library = wr_dl_present(*name);
        if (library != NULL) *(void **)&ask = wr_dl_find(library, "hipHostGetDevicePointer");
        wr_dl_close(library);
    }
    assert_non_null(ask);
    assert_ok(b->pinned_alloc(0, 4 * MIB, &block));
    runtime_ok(ask(&address, (char *)block + MIB, 0));
    assert_ptr_equal(address, (char *)block + MIB);
    assert_ok(b->pinned_free(0, block, 4 * MIB));
}

static void whole_library_runs(void **state)
{
    (void)state;
    run_whole_library("hip");
}

#define device_test(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(device_is_described),
        device_test(current_device_and_capture_mode_stay),
        device_test(direct_allocation_ends_a_capture),
        device_test(scope_protects_other_peoples_calls),
        device_test(virtual_memory_is_legal_while_capturing),
        device_test(pinned_memory_has_one_address_for_host_and_device),
        cmocka_unit_test(whole_library_runs),
    };
    weir_status status = b->open(&config);
    if (status == WEIR_ERR_NO_LIBRARY || status == WEIR_ERR_NO_DEVICE) {
        print_message("skipped: %s\n", weir_error_text());
        return 77;
    }
    if (status == WEIR_OK && b->close() != WEIR_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
