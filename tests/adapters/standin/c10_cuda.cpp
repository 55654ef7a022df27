#include "c10.h"
#include "torch_cuda.h"

using namespace c10::cuda;

std::atomic<CUDACachingAllocator::CUDAAllocator *> CUDACachingAllocator::allocator;

CUDACachingAllocator::CUDAAllocator *CUDACachingAllocator::get()
{
    return allocator.load();
}

CUDACachingAllocator::CUDAAllocator *CUDACachingAllocator::change(CUDAAllocator *next)
{
    return allocator.exchange(next);
}

void c10::throw_out_of_memory(const std::string &message)
{
    throw OutOfMemoryError({ __func__, __FILE__, __LINE__ }, message);
}
