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

typedef struct wr_free_place {
    unsigned octave, step;
} wr_free_place;

static inline wr_free_place wr_free_place_of(size_t bytes)
{
    const unsigned log2 = 63u - (unsigned)__builtin_clzll(bytes);
    assert(log2 >= WR_FREE_LOG2_MIN && log2 - WR_FREE_LOG2_MIN < WR_FREE_OCTAVES);
    return (wr_free_place){ log2 - WR_FREE_LOG2_MIN, bytes >> (log2 - WR_FREE_STEPS_LOG2) & (WR_FREE_STEPS - 1) };
}

/* The first range from this one on that has blocks; NULL: none. */
static inline struct wr_free_tree *wr_free_from(wr_free_index *free, wr_free_place p)
{
    unsigned steps = p.octave < WR_FREE_OCTAVES ? free->steps[p.octave] & ~0u << p.step : 0;
    if (!steps) {
        const uint64_t octaves = p.octave + 1 < WR_FREE_OCTAVES ? free->octaves & ~UINT64_C(0) << (p.octave + 1) : 0;
        if (!octaves) return NULL;
        p.octave = (unsigned)__builtin_ctzll(octaves);
        steps = free->steps[p.octave];
    }
    return &free->trees[p.octave][__builtin_ctz(steps)];
}

static inline wr_free_place wr_free_after(wr_free_place p)
{
    return p.step + 1 < WR_FREE_STEPS ? (wr_free_place){ p.octave, p.step + 1 } : (wr_free_place){ p.octave + 1, 0 };
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

static inline void wr_bin_insert(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const wr_free_place p = wr_free_place_of(block->bytes);
    wr_block *twin = RB_INSERT(wr_free_tree, &free->trees[p.octave][p.step], block);
    assert(twin == NULL);
    (void)twin;
    free->steps[p.octave] = (uint16_t)(free->steps[p.octave] | 1u << p.step);
    free->octaves |= UINT64_C(1) << p.octave;
}

static inline void wr_bin_remove(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const wr_free_place p = wr_free_place_of(block->bytes);
    struct wr_free_tree *tree = &free->trees[p.octave][p.step];
    RB_REMOVE(wr_free_tree, tree, block);
    if (!RB_EMPTY(tree)) return;
    free->steps[p.octave] = (uint16_t)(free->steps[p.octave] & ~(1u << p.step));
    if (!free->steps[p.octave]) free->octaves &= ~(UINT64_C(1) << p.octave);
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

/* The smallest of at least `bytes`, first in order. */
static inline wr_block *wr_bin_best_fit(wr_bin *bin, size_t bytes)
{
    const wr_free_place p = wr_free_place_of(bytes);
    wr_block *best = wr_free_best_of(&bin->free.trees[p.octave][p.step], bytes);
    if (best) return best;
    struct wr_free_tree *tree = wr_free_from(&bin->free, wr_free_after(p));
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

#endif
