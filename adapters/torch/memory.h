/*
 * memory: what PyTorch asks of an allocator, in weir's terms. Streams are native, of the device given with them.
 * No state of its own, so no owner and no lock.
 */
#ifndef WEIR_ADAPTERS_TORCH_MEMORY_H
#define WEIR_ADAPTERS_TORCH_MEMORY_H

#include <stdbool.h>
#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Refuses a library that sees other devices than PyTorch does. */
weir_status wa_torch_check_devices(int count);

/* As PyTorch's set_per_process_memory_fraction: a fraction of all memory of the device; 1: no limit. */
weir_status wa_torch_set_fraction(double fraction, int device);

/* The other way round. */
weir_status wa_torch_fraction(int device, double *fraction);

/* What one block could have at most: what the driver and the limit leave, and what is free in the cache, which policy
 * weir can put together. */
weir_status wa_torch_largest(int device, size_t *bytes);

/* How much may be used at most, by the limit or else in all, and what the driver has left. */
weir_status wa_torch_room(int device, size_t *total, size_t *free);

/* Start and size of the driver allocation that a live block lies in. */
weir_status wa_torch_segment(const void *pointer, void **base, size_t *bytes);

/* Records that the stream, of whichever device, uses the block too. NULL names the default stream of the block's
 * device. Pointers that are not weir's are ignored, as PyTorch's own allocator does: other libraries' tensors come here
 * too. The caller empties why->text; if it stays empty, the thread's last error explains the status returned. */
weir_status wa_torch_record(const void *pointer, void *native, weir_error *why);

/* As PyTorch's _record_memory_history(). `events`: how many to keep; PyTorch's defaults, no end or 1, stand for a
 * million. Switched off, a plan that is being learned goes on getting events, without stacks. */
WEIR_API weir_status weir_torch_record_history(bool enabled, uint64_t events, bool stacks, bool clear);

#ifdef __cplusplus
}
#endif
#endif
