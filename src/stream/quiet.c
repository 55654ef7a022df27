#include "stream/quiet.h"

#include "stream/gate.h"

/* Where new work keeps coming the device is never found idle: then the last of it is left to the wait for the
 * device. */
enum { WAITS = 4 };

/* An event behind the present work of the stream of that index, or NULL: that is left to the wait for the device. The
 * table's lock keeps the stream from being destroyed meanwhile. */
static void *mark(wr_event_pool *events, wr_stream_table *streams, uint32_t index)
{
    void *event = NULL;
    wr_lock_acquire(&streams->lock);
    const wr_stream *s = &streams->records[index];
    const bool there = atomic_load_explicit(&s->id, memory_order_relaxed) != 0;
    if (there && wr_event_behind(events, s->native, &event) != WEIR_OK) event = NULL;
    wr_lock_release(&streams->lock);
    return event;
}

static weir_status would_end_a_capture(wr_stream_table *streams, bool *would)
{
    return streams->captured_anywhere ? streams->captured_anywhere(would) : wr_streams_captured(streams, would);
}

weir_status wr_quiet_wait_for_streams(wr_event_pool *events, wr_stream_table *streams)
{
    const uint32_t used = wr_streams_used(streams);
    weir_status first = WEIR_OK;
    for (uint32_t i = 0; i < used; i++) {
        void *event = mark(events, streams, i);
        if (!event) continue;
        wr_keep_first(&first, wr_driver(events->backend, event_synchronize, events->device, event));
        wr_event_put(events, event);
    }
    return first;
}

/* A stream that may be joining a capture of another device must not be asked for its work. */
static bool may_be_busy(wr_stream_table *streams)
{
    return wr_gate_captures() || wr_streams_any_busy(streams);
}

weir_status wr_quiet_begin_at_once(wr_stream_table *streams)
{
    bool captured = false;
    wr_gate_bar();
    const weir_status status = would_end_a_capture(streams, &captured);
    if (status == WEIR_OK && !captured) return WEIR_OK;
    wr_gate_lift_bar();
    return status != WEIR_OK ? status : WEIR_ERR_CAPTURE;
}

weir_status wr_quiet_begin(wr_event_pool *events, wr_stream_table *streams)
{
    for (int waits = 0;; waits++) {
        WR_TRY(wr_quiet_begin_at_once(streams));
        if (waits == WAITS || !may_be_busy(streams)) return WEIR_OK;
        wr_gate_lift_bar();
        WR_TRY(wr_quiet_wait_for_streams(events, streams));
    }
}

void wr_quiet_end(void)
{
    wr_gate_lift_bar();
}

static void note_quiet(wr_stream_table *streams, uint64_t strays)
{
    uint64_t known = atomic_load(&streams->quiet);
    while (known < strays && !atomic_compare_exchange_weak(&streams->quiet, &known, strays)) continue;
}

weir_status wr_quiet_synchronize(wr_event_pool *events, wr_stream_table *streams, const char *call)
{
    weir_status status = wr_quiet_begin(events, streams);
    WR_ENSURE(
        status != WEIR_ERR_CAPTURE, WEIR_ERR_CAPTURE,
        "%s: a stream %sis being captured, and waiting for device %d would invalidate the capture; wait before or "
        "after it",
        call, streams->captured_anywhere ? "of one of the devices " : "", streams->device);
    if (status != WEIR_OK) return status;
    const uint64_t strays = atomic_load(&streams->strays);
    status = wr_driver(streams->backend, device_synchronize, streams->device);
    wr_quiet_end();
    if (status == WEIR_OK) note_quiet(streams, strays);
    return status;
}
