#include "stream/event.h"

#include "base/meta.h"
#include "stream/gate.h"
#include "stream/stream.h"

#include <assert.h>
#include <time.h>

void wr_events_init(wr_event_pool *pool, const weir_backend *backend, int device)
{
    *pool = (wr_event_pool){ .backend = backend, .device = device };
    wr_lock_init(&pool->lock, WR_RANK_EVENTS, "events");
}

weir_status wr_events_release(wr_event_pool *pool)
{
    weir_status first = WEIR_OK;
    for (uint32_t i = 0; i < pool->idle_count; i++)
        wr_keep_first(&first, wr_driver(pool->backend, event_destroy, pool->device, pool->idle[i]));
    wr_meta_free(pool->idle);
    wr_lock_destroy(&pool->lock);
    *pool = (wr_event_pool){ 0 };
    return first;
}

weir_status wr_event_get(wr_event_pool *pool, void **event)
{
    wr_lock_acquire(&pool->lock);
    if (pool->idle_count > 0) {
        *event = pool->idle[--pool->idle_count];
        wr_lock_release(&pool->lock);
        return WEIR_OK;
    }
    weir_status status = wr_meta_grow(&pool->idle, &pool->capacity, pool->made + 1, sizeof *pool->idle, "idle events");
    if (status == WEIR_OK) pool->made++;
    wr_lock_release(&pool->lock);
    if (status != WEIR_OK) return status;

    status = wr_driver(pool->backend, event_create, pool->device, event);
    if (status != WEIR_OK) {
        wr_lock_acquire(&pool->lock);
        pool->made--;
        wr_lock_release(&pool->lock);
    }
    return status;
}

void wr_events_put(wr_event_pool *pool, void *const *events, uint32_t count)
{
    wr_lock_acquire(&pool->lock);
    assert(pool->made - pool->idle_count >= count);
    for (uint32_t i = 0; i < count; i++) pool->idle[pool->idle_count++] = events[i];
    wr_lock_release(&pool->lock);
}

void wr_event_put(wr_event_pool *pool, void *event)
{
    wr_events_put(pool, &event, 1);
}

/* An event that may be part of a capture is not recorded again, least of all by another thread: the driver would change
 * that capture's graph while another thread is capturing (seen on CUDA 13.0: cuStreamEndCapture crashes). */
static void drop(wr_event_pool *pool, void *event)
{
    wr_lock_acquire(&pool->lock);
    pool->made--;
    wr_lock_release(&pool->lock);
    wr_clean_up(wr_driver(pool->backend, event_destroy, pool->device, event));
}

/* While captures are known, the stream may join one between the first question and the record. */
static weir_status record_inside(const wr_event_pool *pool, void *native, void *event, bool *touched, bool *recorded)
{
    *touched = *recorded = false;
    if (wr_stream_capturing(pool->backend, pool->device, native)) return WEIR_OK;
    *touched = true;
    WR_TRY(wr_driver(pool->backend, event_record, pool->device, event, native));
    *recorded = !wr_gate_captures() || !wr_stream_capturing(pool->backend, pool->device, native);
    return WEIR_OK;
}

weir_status wr_event_behind(wr_event_pool *pool, void *native, void **event)
{
    void *made = NULL;
    bool touched = false, recorded = false;
    *event = NULL;
    WR_TRY(wr_event_get(pool, &made));
    wr_gate_enter();
    weir_status status = record_inside(pool, native, made, &touched, &recorded);
    wr_gate_leave();
    if (recorded)
        *event = made;
    else
        (touched ? drop : wr_event_put)(pool, made);
    return status;
}

/* A driver that cannot say whether the stream captures, unless that is because the device is lost, is taken to say
 * yes. */
static weir_status ask_inside(const wr_event_pool *pool, void *native, bool *captures)
{
    *captures = wr_gate_captures();
    const weir_status asked = *captures ? WEIR_OK : wr_stream_captured(pool->backend, pool->device, native, captures);
    if (asked == WEIR_ERR_DEVICE_LOST) return asked;
    *captures |= asked != WEIR_OK;
    return *captures ? WEIR_ERR_NOT_READY : wr_driver(pool->backend, stream_query, pool->device, native);
}

static weir_status ask_once(const wr_event_pool *pool, void *native, bool *captures)
{
    wr_gate_enter();
    const weir_status status = ask_inside(pool, native, captures);
    wr_gate_leave();
    return status;
}

/* Waiting for the stream inside the gate would keep captures from beginning for that long. So an event is waited for
 * or, while the driver has none, the stream is asked again and again. */
weir_status wr_event_ask_stream(wr_event_pool *pool, void *native, bool wait)
{
    struct timespec nap = { 0, 10000 };
    for (;;) {
        void *event = NULL;
        bool captures = false;
        weir_status status = ask_once(pool, native, &captures);
        if (!wait || captures || status != WEIR_ERR_NOT_READY) return status;
        if (wr_event_behind(pool, native, &event) == WEIR_OK && event) {
            status = wr_driver(pool->backend, event_synchronize, pool->device, event);
            wr_event_put(pool, event);
            return status;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 1000000) nap.tv_nsec *= 2;
    }
}

static weir_status chain_inside(const wr_event_pool *pool, void *event, void *from, wr_stream *to, bool *touched,
                                bool *chained)
{
    WR_TRY(record_inside(pool, from, event, touched, chained));
    if (*chained) *chained = !wr_stream_capturing(pool->backend, to->device, to->native);
    if (!*chained) return WEIR_OK;
    WR_TRY(wr_driver(pool->backend, stream_wait, to->device, to->native, event));
    wr_stream_note_queued(to);
    return WEIR_OK;
}

weir_status wr_event_chain_uncaptured(wr_event_pool *pool, void *from, wr_stream *to, bool *chained)
{
    void *event = NULL;
    bool touched = false;
    *chained = false;
    WR_TRY(wr_event_get(pool, &event));
    wr_gate_enter();
    weir_status status = chain_inside(pool, event, from, to, &touched, chained);
    wr_gate_leave();
    (*chained || !touched ? wr_event_put : drop)(pool, event);
    if (status != WEIR_OK) *chained = false;
    return status;
}

/* The state of a stream of which work is to become part of a capture, or is to wait for one. */
typedef struct capture_seen {
    weir_capture_state state;
    uint64_t id; /* of an active capture; 0: of another state */
} capture_seen;

static weir_status ask(const weir_backend *backend, int device, void *native, capture_seen *out)
{
    *out = (capture_seen){ WEIR_CAPTURE_NONE, 0 };
    return wr_stream_capture(backend, device, native, &out->state, &out->id);
}

/* Work on the default stream would end the captures of streams that synchronise with it, and so would a wait that makes
 * it, or a stream of another capture, part of one. If a captured stream waited for one outside, CUDA would end the
 * capture, and HIP would succeed with a graph that does not wait. */
static weir_status check_captures(const wr_event_pool *pool, void *from, int to_device, void *to, bool *captured)
{
    capture_seen of_from, of_to;
    WR_TRY(ask(pool->backend, pool->device, from, &of_from));
    WR_TRY(ask(pool->backend, to_device, to, &of_to));
    WR_ENSURE(
        of_from.state != WEIR_CAPTURE_IMPLICIT && of_to.state != WEIR_CAPTURE_IMPLICIT, WEIR_ERR_CAPTURE,
        "weir_stream_wait: the default stream can neither wait nor be waited for while a stream that synchronises "
        "with it is being captured; end the capture first, or use another stream");
    *captured = of_from.state != WEIR_CAPTURE_NONE;
    const bool outside = !*captured && of_to.state != WEIR_CAPTURE_NONE;
    WR_ENSURE(
        !outside || from, WEIR_ERR_CAPTURE,
        "weir_stream_wait: stream %p is being captured and cannot wait for the default stream, which cannot become "
        "part of a capture; let it wait before the capture begins, or use another stream",
        to);
    WR_ENSURE(!outside, WEIR_ERR_CAPTURE,
              "weir_stream_wait: stream %p is being captured and cannot wait for stream %p, which is not part of the "
              "capture; let it wait before the capture begins, or let the other stream wait for it first",
              to, from);
    WR_ENSURE(!*captured || to, WEIR_ERR_CAPTURE,
              "weir_stream_wait: the default stream cannot become part of a capture, so it cannot wait for stream %p, "
              "which is being captured; end the capture first, or use another stream",
              from);
    WR_ENSURE(
        of_to.state == WEIR_CAPTURE_NONE || of_to.id == of_from.id, WEIR_ERR_CAPTURE,
        "weir_stream_wait: streams %p and %p are in two captures, which no wait can make one; end one of them first",
        to, from);
    return WEIR_OK;
}

/* If both streams capture, the wait becomes part of the graph. */
weir_status wr_event_chain(wr_event_pool *pool, void *from, int to_device, void *to)
{
    void *event = NULL;
    bool captured = false;
    WR_TRY(wr_event_get(pool, &event));
    wr_gate_enter();
    weir_status status = check_captures(pool, from, to_device, to, &captured);
    if (status == WEIR_OK) {
        status = wr_driver(pool->backend, event_record, pool->device, event, from);
        captured = captured || status != WEIR_OK || wr_stream_capturing(pool->backend, pool->device, from);
        if (status == WEIR_OK) status = wr_driver(pool->backend, stream_wait, to_device, to, event);
    }
    wr_gate_leave();
    /* The wait refers to this recording, so outside captures the event may be recorded again at once. */
    (captured ? drop : wr_event_put)(pool, event);
    return status;
}
