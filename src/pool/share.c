#include "pool/share.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "base/meta.h"
#include "pool/chunk/chunk.h"
#include "pool/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Its parts lie in one reserved range, in a row. */
struct wr_import {
    wr_import *next;
    void *base;
    size_t bytes, count;
    wr_range parts[];
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
    for (wr_import *i = cache->imports; i; i = i->next)
        for (size_t n = 0; n < i->count; n++)
            if (i->parts[n].backing == WR_BACKED) WR_TRY(wr_source_share(cache, &i->parts[n], bit));
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

static weir_status check_export_locked(const wr_segment *segment, const void *pointer, wr_block **block)
{
    const weir_backend *backend = segment->cache->backend;
    WR_TRY(wr_cache_live_block_locked(segment, pointer, block));
    const wr_mempool *pool = segment->bin->pool;
    WR_ENSURE(backend->vm_export, WEIR_ERR_NOT_SUPPORTED, "%p cannot be exported: device %d (%s) cannot share memory",
              pointer, segment->cache->device, backend->name);
    WR_ENSURE(
        segment->region || wr_source_maps(pool), WEIR_ERR_NOT_SUPPORTED,
        "%p is in memory that is not mapped, so no other process can import it; allocate it from a memory pool of "
        "WEIR_MEMORY_EXPORTABLE",
        pointer);
    WR_ENSURE(!pool->paused, WEIR_ERR_BUSY,
              "%p is in memory pool " WR_MEMPOOL_FORMAT ", which is paused; call weir_resume() first", pointer,
              WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
    return WEIR_OK;
}

/* The physical memory behind a block: its chunks or, `count` being 1, what all of its segment consists of. */
typedef struct extent {
    const wr_segment *segment;
    uint32_t first, count; /* slots */
    uint64_t offset;       /* of the pointer in the first */
} extent;

static weir_status find_extent(const wr_segment *segment, const void *pointer, extent *out)
{
    wr_block *block = NULL;
    const uint64_t offset = (uint64_t)((const char *)pointer - segment->base);
    *out = (extent){ .segment = segment, .count = 1, .offset = offset };
    wr_cache_lock(segment->cache);
    const weir_status status = check_export_locked(segment, pointer, &block);
    if (status == WEIR_OK && segment->region) {
        const wr_region *region = segment->region;
        const size_t end = (size_t)(block->base - segment->base) + block->bytes;
        out->first = wr_block_first_slot(block);
        out->count = wr_region_find(region, end - 1) + 1 - out->first;
        out->offset = offset - region->slots[out->first].at;
    }
    wr_cache_unlock(segment->cache);
    return status;
}

/* Making a descriptor takes the driver half a millisecond, and closing the last one of a chunk as long again. So the
 * chunks that were exported first keep theirs: few on all devices together, since a process may have no more than
 * 1,024. */
enum { EXPORTS_KEPT = 256 };
static atomic_int exports_kept;
static atomic_int kept_descriptors[EXPORTS_KEPT]; /* 0: none */

static void replace_kept(int from, int to)
{
    for (int i = 0; i < EXPORTS_KEPT; i++) {
        int expected = from;
        if (atomic_compare_exchange_strong(&kept_descriptors[i], &expected, to)) return;
    }
}

static int keep(int descriptor)
{
    int kept = -1;
    if (atomic_fetch_add(&exports_kept, 1) < EXPORTS_KEPT)
        kept = fcntl(descriptor, F_DUPFD_CLOEXEC, WR_DESCRIPTOR_LEAST);
    if (kept < 0)
        atomic_fetch_sub(&exports_kept, 1);
    else
        replace_kept(0, kept);
    return kept;
}

/* The child's copies would keep memory that the parent gives back. */
void wr_share_forked(void)
{
    for (int i = 0; i < EXPORTS_KEPT; i++) {
        const int descriptor = atomic_exchange(&kept_descriptors[i], 0);
        if (descriptor) close(descriptor);
    }
}

static weir_status no_descriptor(int error)
{
    return wr_fail(WEIR_ERR_OUT_OF_HOST_MEMORY,
                   "weir_export: no more file descriptors: %s; close some or raise the limit (ulimit -n)",
                   strerror(error));
}

static weir_status export_again(const wr_chunk *chunk, int *out)
{
    *out = fcntl(chunk->descriptor, F_DUPFD_CLOEXEC, WR_DESCRIPTOR_LEAST);
    return *out >= 0 ? WEIR_OK : no_descriptor(errno);
}

/* A driver has no code of its own for having no descriptor. */
static weir_status export_anew(const wr_cache *cache, weir_chunk chunk, int *out)
{
    const weir_status status = wr_driver(cache->backend, vm_export, cache->device, chunk, out);
    if (status == WEIR_OK || status == WEIR_ERR_DEVICE_LOST) return status;
    const int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (spare < 0 && (errno == EMFILE || errno == ENFILE)) return no_descriptor(errno);
    if (spare >= 0) close(spare);
    return status;
}

static weir_status export_chunk(const wr_cache *cache, wr_chunk *chunk, int *out)
{
    if (chunk->descriptor) return export_again(chunk, out);
    WR_TRY(export_anew(cache, chunk->handle, out));
    const int kept = keep(*out);
    if (kept >= 0) chunk->descriptor = kept;
    return WEIR_OK;
}

void wr_share_end_export(wr_chunk *chunk)
{
    if (!chunk->descriptor) return;
    replace_kept(chunk->descriptor, 0); /* first: a child may be forked in between, when it may be another file's */
    close(chunk->descriptor);
    chunk->descriptor = 0;
    atomic_fetch_sub(&exports_kept, 1);
}

static weir_status export_part(const extent *e, size_t index, weir_export_part *out)
{
    const wr_cache *cache = e->segment->cache;
    wr_chunk *chunk = e->segment->region ? e->segment->region->slots[e->first + index].slot->chunk : NULL;
    int made = -1;
    WR_TRY(chunk ? export_chunk(cache, chunk, &made) : export_anew(cache, e->segment->chunk, &made));
    *out = (weir_export_part){ .bytes = chunk ? chunk->bytes : e->segment->bytes, .descriptor = made };
    return WEIR_OK;
}

static weir_status export_parts(const extent *e, weir_export_part *parts)
{
    weir_status status = WEIR_OK;
    size_t made = 0;
    while (made < e->count && status == WEIR_OK) {
        status = export_part(e, made, &parts[made]);
        if (status == WEIR_OK) made++;
    }
    for (; status != WEIR_OK && made > 0; made--) close(parts[made - 1].descriptor);
    return status;
}

/* Whether there would be parts, if there were room for them. */
static weir_status try_export(const extent *e)
{
    weir_export_part first;
    WR_TRY(export_part(e, 0, &first));
    close(first.descriptor);
    return WEIR_OK;
}

weir_status wr_share_export(const wr_segment *segment, const void *pointer, weir_export_part *parts, size_t capacity,
                            size_t *count, uint64_t *offset)
{
    extent e;
    wr_lock *lock = &segment->cache->move_lock;
    wr_lock_acquire(lock); /* the memory stays, and stays where it is */
    weir_status status = find_extent(segment, pointer, &e);
    if (status == WEIR_OK) status = e.count <= capacity ? export_parts(&e, parts) : try_export(&e);
    wr_lock_release(lock);
    if (status != WEIR_OK) return status;
    *count = e.count;
    *offset = e.offset;
    return WEIR_OK;
}

/* CUDA does not tell the size of what it imported, but refuses to map another. */
static weir_status map_part(const wr_cache *cache, int descriptor, wr_range *range)
{
    const weir_backend *backend = cache->backend;
    const int device = cache->device;
    WR_TRY(wr_driver(backend, vm_import, device, descriptor, range->bytes, &range->chunk));
    range->backing = WR_UNMAPPED;
    const weir_status status = wr_driver(backend, vm_map, device, range->base, range->bytes, range->chunk);
    if (status == WEIR_OK) range->backing = WR_UNREACHED;
    if (status != WEIR_ERR_NOT_SUPPORTED && status != WEIR_ERR_INVALID_ARGUMENT) return status;
    return wr_fail(WEIR_ERR_INVALID_ARGUMENT,
                   "weir_import: what is behind descriptor %d cannot be mapped as %zu bytes; give the bytes that "
                   "weir_export() gave with the descriptor",
                   descriptor, range->bytes);
}

/* Access to all parts at once, since each call takes as long as importing a part. */
static weir_status reach_parts(const wr_cache *cache, wr_import *import)
{
    wr_range whole = { .base = import->base, .bytes = import->bytes };
    WR_TRY(wr_source_reach(cache, &whole));
    for (size_t i = 0; i < import->count; i++) import->parts[i].backing = WR_BACKED;
    return WEIR_OK;
}

static weir_status map_import(const wr_cache *cache, const weir_export_part *parts, wr_import *import)
{
    WR_TRY(wr_driver(cache->backend, vm_reserve, cache->device, import->bytes, 0, &import->base));
    char *base = import->base;
    for (size_t i = 0; i < import->count; i++) {
        import->parts[i].base = base;
        base += import->parts[i].bytes;
        WR_TRY(map_part(cache, parts[i].descriptor, &import->parts[i]));
    }
    return reach_parts(cache, import);
}

/* Takes back the parts that are left, then the addresses, unless something stays mapped there. Once the memory is gone
 * so are the addresses, even if the driver does not take them back: nobody can use them. */
static weir_status drop_import(const wr_cache *cache, wr_import *import)
{
    weir_status first = WEIR_OK;
    bool lost = !import->base;
    for (size_t i = 0; i < import->count; i++) {
        wr_keep_first(&first, wr_source_unback(cache, &import->parts[i]));
        lost |= import->parts[i].lost;
    }
    if (first != WEIR_OK || lost) return first;
    if (wr_driver(cache->backend, vm_release, cache->device, import->base, import->bytes) != WEIR_OK)
        wr_log(WR_LOG_WARN, "device %d: the addresses of an import, %p, could not be given back to the driver: %s",
               cache->device, import->base, weir_error_text());
    return WEIR_OK;
}

static void add_import(wr_cache *cache, wr_import *import)
{
    wr_cache_lock(cache);
    import->next = cache->imports;
    cache->imports = import;
    wr_cache_unlock(cache);
}

static weir_status new_import(const weir_export_part *parts, size_t count, wr_import **out)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_import) + count * sizeof(wr_range), "import", &made));
    wr_import *import = made;
    *import = (wr_import){ .count = count };
    for (size_t i = 0; i < count; i++) {
        import->parts[i] = (wr_range){ .bytes = (size_t)parts[i].bytes, .backing = WR_UNBACKED };
        import->bytes += (size_t)parts[i].bytes;
    }
    *out = import;
    return WEIR_OK;
}

weir_status wr_share_import(wr_cache *cache, const weir_export_part *parts, size_t count, void **base)
{
    wr_import *import = NULL;
    WR_TRY(new_import(parts, count, &import));
    wr_lock_acquire(&cache->move_lock);
    const weir_status status = map_import(cache, parts, import);
    weir_status dropped = WEIR_OK;
    if (status != WEIR_OK) wr_clean_up(dropped = drop_import(cache, import));
    const bool stays = status == WEIR_OK || dropped != WEIR_OK; /* what could not be dropped is when weir closes */
    if (stays) add_import(cache, import);
    if (status == WEIR_OK) *base = import->base;
    wr_lock_release(&cache->move_lock);
    if (!stays) wr_meta_free(import);
    return status;
}

static wr_import *take_out(wr_cache *cache, const void *base)
{
    wr_cache_lock(cache);
    wr_import **link = &cache->imports;
    while (*link && (*link)->base != base) link = &(*link)->next;
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
        status = drop_import(cache, import);
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
        wr_keep_first(&first, drop_import(cache, import));
        wr_meta_free(import);
    }
    return first;
}
