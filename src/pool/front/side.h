/*
 * side: a front of one thread's own, beside the main front of a stream that several threads allocate on at the same
 * time. They would take the main front's lock from each other for every block. Instead each parks what it frees in its
 * side and takes it from there, and goes to the main front only when that has nothing, or no room. A front is shared,
 * and has sides, once its requests keep coming from another thread than the last one; it is so until no thread has a
 * side any more, or its stream or pool ends. docs/threading.md.
 * Owner: the thread that has it; the record is the cache's. Lock: as any front's, biased to that thread.
 */
#ifndef WR_POOL_FRONT_SIDE_H
#define WR_POOL_FRONT_SIDE_H

#include "pool/front/front.h"

/* For all that follow: no lock of a front's rank or above is held. */

/* The calling thread asks for memory, and no front for it is remembered whose lock it owns. True: the front is shared,
 * or is from now on, and a thread that stays should have a side. */
bool wr_side_is_wanted(wr_front *main);

/* A side of a shared front for the calling thread. NULL: there is none to be had. */
wr_front *wr_side_take(wr_front *main);

/* The thread, or another one for it, does not use the side any more; what is parked there goes back. */
void wr_side_leave(wr_front *side);

/* Before memory is added for a request: frees what the sides of its front have, if that is as much, and memory has
 * grown since that was last done. False: not so. */
bool wr_sides_give_back(const wr_request *request);

/* Before the next request of the thread that has it: whether the side is to be used. It is not for a while after it has
 * been of little use, and closed then. */
bool wr_side_serves(wr_front *side);

/* The side's lock is held, and none of its rank or above. */

/* Parks a live block of the main front, of a size that the thread has lately asked for. False: it must be freed there,
 * or cannot be freed. */
bool wr_side_park(wr_front *side, wr_block *block, const void *pointer);

/* Before the main front is asked for a plain request, since nothing of its size is parked here. A graded side may hand
 * out a larger block: a parked one, or one of the main front. Releases the lock, as wr_front_miss does. False: it has
 * none. */
WR_NOINLINE bool wr_side_miss(wr_front *side, size_t block_bytes, size_t requested, wr_bias_thread *self, void **out);

#endif
