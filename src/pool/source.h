/*
 * source: where segments come from: the driver's memory of one kind or another, or the program's own functions. Nothing
 * here takes a lock; callers hold at most the move lock. The program is told of each range it asked to be told of,
 * before anybody can use it and before it goes.
 */
#ifndef WR_POOL_SOURCE_H
#define WR_POOL_SOURCE_H

#include "pool/cache.h"

typedef struct wr_range {
    void *base;
    size_t bytes;
    weir_chunk chunk; /* behind mapped memory; for pinned memory from the driver, where that begins */
    wr_backing backing;
    uint64_t accessors; /* other devices that can access it */
    char *copy;         /* of its contents while paused, in pinned memory */
    size_t copy_bytes;
    bool left; /* the program has been told that it is leaving */
    bool lost; /* nobody has it: not taken back, and not usable again, or the program refused to use it */
} wr_range;

/* A segment for the request. */
WR_CHECKED weir_status wr_source_take(const wr_request *request, wr_range *out);

/* On failure the range is as before, except that its copy may be gone, or the range may be lost. */
weir_status wr_source_give(const wr_mempool *pool, const wr_stream *stream, wr_range *range);

/* The same for a range that was just taken and could not be used because of the failure `why`, which is returned. If it
 * is not taken back, it is lost. */
weir_status wr_source_give_unused(const wr_request *request, wr_range *range, weir_status why);

/* At close, for a range that could not be given back: does what can be done without the source. */
void wr_source_abandon(const wr_mempool *pool, const wr_range *range);

/* Whether the device has memory of that kind; WEIR_ERR_NOT_SUPPORTED says what is missing. */
WR_CHECKED weir_status wr_source_check(const weir_backend *backend, int device, weir_memory_kind kind);

/* Tells the program of a change, if it asked to be told. WEIR_ERR_BUSY when it refuses. */
weir_status wr_source_tell(const wr_mempool *pool, weir_range_change change, const wr_range *range);

/* ---- mapped memory ----------------------------------------------------------------------------------------------- */

static inline bool wr_source_maps(const wr_mempool *pool)
{
    return pool->rules.memory == WEIR_MEMORY_MAPPED || pool->rules.memory == WEIR_MEMORY_EXPORTABLE;
}

/* Puts memory behind an address range, new memory if it has none, accessible to the device and its accessors. On
 * failure the range is as before, or unreached; one that was unreached may be unmapped. */
WR_CHECKED weir_status wr_source_back(const wr_mempool *pool, wr_range *range);

/* Lets the device and its accessors access a mapped range, of one chunk or several. */
WR_CHECKED weir_status wr_source_reach(const wr_cache *cache, wr_range *range);

/* As wr_source_back, with the chunk that the range has. */
WR_CHECKED weir_status wr_source_map(const wr_cache *cache, wr_range *range);

/* Takes back the memory behind a range, which is unbacked then, or lost. On failure the range is as before. */
weir_status wr_source_unback(const wr_cache *cache, wr_range *range);

/* Lets other devices, a bit each, access the range too. */
WR_CHECKED weir_status wr_source_share(const wr_cache *cache, wr_range *range, uint64_t accessors);

/* The present state of the segment's memory. Move lock held. While weir_pause waits for work of a pool that it has
 * marked, the program has not been told that its memory leaves. */
static inline wr_range wr_range_of(const wr_segment *segment)
{
    return (wr_range){ .base = segment->base,
                       .bytes = segment->bytes,
                       .chunk = segment->chunk,
                       .backing = segment->backing,
                       .copy = segment->copy,
                       .copy_bytes = segment->copy_bytes,
                       .left = segment->bin->pool->paused && segment->bin->pool->changing == 0 };
}

#endif
