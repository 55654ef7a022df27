/*
 * What the Python package asks and says about pools, which have PyTorch's ids.
 */
#include "torch/scopes.h"

WEIR_API weir_status weir_torch_mempool_hold(int device, uint64_t capture, uint64_t user);
WEIR_API weir_status weir_torch_mempool_release(int device, uint64_t capture, uint64_t user);
WEIR_API int weir_torch_mempool_references(int device, uint64_t capture, uint64_t user, weir_mempool *ours);
WEIR_API void weir_torch_mempool_name(int device, weir_mempool *id);

weir_status weir_torch_mempool_hold(int device, uint64_t capture, uint64_t user)
{
    return wa_scope_hold(device, (weir_mempool){ capture, user });
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

/* *id: weir's name, and afterwards PyTorch's; a pool of others keeps weir's. */
void weir_torch_mempool_name(int device, weir_mempool *id)
{
    const weir_mempool torchs = wa_scope_torchs(device, *id);
    if (torchs.capture || torchs.user) *id = torchs;
}
