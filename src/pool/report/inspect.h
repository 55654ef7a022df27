/*
 * inspect: looking at a cache without changing it: pointers, totals for an error text, invariants.
 * Lock: each function takes the cache's.
 */
#ifndef WR_POOL_REPORT_INSPECT_H
#define WR_POOL_REPORT_INSPECT_H

#include "pool/cache.h"

WR_CHECKED weir_status wr_inspect_pointer(const wr_segment *segment, const void *address, weir_pointer_info *out);

/* WEIR_ERR_POOL_MISMATCH when the pool no longer has that name. */
WR_CHECKED weir_status wr_inspect_pool(const wr_mempool *pool, wr_mempool_name name, weir_mempool_info *out);
WR_CHECKED weir_status wr_inspect_pool_stats(wr_mempool *pool, wr_mempool_name name, weir_memory_stats *out);
WR_CHECKED weir_status wr_inspect_blocks(const wr_mempool *pool, wr_mempool_name name, weir_block_info *blocks,
                                         size_t capacity, size_t *count);

/* Where the bytes of a cache are, as seen by a request that failed. */
typedef struct wr_cache_report {
    uint64_t reserved, allocated, limit;
    uint64_t limited; /* of the reserved bytes: those that the limit is for */
    uint64_t lost;    /* the driver did not take them back, and nobody can use them */
    uint64_t pending_bytes, pending_blocks;
    uint64_t idle_bytes;         /* free, in segments with nothing else in them */
    uint64_t split_bytes;        /* free, in segments and chunks partly in use */
    uint64_t largest_free;       /* of the request's pool, stream and class */
    uint64_t largest_elsewhere;  /* on other streams, same pool and class */
    uint64_t other_streams_free; /* free on other streams, same pool */
    uint64_t kept_idle;          /* by other pools; only what the limit is for */
    bool on_device, chunked;     /* the request's pool: the limit is for its memory; it is made of chunks */
} wr_cache_report;

/* Between wr_fronts_close_and_lock and wr_fronts_unlock_and_open. */
void wr_inspect_report_locked(wr_cache *cache, const wr_request *request, wr_cache_report *out);

/* Idle memory that private pools keep for themselves, of that which the limit is for. */
uint64_t wr_inspect_kept_idle(wr_cache *cache);

/* Checks every structure against every other. WEIR_ERR_INTERNAL names what is broken. */
WR_CHECKED weir_status wr_inspect_validate(wr_cache *cache);

#endif
