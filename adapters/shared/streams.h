/*
 * streams: allocating on another library's streams, given by device and native handle. Each thread remembers weir's
 * names of the last few that it used, so that a hit looks nothing up.
 * Owner: the calling thread. Lock: none. Lives as long as the thread; stale names are looked up again.
 */
#ifndef WEIR_ADAPTERS_STREAMS_H
#define WEIR_ADAPTERS_STREAMS_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

weir_status wa_stream_of(int device, void *native, weir_stream *out);

/* weir_alloc_on() the stream. Also enables peer access between the devices that are allocated on, where possible. */
weir_status wa_alloc(size_t bytes, int device, void *native, void **out);

/* Memory of the device has been allocated otherwise: enables peer access all the same. */
void wa_note_served(int device);

/* One bit per device that wa_alloc() has served or that was noted; others may not be open. */
uint64_t wa_served(void);

/* weir_empty_cache() for each of these devices; others are left unopened. Returns the first
 * failure. */
weir_status wa_empty_caches(void);

#ifdef __cplusplus
}
#endif
#endif
