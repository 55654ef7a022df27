#include "pool/report/sample.h"

#include "base/meta.h"
#include "pool/account.h"
#include "pool/bin.h"
#include "pool/chunk/chunk.h"
#include "pool/count.h"

#include <stdio.h>

static void add_free(wr_bin *bin, weir_stream_stats *out)
{
    const wr_block *largest = wr_bin_largest(bin);
    if (largest && largest->bytes > out->largest_free_bytes) out->largest_free_bytes = largest->bytes;
    out->free += bin->free.blocks;
    out->free_bytes += bin->free.bytes;
}

/* In a region, the stream has parts of chunks. */
static void add_memory(const wr_segment *segment, weir_stream_stats *out)
{
    const wr_region *region = segment->region;
    if (!region) {
        out->segments++;
        out->reserved_bytes += wr_segment_held(segment);
    }
    for (uint32_t i = 0; region && i < region->count; i++) {
        const wr_slot *slot = region->slots[i].slot;
        out->segments += !wr_slot_is_stale(slot);
        out->reserved_bytes += slot->to - slot->from;
    }
}

static void add_bin(wr_bin *bin, weir_stream_stats *out)
{
    for (const wr_segment *s = bin->segments; s; s = s->next) add_memory(s, out);
    add_free(bin, out);
}

/* The fronts are closed, so what the account has as live is. Blocks that are held while chunks change places are
 * nobody's. */
static void add_account(const wr_account *account, weir_stream_stats *out)
{
    out->live = (uint64_t)account->blocks.current;
    out->live_bytes = (uint64_t)account->bytes.current;
    out->live_peak = (uint64_t)account->blocks.peak;
    out->live_bytes_peak = (uint64_t)account->bytes.peak;
    out->pending = account->pending;
    out->pending_bytes = account->pending_bytes;
    out->allocations = (uint64_t)account->blocks.added;
    out->allocations_bytes = (uint64_t)account->bytes.added;
}

/* Segments about which the driver is being asked are idle, and still reserved. */
static void add_hidden(const wr_segment *segment, weir_stream_stats *out)
{
    add_memory(segment, out);
    out->free++;
    out->free_bytes += segment->first->bytes;
}

static void sample_stream_locked(wr_cache *cache, const wr_stream *stream, weir_stream_stats *out)
{
    const wr_account *account = wr_account_locked(cache, stream->index);
    if (!account) return; /* nothing was ever allocated on it */
    add_account(account, out);
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
        for (int class = WR_SMALL; class < WR_BINS; class ++) {
            wr_bin *bin = wr_mempool_bin(pool, stream, class);
            if (bin) add_bin(bin, out);
        }
    const wr_segment *hidden;
    LIST_FOREACH(hidden, &cache->hidden_list, in_hidden)
        if (hidden->bin->stream == stream) add_hidden(hidden, out);
}

void wr_sample_stream(wr_cache *cache, const wr_stream *stream, weir_stream_stats *out)
{
    weir_stream_stats stats = { 0 };
    wr_fronts_close_and_lock(cache);
    sample_stream_locked(cache, stream, &stats);
    wr_fronts_unlock_and_open(cache);
    *out = stats;
}

static weir_status add_stream_rows(const wr_cache *cache, const weir_stream_stats *of, wr_rows *rows)
{
    for (uint32_t index = 0; index < cache->account_capacity; index++) {
        const wr_account *account = wr_account_locked(cache, index);
        wr_row *row = NULL;
        if (!account || of[index].segments == 0) continue;
        WR_TRY(wr_rows_add(rows, WR_SCOPE_STREAM, cache->device, &row));
        snprintf(row->name, sizeof row->name, "%#llx", (unsigned long long)(uintptr_t)account->stream->native);
        row->of.stream = of[index];
        row->of.stream.size = sizeof row->of.stream;
        add_account(account, &row->of.stream);
    }
    return WEIR_OK;
}

/* By bins, not by streams: each stream would be looked for in each pool. */
static weir_status sample_streams_locked(const wr_cache *cache, wr_rows *rows)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc((cache->account_capacity + 1) * sizeof(weir_stream_stats), "statistics of streams", &made));
    weir_stream_stats *of = made; /* by the stream's index */
    for (const wr_mempool *pool = cache->pools; pool; pool = pool->next)
        for (wr_bin *bin = pool->first_bin; bin; bin = bin->next) add_bin(bin, &of[bin->stream->index]);
    const wr_segment *hidden;
    LIST_FOREACH(hidden, &cache->hidden_list, in_hidden) add_hidden(hidden, &of[hidden->bin->stream->index]);
    weir_status status = add_stream_rows(cache, of, rows);
    wr_meta_free(made);
    return status;
}

static weir_status sample_pools_locked(const wr_cache *cache, wr_rows *rows)
{
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next) {
        wr_row *row = NULL;
        WR_TRY(wr_rows_add(rows, WR_SCOPE_POOL, cache->device, &row));
        snprintf(row->name, sizeof row->name, WR_MEMPOOL_FORMAT, WR_MEMPOOL_ARGUMENTS(wr_mempool_name_of(pool)));
        snprintf(row->tag, sizeof row->tag, "%s", pool->rules.tag);
        row->of.memory = *wr_pool_stats_locked(pool);
    }
    return WEIR_OK;
}

weir_status wr_sample_cache_locked(wr_cache *cache, wr_scope scope, wr_rows *rows)
{
    wr_row *row = NULL;
    WR_TRY(wr_rows_add(rows, scope, cache->device, &row));
    row->of.memory = *wr_stats_locked(cache);
    if (wr_cache_is_host(cache)) return WEIR_OK;
    WR_TRY(sample_pools_locked(cache, rows));
    return sample_streams_locked(cache, rows);
}

weir_status wr_sample_cache(wr_cache *cache, wr_scope scope, wr_rows *rows)
{
    wr_fronts_close_and_lock(cache);
    weir_status status = wr_sample_cache_locked(cache, scope, rows);
    wr_fronts_unlock_and_open(cache);
    return status;
}

uint64_t wr_sample_device_bytes(wr_cache *cache)
{
    wr_cache_lock(cache);
    const uint64_t bytes = wr_cache_limited_locked(cache);
    wr_cache_unlock(cache);
    return bytes;
}
