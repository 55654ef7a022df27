/**
 * @file host.h
 * @brief Scripting the `host` back end: for tests, simulators and `weir replay`.
 *
 * All of it is process-wide and works only while the library is open on the host back end; otherwise, also after
 * weir_close(), calls return WEIR_ERR_NOT_SUPPORTED or, in a child of fork() that is refused all else, WEIR_ERR_FORKED.
 * weir_close() forgets everything set here, and call counts. A device is named by its ordinal; WEIR_DEVICE_CURRENT is
 * refused.
 */
#ifndef WEIR_HOST_H
#define WEIR_HOST_H

#include "weir/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Makes the nth call from now (1: the next) of an entry fail with `status`, once. Several may be set. Since 0.1. */
WEIR_API weir_status weir_host_fail(enum weir_backend_entry entry, uint64_t nth, weir_status status);

/** Makes the nth call from now of any entry fail with `status`, once. Since 0.1. */
WEIR_API weir_status weir_host_fail_any(uint64_t nth, weir_status status);

/** Forgets all scripted failures. Since 0.1. */
WEIR_API weir_status weir_host_fail_clear(void);

/** Every call to the device fails with WEIR_ERR_DEVICE_LOST from now on. Since 0.1. */
WEIR_API weir_status weir_host_lose_device(int device);

/** Sets how long one call of the entry takes: the call sleeps, or a stopped clock moves on. Since 0.1. */
WEIR_API weir_status weir_host_latency(enum weir_backend_entry entry, uint64_t nanoseconds);

/** Stops the clock (clock_ns) at its present value, or lets it run again. A stopped clock moves only by latencies and
 *  by weir_host_clock_advance(). Since 0.1. */
WEIR_API weir_status weir_host_clock_hold(bool hold);

/** Moves a stopped clock forward. @return WEIR_ERR_INVALID_ARGUMENT when the clock runs. Since 0.1. */
WEIR_API weir_status weir_host_clock_advance(uint64_t nanoseconds);

/** How often an entry was called so far, failed calls included. Since 0.1. */
WEIR_API weir_status weir_host_calls(enum weir_backend_entry entry, uint64_t *count);

/**
 * What one driver call costs, by a model measured on an NVIDIA H200 with CUDA 13.0, nothing else running. For virtual
 * memory, plain device memory and pinned memory the cost depends on `bytes`; other entries ignore it. A vm_access or
 * vm_unmap costs that much for each handle mapped in its range, `bytes` being the size of a handle. Assumed, not
 * measured: vm_reserve and vm_release (2 us), how the cost of small plain memory grows, and that managed and shared
 * memory cost as much as plain. An entry that nobody has measured (copies, graphs, registering) costs 0. Needs no open
 * library. Since 0.1.
 */
WEIR_API weir_status weir_host_cost(enum weir_backend_entry entry, uint64_t bytes, uint64_t *nanoseconds);

/**
 * What the calls so far would have cost on that machine, by weir_host_cost(), each handle counted. Only adds up:
 * nothing sleeps, and neither latencies nor the clock change. Waiting for work is not included. A failed call costs
 * nothing where the cost depends on size. Since 0.1.
 */
WEIR_API weir_status weir_host_driver_time(uint64_t *nanoseconds);

/** From now on work queued on the native stream (NULL: the default stream) waits for weir_host_stream_step(). A thread
 *  that synchronises with the stream, or with an event or another stream behind it, itself runs the work that it waits
 *  for. Since 0.1. */
WEIR_API weir_status weir_host_stream_hold(int device, void *stream);

/** Runs up to `count` queued items of a held stream in the calling thread; `*ran` says how many ran. It stops early
 *  at an item that waits for an event of another stream. Since 0.1. */
WEIR_API weir_status weir_host_stream_step(int device, void *stream, uint64_t count, uint64_t *ran);

/** How many items are queued on the native stream. Since 0.1. */
WEIR_API weir_status weir_host_stream_queued(int device, void *stream, uint64_t *count);

/** Ends the hold: runs what is queued and can run in the calling thread; the stream then runs by itself again.
 *  Since 0.1. */
WEIR_API weir_status weir_host_stream_release(int device, void *stream);

/** Where a segment is to be put: `offset` bytes into the device's address range, for a request of `bytes`. */
typedef struct weir_host_place {
    uint64_t offset, bytes;
} weir_host_place;

/**
 * Scripts the addresses of the next segment_alloc calls on a device, so that a replay can repeat a recorded address
 * order. The first request whose size differs, or whose place is taken, ends the script; later addresses are chosen as
 * without a script. `places` is copied. Since 0.1.
 */
WEIR_API weir_status weir_host_place_segments(int device, const weir_host_place *places, size_t count);

/**
 * Device memory has no contents from now on: it is handed out, counted and refused as always, but nothing is mapped
 * behind the addresses. Touching them is a SIGSEGV, and copies and fills fail with WEIR_ERR_NOT_SUPPORTED, as does
 * weir_pause() with WEIR_PAUSE_KEEP. Pinned memory can be touched as always.
 *
 * This is for simulators, which never touch device memory. Their times then exclude the system's calls for memory
 * (mmap, mprotect), in place of which a real driver makes others, and the number of mappings that a process may have
 * (vm.max_map_count) does not limit them.
 * @return WEIR_ERR_BUSY when a device is in use: call it before anything else is done with a device. Since 0.1.
 */
WEIR_API weir_status weir_host_omit_contents(void);

/** Bytes of the device's address range that weir_host_place offsets may span. Since 0.1. */
WEIR_API weir_status weir_host_address_range(int device, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
