#include "torch/sharing.h"

#include "shared/handover.h"
#include "torch/errors.h"
#include "torch/requests.h"
#include "torch/symbols.h"

#include <mutex>

namespace
{

using collect_function = bool (*)();

/* torch::CudaIPCCollect(): frees blocks that other processes have let go of. It may throw, and weir that asks is C. */
bool collect(void *user, int, size_t)
{
    try {
        return reinterpret_cast<collect_function>(user)();
    } catch (...) {
        return false;
    }
}

/* When memory is short, as with PyTorch's own allocator. Closing weir forgets it, and ends the answers. What is added
 * anew is not asked by those whose memory is short already. */
void collect_when_short(bool first)
{
    static std::mutex lock;
    static bool missing;
    static void *const theirs = wa_torch_symbol(WA_TORCH_WHOLE, "_ZN5torch14CudaIPCCollectEv");
    if (!theirs) return;
    const std::lock_guard<std::mutex> locked(lock);
    missing |= first;
    if (!missing) return;
    (void)!weir_reclaim_remove(collect, theirs);
    wa_torch_check(weir_reclaim_add(collect, theirs));
    missing = false;
}

void check(weir_status status, const weir_error &why)
{
    wa_torch_check(status, why.text[0] ? why.text : nullptr);
}

} // namespace

wa_shareable_handle wa_share(void *, void *memory)
{
    char text[WA_HANDOVER_TEXT];
    bool first = false;
    weir_error why{};
    check(wa_hand_over(memory, text, &first, &why), why);
    collect_when_short(first);
    return { 0, text };
}

std::shared_ptr<void> wa_open_shared(void *, std::string handle)
{
    const int device = wa_current_device();
    void *address = nullptr, *base = nullptr;
    weir_error why{};
    check(wa_take_over(handle.c_str(), device, &address, &base, &why), why);
    /* Unmapping waits for nothing, and work that uses the memory may be queued. If it cannot be waited for, because a
     * capture is underway, the memory stays until weir is closed. */
    return { address, [device, base](void *) {
                if (weir_device_synchronize(device) == WEIR_OK) (void)!weir_import_close(base);
            } };
}
