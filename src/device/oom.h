/*
 * oom: the report of a request that failed for want of memory, as text and as JSON: what was asked, what was tried,
 * where every byte is, and what would help. No lock held.
 */
#ifndef WR_DEVICE_OOM_H
#define WR_DEVICE_OOM_H

#include "device/device.h"

/* `tried`: a bit per weir_step. Returns WEIR_ERR_OUT_OF_MEMORY. */
WR_CHECKED weir_status wr_oom_device(wr_device *device, const wr_request *request, uint64_t tried);

/* The same for more than WR_REQUEST_MAX, for which nothing was tried. */
WR_CHECKED weir_status wr_oom_absurd(wr_device *device, const wr_request *request);

/* The same two for pinned host memory. Both return WEIR_ERR_OUT_OF_HOST_MEMORY. */
WR_CHECKED weir_status wr_oom_pinned_absurd(const wr_pinned *pinned, size_t bytes);
WR_CHECKED weir_status wr_oom_pinned(const wr_request *request, uint64_t tried);

#endif
