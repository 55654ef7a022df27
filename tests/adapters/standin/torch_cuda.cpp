#include "torch_cuda.h"

#include <stdexcept>

using namespace torch::cuda::CUDAPluggableAllocator;

[[noreturn]] static void refuse(const char *what)
{
    throw std::runtime_error(std::string("CUDAPluggableAllocator does not yet support ") + what);
}

namespace
{

class derived_allocator : public CUDAPluggableAllocator
{
    std::string name() override
    {
        return "derived";
    }
};

} // namespace

CUDAPluggableAllocator *torch::cuda::CUDAPluggableAllocator::make(bool derived)
{
    return derived ? new derived_allocator : new CUDAPluggableAllocator;
}

double CUDAPluggableAllocator::getMemoryFraction(signed char)
{
    refuse("getMemoryFraction");
}

bool CUDAPluggableAllocator::isEnabled() const
{
    return true;
}

void CUDAPluggableAllocator::cacheInfo(signed char, size_t *)
{
    refuse("cacheInfo");
}

std::string CUDAPluggableAllocator::name()
{
    return "pluggable";
}
