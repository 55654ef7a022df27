#include "pool/share.h"

#include "base/meta.h"
#include "pool/chunk.h"
#include "pool/source.h"

struct wr_import {
    wr_import *next;
    wr_range range;
};

/* ---- other devices ----------------------------------------------------------------------------------------------- */

static weir_status share_chunks(wr_cache *cache, uint64_t bit)
{
    for (const wr_chunk *k = cache->chunks.first; k; k = k->next)
        for (const wr_slot *s = k->slots; s; s = s->next_of_chunk) {
            wr_range range = { .base = s->region->base + s->at, .bytes = k->bytes };
            WR_TRY(wr_source_share(cache, &range, bit));
        }
    return WEIR_OK;
}

static weir_status share_all(wr_cache *cache, wr_segment *list, uint64_t bit)
{
    for (const wr_segment *s = list; s; s = s->listed) {
        wr_range range = wr_range_of(s);
        if (range.backing == WR_BACKED) WR_TRY(wr_source_share(cache, &range, bit));
    }
    for (wr_import *i = cache->imports; i; i = i->next) WR_TRY(wr_source_share(cache, &i->range, bit));
    return share_chunks(cache, bit);
}

weir_status wr_share_with(wr_cache *cache, int accessor)
{
    const uint64_t bit = (uint64_t)1 << accessor;
    wr_segment *list = NULL, **tail = &list;
    wr_lock_acquire(&cache->move_lock);
    wr_cache_lock(cache);
    const bool known = cache->accessors & bit;
    cache->accessors |= bit;
    for (const wr_mempool *pool = cache->pools; pool && !known; pool = pool->next)
        if (wr_source_maps(pool)) tail = wr_mempool_list_locked(pool, tail);
    wr_cache_unlock(cache);

    weir_status status = known ? WEIR_OK : share_all(cache, list, bit);
    if (status != WEIR_OK) {
        wr_cache_lock(cache);
        cache->accessors &= ~bit;
        wr_cache_unlock(cache);
    }
    wr_lock_release(&cache->move_lock);
    return status;
}

/* ---- other processes --------------------------------------------------------------------------------------------- */

static weir_status check_export(const wr_segment *segment, const void *pointer)
{
    wr_cache *cache = segment->cache;
    wr_block *block = NULL;
    wr_cache_lock(cache);
    weir_status status = wr_cache_live_block_locked(segment, pointer, &block);
    const wr_mempool *pool = status == WEIR_OK ? segment->bin->pool : NULL;
    if (pool && pool->rules.memory != WEIR_MEMORY_EXPORTABLE)
        status = wr_fail(WEIR_ERR_NOT_SUPPORTED,
                         "%p is in a memory pool that is not WEIR_MEMORY_EXPORTABLE, so no other process can import it",
                         pointer);
    else if (pool && pool->paused)
        status = wr_fail(WEIR_ERR_BUSY,
                         "%p is in memory pool " WR_MEMPOOL_FORMAT ", which is paused; call weir_resume() first",
                         pointer, WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
    wr_cache_unlock(cache);
    return status;
}

weir_status wr_share_export(const wr_segment *segment, const void *pointer, int *descriptor, uint64_t *offset,
                            uint64_t *segment_bytes)
{
    wr_cache *cache = segment->cache;
    int made = -1;
    wr_lock_acquire(&cache->move_lock); /* the segment stays, and stays backed */
    weir_status status = check_export(segment, pointer);
    if (status == WEIR_OK) status = wr_driver(cache->backend, vm_export, cache->device, segment->chunk, &made);
    if (status == WEIR_OK) {
        *descriptor = made;
        *offset = (uint64_t)((const char *)pointer - segment->base);
        *segment_bytes = segment->bytes;
    }
    wr_lock_release(&cache->move_lock);
    return status;
}

/* CUDA does not tell the size of what it imported, but refuses to map another. */
static weir_status map_whole(const wr_cache *cache, int descriptor, wr_range *range)
{
    const weir_status status = wr_source_map(cache, range);
    if (status != WEIR_ERR_NOT_SUPPORTED && status != WEIR_ERR_INVALID_ARGUMENT) return status;
    return wr_fail(WEIR_ERR_INVALID_ARGUMENT,
                   "weir_import: what is behind descriptor %d cannot be mapped as a segment of %zu bytes; give the "
                   "segment_bytes that weir_export() gave with the descriptor",
                   descriptor, range->bytes);
}

static weir_status map_import(wr_cache *cache, int descriptor, wr_range *range)
{
    const weir_backend *backend = cache->backend;
    WR_TRY(wr_driver(backend, vm_import, cache->device, descriptor, range->bytes, &range->chunk));
    weir_status status = wr_driver(backend, vm_reserve, cache->device, range->bytes, 0, &range->base);
    if (status == WEIR_OK) {
        status = map_whole(cache, descriptor, range);
        if (status != WEIR_OK) wr_clean_up(wr_driver(backend, vm_release, cache->device, range->base, range->bytes));
    }
    if (status != WEIR_OK) wr_clean_up(wr_driver(backend, vm_destroy, cache->device, range->chunk, range->bytes));
    return status;
}

static void add_import(wr_cache *cache, wr_import *import)
{
    wr_cache_lock(cache);
    import->next = cache->imports;
    cache->imports = import;
    wr_cache_unlock(cache);
}

weir_status wr_share_import(wr_cache *cache, int descriptor, size_t bytes, void **base)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_import), "import", &made));
    wr_import *import = made;
    import->range = (wr_range){ .bytes = bytes, .backing = WR_UNMAPPED };
    wr_lock_acquire(&cache->move_lock);
    weir_status status = map_import(cache, descriptor, &import->range);
    if (status == WEIR_OK) {
        add_import(cache, import);
        *base = import->range.base;
    }
    wr_lock_release(&cache->move_lock);
    if (status != WEIR_OK) wr_meta_free(import);
    return status;
}

static wr_import *take_out(wr_cache *cache, const void *base)
{
    wr_cache_lock(cache);
    wr_import **link = &cache->imports;
    while (*link && (*link)->range.base != base) link = &(*link)->next;
    wr_import *import = *link;
    if (import) *link = import->next;
    wr_cache_unlock(cache);
    return import;
}

weir_status wr_share_close(wr_cache *cache, const void *base, bool *found)
{
    weir_status status = WEIR_OK;
    wr_lock_acquire(&cache->move_lock);
    wr_import *import = take_out(cache, base);
    *found = import != NULL;
    if (import) {
        status = wr_source_drop(cache, &import->range);
        if (status == WEIR_OK)
            wr_meta_free(import);
        else
            add_import(cache, import);
    }
    wr_lock_release(&cache->move_lock);
    return status;
}

weir_status wr_share_release(wr_cache *cache)
{
    weir_status first = WEIR_OK;
    while (cache->imports) {
        wr_import *import = cache->imports;
        cache->imports = import->next;
        wr_keep_first(&first, wr_source_drop(cache, &import->range));
        wr_meta_free(import);
    }
    return first;
}
