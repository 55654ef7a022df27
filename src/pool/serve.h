/*
 * serve: giving out the places that a plan has, to a program that does again what was planned. A plan is a hint. Each stream
 * that the plan knows has a region for it, whose free blocks serve no other request; a request that is the plan's next gets
 * its place there when all of it is free now, which the region's own blocks tell. Whatever else happens (another request, a
 * place still in use, no memory behind it) is counted, and served as without a plan.
 *
 *   plan's arena -> a stream, the first that asks for what the arena begins with
 *     follower (pool/follow.h): which entry a request is
 *     region, in the stream's bin WR_PLANNED: chunks come as the plan needs them, and go when others need them more
 *   plan's arena of a private pool -> a pool, the first that begins as the arena does (pool/subplan.h), and no business of this file
 *
 * An arena is of one stream, so work at a place's former addresses runs before work queued later at new ones. A learned plan
 * may lend a stream places in another's arena: such a block is the other stream's, recorded on the one that asked for it, whose
 * work was made to wait for the other's.
 * Owner: the cache. Lock: the cache's. What is served, or was until it was laid down, is destroyed with the move lock too, so
 * holding either keeps it there.
 */
#ifndef WR_POOL_SERVE_H
#define WR_POOL_SERVE_H

#include "pool/cache.h"
#include "pool/follow.h"
#include "pool/guest.h"

typedef struct wr_served {
    wr_course course;
    wr_follower follower;
    wr_stream *stream; /* who has it; NULL: nobody yet */
    bool judged;       /* the stream was found in the course, */
    bool wastes;       /* and it does not pay to serve it from there on */
    bool named;        /* it is for one native stream only */
    uint64_t native;
    wr_segment *region;     /* NULL: nothing was served yet */
    size_t bytes;           /* of the arena; a place beyond it lies in the host's */
    struct wr_served *host; /* NULL: it has none */
} wr_served;

struct wr_serving {
    wr_serving *next_laid_down; /* of no use, and not destroyed yet */
    uint64_t serial;            /* of all plans served by this cache */
    uint64_t budget;            /* the bytes of all arenas, and what was held already */
    uint64_t placed, failed;    /* requests, since somebody asked */
    uint64_t in_vain;           /* requests since the last that was placed */
    bool told, settled;         /* it fits; what is free elsewhere was given back */
    size_t count;
    wr_served arenas[];
};

/* WEIR_ERR_NOT_SUPPORTED for a default pool without chunks, which never has any: no plan is served there. */
WR_CHECKED weir_status wr_serve_check(const wr_cache *cache);

/* Serves a plan from now on, instead of any other; NULL: none. `users`: of each arena of the plan, all of the default pool, the
 * stream that it is for; NULL: whoever comes first. WEIR_ERR_NOT_SUPPORTED as wr_serve_check, and for a plan with arenas
 * of several streams. What was given out stays where it is. *more: how many more plans are served now: while one is, requests must
 * not be served by fronts before wr_serve_take has seen them. */
WR_CHECKED weir_status wr_serve(wr_cache *cache, const weir_plan *plan, const wr_arena_user *users, int *more);

/* Whether a plan is served, and nearly all requests of the last rounds got their places, as far as that can be told. */
bool wr_serve_goes_well(wr_cache *cache);

/* Once for each plan: gives back what is free and not for planned places. */
WR_CHECKED weir_status wr_serve_settle(wr_cache *cache);

/* Serves a request of the default pool from its planned place. *out is NULL when it has none. Nothing that goes wrong here is
 * an error: it is served otherwise. True: the plan has been of no use for so long that it is not served any more. */
bool wr_serve_take(wr_cache *cache, const wr_request *request, void **out);

/* Serves a request that no other free block fits from free places, when its stream is not served just now: whoever departs from a
 * plan, or has none any more, uses its memory. *out is NULL when there is none. */
void wr_serve_lend(wr_cache *cache, const wr_request *request, void **out);

/* Both locks held: the stream ends, or the region goes. */
void wr_serve_forget_stream_locked(wr_cache *cache, const wr_stream *stream);
void wr_serve_forget_region_locked(wr_cache *cache, const wr_segment *region);

/* Whether the stream is served just now: then planned places are not for others, if that can be avoided. */
bool wr_serve_trusts_locked(const wr_cache *cache, const wr_stream *stream);

/* More memory is needed than there would be without a plan: the stream is not served until it does again what was planned. The
 * cache's lock is held. */
void wr_serve_distrust_locked(const wr_cache *cache, const wr_stream *stream);

/* At close. */
void wr_serve_release(wr_cache *cache);

#endif
