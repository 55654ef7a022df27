/*
 * cache: the caching allocator of one device, or of pinned host memory. Mechanism only; what goes where is the policy's
 * business, and what to do when nothing fits is the ladder's (device/ladder.h).
 * Owner: the device; device/pinned.h. Lock: `lock` (WR_RANK_CACHE) guards everything but the constants and what is said otherwise; it
 * is never held across a driver call. Lives as long as the device.
 */
#ifndef WR_POOL_CACHE_H
#define WR_POOL_CACHE_H

#include "base/bias.h"
#include "observe/history.h"
#include "pool/block.h"
#include "pool/event.h"
#include "pool/flow.h"
#include "pool/mempool.h"

#include <sys/queue.h>

typedef struct wr_import wr_import;
typedef struct wr_slab wr_slab;
typedef struct wr_starts wr_starts;
typedef struct wr_wait wr_wait;
typedef struct wr_chunk wr_chunk;
typedef struct wr_slot wr_slot;
typedef struct wr_serving wr_serving;
typedef struct wr_subplan wr_subplan;

/* What cutting and joining blocks takes and writes down besides the blocks themselves: of the cache, or of a front that is
 * detached (pool/detach.h). */
struct wr_ledger {
    wr_flow flow;
    wr_block *unused_blocks; /* records */
    size_t unused_block_count;
    uint64_t hits;    /* requests served from free blocks, by a front; the cache's are in its statistics */
    uint64_t changes; /* blocks freed, segments given back or moved: what may help who found nothing */
};

/* What chunks there are (pool/chunk.h). */
typedef struct wr_chunks {
    /* Constant: bytes of addresses that the first stream's first region has; 0: there are no chunks, pools are made of segments. */
    size_t region_bytes;
    wr_chunk *first;
    size_t count;
    size_t bytes;          /* of all chunks */
    size_t largest;        /* bytes of the largest chunk there ever was */
    uint64_t addresses;    /* bytes that all regions reserve */
    uint64_t reclaimed_at; /* what `addresses` was when regions that could go were last looked for */
    uint64_t mapped_bytes; /* of all slots */
    uint64_t moments;      /* how many slots have become stale: the clock of wr_slot.stale_since */
    /* The time at which mapping chunks again has taken no more than its share, by the back end's clock */
    uint64_t paid_at;
    bool dear;           /* the last chunks that were mapped again took more than that share */
    uint64_t dear_bytes; /* of all chunks of which that is true, since a chunk was last given back or refused */
    /* `bytes` when all parked blocks were last freed to avoid a new chunk; 0: not since one was given back */
    size_t gathered_at;
    bool mixed; /* small requests are served from large blocks' memory too, until a chunk is made */
    wr_chunk *unused_chunks;
    wr_slot *unused_slots;

    /* scratch of who has both locks */
    uint64_t surveys;
    wr_chunk **whole; /* wholly free, as of the last one */
    uint32_t whole_count, whole_capacity;
    uint64_t marks;
    uint64_t requests; /* under the move lock */
} wr_chunks;

typedef struct wr_cache {
    /* constants */
    const weir_backend *backend;
    const wr_policy *policy;
    struct wr_debug *
        debug; /* NULL: off. device/debug.h. Read by every free that does not park: not beside the lock, which others write */
    _Atomic(wr_serving *) serving; /* the plan that is served; NULL: none. pool/serve.h */
    wr_policy_options options;
    int device;               /* WR_CACHE_OF_HOST: pinned host memory, whose streams are places and order nothing */
    char name[16];            /* "device 0": for messages */
    wr_event_pool *events;    /* the device's */
    wr_stream_table *streams; /* the same */

    wr_bias_lock lock;
    uint64_t limit;            /* bytes; 0: none */
    uint64_t growing, leaving; /* bytes being asked from and given to the driver right now, which the limit counts */
    /* Bytes that the driver has not taken back and nobody can use, which the limit counts, too */
    atomic_uint_fast64_t lost;
    uint64_t hidden, hidden_bytes; /* segments in no bin because somebody deals with the driver about them */
    uint64_t hidden_paused;        /* those of paused pools: addresses without memory */
    wr_mempool *pools;             /* the default one first, then by age */
    uint64_t searches[WR_BINS];    /* first ones: the clock of collection by age */
    uint64_t refusals;             /* because of what others were asking for */
    uint64_t departed;             /* segments whose memory went from their addresses: given back, paused */
    atomic_uint pauses_held_off;   /* by so many of weir's own uses of memory; counted under the lock. pool/pause.h */
    weir_memory_stats stats;       /* numbers of blocks: as of the last wr_stats_locked */
    wr_ledger ledger;              /* what came and went since then */
    int64_t most_requested;        /* wr_count_most_requested_locked */
    wr_history history;

    bool has_fronts;           /* constant: bins get one */
    atomic_uint fronts_closed; /* by how many: what was visited since parks nothing meanwhile */
    uint32_t front_count;
    int64_t parked[WR_CLASSES][WR_FLOW_LIVE]; /* in all fronts, as they said last: blocks, bytes, requested bytes */
    _Atomic(wr_front *) fronts;               /* all of them, youngest first; read without the lock */
    atomic_bool cutting_wanted;               /* somebody waits for the cutting locks of detached fronts */
    wr_front *detached;                       /* by address: whoever has the lock has theirs, too. pool/detach.h */

    wr_account **accounts; /* by stream index; NULL where nothing was ever allocated */
    uint32_t account_capacity;

    wr_chunks chunks;
    uint64_t servings;     /* plans served, ever */
    wr_serving *laid_down; /* of no use, and not destroyed yet */
    wr_subplan *subplans;  /* of private pools, which nobody has yet. pool/subplan.h */
    uint64_t subplan_serial;
    atomic_uint subplan_count; /* those of pools too; read without the lock */

    _Atomic(wr_starts *) starts; /* pool/starts.h */

    wr_slab *slabs;                     /* memory of the records below */
    wr_pages *pages, *unused_pages[48]; /* by log2 */
    size_t block_count;                 /* records of blocks, in use or not */
    wr_segment *unused_segments;
    wr_mempool *unused_pools;
    wr_use *unused_uses;

    wr_lock move_lock; /* WR_RANK_MOVE: who holds it may hide segments, and no stream of theirs ends meanwhile */
    bool chains;       /* a free has ever made a stream wait for another (wr_pending_chain); under the move lock */
    atomic_uint left;  /* segments whose `left` is not WR_LEFT_NOT */

    atomic_uint_fast64_t accessors; /* other devices that reach mapped memory of this one, a bit each */
    wr_import *imports;             /* memory of other processes */

    wr_lock poll_lock;            /* WR_RANK_POLL: who holds it may take uses out of the waits */
    wr_wait *waits;               /* streams that freed blocks wait for */
    atomic_uint_fast64_t pending; /* uses in the waits; read without a lock to skip polling */
    uint64_t queued_uses;         /* that were ever in them */
    /* Pools that nobody refers to may have idle memory: wr_mempool_tidy is to look. Set with the lock, or with a cutting lock alone. */
    atomic_bool orphans;
} wr_cache;

/* A request as the policy sees it. */
typedef struct wr_request {
    wr_mempool *pool;
    wr_mempool_name pool_name; /* what the pool must still be once the lock is held */
    wr_stream *stream;
    size_t requested;
    wr_fit fit;
    bool again; /* searched for before: the clock of collection by age ticks once per request, as PyTorch's does */
} wr_request;

#define WR_CACHE_OF_HOST (-1)

/* The cache's lock, and with it those of all detached fronts. */
WR_NOINLINE void wr_detached_lock(wr_cache *cache);
WR_NOINLINE void wr_detached_unlock(const wr_cache *cache);

static inline void wr_cache_lock(wr_cache *cache)
{
    wr_bias_acquire(&cache->lock, WR_BIAS_INNER);
    if (WR_UNLIKELY(cache->detached)) wr_detached_lock(cache);
}

/* False: somebody else has it. */
static inline bool wr_cache_try_lock(wr_cache *cache)
{
    if (WR_UNLIKELY(!wr_bias_try(&cache->lock, WR_BIAS_INNER))) return false;
    if (WR_UNLIKELY(cache->detached)) wr_detached_lock(cache);
    return true;
}

static inline void wr_cache_unlock(wr_cache *cache)
{
    if (WR_UNLIKELY(cache->detached)) wr_detached_unlock(cache);
    wr_bias_release(&cache->lock, WR_BIAS_INNER);
}

static WR_ALWAYS_INLINE void wr_cache_unlock_owned(wr_cache *cache, wr_bias_thread *self)
{
    wr_lock_note_released(&cache->lock.mutex);
    wr_bias_leave(self, WR_BIAS_INNER);
}

/* By a thread that has a front's lock as its owner, where no front is detached, nor will be. False: it is not the owner of this lock, or
 * one is. */
static WR_ALWAYS_INLINE bool wr_cache_lock_owned(wr_cache *cache, wr_bias_thread *self)
{
    if (WR_UNLIKELY(!wr_bias_acquire_owned_by(self, &cache->lock, WR_BIAS_INNER))) return false;
    if (WR_LIKELY(!cache->detached)) return true;
    wr_cache_unlock_owned(cache, self);
    return false;
}

static inline bool wr_cache_is_host(const wr_cache *cache)
{
    return cache->device == WR_CACHE_OF_HOST;
}

/* ---- serving and freeing (cache.c) ------------------------------------------------------------------------------- */

/* `region_bytes`: addresses to reserve for a stream's chunks; 0 where the device cannot map chunks at several places. */
WR_CHECKED weir_status wr_cache_init(wr_cache *cache, const weir_backend *backend, int device, const wr_policy *policy,
                                     const wr_policy_options *options, wr_event_pool *events, uint64_t history,
                                     size_t region_bytes);

/* What `bytes` become in a pool. */
wr_request wr_cache_request(wr_mempool *pool, wr_mempool_name name, wr_stream *stream, size_t bytes);

/* Serves the request from free blocks of its pool and stream. *out is NULL when none fits. WEIR_ERR_POOL_MISMATCH when
 * the pool is gone or released, WEIR_ERR_BUSY when it is paused. */
WR_CHECKED weir_status wr_cache_take(wr_cache *cache, const wr_request *request, void **out);

/* The same for a plain request (wr_front.plain_max) of the front's stream and pool, which becomes a block of `bytes`; none of that
 * size is parked. By a thread that has the front's lock as its owner. NULL: none fits. */
WR_CHECKED void *wr_cache_take_plain(wr_front *front, size_t bytes, size_t requested, wr_bias_thread *self);

/* The same for any request, parked blocks included. */
WR_CHECKED void *wr_cache_take_rounded(wr_front *front, size_t requested);

/* Serves the request from free blocks of private pools that lend, in order of age; theirs they stay. *out as above. */
WR_CHECKED weir_status wr_cache_borrow(wr_cache *cache, const wr_request *request, void **out);

/* Frees a block. *waiting: it when it was recorded on streams, and is pending; the caller starts the wait for them. */
WR_CHECKED weir_status wr_cache_free(wr_cache *cache, const wr_segment *segment, void *pointer, wr_block **waiting);

/* ---- growing, and the end (segment.c) ---------------------------------------------------------------------------- */

/* Serves the request from a new segment. WEIR_ERR_OUT_OF_MEMORY: the limit or the driver says no. With `out` NULL the
 * segment is only taken, for later requests; `grown`, when it is not NULL, becomes it under the lock. */
WR_CHECKED weir_status wr_cache_grow(wr_cache *cache, const wr_request *request, wr_segment **grown, void **out);

/* Gives all segments back to the driver, used or not, after wr_pending_release. The first failure is returned;
 * everything is gone regardless. */
weir_status wr_cache_release(wr_cache *cache);

/* ---- giving back, and to other streams (trim.c) ------------------------------------------------------------------ */

/* Gives idle segments and free chunks back, largest first, until `enough` bytes are; SIZE_MAX: all of them. Those of the
 * default pool, of released pools, and of `own` unless a graph holds it; NULL: of no pool besides. */
WR_CHECKED weir_status wr_cache_trim(wr_cache *cache, const wr_mempool *own, size_t enough, size_t *released);

/* Gives back all idle memory of the pool of that name, if there still is one and no graph holds it. */
weir_status wr_cache_trim_pool(wr_cache *cache, wr_mempool_name name, size_t *released);

/* Gives back what pools that were released have idle. What has work on it stays until next time, or until somebody needs it. */
void wr_cache_trim_released(wr_cache *cache);

/* With max_split_size set: gives back idle oversize segments of the request's stream, just enough for it. */
WR_CHECKED weir_status wr_cache_trim_oversize(wr_cache *cache, const wr_request *request, size_t *released);

/* With a limit and gc_threshold set and exceeded: gives back idle large segments, longest unused first. */
WR_CHECKED weir_status wr_cache_collect(wr_cache *cache);

/* Moves the smallest idle segment of another stream of the pool that fits to the request's stream, which waits for the
 * other's work. *moved: whether there was one. */
WR_CHECKED weir_status wr_cache_rehome(wr_cache *cache, const wr_request *request, bool *moved);

/* The same for segments that streams which have ended left (wr_left), without a wait: it is asked whether work still uses them. */
WR_CHECKED weir_status wr_cache_take_left(wr_cache *cache, const wr_request *request, bool *moved);

/* forget.c: hands the segments of a stream that ends to `heir`, the device's default stream. On failure nothing has moved. */
WR_CHECKED weir_status wr_cache_forget_stream(wr_cache *cache, wr_stream *stream, wr_stream *heir);

/* ---- for the other files of this folder; the lock is held. Limits and bins (segment.c) --------------------------- */

/* What is reserved of that which the limit is for. */
uint64_t wr_cache_limited_locked(const wr_cache *cache);

/* The same with all else that the limit counts. */
uint64_t wr_cache_counted_locked(const wr_cache *cache);

/* So much is the driver's to take back, which it refuses, and nobody's to use. */
static inline void wr_cache_lose(wr_cache *cache, uint64_t bytes)
{
    atomic_fetch_add_explicit(&cache->lost, bytes, memory_order_relaxed);
}

/* Whether the limit leaves room for that much more; WEIR_ERR_OUT_OF_MEMORY. */
WR_CHECKED weir_status wr_cache_check_limit_locked(wr_cache *cache, size_t bytes);

/* The same of a pool's own cap. */
uint64_t wr_cache_left_of_cap_locked(const wr_mempool *pool);
WR_CHECKED weir_status wr_cache_check_cap_locked(const wr_mempool *pool, size_t bytes);

/* The bin of a stream and class, made on first use. Bins stay: a later stream of the same index takes them over. */
WR_CHECKED weir_status wr_cache_make_bin_locked(wr_mempool *pool, wr_stream *stream, wr_class class, wr_bin **out);

/* ---- the same: what a request may have (cache.c) ----------------------------------------------------------------- */

/* Whether the request's pool is there and serves requests. */
WR_CHECKED weir_status wr_cache_check_pool_locked(const wr_request *request);

/* May the request have a free block of that size? */
bool wr_cache_takes(const wr_request *request, size_t candidate);

/* The request's bin; NULL where nothing was ever allocated. */
wr_bin *wr_cache_bin_locked(const wr_request *request);

/* A free block of the request's bin that it may have; NULL: none fits. */
wr_block *wr_cache_find_free_locked(const wr_request *request);

/* The free block that fits best of one of the stream's bins, whatever the request's class, and is not spared for planned places;
 * NULL: none does. */
wr_block *wr_cache_best_of_locked(const wr_request *request, wr_class class);

/* ---- the same: handing out and freeing (cache.c) ----------------------------------------------------------------- */

/* Hands out a free block, cut to size. On failure nothing has changed. */
WR_CHECKED weir_status wr_cache_hand_out_locked(wr_cache *cache, const wr_request *request, wr_block *block,
                                                void **out);

/* Hands out a range, by offset, of one free block. `native`: the stream that asked for it. NULL: there are no records for the rest. */
wr_block *wr_cache_hand_out_at_locked(wr_segment *segment, size_t at, size_t bytes, size_t requested,
                                      const void *native);

/* A range of a segment, by offset, that lies in one free or absent block, or is a held one, becomes a block of its own, in no tree and
 * of the same state. Two records of blocks were made sure of (wr_records_spare_blocks). */
wr_block *wr_cache_carve_locked(wr_segment *segment, size_t at, size_t bytes);

/* A pending or live block becomes free: merged, back in its bin, counted. */
void wr_cache_reclaim_locked(wr_cache *cache, wr_block *block);

/* Frees a live block; one with uses becomes pending, and wr_pending_start() is next, without the lock. */
void wr_cache_give_locked(wr_cache *cache, wr_block *block);

/* The same for a list of blocks of one kind that were parked in one front, and what they come to. That the program freed them was
 * recorded when they were parked. */
void wr_cache_give_parked_locked(wr_cache *cache, wr_block *first, int kind, const int64_t sums[WR_FLOW_LIVE]);

/* A block in no tree, free already, joins its free neighbours and is put in its bin. */
void wr_cache_join_free_locked(wr_cache *cache, wr_block *block);

/* The live block that `address` lies in; WEIR_ERR_UNKNOWN_POINTER or WEIR_ERR_DOUBLE_FREE say what is there instead. */
WR_CHECKED weir_status wr_cache_live_block_locked(wr_cache *cache, const wr_segment *segment, const void *address,
                                                  wr_block **out);

/* Takes the lock. Returns the block that begins there, which is the caller's. */
wr_block *wr_cache_lock_block(const void *pointer);

/* ---- the same: what a stream that ended has left ----------------------------------------------------------------- */

/* By whoever hands out or hides a block of the segment: work may be queued on it from now on, so what was known of it since its
 * stream ended is forgotten. */
static inline void wr_segment_use(wr_segment *segment)
{
    if (WR_LIKELY(!segment->left)) return;
    segment->left = WR_LEFT_NOT;
    atomic_fetch_sub_explicit(&segment->cache->left, 1, memory_order_relaxed);
}

static inline void wr_segment_set_left_locked(wr_segment *segment, wr_left left)
{
    wr_segment_use(segment);
    segment->left = left;
    if (left) atomic_fetch_add_explicit(&segment->cache->left, 1, memory_order_relaxed);
}

/* ---- the same: records (records.c) ------------------------------------------------------------------------------- */

/* A fresh one's members are whatever they were. */
WR_COLD WR_CHECKED weir_status wr_records_more_blocks(wr_cache *cache);
static inline wr_block *wr_ledger_take_record(wr_ledger *ledger)
{
    wr_block *block = ledger->unused_blocks;
    ledger->unused_blocks = block->next;
    ledger->unused_block_count--;
    return block;
}

static inline void wr_ledger_add_record(wr_ledger *ledger, wr_block *block)
{
    block->next = ledger->unused_blocks;
    ledger->unused_blocks = block;
    ledger->unused_block_count++;
}

WR_CHECKED static inline weir_status wr_record_block(wr_cache *cache, wr_block **block)
{
    if (WR_UNLIKELY(!cache->ledger.unused_blocks)) WR_TRY(wr_records_more_blocks(cache));
    *block = wr_ledger_take_record(&cache->ledger);
    return WEIR_OK;
}

static inline void wr_record_block_done(wr_cache *cache, wr_block *block)
{
    wr_ledger_add_record(&cache->ledger, block);
}

WR_CHECKED weir_status wr_record_use(wr_cache *cache, wr_use **use);
void wr_record_use_done(wr_cache *cache, wr_use *use);
WR_CHECKED weir_status wr_record_segment(wr_cache *cache, wr_segment **segment);
void wr_record_segment_done(wr_cache *cache, wr_segment *segment);             /* and its pages */
WR_CHECKED weir_status wr_records_spare_blocks(wr_cache *cache, size_t count); /* so many then cannot fail */
WR_CHECKED weir_status wr_records_set_aside(wr_cache *cache, size_t count, wr_block **list); /* for a later lock */
void wr_records_put_back(wr_cache *cache, wr_block **list);
WR_CHECKED weir_status wr_record_pages(wr_cache *cache, size_t bytes, wr_pages **pages);
WR_CHECKED weir_status wr_record_mempool(wr_cache *cache, wr_mempool **pool);
void wr_record_mempool_done(wr_cache *cache, wr_mempool *pool);
void wr_records_release(wr_cache *cache);

#endif
