/*
 * sample: the statistics of a cache, its pools and its streams at one instant.
 * Lock: each function takes the cache's, but for what is _locked.
 */
#ifndef WR_POOL_REPORT_SAMPLE_H
#define WR_POOL_REPORT_SAMPLE_H

#include "observe/metrics.h"
#include "pool/cache.h"

/* Adds rows: one for the cache (as `scope`) and, for a device's cache, one for each pool and for each stream that has
 * segments. */
WR_CHECKED weir_status wr_sample_cache(wr_cache *cache, wr_scope scope, wr_rows *rows);

/* The same, between wr_fronts_close_and_lock and wr_fronts_unlock_and_open. */
WR_CHECKED weir_status wr_sample_cache_locked(wr_cache *cache, wr_scope scope, wr_rows *rows);

void wr_sample_stream(wr_cache *cache, const wr_stream *stream, weir_stream_stats *out);

/* Bytes of device memory that the cache holds, without the managed and pinned memory of pools. */
uint64_t wr_sample_device_bytes(wr_cache *cache);

#endif
