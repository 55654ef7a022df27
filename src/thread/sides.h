/*
 * sides: the sides (pool/front/side.h) that a thread has: at most one beside each front. Owner: the thread; nobody else
 * reads the list, so no lock. They are left when the thread ends.
 */
#ifndef WR_THREAD_SIDES_H
#define WR_THREAD_SIDES_H

#include "thread/thread.h"

/* The front for the thread's next request to a main front: its side there, if it has or should have one, else the main
 * front itself. NULL for NULL. */
wr_front *wr_thread_own_front(wr_front *main);

bool wr_thread_has_side(const wr_front *main);

/* Parks a block of the main front in the thread's side. False: it has none, the side has no room, or the block cannot
 * be parked. */
bool wr_thread_park(const wr_front *main, wr_block *block, const void *pointer);

#endif
