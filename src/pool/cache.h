/*
 * cache: the caching allocator of one device. Mechanism only; what goes where is the policy's business, and what to
 * do when nothing fits is the ladder's (device/ladder.h).
 * Owner: the device. Lock: `lock` (WR_RANK_CACHE) guards everything but the constants and what is said otherwise; it
 * is never held across a driver call. Lives as long as the device.
 */
#ifndef WR_POOL_CACHE_H
#define WR_POOL_CACHE_H

#include "observe/history.h"
#include "pool/block.h"
#include "pool/event.h"

typedef struct wr_slab wr_slab;
typedef struct wr_wait wr_wait;

typedef struct wr_cache {
    /* constants */
    const weir_backend *backend;
    const wr_policy *policy;
    wr_policy_options options;
    int device;
    wr_event_pool *events; /* the device's */

    wr_lock lock;
    uint64_t limit;            /* bytes; 0: none */
    uint64_t growing, leaving; /* bytes being asked from and given to the driver right now, which the limit counts */
    uint64_t hidden, hidden_bytes; /* segments in no bin because somebody deals with the driver about them */
    wr_bin **bins;                 /* [stream index * WR_CLASSES + class]; NULL where nothing was ever allocated */
    uint32_t bin_capacity;
    uint64_t searches[WR_CLASSES]; /* first ones: the clock of collection by age */
    uint64_t changes;              /* blocks freed, segments given back or moved: what may help who found nothing */
    weir_memory_stats stats;
    wr_history history;

    wr_slab *slabs; /* memory of the records below */
    wr_block *unused_blocks;
    wr_segment *unused_segments;
    wr_use *unused_uses;

    wr_lock move_lock; /* WR_RANK_MOVE: who holds it may hide segments, and no stream of theirs ends meanwhile */

    wr_lock poll_lock;            /* WR_RANK_POLL: who holds it may take uses out of the waits */
    wr_wait *waits;               /* streams that freed blocks wait for */
    atomic_uint_fast64_t pending; /* uses in the waits; read without a lock to skip polling */
} wr_cache;

/* A request as the policy sees it. */
typedef struct wr_request {
    wr_stream *stream;
    size_t requested;
    wr_fit fit;
    bool again; /* searched for before: the clock of collection by age ticks once per request, as PyTorch's does */
} wr_request;

WR_CHECKED weir_status wr_cache_init(wr_cache *cache, const weir_backend *backend, int device, const wr_policy *policy,
                                     const wr_policy_options *options, wr_event_pool *events, uint64_t history);

/* Gives all segments back to the driver, used or not, after wr_pending_release. The first failure is returned;
 * everything is gone regardless. */
weir_status wr_cache_release(wr_cache *cache);

/* Serves the request from free blocks of its stream. *out is NULL when none fits. */
WR_CHECKED weir_status wr_cache_take(wr_cache *cache, const wr_request *request, void **out);

/* Serves the request from a new segment. WEIR_ERR_OUT_OF_MEMORY: the limit or the driver says no. */
WR_CHECKED weir_status wr_cache_grow(wr_cache *cache, const wr_request *request, void **out);

/* Moves the smallest idle segment of another stream that fits to the request's stream, which waits for the other's
 * work. *moved: whether there was one. */
WR_CHECKED weir_status wr_cache_rehome(wr_cache *cache, const wr_request *request, bool *moved);

/* Gives idle segments back, largest first, until `enough` bytes are; SIZE_MAX: all of them. */
WR_CHECKED weir_status wr_cache_trim(wr_cache *cache, size_t enough, size_t *released);

/* With max_split_size set: gives back idle oversize segments of the request's stream, just enough for it. */
WR_CHECKED weir_status wr_cache_trim_oversize(wr_cache *cache, const wr_request *request, size_t *released);

/* With a limit and gc_threshold set and exceeded: gives back idle large segments, longest unused first. */
WR_CHECKED weir_status wr_cache_collect(wr_cache *cache);

/* Frees a block, or starts waiting for the streams it was recorded on. */
WR_CHECKED weir_status wr_cache_free(wr_cache *cache, const wr_segment *segment, void *pointer);

/* Hands the segments of a stream that ends to `heir`, the device's default stream. On failure some have moved, which
 * is harmless when the stream's work is over, and asking again is fine. */
WR_CHECKED weir_status wr_cache_forget_stream(wr_cache *cache, wr_stream *stream, wr_stream *heir);

/* -- for the other files of this folder; the lock is held ----------------------------------------------------------- */

/* Hands out a free block, cut to size. On failure nothing has changed. */
WR_CHECKED weir_status wr_cache_hand_out_locked(wr_cache *cache, const wr_request *request, wr_block *block,
                                                void **out);

/* A pending or live block becomes free: merged, back in its bin, counted. */
void wr_cache_reclaim_locked(wr_cache *cache, wr_block *block);

/* The live block that `address` lies in; WEIR_ERR_UNKNOWN_POINTER or WEIR_ERR_DOUBLE_FREE say what is there instead. */
WR_CHECKED weir_status wr_cache_live_block_locked(wr_cache *cache, const wr_segment *segment, const void *address,
                                                  wr_block **out);

/* Records (records.c): a fresh one's members are whatever they were. */
WR_CHECKED weir_status wr_record_block(wr_cache *cache, wr_block **block);
void wr_record_block_done(wr_cache *cache, wr_block *block);
WR_CHECKED weir_status wr_record_use(wr_cache *cache, wr_use **use);
void wr_record_use_done(wr_cache *cache, wr_use *use);
WR_CHECKED weir_status wr_record_segment(wr_cache *cache, wr_segment **segment);
void wr_record_segment_done(wr_cache *cache, wr_segment *segment); /* frees its index of starts */
void wr_records_release(wr_cache *cache);

#endif
