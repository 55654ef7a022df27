#include "pool/block.h"

#include <assert.h>

static int compare(const wr_block *a, const wr_block *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    if (a->order != b->order) return a->order < b->order ? -1 : 1;
    return 0;
}

RB_GENERATE_INTERNAL(wr_free_tree, wr_block, node, compare, __attribute__((unused)) static)

/* ---- ranges of sizes ---------------------------------------------------------------------------------------------- */

typedef struct place {
    unsigned octave, step;
} place;

static place place_of(size_t bytes)
{
    const unsigned log2 = 63u - (unsigned)__builtin_clzll(bytes);
    assert(log2 >= WR_FREE_LOG2_MIN && log2 - WR_FREE_LOG2_MIN < WR_FREE_OCTAVES);
    return (place){ log2 - WR_FREE_LOG2_MIN, bytes >> (log2 - WR_FREE_STEPS_LOG2) & (WR_FREE_STEPS - 1) };
}

/* The first range from this one on that has blocks; NULL: none. */
static struct wr_free_tree *from_place(wr_free_index *free, place p)
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

/* The last range up to this one that has blocks; NULL: none. */
static struct wr_free_tree *down_from_place(wr_free_index *free, place p)
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

static place after(place p)
{
    return p.step + 1 < WR_FREE_STEPS ? (place){ p.octave, p.step + 1 } : (place){ p.octave + 1, 0 };
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

void wr_bin_insert(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const place p = place_of(block->bytes);
    wr_block *twin = RB_INSERT(wr_free_tree, &free->trees[p.octave][p.step], block);
    assert(twin == NULL);
    (void)twin;
    free->steps[p.octave] = (uint16_t)(free->steps[p.octave] | 1u << p.step);
    free->octaves |= UINT64_C(1) << p.octave;
}

void wr_bin_remove(wr_bin *bin, wr_block *block)
{
    wr_free_index *free = &bin->free;
    const place p = place_of(block->bytes);
    struct wr_free_tree *tree = &free->trees[p.octave][p.step];
    RB_REMOVE(wr_free_tree, tree, block);
    if (!RB_EMPTY(tree)) return;
    free->steps[p.octave] = (uint16_t)(free->steps[p.octave] & ~(1u << p.step));
    if (!free->steps[p.octave]) free->octaves &= ~(UINT64_C(1) << p.octave);
}

static wr_block *best_of(const struct wr_free_tree *tree, size_t bytes)
{
    wr_block *best = NULL, *block = RB_ROOT(tree);
    while (block) {
        const bool fits = block->bytes >= bytes;
        if (fits) best = block;
        block = fits ? RB_LEFT(block, node) : RB_RIGHT(block, node);
    }
    return best;
}

wr_block *wr_bin_best_fit(wr_bin *bin, size_t bytes)
{
    const place p = place_of(bytes);
    wr_block *best = best_of(&bin->free.trees[p.octave][p.step], bytes);
    if (best) return best;
    struct wr_free_tree *tree = from_place(&bin->free, after(p));
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_smallest(wr_bin *bin)
{
    struct wr_free_tree *tree = from_place(&bin->free, (place){ 0, 0 });
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_largest(wr_bin *bin)
{
    struct wr_free_tree *tree = down_from_place(&bin->free, (place){ WR_FREE_OCTAVES - 1, WR_FREE_STEPS - 1 });
    return tree ? RB_MAX(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_larger(wr_bin *bin, wr_block *block)
{
    wr_block *larger = RB_NEXT(wr_free_tree, NULL, block);
    if (larger) return larger;
    struct wr_free_tree *tree = from_place(&bin->free, after(place_of(block->bytes)));
    return tree ? RB_MIN(wr_free_tree, tree) : NULL;
}

wr_block *wr_bin_smaller(wr_bin *bin, wr_block *block)
{
    wr_block *smaller = RB_PREV(wr_free_tree, NULL, block);
    if (smaller) return smaller;
    place p = place_of(block->bytes);
    if (p.octave == 0 && p.step == 0) return NULL;
    p = p.step ? (place){ p.octave, p.step - 1 } : (place){ p.octave - 1, WR_FREE_STEPS - 1 };
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
