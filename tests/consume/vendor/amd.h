/* Stand-in for AMD's headers: the declarations of handles as theirs have them. */
#ifndef STANDIN_AMD_H
#define STANDIN_AMD_H

/* A system header, like the vendor's, so that MIOpen's empty struct, which is not standard C, gives no warning. */
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
