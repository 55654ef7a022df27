/**
 * @file observe.h
 * @brief Where the memory is, for people and for monitoring: statistics as text, of devices, pools, streams and handles.
 *        The numbers themselves are in weir.h; docs/statistics.md explains each.
 */
#ifndef WEIR_OBSERVE_H
#define WEIR_OBSERVE_H

#include "weir/weir.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statistics as text ---------------------------------------------------------------------------------------- */

/**
 * The statistics of all open devices, their pools, streams and kinds of handles, and of pinned memory, as one JSON
 * object. Works as snprintf: writes at most `capacity` bytes with the terminating NUL (nothing when it is 0), and into
 * `*length` how long the text is without it; a length of `capacity` or more means that it was cut. The numbers of a
 * device are of one instant. Costs time by the number of blocks. Since 0.1.
 */
WEIR_API weir_status weir_stats_json(char *buffer, size_t capacity, size_t *length);

/** The same as OpenMetrics text, for Prometheus and its like: content type "application/openmetrics-text;
 *  version=1.0.0; charset=utf-8". Since 0.1. */
WEIR_API weir_status weir_stats_openmetrics(char *buffer, size_t capacity, size_t *length);

/** Sets the peaks of a device and its pools to the current values. Since 0.1. */
WEIR_API weir_status weir_stats_reset_peaks(int device);

/** Sets running totals and counters of a device and its pools to zero. Since 0.1. */
WEIR_API weir_status weir_stats_reset_totals(int device);

/* ---- by device and by stream ----------------------------------------------------------------------------------- */

/** Whose the memory of a device is. Set `size` first. */
typedef struct weir_device_memory {
    size_t size;
    uint64_t total_bytes;
    uint64_t free_bytes;     /**< as the driver says */
    uint64_t reserved_bytes; /**< device memory that weir holds: not its managed or pinned pools */
    uint64_t handles_bytes;  /**< what creating the library handles that exist took, by the driver's figures */
    uint64_t outside_bytes; /**< total - free - reserved: contexts, kernels, libraries (handles too), other processes */
    uint64_t limit_bytes;   /**< weir_memory_limit_set(); 0: none */
} weir_device_memory;

/** Asks the driver and counts. What other threads allocate meanwhile may be counted on either side. Since 0.1. */
WEIR_API weir_status weir_device_memory_get(int device, weir_device_memory *out);

/** What is allocated on one stream, over all pools of its device, now. Set `size` first. */
typedef struct weir_stream_stats {
    size_t size;
    uint64_t live, live_bytes;       /**< blocks handed out */
    uint64_t pending, pending_bytes; /**< freed, waiting for other streams */
    uint64_t free, free_bytes;       /**< cached: what the stream's next allocations can have */
    uint64_t largest_free_bytes;
    uint64_t segments, reserved_bytes;
} weir_stream_stats;

/** Counts the blocks of a stream. Since 0.1. */
WEIR_API weir_status weir_stream_stats_get(weir_stream stream, weir_stream_stats *out);

#ifdef __cplusplus
}
#endif
#endif
