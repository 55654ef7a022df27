/*
 * types: PyTorch's C++ types, as far as its allocator's virtual functions pass them. Layout and calling convention are
 * PyTorch's, so that weir's functions can stand in its table of them; building this needs none of its headers.
 */
#ifndef WEIR_ADAPTERS_TORCH_TYPES_H
#define WEIR_ADAPTERS_TORCH_TYPES_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include <weir/weir.h>

constexpr signed char WA_CUDA = 1; /* c10::DeviceType */

/* c10::Device */
struct wa_device {
    signed char type, index;
};

/* c10::cuda::CUDAStream */
struct wa_cuda_stream {
    wa_device device;
    int64_t id;
};

using wa_deleter = void (*)(void *memory);

/* c10::DataPtr: memory that has an owner. */
struct wa_data_ptr {
    void *data;
    std::unique_ptr<void, wa_deleter> owner;
    wa_device device;
};

/* c10::cuda::MempoolId_t */
using wa_mempool_id = std::pair<unsigned long long, unsigned long long>;

inline weir_mempool wa_named(wa_mempool_id id)
{
    return { id.first, id.second };
}

/* c10::cuda::CUDACachingAllocator::AllocatorState: a checkpoint. */
class wa_allocator_state
{
  public:
    virtual ~wa_allocator_state() = default;
};

/* c10::cuda::CUDACachingAllocator::CheckpointDelta. A block that was live before and after is in both. */
struct wa_checkpoint_delta {
    std::vector<void *> freed;
    std::vector<wa_data_ptr> restored;
};

/* c10::cuda::CUDACachingAllocator::ShareableHandle: what another process gets instead of an address. */
struct wa_shareable_handle {
    ptrdiff_t offset; /* of the memory from what the handle opens */
    std::string handle;
};

/* c10::CachingDeviceAllocator::TraceEntry: what happened to memory. Versions differ in how many texts end it, and read
 * no more than there are. */
struct wa_trace_entry {
    int action;
    signed char device;
    size_t address;
    std::shared_ptr<void> context;
    void *stream;
    size_t bytes;
    wa_mempool_id pool;
    int64_t time;
    std::string texts[8];
};
constexpr int WA_SEGMENT_ALLOC = 3, WA_SEGMENT_FREE = 4;

#endif
