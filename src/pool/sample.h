/*
 * sample: the statistics of a cache at one instant: of itself, its pools and its streams.
 * Lock: each function takes the cache's.
 */
#ifndef WR_POOL_SAMPLE_H
#define WR_POOL_SAMPLE_H

#include "observe/metrics.h"
#include "pool/cache.h"

/* Adds rows: the cache (as `scope`), and, of a device's, its pools and its streams that have segments. */
WR_CHECKED weir_status wr_sample_cache(wr_cache *cache, wr_scope scope, wr_rows *rows);

/* The blocks of one stream. */
void wr_sample_stream(wr_cache *cache, const wr_stream *stream, weir_stream_stats *out);

/* Bytes of device memory that the cache holds: what pools have of managed or pinned memory is not. */
uint64_t wr_sample_device_bytes(wr_cache *cache);

#endif
