/*
 * detach: while many threads want the cache's lock, blocks of a stream are cut and joined under a lock of its front's own, the
 * cutting lock, and the cache learns later what came of it. Whoever has the cache's lock has the cutting locks of all detached
 * fronts too (wr_cache_lock), so that to everybody else there is one lock, and nothing that it guards is seen half changed.
 * A front is detached when its requests keep finding the lock taken. It is attached again when others take the lock far more
 * often than it does without, and while the fronts are closed. docs/threading.md.
 * Owner: the front. Lock: to become detached or attached, the cache's.
 */
#ifndef WR_POOL_DETACH_H
#define WR_POOL_DETACH_H

#include "pool/front.h"

/* Without a lock: perhaps. */
static inline bool wr_front_is_detached(const wr_front *front)
{
    return atomic_load_explicit(&front->detached, memory_order_relaxed);
}

/* For a thread that has the front's lock, and no other of that rank or above: to cut and join blocks of the stream's bins in the
 * pool, with what is in the front's ledger. False: the front is not detached. */
bool wr_front_lock_cutting(wr_front *front);
void wr_front_unlock_cutting(wr_front *front, bool enough); /* enough: what was to be done was done under it */

/* -- the cache's lock is held */

/* A request of the front's stream took the lock; `contended`: another thread had it. Detaches the front when that is often so.
 * The front's lock is held, too. */
WR_NOINLINE void wr_front_count_wait_locked(wr_front *front, bool contended);

static inline void wr_front_contend_locked(wr_front *front, bool contended)
{
    if (WR_UNLIKELY(contended || front->waits || front->cache->detached)) wr_front_count_wait_locked(front, contended);
}

/* Nothing where it is detached, or another one of its stream is, or nothing may be parked now. The front's lock is held, too. On
 * failure there are no records for it, and nothing has changed. */
WR_CHECKED weir_status wr_front_detach_locked(wr_front *front);

/* The cache learns what came and went. Nothing where the front is attached. */
void wr_front_attach_locked(wr_front *front);
void wr_fronts_attach_locked(wr_cache *cache);

/* `spare` may become live below the peak of the pool (NULL: the device): how much of that a detached front may hand out until it asks
 * again. The shares of all add up to no more, except that each is given a little in any case; the recorded peak may be too low by that. */
int64_t wr_detached_share(const wr_front *front, const wr_mempool *pool, wr_flow_number number, int64_t spare);

/* Something of the pool became live that detached fronts do not know of: a new peak is recorded, and where their shares are more than
 * is left below it, they have to ask again. */
WR_NOINLINE void wr_detached_review_locked(wr_mempool *pool);

/* How much more of a class is free in detached fronts than the cache's flow has; negative: less. `pool`: in that one; NULL: in all. */
int64_t wr_detached_untold(const wr_cache *cache, const wr_mempool *pool, wr_class class, int number);

/* The changes of all ledgers. */
uint64_t wr_cache_changes_locked(const wr_cache *cache);

#endif
