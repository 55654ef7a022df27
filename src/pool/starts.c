#include "pool/starts.h"

#include "base/meta.h"

/* ---- the table --------------------------------------------------------------------------------------------------- */

weir_status wr_starts_reserve(wr_cache *cache, size_t blocks)
{
    wr_starts *now = wr_starts_of(cache);
    unsigned log2 = 10;
    if (now && blocks * 4 <= now->mask + 1) return WEIR_OK;
    while ((size_t)1 << log2 < blocks * 8) log2++;
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_starts) + (sizeof(uintptr_t) << log2), "block index", &made));
    wr_starts *larger = made;
    larger->smaller = now;
    larger->mask = ((size_t)1 << log2) - 1;
    larger->shift = 64 - log2;
    larger->shared = now && now->shared;
    for (size_t i = 0; now && i <= now->mask; i++)
        for (wr_block *block = wr_starts_linked(now->at[i]), *next; block; block = next) {
            next = wr_starts_linked(wr_starts_next(block));
            wr_starts_put(larger, block);
        }
    atomic_store_explicit(&cache->starts, larger, memory_order_release);
    return WEIR_OK;
}

void wr_starts_release(wr_cache *cache)
{
    for (wr_starts *starts = wr_starts_of(cache), *smaller; starts; starts = smaller) {
        smaller = starts->smaller;
        wr_meta_free(starts);
    }
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* The last page up to this one in which a block begins; in the first page, one always does. */
static size_t page_before(const wr_pages *pages, size_t page)
{
    size_t word = page / 64;
    uint64_t any = pages->any[word] & (UINT64_MAX >> (63 - page % 64));
    while (!any) any = pages->any[--word];
    return word * 64 + 63 - (size_t)__builtin_clzll(any);
}

bool wr_starts_any_between(const wr_segment *segment, const void *from, const void *to)
{
    const size_t first = wr_starts_page(segment, from) + 1, end = wr_starts_page(segment, to);
    return first < end && page_before(segment->pages, end - 1) >= first;
}

wr_block *wr_starts_block_at(const wr_segment *segment, const void *address)
{
    wr_block *block = wr_starts_find(segment, address);
    if (block) return block;
    const wr_pages *pages = segment->pages;
    size_t page = wr_starts_page(segment, address);
    if (!pages->first[page] || pages->first[page]->base > (const char *)address) page = page_before(pages, page - 1);
    for (block = pages->first[page]; block->base + block->bytes <= (const char *)address;) block = block->next;
    return block;
}
