/*
 * memory: what PyTorch asks of an allocator, in weir's terms. Streams are native ones of the device named with them.
 * Owner: nobody, it has no state of its own. Lock: none.
 */
#ifndef WEIR_ADAPTERS_TORCH_MEMORY_H
#define WEIR_ADAPTERS_TORCH_MEMORY_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Refuses a library that sees other devices than PyTorch does. */
weir_status wa_torch_check_devices(int count);

/* As PyTorch's set_per_process_memory_fraction: of all memory of the device, 1 for no limit. */
weir_status wa_torch_set_fraction(double fraction, int device);

/* Start and size of the driver allocation that a live block lies in. */
weir_status wa_torch_segment(const void *pointer, void **base, size_t *bytes);

/* The block is used on the stream, too, whichever device that is of. NULL names the default stream of the block's
 * device. What is not weir's is passed over, as PyTorch's own allocator does: others' tensors come here too. why->text
 * is empty, as the caller made it, where the thread's last error is what is returned. */
weir_status wa_torch_record(const void *pointer, void *native, weir_error *why);

#ifdef __cplusplus
}
#endif
#endif
