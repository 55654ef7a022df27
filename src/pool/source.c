#include "pool/source.h"

#include "base/log.h"
#include "pool/cache.h"
#include "pool/locked.h"

static weir_status map_chunk(const weir_backend *backend, int device, weir_memory_kind kind, wr_range *range)
{
    WR_TRY(kind == WEIR_MEMORY_EXPORTABLE
               ? wr_driver(backend, vm_create_exportable, device, range->bytes, &range->chunk)
               : wr_driver(backend, vm_create, device, range->bytes, &range->chunk));
    weir_status status = wr_driver(backend, vm_map, device, range->base, range->bytes, range->chunk);
    if (status == WEIR_OK) {
        status = wr_driver(backend, vm_access, device, range->base, range->bytes, device);
        if (status != WEIR_OK) (void)wr_driver(backend, vm_unmap, device, range->base, range->bytes);
    }
    if (status != WEIR_OK) (void)wr_driver(backend, vm_destroy, device, range->chunk, range->bytes);
    return status;
}

static weir_status take_mapped(const weir_backend *backend, int device, weir_memory_kind kind, wr_range *range)
{
    WR_TRY(wr_driver(backend, vm_reserve, device, range->bytes, 0, &range->base));
    weir_status status = map_chunk(backend, device, kind, range);
    if (status != WEIR_OK) (void)wr_driver(backend, vm_release, device, range->base, range->bytes);
    return status;
}

/* In the order that leaves the range usable when a step fails: a chunk lives on while it is mapped. */
static weir_status give_mapped(const weir_backend *backend, int device, wr_range *range)
{
    if (range->chunk) WR_TRY(wr_driver(backend, vm_destroy, device, range->chunk, range->bytes));
    range->chunk = 0;
    WR_TRY(wr_driver(backend, vm_unmap, device, range->base, range->bytes));
    if (wr_driver(backend, vm_release, device, range->base, range->bytes) != WEIR_OK)
        wr_log(WR_LOG_WARN, "device %d: %zu bytes of addresses at %p stay reserved", device, range->bytes, range->base);
    return WEIR_OK;
}

/* The streams of the cache of host memory are the places where it can lie. */
static int node_of(const wr_mempool *pool, const wr_stream *stream)
{
    return wr_cache_is_host(pool->cache) ? (int)stream->index - 1 : WR_LOCKED_ANYWHERE;
}

static weir_status take_own(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    const weir_backend *backend = pool->cache->backend;
    const int device = stream->device;
    switch (pool->rules.memory) {
    case WEIR_MEMORY_MAPPED:
    case WEIR_MEMORY_EXPORTABLE: return take_mapped(backend, device, pool->rules.memory, range);
    case WEIR_MEMORY_MANAGED: return wr_driver(backend, managed_alloc, device, range->bytes, &range->base);
    case WEIR_MEMORY_PINNED: return wr_locked_take(backend, device, node_of(pool, stream), range);
    default: return wr_driver(backend, segment_alloc, device, range->bytes, &range->base);
    }
}

static weir_status give_own(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    const weir_backend *backend = pool->cache->backend;
    const int device = stream->device;
    switch (pool->rules.memory) {
    case WEIR_MEMORY_MAPPED:
    case WEIR_MEMORY_EXPORTABLE: return give_mapped(backend, device, range);
    case WEIR_MEMORY_MANAGED: return wr_driver(backend, managed_free, device, range->base, range->bytes);
    case WEIR_MEMORY_PINNED: return wr_locked_give(backend, device, range);
    default: return wr_driver(backend, segment_free, device, range->base, range->bytes);
    }
}

static weir_status give(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    if (!pool->source.alloc) return give_own(pool, stream, range);
    return pool->source.free(pool->source.user, range->base, range->bytes, pool->cache->device, stream->native);
}

static weir_status take_from_program(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    const size_t alignment = pool->rules.alignment > 512 ? pool->rules.alignment : 512;
    weir_status status =
        pool->source.alloc(pool->source.user, range->bytes, pool->cache->device, stream->native, &range->base);
    if (status == WEIR_OK && !range->base) status = WEIR_ERR_OUT_OF_MEMORY;
    if (status != WEIR_OK)
        return wr_fail(status, "the segment source of memory pool " WR_MEMPOOL_FORMAT " gave no %zu bytes: %s",
                       WR_MEMPOOL_ARGUMENTS(pool->name), range->bytes, weir_status_text(status));
    if ((uintptr_t)range->base % alignment == 0) return WEIR_OK;
    status =
        wr_fail(WEIR_ERR_INVALID_ARGUMENT,
                "the segment source of memory pool " WR_MEMPOOL_FORMAT " gave %p, which is not aligned to %zu bytes",
                WR_MEMPOOL_ARGUMENTS(pool->name), range->base, alignment);
    (void)give(pool, stream, range);
    return status;
}

static bool tell(const wr_mempool *pool, weir_range_change change, const wr_range *range)
{
    if (!pool->rules.range_changed) return true;
    return pool->rules.range_changed(pool->rules.range_user, change, range->base, range->bytes, pool->cache->device);
}

weir_status wr_source_take(const wr_mempool *pool, const wr_stream *stream, size_t bytes, wr_range *out)
{
    wr_range range = { .bytes = bytes };
    WR_TRY(pool->source.alloc ? take_from_program(pool, stream, &range) : take_own(pool, stream, &range));
    if (tell(pool, WEIR_RANGE_ADDED, &range)) {
        *out = range;
        return WEIR_OK;
    }
    (void)give(pool, stream, &range);
    return wr_fail(WEIR_ERR_BUSY,
                   "the program refused %zu bytes at %p for memory pool " WR_MEMPOOL_FORMAT " (range_changed)", bytes,
                   range.base, WR_MEMPOOL_ARGUMENTS(pool->name));
}

weir_status wr_source_give(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    (void)tell(pool, WEIR_RANGE_LEAVING, range);
    weir_status status = give(pool, stream, range);
    if (status != WEIR_OK) (void)tell(pool, WEIR_RANGE_ADDED, range);
    return status;
}

void wr_source_abandon(const wr_mempool *pool, const wr_range *range)
{
    const bool own = !pool->source.alloc;
    if (own && pool->rules.memory == WEIR_MEMORY_PINNED) wr_locked_abandon(pool->cache->backend, range);
}

weir_status wr_source_check(const weir_backend *backend, int device, weir_memory_kind kind)
{
    const bool mapped = kind == WEIR_MEMORY_MAPPED || kind == WEIR_MEMORY_EXPORTABLE;
    WR_ENSURE(kind >= WEIR_MEMORY_DEVICE && kind <= WEIR_MEMORY_PINNED, WEIR_ERR_INVALID_ARGUMENT,
              "memory pool: %d is no kind of memory", (int)kind);
    WR_ENSURE(!mapped || backend->vm_reserve, WEIR_ERR_NOT_SUPPORTED,
              "device %d (%s) has no virtual memory to map: use WEIR_MEMORY_DEVICE", device, backend->name);
    WR_ENSURE(kind != WEIR_MEMORY_EXPORTABLE || backend->vm_create_exportable, WEIR_ERR_NOT_SUPPORTED,
              "device %d (%s) cannot share memory with other processes", device, backend->name);
    WR_ENSURE(kind != WEIR_MEMORY_MANAGED || backend->managed_alloc, WEIR_ERR_NOT_SUPPORTED,
              "device %d (%s) has no managed memory", device, backend->name);
    return WEIR_OK;
}
