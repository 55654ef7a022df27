/*
 * A stand-in for PyTorch's current allocator, a CUDAPluggableAllocator, as far as it refuses what it has no hook for.
 * The names are those of PyTorch 2.11. Built as libtorch_cuda.so.
 */
#ifndef WEIR_TESTS_ADAPTERS_TORCH_CUDA_H
#define WEIR_TESTS_ADAPTERS_TORCH_CUDA_H

#include "c10.h"

#include <atomic>
#include <cstddef>

namespace c10::cuda::CUDACachingAllocator
{

class STANDIN_API CUDAAllocator
{
  public:
    virtual ~CUDAAllocator() = default;
    virtual double getMemoryFraction(signed char device) = 0;
    virtual bool isEnabled() const = 0;
    virtual void cacheInfo(signed char device, size_t *largest) = 0;
    virtual std::string name() = 0;
};

/* Defined in libc10_cuda.so. As in PyTorch, no program names it, which would then have a copy. */
extern STANDIN_API std::atomic<CUDAAllocator *> allocator;
STANDIN_API CUDAAllocator *get();
STANDIN_API CUDAAllocator *change(CUDAAllocator *next); /* returns the former */

} // namespace c10::cuda::CUDACachingAllocator

namespace torch::cuda::CUDAPluggableAllocator
{

class STANDIN_API CUDAPluggableAllocator : public c10::cuda::CUDACachingAllocator::CUDAAllocator
{
  public:
    double getMemoryFraction(signed char device) override;
    bool isEnabled() const override;
    void cacheInfo(signed char device, size_t *largest) override;
    std::string name() override;
};

/* Makes one, or one of a class derived from it. A program that did it itself would have a copy of its table. */
STANDIN_API CUDAPluggableAllocator *make(bool derived);

} // namespace torch::cuda::CUDAPluggableAllocator

#endif
