/*
 * checkpoints: a pool's blocks as they were, in the C++ types with which PyTorch asks its allocator for them.
 * torch.compile(mode="reduce-overhead") does: it puts the pool of its graphs back to what it was after some graph, to
 * record another one from there.
 */
#ifndef WEIR_ADAPTERS_TORCH_CHECKPOINTS_H
#define WEIR_ADAPTERS_TORCH_CHECKPOINTS_H

#include "torch/scopes.h"

#include <memory>
#include <vector>

/* c10::cuda::CUDACachingAllocator::AllocatorState: a checkpoint. */
class wa_allocator_state
{
  public:
    virtual ~wa_allocator_state() = default;
};

/* c10::DataPtr: memory that has an owner. */
struct wa_data_ptr {
    void *data;
    std::unique_ptr<void, void (*)(void *)> owner;
    signed char device_type, device;
};

/* c10::cuda::CUDACachingAllocator::CheckpointDelta. A block that was live before and after is in both. */
struct wa_checkpoint_delta {
    std::vector<void *> freed;
    std::vector<wa_data_ptr> restored;
};

/* getCheckpointState(c10::DeviceIndex, MempoolId_t) of the allocator object. */
std::shared_ptr<wa_allocator_state> wa_checkpoint_get(void *allocator, signed char device, wa_mempool_id pool);

/* setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<AllocatorState>) */
wa_checkpoint_delta wa_checkpoint_set(void *allocator, signed char device, std::shared_ptr<wa_allocator_state> state);

/* A block that is live again, with which the calling thread's request to PyTorch's allocator is to be answered;
 * nullptr: with new memory. */
void *wa_checkpoint_block();

#endif
