/*
 * ladder: what an allocation tries, in order, before it gives up. docs/memory.md draws it.
 */
#ifndef WR_DEVICE_LADDER_H
#define WR_DEVICE_LADDER_H

#include "device/device.h"

/* Allocates on a stream of the device. On WEIR_ERR_OUT_OF_MEMORY the error text explains. No lock held. */
WR_CHECKED weir_status wr_device_alloc(wr_device *device, wr_stream *stream, size_t bytes, void **out);

/* Waits for pending frees and gives all idle memory back. */
WR_CHECKED weir_status wr_device_empty_cache(wr_device *device);

#endif
