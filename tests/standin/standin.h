/*
 * standin: how tests control the stand-in vendor libraries. These are NOT the vendors' libraries: they have the real
 * names and signatures of the few functions that weir calls, keep records, fail when told to, and compute nothing.
 * standin.c is compiled once per NAME.def into libNAME.so, under WEIR_TEST_STANDINS. State is per library and process;
 * any thread.
 */
#ifndef WEIR_TESTS_STANDIN_H
#define WEIR_TESTS_STANDIN_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* Every command once: result, name, parameters.
 *
 * refuse: the nth next call of `symbol` returns `code` (1: the very next; 0: all from now on); code 0 takes it back. A
 *   failing create leaves its out-variable as the real one does; a failing destroy has destroyed.
 * give_no_handle: creates return success and no handle, as hipSPARSE does without a GPU.
 * set_devices: what hipGetDeviceCount counts; 1 at first. set_free_memory: what hipMemGetInfo says is free; plenty at
 *   first. When hipFree is refused, the destroys that call it end the process, as the real ones do. Where a stand-in
 *   for AMD's runtime is in the process, so do some creates when it refuses hipMalloc or hipMemset, of
 *   some libraries only where STANDIN_HIP_ARCH or ROCBLAS_USE_HIPBLASLT makes them use hipBLASLt.
 * What hipGetLastError tells, as ROCm 7's, is what the last failing call of any function returned.
 * set_fresh: what getters tell of handles whose setter was not called; 0 at first.
 * reset: forgets commands and counts; handles stay.
 * call: the index-th call made, failing ones too; NULL past the last. The first 4096 are kept.
 * most_creates: the most that ran at one time. misuse: calls with a handle that does not exist.
 * handle_value: what the setter `symbol` was last called with; 0 when it was not called on this handle. For a create
 *   with an argument: the argument.
 * handle_environment: CUBLAS_WORKSPACE_CONFIG as the create saw it; NULL when it was not set.
 * use_memory: takes device memory from the memory handler that the handle was given, on the handle's stream, until
 *   release_memory or destroy. NULL: none given, or it failed. */
#define STANDIN_COMMANDS(X)                                                                                            \
    X(void, refuse, (const char *symbol, int nth, int code))                                                           \
    X(void, give_no_handle, (int on))                                                                                  \
    X(void, create_delay_ms, (int milliseconds))                                                                       \
    X(void, set_devices, (int count))                                                                                  \
    X(void, set_free_memory, (size_t bytes))                                                                           \
    X(void, set_fresh, (int value))                                                                                    \
    X(void, reset, (void))                                                                                             \
    X(int, count, (const char *symbol))                                                                                \
    X(const char *, call, (int index))                                                                                 \
    X(int, live, (void))                                                                                               \
    X(int, most_creates, (void))                                                                                       \
    X(int, misuse, (void))                                                                                             \
    X(void *, handle_stream, (void *handle))                                                                           \
    X(void *, handle_workspace, (void *handle))                                                                        \
    X(size_t, handle_workspace_bytes, (void *handle))                                                                  \
    X(int, handle_value, (void *handle, const char *symbol, unsigned long long *value))                                \
    X(const char *, handle_environment, (void *handle))                                                                \
    X(void *, use_memory, (void *handle, size_t bytes))                                                                \
    X(void, release_memory, (void *handle))

/* cudssDeviceMemHandler_t. */
typedef struct standin_memory_handler {
    void *context;
    int (*alloc)(void *context, void **out, size_t bytes, void *stream);
    int (*free)(void *context, void *pointer, size_t bytes, void *stream);
    char name[64];
} standin_memory_handler;

typedef struct standin {
    void *library;
#define STANDIN_POINTER(result, name, parameters) result(*name) parameters;
    STANDIN_COMMANDS(STANDIN_POINTER)
#undef STANDIN_POINTER
} standin;

/* Returns 0, or -1 when there is no such library; dlerror() says why. */
static inline int standin_open(standin *s, const char *file)
{
    s->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (s->library == NULL) return -1;
#define STANDIN_LOAD(result, name, parameters)                                                                         \
    {                                                                                                                  \
        void *address = dlsym(s->library, "standin_" #name);                                                           \
        if (address == NULL) return -1;                                                                                \
        memcpy(&s->name, &address, sizeof address);                                                                    \
    }
    STANDIN_COMMANDS(STANDIN_LOAD)
#undef STANDIN_LOAD
    return 0;
}

#endif
