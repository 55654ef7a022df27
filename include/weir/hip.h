/**
 * @file hip.h
 * @brief Typed getters for handles of AMD's libraries: weir_miopen(&h), weir_miopen_on(stream, &h) and so on.
 *
 * Needs no vendor header and agrees with them: include them before or after this one, or not at all. Each getter is
 * weir_handle_get() or weir_handle_get_on() with the library's own type; their comments hold here too. Needs C11 or
 * C++, where a typedef may be repeated.
 */
#ifndef WEIR_HIP_H
#define WEIR_HIP_H

#include "weir/getter.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct miopenHandle *miopenHandle_t;
typedef struct _rocblas_handle *rocblas_handle;
typedef void *hipblasHandle_t;
typedef void *hipblasLtHandle_t;
typedef struct _rocsparse_handle *rocsparse_handle;
typedef void *hipsparseHandle_t;
typedef void *hipsolverHandle_t;
typedef struct rocrand_generator_base_type *rocrand_generator;

#ifdef __cplusplus
}
#endif

/** MIOpen, with device memory from weir. Since 0.1. */
WEIR_HANDLE_GETTER(weir_miopen, miopenHandle_t, WEIR_MIOPEN)
/** rocBLAS, and rocSOLVER, which has no handle of its own. Its workspace is weir's memory. Since 0.1. */
WEIR_HANDLE_GETTER(weir_rocblas, rocblas_handle, WEIR_ROCBLAS)
/** hipBLAS. Since 0.1. */
WEIR_HANDLE_GETTER(weir_hipblas, hipblasHandle_t, WEIR_HIPBLAS)
/** hipBLASLt: no stream on the handle. Since 0.1. */
WEIR_HANDLE_GETTER(weir_hipblaslt, hipblasLtHandle_t, WEIR_HIPBLASLT)
/** rocSPARSE. Since 0.1. */
WEIR_HANDLE_GETTER(weir_rocsparse, rocsparse_handle, WEIR_ROCSPARSE)
/** hipSPARSE. Since 0.1. */
WEIR_HANDLE_GETTER(weir_hipsparse, hipsparseHandle_t, WEIR_HIPSPARSE)
/** hipSOLVER, dense. Since 0.1. */
WEIR_HANDLE_GETTER(weir_hipsolver, hipsolverHandle_t, WEIR_HIPSOLVER)
/** rocRAND: an XORWOW generator, with the default seed when it is new to the thread. Since 0.1. */
WEIR_HANDLE_GETTER(weir_rocrand, rocrand_generator, WEIR_ROCRAND)

#endif
