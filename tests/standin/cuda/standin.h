/*
 * standin: a stand-in for NVIDIA's libcuda.so.1, for tests on machines without a GPU. It is not a driver: memory is
 * host memory, and work runs on the host back end, which is compiled in. It copies the real driver's rules that weir's
 * cuda back end must obey: status codes, primary contexts with their counts and ids, the current context of a thread,
 * and which calls end whose stream capture in which mode. Contexts made by cuCtxCreate share the device's memory and
 * work, unlike real ones.
 *
 * Environment, read by the first cuInit: STANDIN_CUDA_DEVICES (default 2), STANDIN_CUDA_MEMORY (per device, default
 * 512MiB). STANDIN_CUDA_PEERS=0: no device can access another. STANDIN_CUDA_EXPORTS=0, STANDIN_CUDA_RDMA=0: none has
 * file descriptors for memory, or memory that network cards reach. STANDIN_CUDA_VM=0: none has virtual memory; with
 * STANDIN_CUDA_VM_WORKS=0 and STANDIN_CUDA_EXPORTS_WORK=0 such is offered and refused. CUDA_VISIBLE_DEVICES counts only
 * when it is empty.
 */
#ifndef WEIR_TESTS_STANDIN_CUDA_H
#define WEIR_TESTS_STANDIN_CUDA_H

#include "backend/cuda/types.h"

/* Makes the nth next call (1: the very next) of a function fail with `code`, once. Names are those of symbols.def
 * without suffix. A nth of 0 forgets what was scripted for the function. */
__attribute__((visibility("default"))) void standin_cuda_fail(const char *name, unsigned long nth, int code);

/* Calls of a function so far, failed ones included; those of all functions for NULL. */
__attribute__((visibility("default"))) unsigned long standin_cuda_calls(const char *name);

/* Makes a context that is green, and current; for the driver's functions that take a context it is one like any. */
__attribute__((visibility("default"))) CUresult standin_cuda_green_context(CUcontext *context, CUdevice device);

/* Chunks made so far with gpuDirectRDMACapable. */
__attribute__((visibility("default"))) unsigned long standin_cuda_rdma_chunks(void);

#endif
