/*
 * What the Python package asks and says about pools, which have PyTorch's ids.
 */
#include "torch/observers.h"
#include "torch/scopes.h"
#include "torch/sources.h"

#include <stdlib.h>

WEIR_API weir_status weir_torch_mempool_hold(int device, uint64_t capture, uint64_t user, bool use_on_oom,
                                             bool no_split, void *allocator);
WEIR_API weir_status weir_torch_mempool_release(int device, uint64_t capture, uint64_t user);
WEIR_API int weir_torch_mempool_references(int device, uint64_t capture, uint64_t user, weir_mempool *ours);
WEIR_API bool weir_torch_mempool_name(int device, weir_mempool *id);
WEIR_API size_t weir_torch_mempools(int device, weir_mempool *torchs, weir_mempool *ours, size_t capacity);
WEIR_API weir_status weir_torch_mempool_live(int device, uint64_t capture, uint64_t user, void **live, size_t capacity,
                                             size_t *count);

/* `allocator`: where its segments come from (sources.h); NULL: from weir. */
weir_status weir_torch_mempool_hold(int device, uint64_t capture, uint64_t user, bool use_on_oom, bool no_split,
                                    void *allocator)
{
    const weir_segment_source source = wa_source_of(allocator);
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = device;
    options.use_on_oom = use_on_oom;
    options.no_split = no_split;
    if (allocator) { /* the pool is {0, user} */
        options.source = &source;
        options.range_changed = wa_observe_range;
        options.range_user = (void *)(uintptr_t)user; /* NOLINT(performance-no-int-to-ptr): only a number */
    }
    return wa_scope_hold((weir_mempool){ capture, user }, &options);
}

weir_status weir_torch_mempool_release(int device, uint64_t capture, uint64_t user)
{
    return wa_scope_release(device, (weir_mempool){ capture, user });
}

/* *ours: the pool's name in weir's snapshots. */
int weir_torch_mempool_references(int device, uint64_t capture, uint64_t user, weir_mempool *ours)
{
    return wa_scope_references(device, (weir_mempool){ capture, user }, ours);
}

/* *id: weir's name, and afterwards PyTorch's, if it has one; else false. */
bool weir_torch_mempool_name(int device, weir_mempool *id)
{
    const weir_mempool torchs = wa_scope_torchs(device, *id);
    const bool known = torchs.capture || torchs.user;
    if (known) *id = torchs;
    return known;
}

/* Those that PyTorch has references to; at most `capacity` are told, of how many there are. */
size_t weir_torch_mempools(int device, weir_mempool *torchs, weir_mempool *ours, size_t capacity)
{
    return wa_scope_pools(device, torchs, ours, capacity);
}

/* The pool's live blocks, at most `capacity` of them; *count: how many there are. */
weir_status weir_torch_mempool_live(int device, uint64_t capture, uint64_t user, void **live, size_t capacity,
                                    size_t *count)
{
    weir_mempool ours;
    size_t all = 0;
    *count = 0;
    if (wa_scope_references(device, (weir_mempool){ capture, user }, &ours) == 0) return WEIR_OK;
    weir_status status = weir_mempool_blocks(ours, NULL, 0, &all);
    if (status != WEIR_OK || all == 0) return status;
    weir_block_info *blocks = calloc(all, sizeof *blocks);
    if (!blocks) return WEIR_ERR_OUT_OF_HOST_MEMORY;
    const size_t known = all;
    status = weir_mempool_blocks(ours, blocks, known, &all);
    for (size_t i = 0; status == WEIR_OK && i < (all < known ? all : known); i++) {
        if (blocks[i].state != WEIR_BLOCK_LIVE) continue;
        if (*count < capacity) live[*count] = blocks[i].base;
        ++*count;
    }
    free(blocks);
    return status;
}
