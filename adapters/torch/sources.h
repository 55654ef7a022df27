/*
 * sources: other allocators of PyTorch's as what the segments of weir's pools come from: torch.cuda.MemPool(allocator).
 */
#ifndef WEIR_ADAPTERS_TORCH_SOURCES_H
#define WEIR_ADAPTERS_TORCH_SOURCES_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `allocator`: PyTorch's C++ object, which must live as long as the process. False: it is no CUDAPluggableAllocator, or
 * this PyTorch's is made another way. */
WEIR_API bool weir_torch_is_source(const void *allocator);

/* For one of which that is true. Its functions are called with weir's locks held, as PyTorch calls them with its
 * own. */
weir_segment_source wa_source_of(void *allocator);

#ifdef __cplusplus
}
#endif
#endif
