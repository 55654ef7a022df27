/*
 * cut: splits a block in two, or coalesces two. Lock: the cache's, or the cutting lock of the blocks' detached front.
 */
#ifndef WR_POOL_CUT_H
#define WR_POOL_CUT_H

#include "pool/starts.h"

#include <assert.h>

/* Splits `block` at `bytes`. `rest`, an unused record, becomes its right neighbour, free but in no tree. */
static inline void wr_block_split(wr_block *block, size_t bytes, wr_block *rest)
{
    assert(bytes > 0 && bytes < block->bytes);
    wr_block_begin(rest, block->base + bytes, block->bytes - bytes, block->segment, WR_BLOCK_FREE);
    rest->prev = block;
    rest->next = block->next;
    if (block->next) block->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    block->segment->blocks++;
    wr_starts_add(rest);
}

/* Coalesces `left` with its right neighbour, whose record is then unused. */
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
