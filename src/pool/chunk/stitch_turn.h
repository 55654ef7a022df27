/*
 * stitch_turn: one thread of a device at a time gets chunks. Turns of threads that meet others, and waits for turns,
 * take time from all of them, and where that is too much of the program's time, more may be held: streams that need now
 * more and now less then take fewer chunks from each other. Lock: a turn is the move lock.
 */
#ifndef WR_POOL_CHUNK_STITCH_TURN_H
#define WR_POOL_CHUNK_STITCH_TURN_H

#include "pool/cache.h"

/* Waits until it is the thread's turn. */
void wr_stitch_begin_turn(wr_cache *cache, const wr_request *request);
void wr_stitch_end_turn(wr_cache *cache);

#endif
