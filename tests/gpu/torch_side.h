/*
 * torch_side: PyTorch in the process of a test, behind a C interface. scripts/torch-object builds torch_side.cpp where
 * PyTorch is installed; TORCH_SIDE=FILE names the result to the tests. Streams are native ones; numbers are floats.
 */
#ifndef WEIR_TESTS_GPU_TORCH_SIDE_H
#define WEIR_TESTS_GPU_TORCH_SIDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct torch_side {
    const char *(*begin)(void); /* NULL, or why PyTorch cannot be used here */
    int (*device)(void);        /* the current device */
    void (*set_device)(int device);
    void *(*stream)(int device); /* from PyTorch's pool */
    /* Makes a tensor from PyTorch's allocator with `first` + i at each place, computes twice that plus one, and returns
     * its data, valid until drop(). */
    float *(*make)(void *stream, int device, size_t count, float first);
    void (*drop)(void);                                                     /* drops the last one made */
    void (*add_one)(void *stream, int device, float *memory, size_t count); /* works on any memory */
    void (*empty_cache)(void);
    uint64_t (*reserved)(int device); /* bytes that its allocator holds */
} torch_side;

const torch_side *torch_side_get(void);

#ifdef __cplusplus
}
#endif

#endif
