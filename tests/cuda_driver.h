/*
 * cuda_driver: asks the CUDA driver about contexts through wr_cu, as another user of the driver would. Include after
 * the cmocka headers.
 */
#ifndef WEIR_TESTS_CUDA_DRIVER_H
#define WEIR_TESTS_CUDA_DRIVER_H

#include "backend/cuda/cuda_internal.h"

#define driver_ok(call) assert_int_equal(call, WR_CUDA_SUCCESS)

static inline bool has_context(int device)
{
    unsigned flags;
    int active;
    driver_ok(wr_cu.cuDevicePrimaryCtxGetState(device, &flags, &active));
    return active;
}

static inline CUcontext current_context(void)
{
    CUcontext context;
    driver_ok(wr_cu.cuCtxGetCurrent(&context));
    return context;
}

#endif
