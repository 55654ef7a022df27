/* Stand-in for NVIDIA's headers: the declarations of handles as theirs have them, for machines without a toolkit. */
#ifndef STANDIN_NVIDIA_H
#define STANDIN_NVIDIA_H

#ifdef __cplusplus
extern "C" {
#endif

struct cublasContext;
typedef struct cublasContext *cublasHandle_t;
typedef struct cublasLtContext *cublasLtHandle_t;
struct cusparseContext;
typedef struct cusparseContext *cusparseHandle_t;
struct cusolverDnContext;
typedef struct cusolverDnContext *cusolverDnHandle_t;
struct cusolverSpContext;
typedef struct cusolverSpContext *cusolverSpHandle_t;
struct cudnnContext;
typedef struct cudnnContext *cudnnHandle_t;
struct curandGenerator_st;
typedef struct curandGenerator_st *curandGenerator_t;
struct cudssContext;
typedef struct cudssContext *cudssHandle_t;
typedef struct cutensorHandle *cutensorHandle_t;

#ifdef __cplusplus
}
#endif
#endif
