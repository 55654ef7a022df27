/*
 * How the debug mode reads and fills device memory on its own behalf: never inside a capture, and with waits that end.
 */
#include "base/meta.h"
#include "device/debug_internal.h"
#include "stream/gate.h"

/* Another thread may be destroying the stream; if it has ended, nobody can tell. */
bool wr_debug_captures(const wr_device *device, const wr_stream *stream)
{
    bool captured = true;
    if (wr_captures_any(&device->captures)) return true;
    wr_stream *held = wr_stream_hold(&device->streams, atomic_load(&stream->id));
    if (held && wr_stream_ask_captured(device->backend, device->ordinal, held->native, &captured) != WEIR_OK)
        captured = true;
    wr_stream_let_go(held);
    return captured;
}

/* The same inside the gate, for work that is queued before leaving it. All devices count, since a stream of this one
 * may join a capture of any other. */
static bool captures_inside(const wr_device *device, const wr_stream *stream)
{
    return wr_gate_captures() || wr_stream_capturing(device->backend, device->ordinal, stream->native);
}

weir_status wr_debug_scratch(size_t bytes, wr_scratch **out)
{
    void *made = NULL;
    WR_TRY(wr_meta_alloc(sizeof(wr_scratch) + bytes, "debug", &made));
    *out = made;
    return WEIR_OK;
}

void wr_debug_scratch_done(wr_debug *d, wr_scratch *scratch, bool awaited)
{
    if (!awaited) {
        wr_meta_free(scratch);
        return;
    }
    wr_lock_acquire(&d->lock);
    scratch->next = d->awaited;
    d->awaited = scratch;
    wr_lock_release(&d->lock);
}

/* Inside the gate nothing may be waited for, but a copy to pageable memory waits for the stream, which must be idle. */
static weir_status copy_inside(const wr_device *device, const wr_stream *stream, const void *from, size_t bytes,
                               wr_scratch *scratch, void *event, bool *queued)
{
    const weir_backend *backend = device->backend;
    if (captures_inside(device, stream)) return WEIR_ERR_CAPTURE;
    WR_TRY(wr_driver(backend, stream_query, device->ordinal, stream->native));
    *queued = true;
    WR_TRY(wr_driver(backend, copy, device->ordinal, stream->native, scratch->bytes, from, bytes));
    return wr_driver(backend, event_record, device->ordinal, event, stream->native);
}

enum { READ_TRIES = 4 }; /* other threads may keep queueing work on the stream */

static weir_status read_behind(wr_device *device, const wr_stream *stream, const void *from, size_t bytes,
                               wr_scratch *scratch, void *event, bool *queued)
{
    weir_status status = WEIR_ERR_NOT_READY;
    for (int i = 0; i < READ_TRIES && status == WEIR_ERR_NOT_READY; i++) {
        WR_TRY(wr_event_ask_stream(&device->events, stream->native, true));
        wr_gate_enter();
        status = copy_inside(device, stream, from, bytes, scratch, event, queued);
        wr_gate_leave();
    }
    return status == WEIR_OK ? wr_driver(device->backend, event_synchronize, device->ordinal, event) : status;
}

weir_status wr_debug_read(wr_device *device, const wr_stream *stream, const void *from, size_t bytes,
                          wr_scratch *scratch, bool *awaited)
{
    void *event = NULL;
    bool queued = false;
    WR_TRY(wr_event_get(&device->events, &event));
    weir_status status = read_behind(device, stream, from, bytes, scratch, event, &queued);
    wr_event_put(&device->events, event);
    *awaited = queued && status != WEIR_OK;
    return status;
}

weir_status wr_debug_fill(const wr_device *device, wr_stream *stream, void *base, unsigned char value, size_t bytes)
{
    weir_status status = WEIR_ERR_CAPTURE;
    wr_gate_enter();
    if (!captures_inside(device, stream))
        status = wr_driver(device->backend, fill, device->ordinal, stream->native, base, value, bytes);
    wr_gate_leave();
    if (status == WEIR_OK) wr_stream_note_queued(stream);
    return status;
}
