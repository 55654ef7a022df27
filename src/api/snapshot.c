/*
 * Snapshots as users see them.
 */
#include "pool/report/snapshot.h"
#include "base/meta.h"
#include "base/sized.h"
#include "device/device.h"
#include "thread/thread.h"

/* The devices and the pool that the options name. */
typedef struct scope {
    int device; /* -1: all */
    wr_snapshot_what what;
} scope;

static weir_status find_pool(const char *call, const weir_snapshot_options *o, scope *s)
{
    wr_mempool *pool = NULL;
    wr_device *device = NULL;
    const weir_mempool id = *o->pool;
    if (id.capture == 0 && id.user == 0) {
        WR_ENSURE(o->device != WEIR_DEVICE_ALL, WEIR_ERR_INVALID_ARGUMENT,
                  "%s: every device has its own default pool; name the device", call);
        WR_TRY(wr_thread_resolve_device(o->device, &device));
        s->what.pool = device->cache.pools;
        s->device = device->ordinal;
        return WEIR_OK;
    }
    WR_TRY(wr_mempool_find(id, &s->what.pool_name, &pool));
    WR_ENSURE(pool, WEIR_ERR_POOL_MISMATCH, "%s: memory pool {%llu, %llu} has not been used yet", call,
              (unsigned long long)id.capture, (unsigned long long)id.user);
    s->what.pool = pool;
    s->device = pool->cache->device;
    if (o->device == WEIR_DEVICE_ALL) return WEIR_OK;
    WR_TRY(wr_thread_resolve_device(o->device, &device));
    WR_ENSURE(device->ordinal == s->device, WEIR_ERR_WRONG_DEVICE,
              "%s: memory pool {%llu, %llu} is on device %d, not on device %d", call, (unsigned long long)id.capture,
              (unsigned long long)id.user, s->device, device->ordinal);
    return WEIR_OK;
}

static weir_status find_scope(const char *call, const weir_snapshot_options *o, scope *s)
{
    wr_device *device = NULL;
    WR_TRY(wr_sized_check_in(call, "options", "WEIR_SNAPSHOT_OPTIONS_INIT", o, sizeof *o));
    *s = (scope){ .device = -1, .what = { .history = !o->without_history && o->format == WEIR_SNAPSHOT_PICKLE } };
    WR_ENSURE(o->format == WEIR_SNAPSHOT_PICKLE || o->format == WEIR_SNAPSHOT_TRACE, WEIR_ERR_INVALID_ARGUMENT,
              "%s: format %d is not a value of enum weir_snapshot_format", call, (int)o->format);
    WR_TRY(wr_runtime_enter());
    if (o->pool) return find_pool(call, o, s);
    if (o->device == WEIR_DEVICE_ALL) return WEIR_OK;
    WR_TRY(wr_thread_resolve_device(o->device, &device));
    s->device = device->ordinal;
    return WEIR_OK;
}

static weir_status take(const scope *s, wr_snapshot *out)
{
    void *devices = NULL;
    out->device_count = wr_runtime_global.device_count;
    wr_settings_read(&wr_runtime_global.options, &out->settings);
    WR_TRY(wr_meta_alloc((size_t)out->device_count * sizeof(wr_snapshot_device), "snapshot", &devices));
    out->devices = devices;
    for (int i = 0; i < out->device_count; i++) {
        wr_device *device = wr_runtime_opened(i);
        if (device && (s->device < 0 || s->device == i))
            WR_TRY(wr_snapshot_take(&device->cache, &s->what, &out->devices[i]));
    }
    return WEIR_OK;
}

/* `path` NULL: to the descriptor. */
static weir_status write_snapshot(const char *call, const char *path, int descriptor, weir_snapshot_format format,
                                  const wr_snapshot *snapshot)
{
    wr_output *out;
    WR_TRY(path ? wr_output_open(call, path, &out) : wr_output_to(descriptor, &out));
    weir_status status = format == WEIR_SNAPSHOT_PICKLE ? wr_snapshot_write_pickle(out, snapshot)
                                                        : wr_snapshot_write_trace(out, snapshot);
    if (status != WEIR_OK) {
        wr_output_abandon(out);
        return status;
    }
    return wr_output_close(out, call, path);
}

static weir_status snapshot(const char *call, const char *path, int descriptor, const weir_snapshot_options *options)
{
    const weir_snapshot_options defaults = WEIR_SNAPSHOT_OPTIONS_INIT;
    const weir_snapshot_options *o = options ? options : &defaults;
    scope s;
    wr_snapshot taken = { 0 };
    WR_TRY(find_scope(call, o, &s));
    weir_status status = take(&s, &taken);
    if (status == WEIR_OK) status = write_snapshot(call, path, descriptor, o->format, &taken);
    wr_snapshot_release(&taken);
    return status;
}

weir_status weir_snapshot_save(const char *path, const weir_snapshot_options *options)
{
    WR_ENSURE(path, WEIR_ERR_INVALID_ARGUMENT, "weir_snapshot_save: path is NULL");
    return snapshot("weir_snapshot_save", path, -1, options);
}

weir_status weir_snapshot_write(int descriptor, const weir_snapshot_options *options)
{
    WR_ENSURE(descriptor >= 0, WEIR_ERR_INVALID_ARGUMENT, "weir_snapshot_write: %d is not a file descriptor",
              descriptor);
    return snapshot("weir_snapshot_write", NULL, descriptor, options);
}
