/*
 * share: mapped memory that others reach: other devices of this process, and other processes. What is imported from
 * another process is known here by its address, so that only such an address is closed.
 * Owner of the imports: the cache. Locks: they and the accessors change with both the move lock and the cache's; the
 * accessors are also read without.
 */
#ifndef WR_POOL_SHARE_H
#define WR_POOL_SHARE_H

#include "pool/cache.h"

/* Lets another device reach all mapped memory of the cache, what it will have too. On failure it may reach some. */
WR_CHECKED weir_status wr_share_with(wr_cache *cache, int accessor);

/* A file descriptor for the segment that a live block is in. WEIR_ERR_NOT_SUPPORTED when its pool's memory is of
 * another kind, WEIR_ERR_BUSY while it is paused. */
WR_CHECKED weir_status wr_share_export(wr_cache *cache, const wr_segment *segment, const void *pointer, int *descriptor,
                                       uint64_t *offset, uint64_t *segment_bytes);

WR_CHECKED weir_status wr_share_import(wr_cache *cache, int descriptor, size_t bytes, void **base);

/* *found: whether it was an import of this cache. On failure it still is. */
WR_CHECKED weir_status wr_share_close(wr_cache *cache, const void *base, bool *found);

/* At close: all imports end. */
weir_status wr_share_release(wr_cache *cache);

#endif
