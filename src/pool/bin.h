/*
 * bin: a bin's free blocks, by size, and its segments. What is done for each block handed out or freed is here, to be
 * inlined; the rest is in bin.c. Lock: the cache's, or the cutting lock of the bin's detached front.
 */
#ifndef WR_POOL_BIN_H
#define WR_POOL_BIN_H

#include "base/compiler.h"
#include "pool/block.h"

#include <assert.h>

/* In order of size, then as wr_free_index says. */
wr_block *wr_bin_smallest(wr_bin *bin);
wr_block *wr_bin_largest(wr_bin *bin);
wr_block *wr_bin_larger(wr_bin *bin, wr_block *block);  /* the next one; NULL: none */
wr_block *wr_bin_smaller(wr_bin *bin, wr_block *block); /* the reverse, from the largest on */

/* All free blocks, to a bin of the same pool and class. Trees move as they are where they can, since blocks may be
 * many, and lie anywhere. */
void wr_bin_move_free(wr_bin *from, wr_bin *to);

void wr_bin_add_segment(wr_bin *bin, wr_segment *segment);
void wr_bin_drop_segment(wr_bin *bin, wr_segment *segment);
void wr_bin_drop_fence(wr_bin *bin); /* with the move lock, or when nobody else has the bin */

static inline int wr_free_compare(const wr_block *a, const wr_block *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    if (a->segment->order != b->segment->order) return a->segment->order < b->segment->order ? -1 : 1;
    return a->base < b->base ? -1 : a->base > b->base;
}

RB_GENERATE_INTERNAL(wr_free_tree, wr_block, node, wr_free_compare, __attribute__((unused)) static)

/* ---- ranges of sizes --------------------------------------------------------------------------------------------- */

static inline unsigned wr_free_range(size_t bytes)
{
    const unsigned log2 = 63u ^ (unsigned)__builtin_clzll(bytes);            /* the subtraction, as one instruction */
    const unsigned steps = (unsigned)(bytes >> (log2 - WR_FREE_STEPS_LOG2)); /* within the octave, plus one octave's */
    assert(log2 >= WR_FREE_LOG2_MIN && log2 - WR_FREE_LOG2_MIN < WR_FREE_OCTAVES);
    return (log2 << WR_FREE_STEPS_LOG2) + steps - ((WR_FREE_LOG2_MIN + 1) << WR_FREE_STEPS_LOG2);
}

/* The first non-empty range from this one on. */
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

/* It is not empty. */
static inline void wr_free_mark_range(wr_free_index *free, unsigned range)
{
    free->ranges[range / 64] |= UINT64_C(1) << range % 64;
    free->words |= UINT64_C(1) << range / 64;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static WR_NOINLINE void wr_free_remove_from(struct wr_free_tree *tree, wr_block *block)
{
    RB_REMOVE(wr_free_tree, tree, block);
}

static WR_NOINLINE void wr_free_balance(struct wr_free_tree *tree, wr_block *block)
{
    wr_free_tree_RB_INSERT_COLOR(tree, block);
}

/* The first to be handed out among blocks of that size. */
static inline wr_block *wr_free_first(wr_block *of_size)
{
    return of_size && of_size->equal ? of_size->equal : of_size;
}

static inline void wr_free_put_beside(wr_block *of_size, wr_block *block)
{
    block->beside = true;
    block->next_equal = of_size->equal;
    block->link = &of_size->equal;
    if (block->next_equal) block->next_equal->link = &block->next_equal;
    of_size->equal = block;
}

static inline void wr_free_take_from_beside(wr_block *block)
{
    *block->link = block->next_equal;
    if (block->next_equal) block->next_equal->link = block->link;
}

/* The first block listed beside `block` takes its place in the tree. */
static inline void wr_free_inherit(struct wr_free_tree *tree, wr_block *block)
{
    wr_block *heir = block->equal, *parent = RB_PARENT(block, node);
    wr_free_take_from_beside(heir);
    heir->beside = false;
    heir->equal = block->equal;
    if (heir->equal) heir->equal->link = &heir->equal;
    heir->node = block->node;
    if (!parent)
        RB_ROOT(tree) = heir;
    else if (RB_LEFT(parent, node) == block)
        RB_LEFT(parent, node) = heir;
    else
        RB_RIGHT(parent, node) = heir;
    if (RB_LEFT(heir, node)) RB_PARENT(RB_LEFT(heir, node), node) = heir;
    if (RB_RIGHT(heir, node)) RB_PARENT(RB_RIGHT(heir, node), node) = heir;
}

/* Free blocks that are smaller contain no part of a chunk. */
#define WR_BIN_STIRRED_BY ((size_t)1 << 20)

/* A part of a chunk in the bin may be wholly free from now on, or no longer. */
WR_NOINLINE void wr_bin_list_stirred(wr_bin *bin);

static inline void wr_bin_stir(wr_bin *bin)
{
    if (WR_UNLIKELY(!bin->stirred)) wr_bin_list_stirred(bin);
}

/* Most trees are empty or have blocks of one size, and then need no rebalancing. */
static inline void wr_bin_insert(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const unsigned range = wr_free_range(block->bytes);
    struct wr_free_tree *tree = &free->trees[range];
    wr_block *parent = NULL, *at = RB_ROOT(tree);
    bool left = false;
    if (block->bytes >= WR_BIN_STIRRED_BY) wr_bin_stir(bin);
    free->blocks++;
    free->bytes += block->bytes;
    block->range = (uint16_t)range;
    block->beside = false;
    while (at) {
        if (at->bytes == block->bytes && !free->by_order) {
            wr_free_put_beside(at, block);
            return;
        }
        parent = at;
        left = wr_free_compare(block, at) < 0;
        at = left ? RB_LEFT(at, node) : RB_RIGHT(at, node);
    }
    block->equal = NULL;
    RB_SET(block, parent, node);
    if (!parent) {
        RB_COLOR(block, node) = RB_BLACK;
        RB_ROOT(tree) = block;
        wr_free_mark_range(free, range);
        return;
    }
    if (left)
        RB_LEFT(parent, node) = block;
    else
        RB_RIGHT(parent, node) = block;
    wr_free_balance(tree, block);
}

static inline void wr_bin_remove(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const unsigned range = block->range;
    struct wr_free_tree *tree = &free->trees[range];
    if (block->bytes >= WR_BIN_STIRRED_BY) wr_bin_stir(bin);
    free->blocks--;
    free->bytes -= block->bytes;
    if (block->beside) {
        wr_free_take_from_beside(block);
        return;
    }
    if (block->equal) {
        wr_free_inherit(tree, block);
        return;
    }
    if (RB_ROOT(tree) != block || RB_LEFT(block, node) || RB_RIGHT(block, node)) {
        wr_free_remove_from(tree, block);
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

static inline wr_block *wr_bin_best_in_range(const wr_bin *bin, size_t bytes)
{
    return wr_free_first(wr_free_best_of(&bin->free.trees[wr_free_range(bytes)], bytes));
}

static inline wr_block *wr_bin_smallest_from(wr_bin *bin, unsigned range)
{
    struct wr_free_tree *tree = wr_free_from(&bin->free, range);
    return tree ? wr_free_first(RB_MIN(wr_free_tree, tree)) : NULL;
}

/* The best fit; of its size, the first to be handed out. */
static inline wr_block *wr_bin_best_fit(wr_bin *bin, size_t bytes)
{
    wr_block *best = wr_bin_best_in_range(bin, bytes);
    return best ? best : wr_bin_smallest_from(bin, wr_free_range(bytes) + 1);
}

#endif
