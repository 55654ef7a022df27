#include "pool/bin.h"

/* The last range up to this one that has blocks; NULL: none. */
static struct wr_free_tree *down_from_place(wr_free_index *free, wr_free_place p)
{
    unsigned steps = free->steps[p.octave] & ((2u << p.step) - 1);
    if (!steps) {
        const uint64_t octaves = free->octaves & ((UINT64_C(1) << p.octave) - 1);
        if (!octaves) return NULL;
        p.octave = 63u - (unsigned)__builtin_clzll(octaves);
        steps = free->steps[p.octave];
    }
    return &free->trees[p.octave][31u - (unsigned)__builtin_clz(steps)];
}

wr_block *wr_bin_smallest(wr_bin *bin)
{
    struct wr_free_tree *tree = wr_free_from(&bin->free, (wr_free_place){ 0, 0 });
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_largest(wr_bin *bin)
{
    struct wr_free_tree *tree = down_from_place(&bin->free, (wr_free_place){ WR_FREE_OCTAVES - 1, WR_FREE_STEPS - 1 });
    return tree ? RB_MAX(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_larger(wr_bin *bin, wr_block *block)
{
    wr_block *larger = RB_NEXT(wr_free_tree, NULL, block);
    if (larger) return larger;
    struct wr_free_tree *tree = wr_free_from(&bin->free, wr_free_after(wr_free_place_of(block->bytes)));
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_smaller(wr_bin *bin, wr_block *block)
{
    wr_block *smaller = RB_PREV(wr_free_tree, NULL, block);
    if (smaller) return smaller;
    wr_free_place p = wr_free_place_of(block->bytes);
    if (p.octave == 0 && p.step == 0) return NULL;
    p = p.step ? (wr_free_place){ p.octave, p.step - 1 } : (wr_free_place){ p.octave - 1, WR_FREE_STEPS - 1 };
    struct wr_free_tree *tree = down_from_place(&bin->free, p);
    return tree ? RB_MAX(wr_free_tree, tree) : NULL;
}

/* ---- segments ----------------------------------------------------------------------------------------------------- */

void wr_bin_add_segment(wr_bin *bin, wr_segment *segment)
{
    segment->bin = bin;
    atomic_store_explicit(&segment->front, bin->front, memory_order_release);
    segment->prev = NULL;
    segment->next = bin->segments;
    if (bin->segments) bin->segments->prev = segment;
    bin->segments = segment;
}

void wr_bin_drop_segment(wr_bin *bin, wr_segment *segment)
{
    if (segment->next) segment->next->prev = segment->prev;
    if (segment->prev)
        segment->prev->next = segment->next;
    else
        bin->segments = segment->next;
}
