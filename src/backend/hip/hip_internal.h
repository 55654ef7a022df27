/*
 * hip: AMD's HIP runtime, found at run time. There are no contexts: a thread has a current device, streams and events
 * know their device, and there is nothing to retain.
 *
 * Owner: the open back end; one set per process. The runtime has its own locks. The table of functions and the devices
 * are written by open and device_open and only read afterwards; the code that ended a device is atomic; idle streams
 * have a lock of rank WR_RANK_BACKEND.
 *
 * Files: symbols.def the runtime's functions; errors.def what its codes mean; driver.c loading and errors; device.c
 * devices, and entering and leaving the runtime; memory.c, stream.c, graph.c the entries of those names; kinds.c the
 * table of AMD's libraries, which needs none of the others.
 */
#ifndef WR_BACKEND_HIP_INTERNAL_H
#define WR_BACKEND_HIP_INTERNAL_H

#include "backend/hip/types.h"
#include "backend/vendor.h"
#include "base/status.h"
#include "weir/backend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WR_HIP_DEVICES_MAX 64

/* The runtime's functions. NULL: an optional one that this runtime does not have. */
typedef struct wr_hip_api {
#define X(need, result, name, parameters) result(*name) parameters;
#include "backend/hip/symbols.def"
#undef X
} wr_hip_api;

extern wr_hip_api wr_hip_runtime;

/* The members behind `open` are set while it is true. */
typedef struct wr_hip_device {
    atomic_bool open;
    atomic_int lost; /* the code that ended the device; 0: it is alive */
    uint64_t total_memory;
    uint64_t granularity; /* 0: no virtual memory */
} wr_hip_device;

typedef struct wr_hip_state {
    int count; /* 0: the back end is not open */
    wr_hip_device devices[WR_HIP_DEVICES_MAX];
} wr_hip_state;

extern wr_hip_state wr_hip;

/* ---- driver.c ---------------------------------------------------------------------------------------------------- */

weir_status wr_hip_open(const weir_backend_config *config);

/* Passes on the code of a call that weir made, and clears a failure from the runtime's memory. The runtime remembers a
 * failure for the thread's next hipGetLastError(), from ROCm 7 on even when later calls succeed, and the program would
 * be told of a call that was not its own. Work that is not done yet is no failure there, so what is remembered then is
 * the program's and stays. */
hipError_t wr_hip_own(hipError_t code);

/* WEIR_OK for codes that mean success. Otherwise sets the error text, with the runtime's words, and marks the device
 * (which may be NULL) as lost if the code ends it. */
WR_CHECKED weir_status wr_hip_check(wr_hip_device *device, const char *call, hipError_t code);

/* ---- device.c ---------------------------------------------------------------------------------------------------- */

/* What an entry replaces while it is in the runtime. */
typedef struct wr_hip_frame {
    wr_hip_device *device;
    int before; /* the thread's device */
    hipStreamCaptureMode mode;
} wr_hip_frame;

/*
 * The only way into the runtime. Checks that the device is open and alive, makes it the thread's current one, and makes
 * the thread's capture mode relaxed: otherwise an allocation or a free would end every capture in global mode, those of
 * other threads included. On failure nothing has changed and wr_hip_leave() must not be called.
 */
WR_CHECKED weir_status wr_hip_enter(int ordinal, wr_hip_frame *frame);

/* The only way out: restores what wr_hip_enter() replaced, then does wr_hip_check() on the code. */
WR_CHECKED weir_status wr_hip_leave(const wr_hip_frame *frame, const char *call, hipError_t code);

/* Calls the runtime and leaves: return wr_hip_last(&frame, hipEventQuery, event); */
#define wr_hip_last(frame, name, ...) wr_hip_leave((frame), #name, wr_hip_runtime.name(__VA_ARGS__))

/* Fails unless the device is open and not lost. */
WR_CHECKED weir_status wr_hip_device_find(int ordinal, wr_hip_device **out);

/* The properties of physical memory on a device, for the virtual memory calls. */
hipMemAllocationProp wr_hip_chunk_kind(int ordinal);

/* ---- stream.c ---------------------------------------------------------------------------------------------------- */

/* Destroys the idle streams that are kept for reuse. The device is open, or lost. */
void wr_hip_streams_drop(int ordinal);

/* ---- entries ----------------------------------------------------------------------------------------------------- */

weir_status wr_hip_segment_alloc(int ordinal, size_t bytes, void **base);
weir_status wr_hip_segment_free(int ordinal, void *base, size_t bytes);
weir_status wr_hip_vm_reserve(int ordinal, size_t bytes, uint64_t hint, void **base);
weir_status wr_hip_vm_release(int ordinal, void *base, size_t bytes);
weir_status wr_hip_vm_create(int ordinal, size_t bytes, weir_chunk *chunk);
weir_status wr_hip_vm_destroy(int ordinal, weir_chunk chunk, size_t bytes);
weir_status wr_hip_vm_map(int ordinal, void *base, size_t bytes, weir_chunk chunk);
weir_status wr_hip_vm_unmap(int ordinal, void *base, size_t bytes);
weir_status wr_hip_vm_access(int ordinal, void *base, size_t bytes, int accessor);
weir_status wr_hip_pinned_alloc(int ordinal, size_t bytes, void **base);
weir_status wr_hip_pinned_free(int ordinal, void *base, size_t bytes);
weir_status wr_hip_managed_alloc(int ordinal, size_t bytes, void **base);
weir_status wr_hip_managed_free(int ordinal, void *base, size_t bytes);

weir_status wr_hip_stream_create(int ordinal, int priority, void **out);
weir_status wr_hip_stream_destroy(int ordinal, void *stream);
weir_status wr_hip_stream_check(int ordinal, void *stream);
weir_status wr_hip_stream_query(int ordinal, void *stream);
weir_status wr_hip_stream_synchronize(int ordinal, void *stream);
weir_status wr_hip_stream_wait(int ordinal, void *stream, void *event);
weir_status wr_hip_stream_callback(int ordinal, void *stream, void (*function)(void *), void *argument);
weir_status wr_hip_event_create(int ordinal, void **out);
weir_status wr_hip_event_destroy(int ordinal, void *event);
weir_status wr_hip_event_record(int ordinal, void *event, void *stream);
weir_status wr_hip_event_query(int ordinal, void *event);
weir_status wr_hip_event_synchronize(int ordinal, void *event);
weir_status wr_hip_copy(int ordinal, void *stream, void *destination, const void *source, size_t bytes);
weir_status wr_hip_fill(int ordinal, void *stream, void *destination, unsigned char value, size_t bytes);

weir_status wr_hip_capture_begin(int ordinal, void *stream, weir_capture_mode mode);
weir_status wr_hip_capture_end(int ordinal, void *stream, void **graph);
weir_status wr_hip_capture_status(int ordinal, void *stream, weir_capture_state *state, uint64_t *id);
weir_status wr_hip_capture_tips(int ordinal, void *stream, void **nodes, size_t capacity, size_t *count);
weir_status wr_hip_node_dependencies(int ordinal, void *node, void **nodes, size_t capacity, size_t *count);
weir_status wr_hip_graph_instantiate(int ordinal, void *graph, void **out);
weir_status wr_hip_graph_launch(int ordinal, void *exec, void *stream);
weir_status wr_hip_graph_exec_destroy(int ordinal, void *exec);
weir_status wr_hip_graph_destroy(int ordinal, void *graph);

#endif
