/*
 * checkpoint: the live blocks of a private pool at one instant, and putting the pool back to them.
 * Owner: whoever took it; it refers to nothing but numbers and addresses, so it may outlive all that. Never written after
 * it was taken, so no lock. The functions take the cache's move lock, so that no segment of the pool is out of sight, and
 * its lock.
 */
#ifndef WR_POOL_CHECKPOINT_H
#define WR_POOL_CHECKPOINT_H

#include "pool/mempool.h"

/* Whom to tell of blocks, without any lock; either may be NULL. */
typedef struct wr_checkpoint_listener {
    void (*freed)(void *user, void *pointer);
    void (*restored)(void *user, void *pointer);
    void *user;
} wr_checkpoint_listener;

/* The block that begins there, if it is of a private pool, is a vendor library's from now on, so that no restore frees it; or is
 * about to be freed by it. No lock held, of all three. */
void wr_checkpoint_set_library(const void *pointer, bool library);

WR_CHECKED weir_status wr_checkpoint_take(wr_mempool *pool, wr_mempool_name name, weir_checkpoint **out);
WR_CHECKED weir_status wr_checkpoint_restore(wr_mempool *pool, wr_mempool_name name, const weir_checkpoint *checkpoint,
                                             const wr_checkpoint_listener *listener);

#endif
