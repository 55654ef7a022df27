#include "torch/answers.h"

#include "torch/checkpoints.h"
#include "torch/errors.h"
#include "torch/memory.h"
#include "torch/observers.h"
#include "torch/requests.h"
#include "torch/sharing.h"
#include "torch/symbols.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <elf.h>
#include <link.h>
#include <memory>

namespace
{

/* cacheInfo(c10::DeviceIndex, size_t *): the largest block, if it is larger than what is there. */
void cache_info(void *, signed char device, size_t *largest)
{
    size_t bytes = 0;
    wa_torch_check(wa_torch_largest(device, &bytes));
    *largest = std::max(*largest, bytes);
}

/* getMemoryFraction(c10::DeviceIndex) */
double memory_fraction(void *, signed char device)
{
    double fraction = 1;
    wa_torch_check(wa_torch_fraction(device, &fraction));
    return fraction;
}

/* recordHistory(bool, its function that takes stacks, size_t, RecordContext, bool, actions to skip). `context`: 0 is
 * without stacks. All actions are recorded. */
void record_history(void *, bool enabled, void (*)(), size_t events, uint8_t context, bool clear, const void *)
{
    wa_torch_check(weir_torch_record_history(enabled, events, context != 0, clear));
}

/* The runtime's, as PyTorch's libraries find them. */
constexpr int DEVICE_TO_DEVICE = 3;
struct runtime {
    int (*copy)(void *to, const void *from, size_t bytes, int kind, void *stream);
    int (*copy_peer)(void *to, int device, const void *from, int from_device, size_t bytes, void *stream);
};

const runtime &cudart()
{
    static const runtime found = {
        wa_torch_symbol(WA_TORCH_CORE, "cudaMemcpyAsync"),
        wa_torch_symbol(WA_TORCH_CORE, "cudaMemcpyPeerAsync"),
    };
    return found;
}

/* memcpyAsync(void *, int, const void *, int, size_t, cudaStream_t, bool). Between devices that cannot reach each other
 * only the runtime's copy between peers takes memory that is mapped, as weir's may be. */
int copy(void *, void *to, int device, const void *from, int from_device, size_t bytes, void *stream, bool reachable)
{
    return reachable || device == from_device ? cudart().copy(to, from, bytes, DEVICE_TO_DEVICE, stream)
                                              : cudart().copy_peer(to, device, from, from_device, bytes, stream);
}

struct answer {
    const char *name;
    void *ours;
    bool required; /* older versions of PyTorch do not ask for all */
};

#define METHOD WA_TORCH_METHOD
#define CONST_METHOD WA_TORCH_CONST_METHOD
#define STATE "St10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE"

template <typename Function> void *entry(Function *function)
{
    return reinterpret_cast<void *>(function);
}

const answer answers[] = {
    { METHOD("8allocateEm"), entry(wa_allocate), true },
    { METHOD("9raw_allocEm"), entry(wa_raw_alloc), true },
    { METHOD("21raw_alloc_with_streamEmP11CUstream_st"), entry(wa_raw_alloc_with_stream), true },
    { METHOD("10raw_deleteEPv"), entry(wa_raw_delete), true },
    { CONST_METHOD("11raw_deleterEv"), entry(wa_raw_deleter), true },
    { METHOD("9cacheInfoEaPm"), entry(cache_info), true },
    { METHOD("17getMemoryFractionEa"), entry(memory_fraction), false },
    { METHOD("18getCheckpointStateEaSt4pairIyyE"), entry(wa_checkpoint_get), false },
    { METHOD("22setCheckpointPoolStateEa" STATE), entry(wa_checkpoint_set), false },
    { METHOD("25attachOutOfMemoryObserverESt8functionIFvlmmmEE"), entry(wa_attach_out_of_memory_observer), false },
};

const answer copies = { METHOD("11memcpyAsyncEPviPKvimP11CUstream_stb"), entry(copy), false };

/* These go with the first, which has PyTorch's string in its name, and so only the layout that ours has. */
#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
const answer opens = { METHOD("12getIpcDevPtrE" STRING), entry(wa_open_shared), false };
const answer with_strings[] = {
    { METHOD("14shareIpcHandleEPv"), entry(wa_share), false },
    { METHOD("27attachAllocatorTraceTrackerESt8functionIFvRKN3c1022CachingDeviceAllocator10TraceEntryEEE"),
      entry(wa_attach_tracker), false },
    { METHOD(
          "13recordHistoryEbPFSt10shared_ptrIN3c1015GatheredContextEEvEmNS4_22CachingDeviceAllocator13RecordContextEb"
          "RKSt6vectorI" STRING "SaISH_EE"),
      entry(record_history), false },
};

/* The result of snapshot(): of another size and layout in each version, and passed on as it comes. */
struct any_snapshot {
    any_snapshot() = delete;
    any_snapshot(const any_snapshot &) = delete;
    any_snapshot &operator=(const any_snapshot &) = delete;
    ~any_snapshot() {} // NOLINT(modernize-use-equals-default): so that it is returned in memory, as PyTorch's is
};

/* PyTorch's own allocator, which was never used, and its snapshot(). Without memory that is an empty one: NCCL's
 * process groups ask, before they are told of segments (observers.h). Python's functions have weir's. */
void *torchs_own;
any_snapshot (*snapshot_of_own)(void *allocator, wa_mempool_id pool, bool traces);

any_snapshot empty_snapshot(void *, wa_mempool_id pool, bool traces)
{
    return snapshot_of_own(torchs_own, pool, traces);
}

const answer snapshots = { METHOD("8snapshotESt4pairIyyEb"), entry(empty_snapshot), false };

size_t entries_of(const void *table)
{
    Dl_info info;
    void *symbol = nullptr;
    if (!dladdr1(table, &info, &symbol, RTLD_DL_SYMENT) || !symbol) return 0;
    return static_cast<ElfW(Sym) *>(symbol)->st_size / sizeof(void *);
}

/* Where ours was put; 0: nowhere. */
size_t put_in(const answer &a, void **table, size_t entries)
{
    void *const theirs = wa_torch_symbol(WA_TORCH_WHOLE, a.name);
    size_t i = WA_TABLE_HEAD;
    while (i < entries && table[i] != theirs) i++;
    if (!theirs || i == entries) return 0;
    table[i] = a.ours;
    return i;
}

void put_in_snapshots(void **table, size_t entries)
{
    const signed char type = WA_CUDA;
    void *(*const registered)(const signed char *type) =
        wa_torch_symbol(WA_TORCH_BASE, "_ZN3c1012GetAllocatorERKNS_10DeviceTypeE");
    torchs_own = registered ? registered(&type) : nullptr;
    const size_t at = torchs_own ? put_in(snapshots, table, entries) : 0;
    if (at)
        snapshot_of_own =
            reinterpret_cast<decltype(snapshot_of_own)>((*static_cast<void ***>(torchs_own))[at - WA_TABLE_HEAD]);
}

/* The class's table of virtual functions, with ours in it; stays as long as the process. NULL: something is missing. */
void **make_table(void *const *theirs, int cuda)
{
    const size_t entries = entries_of(theirs);
    if (entries <= WA_TABLE_HEAD || !wa_requests_begin(cuda)) return nullptr;
    std::unique_ptr<void *[]> ours(new void *[entries]);
    std::copy_n(theirs, entries, ours.get());
    for (const answer &a : answers)
        if (!put_in(a, ours.get(), entries) && a.required) return nullptr;
    if (put_in(opens, ours.get(), entries))
        for (const answer &a : with_strings) put_in(a, ours.get(), entries);
    if (cudart().copy && cudart().copy_peer) put_in(copies, ours.get(), entries);
    put_in_snapshots(ours.get(), entries);
    return ours.release();
}

/* PyTorch's functions for whatever accelerator there is (torch.accelerator) ask the allocator that is registered for
 * the kind of device. Replacing the current one leaves PyTorch's own there. */
void register_for_device(void *allocator)
{
    void (*const set)(signed char type, void *allocator, uint8_t priority) =
        wa_torch_symbol(WA_TORCH_BASE, "_ZN3c1012SetAllocatorENS_10DeviceTypeEPNS_9AllocatorEh");
    if (set) set(WA_CUDA, allocator, UINT8_MAX);
}

} // namespace

extern "C" bool weir_torch_answer(int cuda)
{
    std::atomic<void ***> *const current =
        wa_torch_symbol(WA_TORCH_CORE, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    void **const theirs = wa_torch_symbol(WA_TORCH_WHOLE, WA_TORCH_PLUGGABLE_TABLE);
    void ***object = current ? current->load() : nullptr;
    if (!object || !theirs) return false;
    static void **const ours = make_table(theirs, cuda);
    if (*object == theirs + WA_TABLE_HEAD) {
        register_for_device(object);
        if (ours) *object = ours + WA_TABLE_HEAD;
    }
    return ours && *object == ours + WA_TABLE_HEAD;
}
