/*
 * cut: a block becomes two, or two become one. Lock: the cache's.
 */
#ifndef WR_POOL_CUT_H
#define WR_POOL_CUT_H

#include "pool/starts.h"

/* Cuts `block` at `bytes`; `rest`, an unused record, becomes its right neighbour, in state free, in no tree. */
static inline void wr_block_split(wr_block *block, size_t bytes, wr_block *rest)
{
    assert(bytes > 0 && bytes < block->bytes);
    /* Member by member: what a record has beyond these is set when it is handed out. */
    rest->base = block->base + bytes;
    rest->bytes = block->bytes - bytes;
    rest->order = block->order + bytes;
    rest->requested = 0;
    rest->segment = block->segment;
    rest->prev = block;
    rest->next = block->next;
    rest->uses = NULL;
    rest->handed = 0;
    rest->kept = rest->stack = 0;
    rest->freed_at = 0;
    rest->state = WR_BLOCK_FREE;
    atomic_store_explicit(&rest->parkable, false, memory_order_relaxed);
    rest->lent = false;
    if (block->next) block->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    block->segment->blocks++;
    wr_starts_add(rest);
}

/* `left` swallows its right neighbour, whose record is then unused. */
static inline void wr_block_absorb_next(wr_block *left)
{
    wr_block *right = left->next;
    wr_starts_remove(right);
    left->bytes += right->bytes;
    left->next = right->next;
    if (right->next) right->next->prev = left;
    left->segment->blocks--;
}

#endif
