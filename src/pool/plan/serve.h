/*
 * serve: gives out the places of a plan, to a program that repeats what was planned. A plan is a hint. Each stream that
 * the plan knows has a region for it, whose free blocks serve other requests only where the stream has left the plan or
 * no other memory is at hand. A request that is the plan's next gets its place there if all of it is free now, as the
 * region's own blocks tell. Anything else (another request, a place still in use, no memory behind it) is counted, and
 * served as without a plan.
 *
 *   plan's arena -> a stream, the first that asks for what the arena begins with
 *     follower (pool/plan/follow.h): which entry a request is
 *     region, in the stream's bin WR_PLANNED: chunks come as the plan needs them, and go when others need them more
 *   plan's arena of a private pool -> a pool, the first that begins as the arena does: pool/plan/subplan.h
 *
 * An arena belongs to one stream, so work at a place's former addresses runs before work queued later at new ones. A
 * learned plan may lend a stream places in another stream's arena. Such a block is the lender's, recorded on the stream
 * that asked for it, whose work is made to wait for the lender's.
 * Owner: the cache. Lock: the cache's. A plan that is served, or was until it was laid down, is destroyed under the
 * move lock too, so holding either lock keeps it alive.
 */
#ifndef WR_POOL_PLAN_SERVE_H
#define WR_POOL_PLAN_SERVE_H

#include "pool/cache.h"
#include "pool/plan/follow.h"
#include "pool/plan/place_guests.h"

typedef struct wr_served {
    wr_course course;
    wr_follower follower;
    wr_stream *stream; /* that the arena is for; NULL: none yet */
    bool judged;       /* the stream's point in the course was found, */
    bool wastes;       /* and serving it from there on does not pay */
    bool named;        /* the arena is for one native stream only */
    uint64_t native;
    wr_segment *region;     /* NULL: nothing was served yet */
    bool growing;           /* the region gets memory, or is made: until then the arena stays its stream's */
    size_t bytes;           /* of the arena; places beyond that lie in the host's */
    struct wr_served *host; /* the arena that lends it places; NULL: none */
} wr_served;

struct wr_serving {
    uint64_t serial; /* number of the plan among all that this cache has served */
    uint64_t budget; /* bytes of all arenas, plus those held already */
    uint64_t waited; /* nanoseconds for work on memory that was to be exchanged for what fits planned places */
    /* Requests since wr_serve_fits last counted: of streams that the plan is for, and of others */
    uint64_t placed, failed, others;
    uint64_t in_vain, in_vain_others; /* the same, since the last that was placed */
    bool told, settled;               /* the plan fits; free memory elsewhere was given back */
    size_t count;
    wr_served arenas[];
};

static inline wr_serving *wr_serving_locked(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->serving, memory_order_relaxed);
}

/* The stream's arena; NULL: none. No stream has two. */
wr_served *wr_served_locked(const wr_cache *cache, const wr_stream *stream);

/* WEIR_ERR_NOT_SUPPORTED: the default pool is not made of chunks, so no plan is served. */
WR_CHECKED weir_status wr_serve_check(const wr_cache *cache);

/* Serves a plan from now on, instead of any other; NULL: none. `users`: for each arena of the plan, all of the default
 * pool, the stream that it is for; NULL: the first to come. WEIR_ERR_NOT_SUPPORTED as wr_serve_check, and for a plan
 * with arenas of several streams. Blocks that were handed out stay where they are. *more: how many more plans are
 * served now. While one is, fronts must not serve before wr_serve_take has seen the request. */
WR_CHECKED weir_status wr_serve(wr_cache *cache, const weir_plan *plan, const wr_arena_user *users, int *more);

/* Serves a request of the default pool from its planned place. *out is NULL when there is none. No failure here is an
 * error: the request is then served otherwise. True: the plan has been of no use for so long that it is no longer
 * served. */
bool wr_serve_take(wr_cache *cache, const wr_request *request, void **out);

/* Serves a request that no other free block fits from free places, if its stream is not being served: a stream that
 * departs from a plan, or has none any more, uses its memory. *out is NULL when there is none. */
void wr_serve_lend(wr_cache *cache, const wr_request *request, void **out);

/* Both locks held: the stream ends, or the region is released. */
void wr_serve_forget_stream_locked(wr_cache *cache, const wr_stream *stream);
void wr_serve_forget_region_locked(wr_cache *cache, const wr_segment *region);

/* Whether the stream is being served: then its planned places are not used otherwise, if that can be avoided. */
bool wr_serve_trusts_locked(const wr_cache *cache, const wr_stream *stream);

/* More memory is needed than without a plan: the stream is not served until it again does what was planned. The cache's
 * lock is held. */
void wr_serve_distrust_locked(const wr_cache *cache, const wr_stream *stream);

/* At close. */
void wr_serve_release(wr_cache *cache);

#endif
