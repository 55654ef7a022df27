/*
 * history: the last events of one device. Each thread writes into a page of its own, without a lock; a reader merges
 * the pages by time. Off (capacity 0) it costs one test per event.
 *
 * A full page goes to the end of a queue. The oldest page of the queue is reused once the others hold as many events as
 * were asked for that are later than all of its own: what is earlier goes with it. When a thread ends, the next thread
 * that needs a page continues its page. So memory is bounded by the capacity and by how many threads record at the same
 * time, however many come and go.
 * Owner: the device's cache. Lock: the history's (WR_RANK_HISTORY), for everything but writing into a page; a writer
 * takes it once per page. Lives as long as the device.
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
    struct wr_page *next; /* in the queue or list that it is in */
    atomic_uint count;    /* events written, by the one thread that has the page */
    unsigned cleared;     /* of those, forgotten by wr_history_clear */
    uint32_t beside_full; /* how many were not full as this one came into the queue: no others have earlier events */

    /* while the pages are merged: */
    unsigned at, end; /* what is left to take */
    struct wr_page *beside;
    weir_event events[WR_HISTORY_PAGE];
    uint32_t stacks[WR_HISTORY_PAGE]; /* of the events; 0: none */
} wr_page;

typedef struct wr_history {
    atomic_uint_fast64_t capacity; /* events; 0: off */
    uint64_t serial; /* never reused, so that a thread recognises what it remembers of a history that is gone. Constant,
                        as is the next */
    int16_t device;

    wr_lock lock;
    wr_page **pages; /* all of them, in any order */
    uint32_t page_count, page_capacity;
    wr_page *first_full, *last_full; /* oldest first */
    uint32_t full_count;
    wr_page *partial;       /* of threads that have ended */
    uint64_t dropped;       /* events gone, since the last clear */
    uint64_t gone_until;    /* the time of the newest of them */
    uint64_t cleared_until; /* the time of the last clear; what is older is forgotten, even if it comes later */
    struct wr_history *next;
} wr_history;

/* `capacity` 0: recording off. Stays at one address until the release. */
WR_CHECKED weir_status wr_history_init(wr_history *history, int device, uint64_t capacity);

/* Switches it on, or changes how many events it keeps. `missing`: if it was off, how many blocks and segments there are
 * whose coming was not recorded, which count as dropped. */
void wr_history_start(wr_history *history, uint64_t capacity, uint64_t missing);

/* Switches it off and forgets everything. Each thread keeps its page, for when it goes on. */
void wr_history_stop(wr_history *history);

static inline uint64_t wr_history_capacity(const wr_history *history)
{
    return atomic_load_explicit(&history->capacity, memory_order_relaxed);
}

void wr_history_release(wr_history *history);

/* Copies up to `capacity` of the last events, oldest first, each thread's in its own order; *count is how many were
 * copied, *dropped how many were lost before them. `stacks`: gets the numbers of their stacks, 0: none; may be NULL. */
void wr_history_copy(wr_history *history, weir_event *events, uint32_t *stacks, uint64_t capacity, uint64_t *count,
                     uint64_t *dropped);

/* How many events a copy would get now. */
uint64_t wr_history_held(wr_history *history);

/* Mapped memory of one stream has become another's, in the events too: PyTorch's viewer goes back through them from the
 * segments as they are, and joins what is mapped side by side only if it is on one stream. Takes time in proportion to
 * the number of events. */
void wr_history_move_mapped(wr_history *history, const void *from, const void *to);

/* Labels stay: later events are under their threads' labels. */
void wr_history_clear(wr_history *history);
void wr_history_clear_locked(wr_history *history);

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
    if (WR_UNLIKELY(wr_history_capacity(history) != 0)) wr_history_write(history, kind, address, size, stream, pool);
}

/* A block is handed out; *stack becomes the stack that allocated it. */
static inline void wr_history_record_alloc(wr_history *history, const void *address, uint64_t size, const void *stream,
                                           weir_mempool pool, uint32_t *stack)
{
    if (WR_LIKELY(wr_history_capacity(history) == 0)) return;
    wr_history_write(history, WEIR_EVENT_ALLOC, address, size, stream, pool);
    *stack = wr_stack_now;
}

/* A free that is complete at once: writes both events, one after the other. */
static inline void wr_history_record_free(wr_history *history, const void *address, uint64_t size, const void *stream,
                                          weir_mempool pool)
{
    if (WR_UNLIKELY(wr_history_capacity(history) != 0)) wr_history_write_free(history, address, size, stream, pool);
}

/* Whether no thread has the lock of the list of histories: for a child of fork. */
bool wr_histories_at_rest(void);

#endif
