/*
 * cache: the caching allocator of one device, or of pinned host memory. It is mechanism only: the policy decides what
 * goes where, and the ladder (device/ladder.h) what to do when nothing fits.
 * Owner: the device; device/pinned.h for pinned memory. Lock: `lock` (WR_RANK_CACHE) guards everything but the
 * constants and members that say otherwise. It is never held across a driver call. Lives as long as the device.
 */
#ifndef WR_POOL_CACHE_H
#define WR_POOL_CACHE_H

#include "base/bias.h"
#include "observe/history.h"
#include "pool/block.h"
#include "pool/flow.h"
#include "pool/mempool.h"
#include "stream/event.h"

typedef struct wr_import wr_import;
typedef struct wr_slab wr_slab;
typedef struct wr_starts wr_starts;
typedef struct wr_wait wr_wait;
typedef struct wr_chunk wr_chunk;
typedef struct wr_slot wr_slot;
typedef struct wr_serving wr_serving;
typedef struct wr_subplan wr_subplan;

/* Ledger: what splitting and coalescing use and update besides the blocks. The cache has one, and each detached front
 * (pool/front/detach.h). */
struct wr_ledger {
    wr_flow flow;
    wr_block *unused_blocks; /* free list of records */
    size_t unused_block_count;
    uint64_t hits;    /* requests that a front served from free blocks; the statistics have the cache's */
    uint64_t changes; /* blocks freed, segments given back or moved: what may help a request that found nothing */
};

/* The chunks of a cache (pool/chunk/chunk.h). */
typedef struct wr_chunks {
    /* Constant: bytes of addresses of the first stream's first region; 0: no chunks, pools are made of segments. */
    size_t region_bytes;
    uint64_t mappings_most; /* constant: slots, from the back end's capabilities; 0: any number */
    wr_chunk *first;
    size_t count;
    size_t bytes;          /* of all chunks */
    size_t largest;        /* bytes of the largest chunk there ever was */
    uint64_t addresses;    /* bytes that all regions reserve */
    uint64_t reclaimed_at; /* `addresses` when regions that could go were last looked for */
    uint64_t mapped_bytes; /* of all slots */
    uint64_t mappings;     /* how many slots there are */
    uint64_t moments;      /* how many slots have become stale so far: the clock of wr_slot.stale_since */
    TAILQ_HEAD(wr_all_stale, wr_slot) stale; /* the stale slots of all regions, oldest first */
    /* When the time that mapping chunks again took is down to its share, by the back end's clock */
    uint64_t paid_at;
    bool dear;           /* the last chunks mapped again exceeded that share */
    uint64_t dear_bytes; /* of all that did, since a chunk was last given back or refused */
    /* The same for the turns of threads that meet others, and their waits for these. Under the move lock */
    uint64_t turns_paid_at;
    atomic_bool turn_underway;      /* read by those who wait for it */
    uint64_t turn_began, turn_took; /* the one now, and the last one; 0: it is not such a thread's */
    bool crowded;                   /* it is the turn of one that meets others, and the share was exceeded */
    uint64_t crowded_bytes;         /* of free chunks that such threads used again or mapped again */
    /* `bytes` when all parked blocks were last freed to avoid a new chunk; 0: not since one was given back */
    size_t gathered_at;
    size_t moved, reused; /* bytes of chunks since then: mapped again, and used again where they were mapped */
    size_t asked_at;      /* `bytes` when many fronts had too little parked for that; 0: as above */
    /* What the device had for this cache when it was asked last: held and free; 0: not asked yet. It is asked again
     * once so much is held, and after some growths. Written under both locks. */
    uint64_t room, ask_at;
    uint32_t growths; /* since it was asked */
    bool mixed;       /* small requests are served from large blocks' memory too, until the next chunk is made */
    wr_chunk *unused_chunks;
    wr_slot *unused_slots;
    uint32_t numbers; /* of records of chunks, used or not */

    /* scratch space for the holder of both locks */
    uint64_t surveys;
    wr_chunk **whole; /* chunks wholly free at the last survey */
    uint32_t whole_count, whole_capacity;
    /* A search of stitch_run: by chunks' numbers, at least its mark if it may use the chunk, and then the last run that
     * the chunk was in */
    uint64_t *serving;
    uint32_t serving_capacity;
    uint64_t search;      /* its mark */
    size_t serving_slots; /* of those that it may use */
    uint64_t marks;
    uint64_t requests; /* under the move lock */
} wr_chunks;

typedef struct wr_cache {
    /* constants */
    const weir_backend *backend;
    const wr_policy *policy;
    struct wr_debug *debug; /* NULL: off. device/debug.h */
    /* Calls go through device/debug.h: debug is on, or their stacks are recorded. Every free that does not park reads
     * it: not beside the lock, which others write. Changes under the runtime's lock, as the next */
    atomic_bool watched;
    atomic_bool stacked; /* stacks are recorded, and the fronts closed, so that each call passes where they are taken */
    _Atomic(wr_serving *) serving; /* the plan that is served; NULL: none. pool/plan/serve.h */
    wr_policy_options options;
    /* WR_CACHE_OF_HOST: pinned host memory, whose streams are places and order nothing */
    int device;
    char name[16];            /* "device 0": for messages */
    wr_event_pool *events;    /* the device's */
    wr_stream_table *streams; /* the device's */

    wr_bias_lock lock;
    uint64_t limit;            /* bytes; 0: none */
    uint64_t growing, leaving; /* bytes being asked from and given to the driver right now; the limit counts them */
    /* Bytes that the driver has not taken back and nobody can use; the limit counts them */
    atomic_uint_fast64_t lost;
    uint64_t hidden, hidden_bytes;           /* segments in no bin, because the driver is being called about them */
    LIST_HEAD(, wr_segment) hidden_list;     /* all of them, for whoever reports what there is */
    uint64_t hidden_paused;                  /* those of paused pools: addresses without memory */
    wr_mempool *pools;                       /* the default one first, then by age */
    wr_mempool *last_pool;                   /* of them */
    TAILQ_HEAD(, wr_mempool) released_pools; /* those of them that nobody refers to */
    uint32_t unlimited_pools;                /* how many of them the limit is not for */
    uint64_t searches[WR_BINS];              /* first ones of requests: the clock of collection by age */
    uint64_t refusals;                       /* because of what others were asking for */
    uint64_t departed;                       /* segments and chunks that lost their memory: given back, or paused */
    weir_memory_stats stats;                 /* counts of blocks are as of the last wr_stats_locked */
    wr_ledger ledger;                        /* what came and went since then */
    int64_t most_requested;                  /* wr_count_most_requested_locked */
    wr_history history;

    bool has_fronts;                          /* constant: bins get one */
    atomic_uint fronts_closed;                /* by how many: a front visited since parks nothing */
    uint32_t front_count;                     /* of listed ones */
    int64_t parked[WR_CLASSES][WR_FLOW_LIVE]; /* in all fronts, as last reported: blocks, bytes, requested bytes */
    int64_t doubtful[WR_FLOW_LIVE];           /* by so much peaks may be too high, since not all fronts were asked */
    _Atomic(wr_front *) fronts;               /* those that are listed (wr_front.next); read without the lock */
    wr_front *youngest_front;                 /* of all; NULL: none */
    wr_front *met;                            /* those whose `met` is set (wr_front.next_met) */
    atomic_bool cutting_wanted;               /* a thread waits for the cutting locks of detached fronts */
    /* by address; the lock includes their cutting locks. pool/front/detach.h */
    wr_front *detached;
    wr_unshared unshared; /* below the device's peak */

    wr_account **accounts; /* by stream index; NULL where nothing was ever allocated */
    uint32_t account_capacity;

    wr_chunks chunks;
    uint64_t servings;     /* plans served, ever */
    wr_serving *laid_down; /* the last one, no longer of use, but not destroyed yet; NULL while one is served */
    wr_subplan *subplans;  /* for private pools, of which none has them yet. pool/plan/subplan.h */
    uint64_t subplan_serial;
    atomic_uint subplan_count; /* including those of pools; read without the lock */

    _Atomic(wr_starts *) starts; /* pool/starts.h */

    wr_slab *slabs;                     /* memory of the records below */
    wr_pages *pages, *unused_pages[48]; /* by log2 */
    size_t block_count;                 /* records of blocks, in use or not */
    wr_segment *unused_segments;
    wr_mempool *unused_pools;
    wr_use *unused_uses;

    uint64_t pause_calls; /* that have paused or resumed pools; under the lock */
    wr_lock move_lock;    /* WR_RANK_MOVE: its holder may hide segments, and none of their streams ends meanwhile */
    atomic_uint left;     /* segments whose `left` is not WR_LEFT_NOT */

    atomic_uint_fast64_t accessors; /* other devices that can access this one's mapped memory, a bit each */
    wr_import *imports;             /* memory of other processes */

    wr_lock poll_lock;            /* WR_RANK_POLL: its holder may take waits out of the list */
    wr_wait *waits;               /* streams that freed blocks wait for */
    atomic_uint_fast64_t pending; /* uses in the waits; read without a lock to skip polling */
    uint64_t queued_uses;         /* ever queued in them */
    /* Pools that nobody refers to may have idle memory, for wr_mempool_tidy to give back. Set with the lock, or with a
     * cutting lock alone. */
    atomic_bool orphans;
} wr_cache;

/* A request as the policy sees it. */
typedef struct wr_request {
    wr_mempool *pool;
    wr_mempool_name pool_name; /* what the pool must still be called once the lock is held */
    wr_stream *stream;
    uint64_t stream_id; /* what the stream's id must still be before it gets memory; 0: a place of pinned memory */
    size_t requested;
    wr_fit fit;
    bool again; /* searched for before: the clock of collection by age ticks once per request, as PyTorch's does */
} wr_request;

#define WR_CACHE_OF_HOST (-1)

/* wr_cache_lock takes the cache's lock and, by this, the cutting locks of all detached fronts. */
WR_NOINLINE void wr_detached_lock(wr_cache *cache);
WR_NOINLINE void wr_detached_unlock(const wr_cache *cache);

static inline void wr_cache_lock(wr_cache *cache)
{
    wr_bias_acquire(&cache->lock, WR_BIAS_INNER);
    if (WR_UNLIKELY(cache->detached)) wr_detached_lock(cache);
}

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

/* For a thread that holds a front's lock as its owner (base/bias.h). False: it is not the owner of this lock too, or a
 * front is detached. */
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

/* `region_bytes`: bytes of addresses to reserve for a stream's chunks; 0 where the device cannot map a chunk at several
 * addresses. */
WR_CHECKED weir_status wr_cache_init(wr_cache *cache, const weir_backend *backend, int device, const wr_policy *policy,
                                     const wr_policy_options *options, wr_event_pool *events, uint64_t history,
                                     size_t region_bytes);

static inline bool wr_cache_is_watched(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->watched, memory_order_relaxed);
}

/* What a request of `bytes` becomes in a pool. */
wr_request wr_cache_request(wr_mempool *pool, wr_mempool_name name, wr_stream *stream, size_t bytes);

/* Serves the request from free blocks of its pool and stream. *out is NULL when none fits. WEIR_ERR_POOL_MISMATCH when
 * the pool is gone or released, WEIR_ERR_BUSY when it is paused. */
WR_CHECKED weir_status wr_cache_take(wr_cache *cache, const wr_request *request, void **out);

/* The same for a plain request (wr_front.plain_max) of the front's stream and pool, which becomes a block of `bytes`;
 * none of that size is parked. For a thread that holds the front's lock as its owner. NULL: none fits. */
WR_CHECKED void *wr_cache_take_plain(wr_front *front, size_t bytes, size_t requested, wr_bias_thread *self);

/* The same for any request; looks at parked blocks too. */
WR_CHECKED void *wr_cache_take_rounded(wr_front *front, size_t requested);

/* borrow.c: serves the request from free blocks of private pools that lend, oldest pool first. The blocks stay theirs.
 * *out as above. */
WR_CHECKED weir_status wr_cache_borrow(wr_cache *cache, const wr_request *request, void **out);

/* Frees a block. *waiting: the block, if it was recorded on streams: it is pending, and the caller starts the wait. */
WR_CHECKED weir_status wr_cache_free(const wr_segment *segment, void *pointer, wr_block **waiting);

/* ---- growing, and the end (segment.c) ---------------------------------------------------------------------------- */

/* Serves the request from a new segment. WEIR_ERR_OUT_OF_MEMORY: the limit or the driver refuses. With `out` NULL the
 * segment is kept for later requests; `grown`, unless NULL, receives it under the lock. */
WR_CHECKED weir_status wr_cache_grow(wr_cache *cache, const wr_request *request, wr_segment **grown, void **out);

/* Gives all segments back to the driver, used or not; wr_pending_release comes first. Returns the first failure;
 * everything is gone regardless. */
weir_status wr_cache_release(wr_cache *cache);

/* ---- giving back, and to other streams (trim.c) ------------------------------------------------------------------ */

/* Gives back idle segments, of those that are enough the smallest, else the largest first, then free chunks, largest
 * first, until `enough` bytes are given back; SIZE_MAX: all of them.
 * Takes them from the default pool, released pools, and `own` (NULL: none) unless a graph holds it. */
WR_CHECKED weir_status wr_cache_trim(wr_cache *cache, wr_mempool *own, size_t enough, size_t *released);

/* Gives back idle memory that no work is queued on. Waits for none, which may be waiting for this thread. */
void wr_cache_trim_without_work(wr_cache *cache);

/* As wr_cache_trim, for a request that was refused, of what can help it: where the cap of its pool refuses it, memory
 * of that pool; where the pool is of pinned memory, memory of such pools. */
WR_CHECKED weir_status wr_cache_trim_for(const wr_request *request, size_t enough, size_t *released);

/* Gives back all idle memory of the pool, if it still has that name and no graph holds it. */
weir_status wr_cache_trim_pool(wr_mempool *pool, wr_mempool_name name, size_t *released);

/* Gives back what streams that ended have left idle in the pool, unless a graph holds it. No work is waited for: memory
 * that has some stays until next time. */
void wr_cache_trim_inherited(wr_mempool *pool, wr_mempool_name name);

/* Gives back what released pools have idle. Memory with work on it stays until next time, or until somebody needs
 * it. */
void wr_cache_trim_released(wr_cache *cache);

/* With max_split_size set: gives back idle oversize segments of the request's stream, just enough for it. */
WR_CHECKED weir_status wr_cache_trim_oversize(wr_cache *cache, const wr_request *request, size_t *released);

/* With a limit and gc_threshold set and exceeded: gives back idle large segments, longest unused first. */
WR_CHECKED weir_status wr_cache_collect(wr_cache *cache);

/* Moves the smallest idle segment of another stream of the pool that fits to the request's stream, which waits for the
 * other's work. *moved: whether there was one. */
WR_CHECKED weir_status wr_cache_rehome(wr_cache *cache, const wr_request *request, bool *moved);

/* The same for segments that ended streams have left (wr_left). Nothing waits: the driver is asked whether work still
 * uses them. */
WR_CHECKED weir_status wr_cache_take_left(wr_cache *cache, const wr_request *request, bool *moved);

/* stream_end.c: hands the segments of a stream that ends to `heir`, the device's default stream. `waited`: what
 * stream->queued was before the stream's work was waited for. On failure nothing has moved. */
WR_CHECKED weir_status wr_cache_forget_stream(wr_cache *cache, wr_stream *stream, wr_stream *heir, uint64_t waited);

/* ---- for the other files of this folder; the lock is held. Limits and bins (segment.c) --------------------------- */

/* Reserved bytes that the limit is for. */
uint64_t wr_cache_limited_locked(const wr_cache *cache);

/* The same with everything else that the limit counts. */
uint64_t wr_cache_counted_locked(const wr_cache *cache);

/* Counts bytes that the driver refuses to take back and nobody can use. */
static inline void wr_cache_lose(wr_cache *cache, uint64_t bytes)
{
    atomic_fetch_add_explicit(&cache->lost, bytes, memory_order_relaxed);
}

/* Whether the limit leaves room for that many bytes more; WEIR_ERR_OUT_OF_MEMORY. */
WR_CHECKED weir_status wr_cache_check_limit_locked(wr_cache *cache, size_t bytes);

/* The same for a pool's own cap. */
uint64_t wr_cache_left_of_cap_locked(const wr_mempool *pool);
WR_CHECKED weir_status wr_cache_check_cap_locked(const wr_mempool *pool, size_t bytes);

/* Whether the pool's cap leaves no room for what the request needs at least, whatever the device has. */
bool wr_cache_cap_refuses(const wr_request *request);

/* The bin of a stream and class, made on first use. Bins stay: a later stream of the same index takes them over. */
WR_CHECKED weir_status wr_cache_make_bin_locked(wr_mempool *pool, wr_stream *stream, wr_class class, wr_bin **out);

/* ---- the same: what a request may have (cache.c) ----------------------------------------------------------------- */

/* Whether the request's pool still exists and serves requests. */
WR_CHECKED weir_status wr_cache_check_pool_locked(const wr_request *request);
/* Whether its stream has not ended. With the cache's lock, or that of the stream's front in the pool. */
WR_CHECKED weir_status wr_cache_check_stream(const wr_request *request);
/* Both: for whoever is about to get memory for that stream. */
WR_CHECKED weir_status wr_cache_check_target_locked(const wr_request *request);

bool wr_cache_takes(const wr_request *request, size_t candidate);

/* The request's bin; NULL where nothing was ever allocated. */
wr_bin *wr_cache_bin_locked(const wr_request *request);

/* A free block of the request's bin that it may have; NULL: none fits. */
wr_block *wr_cache_find_free_locked(const wr_request *request);

/* The best fit in the stream's bin of that class, whatever the request's, except blocks spared for planned places;
 * NULL: none. */
wr_block *wr_cache_best_of_locked(const wr_request *request, wr_class class);

/* ---- the same: handing out and freeing (cache.c) ----------------------------------------------------------------- */

/* Hands out a free block, splitting off what is too much. On failure nothing has changed. */
WR_CHECKED weir_status wr_cache_hand_out_locked(wr_cache *cache, const wr_request *request, wr_block *block,
                                                void **out);

/* Hands out a range of one free block, by its offset in the segment. `native`: the stream that asked. NULL: no records
 * for the rest. */
wr_block *wr_cache_hand_out_at_locked(wr_segment *segment, size_t at, size_t bytes, size_t requested,
                                      const void *native);

/* Makes a range of a segment, by offset, a block of its own, in no tree. The range lies in one free or absent block, or
 * is a held one, and keeps that state. Needs two block records (wr_records_spare_blocks). */
wr_block *wr_cache_carve_locked(wr_segment *segment, size_t at, size_t bytes);

/* Frees a pending block: coalesces it, puts it in its bin, and counts it. */
void wr_cache_reclaim_locked(wr_cache *cache, wr_block *block);

/* Frees a live block. One with uses becomes pending: call wr_pending_start() next, without the lock. */
void wr_cache_give_locked(wr_cache *cache, wr_block *block);

/* The same for a list of blocks of one kind that were parked in one front, with their sums. Their frees were recorded
 * when they were parked. */
void wr_cache_give_parked_locked(wr_cache *cache, wr_block *first, int kind, const int64_t sums[WR_FLOW_LIVE]);

/* Coalesces a block that is free, but in no tree, with its free neighbours, and puts it in its bin. */
void wr_cache_join_free_locked(wr_cache *cache, wr_block *block);

/* The live block that contains `address`; WEIR_ERR_UNKNOWN_POINTER or WEIR_ERR_DOUBLE_FREE say what is there
 * instead. */
WR_CHECKED weir_status wr_cache_live_block_locked(const wr_segment *segment, const void *address, wr_block **out);

/* Takes the lock. Returns the live block that begins there, which is the caller's; NULL, without the lock: another
 * thread has erroneously freed it. */
wr_block *wr_cache_lock_block(const void *pointer);

/* ---- the same: what a stream that ended has left ----------------------------------------------------------------- */

/* A block of the segment is handed out, or the segment goes or moves. Work may be queued on it from now on, so what was
 * known of it since its stream ended is forgotten. */
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

/* The members of a fresh record have whatever values they had before. */
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
WR_CHECKED weir_status wr_records_spare_blocks(wr_cache *cache, size_t count); /* then taking that many cannot fail */
WR_CHECKED weir_status wr_records_set_aside(wr_cache *cache, size_t count, wr_block **list); /* for a later lock */
void wr_records_put_back(wr_cache *cache, wr_block **list);
WR_CHECKED weir_status wr_record_pages(wr_cache *cache, size_t bytes, wr_pages **pages);
WR_CHECKED weir_status wr_record_mempool(wr_cache *cache, wr_mempool **pool);
void wr_record_mempool_done(wr_cache *cache, wr_mempool *pool);
void wr_records_release(wr_cache *cache);

#endif
