/*
 * stitch: making room for a request that no free block of its stream fits, in a pool made of chunks. What there is comes
 * first: addresses whose chunks are free by now are used again, without any call of the driver; as long as little more is
 * held than was ever live, new chunks are added behind the last ones; beyond that free chunks, and free ends of chunks in
 * use, are mapped together at new addresses, and only what is still missing is new. A private pool gets free chunks of the
 * default one, too; not one with a cap, nor one that graphs use: what was queued on its streams before may still be running
 * where a graph is launched.
 * Lock: none held by the caller; takes the move lock for all of it, and lets go of the cache's for each call of the driver.
 */
#ifndef WR_POOL_STITCH_H
#define WR_POOL_STITCH_H

#include "pool/cache.h"

/* How far it goes for what is there. */
typedef enum wr_stitch_effort {
    WR_STITCH_IDLE,   /* free chunks of the stream, and of others that have no work queued */
    WR_STITCH_CHAINED /* of others too, whose present work the stream then waits for */
} wr_stitch_effort;

/* Serves the request. WEIR_ERR_OUT_OF_MEMORY: there is not enough. WEIR_ERR_POOL_MISMATCH, WEIR_ERR_BUSY: as wr_cache_take. */
WR_CHECKED weir_status wr_stitch(wr_cache *cache, const wr_request *request, wr_stitch_effort effort, void **out);

/* A range of a region that is to have memory. */
typedef struct wr_stitch_range {
    wr_segment **region; /* of the stream's planned bin. NULL in it: one is made, and noted there under both locks */
    size_t bytes;        /* of the region that are ever going to be used */
    size_t from, to;
    uint64_t *const *units; /* WR_SEGMENT_UNITs to be used ever, a bit each; NULL in it: all. Cache's lock */
    bool sparing;           /* memory for the range alone, and not for what is planned beside it */
    /* New memory only as long as the pool's chunks are no more than this, or little more than was ever live */
    uint64_t budget;
} wr_stitch_range;

/* The range gets memory: chunks that were there and are free, or new ones. The move lock is held, and the request's stream and
 * pool say for whom. WEIR_ERR_OUT_OF_MEMORY: there is not enough, or it is in use elsewhere. */
WR_CHECKED weir_status wr_stitch_back(wr_cache *cache, const wr_request *request, const wr_stitch_range *range);

#endif
