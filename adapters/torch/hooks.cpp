/*
 * The functions that PyTorch's CUDAPluggableAllocator calls, with exactly its signatures. Exceptions pass through
 * PyTorch and become Python's; functions that PyTorch calls from destructors throw none.
 */
#include "torch/hooks.h"

#include "shared/streams.h"
#include "torch/errors.h"
#include "torch/memory.h"
#include "torch/observers.h"
#include "torch/requests.h"
#include "torch/scopes.h"
#include "torch/sharing.h"
#include "torch/types.h"

#include <cstdio>
#include <functional>
#include <string>
#include <utility>

using stream_filter = std::function<bool(void *)>; /* a cudaStream_t is a pointer */

namespace
{

/* PyTorch's filter asks the driver, and throws when that fails; the stream then counts as outside. */
bool call(void *object, void *native)
{
    try {
        return (*static_cast<stream_filter *>(object))(native);
    } catch (...) {
        return false;
    }
}

void drop(void *object)
{
    delete static_cast<stream_filter *>(object);
}

weir_status alloc(ssize_t size, int device, void *stream, void **out)
{
    const auto bytes = static_cast<size_t>(size);
    bool served = false;
    const weir_status status = wa_scope_alloc(bytes, device, stream, out, &served);
    return status != WEIR_OK || served ? status : wa_alloc(bytes, device, stream, out);
}

[[noreturn]] void run_out(int device, size_t bytes)
{
    const std::string why = weir_error_text();
    wa_observe_out_of_memory(device, bytes);
    wa_torch_throw_out_of_memory(device, bytes, why);
}

void say_refused(weir_status freed)
{
    if (wa_torch_refused(freed)) std::fprintf(stderr, "weir: a free by PyTorch was refused: %s\n", weir_error_text());
}

} // namespace

weir_status wa_torch_free(void *pointer)
{
    wa_observe_free(pointer);
    return weir_free(pointer);
}

bool wa_torch_refused(weir_status freed)
{
    return freed == WEIR_ERR_UNKNOWN_POINTER || freed == WEIR_ERR_DOUBLE_FREE || freed == WEIR_ERR_INVALID_ARGUMENT;
}

extern "C" {

WEIR_API void *weir_torch_alloc(ssize_t size, int device, void *stream)
{
    void *pointer = nullptr;
    const weir_status status = alloc(size, device, stream, &pointer);
    if (status == WEIR_ERR_OUT_OF_MEMORY) run_out(device, static_cast<size_t>(size));
    wa_torch_check(status);
    wa_observe_alloc(pointer);
    return pointer;
}

/* For a pool of PyTorch's own allocator, which frees cached memory and tries again when it gets NULL, and which tells
 * the profiler itself what it makes of the segment. */
WEIR_API void *weir_torch_alloc_segment(ssize_t size, int device, void *stream)
{
    void *pointer = nullptr;
    const weir_status status = wa_alloc(static_cast<size_t>(size), device, stream, &pointer);
    if (status != WEIR_ERR_OUT_OF_MEMORY) wa_torch_check(status);
    return pointer;
}

WEIR_API void weir_torch_free_segment(void *pointer, ssize_t size, int device, void *stream)
{
    (void)size, (void)device, (void)stream;
    say_refused(weir_free(pointer));
}

/* Called from destructors. */
WEIR_API void weir_torch_free(void *pointer, ssize_t size, int device, void *stream)
{
    (void)size, (void)device, (void)stream;
    say_refused(wa_torch_free(pointer));
}

WEIR_API void weir_torch_init(int device_count)
{
    const weir_status status = wa_torch_check_devices(device_count);
    wa_torch_check(status, status != WEIR_ERR_NO_DEVICE
                               ? nullptr
                               : "PyTorch sees devices that weir does not; `weir info` lists what weir sees; "
                                 "change that with WEIR_BACKEND and WEIR_LIB_CUDA");
}

WEIR_API void weir_torch_reset(void)
{
    wa_end_shared();
    wa_torch_check(wa_empty_caches());
}

WEIR_API void weir_torch_memory_fraction(double fraction, int device)
{
    const weir_status status = wa_torch_set_fraction(fraction, device);
    const bool wrong = status == WEIR_ERR_INVALID_ARGUMENT;
    wa_torch_check(status, wrong ? "invalid fraction: please set within [0, 1]" : nullptr);
}

WEIR_API void *weir_torch_base_alloc(void *pointer, size_t *size)
{
    void *base = nullptr;
    size_t bytes = 0;
    wa_torch_check(wa_torch_segment(pointer, &base, &bytes));
    if (size) *size = bytes;
    return base;
}

WEIR_API void weir_torch_record_stream(void *pointer, void *stream)
{
    weir_error why;
    why.size = sizeof why;
    why.text[0] = '\0';
    if (!pointer) return;
    const weir_status status = wa_torch_record(pointer, stream, &why);
    wa_torch_check(status, why.text[0] ? why.text : nullptr);
}

WEIR_API void weir_torch_begin_allocate_to_pool(int device, wa_mempool_id id, stream_filter filter)
{
    void *const current = wa_current_native(static_cast<signed char>(device));
    weir_stream known; /* to weir, which asks no other about captures: this one may be captured before it allocates */
    wa_torch_check(wa_stream_of(device, current, &known));
    wa_filter ours = { call, drop, new stream_filter(std::move(filter)), false };
    ours.now = call(ours.object, current);
    wa_torch_check(wa_scope_begin(device, wa_named(id), ours));
}

WEIR_API void weir_torch_end_allocate_to_pool(int device, wa_mempool_id id)
{
    wa_torch_check(wa_scope_end(device, wa_named(id)));
}

/* Called from the destructor of graphs. The device's other users notice a failure anyway. */
WEIR_API void weir_torch_release_pool(int device, wa_mempool_id id)
{
    (void)wa_scope_release(device, wa_named(id));
}

} // extern "C"
