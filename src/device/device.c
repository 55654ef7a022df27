#include "device/device.h"

#include "base/log.h"
#include "base/meta.h"
#include "device/debug.h"
#include "device/kinds.h"
#include "pool/pending.h"
#include "pool/report/recording.h"
#include "stream/quiet.h"

/* The first stream's first region has room for all memory of the device, if there are addresses enough. 0, no chunks,
 * where debug reads freed memory again: a freed chunk may by then be mapped, and in use, at a second address. */
static size_t region_bytes(const wr_device *d, unsigned debug)
{
    if (debug & WR_DEBUG_STREAMS && debug & WR_DEBUG_POISON) return 0;
    const bool fine = d->caps.granularity != 0 && WR_SEGMENT_UNIT % d->caps.granularity == 0;
    return fine && d->caps.chunk_aliases ? d->caps.total_memory / WR_SEGMENT_UNIT * WR_SEGMENT_UNIT : 0;
}

/* A lost device captures nothing, and must not keep the others from what waits for that. */
static weir_status captured_anywhere(bool *captured)
{
    *captured = false;
    for (int i = 0; i < WR_DEVICE_MAX && !*captured; i++) {
        wr_device *d = wr_runtime_opened(i);
        const wr_saved_failure told = wr_fail_save();
        const weir_status status = d ? wr_streams_captured(&d->streams, captured) : WEIR_OK;
        if (status != WEIR_ERR_DEVICE_LOST) WR_TRY(status);
        wr_fail_restore(told);
    }
    return WEIR_OK;
}

static weir_status open_parts(const wr_runtime *runtime, wr_device *d)
{
    WR_TRY(wr_streams_init(&d->streams, d->backend, d->ordinal, &d->caps));
    if (d->backend->synchronize_ends_all) d->streams.captured_anywhere = captured_anywhere;
    wr_events_init(&d->events, d->backend, d->ordinal);
    weir_status status = wr_cache_init(&d->cache, d->backend, d->ordinal, runtime->policy, &runtime->policy_options,
                                       &d->events, atomic_load(&runtime->history), region_bytes(d, runtime->debug));
    if (status == WEIR_OK) {
        d->cache.chunks.mappings_most = d->caps.mappings_most;
        status = wr_debug_create(runtime->debug, &d->cache.debug);
        d->cache.has_fronts &= d->cache.debug == NULL; /* their hit path bypasses debug */
        atomic_init(&d->cache.watched, d->cache.debug != NULL);
        wr_recording_watch(&d->cache, runtime->stacks);
        if (status != WEIR_OK) wr_clean_up(wr_cache_release(&d->cache));
    }
    if (status != WEIR_OK) {
        wr_clean_up(wr_events_release(&d->events));
        wr_clean_up(wr_streams_release(&d->streams));
        return status;
    }
    wr_routes_init(&d->routes);
    wr_captures_init(&d->captures);
    wr_graphs_init(&d->graphs);
    d->cache.streams = &d->streams;
    d->cache.limit = runtime->options.value[WR_OPTION_memory_limit].number;
    return WEIR_OK;
}

weir_status wr_device_open(const wr_runtime *runtime, int ordinal, wr_device **device)
{
    void *memory = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_device), "device", &memory));
    wr_device *d = memory;
    d->ordinal = ordinal;
    d->backend = runtime->backend;
    weir_status status = wr_driver(d->backend, device_open, ordinal, &d->caps);
    if (status == WEIR_OK) {
        status = open_parts(runtime, d);
        if (status != WEIR_OK) wr_clean_up(wr_driver(d->backend, device_close, ordinal));
    }
    if (status != WEIR_OK) {
        wr_meta_free(d);
        return status;
    }
    if (wr_runtime_learns()) {
        status = wr_plan_auto_start(&d->plan_auto, d);
        if (status != WEIR_OK) {
            wr_clean_up(wr_debug_destroy(d));
            wr_clean_up(wr_device_close(d));
            return status;
        }
    }
    wr_log(WR_LOG_INFO, "device %d opened: %s, %llu bytes", ordinal, d->caps.name,
           (unsigned long long)d->caps.total_memory);
    *device = d;
    return WEIR_OK;
}

weir_status wr_device_quiesce(wr_device *device)
{
    wr_plan_auto_stop(&device->plan_auto);
    return wr_graphs_end_captures(device);
}

/* The driver refuses to synchronize while the program captures, but other streams' work still uses memory then. */
weir_status wr_device_wait(wr_device *device)
{
    const weir_status status = wr_driver(device->backend, device_synchronize, device->ordinal);
    if (status != WEIR_OK) wr_clean_up(wr_quiet_wait_for_streams(&device->events, &device->streams));
    return status;
}

weir_status wr_device_stop(wr_device *device)
{
    weir_status first = wr_graphs_end(device);
    wr_keep_first(&first, wr_device_release_handles(device)); /* destroying a library's handle frees memory of weir's */
    wr_pending_release(&device->cache);
    wr_keep_first(&first, wr_debug_destroy(device));
    return first;
}

weir_status wr_device_close(wr_device *device)
{
    weir_status first = WEIR_OK;
    wr_graphs_release(&device->graphs);
    wr_captures_release(&device->captures);
    wr_routes_release(&device->routes);
    wr_keep_first(&first, wr_cache_release(&device->cache));
    wr_keep_first(&first, wr_events_release(&device->events));
    wr_keep_first(&first, wr_streams_release(&device->streams));
    wr_keep_first(&first, wr_driver(device->backend, device_close, device->ordinal));
    wr_meta_free(device);
    return first;
}
