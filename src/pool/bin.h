/*
 * bin: the free blocks of a bin, in order of size: what is done with each block that is handed out or freed, to be inlined
 * there. The rest is in bin.c. Lock: the cache's.
 */
#ifndef WR_POOL_BIN_H
#define WR_POOL_BIN_H

#include "base/compiler.h"
#include "pool/block.h"

#include <assert.h>

static inline int wr_free_compare(const wr_block *a, const wr_block *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    return 0;
}

RB_GENERATE_INTERNAL(wr_free_tree, wr_block, node, wr_free_compare, __attribute__((unused)) static)

/* ---- ranges of sizes ---------------------------------------------------------------------------------------------- */

static inline unsigned wr_free_range(size_t bytes)
{
    const unsigned log2 = 63u - (unsigned)__builtin_clzll(bytes);
    const unsigned steps = (unsigned)(bytes >> (log2 - WR_FREE_STEPS_LOG2)); /* of the octave's, and as many more */
    assert(log2 >= WR_FREE_LOG2_MIN && log2 - WR_FREE_LOG2_MIN < WR_FREE_OCTAVES);
    return ((log2 - WR_FREE_LOG2_MIN - 1) << WR_FREE_STEPS_LOG2) + steps;
}

/* The first range from this one on that has blocks; NULL: none. */
static inline struct wr_free_tree *wr_free_from(wr_free_index *free, unsigned range)
{
    unsigned word = range / 64;
    uint64_t ranges = free->ranges[word] & ~UINT64_C(0) << range % 64;
    if (!ranges) {
        const uint64_t words = free->words & ~UINT64_C(1) << word;
        if (!words) return NULL;
        word = (unsigned)__builtin_ctzll(words);
        ranges = free->ranges[word];
    }
    return &free->trees[word * 64 + (unsigned)__builtin_ctzll(ranges)];
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

/* Most trees are empty or have one block: those need no tree's work. */
static inline void wr_bin_insert(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const unsigned range = wr_free_range(block->bytes);
    struct wr_free_tree *tree = &free->trees[range];
    block->range = (uint16_t)range;
    if (RB_EMPTY(tree)) {
        RB_SET(block, NULL, node);
        RB_COLOR(block, node) = RB_BLACK;
        RB_ROOT(tree) = block;
        free->ranges[range / 64] |= UINT64_C(1) << range % 64;
        free->words |= UINT64_C(1) << range / 64;
        return;
    }
    wr_block *twin = RB_INSERT(wr_free_tree, tree, block);
    assert(twin == NULL);
    (void)twin;
}

static inline void wr_bin_remove(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const unsigned range = block->range;
    struct wr_free_tree *tree = &free->trees[range];
    if (RB_ROOT(tree) != block || RB_LEFT(block, node) || RB_RIGHT(block, node)) {
        RB_REMOVE(wr_free_tree, tree, block);
        return;
    }
    RB_ROOT(tree) = NULL;
    free->ranges[range / 64] &= ~(UINT64_C(1) << range % 64);
    if (!free->ranges[range / 64]) free->words &= ~(UINT64_C(1) << range / 64);
}

static inline wr_block *wr_free_best_of(const struct wr_free_tree *tree, size_t bytes)
{
    wr_block *best = NULL, *block = RB_ROOT(tree);
    while (block) {
        const bool fits = block->bytes >= bytes;
        if (fits) best = block;
        block = fits ? RB_LEFT(block, node) : RB_RIGHT(block, node);
    }
    return best;
}

/* The smallest of at least `bytes`, first in order, of the range of `bytes`. */
static inline wr_block *wr_bin_best_in_range(const wr_bin *bin, size_t bytes)
{
    return wr_free_best_of(&bin->free.trees[wr_free_range(bytes)], bytes);
}

/* The same of all. */
static inline wr_block *wr_bin_best_fit(wr_bin *bin, size_t bytes)
{
    wr_block *best = wr_bin_best_in_range(bin, bytes);
    if (best) return best;
    struct wr_free_tree *tree = wr_free_from(&bin->free, wr_free_range(bytes) + 1);
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

#endif
