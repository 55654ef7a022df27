/**
 * @file cuda.h
 * @brief Typed getters for handles of NVIDIA's libraries: weir_cusparse(&h), weir_cusparse_on(stream, &h) and so on.
 *
 * Needs no vendor header and agrees with them: include them before or after this one, or not at all. Each getter is
 * weir_handle_get() or weir_handle_get_on() with the library's own type; their comments hold here too. Needs C11 or
 * C++, where a typedef may be repeated.
 */
#ifndef WEIR_CUDA_H
#define WEIR_CUDA_H

#include "weir/getter.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cublasContext *cublasHandle_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cusparseContext *cusparseHandle_t;
typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct cusolverSpContext *cusolverSpHandle_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudssContext *cudssHandle_t;
typedef struct curandGenerator_st *curandGenerator_t;
typedef struct cutensorHandle *cutensorHandle_t; /* of version 2 */

#ifdef __cplusplus
}
#endif

/** cuBLAS. Its workspace is weir's memory: do not call cublasSetStream() or cublasSetWorkspace() on it. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cublas, cublasHandle_t, WEIR_CUBLAS)
/** cuBLASLt: no stream on the handle. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cublaslt, cublasLtHandle_t, WEIR_CUBLASLT)
/** cuSPARSE. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cusparse, cusparseHandle_t, WEIR_CUSPARSE)
/** cuSOLVER, dense. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cusolver_dn, cusolverDnHandle_t, WEIR_CUSOLVER_DN)
/** cuSOLVER, sparse (NVIDIA recommends cuDSS instead). Since 0.1. */
WEIR_HANDLE_GETTER(weir_cusolver_sp, cusolverSpHandle_t, WEIR_CUSOLVER_SP)
/** cuDNN. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cudnn, cudnnHandle_t, WEIR_CUDNN)
/** cuDSS, with device memory from weir. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cudss, cudssHandle_t, WEIR_CUDSS)
/** cuRAND: a default pseudo-random generator, with the default seed when it is new to the thread. Since 0.1. */
WEIR_HANDLE_GETTER(weir_curand, curandGenerator_t, WEIR_CURAND)
/** cuTENSOR: no stream on the handle. Since 0.1. */
WEIR_HANDLE_GETTER(weir_cutensor, cutensorHandle_t, WEIR_CUTENSOR)

#endif
