#include "torch/answers.h"

#include "torch/errors.h"
#include "torch/memory.h"
#include "torch/symbols.h"

#include <algorithm>
#include <atomic>
#include <elf.h>
#include <link.h>
#include <memory>

namespace
{

constexpr const char *CORE = "libc10_cuda.so", *WHOLE = "libtorch_cuda.so";

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

/* A DeviceIndex was an int in PyTorch 2.2 and before. */
struct answer {
    const char *names[2];
    void *ours;
    bool required; /* older versions of PyTorch do not ask for all */
};

#define CLASS "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
#define METHOD(name) "_Z" CLASS name

const answer answers[] = {
    { { METHOD("9cacheInfoEaPm"), METHOD("9cacheInfoEiPm") }, reinterpret_cast<void *>(cache_info), true },
    { { METHOD("17getMemoryFractionEa"), METHOD("17getMemoryFractionEi") },
      reinterpret_cast<void *>(memory_fraction),
      false },
};

size_t entries_of(const void *table)
{
    Dl_info info;
    void *symbol = nullptr;
    if (!dladdr1(table, &info, &symbol, RTLD_DL_SYMENT) || !symbol) return 0;
    return static_cast<ElfW(Sym) *>(symbol)->st_size / sizeof(void *);
}

bool put_in(const answer &a, void **table, size_t entries)
{
    bool found = false;
    for (const char *name : a.names) {
        void *theirs = wa_torch_symbol(WHOLE, name);
        for (size_t i = WA_TABLE_HEAD; theirs && i < entries; i++) {
            if (table[i] != theirs) continue;
            table[i] = a.ours;
            found = true;
        }
    }
    return found || !a.required;
}

/* The class's table of virtual functions, with ours in it; stays as long as the process. NULL: something is missing. */
void **make_table(void *const *theirs)
{
    const size_t entries = entries_of(theirs);
    if (entries <= WA_TABLE_HEAD) return nullptr;
    std::unique_ptr<void *[]> ours(new void *[entries]);
    std::copy_n(theirs, entries, ours.get());
    for (const answer &a : answers)
        if (!put_in(a, ours.get(), entries)) return nullptr;
    return ours.release();
}

} // namespace

extern "C" bool weir_torch_answer(void)
{
    auto *current =
        static_cast<std::atomic<void ***> *>(wa_torch_symbol(CORE, "_ZN3c104cuda20CUDACachingAllocator9allocatorE"));
    auto *theirs = static_cast<void **>(wa_torch_symbol(WHOLE, "_ZTV" CLASS "E"));
    void ***object = current ? current->load() : nullptr;
    if (!object || !theirs) return false;
    static void **const ours = make_table(theirs);
    if (!ours) return false;
    if (*object == theirs + WA_TABLE_HEAD) *object = ours + WA_TABLE_HEAD;
    return *object == ours + WA_TABLE_HEAD;
}
