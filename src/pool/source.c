#include "pool/source.h"

#include "base/log.h"
#include "pool/address.h"
#include "pool/cache.h"
#include "pool/page_locked.h"

#include <stdio.h>

/* ---- mapped memory ----------------------------------------------------------------------------------------------- */

/* An accessor that was lost needs no access, and is no reason to fail. Asking for the device itself tells which was
 * lost. */
static weir_status give_access(const wr_cache *cache, const wr_range *range, int accessor)
{
    const weir_backend *backend = cache->backend;
    weir_status status = wr_driver(backend, vm_access, cache->device, range->base, range->bytes, accessor);
    if (status != WEIR_ERR_DEVICE_LOST) return status;
    return wr_driver(backend, vm_access, cache->device, range->base, range->bytes, cache->device);
}

weir_status wr_source_share(const wr_cache *cache, wr_range *range, uint64_t accessors)
{
    for (int i = 0; i < 64 && accessors >> i != 0; i++)
        if (accessors >> i & 1) WR_TRY(give_access(cache, range, i));
    range->accessors |= accessors;
    return WEIR_OK;
}

weir_status wr_source_reach(const wr_cache *cache, wr_range *range)
{
    WR_TRY(wr_driver(cache->backend, vm_access, cache->device, range->base, range->bytes, cache->device));
    return wr_source_share(cache, range, atomic_load(&cache->accessors));
}

weir_status wr_source_map(const wr_cache *cache, wr_range *range)
{
    const weir_backend *backend = cache->backend;
    const bool mapped = range->backing == WR_UNREACHED;
    if (!mapped) WR_TRY(wr_driver(backend, vm_map, cache->device, range->base, range->bytes, range->chunk));
    const weir_status status = wr_source_reach(cache, range);
    if (status == WEIR_OK) {
        range->backing = WR_BACKED;
        return WEIR_OK;
    }
    weir_status undone = WEIR_OK;
    wr_clean_up(undone = wr_driver(backend, vm_unmap, cache->device, range->base, range->bytes));
    if (mapped) range->backing = WR_UNMAPPED;
    if (undone != WEIR_OK) range->backing = WR_UNREACHED;
    return status;
}

weir_status wr_source_back(const wr_mempool *pool, wr_range *range)
{
    const weir_backend *backend = pool->cache->backend;
    const int device = pool->cache->device;
    if (range->backing == WR_UNBACKED)
        WR_TRY(pool->rules.memory == WEIR_MEMORY_EXPORTABLE
                   ? wr_driver(backend, vm_create_exportable, device, range->bytes, &range->chunk)
                   : wr_driver(backend, vm_create, device, range->bytes, &range->chunk));
    weir_status status = wr_source_map(pool->cache, range);
    if (status != WEIR_OK && range->backing == WR_UNBACKED) {
        weir_status undone = WEIR_OK;
        wr_clean_up(undone = wr_driver(backend, vm_destroy, device, range->chunk, range->bytes));
        if (undone != WEIR_OK) wr_cache_lose(pool->cache, range->bytes);
        range->chunk = 0;
    }
    return status;
}

static weir_status take_mapped(const wr_mempool *pool, wr_range *range)
{
    const wr_cache *cache = pool->cache;
    WR_TRY(wr_driver(cache->backend, vm_reserve, cache->device, range->bytes, 0, &range->base));
    weir_status status = wr_source_back(pool, range);
    if (status == WEIR_OK) return WEIR_OK;
    if (range->backing == WR_UNREACHED)
        wr_cache_lose(pool->cache, range->bytes); /* with their addresses */
    else
        wr_clean_up(wr_driver(cache->backend, vm_release, cache->device, range->base, range->bytes));
    return status;
}

static void warn_lost(const wr_cache *cache, const wr_range *range)
{
    wr_log(WR_LOG_WARN, "device %d: %zu bytes at %p could not be given back to the driver: %s", cache->device,
           range->bytes, range->base, weir_error_text());
}

weir_status wr_source_unback(const wr_cache *cache, wr_range *range)
{
    const weir_backend *backend = cache->backend;
    const int device = cache->device;
    weir_status status = WEIR_OK;
    if (range->backing == WR_BACKED || range->backing == WR_UNREACHED)
        WR_TRY(wr_driver(backend, vm_unmap, device, range->base, range->bytes));
    if (range->backing != WR_UNBACKED) status = wr_driver(backend, vm_destroy, device, range->chunk, range->bytes);
    if (status != WEIR_OK) {
        wr_range again = *range;
        again.backing = WR_UNMAPPED;
        if (range->backing == WR_UNMAPPED || wr_source_map(cache, &again) == WEIR_OK) return status;
        range->lost = true;
        warn_lost(cache, range);
    }
    range->backing = WR_UNBACKED;
    return WEIR_OK;
}

/* Takes back memory and addresses, or fails with the range as before. Once the memory is gone, so are the addresses,
 * even if the driver does not take them back: nobody can use them. */
static weir_status drop(const wr_cache *cache, wr_range *range)
{
    WR_TRY(wr_source_unback(cache, range));
    if (range->lost) return WEIR_OK;
    const weir_status status = wr_driver(cache->backend, vm_release, cache->device, range->base, range->bytes);
    if (status != WEIR_OK) warn_lost(cache, range);
    return WEIR_OK;
}

/* ---- taking and giving ------------------------------------------------------------------------------------------- */

/* The streams of the host memory's cache stand for the places (NUMA nodes) where memory can lie. */
static int node_of(const wr_mempool *pool, const wr_stream *stream)
{
    return wr_cache_is_host(pool->cache) ? (int)stream->index - 1 : WR_PAGE_LOCKED_ANYWHERE;
}

static weir_status take_own(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    const weir_backend *backend = pool->cache->backend;
    const int device = stream->device;
    switch (pool->rules.memory) {
    case WEIR_MEMORY_MAPPED:
    case WEIR_MEMORY_EXPORTABLE: return take_mapped(pool, range);
    case WEIR_MEMORY_MANAGED: return wr_driver(backend, managed_alloc, device, range->bytes, &range->base);
    case WEIR_MEMORY_PINNED: return wr_page_locked_take(backend, device, node_of(pool, stream), range);
    default: return wr_driver(backend, segment_alloc, device, range->bytes, &range->base);
    }
}

static weir_status give_mapped(const wr_mempool *pool, wr_range *range)
{
    weir_status status = drop(pool->cache, range);
    if (range->lost) wr_cache_lose(pool->cache, range->bytes);
    return status;
}

static weir_status give_own(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    const weir_backend *backend = pool->cache->backend;
    const int device = stream->device;
    switch (pool->rules.memory) {
    case WEIR_MEMORY_MAPPED:
    case WEIR_MEMORY_EXPORTABLE: return give_mapped(pool, range);
    case WEIR_MEMORY_MANAGED: return wr_driver(backend, managed_free, device, range->base, range->bytes);
    case WEIR_MEMORY_PINNED: return wr_page_locked_give(backend, device, range);
    default: return wr_driver(backend, segment_free, device, range->base, range->bytes);
    }
}

/* What a program's function returned in failing may be no status, or one that would mislead the caller. */
static weir_status failure_of_program(weir_status status)
{
    switch (status) {
    case WEIR_ERR_POOL_MISMATCH:
    case WEIR_ERR_NOT_READY:
    case WEIR_ERR_CAPTURE:
    case WEIR_ERR_BUSY: return WEIR_ERR_DRIVER;
    default: return wr_status_is_error(status) ? status : WEIR_ERR_DRIVER;
    }
}

/* The program's functions call the driver: for the device, and perhaps while a capture is underway. If the device is
 * lost, the program gets its memory back all the same. */
static weir_status give_to_program(const wr_mempool *pool, const wr_stream *stream, const wr_range *range)
{
    const wr_cache *cache = pool->cache;
    weir_backend_scope scope;
    weir_status entered = WEIR_OK;
    wr_clean_up(entered = wr_backend_scope_enter(cache->backend, cache->device, &scope));
    const weir_status status =
        pool->source.free(pool->source.user, range->base, range->bytes, cache->device, stream->native);
    if (entered == WEIR_OK) wr_backend_scope_leave(cache->backend, &scope);
    if (status == WEIR_OK) return WEIR_OK;
    const weir_status failure = status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_ERR_DRIVER : failure_of_program(status);
    return wr_fail(failure,
                   "the segment source of memory pool " WR_MEMPOOL_FORMAT " did not take back %zu bytes at %p: %s (%d)",
                   WR_MEMPOOL_ARGUMENTS(pool->name), range->bytes, range->base, weir_status_text(status), (int)status);
}

static weir_status give(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    return pool->source.alloc ? give_to_program(pool, stream, range) : give_own(pool, stream, range);
}

static weir_status take_from_program(const wr_mempool *pool, wr_stream *stream, wr_range *range)
{
    const wr_cache *cache = pool->cache;
    weir_backend_scope scope;
    WR_TRY(wr_backend_scope_enter(cache->backend, cache->device, &scope));
    weir_status status =
        pool->source.alloc(pool->source.user, range->bytes, cache->device, stream->native, &range->base);
    wr_backend_scope_leave(cache->backend, &scope);
    wr_stream_note_queued(stream);
    if (status == WEIR_OK && !range->base) status = WEIR_ERR_OUT_OF_MEMORY;
    if (status == WEIR_OK) return WEIR_OK;
    return wr_fail(failure_of_program(status),
                   "the segment source of memory pool " WR_MEMPOOL_FORMAT " did not give %zu bytes: %s (%d)",
                   WR_MEMPOOL_ARGUMENTS(pool->name), range->bytes, weir_status_text(status), (int)status);
}

static weir_status check_alignment(const wr_mempool *pool, const wr_range *range)
{
    const size_t alignment = pool->rules.alignment > 512 ? pool->rules.alignment : 512;
    WR_ENSURE((uintptr_t)range->base % alignment == 0,
              pool->source.alloc ? WEIR_ERR_INVALID_ARGUMENT : WEIR_ERR_NOT_SUPPORTED,
              "the %s of memory pool " WR_MEMPOOL_FORMAT " gave %p, which is not aligned to %zu bytes",
              pool->source.alloc ? "segment source" : "driver", WR_MEMPOOL_ARGUMENTS(pool->name), range->base,
              alignment);
    return WEIR_OK;
}

weir_status wr_source_tell(const wr_mempool *pool, weir_range_change change, const wr_range *range)
{
    if (!pool->rules.range_changed) return WEIR_OK;
    const bool accepted =
        pool->rules.range_changed(pool->rules.range_user, change, range->base, range->bytes, pool->cache->device);
    WR_ENSURE(accepted || change != WEIR_RANGE_ADDED, WEIR_ERR_BUSY,
              "the program refused %zu bytes at %p for memory pool " WR_MEMPOOL_FORMAT " (range_changed)", range->bytes,
              range->base, WR_MEMPOOL_ARGUMENTS(pool->name));
    return WEIR_OK;
}

enum { TEXT_MAX = 512 }; /* of an error text that another one follows */

/* Memory that is not taken back, and that no segment is to keep, is lost. The earlier failure remains the one
 * reported. */
static weir_status lose(const wr_mempool *pool, const wr_range *range, weir_status why, const char *text)
{
    wr_log(WR_LOG_WARN, "%s: %zu bytes at %p of memory pool " WR_MEMPOOL_FORMAT " are lost: %s", pool->cache->name,
           range->bytes, range->base, WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)), weir_error_text());
    wr_cache_lose(pool->cache, wr_mempool_limited_of(pool, range->bytes));
    return wr_fail(why, "%s; after that, %s, so that %zu bytes are lost", text, weir_error_text(), range->bytes);
}

/* While the driver or the program was asked, the request's stream may have ended: then its native one is no more. */
static weir_status give_on_living(const wr_request *request, wr_range *range)
{
    const wr_cache *cache = request->pool->cache;
    if (wr_cache_is_host(cache)) return give(request->pool, request->stream, range);
    wr_stream *held = wr_stream_hold(cache->streams, request->stream_id);
    const weir_status status = give(request->pool, held ? held : wr_stream_default_of(cache->streams), range);
    wr_stream_let_go(held);
    return status;
}

static weir_status give_unused(const wr_request *request, wr_range *range, weir_status why)
{
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "%s", weir_error_text());
    return give_on_living(request, range) == WEIR_OK ? why : lose(request->pool, range, why, text);
}

weir_status wr_source_take(const wr_request *request, wr_range *out)
{
    const wr_mempool *pool = request->pool;
    wr_range range = { .bytes = request->fit.segment_bytes, .backing = WR_UNBACKED };
    WR_TRY(pool->source.alloc ? take_from_program(pool, request->stream, &range)
                              : take_own(pool, request->stream, &range));
    range.backing = WR_BACKED;
    weir_status status = check_alignment(pool, &range);
    /* Of memory that somebody owns nobody is told: what is done as it leaves would be done to the owner's. */
    if (status == WEIR_OK) status = wr_address_check(range.base, range.bytes);
    if (status == WEIR_OK) status = wr_source_tell(pool, WEIR_RANGE_ADDED, &range);
    if (status != WEIR_OK) return give_unused(request, &range, status);
    *out = range;
    return WEIR_OK;
}

weir_status wr_source_give_unused(const wr_request *request, wr_range *range, weir_status why)
{
    (void)wr_source_tell(request->pool, WEIR_RANGE_LEAVING, range);
    return give_unused(request, range, why);
}

weir_status wr_source_give(const wr_mempool *pool, const wr_stream *stream, wr_range *range)
{
    if (range->copy)
        WR_TRY(wr_driver(pool->cache->backend, pinned_free, pool->cache->device, range->copy, range->copy_bytes));
    range->copy = NULL;
    if (!range->left) (void)wr_source_tell(pool, WEIR_RANGE_LEAVING, range);
    const weir_status status = give(pool, stream, range);
    if (status == WEIR_OK || range->left) return status;
    char text[TEXT_MAX];
    snprintf(text, sizeof text, "%s", weir_error_text());
    range->lost = wr_source_tell(pool, WEIR_RANGE_ADDED, range) != WEIR_OK;
    return range->lost ? lose(pool, range, status, text) : status;
}

void wr_source_abandon(const wr_mempool *pool, const wr_range *range)
{
    const bool own = !pool->source.alloc;
    if (own && pool->rules.memory == WEIR_MEMORY_PINNED) wr_page_locked_abandon(range);
}

weir_status wr_source_check(const weir_backend *backend, int device, weir_memory_kind kind)
{
    const bool mapped = kind == WEIR_MEMORY_MAPPED || kind == WEIR_MEMORY_EXPORTABLE;
    WR_ENSURE(kind >= WEIR_MEMORY_DEVICE && kind <= WEIR_MEMORY_PINNED, WEIR_ERR_INVALID_ARGUMENT,
              "memory pool: memory %d is not a value of enum weir_memory_kind", (int)kind);
    WR_ENSURE(!mapped || backend->vm_reserve, WEIR_ERR_NOT_SUPPORTED,
              "device %d (%s) has no virtual memory to map; use WEIR_MEMORY_DEVICE", device, backend->name);
    WR_ENSURE(kind != WEIR_MEMORY_EXPORTABLE || backend->vm_create_exportable, WEIR_ERR_NOT_SUPPORTED,
              "device %d (%s) cannot share memory with other processes", device, backend->name);
    WR_ENSURE(kind != WEIR_MEMORY_MANAGED || backend->managed_alloc, WEIR_ERR_NOT_SUPPORTED,
              "device %d (%s) has no managed memory", device, backend->name);
    return WEIR_OK;
}
