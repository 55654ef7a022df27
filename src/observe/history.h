/*
 * history: the last events of one device, in a ring. Off (capacity 0) it costs one test per event.
 * Owner: the device. Lock: the device cache's, held by the caller of every function here. Lives as long as the
 * device.
 */
#ifndef WR_OBSERVE_HISTORY_H
#define WR_OBSERVE_HISTORY_H

#include "base/compiler.h"
#include "weir/trace.h"

typedef struct wr_history {
    weir_event *events;
    uint64_t capacity;
    uint64_t written; /* ever; the ring holds the last min(written, capacity) */
    int16_t device;
} wr_history;

/* `capacity` 0: recording off. */
WR_CHECKED weir_status wr_history_init(wr_history *history, int device, uint64_t capacity);
void wr_history_release(wr_history *history);

/* Stamps time and device and stores the event. */
void wr_history_write(wr_history *history, weir_event event);

/* Oldest first; *count is how many were copied, *dropped how many were overwritten before. */
void wr_history_copy(const wr_history *history, weir_event *events, uint64_t capacity, uint64_t *count,
                     uint64_t *dropped);

static inline void wr_history_record(wr_history *history, weir_event_kind kind, const void *address, uint64_t size,
                                     const void *stream)
{
    if (WR_LIKELY(history->capacity == 0)) return;
    wr_history_write(history, (weir_event){ .kind = (uint16_t)kind,
                                            .address = (uint64_t)(uintptr_t)address,
                                            .size = size,
                                            .stream = (uint64_t)(uintptr_t)stream });
}

#endif
