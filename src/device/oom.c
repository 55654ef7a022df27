#include "device/oom.h"

#include "base/size.h"
#include "device/kinds.h"
#include "device/pinned.h"
#include "observe/stats_text.h"
#include "pool/count.h"
#include "pool/report/inspect.h"
#include "pool/report/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rest {
    uint64_t count, bytes;
} rest;

/* The facts of one failure, collected before any text is written. */
typedef struct facts {
    const wr_request *request;
    uint64_t tried;
    uint64_t free_bytes, total_bytes, outside_bytes; /* of the device */
    bool told; /* free_bytes is the driver's answer; false: it and outside_bytes are 0 */
    wr_cache_report report;
    wr_rows rows;             /* of the cache, its pools, its streams, kinds of handles; empty: no memory for them */
    rest unlisted[WR_SCOPES]; /* by keep_heaviest() */
    bool planned;             /* a plan is served, or plan=auto looks for one */
    const char *advice;
    char refusal[256]; /* the text of this thread's last error */
} facts;

/* True: neither the device nor the limit is the cause, but the pool's cap, its source, exhausted addresses, or a driver
 * that accounts differently. */
static bool has_room(const facts *f)
{
    const uint64_t need = f->request->fit.segment_bytes, limit = f->report.limit;
    if (!f->report.on_device) return true;
    return f->free_bytes >= need && (limit == 0 || f->report.limited + f->report.lost + need <= limit);
}

static const char *advice_on_pieces(const facts *f)
{
    if (!f->report.chunked)
        return "Enough is free, but scattered over segments that are partly in use: allocate long-lived blocks first, "
               "or allocate them together.";
    if (f->planned)
        return "Enough is free, but scattered over chunks that are partly in use: allocate long-lived blocks first, "
               "or allocate them together.";
    return "Enough is free, but scattered over chunks that are partly in use: allocate long-lived blocks first, or "
           "allocate them together. For a program that repeats itself weir can plan: set WEIR_PLAN=auto and "
           "WEIR_HISTORY=1000000.";
}

/* NULL: the limit is not the cause. */
static const char *advice_on_limit(const facts *f)
{
    const wr_cache_report *r = &f->report;
    const uint64_t need = f->request->fit.segment_bytes;
    if (!r->on_device || r->limit == 0 || f->free_bytes < need || r->limited + r->lost + need <= r->limit) return NULL;
    if (r->limited + r->lost + need <= r->limit + r->kept_idle)
        return "Enough is idle in private pools: empty one with weir_mempool_empty_cache(), or release it; or raise the "
               "limit with WEIR_MEMORY_LIMIT or weir_memory_limit_set().";
    return "The device has room, but the limit is reached: raise it with WEIR_MEMORY_LIMIT or "
           "weir_memory_limit_set().";
}

static const char *advice(const facts *f)
{
    const wr_cache_report *r = &f->report;
    const uint64_t need = f->request->fit.segment_bytes;
    const char *on_limit = advice_on_limit(f);
    if (on_limit) return on_limit;
    if (r->largest_elsewhere >= f->request->fit.block_bytes)
        return "A free block of another stream is large enough: allocate on fewer streams.";
    if (!r->on_device) return "The last refusal says what is missing.";
    if (has_room(f)) return "The device has room: the last refusal says what is missing.";
    if (r->kept_idle != 0 && r->kept_idle + f->free_bytes >= need)
        return "Enough is idle in private pools: empty one with weir_mempool_empty_cache(), or release it.";
    if (r->split_bytes >= need) return advice_on_pieces(f);
    if (r->other_streams_free >= need) return "Enough is free on other streams: allocate on fewer streams.";
    if (f->outside_bytes >= need && f->outside_bytes > r->reserved)
        return "Most of the device is used outside weir, or kept from this process: look for other processes, for "
               "libraries that allocate memory themselves, or for a limit of MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT).";
    return "Free something, ask for less, or use a larger device.";
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

enum { TEXT_MAX = 4000, NAMED = 4 }; /* the NAMED largest of each list are shown */
enum { ROUNDED_SHARE = 16 };         /* rounding is mentioned when it adds more than 1/16 of the request */

static void put_size(wr_emit *e, const char *before, uint64_t bytes, const char *after)
{
    char text[WR_SIZE_TEXT];
    wr_emit_format(e, "%s%s%s", before, wr_size_format(bytes, text), after);
}

static void put_tried(wr_emit *e, uint64_t tried)
{
    const char *before = "\nTried without success: ";
    for (int step = WEIR_STEP_FINISHED; step < WEIR_STEPS; step++) {
        if (!(tried >> step & 1)) continue;
        wr_emit_format(e, "%s%s", before, weir_step_name((weir_step)step));
        before = ", ";
    }
    if (tried) wr_emit_format(e, ".");
}

static uint64_t weight(const wr_row *row)
{
    if (row->scope == WR_SCOPE_POOL) return (uint64_t)row->of.memory.reserved_bytes[WEIR_STAT_ALL].current;
    if (row->scope == WR_SCOPE_STREAM) return row->of.stream.reserved_bytes;
    return row->of.handles.bytes + row->of.handles.workspace_bytes;
}

/* Groups rows by scope, the heaviest of each first. */
static int by_weight(const void *left, const void *right)
{
    const wr_row *a = left, *b = right;
    if (a->scope != b->scope) return a->scope < b->scope ? -1 : 1;
    return (weight(a) < weight(b)) - (weight(a) > weight(b));
}

static void put_row(wr_emit *e, const wr_row *row)
{
    const weir_memory_stats *m = &row->of.memory;
    const weir_stream_stats *s = &row->of.stream;
    const weir_handle_stats *h = &row->of.handles;
    wr_emit_format(e, "%s%s%s%s ", row->name, row->tag[0] ? " (" : "", row->tag, row->tag[0] ? ")" : "");
    put_size(e, "", weight(row), "");
    if (row->scope == WR_SCOPE_POOL) {
        put_size(e, ", ", (uint64_t)m->allocated_bytes[WEIR_STAT_ALL].current, " in use");
    } else if (row->scope == WR_SCOPE_STREAM) {
        put_size(e, ", ", s->live_bytes, " in use");
        put_size(e, ", ", s->free_bytes, " free");
    } else {
        wr_emit_format(e, ", %llu of them, %llu idle", (unsigned long long)h->live, (unsigned long long)h->idle);
    }
}

static void put_list(wr_emit *e, const char *title, wr_scope scope, const wr_rows *rows)
{
    uint64_t rest_bytes = 0;
    size_t seen = 0;
    for (size_t i = 0; i < rows->count; i++) {
        const wr_row *row = &rows->row[i];
        if (row->scope != scope || weight(row) == 0) continue;
        if (seen++ >= NAMED) {
            rest_bytes += weight(row);
            continue;
        }
        wr_emit_format(e, "%s", seen == 1 ? title : "; ");
        put_row(e, row);
    }
    if (seen > NAMED) {
        wr_emit_format(e, "; %zu more ", seen - NAMED);
        put_size(e, "", rest_bytes, "");
    }
    if (seen) wr_emit_format(e, ".");
}

static void put_held(wr_emit *e, const facts *f)
{
    const wr_cache_report *r = &f->report;
    put_size(e, "", r->allocated, " in use, ");
    put_size(e, "", r->idle_bytes, " idle, ");
    put_size(e, "", r->split_bytes, " free between blocks in use, ");
    put_size(e, "", r->pending_bytes, " freed but awaiting ");
    wr_emit_format(e, "%sstreams (%llu blocks).", wr_cache_is_host(f->request->pool->cache) ? "" : "other ",
                   (unsigned long long)r->pending_blocks);
}

static void put_device(wr_emit *e, const facts *f, const wr_device *device)
{
    const wr_request *q = f->request;
    wr_emit_format(e, "out of memory on device %d (%s): ", device->ordinal, device->caps.name);
    put_size(e, "asked for ", q->requested, "");
    if (q->fit.block_bytes - q->requested > q->requested / ROUNDED_SHARE)
        put_size(e, ", rounded up to ", q->fit.block_bytes, ",");
    wr_emit_format(e, " on stream %#llx", (unsigned long long)(uintptr_t)q->stream->native);
    if (q->pool_name) wr_emit_format(e, " from memory pool " WR_MEMPOOL_FORMAT, WR_MEMPOOL_ARGUMENTS(q->pool_name));
    put_size(e, ". The device has ", f->total_bytes, "");
    if (f->told)
        put_size(e, ", ", f->free_bytes, " free");
    else
        wr_emit_format(e, " (the driver does not say how much is free)");
    if (f->report.limit)
        put_size(e, "; the limit is ", f->report.limit, ".\n");
    else
        wr_emit_format(e, "; there is no limit.\n");
    put_size(e, "weir holds ", f->report.reserved, " there: ");
    put_held(e, f);
    put_size(e, " Largest free block of this pool on this stream: ", f->report.largest_free, ".");
    const uint64_t limited = f->report.limited, reserved = f->report.reserved;
    const uint64_t unlimited = reserved > limited ? reserved - limited : 0;
    if (f->told) put_size(e, "\nUsed outside weir: ", f->outside_bytes, " (contexts, libraries, other processes");
    if (f->told && unlimited)
        put_size(e, ", and what is on the device of the ", unlimited, " in managed and pinned pools");
    if (f->told) wr_emit_format(e, ").");
    if (f->report.lost)
        put_size(e, "\nLost: ", f->report.lost, ", which the driver has not taken back; closing the library may help.");
    put_list(e, "\nBy pool: ", WR_SCOPE_POOL, &f->rows);
    put_list(e, "\nBy stream: ", WR_SCOPE_STREAM, &f->rows);
    put_list(e, "\nBy kind of handle: ", WR_SCOPE_HANDLES, &f->rows);
    if (has_room(f)) wr_emit_format(e, "\nThe last refusal: %s", f->refusal);
    put_tried(e, f->tried);
    wr_emit_format(e, "\n%s", f->advice);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

enum { LISTED = 64 }; /* pools, and streams; a thread keeps the details of its last error */

/* What the JSON is made of when it is asked for, which may be after the cache, the pool and the stream are gone. */
typedef struct detail {
    facts of; /* but not its request; its rows are these */
    int device;
    uint64_t requested, segment_bytes;
    const void *stream; /* native */
    wr_mempool_name pool;
    wr_row row[];
} detail;

/* What is left out of the lists is counted instead. */
static void keep_heaviest(facts *f)
{
    uint32_t kept = 0, of_scope[WR_SCOPES] = { 0 };
    for (uint32_t i = 0; i < f->rows.count; i++) {
        const wr_row *row = &f->rows.row[i];
        if (row->scope == WR_SCOPE_HANDLES || of_scope[row->scope]++ < LISTED) {
            f->rows.row[kept++] = *row;
            continue;
        }
        f->unlisted[row->scope].count++;
        f->unlisted[row->scope].bytes += weight(row);
    }
    f->rows.count = kept;
}

static void put_unlisted(wr_emit *e, const char *name, const rest *left)
{
    wr_json_open(e, name, '{');
    wr_json_count(e, "count", left->count);
    wr_json_count(e, "reserved_bytes", left->bytes);
    wr_json_close(e, '}');
}

static void put_json(const void *kept, void *to)
{
    const detail *d = kept;
    const facts *f = &d->of;
    const wr_cache_report *r = &f->report;
    size_t at = f->rows.count != 0; /* the first row is the cache's own */
    char text[64];
    wr_emit *e = to;
    wr_json_open(e, "memory", '{');
    wr_json_number(e, "device", d->device);
    wr_json_count(e, "requested_bytes", d->requested);
    wr_json_count(e, "segment_bytes", d->segment_bytes);
    snprintf(text, sizeof text, "%#llx", (unsigned long long)(uintptr_t)d->stream);
    wr_json_string(e, "stream", text);
    snprintf(text, sizeof text, WR_MEMPOOL_FORMAT, WR_MEMPOOL_ARGUMENTS(d->pool));
    wr_json_string(e, "pool", text);
    wr_json_count(e, "total_bytes", f->total_bytes);
    wr_json_count(e, "free_bytes", f->free_bytes);
    wr_json_count(e, "outside_bytes", f->outside_bytes);
    wr_json_count(e, "limit_bytes", r->limit);
    wr_json_count(e, "lost_bytes", r->lost);
    wr_json_count(e, "reserved_bytes", r->reserved);
    wr_json_count(e, "in_use_bytes", r->allocated);
    wr_json_count(e, "idle_bytes", r->idle_bytes);
    wr_json_count(e, "split_bytes", r->split_bytes);
    wr_json_count(e, "pending_bytes", r->pending_bytes);
    wr_json_count(e, "largest_free_bytes", r->largest_free);
    wr_json_count(e, "largest_elsewhere_bytes", r->largest_elsewhere);
    wr_json_open(e, "tried", '[');
    for (int step = WEIR_STEP_FINISHED; step < WEIR_STEPS; step++)
        if (f->tried >> step & 1) wr_json_string(e, NULL, weir_step_name((weir_step)step));
    wr_json_close(e, ']');
    wr_json_string(e, "advice", f->advice);
    wr_stats_json_parts(e, &f->rows, &at);
    put_unlisted(e, "unlisted_pools", &f->unlisted[WR_SCOPE_POOL]);
    put_unlisted(e, "unlisted_streams", &f->unlisted[WR_SCOPE_STREAM]);
    wr_json_close(e, '}');
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static void keep_detail(const facts *f)
{
    const wr_request *q = f->request;
    const size_t bytes = f->rows.count * sizeof *f->rows.row;
    detail *d = wr_fail_detail(sizeof *d + bytes, put_json);
    if (!d) return;
    *d = (detail){ .of = *f,
                   .device = q->pool->cache->device,
                   .requested = q->requested,
                   .segment_bytes = q->fit.segment_bytes,
                   .stream = q->stream->native,
                   .pool = q->pool_name };
    d->of.request = NULL;
    d->of.rows.row = d->row;
    if (bytes) memcpy(d->row, f->rows.row, bytes);
}

static weir_status fail(weir_status status, facts *f, const char *text)
{
    (void)!wr_fail(status, "%s", text);
    keep_heaviest(f);
    keep_detail(f);
    wr_rows_release(&f->rows);
    return status;
}

/* All of the same moment, for which each front is visited once. */
static void collect(wr_device *device, facts *f)
{
    wr_cache *cache = &device->cache;
    wr_fronts_close_and_lock(cache);
    wr_inspect_report_locked(cache, f->request, &f->report);
    weir_status status = wr_sample_cache_locked(cache, WR_SCOPE_MEMORY, &f->rows);
    wr_fronts_unlock_and_open(cache);
    if (status == WEIR_OK) status = wr_device_sample_handles(device, &f->rows);
    if (status != WEIR_OK) wr_rows_release(&f->rows); /* the text does without them */
    if (f->rows.count) qsort(f->rows.row, f->rows.count, sizeof *f->rows.row, by_weight);
}

static void record_failure(wr_device *device, const wr_request *request, uint64_t free_bytes)
{
    wr_history_record(&device->cache.history, WEIR_EVENT_OOM, (void *)(uintptr_t)free_bytes, request->requested,
                      request->stream->native, wr_mempool_id_of(request->pool_name));
}

/* Fails only when the device is lost: then that is the cause. */
static weir_status ask_driver(const wr_device *device, facts *f)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    weir_status status = wr_driver(device->backend, device_memory, device->ordinal, &free_bytes, &total_bytes);
    f->told = status == WEIR_OK;
    if (f->told) f->free_bytes = free_bytes;
    return status == WEIR_ERR_DEVICE_LOST ? status : WEIR_OK;
}

weir_status wr_oom_device(wr_device *device, const wr_request *request, uint64_t tried)
{
    char text[TEXT_MAX];
    facts f = { .request = request, .tried = tried, .total_bytes = device->caps.total_memory };
    snprintf(f.refusal, sizeof f.refusal, "%s", weir_error_text());
    WR_TRY(ask_driver(device, &f));
    WR_COUNT_REQUEST(request, ooms); /* counted first, so that the report includes it */
    collect(device, &f);
    const uint64_t known = f.free_bytes + f.report.limited + f.report.lost;
    f.outside_bytes = f.told && f.total_bytes > known ? f.total_bytes - known : 0;
    f.planned = atomic_load_explicit(&device->cache.serving, memory_order_relaxed) || device->plan_auto.device;
    f.advice = advice(&f);
    record_failure(device, request, f.free_bytes);
    wr_emit e = { .buffer = text, .capacity = sizeof text };
    put_device(&e, &f, device);
    wr_emit_finish(&e);
    return fail(WEIR_ERR_OUT_OF_MEMORY, &f, text);
}

weir_status wr_oom_absurd(wr_device *device, const wr_request *request)
{
    WR_COUNT_REQUEST(request, ooms);
    record_failure(device, request, 0); /* the driver was not asked */
    return wr_fail(WEIR_ERR_OUT_OF_MEMORY, "%zu bytes requested on device %d, more than 1 EiB; is the size negative?",
                   request->requested, device->ordinal);
}

weir_status wr_oom_pinned_absurd(const wr_pinned *pinned, size_t bytes)
{
    const wr_request request = { .pool = pinned->cache.pools };
    WR_COUNT_REQUEST(&request, ooms);
    return wr_fail(WEIR_ERR_OUT_OF_HOST_MEMORY,
                   "%zu bytes of pinned host memory requested, more than 1 EiB; is the size negative?", bytes);
}

weir_status wr_oom_pinned(const wr_request *request, uint64_t tried)
{
    char text[TEXT_MAX], where[32] = "any NUMA node";
    wr_cache *cache = request->pool->cache;
    facts f = { .request = request, .tried = tried };
    wr_emit e = { .buffer = text, .capacity = sizeof text };
    snprintf(f.refusal, sizeof f.refusal, "%s", weir_error_text());
    wr_fronts_close_and_lock(cache);
    wr_inspect_report_locked(cache, request, &f.report);
    wr_fronts_unlock_and_open(cache);
    if (request->stream->index) snprintf(where, sizeof where, "NUMA node %u", request->stream->index - 1);
    f.advice = f.report.limit && f.report.reserved + request->fit.segment_bytes > f.report.limit
                   ? "Free something, or raise the limit with weir_pinned_limit_set()."
                   : "Free something, ask for less, or give the process more memory.";
    WR_COUNT_REQUEST(request, ooms);
    put_size(&e, "out of pinned host memory: asked for ", request->requested, "");
    wr_emit_format(&e, " on %s", where);
    if (f.report.limit)
        put_size(&e, "; the limit is ", f.report.limit, ".\n");
    else
        wr_emit_format(&e, "; there is no limit.\n");
    put_size(&e, "weir holds ", f.report.reserved, ": ");
    put_held(&e, &f);
    wr_emit_format(&e, "\nThe last refusal: %s", f.refusal);
    put_tried(&e, tried);
    wr_emit_format(&e, "\n%s", f.advice);
    wr_emit_finish(&e);
    return fail(WEIR_ERR_OUT_OF_HOST_MEMORY, &f, text);
}
