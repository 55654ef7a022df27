/*
 * Statistics as users see them: the numbers, and all of them as text.
 */
#include "base/sized.h"
#include "device/kinds.h"
#include "device/pinned.h"
#include "observe/stats_text.h"
#include "pool/account.h"
#include "pool/count.h"
#include "pool/report/sample.h"
#include "thread/thread.h"

#include <stdio.h>

/* NULL: it was never used. */
static void give_stats(wr_cache *cache, weir_memory_stats *out)
{
    weir_memory_stats stats = { 0 };
    if (cache) {
        wr_fronts_close_and_lock(cache);
        stats = *wr_stats_locked(cache);
        wr_fronts_unlock_and_open(cache);
    }
    wr_sized_give(out, &stats, sizeof stats);
}

weir_status weir_stats_get(int device, weir_memory_stats *out)
{
    wr_device *d = NULL;
    WR_TRY(wr_sized_check_out("weir_stats_get", "weir_memory_stats", out, sizeof *out));
    WR_TRY(wr_thread_look_up_device(device, &d));
    give_stats(d ? &d->cache : NULL, out);
    return WEIR_OK;
}

weir_status weir_pinned_stats_get(weir_memory_stats *out)
{
    WR_TRY(wr_sized_check_out("weir_pinned_stats_get", "weir_memory_stats", out, sizeof *out));
    WR_TRY(wr_runtime_enter());
    wr_pinned *pinned = wr_pinned_there();
    give_stats(pinned ? &pinned->cache : NULL, out);
    return WEIR_OK;
}

/* ---- resets ------------------------------------------------------------------------------------------------------ */

static void reset_locked(wr_scope scope, weir_memory_stats *stats, wr_flow *flow, bool peaks, bool totals)
{
    wr_metrics_reset(scope, stats, peaks, totals);
    wr_count_measure_locked(stats, flow);
}

static void reset_cache(wr_cache *cache, bool peaks, bool totals)
{
    wr_fronts_close_and_lock(cache);
    (void)wr_count_most_requested_locked(cache);
    reset_locked(WR_SCOPE_MEMORY, wr_stats_locked(cache), &cache->ledger.flow, peaks, totals);
    for (wr_mempool *pool = cache->pools; pool; pool = pool->next)
        if (pool->counted) reset_locked(WR_SCOPE_POOL, wr_pool_stats_locked(pool), &pool->flow, peaks, totals);
    wr_accounts_reset_locked(cache, peaks, totals);
    if (peaks) wr_count_trust_peaks_locked(cache);
    wr_fronts_unlock_and_open(cache);
}

static weir_status reset(int device, bool peaks, bool totals)
{
    wr_device *d = NULL;
    WR_TRY(wr_thread_look_up_device(device, &d));
    if (d) reset_cache(&d->cache, peaks, totals);
    return WEIR_OK;
}

weir_status weir_stats_reset(int device)
{
    return reset(device, true, true);
}

weir_status weir_stats_reset_peaks(int device)
{
    return reset(device, true, false);
}

weir_status weir_stats_reset_totals(int device)
{
    return reset(device, false, true);
}

static weir_status reset_pinned(bool peaks, bool totals)
{
    WR_TRY(wr_runtime_enter());
    wr_pinned *pinned = wr_pinned_there();
    if (pinned) reset_cache(&pinned->cache, peaks, totals);
    return WEIR_OK;
}

weir_status weir_pinned_stats_reset(void)
{
    return reset_pinned(true, true);
}

weir_status weir_pinned_stats_reset_peaks(void)
{
    return reset_pinned(true, false);
}

weir_status weir_pinned_stats_reset_totals(void)
{
    return reset_pinned(false, true);
}

static weir_status reset_handles(weir_handle_kind kind, int device, bool peaks, bool totals)
{
    wr_device *d = NULL;
    wr_kind *known = NULL;
    WR_TRY(wr_thread_look_up_device(device, &d));
    if (kind != 0) WR_TRY(wr_kind_find(kind, &known));
    if (d) wr_device_reset_handles(d, kind, peaks, totals);
    return WEIR_OK;
}

weir_status weir_handle_stats_reset(weir_handle_kind kind, int device)
{
    return reset_handles(kind, device, true, true);
}

weir_status weir_handle_stats_reset_peaks(weir_handle_kind kind, int device)
{
    return reset_handles(kind, device, true, false);
}

weir_status weir_handle_stats_reset_totals(weir_handle_kind kind, int device)
{
    return reset_handles(kind, device, false, true);
}

/* ---- more numbers ------------------------------------------------------------------------------------------------ */

weir_status weir_driver_calls(uint64_t *count)
{
    WR_ENSURE(count, WEIR_ERR_INVALID_ARGUMENT, "weir_driver_calls: count is NULL");
    WR_TRY(wr_runtime_enter());
    *count = wr_backend_calls();
    return WEIR_OK;
}

weir_status weir_stream_stats_get(weir_stream stream, weir_stream_stats *out)
{
    wr_device *d = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_sized_check_out("weir_stream_stats_get", "weir_stream_stats", out, sizeof *out));
    WR_TRY(wr_thread_resolve_stream(stream, &d, &s));
    weir_stream_stats stats = { 0 };
    wr_sample_stream(&d->cache, s, &stats);
    wr_sized_give(out, &stats, sizeof stats);
    return WEIR_OK;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static uint64_t handles_bytes(wr_device *device)
{
    uint64_t bytes = 0;
    for (int kind = 0; kind < WEIR_HANDLE_KIND_MAX; kind++) {
        weir_handle_stats stats = { 0 };
        wr_handle_pool *pool = atomic_load_explicit(&device->handles[kind], memory_order_acquire);
        if (!pool) continue;
        wr_handle_pool_stats(pool, &stats);
        bytes += stats.bytes;
    }
    return bytes;
}

static weir_status measure(wr_device *device, weir_device_memory *out)
{
    weir_device_memory m = { .handles_bytes = handles_bytes(device) };
    WR_TRY(wr_driver(device->backend, device_memory, device->ordinal, &m.free_bytes, &m.total_bytes));
    m.reserved_bytes = wr_sample_device_bytes(&device->cache);
    const uint64_t known = m.free_bytes + m.reserved_bytes;
    m.outside_bytes = m.total_bytes > known ? m.total_bytes - known : 0;
    wr_cache_lock(&device->cache);
    m.limit_bytes = device->cache.limit;
    wr_cache_unlock(&device->cache);
    *out = m;
    return WEIR_OK;
}

weir_status weir_device_memory_get(int device, weir_device_memory *out)
{
    wr_device *d = NULL;
    WR_TRY(wr_sized_check_out("weir_device_memory_get", "weir_device_memory", out, sizeof *out));
    WR_TRY(wr_thread_resolve_device(device, &d));
    weir_device_memory memory = { 0 };
    WR_TRY(measure(d, &memory));
    wr_sized_give(out, &memory, sizeof memory);
    return WEIR_OK;
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

/* The other numbers do not depend on the driver, and matter most when it is dead. */
static void measure_if_told(wr_device *device, wr_row *row)
{
    const wr_saved_failure before = wr_fail_save();
    row->silent = measure(device, &row->of.device) != WEIR_OK;
    if (row->silent) snprintf(row->of.refusal, sizeof row->of.refusal, "%s", weir_error_text());
    wr_fail_restore(before);
}

static weir_status sample_device(wr_device *device, wr_rows *rows)
{
    wr_row *row = NULL;
    WR_TRY(wr_rows_add(rows, WR_SCOPE_DEVICE, device->ordinal, &row));
    snprintf(row->name, sizeof row->name, "%s", device->caps.name);
    measure_if_told(device, row);
    WR_TRY(wr_sample_cache(&device->cache, WR_SCOPE_MEMORY, rows));
    return wr_device_sample_handles(device, rows);
}

static weir_status sample_all(wr_rows *rows)
{
    for (int i = 0; i < wr_runtime_global.device_count; i++) {
        wr_device *device = wr_runtime_opened(i);
        if (device) WR_TRY(sample_device(device, rows)); /* one that was never used has no statistics */
    }
    wr_pinned *pinned = wr_pinned_there();
    return pinned ? wr_sample_cache(&pinned->cache, WR_SCOPE_PINNED, rows) : WEIR_OK;
}

typedef void (*stats_writer)(wr_emit *e, const wr_stats_head *head, const wr_rows *rows);

static weir_status write_text(const char *call, stats_writer writer, char *buffer, size_t capacity, size_t *length)
{
    wr_rows rows = { 0 };
    WR_ENSURE(length && (buffer || capacity == 0), WEIR_ERR_INVALID_ARGUMENT, "%s: %s is NULL", call,
              length ? "buffer" : "length");
    WR_TRY(wr_runtime_enter());
    weir_status status = sample_all(&rows);
    if (status == WEIR_OK) {
        const wr_stats_head head = { wr_runtime_global.backend->name, wr_backend_calls() };
        wr_emit e = { .buffer = buffer, .capacity = capacity };
        writer(&e, &head, &rows);
        *length = e.length;
    }
    wr_rows_release(&rows);
    return status;
}

weir_status weir_stats_json(char *buffer, size_t capacity, size_t *length)
{
    return write_text("weir_stats_json", wr_stats_json, buffer, capacity, length);
}

weir_status weir_stats_openmetrics(char *buffer, size_t capacity, size_t *length)
{
    return write_text("weir_stats_openmetrics", wr_stats_openmetrics, buffer, capacity, length);
}
