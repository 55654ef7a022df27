/*
 * hooks: the functions that PyTorch's CUDAPluggableAllocator calls for memory, and that weir's own answers share.
 */
#ifndef WEIR_ADAPTERS_TORCH_HOOKS_H
#define WEIR_ADAPTERS_TORCH_HOOKS_H

#include <sys/types.h>
#include <weir/weir.h>

extern "C" {
WEIR_API void *weir_torch_alloc(ssize_t size, int device, void *stream);
WEIR_API void weir_torch_free(void *pointer, ssize_t size, int device, void *stream);
}

/* Frees, and tells PyTorch's profiler. */
weir_status wa_torch_free(void *pointer);

/* Whether that failed because of the pointer. Other failures (the process ends or was forked, the device is lost)
 * are reported elsewhere. */
bool wa_torch_refused(weir_status freed);

#endif
