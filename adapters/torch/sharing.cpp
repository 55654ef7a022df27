#include "torch/sharing.h"

#include "shared/handover.h"
#include "torch/errors.h"
#include "torch/requests.h"
#include "torch/symbols.h"

#include <atomic>
#include <memory>
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

/* Memory of another process. In the list once nothing of PyTorch's refers to it. */
struct import {
    void *base;
    weir_stream of; /* the device's default one; stale once weir has closed, which has ended the import */
    import *next;
};

/* Tensors may die in a forked child, too, in which a lock might be held for ever. */
std::atomic<import *> ended;

void put(import *one)
{
    one->next = ended;
    while (!ended.compare_exchange_weak(one->next, one)) {}
}

/* Unmapping waits for nothing, and work that uses the memory may be queued. False: it cannot be waited for, because a
 * capture is underway. */
bool has_ended(const import *one)
{
    int device = 0;
    if (weir_stream_device(one->of, &device) != WEIR_OK) return true;
    const weir_status status = weir_device_synchronize(device);
    if (status == WEIR_OK) (void)!weir_import_close(one->base);
    return status != WEIR_ERR_CAPTURE;
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
    void *address = nullptr;
    weir_error why{};
    wa_end_shared();
    std::unique_ptr<import> one(new import{});
    wa_torch_check(weir_stream_default(device, &one->of));
    check(wa_take_over(handle.c_str(), device, &address, &one->base, &why), why);
    return { address, [one = one.release()](void *) {
                put(one);
                wa_end_shared();
            } };
}

void wa_end_shared()
{
    for (import *one = ended.exchange(nullptr), *next; one; one = next) {
        next = one->next;
        if (has_ended(one))
            delete one;
        else
            put(one);
    }
}
