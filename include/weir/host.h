/**
 * @file host.h
 * @brief Strings to pull on the `host` back end: for tests, simulators and `weir replay`. All of them are process
 *        wide, work only while the library is open on the host back end (WEIR_ERR_NOT_SUPPORTED otherwise, also after
 *        weir_close(); WEIR_ERR_FORKED in a child of fork() that is refused all else), and are forgotten by weir_close() (the
 *        call counts, failures and latencies too). A device is named by its ordinal: WEIR_DEVICE_CURRENT is not taken.
 */
#ifndef WEIR_HOST_H
#define WEIR_HOST_H

#include "weir/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Makes the nth next call (1: the very next) of an entry fail with `status`, once. Scripts add up. Since 0.1. */
WEIR_API weir_status weir_host_fail(enum weir_backend_entry entry, uint64_t nth, weir_status status);

/** Makes the nth next call of any entry fail with `status`, once. Since 0.1. */
WEIR_API weir_status weir_host_fail_any(uint64_t nth, weir_status status);

/** Forgets all scripted failures. Since 0.1. */
WEIR_API weir_status weir_host_fail_clear(void);

/** Every call to the device fails with WEIR_ERR_DEVICE_LOST from now on. Since 0.1. */
WEIR_API weir_status weir_host_lose_device(int device);

/** What one call of the entry costs: slept with the real clock, added to a hand-driven one. Since 0.1. */
WEIR_API weir_status weir_host_latency(enum weir_backend_entry entry, uint64_t nanoseconds);

/** Stops the clock (clock_ns) at its present value: it then moves by latencies and weir_host_clock_advance() only.
 *  Since 0.1. */
WEIR_API weir_status weir_host_clock_hold(bool hold);

/** Moves a stopped clock on. @return WEIR_ERR_INVALID_ARGUMENT when the clock runs. Since 0.1. */
WEIR_API weir_status weir_host_clock_advance(uint64_t nanoseconds);

/** Calls of an entry so far, failed ones included. Since 0.1. */
WEIR_API weir_status weir_host_calls(enum weir_backend_entry entry, uint64_t *count);

/**
 * What one driver call costs on the machine that this model is of: an NVIDIA H200 with CUDA 13.0, alone on it. Virtual
 * memory, plain device memory and pinned memory depend on `bytes`; other entries do not look at it. A vm_access or vm_unmap
 * costs as much for each handle mapped in its range: `bytes` is then a handle's. Assumed, not measured: vm_reserve and
 * vm_release (2 us), how the cost of small plain memory grows, and that managed and shared memory cost as much as plain. An
 * entry that nobody has measured (copies, graphs, registering) costs 0. No open library is needed. Since 0.1.
 */
WEIR_API weir_status weir_host_cost(enum weir_backend_entry entry, uint64_t bytes, uint64_t *nanoseconds);

/**
 * What the calls so far would have cost there, by weir_host_cost(), each handle counted: accounting only, nothing sleeps,
 * and nothing is added to latencies or to the clock. Waiting for work is not in it. A call that fails costs nothing where
 * the cost depends on size. Since 0.1.
 */
WEIR_API weir_status weir_host_driver_time(uint64_t *nanoseconds);

/** From now on work queued on the native stream (NULL: the default stream) waits to be stepped by hand. A thread that
 *  synchronises with the stream, or with an event or another stream behind it, runs the work it waits for itself.
 *  Since 0.1. */
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
 * order. The first request whose size differs, or whose place is taken, ends the script; addresses are then chosen
 * as without one. `places` is copied. Since 0.1.
 */
WEIR_API weir_status weir_host_place_segments(int device, const weir_host_place *places, size_t count);

/**
 * Device memory has no contents from now on: all is handed out, counted and refused as always, but nothing is mapped behind
 * the addresses, so touching them is a SIGSEGV, and all copies and fills fail with WEIR_ERR_NOT_SUPPORTED, and with them
 * pausing what is to be kept. For simulators, which never touch it: their times are without the system's calls for memory
 * (mmap, mprotect), of which a real driver makes others, and how many mappings a process may have (vm.max_map_count) does
 * not bound them. Pinned memory can be touched as always. @return WEIR_ERR_BUSY when a device is in use: call it before anything is done with one. Since 0.1.
 */
WEIR_API weir_status weir_host_omit_contents(void);

/** Bytes of device address range that weir_host_place offsets may span. Since 0.1. */
WEIR_API weir_status weir_host_address_range(int device, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
