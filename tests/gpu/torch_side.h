/*
 * torch_side: PyTorch in the process of a test, behind a C interface. torch_side.cpp is built by scripts/torch-object where
 * PyTorch is, and named to the tests by TORCH_SIDE=FILE. Streams are native ones; numbers are floats.
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
    int (*device)(void);        /* its current one */
    void (*set_device)(int device);
    void *(*stream)(int device); /* from PyTorch's pool */
    /* A tensor from PyTorch's allocator, `first` + i in each place, twice plus one; its data, until drop(). */
    float *(*make)(void *stream, int device, size_t count, float first);
    void (*drop)(void);                                                     /* the last one made */
    void (*add_one)(void *stream, int device, float *memory, size_t count); /* to anybody's memory */
    void (*empty_cache)(void);
    uint64_t (*reserved)(int device); /* bytes that its allocator holds */
} torch_side;

const torch_side *torch_side_get(void);

#ifdef __cplusplus
}
#endif

#endif
