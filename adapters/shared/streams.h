/*
 * streams: allocating on streams that are another library's, given by device and native handle. Each thread remembers
 * weir's names of the last few it used, so that a hit looks nothing up.
 * Owner: the calling thread. Lock: none. Lives as long as the thread; names that went stale are looked up again.
 */
#ifndef WEIR_ADAPTERS_STREAMS_H
#define WEIR_ADAPTERS_STREAMS_H

#include <weir/weir.h>

#ifdef __cplusplus
extern "C" {
#endif

weir_status wa_stream_of(int device, void *native, weir_stream *out);

/* weir_alloc_on() the stream. Devices that are allocated on reach each other's memory, where they can. */
weir_status wa_alloc(size_t bytes, int device, void *native, void **out);

/* One bit per device that wa_alloc() served. Others may not be open. */
uint64_t wa_served(void);

/* Gives every device that wa_alloc() served its idle memory back; others are left unopened. The first failure is
 * returned. */
weir_status wa_empty_caches(void);

#ifdef __cplusplus
}
#endif
#endif
