/*
 * checkpoint: the live blocks of a private pool at one instant, and restoring the pool to them.
 * Owner: whoever took it. It refers to nothing but numbers and addresses, so it may outlive what those name. It is not
 * written after it was taken, so it needs no lock. The functions take the cache's move lock, so that no segment of the
 * pool is hidden, and the cache's lock.
 */
#ifndef WR_POOL_CHECKPOINT_H
#define WR_POOL_CHECKPOINT_H

#include "pool/mempool.h"

/* Functions to be told of blocks, called without any lock; each may be NULL. */
typedef struct wr_checkpoint_listener {
    /* Of both kinds, all of them before the others are called. */
    void (*changed)(struct wr_cache *cache, void *pointer);
    void (*freed)(void *user, void *pointer);
    void (*restored)(void *user, void *pointer);
    void *user;
} wr_checkpoint_listener;

/* Marks the block that begins there, if it is in a private pool, as a vendor library's, so that no restore frees it; or
 * unmarks it, before the library frees it. The caller of these three holds no lock. */
void wr_checkpoint_set_library(const void *pointer, bool library);

WR_CHECKED weir_status wr_checkpoint_take(wr_mempool *pool, wr_mempool_name name, weir_checkpoint **out);
WR_CHECKED weir_status wr_checkpoint_restore(wr_mempool *pool, wr_mempool_name name, const weir_checkpoint *checkpoint,
                                             const wr_checkpoint_listener *listener);

#endif
