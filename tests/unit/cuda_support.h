/*
 * cuda_support: the cuda back end over the stand-in for libcuda. Include after the cmocka headers. The stand-in's own
 * functions are called through wr_cu, as another user of the driver would call them.
 */
#ifndef WEIR_TESTS_CUDA_SUPPORT_H
#define WEIR_TESTS_CUDA_SUPPORT_H

#include "backend/backend.h"
#include "cuda_driver.h"

static const weir_backend *const b = &wr_backend_cuda;

#include "unit/vendor_support.h"

#define EVENT_CREATE "cuEventCreate"                   /* the driver's function behind event_create */
#define NODE_DEPENDENCIES "cuGraphNodeGetDependencies" /* that behind node_dependencies */

static unsigned long (*standin_rdma_chunks)(void);
static CUresult (*standin_reset)(CUdevice device);
static CUresult (*standin_make_context)(CUcontext *context, unsigned int flags, CUdevice device);
static CUresult (*standin_green_context)(CUcontext *context, CUdevice device);
static CUresult (*standin_end_context)(CUcontext context);

static inline void use_standin(const char *path)
{
    void *library = load_standin("WEIR_LIB_CUDA", path);
    *(void **)&standin_fail = standin_function(library, "standin_cuda_fail");
    *(void **)&standin_calls = standin_function(library, "standin_cuda_calls");
    *(void **)&standin_rdma_chunks = standin_function(library, "standin_cuda_rdma_chunks");
    *(void **)&standin_reset = standin_function(library, "cuDevicePrimaryCtxReset_v2");
    *(void **)&standin_make_context = standin_function(library, "cuCtxCreate_v2");
    *(void **)&standin_green_context = standin_function(library, "standin_cuda_green_context");
    *(void **)&standin_end_context = standin_function(library, "cuCtxDestroy_v2");
}

/* Setup and teardown of a test with device 0 open. */
static inline int open_cuda(void **state)
{
    (void)state;
    use_standin(CUDA_STANDIN);
    open_device_0();
    return 0;
}

#define cuda_test(test) cmocka_unit_test_setup_teardown(test, open_cuda, close_vendor)

/* Sets the thread's capture mode and returns the previous one. */
static inline CUstreamCaptureMode exchange(CUstreamCaptureMode mode)
{
    driver_ok(wr_cu.cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

#endif
