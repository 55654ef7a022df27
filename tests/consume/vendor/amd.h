/* Stand-in for AMD's headers: the declarations of handles as theirs have them. */
#ifndef STANDIN_AMD_H
#define STANDIN_AMD_H

/* Vendors' headers are system headers: MIOpen's empty struct is none of C's. */
#ifdef __GNUC__
#pragma GCC system_header
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct miopenHandle {
};
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
#endif
