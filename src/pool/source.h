/*
 * source: where segments come from: the driver's memory of one kind or another, or the program's own functions.
 * Nothing here takes a lock; the callers hold none but the move lock. The program is told of each range it asked to be
 * told of, before anybody can use it and before it goes.
 */
#ifndef WR_POOL_SOURCE_H
#define WR_POOL_SOURCE_H

#include "pool/mempool.h"

/* A segment's memory. */
typedef struct wr_range {
    void *base;
    size_t bytes;
    weir_chunk
        chunk; /* behind mapped memory; 0: it was destroyed, and lives as long as it is mapped. Where pinned memory
                         begins that the driver gave */
} wr_range;

WR_CHECKED weir_status wr_source_take(const wr_mempool *pool, const wr_stream *stream, size_t bytes, wr_range *out);

/* On failure the range can be used as before and given back later. */
weir_status wr_source_give(const wr_mempool *pool, const wr_stream *stream, wr_range *range);

/* At close, for a range that could not be given back: what can be done without the source is. */
void wr_source_abandon(const wr_mempool *pool, const wr_range *range);

/* Whether the device has memory of that kind; WEIR_ERR_NOT_SUPPORTED says what is missing. */
WR_CHECKED weir_status wr_source_check(const weir_backend *backend, int device, weir_memory_kind kind);

#endif
