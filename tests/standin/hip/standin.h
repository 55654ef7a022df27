/*
 * standin: a stand-in for AMD's libamdhip64, for tests on machines without a GPU. It is not a runtime: memory is host
 * memory, work runs on the host back end, which is compiled in, and kernels do nothing. It copies from the real one:
 * sonames and version nodes, so that AMD's own libraries load with it and bind; the hooks through which they register
 * their code; status codes; device properties in both layouts; the current device of a thread; which calls end whose
 * stream capture in which mode (as in ROCm 6.3, or the strictest version where they differ), and how a capture that
 * gives no graph leaves its stream (as in ROCm 7.2); hipFree, which waits for all streams of the device; hipMemMap
 * and hipMemUnmap, which wait for the default stream; a second address, on the device, of host memory that was
 * registered.
 *
 * It lacks streams that synchronise with the default stream, except for what their captures forbid on it, results of
 * kernels, and compilation (hiprtc).
 *
 * Environment, read by the first call: STANDIN_HIP_DEVICES (default 2; 0: none, every call says so), STANDIN_HIP_MEMORY
 * (per device, default 512MiB), STANDIN_HIP_ARCH (default gfx90a:sramecc+:xnack-). Read at each call:
 * STANDIN_HIP_PEERS=0: no device can access another; STANDIN_HIP_VMM=0: no device has virtual memory.
 */
#ifndef WEIR_TESTS_STANDIN_HIP_H
#define WEIR_TESTS_STANDIN_HIP_H

#define STANDIN_HIP_PUBLIC __attribute__((visibility("default")))

/* Makes the nth next call (1: the very next) of a function fail with `code`, once. A nth of 0 forgets what was scripted
 * for the function. */
STANDIN_HIP_PUBLIC void standin_hip_fail(const char *name, unsigned long nth, int code);

/* Makes every call of hipFree fail with `code` from now on; 0 ends that. */
STANDIN_HIP_PUBLIC void standin_hip_refuse_frees(int code);

/* Calls of a function so far, failed ones included; those of all functions for NULL. */
STANDIN_HIP_PUBLIC unsigned long standin_hip_calls(const char *name);

/* Calls about streams that had been destroyed. Newer runtimes then read freed memory; this one returns 709. */
STANDIN_HIP_PUBLIC unsigned long standin_hip_dead_streams(void);

/* The name of the call that came `back` calls ago (0: the last); NULL when that is not remembered. */
STANDIN_HIP_PUBLIC const char *standin_hip_logged(unsigned long back);

#endif
