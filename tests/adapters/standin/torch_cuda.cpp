#include "torch_cuda.h"

#include <stdexcept>

using namespace c10::cuda::CUDACachingAllocator;
using namespace torch::cuda::CUDAPluggableAllocator;

[[noreturn]] static void refuse(const char *what)
{
    throw std::runtime_error(std::string("CUDAPluggableAllocator does not yet support ") + what);
}

namespace
{

class derived_allocator : public CUDAPluggableAllocator
{
    using CUDAPluggableAllocator::CUDAPluggableAllocator;

    std::string name() override
    {
        return "derived";
    }
};

class own_allocator : public CUDAPluggableAllocator
{
    using CUDAPluggableAllocator::CUDAPluggableAllocator;

    SnapshotInfo snapshot(pool_id pool, bool traces) override
    {
        return { "PyTorch's own, of " + std::to_string(pool.second) + (traces ? " with events" : ""), {} };
    }
};

} // namespace

c10::Allocator *torch::cuda::CUDAPluggableAllocator::torchs_own()
{
    static own_allocator own(nullptr, nullptr);
    CUDAAllocator *const base = &own;
    return reinterpret_cast<c10::Allocator *>(base);
}

CUDAPluggableAllocator *torch::cuda::CUDAPluggableAllocator::make(bool derived, allocate_function allocate,
                                                                  free_function free)
{
    return derived ? new derived_allocator(allocate, free) : new CUDAPluggableAllocator(allocate, free);
}

void *CUDAPluggableAllocator::malloc(size_t size, signed char device, CUstream_st *stream)
{
    void *pointer = allocate_(static_cast<ssize_t>(size), device, stream);
    noted_.emplace(pointer, size);
    return pointer;
}

static signed char current_device()
{
    signed char device = -1;
    c10::cuda::GetDevice(&device);
    return device;
}

static void delete_by_current(void *pointer)
{
    c10::cuda::CUDACachingAllocator::get()->raw_delete(pointer);
}

c10::DataPtr CUDAPluggableAllocator::allocate(size_t size)
{
    void *memory = raw_alloc(size);
    return { memory, { memory, delete_by_current }, { 1, current_device() } };
}

void (*CUDAPluggableAllocator::raw_deleter() const)(void *)
{
    return delete_by_current;
}

void *CUDAPluggableAllocator::raw_alloc(size_t size)
{
    return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream(current_device()).stream());
}

void *CUDAPluggableAllocator::raw_alloc_with_stream(size_t size, CUstream_st *stream)
{
    return malloc(size, current_device(), stream);
}

void CUDAPluggableAllocator::raw_delete(void *pointer)
{
    if (noted_.erase(pointer) == 0) throw std::runtime_error("Trying to free a pointer not allocated here");
    free_(pointer, 0, 0, nullptr);
}

double CUDAPluggableAllocator::getMemoryFraction(signed char)
{
    refuse("getMemoryFraction");
}

extern "C" int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, CUstream_st *stream);

int CUDAPluggableAllocator::memcpyAsync(void *to, int, const void *from, int, size_t bytes, CUstream_st *stream, bool)
{
    return cudaMemcpyAsync(to, from, bytes, 3, stream);
}

bool CUDAPluggableAllocator::isEnabled() const
{
    return true;
}

void CUDAPluggableAllocator::cacheInfo(signed char, size_t *)
{
    refuse("cacheInfo");
}

std::shared_ptr<AllocatorState> CUDAPluggableAllocator::getCheckpointState(signed char, pool_id)
{
    refuse("getCheckpointState");
}

CheckpointDelta CUDAPluggableAllocator::setCheckpointPoolState(signed char, std::shared_ptr<AllocatorState>)
{
    refuse("setCheckpointPoolState");
}

std::shared_ptr<void> CUDAPluggableAllocator::getIpcDevPtr(std::string)
{
    refuse("getIpcDevPtr");
}

ShareableHandle CUDAPluggableAllocator::shareIpcHandle(void *)
{
    refuse("shareIpcHandle");
}

SnapshotInfo CUDAPluggableAllocator::snapshot(pool_id, bool)
{
    refuse("snapshot");
}

void CUDAPluggableAllocator::attachAllocatorTraceTracker(AllocatorTraceTracker)
{
    refuse("attachAllocatorTraceTracker");
}

void CUDAPluggableAllocator::recordHistory(bool, std::shared_ptr<c10::GatheredContext> (*)(), size_t,
                                           c10::CachingDeviceAllocator::RecordContext, bool,
                                           const std::vector<std::string> &)
{
    refuse("recordHistory");
}

void CUDAPluggableAllocator::attachOutOfMemoryObserver(OutOfMemoryObserver)
{
    refuse("attachOutOfMemoryObserver");
}

AllocatorTraceTracker c10::cuda::CUDACachingAllocator::make_tracker(bool (*function)(void *, int, int, uintptr_t,
                                                                                     size_t, unsigned long long),
                                                                    void *argument)
{
    return [=](const c10::CachingDeviceAllocator::TraceEntry &entry) {
        if (!entry.compile_context.empty()) throw std::logic_error("not as PyTorch's");
        if (!function(argument, entry.action, entry.device, entry.address, entry.size, entry.pool.second))
            throw std::runtime_error("the tracker has thrown");
    };
}

static void (*collect)(void *);
static void *collect_argument;

void torch::set_collect(void (*what)(void *), void *argument)
{
    collect = what;
    collect_argument = argument;
}

bool torch::CudaIPCCollect()
{
    if (!collect) return false;
    void (*const once)(void *) = collect;
    collect = nullptr;
    once(collect_argument);
    return true;
}

std::string CUDAPluggableAllocator::name()
{
    return "pluggable";
}
