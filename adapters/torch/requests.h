/*
 * requests: allocating and freeing as PyTorch's allocator object does, without the object. That notes each block in one
 * table under one lock, for all threads: a pair of 16 threads took 25 to 29 us, whatever was behind the hooks (an
 * H100's host, 2026-11-26).
 */
#ifndef WEIR_ADAPTERS_TORCH_REQUESTS_H
#define WEIR_ADAPTERS_TORCH_REQUESTS_H

#include "torch/types.h"

/* Finds what PyTorch says of the current device and stream; false: not all is there. `cuda`: the major version that
 * PyTorch was built for; since 12 the driver knows the current device, too. To be called before all others. */
bool wa_requests_begin(int cuda);

/* Throws if there is none. */
signed char wa_current_device();

/* The device's current stream; NULL if PyTorch's function for it was not found. */
void *wa_current_native(signed char device);

/* The virtual functions of these names. */
wa_data_ptr wa_allocate(void *allocator, size_t bytes);
void *wa_raw_alloc(void *allocator, size_t bytes);
void *wa_raw_alloc_with_stream(void *allocator, size_t bytes, void *stream);
void wa_raw_delete(void *allocator, void *memory);
wa_deleter wa_raw_deleter(const void *allocator);

#endif
