#include "pool/starts.h"

#include "base/meta.h"

#include <assert.h>

/* ---- the table ---------------------------------------------------------------------------------------------------- */

static wr_starts *table_of(const wr_cache *cache)
{
    return atomic_load_explicit(&cache->starts, memory_order_relaxed);
}

static wr_block *at(const wr_starts *starts, size_t i)
{
    return atomic_load_explicit(&starts->at[i], memory_order_relaxed);
}

static void put(wr_starts *starts, wr_block *block)
{
    size_t i = wr_starts_place(starts, block->base);
    while (at(starts, i)) i = (i + 1) & starts->mask;
    atomic_store_explicit(&starts->at[i], block, memory_order_release);
}

weir_status wr_starts_reserve(wr_cache *cache, size_t blocks)
{
    wr_starts *now = table_of(cache);
    unsigned log2 = 10;
    if (now && blocks * 2 <= now->mask + 1) return WEIR_OK;
    while ((size_t)1 << log2 < blocks * 4) log2++;
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_starts) + (sizeof(wr_block *) << log2), "block index", &made));
    wr_starts *larger = made;
    larger->smaller = now;
    larger->mask = ((size_t)1 << log2) - 1;
    larger->shift = 64 - log2;
    for (size_t i = 0; now && i <= now->mask; i++)
        if (at(now, i)) put(larger, at(now, i));
    atomic_store_explicit(&cache->starts, larger, memory_order_release);
    return WEIR_OK;
}

/* Closes the gap, so that whatever comes behind it is still found from its place on. */
static void take_out(wr_starts *starts, const wr_block *block)
{
    size_t gap = wr_starts_place(starts, block->base);
    for (; at(starts, gap) != block; gap = (gap + 1) & starts->mask) assert(at(starts, gap));
    for (size_t i = (gap + 1) & starts->mask; at(starts, i); i = (i + 1) & starts->mask) {
        wr_block *next = at(starts, i);
        const size_t distance = (i - wr_starts_place(starts, next->base)) & starts->mask;
        if (distance < ((i - gap) & starts->mask)) continue;
        atomic_store_explicit(&starts->at[gap], next, memory_order_release);
        gap = i;
    }
    atomic_store_explicit(&starts->at[gap], NULL, memory_order_release);
}

void wr_starts_release(wr_cache *cache)
{
    for (wr_starts *starts = table_of(cache), *smaller; starts; starts = smaller) {
        smaller = starts->smaller;
        wr_meta_free(starts);
    }
    atomic_store_explicit(&cache->starts, NULL, memory_order_relaxed);
}

/* ---- pages -------------------------------------------------------------------------------------------------------- */

static size_t page_of(const wr_segment *segment, const void *address)
{
    return (size_t)((const char *)address - segment->base) / WR_SEGMENT_UNIT;
}

static void note_in_page(wr_block *block)
{
    wr_pages *pages = block->segment->pages;
    const size_t page = page_of(block->segment, block->base);
    wr_block **first = &pages->first[page];
    if (!*first) pages->any[page / 64] |= UINT64_C(1) << page % 64;
    if (!*first || block->base < (*first)->base) *first = block;
}

static void forget_in_page(const wr_block *block)
{
    wr_pages *pages = block->segment->pages;
    const size_t page = page_of(block->segment, block->base);
    wr_block *next = block->next;
    if (pages->first[page] != block) return;
    if (next && page_of(block->segment, next->base) != page) next = NULL;
    pages->first[page] = next;
    if (!next) pages->any[page / 64] &= ~(UINT64_C(1) << page % 64);
}

void wr_starts_add(wr_block *block)
{
    put(table_of(block->segment->cache), block);
    note_in_page(block);
}

void wr_starts_remove(const wr_block *block)
{
    take_out(table_of(block->segment->cache), block);
    forget_in_page(block);
}

/* The last page up to this one in which a block begins: there is always the first. */
static size_t page_before(const wr_pages *pages, size_t page)
{
    size_t word = page / 64;
    uint64_t any = pages->any[word] & (UINT64_MAX >> (63 - page % 64));
    while (!any) any = pages->any[--word];
    return word * 64 + 63 - (size_t)__builtin_clzll(any);
}

wr_block *wr_starts_block_at(const wr_segment *segment, const void *address)
{
    wr_block *block = wr_starts_find(segment, address);
    if (block) return block;
    const wr_pages *pages = segment->pages;
    size_t page = page_of(segment, address);
    if (!pages->first[page] || pages->first[page]->base > (const char *)address) page = page_before(pages, page - 1);
    for (block = pages->first[page]; block->base + block->bytes <= (const char *)address;) block = block->next;
    return block;
}
