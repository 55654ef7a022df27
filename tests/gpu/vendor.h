/*
 * vendor: the functions of NVIDIA's libraries that the tests call. They are declared here, since the build has no
 * vendor headers, and taken from the files that weir loaded. Enums are ints and descriptors are untyped, as in the ABI.
 */
#ifndef WEIR_TESTS_GPU_VENDOR_H
#define WEIR_TESTS_GPU_VENDOR_H

#include "weir/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { CUDA_FLOAT = 0, CUDA_DOUBLE = 1, CUDA_INT32 = 10 };
enum { CUBLAS_COMPUTE_FLOAT = 68, CUSPARSE_INT32 = 2 };
enum { CUDNN_CROSS_CORRELATION = 1 };
enum { CUDSS_ANALYSIS = 0x003, CUDSS_FACTORIZATION = 0x004, CUDSS_SOLVE = 0x3f0 }; /* from version 0.6 on */
enum { CUTENSOR_IDENTITY = 1, CUTENSOR_DEFAULT_ALGORITHM = -1 };

#define VENDOR_FUNCTIONS(X)                                                                                            \
    X(WEIR_CUBLAS, cublasSgemm_v2,                                                                                     \
      (cublasHandle_t, int, int, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b,     \
       int ldb, const float *beta, float *c, int ldc))                                                                 \
    X(WEIR_CUBLAS, cublasDgemm_v2,                                                                                     \
      (cublasHandle_t, int, int, int m, int n, int k, const double *alpha, const double *a, int lda, const double *b,  \
       int ldb, const double *beta, double *c, int ldc))                                                               \
    X(WEIR_CUBLASLT, cublasLtMatmulDescCreate, (void **, int compute, int scale))                                      \
    X(WEIR_CUBLASLT, cublasLtMatmulDescDestroy, (void *))                                                              \
    X(WEIR_CUBLASLT, cublasLtMatrixLayoutCreate, (void **, int type, uint64_t rows, uint64_t columns, int64_t ld))     \
    X(WEIR_CUBLASLT, cublasLtMatrixLayoutDestroy, (void *))                                                            \
    X(WEIR_CUBLASLT, cublasLtMatmul,                                                                                   \
      (cublasLtHandle_t, void *description, const void *alpha, const void *a, void *layout_a, const void *b,           \
       void *layout_b, const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *algo,     \
       void *workspace, size_t workspace_bytes, void *stream))                                                         \
    X(WEIR_CUSPARSE, cusparseCreateCsr,                                                                                \
      (void **, int64_t rows, int64_t columns, int64_t entries, void *offsets, void *indices, void *values,            \
       int offsets_type, int indices_type, int base, int value_type))                                                  \
    X(WEIR_CUSPARSE, cusparseDestroySpMat, (const void *))                                                             \
    X(WEIR_CUSPARSE, cusparseCreateDnVec, (void **, int64_t size, void *values, int value_type))                       \
    X(WEIR_CUSPARSE, cusparseDestroyDnVec, (const void *))                                                             \
    X(WEIR_CUSPARSE, cusparseSpMV_bufferSize,                                                                          \
      (cusparseHandle_t, int, const void *alpha, const void *matrix, const void *x, const void *beta, void *y,         \
       int type, int algorithm, size_t *bytes))                                                                        \
    X(WEIR_CUSPARSE, cusparseSpMV,                                                                                     \
      (cusparseHandle_t, int, const void *alpha, const void *matrix, const void *x, const void *beta, void *y,         \
       int type, int algorithm, void *buffer))                                                                         \
    X(WEIR_CUSPARSE, cusparseCreateMatDescr, (void **))                                                                \
    X(WEIR_CUSPARSE, cusparseDestroyMatDescr, (void *))                                                                \
    X(WEIR_CUSOLVER_DN, cusolverDnDgetrf_bufferSize,                                                                   \
      (cusolverDnHandle_t, int m, int n, double *a, int lda, int *size))                                               \
    X(WEIR_CUSOLVER_DN, cusolverDnDgetrf,                                                                              \
      (cusolverDnHandle_t, int m, int n, double *a, int lda, double *workspace, int *pivots, int *info))               \
    X(WEIR_CUSOLVER_DN, cusolverDnDgetrs,                                                                              \
      (cusolverDnHandle_t, int, int n, int right_sides, const double *a, int lda, const int *pivots, double *b,        \
       int ldb, int *info))                                                                                            \
    X(WEIR_CUSOLVER_SP, cusolverSpDcsrlsvqr,                                                                           \
      (cusolverSpHandle_t, int n, int entries, const void *description, const double *values, const int *offsets,      \
       const int *indices, const double *b, double tolerance, int reorder, double *x, int *singularity))               \
    X(WEIR_CUDNN, cudnnCreateTensorDescriptor, (void **))                                                              \
    X(WEIR_CUDNN, cudnnSetTensor4dDescriptor, (void *, int format, int type, int n, int c, int h, int w))              \
    X(WEIR_CUDNN, cudnnDestroyTensorDescriptor, (void *))                                                              \
    X(WEIR_CUDNN, cudnnCreateFilterDescriptor, (void **))                                                              \
    X(WEIR_CUDNN, cudnnSetFilter4dDescriptor, (void *, int type, int format, int k, int c, int h, int w))              \
    X(WEIR_CUDNN, cudnnDestroyFilterDescriptor, (void *))                                                              \
    X(WEIR_CUDNN, cudnnCreateConvolutionDescriptor, (void **))                                                         \
    X(WEIR_CUDNN, cudnnSetConvolution2dDescriptor,                                                                     \
      (void *, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h, int dilation_w, int mode, int type))  \
    X(WEIR_CUDNN, cudnnDestroyConvolutionDescriptor, (void *))                                                         \
    X(WEIR_CUDNN, cudnnGetConvolutionForwardWorkspaceSize,                                                             \
      (cudnnHandle_t, void *x, void *filter, void *convolution, void *y, int algorithm, size_t *bytes))                \
    X(WEIR_CUDNN, cudnnConvolutionForward,                                                                             \
      (cudnnHandle_t, const void *alpha, void *layout_x, const void *x, void *layout_filter, const void *filter,       \
       void *convolution, int algorithm, void *workspace, size_t workspace_bytes, const void *beta, void *layout_y,    \
       void *y))                                                                                                       \
    X(WEIR_CUDSS, cudssGetProperty, (int property, int *value))                                                        \
    X(WEIR_CUDSS, cudssConfigCreate, (void **))                                                                        \
    X(WEIR_CUDSS, cudssConfigDestroy, (void *))                                                                        \
    X(WEIR_CUDSS, cudssDataCreate, (cudssHandle_t, void **))                                                           \
    X(WEIR_CUDSS, cudssDataDestroy, (cudssHandle_t, void *))                                                           \
    X(WEIR_CUDSS, cudssMatrixCreateDn,                                                                                 \
      (void **, int64_t rows, int64_t columns, int64_t ld, void *values, int type, int layout))                        \
    X(WEIR_CUDSS, cudssMatrixCreateCsr, (void))                                                                        \
    X(WEIR_CUDSS, cudssMatrixDestroy, (void *))                                                                        \
    X(WEIR_CUDSS, cudssExecute,                                                                                        \
      (cudssHandle_t, int phase, void *config, void *data, void *matrix, void *solution, void *right_side))            \
    X(WEIR_CURAND, curandGenerateUniform, (curandGenerator_t, float *out, size_t count))                               \
    X(WEIR_CUTENSOR, cutensorCreateTensorDescriptor,                                                                   \
      (cutensorHandle_t, void **, uint32_t modes, const int64_t *extents, const int64_t *strides, int type,            \
       uint32_t alignment))                                                                                            \
    X(WEIR_CUTENSOR, cutensorDestroyTensorDescriptor, (void *))                                                        \
    X(WEIR_CUTENSOR, cutensorCreatePermutation,                                                                        \
      (cutensorHandle_t, void **, void *a, const int32_t *modes_a, int operator_a, void *b, const int32_t *modes_b,    \
       void *compute))                                                                                                 \
    X(WEIR_CUTENSOR, cutensorDestroyOperationDescriptor, (void *))                                                     \
    X(WEIR_CUTENSOR, cutensorCreatePlanPreference, (cutensorHandle_t, void **, int algorithm, int jit))                \
    X(WEIR_CUTENSOR, cutensorDestroyPlanPreference, (void *))                                                          \
    X(WEIR_CUTENSOR, cutensorCreatePlan,                                                                               \
      (cutensorHandle_t, void **, void *operation, void *preference, uint64_t workspace_limit))                        \
    X(WEIR_CUTENSOR, cutensorDestroyPlan, (void *))                                                                    \
    X(WEIR_CUTENSOR, cutensorPermute,                                                                                  \
      (cutensorHandle_t, void *plan, const void *alpha, const void *a, void *b, void *stream))

/* Of cuDSS up to 0.7, and of later versions, where the offsets may have a type of their own. */
typedef int (*cudss_csr_7)(void **, int64_t rows, int64_t columns, int64_t entries, void *starts, void *ends,
                           void *indices, void *values, int index_type, int value_type, int type, int view, int base);
typedef int (*cudss_csr_8)(void **, int64_t rows, int64_t columns, int64_t entries, const void *starts,
                           const void *ends, const void *indices, const void *values, int offset_type, int index_type,
                           int value_type, int type, int view, int base);

static struct {
#define X(kind, name, parameters) int(*name) parameters;
    VENDOR_FUNCTIONS(X)
#undef X
    void *cutensor_compute_float;
} vendor;

static bool vendor_has[WEIR_HANDLE_KIND_FIRST_USER];

static const struct {
    weir_handle_kind kind;
    const char *name;
    void *place;
} vendor_rows[] = {
#define X(kind, name, parameters) { kind, #name, &vendor.name },
    VENDOR_FUNCTIONS(X)
#undef X
};

/* The file that weir loaded for a kind; NULL: its library is not present. */
static void *vendor_file(weir_handle_kind kind, weir_handle_kind_info *info)
{
    *info = (weir_handle_kind_info){ .size = sizeof *info };
    if (weir_handle_kind_info_get(kind, info) != WEIR_OK) return NULL;
    return dlopen(info->library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

/* Finds the functions of all libraries present. Returns the name of one that such a library lacks; NULL: none. */
static const char *vendor_find(void)
{
    weir_handle_kind_info info;
    for (size_t i = 0; i < sizeof vendor_rows / sizeof vendor_rows[0]; i++) {
        void *file = vendor_file(vendor_rows[i].kind, &info);
        if (file == NULL) continue;
        void *address = dlsym(file, vendor_rows[i].name);
        if (address == NULL) return vendor_rows[i].name;
        memcpy(vendor_rows[i].place, &address, sizeof address);
        vendor_has[vendor_rows[i].kind] = true;
    }
    if (vendor_has[WEIR_CUTENSOR]) {
        void *const *compute = dlsym(vendor_file(WEIR_CUTENSOR, &info), "CUTENSOR_COMPUTE_DESC_32F");
        if (compute == NULL) return "CUTENSOR_COMPUTE_DESC_32F";
        vendor.cutensor_compute_float = *compute;
    }
    return NULL;
}

#endif
