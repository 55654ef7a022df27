#include "c10.h"
#include "torch_cuda.h"

using namespace c10::cuda;

static thread_local signed char device_now;
static thread_local CUstream_st *stream_now;
static thread_local void (*later)(int device);
static thread_local int device_later;

CUstream_st *CUDAStream::stream() const
{
    return reinterpret_cast<CUstream_st *>(id_);
}

int c10::cuda::GetDevice(signed char *device)
{
    *device = device_now;
    return 0;
}

CUDAStream c10::cuda::getCurrentCUDAStream(signed char device)
{
    return { { 1, device }, stream_now };
}

void c10::cuda::set_current(signed char device, CUstream_st *stream)
{
    device_now = device;
    stream_now = stream;
}

std::atomic<CUDACachingAllocator::CUDAAllocator *> CUDACachingAllocator::allocator;

void c10::cuda::SetTargetDevice()
{
    if (later) std::exchange(later, nullptr)(device_later);
}

void c10::cuda::put_off(void (*what)(int device), int device)
{
    later = what;
    device_later = device;
}

CUDACachingAllocator::CUDAAllocator *CUDACachingAllocator::get()
{
    return allocator.load();
}

CUDACachingAllocator::CUDAAllocator *CUDACachingAllocator::change(CUDAAllocator *next)
{
    return allocator.exchange(next);
}

/* The runtime, which PyTorch's libraries need: returns which way a copy went, in place of an error. */
extern "C" STANDIN_API int cudaMemcpyAsync(void *, const void *, size_t, int kind, CUstream_st *)
{
    return 100 + kind;
}

extern "C" STANDIN_API int cudaMemcpyPeerAsync(void *, int device, const void *, int from_device, size_t, CUstream_st *)
{
    return 200 + 10 * device + from_device;
}

void c10::throw_out_of_memory(const std::string &message)
{
    throw OutOfMemoryError({ __func__, __FILE__, __LINE__ }, message);
}
