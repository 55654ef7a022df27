/*
 * answers: weir's functions in the place of PyTorch's allocator object's own: for what it has no hook for and refuses
 * (how large a block can be had, which convolutions ask under torch.backends.cudnn.benchmark; the fraction of memory
 * that may be used; checkpoints of pools; handles for other processes; who is told of segments, and that memory runs
 * out; recording events; a snapshot for C++), and for allocating and freeing, which it does under a lock of its own.
 * Building this needs nothing of PyTorch.
 */
#ifndef WEIR_ADAPTERS_TORCH_ANSWERS_H
#define WEIR_ADAPTERS_TORCH_ANSWERS_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To be called once PyTorch's current allocator is a CUDAPluggableAllocator, and before it is used: from then on it
 * answers. `cuda`: the major version of CUDA that PyTorch was built for. Does nothing the second time. False: this
 * PyTorch's allocator is made another way, and goes on as it is. */
WEIR_API bool weir_torch_answer(int cuda);

#ifdef __cplusplus
}
#endif
#endif
