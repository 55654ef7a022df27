#include "observe/history.h"

#include "base/meta.h"
#include "base/thread_number.h"

#include <time.h>

weir_status wr_history_init(wr_history *history, int device, uint64_t capacity)
{
    void *events = NULL;
    if (capacity != 0) {
        WR_ENSURE(capacity <= SIZE_MAX / sizeof(weir_event), WEIR_ERR_OPTION,
                  "option history: %llu events do not fit the address space; set WEIR_HISTORY lower",
                  (unsigned long long)capacity);
        WR_TRY(wr_meta_reserve((size_t)capacity * sizeof(weir_event), "event history", &events));
    }
    *history = (wr_history){ .events = events, .capacity = capacity, .device = (int16_t)device };
    return WEIR_OK;
}

void wr_history_release(wr_history *history)
{
    if (history->events) wr_meta_release(history->events, (size_t)history->capacity * sizeof(weir_event));
    *history = (wr_history){ 0 };
}

void wr_history_write(wr_history *history, weir_event event)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event.time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    event.device = history->device;
    event.thread = wr_thread_number();
    history->events[history->written % history->capacity] = event;
    history->written++;
}

void wr_history_copy(const wr_history *history, weir_event *events, uint64_t capacity, uint64_t *count,
                     uint64_t *dropped)
{
    uint64_t held = history->written < history->capacity ? history->written : history->capacity;
    uint64_t first = history->written - held;
    uint64_t copied = held < capacity ? held : capacity;
    for (uint64_t i = 0; i < copied; i++) events[i] = history->events[(first + i) % history->capacity];
    *count = copied;
    *dropped = first;
}
