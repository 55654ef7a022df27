/*
 * kinds: every kind of handle that this process knows: the built-in kinds, and those that the program registered.
 * Owner: the process; a kind is never forgotten, so a pointer to one stays valid. Lock: WR_RANK_KINDS for registering a
 * kind and for making a device's pool of one; it is not held across a library call.
 */
#ifndef WR_DEVICE_KINDS_H
#define WR_DEVICE_KINDS_H

#include "device/device.h"
#include "handle/handle.h"
#include "observe/metrics.h"

/* The kind of that number; WEIR_ERR_INVALID_ARGUMENT when there is none. Does not load its library. */
WR_CHECKED weir_status wr_kind_find(weir_handle_kind number, wr_kind **kind);

WR_CHECKED weir_status wr_kind_register(const weir_handle_ops *ops, weir_handle_kind *number);

/* True when no thread is registering a kind or making a pool of one. In a child of fork: none was when it forked. */
bool wr_kinds_at_rest(void);

/* The device's pool of a kind, made on first use. Loads the kind's library. */
WR_CHECKED weir_status wr_device_handles_slow(wr_device *device, weir_handle_kind number, wr_handle_pool **pool);
WR_CHECKED static inline weir_status wr_device_handles(wr_device *device, weir_handle_kind number,
                                                       wr_handle_pool **pool)
{
    if (WR_LIKELY((uint32_t)number < WEIR_HANDLE_KIND_MAX)) {
        *pool = atomic_load_explicit(&device->handles[number], memory_order_acquire);
        if (WR_LIKELY(*pool != NULL)) return WEIR_OK;
    }
    return wr_device_handles_slow(device, number, pool);
}

/* Whether it ever had any, of any kind. */
bool wr_device_has_handles(const wr_device *device);

/* Destroys idle handles of one kind, or of all (0). */
WR_CHECKED weir_status wr_device_trim_handles(wr_device *device, weir_handle_kind number, uint64_t *destroyed);

/* Resets the peak, the counters or both, of one kind or of all (0). */
void wr_device_reset_handles(wr_device *device, weir_handle_kind number, bool peaks, bool totals);

/* Adds a row for each kind that the device has a pool of. */
WR_CHECKED weir_status wr_device_sample_handles(wr_device *device, wr_rows *rows);

/* For closing: releases all pools. */
weir_status wr_device_release_handles(wr_device *device);

#endif
