/*
 * cuda: NVIDIA's driver API, found at run time, on each device's primary context, which it shares with a program that
 * uses the CUDA runtime.
 *
 * Owner: the open back end; one set per process. No locks: the driver has its own. The table of functions and the
 * devices are written by open and device_open and only read afterwards; the code that ended a device is atomic.
 *
 * Files: symbols.def the driver's functions; errors.def what its codes mean; driver.c loading and errors; device.c
 * devices, and entering and leaving the driver; memory.c, stream.c, graph.c the entries of those names.
 */
#ifndef WR_BACKEND_CUDA_INTERNAL_H
#define WR_BACKEND_CUDA_INTERNAL_H

#include "backend/cuda/types.h"
#include "backend/vendor.h"
#include "base/status.h"
#include "weir/backend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WR_CUDA_DEVICES_MAX 64

/* The driver's functions, by their names without suffix. NULL: an optional one that this driver does not have. */
typedef struct wr_cuda_api {
#define X(need, name, suffix, version, parameters) CUresult(*name) parameters;
#include "backend/cuda/symbols.def"
#undef X
} wr_cuda_api;

extern wr_cuda_api wr_cu;

/* The members behind `open` are set while it is true. */
typedef struct wr_cuda_device {
    CUdevice handle; /* set by open */
    atomic_bool open;
    atomic_int lost; /* the code that ended the context; 0: it is alive */
    CUcontext context;
    _Atomic(CUcontext) ended;      /* the one that it had when it was closed: threads may have it current still */
    unsigned long long generation; /* the context's id; 0 where the driver does not tell */
    uint64_t total_memory;
    uint64_t granularity; /* 0: no virtual memory */
    bool exports;         /* chunks can be made so that other processes can be given them */
    bool rdma;            /* chunks can be made so that network cards can reach them */
} wr_cuda_device;

typedef struct wr_cuda_state {
    int count; /* 0: the back end is not open */
    wr_cuda_device devices[WR_CUDA_DEVICES_MAX];
} wr_cuda_state;

extern wr_cuda_state wr_cuda;

/* For entries that need an optional function. */
#define WR_CUDA_NEED(name)                                                                                             \
    WR_ENSURE(wr_cu.name != NULL, WEIR_ERR_NOT_SUPPORTED,                                                              \
              "cuda: the driver does not have " #name "; update the NVIDIA driver")

/* ---- driver.c ---------------------------------------------------------------------------------------------------- */

weir_status wr_cuda_open(const weir_backend_config *config);

/* WEIR_OK for codes that mean success. Otherwise sets the error text, with the driver's words, and marks the device
 * (which may be NULL) as lost if the code ends it. */
WR_CHECKED weir_status wr_cuda_check(wr_cuda_device *device, const char *call, CUresult code);

/* Fails with this status, and says what the code means. */
weir_status wr_cuda_fail(const wr_cuda_device *device, const char *call, CUresult code, weir_status status);

/* ---- device.c ---------------------------------------------------------------------------------------------------- */

/* What an entry replaces while it is in the driver. */
typedef struct wr_cuda_frame {
    wr_cuda_device *device;
    CUcontext before;
    CUstreamCaptureMode mode;
    bool switched; /* `before` was another context */
} wr_cuda_frame;

/*
 * The only way into the driver. Checks that the device is open and alive, makes its primary context the thread's
 * current one, and makes the thread's capture mode relaxed: otherwise a poll, an allocation or a free would end every
 * capture in global mode, those of other threads included. On failure nothing has changed and wr_cuda_leave() must not
 * be called.
 */
WR_CHECKED weir_status wr_cuda_enter(int ordinal, wr_cuda_frame *frame);

/* The only way out: restores what wr_cuda_enter() replaced, then does wr_cuda_check() on the code. */
WR_CHECKED weir_status wr_cuda_leave(const wr_cuda_frame *frame, const char *call, CUresult code);

/* Calls the driver and leaves: return wr_cuda_last(&frame, cuEventQuery, event); */
#define wr_cuda_last(frame, name, ...) wr_cuda_leave((frame), #name, wr_cu.name(__VA_ARGS__))

/* Fails unless the device is open and not lost. */
WR_CHECKED weir_status wr_cuda_device_find(int ordinal, wr_cuda_device **out);

/* The properties of physical memory on the device, for the virtual memory calls. */
CUmemAllocationProp wr_cuda_chunk_kind(const wr_cuda_device *device);

/* ---- entries ----------------------------------------------------------------------------------------------------- */

weir_status wr_cuda_segment_alloc(int device, size_t bytes, void **base);
weir_status wr_cuda_segment_free(int device, void *base, size_t bytes);
weir_status wr_cuda_vm_reserve(int device, size_t bytes, uint64_t hint, void **base);
weir_status wr_cuda_vm_release(int device, void *base, size_t bytes);
weir_status wr_cuda_vm_create(int device, size_t bytes, weir_chunk *chunk);
weir_status wr_cuda_vm_destroy(int device, weir_chunk chunk, size_t bytes);
weir_status wr_cuda_vm_map(int device, void *base, size_t bytes, weir_chunk chunk);
weir_status wr_cuda_vm_unmap(int device, void *base, size_t bytes);
weir_status wr_cuda_vm_access(int device, void *base, size_t bytes, int accessor);
weir_status wr_cuda_pinned_alloc(int device, size_t bytes, void **base);
weir_status wr_cuda_pinned_free(int device, void *base, size_t bytes);
weir_status wr_cuda_host_register(int device, void *base, size_t bytes);
weir_status wr_cuda_host_unregister(int device, void *base, size_t bytes);
weir_status wr_cuda_managed_alloc(int device, size_t bytes, void **base);
weir_status wr_cuda_managed_free(int device, void *base, size_t bytes);
weir_status wr_cuda_vm_create_exportable(int device, size_t bytes, weir_chunk *chunk);
weir_status wr_cuda_vm_export(int device, weir_chunk chunk, int *descriptor);
weir_status wr_cuda_vm_import(int device, int descriptor, size_t bytes, weir_chunk *chunk);

weir_status wr_cuda_stream_create(int device, int priority, void **stream);
weir_status wr_cuda_stream_destroy(int device, void *stream);
weir_status wr_cuda_stream_check(int device, void *stream);
weir_status wr_cuda_stream_query(int device, void *stream);
weir_status wr_cuda_stream_synchronize(int device, void *stream);
weir_status wr_cuda_stream_wait(int device, void *stream, void *event);
weir_status wr_cuda_stream_callback(int device, void *stream, void (*function)(void *), void *argument);
weir_status wr_cuda_event_create(int device, void **event);
weir_status wr_cuda_event_destroy(int device, void *event);
weir_status wr_cuda_event_record(int device, void *event, void *stream);
weir_status wr_cuda_event_query(int device, void *event);
weir_status wr_cuda_event_synchronize(int device, void *event);
weir_status wr_cuda_copy(int device, void *stream, void *destination, const void *source, size_t bytes);
weir_status wr_cuda_fill(int device, void *stream, void *destination, unsigned char value, size_t bytes);

weir_status wr_cuda_capture_begin(int device, void *stream, weir_capture_mode mode);
weir_status wr_cuda_capture_end(int device, void *stream, void **graph);
weir_status wr_cuda_capture_status(int device, void *stream, weir_capture_state *state, uint64_t *id);
weir_status wr_cuda_capture_tips(int device, void *stream, void **nodes, size_t capacity, size_t *count);
weir_status wr_cuda_node_dependencies(int device, void *node, void **nodes, size_t capacity, size_t *count);
weir_status wr_cuda_graph_instantiate(int device, void *graph, void **exec);
weir_status wr_cuda_graph_launch(int device, void *exec, void *stream);
weir_status wr_cuda_graph_exec_destroy(int device, void *exec);
weir_status wr_cuda_graph_destroy(int device, void *graph);

#endif
