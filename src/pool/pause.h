/*
 * pause: takes away the memory behind a pool's addresses, and later puts new memory there. The pool's blocks and
 * segments stay as they are; their memory goes and comes back:
 *
 *   backed -- contents copied, told, unmapped --> unmapped -- memory given back --> unbacked
 *          <--------- told, contents copied back, mapped, new memory ----------------
 *
 * Contents wait in pinned memory, one piece per segment, which has the blocks that were not free, in order. A block
 * freed meanwhile is free like any other, and its contents are not brought back.
 * Lock: none throughout. First the pools are marked under the move lock as those of one call, then their work is waited
 * for without it, then it is taken again, across driver calls. The cache's own for what others see.
 */
#ifndef WR_POOL_PAUSE_H
#define WR_POOL_PAUSE_H

#include "pool/cache.h"

/* Debugging is about to use a block's memory, in a call that may come at any time. The block's pool is not paused
 * before wr_pause_let_on, and what was queued until then is waited for. Returns the pool; NULL: it is paused or about
 * to be, or the segment is gone. *dropped: how often its contents were dropped. */
wr_mempool *wr_pause_hold_off(wr_cache *cache, const wr_segment *segment, const void *address, uint32_t *dropped);
/* The same before anything is launched that uses memory of the pool, which exists. */
bool wr_pause_hold_off_pool(wr_mempool *pool);
void wr_pause_let_on(wr_mempool *pool);

/* Pauses the pools with that tag; NULL: all that can be paused. It is all or nothing, unless the driver refuses to undo
 * it too: then the error text says so, the pools stay paused, and nothing is lost. */
WR_CHECKED weir_status wr_pause(wr_cache *cache, const char *tag, weir_pause_mode mode);

/* The reverse. On failure everything stays paused. *missing: bytes of memory that it takes. */
WR_CHECKED weir_status wr_resume(wr_cache *cache, const char *tag, size_t *missing);

#endif
