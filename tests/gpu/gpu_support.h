/*
 * gpu_support: shared by tests of the whole library on a real GPU: opening it, the driver's functions, a capture with
 * work in it. Include after the cmocka headers. The tests call the driver through wr_cu, as another user of it would;
 * functions that weir does not use are found by name. All of it runs on the stand-in for libcuda too.
 */
#ifndef WEIR_TESTS_GPU_SUPPORT_H
#define WEIR_TESTS_GPU_SUPPORT_H

#include "assert_weir.h"
#include "cuda_driver.h"
#include "thread_support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int open_weir(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    assert_ok(weir_open(&settings));
    return 0;
}

static inline int close_weir(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return 0;
}

/* Teardown: all structures are still consistent, and closing works. */
static inline int close_valid(void **state)
{
    assert_ok(weir_validate(0));
    return close_weir(state);
}

/* For main(): 0 where there is a GPU (or the stand-in); else what main() must return, after printing the reason. */
static inline int no_gpu(void)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    weir_status status = weir_open(&settings);
    if (status == WEIR_ERR_NO_LIBRARY || status == WEIR_ERR_NO_DEVICE) {
        print_message("skipped: %s\n", weir_error_text());
        return 77;
    }
    if (status == WEIR_OK) status = weir_close();
    if (status == WEIR_OK) return 0;
    print_error("%s\n", weir_error_text());
    return 1;
}

/* A driver function by its exported name; NULL: this driver lacks it. */
static inline void *driver_function(const char *name)
{
    const char *file = getenv("WEIR_LIB_CUDA");
    void *library = dlopen(file != NULL ? file : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    return dlsym(library, name);
}

static inline bool on_standin(void)
{
    return driver_function("standin_cuda_fail") != NULL;
}

/* Tools that hold device memory of their own distort figures of free memory; scripts/gpu says when one runs. */
static inline bool sanitized(void)
{
    return getenv("GPU_TESTS_SANITIZED") != NULL;
}

/* ---- a capture with work in it ----------------------------------------------------------------------------------- */

/* Half of the work is captured before the tested operation, half after it. The graph must replay correctly. */
enum { RECORDED_BYTES = 1 << 16 };

typedef struct recording {
    CUstream stream;
    CUdeviceptr source, destination;
} recording;

static inline void recording_begin(recording *r, CUstream stream, CUstreamCaptureMode mode)
{
    r->stream = stream;
    driver_ok(wr_cu.cuMemAlloc(&r->source, RECORDED_BYTES));
    driver_ok(wr_cu.cuMemAlloc(&r->destination, RECORDED_BYTES));
    driver_ok(wr_cu.cuStreamBeginCapture(stream, mode));
    driver_ok(wr_cu.cuMemsetD8Async(r->source, 0x5a, RECORDED_BYTES, stream));
}

static inline void recording_replay(const recording *r, CUgraph graph)
{
    static unsigned char found[RECORDED_BYTES], expected[RECORDED_BYTES];
    CUgraphExec exec;
    driver_ok(wr_cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    memset(expected, 0x5a, sizeof expected);
    for (int replay = 0; replay < 2; replay++) {
        memset(found, 0, sizeof found);
        driver_ok(wr_cu.cuMemsetD8Async(r->source, 0, RECORDED_BYTES, r->stream));
        driver_ok(wr_cu.cuMemsetD8Async(r->destination, 0, RECORDED_BYTES, r->stream));
        driver_ok(wr_cu.cuGraphLaunch(exec, r->stream));
        driver_ok(wr_cu.cuMemcpyAsync((uintptr_t)found, r->destination, sizeof found, r->stream));
        driver_ok(wr_cu.cuStreamSynchronize(r->stream));
        assert_memory_equal(found, expected, sizeof found);
    }
    driver_ok(wr_cu.cuGraphExecDestroy(exec));
    driver_ok(wr_cu.cuGraphDestroy(graph));
}

/* The result of ending the capture. On success the graph was also replayed and its result checked. */
static inline CUresult recording_end(recording *r)
{
    CUgraph graph = NULL;
    (void)wr_cu.cuMemcpyAsync(r->destination, r->source, RECORDED_BYTES, r->stream); /* refused if invalidated */
    CUresult code = wr_cu.cuStreamEndCapture(r->stream, &graph);
    if (code == WR_CUDA_SUCCESS) recording_replay(r, graph);
    driver_ok(wr_cu.cuMemFree(r->source));
    driver_ok(wr_cu.cuMemFree(r->destination));
    return code;
}

/* Runs function(argument) here or on a thread of its own, which must not assert. */
static inline void run_on(bool other_thread, void *(*function)(void *), void *argument)
{
    if (!other_thread) {
        (void)function(argument);
        return;
    }
    (void)in_a_thread(function, argument);
}

#endif
