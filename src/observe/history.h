/*
 * history: the last events of one device. Each thread writes into a page of its own, without a lock; whoever wants to
 * read puts the pages together by time. Off (capacity 0) it costs one test per event.
 *
 * A full page goes to the end of a queue, and the oldest in it is used again when as many events as asked for are in the
 * others. The page of a thread that ends is continued by the next thread that needs one, so memory is bounded by the
 * capacity and by how many threads record at the same time, however many come and go.
 * Owner: the device's cache. Lock: the history's (WR_RANK_HISTORY), for everything but writing into a page; taken once per
 * page. Lives as long as the device.
 */
#ifndef WR_OBSERVE_HISTORY_H
#define WR_OBSERVE_HISTORY_H

#include "base/compiler.h"
#include "base/lock.h"
#include "observe/stacks.h"
#include "weir/trace.h"

#include <stdatomic.h>

#define WR_HISTORY_PAGE 512 /* events in a page */

typedef struct wr_page {
    struct wr_page *next; /* in the list it is in */
    atomic_uint count;    /* events written, by the one thread that has it */
    unsigned cleared;     /* of those, forgotten by wr_history_clear */

    /* while the pages are put together: */
    unsigned at, end; /* what is left to take */
    struct wr_page *beside;
    weir_event events[WR_HISTORY_PAGE];
    uint32_t stacks[]; /* of the events, in a history with stacks */
} wr_page;

typedef struct wr_history {
    uint64_t capacity; /* events; 0: off. Constant, as are the next three */
    uint64_t serial;   /* of all histories, ever: what a thread remembers of one that is gone is recognised */
    int16_t device;
    bool stacks; /* events have the number of their stack. Constant, too */

    wr_lock lock;
    wr_page **pages; /* all of them, in any order */
    uint32_t page_count, page_capacity;
    wr_page *first_full, *last_full; /* oldest first */
    uint32_t full_count;
    wr_page *partial;    /* of threads that have ended */
    uint64_t dropped;    /* events gone, since the last clear */
    uint64_t gone_until; /* the time of the newest of them */
    struct wr_history *next;
} wr_history;

/* `capacity` 0: recording off. With stacks where some are kept. At a constant address until the release. */
WR_CHECKED weir_status wr_history_init(wr_history *history, int device, uint64_t capacity);
void wr_history_release(wr_history *history);

/* Up to `capacity` of the last events, by time and as each thread wrote them, oldest first; *count is how many were copied,
 * *dropped how many were lost before. `stacks`: the numbers of theirs, 0 where there are none; NULL: nobody asks. */
void wr_history_copy(wr_history *history, weir_event *events, uint32_t *stacks, uint64_t capacity, uint64_t *count,
                     uint64_t *dropped);

/* How many events a copy would have now. */
uint64_t wr_history_held(wr_history *history);

/* What comes later is under the labels that threads are under now. */
void wr_history_clear(wr_history *history);

/* The calling thread's events are under this label until it is popped; labels nest. */
WR_CHECKED weir_status wr_history_push_label(const char *label);
WR_CHECKED weir_status wr_history_pop_label(void);

WR_NOINLINE void wr_history_write(wr_history *history, weir_event_kind kind, const void *address, uint64_t size,
                                  const void *stream, weir_mempool pool);
WR_NOINLINE void wr_history_write_free(wr_history *history, const void *address, uint64_t size, const void *stream,
                                       weir_mempool pool);

static inline void wr_history_record(wr_history *history, weir_event_kind kind, const void *address, uint64_t size,
                                     const void *stream, weir_mempool pool)
{
    if (WR_UNLIKELY(history->capacity != 0)) wr_history_write(history, kind, address, size, stream, pool);
}

/* A block that is handed out; *stack: the one that allocated it. */
static inline void wr_history_record_alloc(wr_history *history, const void *address, uint64_t size, const void *stream,
                                           weir_mempool pool, uint32_t *stack)
{
    if (WR_LIKELY(history->capacity == 0)) return;
    wr_history_write(history, WEIR_EVENT_ALLOC, address, size, stream, pool);
    *stack = wr_stack_now;
}

/* A free that is complete at once: both events, side by side. */
static inline void wr_history_record_free(wr_history *history, const void *address, uint64_t size, const void *stream,
                                          weir_mempool pool)
{
    if (WR_UNLIKELY(history->capacity != 0)) wr_history_write_free(history, address, size, stream, pool);
}

#endif
