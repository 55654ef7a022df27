/* The driver's stream-ordered allocator: cuMemAllocAsync and cuMemFreeAsync on the default pool of device 0, with the
 * highest release threshold, as PyTorch's back end cudaMallocAsync sets it. */
#include "peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of CUmemPool_attribute. */
enum { RELEASE_THRESHOLD = 4, RESERVED_PEAK = 6 };
enum { STREAM_NON_BLOCKING = 1, OUT_OF_MEMORY = 2 };

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuDevicePrimaryCtxRetain, (void **context, int device))                                                          \
    X(cuCtxSetCurrent, (void *context))                                                                                \
    X(cuCtxSynchronize, (void))                                                                                        \
    X(cuStreamCreate, (void **stream, unsigned flags))                                                                 \
    X(cuMemGetInfo_v2, (size_t *free, size_t *total))                                                                  \
    X(cuDeviceGetDefaultMemPool, (void **pool, int device))                                                            \
    X(cuMemPoolSetAttribute, (void *pool, int attribute, void *value))                                                 \
    X(cuMemPoolGetAttribute, (void *pool, int attribute, void *value))                                                 \
    X(cuMemPoolTrimTo, (void *pool, size_t keep))                                                                      \
    X(cuMemAllocAsync, (uint64_t *pointer, size_t bytes, void *stream))                                                \
    X(cuMemFreeAsync, (uint64_t pointer, void *stream))

static struct {
#define X(name, parameters) int(*name) parameters;
    DRIVER_FUNCTIONS(X)
#undef X
} cu;

static void *context, *pool;

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const int code_ = cu.call;                                                                                     \
        if (code_ != 0) failed(#call, code_);                                                                          \
    } while (0)

static _Noreturn void failed(const char *call, int code)
{
    fprintf(stderr, "weir-bench: mallocAsync: %s: code %d\n", call, code);
    exit(1);
}

static const char *find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
    if (!library) return dlerror();
#define X(name, parameters)                                                                                            \
    if ((symbol = dlsym(library, #name)) == NULL) return dlerror();                                                    \
    memcpy(&cu.name, &symbol, sizeof symbol);
    DRIVER_FUNCTIONS(X)
#undef X
    return NULL;
}

static void empty(void)
{
    CHECK(cuCtxSynchronize());
    CHECK(cuMemPoolTrimTo(pool, 0));
}

static const char *open_async(void)
{
    uint64_t keep_all = UINT64_MAX, peak = 0;
    const char *reason = find_driver();
    if (reason) return reason;
    if (cu.cuInit(0) != 0) return "the driver finds no device";
    if (!context) CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &keep_all));
    empty();
    CHECK(cuMemPoolSetAttribute(pool, RESERVED_PEAK, &peak));
    return NULL;
}

static uint64_t new_stream(void)
{
    void *stream = NULL;
    CHECK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    return (uintptr_t)stream;
}

static void enter(uint64_t stream)
{
    (void)stream;
    CHECK(cuCtxSetCurrent(context));
}

static void *alloc(size_t bytes, uint64_t stream)
{
    uint64_t pointer = 0;
    const int code = cu.cuMemAllocAsync(&pointer, bytes, (void *)(uintptr_t)stream);
    if (code != 0 && code != OUT_OF_MEMORY) failed("cuMemAllocAsync", code);
    return code == 0 ? (void *)(uintptr_t)pointer : NULL;
}

static void release(void *pointer, uint64_t stream)
{
    CHECK(cuMemFreeAsync((uintptr_t)pointer, (void *)(uintptr_t)stream));
}

static uint64_t reserved_peak(void)
{
    uint64_t bytes = 0;
    CHECK(cuMemPoolGetAttribute(pool, RESERVED_PEAK, &bytes));
    return bytes;
}

static uint64_t device_memory(void)
{
    size_t unused = 0, total = 0;
    CHECK(cuMemGetInfo_v2(&unused, &total));
    return total - unused;
}

const bench_peer peer_async = { .version = BENCH_PEER_VERSION,
                                .name = "mallocAsync",
                                .open = open_async,
                                .close = empty,
                                .stream = new_stream,
                                .enter = enter,
                                .alloc = alloc,
                                .release = release,
                                .empty = empty,
                                .reserved_peak = reserved_peak,
                                .device_memory = device_memory };
