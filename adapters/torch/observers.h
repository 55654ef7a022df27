/*
 * observers: whom PyTorch's allocator tells of memory: its profiler of each block (profile_memory=True), functions that
 * a program has attached of memory that runs out, and those that NCCL's process groups attach of the segments that they
 * register. PyTorch tells nobody of a replaced allocator's.
 */
#ifndef WEIR_ADAPTERS_TORCH_OBSERVERS_H
#define WEIR_ADAPTERS_TORCH_OBSERVERS_H

#include <weir/weir.h>

#ifdef __cplusplus
#include "torch/types.h"

#include <atomic>
#include <functional>

/* c10::cuda::CUDACachingAllocator::OutOfMemoryObserver. `total`: the limit, if there is one. */
using wa_out_of_memory_observer = std::function<void(int64_t device, size_t bytes, size_t total, size_t free)>;

/* c10::CachingDeviceAllocator::AllocatorTraceTracker */
using wa_tracker = std::function<void(const wa_trace_entry &)>;

/* attachOutOfMemoryObserver() and attachAllocatorTraceTracker() of the allocator object. */
void wa_attach_out_of_memory_observer(void *allocator, wa_out_of_memory_observer observer);
void wa_attach_tracker(void *allocator, wa_tracker tracker);

/* Whether PyTorch's profiler may ever have listened. To ask PyTorch costs 10 ns, twice a pair. */
extern std::atomic_bool wa_profiled;

/* To be called after an allocation, before a free, and before the exception; the last passes on what observers throw,
 * and replaces weir_error_text() where they call weir. */
void wa_tell_alloc(void *memory);
void wa_tell_free(void *memory);
void wa_observe_out_of_memory(int device, size_t bytes);

inline void wa_observe_alloc(void *memory)
{
    if (wa_profiled.load(std::memory_order_relaxed)) wa_tell_alloc(memory);
}

inline void wa_observe_free(void *memory)
{
    if (wa_profiled.load(std::memory_order_relaxed)) wa_tell_free(memory);
}

extern "C" {
#endif

/* The profiler is about to be used, for the first time or again. */
WEIR_API void weir_torch_profile(void);

/* Whom PyTorch's own allocator tells through its interpreter: its sanitizer of streams (torch.cuda._sanitizer), and
 * what else is registered with torch.cuda._gpu_trace. Stays for the process. */
typedef void (*weir_torch_trace_fn)(void *memory);
WEIR_API void weir_torch_trace(weir_torch_trace_fn alloc, weir_torch_trace_fn free);

/* The weir_range_fn of a pool that PyTorch knows as {0, user}. A tracker that throws refuses the memory, of which the
 * others are told that it is gone again. */
bool wa_observe_range(void *user, weir_range_change change, void *base, size_t bytes, int device);

#ifdef __cplusplus
}
#endif
#endif
