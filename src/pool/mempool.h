/*
 * mempool: whose memory it is. A pool has bins, a source that its segments are made of, and rules. Every device has a
 * default pool; private ones come and go. A pool that nobody refers to stays until its last segment is given back.
 * Owner: the cache. Records are recycled, not freed, until the cache goes, so that a stale pointer meets a record with
 * another name. Lock: the cache's for everything but the constants.
 */
#ifndef WR_POOL_MEMPOOL_H
#define WR_POOL_MEMPOOL_H

#include "pool/block.h"
#include "pool/flow.h"
#include "pool/names.h"

#include <sys/queue.h>

/* Who refers to a pool. */
typedef enum wr_holder { WR_HELD_BY_USER, WR_HELD_BY_ROUTE, WR_HELD_BY_GRAPH, WR_HOLDERS } wr_holder;

/* Largest first. */
RB_HEAD(wr_whole_chunks, wr_chunk);

struct wr_mempool {
    struct wr_cache *cache; /* constant, even when the record is recycled: threads with a stale pointer read it */

    /* Written under the lock; read without it too, even through stale pointers. */
    _Atomic wr_mempool_name name;
    _Atomic(const wr_policy *) policy;
    atomic_size_t alignment; /* from its rules */
    /* By so many of weir's own uses of its memory, some of which may outlive the pool; grows under the lock.
     * pool/pause.h */
    atomic_uint pauses_held_off;

    /* constant from creation until the pool is gone */
    weir_mempool_options rules;
    weir_segment_source source; /* its own; alloc is NULL when it has none */

    wr_bin **bins; /* [stream index * WR_BINS + class]; NULL where nothing was ever allocated */
    uint32_t bin_capacity;
    wr_bin *first_bin;         /* of those that exist, by stream and class: most of `bins` may be empty */
    uint32_t held[WR_HOLDERS]; /* references, by kind of holder */
    uint64_t growing, leaving; /* bytes being asked from and given to its source right now; its cap counts them */
    uint64_t segments;         /* that it has, including regions, hidden ones and growths underway */
    uint64_t serial;           /* of its last segment: orders segments where addresses must not matter */
    /* The last stray (wr_stream_table) among the graphs that used it, by number; 0: none was one */
    uint64_t stray;
    uint64_t lent;
    struct wr_subplan *subplans;              /* what plans have for it. pool/plan/subplan.h */
    int64_t parked[WR_CLASSES][WR_FLOW_LIVE]; /* as the cache's */
    size_t chunk_bytes;                       /* of all its chunks (pool/chunk/chunk.h) */
    size_t small_bytes;                       /* of the parts in its bins for small blocks */
    size_t streams_with_chunks;               /* whose bin for large blocks has parts */
    LIST_HEAD(, wr_bin) stirred;              /* its bins that the next survey looks at */
    struct wr_whole_chunks whole;             /* its chunks that were wholly free at the last survey */
    bool fixed;   /* a checkpoint has recorded its addresses: what it holds may go, but not move */
    bool graphed; /* graphs have recorded addresses: what was mapped since stays mapped, until they are gone */
    bool is_private;
    bool inherited; /* streams that ended have left memory in it to the default stream, which captures nothing */
    /* Whether `stats` is kept: always for private pools; for the default one once there is another */
    bool counted;
    wr_unshared unshared;    /* below the peak of `stats` */
    bool paused;             /* changes only under the move lock as well */
    bool made_in_vain;       /* for a capture that has not begun; if none does, its id may name a pool later */
    uint64_t changing;       /* the call that is pausing or resuming it (wr_cache.pause_calls); 0: none */
    weir_memory_stats stats; /* as the cache's */
    wr_flow flow;
    wr_mempool *before, *next;        /* of the cache, oldest first; `next` also links unused records */
    TAILQ_ENTRY(wr_mempool) released; /* in wr_cache.released_pools while it is private and nobody refers to it */
};

/* Pools whose idle memory is to be given back. */
typedef struct wr_mempool_scope {
    enum { WR_SCOPE_TRIMMABLE, WR_SCOPE_RELEASED, WR_SCOPE_ONE } of; /* wr_mempool_trimmable for `pool`, if any */
    wr_mempool *pool;
    wr_mempool_name name;    /* WR_SCOPE_ONE: of `pool`, while it has that name */
    const wr_stream *stream; /* only what this one has; NULL: all */
    bool pinned;             /* WR_SCOPE_TRIMMABLE: only those of WEIR_MEMORY_PINNED */
} wr_mempool_scope;

/* Makes a pool, with one reference, for an id that has none. The rules have been checked; NULL: the default ones.
 * WEIR_ERR_BUSY: somebody else has made it meanwhile. */
WR_CHECKED weir_status wr_mempool_create(struct wr_cache *cache, const weir_mempool_options *rules,
                                         wr_mempool_name name, wr_holder holder, wr_mempool **out);

/* The same for a new id: a capture's, if a graph is the holder. */
WR_CHECKED weir_status wr_mempool_create_new(struct wr_cache *cache, const weir_mempool_options *rules,
                                             wr_holder holder, wr_mempool_name *name, wr_mempool **out);

/* WEIR_ERR_POOL_MISMATCH: the pool of that name is gone. Lock held. */
WR_CHECKED weir_status wr_mempool_check_name(const wr_mempool *pool, wr_mempool_name name);

/* Adds a reference to a pool that may be gone by now. */
WR_CHECKED weir_status wr_mempool_ref(wr_mempool *pool, wr_mempool_name name, wr_holder holder);

/* Drops a reference; WEIR_ERR_POOL_MISMATCH when the holder has none. With the last one, idle memory is given back. */
weir_status wr_mempool_unref(wr_mempool *pool, wr_mempool_name name, wr_holder holder);

/* Drops a reference that exists, and leaves idle memory to whoever needs it. Makes no driver call. */
void wr_mempool_unref_quietly(wr_mempool *pool, wr_holder holder);

/* Frees released pools that have no memory left. No lock held, because their sources are told. */
void wr_mempool_sweep(struct wr_cache *cache);

/* Gives back the idle memory of pools that nobody refers to, and the pools, if blocks of theirs were freed since last
 * time. Memory with work on it stays. No lock held. */
void wr_mempool_tidy(struct wr_cache *cache);

/* At close: frees all pools, the default one included; the segments are gone. */
void wr_mempools_release(struct wr_cache *cache);

/* Those in scope, one after the other; NULL: no more. Lock held throughout. */
bool wr_mempool_in_scope_locked(const wr_mempool *pool, const wr_mempool_scope *scope);
wr_mempool *wr_mempool_first_in_locked(const struct wr_cache *cache, const wr_mempool_scope *scope);
wr_mempool *wr_mempool_next_in_locked(const wr_mempool *pool, const wr_mempool_scope *scope);

/* Links the pool's segments by `listed`, from *tail on; returns the new end. Move lock and cache lock held. The list is
 * valid as long as the move lock is held. */
wr_segment **wr_mempool_list_locked(const wr_mempool *pool, wr_segment **tail);

static inline uint32_t wr_mempool_references(const wr_mempool *pool)
{
    return pool->held[WR_HELD_BY_USER] + pool->held[WR_HELD_BY_ROUTE] + pool->held[WR_HELD_BY_GRAPH];
}

/* Nobody refers to it; blocks of it may be live. Lock held. */
static inline bool wr_mempool_is_orphan(const wr_mempool *pool)
{
    return pool->is_private && wr_mempool_references(pool) == 0;
}

/* Whether the pool's idle segments may be given back for anybody's sake, because nobody counts on them. Lock held. */
static inline bool wr_mempool_reclaimable(const wr_mempool *pool)
{
    return !pool->is_private || wr_mempool_is_orphan(pool);
}

/* Whether the pool's free memory may be given back for the sake of `own`, which may be NULL. A graph uses its pool's
 * free memory at every launch, and other pools keep theirs. Lock held. */
static inline bool wr_mempool_trimmable(const wr_mempool *pool, const wr_mempool *own)
{
    return wr_mempool_reclaimable(pool) || (pool == own && !pool->held[WR_HELD_BY_GRAPH] && !pool->paused);
}

static inline wr_mempool_name wr_mempool_name_of(const wr_mempool *pool)
{
    return atomic_load_explicit(&pool->name, memory_order_acquire);
}

/* The stream's bin of a class; NULL where nothing was ever allocated. Lock held. */
static inline wr_bin *wr_mempool_bin(const wr_mempool *pool, const wr_stream *stream, int class)
{
    const uint32_t index = stream->index * WR_BINS + (uint32_t)class;
    return index < pool->bin_capacity ? pool->bins[index] : NULL;
}

/* Iterates over the segments of a pool by stream and class: the first one from a bin on; NULL: no more. Lock held. */
static inline wr_segment *wr_mempool_segment_from(const wr_bin *bin)
{
    while (bin && !bin->segments) bin = bin->next;
    return bin ? bin->segments : NULL;
}

static inline wr_segment *wr_mempool_first_segment(const wr_mempool *pool)
{
    return wr_mempool_segment_from(pool->first_bin);
}

static inline wr_segment *wr_mempool_next_segment(const wr_segment *segment)
{
    return segment->next ? segment->next : wr_mempool_segment_from(segment->bin->next);
}

/* Whether a capture made it. An allocation then asks the driver which capture it is in, and notes that in the block. */
static inline bool wr_mempool_is_of_capture(const wr_mempool *pool)
{
    return wr_mempool_name_of(pool) & 1;
}

/* Whether whole blocks may be parked. Not where the rules fix which block is next, others may have what is free, blocks
 * are larger than their class, or speed does not matter. */
static inline bool wr_mempool_may_park(const wr_mempool *pool)
{
    return !pool->rules.no_split && !pool->rules.deterministic && !pool->rules.use_on_oom &&
           pool->rules.alignment <= WR_SMALL_MAX && !wr_mempool_is_of_capture(pool);
}

static inline const wr_policy *wr_mempool_policy(const wr_mempool *pool)
{
    return atomic_load_explicit(&pool->policy, memory_order_relaxed);
}

/* Whether its memory is plain device memory, cut as it comes. */
static inline bool wr_mempool_is_plain(const wr_mempool *pool)
{
    const weir_mempool_options *rules = &pool->rules;
    return rules->memory == WEIR_MEMORY_DEVICE && !pool->source.alloc && !rules->range_changed && !rules->no_split &&
           !rules->deterministic;
}

static inline bool wr_mempool_chunked(const wr_mempool *pool)
{
    return wr_mempool_policy(pool)->of_segments != NULL;
}

/* Whether the cache's limit is for what it holds: a device's is not for memory that lies, or may lie, on the host. */
static inline bool wr_mempool_is_limited(const wr_mempool *pool)
{
    const weir_memory_kind memory = pool->rules.memory;
    return !pool->is_private || (memory != WEIR_MEMORY_MANAGED && memory != WEIR_MEMORY_PINNED);
}

/* How many of these bytes of the pool the limit counts. */
static inline uint64_t wr_mempool_limited_of(const wr_mempool *pool, size_t bytes)
{
    return wr_mempool_is_limited(pool) ? bytes : 0;
}

static inline weir_mempool wr_bin_pool_id(const wr_bin *bin)
{
    return wr_mempool_id_of(wr_mempool_name_of(bin->pool));
}

#endif
