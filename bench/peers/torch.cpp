/* PyTorch's caching allocator and handle pools, from C++ without Python; with -DTORCH_ON_WEIR its allocator is weir, as
 * weir.torch.install() makes it. Built where PyTorch is, by scripts/torch-object; named to weir-bench with --peer. */
#include "peer.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <stdexcept>
#include <string>

#ifdef TORCH_ON_WEIR
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <weir/observe.h>

extern "C" {
void *weir_torch_alloc(ssize_t size, int device, cudaStream_t stream);
void weir_torch_free(void *pointer, ssize_t size, int device, cudaStream_t stream);
void weir_torch_reset();
void weir_torch_record_stream(void *pointer, cudaStream_t stream);
bool weir_torch_answer(int cuda);
}
#endif

namespace
{

namespace allocator = c10::cuda::CUDACachingAllocator;

#ifdef TORCH_ON_WEIR
constexpr const char *NAME = "torch on weir";

void install()
{
    namespace pluggable = torch::cuda::CUDAPluggableAllocator;
    const auto weirs = pluggable::createCustomAllocator(weir_torch_alloc, weir_torch_free);
    auto *const hooks = static_cast<pluggable::CUDAPluggableAllocator *>(weirs.get());
    hooks->set_reset_fn(weir_torch_reset);
    hooks->set_record_stream_fn(weir_torch_record_stream);
    pluggable::changeCurrentAllocator(weirs);
    if (!weir_torch_answer(CUDART_VERSION / 1000)) throw std::runtime_error("PyTorch's allocator is unknown to weir");
}

void reset_peak()
{
    WEIR_CHECK(weir_stats_reset_peaks(0));
}

uint64_t reserved_peak()
{
    weir_memory_stats stats{};
    stats.size = sizeof stats;
    WEIR_CHECK(weir_stats_get(0, &stats));
    return static_cast<uint64_t>(stats.reserved_bytes[WEIR_STAT_ALL].peak);
}
#else
constexpr const char *NAME = "torch";

void install() {}

void reset_peak()
{
    allocator::resetPeakStats(0);
}

uint64_t reserved_peak()
{
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<uint64_t>(allocator::getDeviceStats(0).reserved_bytes[all].peak);
}
#endif

void empty()
{
    c10::cuda::device_synchronize();
    allocator::emptyCache();
}

const char *open_torch()
{
    static std::string reason;
    try {
        install();
        at::globalContext().lazyInitDevice(at::kCUDA);
        c10::cuda::set_device(0);
        empty();
        reset_peak();
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

/* As a tensor's record_stream() does. */
void use(void *pointer, uint64_t stream)
{
    c10::DataPtr block(pointer, pointer, allocator::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
    allocator::recordStream(block, c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), 0));
    (void)block.release_context();
}

const bench_peer torch_peer = { BENCH_PEER_VERSION, NAME,          open_torch, empty,   default_stream,
                                new_stream,         enter,         alloc,      release, empty,
                                reserved_peak,      device_memory, handle,     use };

} // namespace

extern "C" __attribute__((visibility("default"))) const bench_peer *bench_peer_get(void)
{
    return &torch_peer;
}
