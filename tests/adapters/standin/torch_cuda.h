/*
 * A stand-in for PyTorch's current allocator, a CUDAPluggableAllocator: what it refuses because it has no hook for it,
 * and what it notes of each block. The names are those of PyTorch 2.11. Built as libtorch_cuda.so.
 */
#ifndef WEIR_TESTS_ADAPTERS_TORCH_CUDA_H
#define WEIR_TESTS_ADAPTERS_TORCH_CUDA_H

#include "c10.h"

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <sys/types.h>
#include <utility>
#include <vector>

struct CUstream_st;

namespace c10
{

struct DataPtr {
    void *data;
    std::unique_ptr<void, void (*)(void *)> context;
    Device device;
};

} // namespace c10

namespace c10::cuda
{

class STANDIN_API CUDAStream
{
  public:
    CUDAStream(Device device, CUstream_st *native) : device_(device), id_(reinterpret_cast<int64_t>(native)) {}
    CUstream_st *stream() const;

  private:
    Device device_;
    int64_t id_;
};

/* What is current in the calling thread. */
STANDIN_API int GetDevice(signed char *device);
STANDIN_API CUDAStream getCurrentCUDAStream(signed char device);
STANDIN_API void set_current(signed char device, CUstream_st *stream);
/* Calls what was put off, once. */
STANDIN_API void SetTargetDevice();
STANDIN_API void put_off(void (*what)(int device), int device);

} // namespace c10::cuda

namespace c10
{

struct GatheredContext;

} // namespace c10

namespace c10::CachingDeviceAllocator
{

enum struct RecordContext : uint8_t { NEVER, STATE, ALLOC, ALL };

/* As far as the first of its texts. */
struct TraceEntry {
    int action;
    signed char device;
    size_t address;
    std::shared_ptr<void> context;
    void *stream;
    size_t size;
    std::pair<unsigned long long, unsigned long long> pool;
    int64_t time;
    std::string compile_context;
};

} // namespace c10::CachingDeviceAllocator

namespace c10::cuda::CUDACachingAllocator
{

struct SnapshotInfo {
    std::string of;
    std::vector<void *> segments;
};

struct STANDIN_API AllocatorState {
    virtual ~AllocatorState() = default;
};

struct CheckpointDelta {
    std::vector<void *> ptrs_freed;
    std::vector<DataPtr> dataptrs_allocd;
};

struct ShareableHandle {
    ptrdiff_t offset;
    std::string handle;
};

using AllocatorTraceTracker = std::function<void(const CachingDeviceAllocator::TraceEntry &)>;
/* It throws where the function returns false. Made here, since only code of PyTorch's is called with weir's types. */
STANDIN_API AllocatorTraceTracker make_tracker(bool (*function)(void *argument, int action, int device,
                                                                uintptr_t address, size_t size,
                                                                unsigned long long pool),
                                               void *argument);
using OutOfMemoryObserver = std::function<void(int64_t device, size_t bytes, size_t total, size_t free)>;

using pool_id = std::pair<unsigned long long, unsigned long long>;

class STANDIN_API CUDAAllocator
{
  public:
    virtual ~CUDAAllocator() = default;
    virtual DataPtr allocate(size_t size) = 0;
    virtual void (*raw_deleter() const)(void *) = 0;
    virtual void *raw_alloc(size_t size) = 0;
    virtual void *raw_alloc_with_stream(size_t size, CUstream_st *stream) = 0;
    virtual void raw_delete(void *pointer) = 0;
    virtual double getMemoryFraction(signed char device) = 0;
    virtual bool isEnabled() const = 0;
    virtual void cacheInfo(signed char device, size_t *largest) = 0;
    virtual std::shared_ptr<AllocatorState> getCheckpointState(signed char device, pool_id pool) = 0;
    virtual CheckpointDelta setCheckpointPoolState(signed char device, std::shared_ptr<AllocatorState> state) = 0;
    virtual std::shared_ptr<void> getIpcDevPtr(std::string handle) = 0;
    virtual ShareableHandle shareIpcHandle(void *pointer) = 0;
    virtual SnapshotInfo snapshot(pool_id pool, bool traces) = 0;
    virtual void attachOutOfMemoryObserver(OutOfMemoryObserver observer) = 0;
    virtual void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) = 0;
    virtual void recordHistory(bool enabled, std::shared_ptr<GatheredContext> (*take)(), size_t events,
                               CachingDeviceAllocator::RecordContext when, bool clear,
                               const std::vector<std::string> &skipped) = 0;
    virtual int memcpyAsync(void *to, int device, const void *from, int from_device, size_t bytes, CUstream_st *stream,
                            bool reachable) = 0;
    virtual std::string name() = 0;
};

/* Defined in libc10_cuda.so. As in PyTorch, no program names it, which would then have a copy. */
extern STANDIN_API std::atomic<CUDAAllocator *> allocator;
STANDIN_API CUDAAllocator *get();
STANDIN_API CUDAAllocator *change(CUDAAllocator *next); /* returns the former */

} // namespace c10::cuda::CUDACachingAllocator

namespace torch::cuda::CUDAPluggableAllocator
{

using allocate_function = void *(*)(ssize_t size, int device, void *stream);
using free_function = void (*)(void *pointer, ssize_t size, int device, void *stream);

class STANDIN_API CUDAPluggableAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator
{
  public:
    CUDAPluggableAllocator(allocate_function allocate, free_function free) : allocate_(allocate), free_(free) {}

    void *malloc(size_t size, signed char device, CUstream_st *stream);
    c10::DataPtr allocate(size_t size) override;
    void (*raw_deleter() const)(void *) override;
    void *raw_alloc(size_t size) override;
    void *raw_alloc_with_stream(size_t size, CUstream_st *stream) override;
    void raw_delete(void *pointer) override;
    double getMemoryFraction(signed char device) override;
    bool isEnabled() const override;
    void cacheInfo(signed char device, size_t *largest) override;
    std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> getCheckpointState(
        signed char device, c10::cuda::CUDACachingAllocator::pool_id pool) override;
    c10::cuda::CUDACachingAllocator::CheckpointDelta setCheckpointPoolState(
        signed char device, std::shared_ptr<c10::cuda::CUDACachingAllocator::AllocatorState> state) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    c10::cuda::CUDACachingAllocator::ShareableHandle shareIpcHandle(void *pointer) override;
    c10::cuda::CUDACachingAllocator::SnapshotInfo snapshot(c10::cuda::CUDACachingAllocator::pool_id pool,
                                                           bool traces) override;
    void attachOutOfMemoryObserver(c10::cuda::CUDACachingAllocator::OutOfMemoryObserver observer) override;
    void attachAllocatorTraceTracker(c10::cuda::CUDACachingAllocator::AllocatorTraceTracker tracker) override;
    void recordHistory(bool enabled, std::shared_ptr<c10::GatheredContext> (*take)(), size_t events,
                       c10::CachingDeviceAllocator::RecordContext when, bool clear,
                       const std::vector<std::string> &skipped) override;
    int memcpyAsync(void *to, int device, const void *from, int from_device, size_t bytes, CUstream_st *stream,
                    bool reachable) override;
    std::string name() override;

  private:
    allocate_function allocate_;
    free_function free_;
    std::map<void *, size_t> noted_;
};

/* Stands for PyTorch's own allocator, which nobody uses, in the registry. */
STANDIN_API c10::Allocator *torchs_own();

/* Makes one, or one of a class derived from it. A program that did it itself would have a copy of its table. */
STANDIN_API CUDAPluggableAllocator *make(bool derived, allocate_function allocate, free_function free);

} // namespace torch::cuda::CUDAPluggableAllocator

namespace torch
{

/* PyTorch frees what other processes have let go of; here it counts, and does what the program says. */
STANDIN_API bool CudaIPCCollect();
STANDIN_API void set_collect(void (*what)(void *argument), void *argument);

} // namespace torch

#endif
