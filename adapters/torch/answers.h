/*
 * answers: what PyTorch asks of its allocator that CUDAPluggableAllocator has no hook for, and refuses: how large a
 * block can be had, which convolutions ask under torch.backends.cudnn.benchmark, and the fraction of memory that may be
 * used. Building this needs nothing of PyTorch.
 */
#ifndef WEIR_ADAPTERS_TORCH_ANSWERS_H
#define WEIR_ADAPTERS_TORCH_ANSWERS_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To be called once PyTorch's current allocator is a CUDAPluggableAllocator, and before it is used: from then on it
 * answers. Does nothing the second time. False: this PyTorch's allocator is made another way, and goes on refusing. */
WEIR_API bool weir_torch_answer(void);

#ifdef __cplusplus
}
#endif
#endif
