/*
 * cuda_support: the cuda back end over the stand-in for libcuda. Include after the cmocka headers. The stand-in's own
 * functions are called through wr_cu, as another user of the driver would call them.
 */
#ifndef WEIR_TESTS_CUDA_SUPPORT_H
#define WEIR_TESTS_CUDA_SUPPORT_H

#include "assert_weir.h"
#include "backend/backend.h"
#include "cuda_driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define ok(call) assert_int_equal(call, WEIR_OK)

static const weir_backend *const b = &wr_backend_cuda;
static const weir_backend_config cuda_config = { .size = sizeof cuda_config,
                                                 .host_devices = 1,
                                                 .host_memory = 1 << 24 };

static void (*standin_fail)(const char *name, unsigned long nth, int code);
static unsigned long (*standin_calls)(const char *name);
static unsigned long (*standin_rdma_chunks)(void);
static CUresult (*standin_reset)(CUdevice device);
static CUresult (*standin_make_context)(CUcontext *context, unsigned int flags, CUdevice device);
static CUresult (*standin_end_context)(CUcontext context);

static inline void *standin_function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

static inline void use_standin(const char *path)
{
    setenv("WEIR_LIB_CUDA", path, 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded, as the back end's own handle */
    if (library == NULL) fail_msg("%s", dlerror());
    *(void **)&standin_fail = standin_function(library, "standin_cuda_fail");
    *(void **)&standin_calls = standin_function(library, "standin_cuda_calls");
    *(void **)&standin_rdma_chunks = standin_function(library, "standin_cuda_rdma_chunks");
    *(void **)&standin_reset = standin_function(library, "cuDevicePrimaryCtxReset_v2");
    *(void **)&standin_make_context = standin_function(library, "cuCtxCreate_v2");
    *(void **)&standin_end_context = standin_function(library, "cuCtxDestroy_v2");
}

/* Setup and teardown of a test with device 0 open. */
static inline int open_cuda(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(CUDA_STANDIN);
    ok(b->open(&cuda_config));
    ok(b->device_open(0, &caps));
    return 0;
}

static inline int close_cuda(void **state)
{
    (void)state;
    weir_status status = b->close();
    assert_true(status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST);
    return 0;
}

#define cuda_test(test) cmocka_unit_test_setup_teardown(test, open_cuda, close_cuda)

/* Sets the thread's capture mode and returns the previous one. */
static inline CUstreamCaptureMode exchange(CUstreamCaptureMode mode)
{
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static inline int64_t native_code(void)
{
    weir_error error = { .size = sizeof error };
    ok(weir_last_error(&error));
    assert_string_equal(error.library, "cuda");
    return error.native_code;
}

static inline void *new_event(void)
{
    void *event;
    ok(b->event_create(0, &event));
    return event;
}

static inline void *new_stream(void)
{
    void *stream;
    ok(b->stream_create(0, 0, &stream));
    return stream;
}

#endif
