/*
 * Pausing pools, and sharing memory between processes, as users see them.
 */
#include "pool/pause.h"
#include "device/ladder.h"
#include "pool/address.h"
#include "pool/share.h"
#include "thread/thread.h"

/* ---- pausing ----------------------------------------------------------------------------------------------------- */

static weir_status check_tag(const char *call, const char *tag)
{
    WR_ENSURE(!tag || tag[0], WEIR_ERR_INVALID_ARGUMENT,
              "%s: the tag is empty, as in pools without a tag; pass NULL for all pools that can be paused", call);
    return WEIR_OK;
}

weir_status weir_pause(int device, const char *tag, weir_pause_mode mode)
{
    wr_device *d = NULL;
    WR_TRY(check_tag("weir_pause", tag));
    WR_ENSURE(mode == WEIR_PAUSE_KEEP || mode == WEIR_PAUSE_DROP, WEIR_ERR_INVALID_ARGUMENT,
              "weir_pause: mode %d is not a value of enum weir_pause_mode", (int)mode);
    WR_TRY(wr_thread_resolve_device(device, &d));
    return wr_pause(&d->cache, tag, mode);
}

weir_status weir_resume(int device, const char *tag)
{
    wr_device *d = NULL;
    WR_TRY(check_tag("weir_resume", tag));
    WR_TRY(wr_thread_resolve_device(device, &d));
    return wr_device_resume(d, tag);
}

/* ---- other processes --------------------------------------------------------------------------------------------- */

weir_status weir_export(const void *pointer, weir_export_part *parts, size_t capacity, size_t *count, uint64_t *offset)
{
    WR_ENSURE((parts || capacity == 0) && count && offset, WEIR_ERR_INVALID_ARGUMENT, "weir_export: %s is NULL",
              !count    ? "count"
              : !offset ? "offset"
                        : "parts");
    WR_TRY(wr_runtime_enter());
    const wr_segment *segment = wr_address_find(pointer);
    WR_ENSURE(segment, WEIR_ERR_UNKNOWN_POINTER, "weir_export: %p was not allocated by weir", pointer);
    return wr_fail_in("weir_export", wr_share_export(segment, pointer, parts, capacity, count, offset));
}

static weir_status check_parts(const weir_export_part *parts, size_t count)
{
    uint64_t left = WR_REQUEST_MAX;
    WR_ENSURE(parts && count > 0, WEIR_ERR_INVALID_ARGUMENT, "weir_import: there is no part to import");
    for (size_t i = 0; i < count; i++) {
        WR_ENSURE(parts[i].descriptor >= 0 && parts[i].bytes > 0 && parts[i].bytes <= left, WEIR_ERR_INVALID_ARGUMENT,
                  "weir_import: descriptor %d with %llu bytes does not come from weir_export()", parts[i].descriptor,
                  (unsigned long long)parts[i].bytes);
        left -= parts[i].bytes;
    }
    return WEIR_OK;
}

weir_status weir_import(int device, const weir_export_part *parts, size_t count, void **base)
{
    wr_device *d = NULL;
    WR_ENSURE(base, WEIR_ERR_INVALID_ARGUMENT, "weir_import: base is NULL");
    WR_TRY(check_parts(parts, count));
    WR_TRY(wr_thread_resolve_device(device, &d));
    WR_ENSURE(d->backend->vm_import, WEIR_ERR_NOT_SUPPORTED,
              "weir_import: device %d (%s) cannot share memory with other processes", d->ordinal, d->backend->name);
    return wr_share_import(&d->cache, parts, count, base);
}

weir_status weir_import_close(void *base)
{
    bool found = false;
    weir_status status = WEIR_OK;
    WR_TRY(wr_runtime_enter());
    for (int i = 0; i < WR_DEVICE_MAX && !found; i++) {
        wr_device *d = wr_runtime_opened(i);
        if (d) status = wr_share_close(&d->cache, base, &found);
    }
    WR_ENSURE(found, WEIR_ERR_UNKNOWN_POINTER, "weir_import_close: %p was not imported, or is already closed", base);
    return status;
}
