#include "pool/bin.h"

#include "pool/front/front.h"

/* The last non-empty range up to this one. */
static struct wr_free_tree *down_from(wr_free_index *free, unsigned range)
{
    unsigned word = range / 64;
    uint64_t ranges = free->ranges[word] & ~UINT64_C(0) >> (63 - range % 64);
    if (!ranges) {
        const uint64_t words = free->words & ((UINT64_C(1) << word) - 1);
        if (!words) return NULL;
        word = 63u - (unsigned)__builtin_clzll(words);
        ranges = free->ranges[word];
    }
    return &free->trees[word * 64 + 63u - (unsigned)__builtin_clzll(ranges)];
}

wr_block *wr_bin_smallest(wr_bin *bin)
{
    return wr_bin_smallest_from(bin, 0);
}

static wr_block *largest_up_to(wr_bin *bin, unsigned range)
{
    struct wr_free_tree *tree = down_from(&bin->free, range);
    return tree ? RB_MAX(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_largest(wr_bin *bin)
{
    return largest_up_to(bin, WR_FREE_RANGES - 1);
}

/* Blocks beside the one in the tree come before it. */
wr_block *wr_bin_larger(wr_bin *bin, wr_block *block)
{
    const struct wr_free_tree *tree = &bin->free.trees[block->range];
    if (block->beside) return block->next_equal ? block->next_equal : wr_free_best_of(tree, block->bytes);
    wr_block *larger = RB_NEXT(wr_free_tree, NULL, block);
    return larger ? wr_free_first(larger) : wr_bin_smallest_from(bin, block->range + 1u);
}

/* Blocks beside the one in the tree come after it. */
wr_block *wr_bin_smaller(wr_bin *bin, wr_block *block)
{
    wr_block *beside = block->beside ? block->next_equal : block->equal;
    if (beside) return beside;
    if (block->beside) block = wr_free_best_of(&bin->free.trees[block->range], block->bytes);
    wr_block *smaller = RB_PREV(wr_free_tree, NULL, block);
    if (smaller || block->range == 0) return smaller;
    return largest_up_to(bin, block->range - 1u);
}

void wr_bin_list_stirred(wr_bin *bin)
{
    bin->stirred = true;
    LIST_INSERT_HEAD(&bin->pool->stirred, bin, in_stirred);
}

static void move_range(wr_bin *from, wr_bin *to, unsigned range)
{
    struct wr_free_tree *tree = &from->free.trees[range];
    while (!RB_EMPTY(tree) && !RB_EMPTY(&to->free.trees[range])) {
        wr_block *block = RB_ROOT(tree);
        wr_bin_remove(from, block);
        wr_bin_insert(to, block);
    }
    if (RB_EMPTY(tree)) return;
    to->free.trees[range] = *tree;
    wr_free_mark_range(&to->free, range);
}

void wr_bin_move_free(wr_bin *from, wr_bin *to)
{
    wr_free_index *left = &from->free;
    wr_bin_stir(from);
    wr_bin_stir(to);
    for (unsigned range = 0; left->blocks != 0 && range < WR_FREE_RANGES; range++) move_range(from, to, range);
    to->free.blocks += left->blocks;
    to->free.bytes += left->bytes;
    *left = (wr_free_index){ .by_order = left->by_order };
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

void wr_bin_add_segment(wr_bin *bin, wr_segment *segment)
{
    if (bin->front) wr_front_list_locked(bin->front);
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

void wr_bin_drop_fence(wr_bin *bin)
{
    if (bin->fence) wr_event_put(bin->pool->cache->events, bin->fence);
    bin->fence = NULL;
}
