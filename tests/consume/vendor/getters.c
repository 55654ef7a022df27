/*
 * The typed getters together with the vendors' headers, as C and as C++. check_vendor.sh compiles it with or without
 * WEIR_FIRST, which puts weir's header first, and VENDOR_CUDA, which uses the toolkit's headers instead of the
 * stand-ins.
 */
#ifdef WEIR_FIRST
#include <weir/cuda.h>
#include <weir/hip.h>
#endif

#ifdef VENDOR_CUDA
#include <cublasLt.h>
#include <cublas_v2.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusolverSp.h>
#include <cusparse.h>
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#endif
#if __has_include(<cudss.h>)
#include <cudss.h>
#endif
#if __has_include(<cutensor.h>)
#include <cutensor.h>
#endif
#else
#include "nvidia.h"
#endif
#include "amd.h"

#include <weir/cuda.h>
#include <weir/hip.h>

/* Both forms of one getter, with the vendor's type. */
#define USE(getter, type)                                                                                              \
    do {                                                                                                               \
        type mine, named;                                                                                              \
        status = getter(&mine);                                                                                        \
        if (status == WEIR_OK) status = getter##_on(stream, &named);                                                   \
        if (status == WEIR_OK && mine != named) return WEIR_ERR_INTERNAL;                                              \
    } while (0)

weir_status use_all(weir_stream stream);

weir_status use_all(weir_stream stream)
{
    weir_status status;
    USE(weir_cublas, cublasHandle_t);
    USE(weir_cublaslt, cublasLtHandle_t);
    USE(weir_cusparse, cusparseHandle_t);
    USE(weir_cusolver_dn, cusolverDnHandle_t);
    USE(weir_cusolver_sp, cusolverSpHandle_t);
    USE(weir_cudnn, cudnnHandle_t);
    USE(weir_cudss, cudssHandle_t);
    USE(weir_curand, curandGenerator_t);
    USE(weir_cutensor, cutensorHandle_t);
    USE(weir_miopen, miopenHandle_t);
    USE(weir_rocblas, rocblas_handle);
    USE(weir_hipblas, hipblasHandle_t);
    USE(weir_hipblaslt, hipblasLtHandle_t);
    USE(weir_rocsparse, rocsparse_handle);
    USE(weir_hipsparse, hipsparseHandle_t);
    USE(weir_hipsolver, hipsolverHandle_t);
    USE(weir_rocrand, rocrand_generator);
    return status;
}
