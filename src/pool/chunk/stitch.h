/*
 * stitch: making room, in a pool made of chunks, for a request that no free block of its stream fits. Addresses whose
 * chunks have become free are used again first, without a driver call. As long as little more is held than was ever
 * live, new chunks are added behind the last ones. Beyond that, free chunks and free ends of chunks in use are mapped
 * together at new addresses, and only what is still missing is new. A private pool gets free chunks of the default one
 * too, unless it has a cap or graphs use it: work queued earlier on the chunks' streams may still be running where a
 * graph is launched.
 * Lock: the caller holds none. The move lock is taken for all of it; the cache's is released for each driver call.
 */
#ifndef WR_POOL_CHUNK_STITCH_H
#define WR_POOL_CHUNK_STITCH_H

#include "pool/cache.h"

/* How far to go for memory at hand. */
typedef enum wr_stitch_effort {
    WR_STITCH_IDLE,   /* free chunks of the stream, and of other streams without queued work */
    WR_STITCH_CHAINED /* also of other streams with queued work, which the stream then waits for */
} wr_stitch_effort;

/* Serves the request. WEIR_ERR_OUT_OF_MEMORY: there is not enough. WEIR_ERR_POOL_MISMATCH, WEIR_ERR_BUSY: as
 * wr_cache_take. */
WR_CHECKED weir_status wr_stitch(wr_cache *cache, const wr_request *request, wr_stitch_effort effort, void **out);

/* A range of a region that is to get memory. */
typedef struct wr_stitch_range {
    /* Of the stream's planned bin. Points to NULL: a region is made, and stored there under both locks */
    wr_segment **region;
    size_t bytes; /* of the region that will ever be used */
    size_t from, to;
    /* A bit for each WR_SEGMENT_UNIT that will ever be used; points to NULL: all. Cache's lock */
    uint64_t *const *units;
    bool sparing; /* get memory for the range alone, not for what is planned beside it */
    /* Get new memory only while the pool's chunks are within this, or little more than was ever live */
    uint64_t budget;
} wr_stitch_range;

/* Gets memory for the range: free chunks, or new ones. *grew is set where some are new. The move lock is held; the
 * request names the stream and the pool. WEIR_ERR_OUT_OF_MEMORY: there is not enough, or it is in use elsewhere. */
WR_CHECKED weir_status wr_stitch_back(wr_cache *cache, const wr_request *request, const wr_stitch_range *range,
                                      bool *grew);

#endif
