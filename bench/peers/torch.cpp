/* PyTorch's caching allocator and handle pools, from C++ without Python. Built where PyTorch is, by
 * scripts/torch-object; named to weir-bench with --peer. */
#include "peer.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <string>

namespace
{

namespace allocator = c10::cuda::CUDACachingAllocator;

void empty()
{
    c10::cuda::device_synchronize();
    allocator::emptyCache();
}

const char *open_torch()
{
    static std::string reason;
    try {
        at::globalContext().lazyInitDevice(at::kCUDA);
        c10::cuda::set_device(0);
        empty();
        allocator::resetPeakStats(0);
        return nullptr;
    } catch (const std::exception &e) {
        reason = e.what();
        return reason.c_str();
    }
}

uint64_t default_stream()
{
    return 0;
}

/* PyTorch hands out its 32 streams in turn. */
uint64_t new_stream()
{
    return reinterpret_cast<uintptr_t>(c10::cuda::getStreamFromPool(false, 0).stream());
}

/* Makes the context current, as after a kernel launch. PyTorch's own set_device leaves that to the first launch, and
 * until then every runtime call searches for the context again. */
void enter(uint64_t stream)
{
    C10_CUDA_CHECK(cudaSetDevice(0));
    c10::cuda::setCurrentCUDAStream(stream == 0
                                        ? c10::cuda::getDefaultCUDAStream(0)
                                        : c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), 0));
}

void *alloc(size_t bytes, uint64_t stream)
{
    try {
        return allocator::raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
    } catch (const c10::OutOfMemoryError &) {
        return nullptr;
    }
}

void release(void *pointer, uint64_t)
{
    allocator::raw_delete(pointer);
}

uint64_t reserved_peak()
{
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<uint64_t>(allocator::getDeviceStats(0).reserved_bytes[all].peak);
}

uint64_t device_memory()
{
    size_t unused = 0, total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&unused, &total));
    return total - unused;
}

void *handle(weir_handle_kind kind, uint64_t)
{
    switch (kind) {
    case WEIR_CUSPARSE: return at::cuda::getCurrentCUDASparseHandle();
    case WEIR_CUBLAS: return at::cuda::getCurrentCUDABlasHandle();
    case WEIR_CUDNN: return at::native::getCudnnHandle();
    case WEIR_CUSOLVER_DN: return at::cuda::getCurrentCUDASolverDnHandle();
    default: return nullptr;
    }
}

const bench_peer torch_peer = { BENCH_PEER_VERSION, "torch",       open_torch, empty,   default_stream,
                                new_stream,         enter,         alloc,      release, empty,
                                reserved_peak,      device_memory, handle };

} // namespace

extern "C" __attribute__((visibility("default"))) const bench_peer *bench_peer_get(void)
{
    return &torch_peer;
}
