/*
 * checkpoints: a pool's blocks as they were, which torch.compile(mode="reduce-overhead") asks the allocator for: it
 * puts the pool of its graphs back to what it was after some graph, to record another one from there.
 */
#ifndef WEIR_ADAPTERS_TORCH_CHECKPOINTS_H
#define WEIR_ADAPTERS_TORCH_CHECKPOINTS_H

#include "torch/types.h"

/* getCheckpointState() and setCheckpointPoolState() of the allocator object. */
std::shared_ptr<wa_allocator_state> wa_checkpoint_get(void *allocator, signed char device, wa_mempool_id pool);
wa_checkpoint_delta wa_checkpoint_set(void *allocator, signed char device, std::shared_ptr<wa_allocator_state> state);

#endif
