/*
 * hip_support: the hip back end over a stand-in for libamdhip64, by default ROCm 6's. Include after the cmocka headers.
 * The stand-in's own functions are called through wr_hip_runtime, as another user of the runtime would call them.
 */
#ifndef WEIR_TESTS_HIP_SUPPORT_H
#define WEIR_TESTS_HIP_SUPPORT_H

#include "assert_weir.h"
#include "backend/backend.h"
#include "backend/hip/hip_internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define ok(call) assert_int_equal(call, WEIR_OK)
#define runtime_ok(call) assert_int_equal(call, WR_hipSuccess)

static const weir_backend *const b = &wr_backend_hip;
static const weir_backend_config hip_config = { .size = sizeof hip_config, .host_devices = 1, .host_memory = 1 << 24 };

static void (*standin_fail)(const char *name, unsigned long nth, int code);
static void (*standin_refuse_frees)(int code);
static unsigned long (*standin_calls)(const char *name);
static const char *(*standin_logged)(unsigned long back);

static inline void *standin_function(void *library, const char *name)
{
    void *found = dlsym(library, name);
    assert_non_null(found);
    return found;
}

static inline void use_standin(const char *path)
{
    setenv("WEIR_LIB_HIP", path, 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never unloaded, as the back end's own handle */
    if (library == NULL) fail_msg("%s", dlerror());
    *(void **)&standin_fail = standin_function(library, "standin_hip_fail");
    *(void **)&standin_refuse_frees = standin_function(library, "standin_hip_refuse_frees");
    *(void **)&standin_calls = standin_function(library, "standin_hip_calls");
    *(void **)&standin_logged = standin_function(library, "standin_hip_logged");
}

/* Setup and teardown of a test with device 0 open. */
static inline int open_hip(void **state)
{
    (void)state;
    weir_device_caps caps;
    use_standin(HIP_STANDIN_6);
    ok(b->open(&hip_config));
    ok(b->device_open(0, &caps));
    return 0;
}

static inline int close_hip(void **state)
{
    (void)state;
    weir_status status = b->close();
    assert_true(status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST);
    return 0;
}

#define hip_test(test) cmocka_unit_test_setup_teardown(test, open_hip, close_hip)

static inline int current_device(void)
{
    int device = -1;
    runtime_ok(wr_hip_runtime.hipGetDevice(&device));
    return device;
}

/* Sets the thread's capture mode and returns the previous one. */
static inline hipStreamCaptureMode exchange(hipStreamCaptureMode mode)
{
    runtime_ok(wr_hip_runtime.hipThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static inline int64_t native_code(void)
{
    weir_error error = { .size = sizeof error };
    ok(weir_last_error(&error));
    assert_string_equal(error.library, "hip");
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
