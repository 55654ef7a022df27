/*
 * Pinned host memory as users see it: check, find the cache, call down.
 */
#include "device/pinned.h"
#include "device/capture.h"
#include "device/ladder.h"
#include "pool/address.h"
#include "pool/pending.h"
#include "pool/report/inspect.h"
#include "thread/thread.h"

static bool is_lost(const wr_device *device)
{
    uint64_t free_bytes = 0, total_bytes = 0;
    weir_status status = WEIR_OK;
    wr_clean_up(status = wr_driver(device->backend, device_memory, device->ordinal, &free_bytes, &total_bytes));
    return status == WEIR_ERR_DEVICE_LOST;
}

/* The device through which memory is pinned: one that is open already, so that no context is made just for this, and
 * not lost, since it stays that one until weir_close(). */
static weir_status find_home(wr_device **out)
{
    for (int i = 0; i < WR_DEVICE_MAX; i++) {
        *out = wr_runtime_opened(i);
        if (*out && !is_lost(*out)) return WEIR_OK;
    }
    WR_TRY(wr_thread_resolve_device(WEIR_DEVICE_CURRENT, out));
    WR_ENSURE(!is_lost(*out), WEIR_ERR_DEVICE_LOST, "device %d is lost, and memory is not pinned through it",
              (*out)->ordinal);
    return WEIR_OK;
}

static weir_status enter(wr_pinned **out)
{
    wr_device *home = NULL;
    WR_TRY(wr_runtime_enter());
    *out = wr_pinned_there();
    if (WR_LIKELY(*out != NULL)) return WEIR_OK;
    WR_TRY(find_home(&home));
    return wr_runtime_pinned(home, out);
}

weir_status weir_pinned_alloc(size_t bytes, int numa_node, void **out)
{
    wr_pinned *pinned = NULL;
    wr_stream *place = NULL;
    WR_ENSURE(out, WEIR_ERR_INVALID_ARGUMENT, "weir_pinned_alloc: out is NULL");
    WR_TRY(enter(&pinned));
    WR_TRY(wr_pinned_place(pinned, numa_node, &place));
    if (bytes == 0) {
        *out = NULL;
        return WEIR_OK;
    }
    return wr_pinned_alloc(pinned, place, bytes, out);
}

/* The segment of pinned memory that a pointer lies in, or an error. */
static weir_status find_segment(const char *call, const char *instead, const void *pointer, wr_segment **out)
{
    WR_TRY(wr_runtime_enter());
    wr_segment *segment = wr_address_find(pointer);
    WR_ENSURE(segment, WEIR_ERR_UNKNOWN_POINTER, "%s: %p was not allocated by weir", call, pointer);
    WR_ENSURE(wr_cache_is_host(segment->cache), WEIR_ERR_UNKNOWN_POINTER,
              "%s: %p is memory of device %d, not from weir_pinned_alloc(); call %s instead", call, pointer,
              segment->cache->device, instead);
    *out = segment;
    return WEIR_OK;
}

/* Launches of the graph use the block again. A kept block stays where it is, so its address finds it again. */
static weir_status hold_block(void *pointer, uint64_t name)
{
    const wr_segment *segment = wr_address_find(pointer);
    (void)name;
    WR_ENSURE(segment, WEIR_ERR_UNKNOWN_POINTER, "%p is no longer pinned memory", pointer);
    return wr_pending_keep(segment, pointer);
}

/* Once weir_close has begun the segment may be gone. */
static void let_go_of_block(void *pointer, uint64_t name)
{
    const wr_segment *segment = wr_address_find(pointer);
    (void)name;
    if (segment) wr_pending_let_go(segment, pointer);
}

static weir_status keep_for_graph(wr_device *device, const wr_stream *stream, wr_segment *segment, const void *pointer)
{
    static const wr_keeper keeper = { hold_block, let_go_of_block };
    weir_pointer_info info = { 0 };
    wr_capture *capture = NULL;
    WR_TRY(wr_capture_of(device, stream->native, &capture));
    if (!capture) return WEIR_OK;
    weir_status status = wr_inspect_pointer(segment, pointer, &info);
    if (status == WEIR_OK) status = wr_capture_keep(capture, (wr_kept){ &keeper, info.base, 0 });
    wr_capture_unref(capture);
    return status;
}

weir_status weir_pinned_record(const void *pointer, weir_stream stream)
{
    wr_segment *segment = NULL;
    wr_device *device = NULL;
    wr_stream *s = NULL;
    WR_TRY(wr_thread_resolve_stream(stream, &device, &s));
    WR_TRY(find_segment("weir_pinned_record", "weir_record_stream()", pointer, &segment));
    WR_TRY(wr_fail_in("weir_pinned_record", wr_pending_record(segment, pointer, s, &device->events)));
    return wr_captures_any(&device->captures) ? keep_for_graph(device, s, segment, pointer) : WEIR_OK;
}

weir_status weir_pinned_free(void *pointer)
{
    wr_segment *segment = NULL;
    if (!pointer) return WEIR_OK;
    WR_TRY(find_segment("weir_pinned_free", "weir_free()", pointer, &segment));
    wr_block *waiting = NULL;
    WR_TRY(wr_fail_in("weir_pinned_free", wr_cache_free(segment, pointer, &waiting)));
    if (waiting) wr_pending_start(segment->cache, waiting);
    return WEIR_OK;
}

weir_status weir_pinned_reserve(size_t bytes, int numa_node)
{
    wr_pinned *pinned = NULL;
    wr_stream *place = NULL;
    WR_TRY(enter(&pinned));
    WR_TRY(wr_pinned_place(pinned, numa_node, &place));
    return bytes == 0 ? WEIR_OK : wr_pinned_reserve(pinned, place, bytes);
}

weir_status weir_pinned_limit_set(uint64_t bytes)
{
    wr_pinned *pinned = NULL;
    WR_TRY(enter(&pinned));
    wr_cache_lock(&pinned->cache);
    pinned->cache.limit = bytes;
    wr_cache_unlock(&pinned->cache);
    return WEIR_OK;
}

static size_t surplus(wr_cache *cache, uint64_t keep)
{
    wr_cache_lock(cache);
    const uint64_t held = (uint64_t)cache->stats.reserved_bytes[WEIR_STAT_ALL].current;
    wr_cache_unlock(cache);
    return held > keep ? (size_t)(held - keep) : 0;
}

weir_status weir_pinned_trim(uint64_t keep)
{
    size_t released = 0;
    WR_TRY(wr_runtime_enter());
    wr_pinned *pinned = wr_pinned_there();
    if (!pinned) return WEIR_OK;
    wr_pending_poll(&pinned->cache);
    return wr_cache_trim(&pinned->cache, NULL, keep ? surplus(&pinned->cache, keep) : SIZE_MAX, &released);
}
