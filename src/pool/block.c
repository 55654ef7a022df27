#include "pool/block.h"

#include "base/compiler.h"

#include <assert.h>

static size_t entry_of(const wr_segment *segment, const char *address)
{
    return (size_t)(address - segment->base) >> segment->start_shift;
}

/* Entries of one page, as a power of two. */
static unsigned page_shift(const wr_segment *segment)
{
    return WR_SEGMENT_UNIT_LOG2 - segment->start_shift;
}

void wr_segment_set_start(const wr_segment *segment, const wr_block *block, wr_block *value)
{
    const size_t entry = entry_of(segment, block->base);
    uint32_t *count = &segment->starts->in_page[entry >> page_shift(segment)];
    *count = value ? *count + 1 : *count - 1;
    atomic_store_explicit(&segment->starts->at[entry], value, memory_order_release);
}

wr_block *wr_segment_block_at(const wr_segment *segment, const void *address)
{
    const wr_starts *starts = segment->starts;
    const unsigned shift = page_shift(segment);
    size_t entry = entry_of(segment, address);
    wr_block *found = atomic_load_explicit(&starts->at[entry], memory_order_relaxed);
    /* A block that starts in the same slot but behind the address is not the one. */
    if (found && found->base > (const char *)address) found = NULL;
    for (size_t page = entry >> shift; !found; entry = page-- << shift)
        for (const size_t first = page << shift; starts->in_page[page] && entry > first && !found;)
            found = atomic_load_explicit(&starts->at[--entry], memory_order_relaxed);
    return found;
}

void wr_block_split(wr_block *block, size_t bytes, wr_block *rest)
{
    assert(bytes > 0 && bytes < block->bytes);
    *rest = (wr_block){ .base = block->base + bytes,
                        .bytes = block->bytes - bytes,
                        .order = block->order + bytes,
                        .segment = block->segment,
                        .prev = block,
                        .next = block->next,
                        .state = WR_BLOCK_FREE };
    if (block->next) block->next->prev = rest;
    block->next = rest;
    block->bytes = bytes;
    block->segment->blocks++;
    assert(wr_segment_block_from(rest->segment, rest->base) == NULL);
    wr_segment_set_start(rest->segment, rest, rest);
}

void wr_block_absorb_next(wr_block *left)
{
    wr_block *right = left->next;
    wr_segment_set_start(right->segment, right, NULL);
    left->bytes += right->bytes;
    left->next = right->next;
    if (right->next) right->next->prev = left;
    left->segment->blocks--;
}
