/*
 * front: freed blocks of a stream in one pool, kept whole ("parked") for the next request of exactly their size, so
 * that the common free and allocation touch no tree and nothing shared between streams. The cache still counts a parked
 * block as live. When the cache itself is asked for a block of the stream, they go back to it first, so none that could
 * be split or coalesced waits here while one is missing.
 * Owner: the cache; there is one for each stream that has bins in a pool, and sides of it (pool/front/side.h) where
 * threads share the stream. Lock: its own, biased to the thread that uses the stream (WR_RANK_FRONT, before the
 * cache's). Records live until the cache goes: without its pool, a front becomes another pool's, of the same stream.
 */
#ifndef WR_POOL_FRONT_FRONT_H
#define WR_POOL_FRONT_FRONT_H

#include "base/bias.h"
#include "pool/cache.h"

#define WR_FRONT_SLOT_BITS 6
#define WR_FRONT_SLOTS (1u << WR_FRONT_SLOT_BITS)
#define WR_FRONTS_OF_STREAM 16 /* pools; a block freed in any other goes back to the cache at once */
#define WR_FRONTS_SUMMED 8     /* with up to so many fronts, sums over all are made by asking each */

/* Blocks of one size, last in first out. The size stays when the slot is empty, until blocks of another size come. */
typedef struct wr_front_slot {
    size_t bytes;
    wr_block *first;    /* NULL: none */
    uint64_t hits;      /* not yet added to the part's */
    uint32_t room;      /* for so many more; 0, with no blocks: no size yet */
    uint16_t refused;   /* blocks of other sizes, since the last hit here */
    uint16_t hits_then; /* the lower bits of `hits` when the last of them was */
} wr_front_slot;

/* What is parked of one class. Small and large blocks do not push each other out. */
typedef struct wr_front_part {
    /* `spare` + `kept` is what is parked: live to the cache, but not to the program. `spare` is how much may be handed
     * out before a peak of the stream, the pool or the device could be exceeded; where that is more than is parked,
     * `kept` is negative. Of requested bytes, parking adds what the block was asked for, handing out subtracts what it
     * is asked for then. Written by the holder of the lock, `kept` only with the cache's or the cutting lock as well;
     * read by anyone. */
    atomic_int_fast64_t spare[WR_FLOW_LIVE];
    atomic_int_fast64_t kept[WR_FLOW_LIVE];
    /* Hits that the statistics do not have yet, modulo 2^64; blocks and bytes exclude what the slots still count */
    uint64_t hits[WR_FLOW_LIVE];
    int64_t added_up[WR_FLOW_LIVE]; /* this part's share of wr_cache.parked and wr_mempool.parked */
    uint64_t in_use;                /* a bit for each slot that has blocks, or has had some since all went back */
    wr_front_slot slots[WR_FRONT_SLOTS];
} wr_front_part;

/* pool/front/post.h */
typedef struct wr_post {
    wr_block *block;
    uint32_t bytes, requested; /* no more than may be posted */
} wr_post;

typedef struct wr_posts {
    atomic_bool worth; /* collecting: there are many. Changed under the lock; what each miss looks at */
    char between[WR_CACHE_LINES];
    wr_lock lock;
    atomic_uint count; /* changed under the lock, as the sums; read by anyone */
    bool open;         /* blocks may be posted. Changed under this lock, the front's and the cache's */
    atomic_int_fast64_t sums[WR_CLASSES][WR_FLOW_LIVE];
    wr_post *at; /* made for the first one */
} wr_posts;

struct wr_front {
    char apart[WR_CACHE_LINES]; /* padding: another thread may be writing what lies before */
    wr_bias_lock lock;

    /* constants */
    wr_cache *cache;
    wr_stream *stream;
    wr_account *account; /* the stream's */
    wr_front *sibling;   /* of a main front: the stream's next one */
    wr_front *main;      /* itself; of a side (pool/front/side.h): the front that it is beside */

    /* Constant as long as the pool exists. The name changes under this front's lock and the cache's, so the holder of
     * this one can tell whether it still exists (wr_front_is_of); from no pool to one it changes under the cache's
     * alone, after the rest, which who finds it by its name acquires. */
    _Atomic wr_mempool_name name; /* WR_MEMPOOL_NOBODY: the pool is gone */
    wr_mempool *pool;
    wr_bin *bins[WR_CLASSES]; /* the stream's bins in the pool; NULL: not made yet. Under the cache's lock */
    size_t plain_max;         /* largest plain request: its block is the next multiple of WR_FRONT_QUANTUM, */
    size_t large_unit;        /* or, above WR_SMALL_MAX, of this power of two */

    /* Nothing may be parked: all fronts are closed, or this one is not listed, or the pool serves nobody now. Under
     * both locks */
    bool closed;
    bool recorded; /* as of when it was last met, the device has a history. Under both locks */
    bool plain;    /* neither closed nor recorded nor shared, so the hit path may park. Under both locks */
    /* Sides may park its blocks, too. Set under both locks; unset under both, or under the cache's once nothing may be
     * parked; read by anyone */
    atomic_bool shared;
    /* A miss is served where every request is, not here: it may have to ask a plan first, or its stack is recorded.
     * Under both locks; of a side always */
    bool asks;
    /* What was posted when the cache last served a request, and how many it has served since that changed. Under both
     * locks */
    uint32_t posts_then, posts_left;
    uint32_t large_misses; /* while frees were pending. Under the front's lock */
    /* Requests of fewer bytes may be hits: plain_max + 1, or 0 while it is unknown how much is spare. Written under the
     * cache's lock. */
    atomic_size_t below;

    /* In the cache's list, where a front is while blocks of it may be parked: not between the end of its stream or pool
     * and the next segment of a stream that takes it over. Changed under the cache's lock; `next` is read without it */
    _Atomic(wr_front *) next;
    wr_front *prev;
    bool listed;
    bool met; /* in the list of those met since (wr_fronts_add_up_met_locked). Under the cache's lock */
    wr_front *next_met;
    wr_front *older; /* of all that were made; constant */
    /* Of a main front: grows with requests by other threads than the last one, falls with others. pool/front/side.h */
    atomic_uint turns;
    wr_front_part parts[WR_CLASSES];

    /* pool/front/detach.h. Changed under the cache's lock; while the front is detached, the ledger and the contents of
     * its stream's bins also change under the cutting lock alone */
    char between[WR_CACHE_LINES]; /* padding: other threads take the cutting lock too */
    wr_lock cutting;
    atomic_bool detached;
    uint32_t waits;  /* grows with requests that find the cache's lock taken, falls with others */
    uint32_t visits; /* by other threads, which took the cutting lock */
    /* Times that the cutting lock was enough since another thread was met. Under this front's lock too */
    uint32_t alone;
    wr_front *next_detached;
    wr_ledger ledger;

    char beyond[WR_CACHE_LINES]; /* padding: other threads post */
    wr_posts posts;

    /* pool/front/side.h. Of a main front, its first side that a thread has; of such a side, the next one. A side that
     * is left still leads on. Changed under the cache's lock; read without it */
    _Atomic(wr_front *) beside;
    wr_front *idle; /* the same of sides that no thread has. Under the cache's lock */
    /* Of a main front, besides `turns`: */
    atomic_size_t emptied_at; /* bytes reserved when its sides were last emptied to add no more */
    atomic_bool tight;        /* there was little memory left when it was last looked at, and grades need some */
    uint64_t told;            /* hits that the statistics have; of a side, too. Under the cache's lock */
    /* Of a side: */
    uint64_t asked_for; /* the id of the stream by which its thread found it for this request; 0: not known */
    wr_front *next_own; /* the next one of the thread that has it, which alone reads and writes this and the rest */
    uint32_t misses;    /* in this period, before which there had been so many hits: */
    uint64_t hits_then;
    uint32_t rest;      /* requests for which the side is not used; */
    uint32_t rest_next; /* the same after the next period of little use */
    bool graded;        /* its small requests are rounded up to a few sizes, since hardly any size comes again */
    uint32_t served;    /* requests by larger blocks parked here, since it became graded */
    uint32_t doubts;    /* periods in a row, while others used the main front, that speak for grades */
};

_Static_assert(WR_FRONT_SLOTS == 64, "a word has a bit for each slot");

#define WR_FRONT_QUANTUM ((size_t)512)

/* The stream's front in the pool, made for its first bin there; NULL: the stream has as many as it may. The cache's
 * lock is held. */
WR_CHECKED weir_status wr_front_of_locked(wr_mempool *pool, wr_stream *stream, wr_account *account, wr_front **out);

/* A side of the main front for a thread: one that no thread has any more, or a new one. The cache's lock is held. */
WR_CHECKED weir_status wr_front_take_beside_locked(wr_front *main, wr_front **out);

/* No thread has the side any more. The cache's lock is held. */
void wr_front_leave_beside_locked(wr_front *side);

/* A side follows its main front, which may have become another pool's. Both locks are held. */
void wr_front_begin_beside_locked(wr_front *side);

static inline wr_front *wr_front_first(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->fronts, memory_order_acquire);
}

/* A front that leaves the list meanwhile still leads on. */
static inline wr_front *wr_front_next(const wr_front *front)
{
    return atomic_load_explicit(&front->next, memory_order_acquire);
}

/* Its stream gets a segment in its pool; or has none any more, and nothing is parked there, counted or detached. The
 * cache's lock is held. */
void wr_front_list_locked(wr_front *front);
void wr_front_unlist_locked(wr_front *front);

static inline bool wr_front_is_side(const wr_front *front)
{
    return front->main != front;
}

static inline bool wr_front_is_shared(const wr_front *front)
{
    return atomic_load_explicit(&front->shared, memory_order_relaxed);
}

/* The stream's other main fronts follow as siblings. */
static inline wr_front *wr_front_youngest(const wr_stream *stream)
{
    return atomic_load_explicit(&stream->fronts, memory_order_acquire);
}

static inline wr_front *wr_front_beside(const wr_front *front)
{
    return atomic_load_explicit(&front->beside, memory_order_acquire);
}

/* From the youngest one on: all of the stream, but for sides that no thread has. */
static inline wr_front *wr_front_after(const wr_front *front)
{
    wr_front *side = wr_front_beside(front);
    return side ? side : front->main->sibling;
}

/* The stream's main front in that pool. Takes no lock. NULL: there is none, or none yet. */
static inline wr_front *wr_front_find(const wr_stream *stream, wr_mempool_name name)
{
    if (WR_LIKELY(name == 0)) return atomic_load_explicit(&stream->front, memory_order_acquire);
    wr_front *front = wr_front_youngest(stream);
    while (front && atomic_load_explicit(&front->name, memory_order_acquire) != name) front = front->sibling;
    return front;
}

/* -- the front's lock is held */

static inline bool wr_front_is_of(const wr_front *front, wr_mempool_name name)
{
    return atomic_load_explicit(&front->name, memory_order_relaxed) == name;
}

/* Hands out a parked block of that size, which there must be, for a request of `requested` bytes. */
WR_NOINLINE void *wr_front_take_locked(wr_front *front, size_t block_bytes, size_t requested);

/* Parks a live block. `block` is NULL, or began at `pointer` a moment ago. False: it must be freed in the cache, or
 * cannot be freed. */
bool wr_front_park_locked(wr_front *front, wr_block *block, const void *pointer);

/* Parks a block of the front that may be. False: its slot is full, or has blocks of another size. */
bool wr_front_place_locked(wr_front *front, wr_block *block);

/* A slot was found taken by blocks of another size. True: those have long been of no use, and should go. */
bool wr_front_refuse(wr_front *front, size_t block_bytes);

/* An empty slot is for blocks of that size from now on. */
void wr_front_renew_slot(wr_front *front, size_t block_bytes);

/* Frees what is parked in the slot for blocks of that size, unless another stream has come to use one. The cutting lock
 * or the cache's is held too. */
void wr_front_empty_slot_locked(wr_front *front, size_t block_bytes);

/* Frees parked blocks in the cache: all of them, or those that may serve a request of that class. The cache's lock is
 * held too. */
void wr_front_empty_locked(wr_front *front);
void wr_front_empty_for_locked(wr_front *front, wr_class class);

/* The latter, into the bins of a detached front, with the cutting lock. Frees nothing if another stream has come to use
 * a block. */
void wr_front_empty_detached(wr_front *front, wr_class class);

/* Frees the block that begins at `pointer` into the bins of a detached front. False: it must be freed in the cache. */
bool wr_front_give_detached(wr_front *front, wr_block *block, const void *pointer);

/* Frees a block that cannot be parked and that no other stream uses. May free what is parked in its slot, so nobody
 * must be about to take that. The cutting lock or the cache's is held too. */
void wr_front_give_locked(wr_front *front, wr_block *block);

/* Settles the front: determines how much is spare. The cache's lock is held too. */
WR_NOINLINE void wr_front_settle_locked(wr_front *front);

/* A block of `bytes`, asked for as `requested`, has become free, or live, other than by parking or taking: that much
 * more, or less, is spare. The cutting lock or the cache's is held too. */
void wr_front_count_free(wr_front *front, size_t bytes, size_t requested);
void wr_front_count_live(wr_front *front, size_t bytes, size_t requested);

/* A request of the stream was served from its bins; `sole`: no front is detached. The cache's lock is held too. */
void wr_front_note_taken_locked(wr_front *front, size_t bytes, size_t requested, bool sole);

/* Whether such a block may become live without a new peak, perhaps after more was made spare. `parked`: it is taken
 * where it is parked, not split off. The cutting lock is held too. */
bool wr_front_may_take(wr_front *front, size_t block_bytes, size_t requested, bool parked);

/* What a detached front has spare of the class of blocks of that size beyond twice the usual share, and has not parked,
 * is for others. The cutting lock or the cache's is held too. */
void wr_front_return_more(wr_front *front, size_t block_bytes);

/* Before anything is handed out or freed under both locks: adds what is parked to the cache's sums, and updates
 * `closed`. */
void wr_front_meet_locked(wr_front *front);

/* -- no lock of this rank or above is held */

/* The front's lock, if there is a front (NULL: none), and the cache's: to change blocks of its stream and pool. */
void wr_front_lock(wr_cache *cache, wr_front *front);
wr_front *wr_front_lock_stream(wr_cache *cache, const wr_stream *stream, wr_mempool_name name); /* the pool's front */
void wr_front_unlock(wr_cache *cache, wr_front *front);

/* Empties all fronts of a cache. Those that may not park any more do not from then on. */
void wr_fronts_empty(wr_cache *cache);

/* The same, and nothing is parked until they are opened again: for looking at all blocks, or changing them. Nests. */
void wr_fronts_close(wr_cache *cache);
void wr_fronts_open(wr_cache *cache);

/* With the cache's lock, too: what is seen then is of one instant. */
void wr_fronts_close_and_lock(wr_cache *cache);
void wr_fronts_unlock_and_open(wr_cache *cache);

/* The same, emptying only these two streams' fronts: to move segments from the one to the other. */
void wr_fronts_close_for(wr_cache *cache, const wr_stream *from, const wr_stream *to);

/* Empties the sides of a main front, if at least so much is parked there. Returns whether that is so. */
bool wr_fronts_empty_beside(const wr_front *main, size_t least);

/* Empties the fronts of the pool that has, or had, that name. */
void wr_fronts_empty_in(wr_cache *cache, wr_mempool_name name);

/* The pool that had the name is gone, but still has its bins: its fronts become nobody's. */
void wr_fronts_part(const wr_mempool *pool, wr_mempool_name name);

void wr_fronts_release(wr_cache *cache);

/* -- what is parked, and how much of that is spare: written under the locks that wr_front_part names, read by anyone */

static inline int64_t wr_front_spare(const wr_front_part *part, wr_flow_number number)
{
    return atomic_load_explicit(&part->spare[number], memory_order_relaxed);
}

static inline int64_t wr_front_parked(const wr_front_part *part, wr_flow_number number)
{
    return wr_front_spare(part, number) + atomic_load_explicit(&part->kept[number], memory_order_relaxed);
}

static inline void wr_front_set(wr_front_part *part, wr_flow_number number, int64_t spare)
{
    atomic_store_explicit(&part->spare[number], spare, memory_order_relaxed);
}

/* There is one writer at a time, so no atomic read-modify-write is needed. */
static inline void wr_front_count(wr_front_part *part, wr_flow_number number, int64_t amount)
{
    wr_front_set(part, number, wr_front_spare(part, number) + amount);
}

/* That much more, or less, of what is parked is not spare. */
static inline void wr_front_keep(wr_front_part *part, wr_flow_number number, int64_t amount)
{
    const int64_t kept = atomic_load_explicit(&part->kept[number], memory_order_relaxed);
    atomic_store_explicit(&part->kept[number], kept + amount, memory_order_relaxed);
}

static inline void wr_front_keep_all(wr_front_part *part, int64_t blocks, int64_t bytes, int64_t requested)
{
    wr_front_keep(part, WR_FLOW_BLOCKS, blocks);
    wr_front_keep(part, WR_FLOW_BYTES, bytes);
    wr_front_keep(part, WR_FLOW_REQUESTED, requested);
}

static inline int64_t wr_front_spare_in_all(const wr_front *front, wr_flow_number number)
{
    return wr_front_spare(&front->parts[WR_SMALL], number) + wr_front_spare(&front->parts[WR_LARGE], number);
}

static inline int64_t wr_front_parked_in_all(const wr_front *front, wr_flow_number number)
{
    return wr_front_parked(&front->parts[WR_SMALL], number) + wr_front_parked(&front->parts[WR_LARGE], number);
}

static inline int64_t wr_front_posted(const wr_front *front, wr_class class, wr_flow_number number)
{
    return atomic_load_explicit(&front->posts.sums[class][number], memory_order_acquire);
}

/* Parked or posted: live to the cache, but not to the program. Posted blocks come to be parked: those are read last. */
static inline int64_t wr_front_not_live(const wr_front *front, wr_class class, wr_flow_number number)
{
    const int64_t posted = wr_front_posted(front, class, number);
    return posted + wr_front_parked(&front->parts[class], number);
}

static inline int64_t wr_front_not_live_in_all(const wr_front *front, wr_flow_number number)
{
    return wr_front_not_live(front, WR_SMALL, number) + wr_front_not_live(front, WR_LARGE, number);
}

/* Whether it is known how much is spare. */
static inline bool wr_front_is_settled(const wr_front *front)
{
    return atomic_load_explicit(&front->below, memory_order_relaxed) != 0;
}

/* Unsettles the front: something else became live, so how much is spare is unknown. The next hit is a miss that finds
 * out (wr_front_settle_locked): not at once, since mostly more becomes live before. The cache's lock is held. */
static inline void wr_front_unsettle(wr_front *front)
{
    if (!wr_front_is_settled(front)) return; /* leave its cache line to its thread */
    atomic_store_explicit(&front->below, 0, memory_order_relaxed);
}

/* All of the stream but `own`, which may be NULL. The cache's lock is held. */
static inline void wr_fronts_unsettle(const wr_stream *stream, const wr_front *own)
{
    for (wr_front *f = wr_front_youngest(stream); f; f = wr_front_after(f))
        if (f != own) wr_front_unsettle(f);
}

/* The cache's lock is held. */
static inline int64_t wr_fronts_not_live_on(const wr_stream *stream, wr_flow_number number)
{
    int64_t sum = 0;
    for (const wr_front *f = wr_front_youngest(stream); f; f = wr_front_after(f))
        sum += wr_front_not_live_in_all(f, number);
    return sum;
}

#endif
