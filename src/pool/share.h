/*
 * share: mapped memory that is accessed by other devices of this process, or by other processes. Memory imported from
 * another process is known here by its address, so that only such an address can be closed.
 * Owner of the imports: the cache. Locks: imports and accessors change under both the move lock and the cache's;
 * accessors are also read without a lock.
 */
#ifndef WR_POOL_SHARE_H
#define WR_POOL_SHARE_H

#include "pool/cache.h"

/* Lets another device access all mapped memory of the cache, present and future. On failure it may have access to
 * some. */
WR_CHECKED weir_status wr_share_with(wr_cache *cache, int accessor);

/* The chunks that a live block lies in, or its segment, as weir_export() gives them. WEIR_ERR_NOT_SUPPORTED when its
 * memory is of another kind, WEIR_ERR_BUSY while its pool is paused. */
WR_CHECKED weir_status wr_share_export(const wr_segment *segment, const void *pointer, weir_export_part *parts,
                                       size_t capacity, size_t *count, uint64_t *offset);

/* Before a chunk is destroyed: closes the descriptor that it keeps, which would keep its memory. */
void wr_share_end_export(wr_chunk *chunk);

/* In a child of fork: closes all of those. Takes no lock. */
void wr_share_forked(void);

WR_CHECKED weir_status wr_share_import(wr_cache *cache, const weir_export_part *parts, size_t count, void **base);

/* *found: whether it was an import of this cache. If closing fails, it still is, though parts may be gone. */
WR_CHECKED weir_status wr_share_close(wr_cache *cache, const void *base, bool *found);

/* At close: all imports end. */
weir_status wr_share_release(wr_cache *cache);

#endif
