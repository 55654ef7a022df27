/*
 * ladder: what an allocation tries on the slow path, in order, before it fails. docs/memory.md draws it.
 */
#ifndef WR_DEVICE_LADDER_H
#define WR_DEVICE_LADDER_H

#include "device/device.h"
#include "device/pinned.h"

/* Allocates from a pool on a stream of the device; `id` is its id when it was found, since which another thread may
 * have ended it. On WEIR_ERR_OUT_OF_MEMORY the error text says why. No lock held. */
WR_CHECKED weir_status wr_device_alloc(wr_device *device, wr_mempool *pool, wr_mempool_name name, wr_stream *stream,
                                       uint64_t id, size_t bytes, void **out);

/* Frees the block that begins at `pointer` in the segment. */
WR_CHECKED weir_status wr_device_free(const wr_segment *segment, void *pointer);

/* Memory straight from the driver, for debug word nosub. Where it is short, what is idle goes back first. No lock
 * held. */
WR_CHECKED weir_status wr_device_alloc_direct(wr_device *device, size_t bytes, void **out);

/* Allocates pinned host memory at a place (pinned.h). On WEIR_ERR_OUT_OF_HOST_MEMORY the error text says why. No lock
 * held. */
WR_CHECKED weir_status wr_pinned_alloc(wr_pinned *pinned, wr_stream *place, size_t bytes, void **out);

/* Adds a segment of at least `bytes`, for blocks of that size's class. Gives nothing back to make room for it. */
WR_CHECKED weir_status wr_pinned_reserve(wr_pinned *pinned, wr_stream *place, size_t bytes);

/* Waits for pending frees and gives back all idle memory that no private pool keeps. */
WR_CHECKED weir_status wr_device_empty_cache(wr_device *device);

/* The same for one pool, to which the caller has a reference: WEIR_ERR_BUSY when a graph holds it or it is paused. */
WR_CHECKED weir_status wr_device_empty_pool(wr_device *device, wr_mempool *pool);

/* Resumes the paused pools of that tag. Where memory is short, frees what an allocation would free. */
WR_CHECKED weir_status wr_device_resume(wr_device *device, const char *tag);

/* The driver lacks device memory for something of its own: gives back what is idle, and waits for no work. */
void wr_device_make_room(wr_device *device);

#endif
