#include "torch/observers.h"

#include "torch/memory.h"
#include "torch/symbols.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <utility>

namespace
{

/* PyTorch's functions. The profiler listens per thread. */
struct profiler {
    bool (*listens)();
    void (*tell_usage)(void *memory, int64_t bytes, size_t allocated, size_t reserved, wa_device device);
    void (*tell_out_of_memory)(int64_t bytes, size_t allocated, size_t reserved, wa_device device);
};

const profiler &theirs()
{
    static const profiler found = {
        wa_torch_symbol(WA_TORCH_BASE, "_ZN3c1022memoryProfilingEnabledEv"),
        wa_torch_symbol(WA_TORCH_BASE, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"),
        wa_torch_symbol(WA_TORCH_BASE, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"),
    };
    return found;
}

bool is_listening()
{
    const profiler &p = theirs();
    return p.listens && p.tell_usage && p.tell_out_of_memory && p.listens();
}

bool get_usage(int device, size_t *allocated, size_t *reserved)
{
    weir_memory_stats stats;
    stats.size = sizeof stats;
    if (weir_stats_get(device, &stats) != WEIR_OK) return false;
    *allocated = static_cast<size_t>(stats.allocated_bytes[WEIR_STAT_ALL].current);
    *reserved = static_cast<size_t>(stats.reserved_bytes[WEIR_STAT_ALL].current);
    return true;
}

wa_device named(int device)
{
    return { WA_CUDA, static_cast<signed char>(device) };
}

void tell_usage(void *memory, bool freed)
{
    size_t allocated = 0, reserved = 0;
    weir_pointer_info info;
    info.size = sizeof info;
    if (weir_pointer_info_get(memory, &info) != WEIR_OK || !get_usage(info.device, &allocated, &reserved)) return;
    const auto bytes = static_cast<int64_t>(info.bytes);
    if (freed) allocated -= info.bytes;
    theirs().tell_usage(memory, freed ? -bytes : bytes, allocated, reserved, named(info.device));
}

/* What was attached, for good and in order: threads may outlive the end of main(). No lock, since any may come back
 * here. */
template <typename Function> class attached
{
    struct one {
        Function function;
        std::atomic<one *> next{ nullptr };

        explicit one(Function f) : function(std::move(f)) {}
    };
    std::atomic<one *> first_{ nullptr };

  public:
    void add(Function function)
    {
        one *const made = new one(std::move(function));
        std::atomic<one *> *link = &first_;
        for (one *there = nullptr; !link->compare_exchange_strong(there, made); there = nullptr) link = &there->next;
    }

    template <typename Call> void each(Call call) const
    {
        for (one *a = first_; a; a = a->next) call(a->function);
    }
};

attached<wa_out_of_memory_observer> observers;
attached<wa_tracker> trackers;

} // namespace

void wa_attach_out_of_memory_observer(void *, wa_out_of_memory_observer observer)
{
    observers.add(std::move(observer));
}

void wa_attach_tracker(void *, wa_tracker tracker)
{
    trackers.add(std::move(tracker));
}

std::atomic_bool wa_profiled{ false };

extern "C" void weir_torch_profile(void)
{
    wa_profiled.store(true, std::memory_order_relaxed);
}

namespace
{

std::atomic<weir_torch_trace_fn> traced_alloc, traced_free;

void trace(const std::atomic<weir_torch_trace_fn> &traced, void *memory)
{
    const weir_torch_trace_fn function = traced;
    if (function && memory) function(memory);
}

} // namespace

extern "C" void weir_torch_trace(weir_torch_trace_fn alloc, weir_torch_trace_fn free)
{
    traced_alloc = alloc;
    traced_free = free;
    weir_torch_profile();
}

void wa_tell_alloc(void *memory)
{
    trace(traced_alloc, memory);
    if (is_listening()) tell_usage(memory, false);
}

void wa_tell_free(void *memory)
{
    trace(traced_free, memory);
    if (is_listening()) tell_usage(memory, true);
}

void wa_observe_out_of_memory(int device, size_t bytes)
{
    size_t allocated = 0, reserved = 0, total = 0, free = 0;
    if (is_listening() && get_usage(device, &allocated, &reserved))
        theirs().tell_out_of_memory(static_cast<int64_t>(bytes), allocated, reserved, named(device));
    (void)!wa_torch_room(device, &total, &free);
    observers.each([&](const wa_out_of_memory_observer &observer) { observer(device, bytes, total, free); });
}

/* False: one has thrown, which is said. The others are told all the same. */
static bool tell_trackers(const wa_trace_entry &entry)
{
    bool all = true;
    trackers.each([&](const wa_tracker &tracker) {
        try {
            tracker(entry);
        } catch (const std::exception &e) {
            all = false;
            /* NCCL's throws for a segment that it was not told of, because it came before. */
            if (entry.action == WA_SEGMENT_ALLOC)
                std::fprintf(stderr, "weir: a segment is refused by what PyTorch has attached: %s\n", e.what());
        } catch (...) { /* C calls this */
            all = false;
        }
    });
    return all;
}

extern "C" bool wa_observe_range(void *user, weir_range_change change, void *base, size_t bytes, int device)
{
    wa_trace_entry entry{};
    entry.action = change == WEIR_RANGE_ADDED ? WA_SEGMENT_ALLOC : WA_SEGMENT_FREE;
    entry.device = static_cast<signed char>(device);
    entry.address = reinterpret_cast<size_t>(base);
    entry.bytes = bytes;
    entry.pool.second = reinterpret_cast<size_t>(user);
    if (tell_trackers(entry)) return true;
    entry.action = WA_SEGMENT_FREE; /* for those that have taken it */
    if (change == WEIR_RANGE_ADDED) (void)tell_trackers(entry);
    return false;
}
