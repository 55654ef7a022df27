/*
 * interop: shared by tests of weir next to other libraries in one process: weir opened on the cuda back end, and the
 * CUDA runtime, found at run time. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_GPU_INTEROP_H
#define WEIR_TESTS_GPU_INTEROP_H

#include "gpu_support.h"

#define cuda_ok(call)                                                                                                  \
    do {                                                                                                               \
        const int code_ = cuda.call;                                                                                   \
        if (code_ != 0) fail_msg("%s: %d", #call, code_);                                                              \
    } while (0)

enum { COPY_FROM_HOST = 1, COPY_TO_HOST = 2 };

#define CUDA_FUNCTIONS(X)                                                                                              \
    X(cudaGetDevice, (int *device))                                                                                    \
    X(cudaSetDevice, (int device))                                                                                     \
    X(cudaMalloc, (void **pointer, size_t bytes))                                                                      \
    X(cudaFree, (void *pointer))                                                                                       \
    X(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, void *stream))                        \
    X(cudaStreamCreate, (void **stream))                                                                               \
    X(cudaStreamDestroy, (void *stream))                                                                               \
    X(cudaStreamSynchronize, (void *stream))                                                                           \
    X(cudaLaunchHostFunc, (void *stream, void (*function)(void *argument), void *argument))

static struct {
#define X(name, parameters) int(*name) parameters;
    CUDA_FUNCTIONS(X)
#undef X
} cuda;

/* NULL, or what is missing. */
static inline const char *find_cuda_runtime(void)
{
    static const char *const files[] = { "libcudart.so.13", "libcudart.so.12", "libcudart.so" };
    void *library = NULL, *symbol = NULL;
    for (size_t i = 0; !library && i < sizeof files / sizeof files[0]; i++) library = dlopen(files[i], RTLD_NOW);
    if (!library) return "libcudart.so";
#define X(name, parameters)                                                                                            \
    if ((symbol = dlsym(library, #name)) == NULL) return #name;                                                        \
    memcpy(&cuda.name, &symbol, sizeof symbol);
    CUDA_FUNCTIONS(X)
#undef X
    return NULL;
}

static int device_count;

static inline int open_both(void **state)
{
    open_weir(state);
    assert_ok(weir_device_count(&device_count));
    cuda_ok(cudaSetDevice(0));
    return 0;
}

/* For main(): 0 where both are present; else what main() must return, after printing the reason. */
static inline int not_both(void)
{
    const int missing = no_gpu();
    const char *function = missing == 0 ? find_cuda_runtime() : NULL;
    if (function == NULL) return missing;
    print_message("skipped: the CUDA runtime's %s is not found\n", function);
    return 77;
}

static inline weir_stream adopt(int device, void *native)
{
    weir_stream stream = { 0 };
    assert_ok(weir_stream_from_native(device, native, &stream));
    return stream;
}

static inline int device_of(const void *pointer)
{
    weir_pointer_info info = { .size = sizeof info };
    assert_ok(weir_pointer_info_get(pointer, &info));
    return info.device;
}

#endif
