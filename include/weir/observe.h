/**
 * @file observe.h
 * @brief Where the memory is, for people and for monitoring: statistics of devices, pools, streams and handles as text
 *        (the numbers themselves are in weir.h; docs/statistics.md explains each), and snapshots.
 */
#ifndef WEIR_OBSERVE_H
#define WEIR_OBSERVE_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statistics as text ------------------------------------------------------------------------------------------ */

/**
 * The statistics of all open devices, their pools, streams and kinds of handles, and of pinned memory, as one JSON
 * object. Works as snprintf: writes at most `capacity` bytes, terminating NUL included (nothing when `capacity` is 0),
 * and sets `*length` to the length of the whole text without the NUL; a length of `capacity` or more means that the
 * text was cut. The text is UTF-8: bytes of names and tags that are not become U+FFFD. The numbers of a device's
 * memory, pools and streams are of one instant. A device whose driver fails has the member "error" instead of the
 * numbers of weir_device_memory, and all others. Takes time in proportion to the number of segments, chunks, pools,
 * streams and parked blocks, not of other blocks. Since 0.1.
 */
WEIR_API weir_status weir_stats_json(char *buffer, size_t capacity, size_t *length);

/** The same as OpenMetrics text, for Prometheus and its like: content type "application/openmetrics-text;
 *  version=1.0.0; charset=utf-8". A device whose driver fails is in no family weir_device_*. Since 0.1. */
WEIR_API weir_status weir_stats_openmetrics(char *buffer, size_t capacity, size_t *length);

/** Sets the peaks of a device and its pools to the current values. Since 0.1. */
WEIR_API weir_status weir_stats_reset_peaks(int device);

/** Sets running totals and counters of a device and its pools to zero. Since 0.1. */
WEIR_API weir_status weir_stats_reset_totals(int device);

/** One half of weir_pinned_stats_reset(): sets the peaks to the current values. Since 0.1. */
WEIR_API weir_status weir_pinned_stats_reset_peaks(void);

/** The other half: sets running totals and counters to zero. Since 0.1. */
WEIR_API weir_status weir_pinned_stats_reset_totals(void);

/** One half of weir_handle_stats_reset(): sets the peak to what exists now. Kind 0 is all kinds. Since 0.1. */
WEIR_API weir_status weir_handle_stats_reset_peaks(weir_handle_kind kind, int device);

/** The other half: sets the counters to zero. Kind 0 is all kinds. Since 0.1. */
WEIR_API weir_status weir_handle_stats_reset_totals(weir_handle_kind kind, int device);

/* ---- by device and by stream ------------------------------------------------------------------------------------- */

/** Who holds a device's memory. Set `size` first. */
typedef struct weir_device_memory {
    size_t size;
    uint64_t total_bytes;
    uint64_t free_bytes;     /**< as the driver says */
    uint64_t reserved_bytes; /**< device memory that weir holds: not its managed or pinned pools */
    uint64_t handles_bytes;  /**< taken by creating the library handles that exist, by the driver's figures */
    /** total - free - reserved: contexts, kernels, libraries (handles too), other processes, managed memory there */
    uint64_t outside_bytes;
    uint64_t limit_bytes; /**< weir_memory_limit_set(); 0: none */
} weir_device_memory;

/** Opens the device, because it asks the driver. Memory that other threads take from the driver meanwhile may be
 *  counted as both free and reserved, or as outside. Since 0.1. */
WEIR_API weir_status weir_device_memory_get(int device, weir_device_memory *out);

/** The memory of one stream now, over all pools of its device. Set `size` first. */
typedef struct weir_stream_stats {
    size_t size;
    uint64_t live, live_bytes;               /**< blocks handed out */
    uint64_t live_peak, live_bytes_peak;     /**< most at once, since the last weir_stats_reset_peaks() */
    uint64_t allocations, allocations_bytes; /**< since weir_stats_reset_totals(), or since the stream began */
    uint64_t pending, pending_bytes;         /**< freed, waiting for other streams */
    uint64_t free, free_bytes;               /**< cached: what the stream's next allocations can have */
    uint64_t largest_free_bytes;
    uint64_t segments, reserved_bytes;
} weir_stream_stats;

/** Counts the blocks of a stream. Since 0.1. */
WEIR_API weir_status weir_stream_stats_get(weir_stream stream, weir_stream_stats *out);

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/**
 * The calling thread's last error as a JSON object: its status, code, library and text. For an out-of-memory error the
 * member "memory" says what was asked for, what was tried, where every byte is (by pool, stream and kind of handle) and
 * what would help. It lists the 64 largest pools and streams, and sums up the others in "unlisted_pools" and
 * "unlisted_streams". It is left out when more than 1 EiB was asked for, which is refused at once, and for a
 * block straight from the driver (WEIR_DEBUG=nosub). Works as snprintf, see weir_stats_json(). Leaves the error as it
 * is, even when it fails itself (WEIR_ERR_INVALID_ARGUMENT: a NULL). Since 0.1.
 */
WEIR_API weir_status weir_error_json(char *buffer, size_t capacity, size_t *length);

/* ---- snapshots --------------------------------------------------------------------------------------------------- */

/** For weir_snapshot_options: every device that is open. */
#define WEIR_DEVICE_ALL (-3)

typedef enum weir_snapshot_format {
    WEIR_SNAPSHOT_PICKLE = 0, /**< as torch.cuda.memory._dump_snapshot(): for its viewer, _memory_viz.py and weir */
    WEIR_SNAPSHOT_TRACE = 1 /**< weir's trace format, with the blocks as if allocated just now, and without the history,
                                   which weir_history_save() writes */
} weir_snapshot_format;

/** Initialise with WEIR_SNAPSHOT_OPTIONS_INIT. Only the tail grows. */
typedef struct weir_snapshot_options {
    size_t size;
    weir_snapshot_format format;
    int32_t device;           /**< WEIR_DEVICE_ALL, or one; with a pool: the pool's */
    const weir_mempool *pool; /**< NULL: every pool. {0, 0}: the default pool of `device`, which must be named then */
    bool without_history;     /**< pickle: leave out the recorded events */
} weir_snapshot_options;

#define WEIR_SNAPSHOT_OPTIONS_INIT { sizeof(weir_snapshot_options), WEIR_SNAPSHOT_PICKLE, WEIR_DEVICE_ALL, NULL, false }

/**
 * Writes to a file where every block is and, if recording is on, the recorded events. An existing file is replaced
 * whole or not at all and keeps its mode; a symbolic link stays, and the file behind it is replaced. What is not a
 * plain file (a device, a pipe) is written in place, and what is named by a descriptor of this process (/dev/stdout)
 * where that descriptor is. Each device is seen at one instant. No thread waits for the file: the contents are copied
 * before they are written. Bytes of labels and file names that are not UTF-8 become U+FFFD.
 * @param options NULL: the defaults.
 * @return WEIR_ERR_IO with the system's reason; WEIR_ERR_POOL_MISMATCH; WEIR_ERR_WRONG_DEVICE if the pool is another
 *         device's; WEIR_ERR_OUT_OF_HOST_MEMORY. Since 0.1.
 */
WEIR_API weir_status weir_snapshot_save(const char *path, const weir_snapshot_options *options);

/** The same to a descriptor (a pipe, a socket, an open file), which stays the caller's. Waits for room even if the
 *  descriptor is non-blocking. When the reader is gone the result is WEIR_ERR_IO, without a SIGPIPE. Since 0.1. */
WEIR_API weir_status weir_snapshot_write(int descriptor, const weir_snapshot_options *options);

#ifdef __cplusplus
}
#endif
#endif
