/*
 * sharing: tensors for other processes (torch.multiprocessing). PyTorch asks its allocator for a handle of a block,
 * sends that, and asks the allocator there for the memory. It keeps the block alive until the other process has let go
 * of it.
 */
#ifndef WEIR_ADAPTERS_TORCH_SHARING_H
#define WEIR_ADAPTERS_TORCH_SHARING_H

#include "torch/types.h"

/* shareIpcHandle() and getIpcDevPtr() of the allocator object. */
wa_shareable_handle wa_share(void *allocator, void *memory);
std::shared_ptr<void> wa_open_shared(void *allocator, std::string handle);

/* Gives up memory that was opened and is used no more, but for that of devices with a capture underway. */
void wa_end_shared();

#endif
