/*
 * event: used events of one device, kept for reuse, because creating one costs more than recording it.
 * Owner: the device. Lock: its own (WR_RANK_EVENTS), never held across a driver call. Lives as long as the device.
 */
#ifndef WR_STREAM_EVENT_H
#define WR_STREAM_EVENT_H

#include "backend/backend.h"
#include "base/lock.h"
#include "base/status.h"
#include "stream/stream.h"

typedef struct wr_event_pool {
    wr_lock lock;
    const weir_backend *backend;
    int device;
    void **idle;
    uint32_t idle_count, capacity, made; /* capacity >= made, so that putting one back cannot fail */
} wr_event_pool;

void wr_events_init(wr_event_pool *pool, const weir_backend *backend, int device);
weir_status wr_events_release(wr_event_pool *pool);

WR_CHECKED weir_status wr_event_get(wr_event_pool *pool, void **event);
void wr_event_put(wr_event_pool *pool, void *event);
void wr_events_put(wr_event_pool *pool, void *const *events, uint32_t count);

/* An event behind the present work of a native stream of the pool's device, certain to lie outside every capture. NULL:
 * there cannot be one, because the stream captures. */
WR_CHECKED weir_status wr_event_behind(wr_event_pool *pool, void *native, void **event);

/* WEIR_OK when a native stream of the pool's device has no work left, now or, with `wait`, after waiting for it.
 * WEIR_ERR_NOT_READY when it has, or when asking could end a capture that it is in or joins. */
WR_CHECKED weir_status wr_event_ask_stream(wr_event_pool *pool, void *native, bool wait);

/* Makes later work on `to` wait for the present work of the native stream `from`, of the pool's device, and counts that
 * in `to`. If either captures, *chained is false and nothing happened. */
WR_CHECKED weir_status wr_event_chain_uncaptured(wr_event_pool *pool, void *from, wr_stream *to, bool *chained);

/* The same; returns whether it was done. If not, nothing changed. */
static inline bool wr_event_chained(wr_event_pool *pool, void *from, wr_stream *to)
{
    bool chained = false;
    return wr_event_chain_uncaptured(pool, from, to, &chained) == WEIR_OK && chained;
}

/* Makes later work on the native stream `to`, of device `to_device`, wait for the present work of `from`, of the pool's
 * device. */
WR_CHECKED weir_status wr_event_chain(wr_event_pool *pool, void *from, int to_device, void *to);

#endif
