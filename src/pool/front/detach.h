/*
 * detach: while many threads want the cache's lock, a front can be detached: blocks of its stream are then split and
 * coalesced under a lock of the front's own, the cutting lock, and the cache learns of the results later. The cache's
 * lock includes the cutting locks of all detached fronts (wr_cache_lock), so to everybody else there is one lock, and
 * nothing is seen half changed.
 * A front is detached when its requests keep finding the lock taken. It is attached again when other threads take the
 * lock far more often than its own thread does without it, when its own thread has long met no other, and while the
 * fronts are closed. docs/threading.md.
 * Owner: the front. Lock: the cache's, for detaching and attaching.
 */
#ifndef WR_POOL_FRONT_DETACH_H
#define WR_POOL_FRONT_DETACH_H

#include "pool/front/not_live.h"

/* Takes no lock, so the answer may be out of date. */
static inline bool wr_front_is_detached(const wr_front *front)
{
    return atomic_load_explicit(&front->detached, memory_order_relaxed);
}

/* For a thread that has the front's lock, and no other of that rank or above: to split and coalesce blocks of the
 * stream's bins in the pool, with the front's ledger. False: the front is not detached, or need not be any more. */
bool wr_front_lock_cutting(wr_front *front);
void wr_front_unlock_cutting(wr_front *front, bool enough); /* enough: no other lock was needed */

/* Whether the front may take of what is unshared: it is detached, and its thread alone uses the stream. */
static inline bool wr_front_may_share(const wr_front *front)
{
    return wr_front_is_detached(front) && !wr_front_is_shared(front);
}

/* -- the front's cutting lock is held */

/* Takes of what is unshared: `most`, or what there is if that is at least `least`. Returns how much; 0: none. */
int64_t wr_front_take_unshared(const wr_front *front, wr_flow_number number, int64_t least, int64_t most);
void wr_front_put_unshared(const wr_front *front, wr_flow_number number, int64_t amount);

/* A usual share, which is what such a front asks for and keeps. */
int64_t wr_front_usual_share(const wr_front *front, wr_flow_number number);

/* -- the cache's lock is held */

/* A request of the front's stream has taken the lock; `contended`: another thread had it. Detaches the front when that
 * happens often. The front's lock is held too. */
WR_NOINLINE void wr_front_count_wait_locked(wr_front *front, bool contended);

/* A block of the front that other streams use was freed: less is gained by detaching. Both locks are held. */
void wr_front_count_used_locked(wr_front *front);

static inline void wr_front_contend_locked(wr_front *front, bool contended)
{
    if (WR_UNLIKELY(contended || front->waits || front->cache->detached)) wr_front_count_wait_locked(front, contended);
}

/* Does nothing if it or another front of its stream is detached, or nothing may be parked now. The front's lock is held
 * too. Fails when there are no records for it; then nothing has changed. */
WR_CHECKED weir_status wr_front_detach_locked(wr_front *front);

/* Attaches a front: the cache learns what came and went. Does nothing if it is attached. */
void wr_front_attach_locked(wr_front *front);
void wr_fronts_attach_locked(wr_cache *cache);

/* `spare` may become live below the peak of the pool (NULL: the device): returns how much of that a detached front may
 * hand out before it asks again. The shares of all and what is unshared add up to no more, except that each gets a
 * little in any case; the recorded peak may be too low by that. */
int64_t wr_detached_share(const wr_front *front, const wr_mempool *pool, wr_flow_number number, int64_t spare);

/* Determines what is unshared, after a front has settled or something was reviewed. */
WR_NOINLINE void wr_detached_divide_locked(wr_mempool *pool);

/* Something of the pool became live that detached fronts do not know of. Records a new peak; fronts whose shares exceed
 * what is left below it must ask again. */
WR_NOINLINE void wr_detached_review_locked(wr_mempool *pool);

/* How much more of a class is free in detached fronts than the cache's flow shows; negative: less. `pool`: in that
 * pool; NULL: in all. */
int64_t wr_detached_untold(const wr_cache *cache, const wr_mempool *pool, wr_class class, int number);

uint64_t wr_cache_changes_locked(const wr_cache *cache);

#endif
