/*
 * hip_support: the hip back end over a stand-in for libamdhip64, by default ROCm 6's. Include after the cmocka headers.
 * The stand-in's own functions are called through wr_hip_runtime, as another user of the runtime would call them.
 */
#ifndef WEIR_TESTS_HIP_SUPPORT_H
#define WEIR_TESTS_HIP_SUPPORT_H

#include "backend/backend.h"
#include "backend/hip/hip_internal.h"

static const weir_backend *const b = &wr_backend_hip;

#include "unit/vendor_support.h"

#define EVENT_CREATE "hipEventCreateWithFlags"          /* the runtime's function behind event_create */
#define NODE_DEPENDENCIES "hipGraphNodeGetDependencies" /* that behind node_dependencies */
#define runtime_ok(call) assert_int_equal(call, WR_hipSuccess)

static void (*standin_refuse_frees)(int code);
static const char *(*standin_logged)(unsigned long back);

static inline void use_standin(const char *path)
{
    void *library = load_standin("WEIR_LIB_HIP", path);
    *(void **)&standin_fail = standin_function(library, "standin_hip_fail");
    *(void **)&standin_refuse_frees = standin_function(library, "standin_hip_refuse_frees");
    *(void **)&standin_calls = standin_function(library, "standin_hip_calls");
    *(void **)&standin_logged = standin_function(library, "standin_hip_logged");
}

/* Setup and teardown of a test with device 0 open. */
static inline int open_hip(void **state)
{
    (void)state;
    use_standin(HIP_STANDIN_6);
    open_device_0();
    return 0;
}

#define hip_test(test) cmocka_unit_test_setup_teardown(test, open_hip, close_vendor)

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

#endif
