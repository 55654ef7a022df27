#include "gpu/torch_side.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <string>

namespace
{

at::Tensor made;

at::TensorOptions floats(int device)
{
    return at::TensorOptions().dtype(at::kFloat).device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

c10::cuda::CUDAStream named(void *stream, int device)
{
    return c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream), static_cast<c10::DeviceIndex>(device));
}

const char *begin()
{
    static std::string reason;
    try {
        at::globalContext().lazyInitDevice(at::kCUDA);
        return nullptr;
    } catch (const std::exception &e) {
        reason = e.what();
        return reason.c_str();
    }
}

int current_device()
{
    return c10::cuda::current_device();
}

void set_device(int device)
{
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
}

void *pooled_stream(int device)
{
    return c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(device)).stream();
}

float *make(void *stream, int device, size_t count, float first)
{
    c10::cuda::CUDAStreamGuard guard(named(stream, device));
    made = (at::arange(static_cast<int64_t>(count), floats(device)) + first) * 2 + 1;
    return made.data_ptr<float>();
}

void drop()
{
    made = at::Tensor();
}

void add_one(void *stream, int device, float *memory, size_t count)
{
    c10::cuda::CUDAStreamGuard guard(named(stream, device));
    at::from_blob(memory, { static_cast<int64_t>(count) }, floats(device)).add_(1);
}

void empty_cache()
{
    c10::cuda::CUDACachingAllocator::emptyCache();
}

uint64_t reserved(int device)
{
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    return static_cast<uint64_t>(stats.reserved_bytes[all].current);
}

const torch_side side = {
    begin, current_device, set_device, pooled_stream, make, drop, add_one, empty_cache, reserved
};

} // namespace

extern "C" __attribute__((visibility("default"))) const torch_side *torch_side_get(void)
{
    return &side;
}
