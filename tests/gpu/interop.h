/*
 * interop: what the tests share that put weir next to others in one process: weir opened on the cuda back end, and the
 * CUDA runtime, found at run time. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_GPU_INTEROP_H
#define WEIR_TESTS_GPU_INTEROP_H

#include "weir/weir.h"

#include <dlfcn.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        weir_status status_ = (call);                                                                                  \
        if (status_ != WEIR_OK) fail_msg("%s: %s: %s", #call, weir_status_name(status_), weir_error_text());           \
    } while (0)
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

static inline int open_weir(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    assert_ok(weir_open(&settings));
    cuda_ok(cudaSetDevice(0));
    return 0;
}

static inline int close_weir(void **state)
{
    (void)state;
    assert_ok(weir_close());
    return 0;
}

/* How many devices there are; 0 having said why these tests cannot run here, or -1 when that is a failure. */
static inline int interop_devices(void)
{
    int devices = 0;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    weir_status status = weir_open(&settings);
    if (status == WEIR_OK) status = weir_device_count(&devices);
    if (status == WEIR_ERR_NO_LIBRARY || status == WEIR_ERR_NO_DEVICE || (status == WEIR_OK && devices == 0)) {
        print_message("skipped: %s\n", status == WEIR_OK ? "the driver sees no device" : weir_error_text());
        return 0;
    }
    if (status != WEIR_OK || weir_close() != WEIR_OK) {
        print_error("%s\n", weir_error_text());
        return -1;
    }
    const char *missing = find_cuda_runtime();
    if (missing) print_message("skipped: the CUDA runtime's %s is not found\n", missing);
    return missing ? 0 : devices;
}

static inline weir_stream adopt(int device, void *native)
{
    weir_stream stream = { 0 };
    assert_ok(weir_stream_from_native(device, native, &stream));
    return stream;
}

static inline void *alloc_on(size_t bytes, weir_stream stream)
{
    void *pointer = NULL;
    assert_ok(weir_alloc_on(bytes, stream, &pointer));
    return pointer;
}

static inline int device_of(const void *pointer)
{
    weir_pointer_info info = { .size = sizeof info };
    assert_ok(weir_pointer_info_get(pointer, &info));
    return info.device;
}

#endif
