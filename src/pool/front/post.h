/*
 * post: frees by threads other than the one that uses a stream. Taking the front's lock for each would take it away
 * from its owner, and both would wait for each other at every block. So such a thread posts the block, and whoever has
 * the front's lock and misses parks what was posted, once that is worth it. What is posted is live to the cache, as
 * what is parked, and goes back to it with that. docs/threading.md.
 * Owner: the front. Lock: a short one of its own (WR_RANK_POSTS, after the cache's).
 */
#ifndef WR_POOL_FRONT_POST_H
#define WR_POOL_FRONT_POST_H

#include "pool/front/detach.h"
#include "pool/front/hit.h"

#define WR_POSTS_MOST 1024

/* Posts the block that begins at `pointer`. False: nothing was done, and it must be freed with the front's lock: the
 * calling thread used the stream last and nobody waits for it, enough is posted, nothing may be, or the block cannot be
 * freed. */
bool wr_front_post(wr_front *front, wr_block *block, const void *pointer);

/* Take no lock, so the answer may be out of date. */
static inline uint32_t wr_front_posts(const wr_front *front)
{
    return atomic_load_explicit(&front->posts.count, memory_order_relaxed);
}

static inline bool wr_front_has_posts(const wr_front *front)
{
    return wr_front_posts(front) != 0;
}

/* Whether more is posted than may be left. */
static inline bool wr_front_worth_collecting(const wr_front *front)
{
    return atomic_load_explicit(&front->posts.worth, memory_order_relaxed);
}

/* Parks what was posted, and frees what does not fit. The front's lock is held, and no other of that rank or
 * above. */
WR_NOINLINE void wr_front_collect_all(wr_front *front);

/* Frees blocks that are marked as parked, but are not. The front's lock is held, and no other of that rank or above. */
void wr_front_free_claimed(wr_front *front, wr_block *const *blocks, uint32_t count);

/* Before a request that has found no parked block: does so where it is worth while. A few blocks are collected only
 * where the request would need the cache for want of them: while it is unknown how much is spare, which a hit finds
 * out, and where what is posted, which counts as live, makes it a peak of a detached front. */
static inline void wr_front_collect(wr_front *front, size_t block_bytes, size_t requested)
{
    const bool settled = wr_front_is_settled(front);
    const bool detached = wr_front_is_detached(front);
    const bool few = !settled || (detached && !wr_front_is_below_peak(front, block_bytes, requested));
    if (WR_UNLIKELY(wr_front_worth_collecting(front) || (few && wr_front_has_posts(front))))
        wr_front_collect_all(front);
}

/* -- the front's lock and the cache's are held */

/* Frees what was posted. */
void wr_front_free_posts_locked(wr_front *front);

/* From now on blocks may be posted, or may not; then what was posted is freed. */
void wr_front_open_posts_locked(wr_front *front, bool open);

#endif
