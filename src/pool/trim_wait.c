#include "pool/trim_wait.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "stream/event.h"
#include "stream/gate.h"
#include "stream/quiet.h"

/* Where new work keeps coming no stream is found idle: then no more rounds than these, and those in which each stream
 * may be waited for once. */
enum { ROUNDS = 4 };

#define LOCKED_NS UINT64_C(1000000000)
/* Where it was waited for without a lock before. */
#define LAST_NS UINT64_C(100000000)
/* For an event on an idle stream, which a device reaches within some microseconds. */
#define BESIDE_CAPTURES_NS UINT64_C(200000)
/* Of the last look, in which nothing else helps: for each stream that is met after the time is up, and for all those */
#define EACH_NS UINT64_C(1000000)
#define LATE_NS UINT64_C(50000000)

bool wr_trim_wait_busy(const wr_trim_wait *wait, const wr_stream *stream)
{
    for (size_t i = 0; i < wait->count; i++)
        if (wait->busy[i].stream == stream) return true;
    return false;
}

/* A busy stream, of which that was not known. One beyond the limit is met again in the next round. In the last one
 * nothing is waited for afterwards. */
static void note(wr_trim_wait *wait, const wr_stream *stream)
{
    void *event = NULL;
    if (wait->count == WR_TRIM_WAIT_STREAMS) return;
    if (!wait->waits && wr_event_behind(wait->cache->events, stream->native, &event) != WEIR_OK) event = NULL;
    wait->busy[wait->count].stream = stream;
    wait->busy[wait->count++].event = event;
}

static weir_status event_behind(const wr_cache *cache, const wr_stream *stream, void **event)
{
    WR_TRY(wr_event_behind(cache->events, stream->native, event));
    WR_ENSURE(*event, WEIR_ERR_CAPTURE,
              "%s: memory of stream %p cannot be given back while the stream is being captured", cache->name,
              stream->native);
    return WEIR_OK;
}

static weir_status poll_until(const wr_cache *cache, int device, void *event, uint64_t until)
{
    for (wr_backoff b = { 0 };; wr_backoff_wait(&b)) {
        const weir_status status = wr_driver(cache->backend, event_query, device, event);
        if (status != WEIR_ERR_NOT_READY || wr_clock_ns(CLOCK_MONOTONIC) >= until) return status;
    }
}

/* No longer than until then, since the work may be waiting for a thread that waits for the move lock. */
static weir_status finish_until(const wr_cache *cache, const wr_stream *stream, uint64_t until)
{
    void *event = NULL;
    WR_TRY(event_behind(cache, stream, &event));
    const weir_status status = poll_until(cache, stream->device, event, until);
    wr_event_put(cache->events, event);
    return status;
}

/* Those that are met after the time is up may be idle all the same; each is asked once in any case. */
static weir_status finish_soon(wr_trim_wait *wait, const wr_stream *stream)
{
    const uint64_t now = wr_clock_ns(CLOCK_MONOTONIC);
    if (wait->until == 0) wait->until = now + LOCKED_NS;
    const uint64_t last = wait->until + LATE_NS, soon = now + EACH_NS < last ? now + EACH_NS : last;
    return finish_until(wait->cache, stream, wait->until > soon ? wait->until : soon);
}

/* While captures are known, only an event can tell. */
static weir_status look(const wr_cache *cache, const wr_stream *stream)
{
    weir_status status = wr_event_ask_stream(cache->events, stream->native, false);
    if (status != WEIR_ERR_NOT_READY || !wr_gate_captures()) return status;
    return finish_until(cache, stream, wr_clock_ns(CLOCK_MONOTONIC) + BESIDE_CAPTURES_NS);
}

weir_status wr_trim_wait_stream(wr_trim_wait *wait, const wr_stream *stream)
{
    const wr_cache *cache = wait->cache;
    if (wr_cache_is_host(cache)) return WEIR_OK; /* all uses of a block were waited for before it was free */
    if (wr_trim_wait_busy(wait, stream)) return WEIR_ERR_NOT_READY;
    weir_status status = wait->waits ? finish_soon(wait, stream) : look(cache, stream);
    if (status == WEIR_ERR_NOT_READY) note(wait, stream);
    return status;
}

weir_status wr_trim_wait_spare(weir_status status, bool *captured)
{
    if (status == WEIR_ERR_CAPTURE) *captured = true;
    return status == WEIR_ERR_CAPTURE || status == WEIR_ERR_NOT_READY ? WEIR_OK : status;
}

weir_status wr_trim_wait_launches_locked(wr_trim_wait *wait, const wr_mempool *pool)
{
    if (pool->stray == 0 || pool->stray <= atomic_load(&wait->cache->streams->quiet)) return WEIR_OK;
    if (wait->refused != WEIR_OK) return wait->refused;
    wait->device = true;
    return WEIR_ERR_NOT_READY;
}

static weir_status wait_for_device(const wr_trim_wait *wait)
{
    const wr_cache *cache = wait->cache;
    if (wr_gate_captures())
        return WEIR_ERR_CAPTURE; /* captures that the program ends itself must not be asked about just then */
    return wr_quiet_synchronize(cache->events, cache->streams, "giving back what graphs have used");
}

/* If a wait fails, the next look at the stream shows it. False: there was nothing to wait for. */
static bool wait_for_streams(wr_trim_wait *wait, bool again)
{
    wr_event_pool *events = wait->cache->events;
    bool waited = false;
    for (size_t i = 0; i < wait->count; i++) {
        void *event = wait->busy[i].event;
        if (!event) continue;
        if (again) (void)wr_driver(events->backend, event_synchronize, events->device, event);
        wr_event_put(events, event);
        waited = true;
    }
    wait->count = 0;
    return waited;
}

static unsigned rounds_most(const wr_trim_wait *wait)
{
    return ROUNDS + wr_streams_used(wait->cache->streams) / WR_TRIM_WAIT_STREAMS;
}

bool wr_trim_wait_again(wr_trim_wait *wait, bool enough)
{
    const bool streams = wait->count != 0, again = (streams || wait->device) && !enough && !wait->waits;
    const bool waited = wait_for_streams(wait, again);
    if (again && wait->device) wait->refused = wait_for_device(wait);
    wait->device = false;
    wait->rounds += again;
    wait->waits |= (streams && !waited) || (again && wait->rounds >= rounds_most(wait));
    return again;
}

bool wr_trim_wait_briefly(wr_trim_wait *wait, uint64_t nanoseconds)
{
    const wr_cache *cache = wait->cache;
    const uint64_t until = wr_clock_ns(CLOCK_MONOTONIC) + nanoseconds;
    bool over = false;
    for (size_t i = 0; i < wait->count; i++) {
        void *event = wait->busy[i].event;
        if (event) over |= poll_until(cache, cache->device, event, until) == WEIR_OK;
    }
    (void)wr_trim_wait_again(wait, true);
    wait->waits = over;
    wait->until = wr_clock_ns(CLOCK_MONOTONIC) + LAST_NS;
    return over;
}

/* A block freed on its own stream is free at once, while work on it may still be queued. */
weir_status wr_cache_finish_work(const wr_cache *cache, const wr_stream *stream)
{
    void *event = NULL;
    WR_TRY(event_behind(cache, stream, &event));
    weir_status status = wr_driver(cache->backend, event_synchronize, stream->device, event);
    wr_event_put(cache->events, event);
    return status;
}
