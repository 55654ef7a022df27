#include "torch/answers.h"

#include "torch/checkpoints.h"
#include "torch/errors.h"
#include "torch/memory.h"
#include "torch/requests.h"
#include "torch/sharing.h"
#include "torch/symbols.h"

#include <algorithm>
#include <atomic>
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

struct answer {
    const char *name, *before; /* in versions whose DeviceIndex was an int, and allocate() const; or "" */
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
    { METHOD("8allocateEm"), CONST_METHOD("8allocateEm"), entry(wa_allocate), true },
    { METHOD("9raw_allocEm"), "", entry(wa_raw_alloc), true },
    { METHOD("21raw_alloc_with_streamEmP11CUstream_st"), "", entry(wa_raw_alloc_with_stream), true },
    { METHOD("10raw_deleteEPv"), "", entry(wa_raw_delete), true },
    { CONST_METHOD("11raw_deleterEv"), "", entry(wa_raw_deleter), true },
    { METHOD("9cacheInfoEaPm"), METHOD("9cacheInfoEiPm"), entry(cache_info), true },
    { METHOD("17getMemoryFractionEa"), METHOD("17getMemoryFractionEi"), entry(memory_fraction), false },
    { METHOD("18getCheckpointStateEaSt4pairIyyE"), METHOD("18getCheckpointStateEiSt4pairIyyE"),
      entry(wa_checkpoint_get), false },
    { METHOD("22setCheckpointPoolStateEa" STATE), METHOD("22setCheckpointPoolStateEi" STATE), entry(wa_checkpoint_set),
      false },
};

/* These two go together: the first has PyTorch's string in its name, and so only the layout that ours has. */
#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
const answer opens = { METHOD("12getIpcDevPtrE" STRING), "", entry(wa_open_shared), false };
const answer shares = { METHOD("14shareIpcHandleEPv"), "", entry(wa_share), false };

size_t entries_of(const void *table)
{
    Dl_info info;
    void *symbol = nullptr;
    if (!dladdr1(table, &info, &symbol, RTLD_DL_SYMENT) || !symbol) return 0;
    return static_cast<ElfW(Sym) *>(symbol)->st_size / sizeof(void *);
}

bool put_in(const answer &a, void **table, size_t entries)
{
    void *const theirs = wa_torch_symbol(WA_TORCH_WHOLE, a.name, a.before);
    void **const found = theirs ? std::find(table + WA_TABLE_HEAD, table + entries, theirs) : table + entries;
    if (found != table + entries) *found = a.ours;
    return found != table + entries;
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
    if (put_in(opens, ours.get(), entries)) put_in(shares, ours.get(), entries);
    return ours.release();
}

} // namespace

extern "C" bool weir_torch_answer(int cuda)
{
    auto *current = static_cast<std::atomic<void ***> *>(
        wa_torch_symbol(WA_TORCH_CORE, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
    auto *theirs = static_cast<void **>(wa_torch_symbol(WA_TORCH_WHOLE, WA_TORCH_PLUGGABLE_TABLE));
    void ***object = current ? current->load() : nullptr;
    if (!object || !theirs) return false;
    static void **const ours = make_table(theirs, cuda);
    if (!ours) return false;
    if (*object == theirs + WA_TABLE_HEAD) *object = ours + WA_TABLE_HEAD;
    return *object == ours + WA_TABLE_HEAD;
}
