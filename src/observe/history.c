#include "observe/history.h"

#include "base/clock.h"
#include "base/exit_key.h"
#include "base/fork.h"
#include "base/meta.h"
#include "base/thread_number.h"

#include <string.h>
#include <time.h>

/* Histories that exist: a thread leaves alone what it has of any other. */
static wr_lock registry_lock = WR_LOCK_INITIALIZER(WR_RANK_HISTORIES, "histories");
static wr_history *registry;

weir_status wr_history_init(wr_history *history, int device, uint64_t capacity)
{
    static atomic_uint_fast64_t last_serial;
    WR_ENSURE(capacity <= SIZE_MAX / sizeof(weir_event), WEIR_ERR_OPTION,
              "option history: %llu events do not fit into the address space; lower WEIR_HISTORY",
              (unsigned long long)capacity);
    *history = (wr_history){ .device = (int16_t)device };
    history->serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
    atomic_init(&history->capacity, capacity);
    wr_lock_init(&history->lock, WR_RANK_HISTORY, "history");
    wr_lock_acquire(&registry_lock);
    history->next = registry;
    registry = history;
    wr_lock_release(&registry_lock);
    return WEIR_OK;
}

void wr_history_release(wr_history *history)
{
    if (history->serial == 0) return;
    wr_lock_acquire(&registry_lock);
    for (wr_history **link = &registry; *link; link = &(*link)->next)
        if (*link == history) {
            *link = history->next;
            break;
        }
    wr_lock_release(&registry_lock);
    for (uint32_t i = 0; i < history->page_count; i++) wr_meta_free(history->pages[i]);
    wr_meta_free(history->pages);
    wr_lock_destroy(&history->lock);
    *history = (wr_history){ 0 };
}

bool wr_histories_at_rest(void)
{
    return wr_lock_is_free(&registry_lock);
}

/* ---- what a thread writes into ----------------------------------------------------------------------------------- */

typedef struct pen {
    uint64_t serial; /* of the page's history; 0: none */
    wr_page *page;
    uint64_t label; /* the label last written to the history; 0: none */
} pen;

enum { LABELS = 32 };
typedef struct label_stack {
    unsigned depth;
    char text[LABELS][WEIR_HISTORY_LABEL_MAX];
} label_stack;

/* A thread that works with more devices than it has pens changes pages when it goes from one device to another. */
enum { PENS = 4 };
/* Thread-local data, of which the library has 512 bytes at most (tests/consume/check_elf.sh). */
typedef struct desk {
    pen pens[PENS];
    label_stack *labels;      /* NULL: none */
    uint64_t label;           /* a number for the innermost label; 0: none */
    uint64_t last_label : 63; /* the last number given out */
    uint64_t watched : 1;     /* this thread's end is */
    /* A bit per device whose page this thread gave up while under a label, which may end meanwhile */
    uint64_t left_under;
} desk;

static WR_THREAD_LOCAL desk mine;

#define NO_LABEL UINT64_MAX /* the number of none, so that the present label, or its absence, is written */

static uint64_t device_bit(const wr_history *history)
{
    return UINT64_C(1) << (unsigned)history->device % 64;
}

static void put_down(pen *p)
{
    wr_lock_acquire(&registry_lock);
    wr_history *history = registry;
    while (history && history->serial != p->serial) history = history->next;
    if (history && p->label != 0) mine.left_under |= device_bit(history);
    if (history && p->page) {
        wr_lock_acquire(&history->lock);
        p->page->next = history->partial;
        history->partial = p->page;
        wr_lock_release(&history->lock);
    }
    wr_lock_release(&registry_lock);
    *p = (pen){ 0 };
}

static void at_thread_exit(void *of_thread)
{
    desk *d = of_thread;
    wr_meta_free(d->labels);
    d->labels = NULL;
    d->watched = false;
    if (atomic_load(&wr_forked)) return; /* the locks may be held by threads that do not exist here */
    for (int i = 0; i < PENS; i++)
        if (d->pens[i].serial) put_down(&d->pens[i]);
}

static void watch_thread(void)
{
    static wr_exit_key exit_key = { .at_exit = at_thread_exit };
    (void)wr_exit_key_set(&exit_key, &mine); /* on failure the pages of this thread are not continued */
    mine.watched = true;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static void queue_full_locked(wr_history *history, wr_page *page)
{
    page->next = NULL;
    if (history->last_full)
        history->last_full->next = page;
    else
        history->first_full = page;
    history->last_full = page;
    history->full_count++;
    page->beside_full = history->page_count - history->full_count;
}

static wr_page *reuse_oldest_locked(wr_history *history)
{
    wr_page *page = history->first_full;
    if (!page) return NULL;
    history->first_full = page->next;
    if (!page->next) history->last_full = NULL;
    history->full_count--;
    history->dropped += WR_HISTORY_PAGE - page->cleared;
    const uint64_t newest = page->events[WR_HISTORY_PAGE - 1].time_ns;
    if (newest > history->gone_until) history->gone_until = newest;
    page->cleared = 0;
    atomic_store_explicit(&page->count, 0, memory_order_relaxed);
    return page;
}

static wr_page *make_page_locked(wr_history *history)
{
    void *made = NULL;
    weir_status status = wr_meta_grow(&history->pages, &history->page_capacity, history->page_count + 1,
                                      sizeof *history->pages, "history");
    if (status == WEIR_OK) status = wr_meta_alloc(sizeof(wr_page), "history", &made);
    if (status != WEIR_OK) return NULL;
    history->pages[history->page_count++] = made;
    return made;
}

/* Without the oldest of the full pages, and without what goes with it because it is earlier than its last event: no
 * more than a page of each thread that was writing into one then. */
static bool has_enough_locked(const wr_history *history)
{
    const uint64_t gone = history->first_full ? 1 + (uint64_t)history->first_full->beside_full : 1;
    return history->full_count > gone && (history->full_count - gone) * WR_HISTORY_PAGE > wr_history_capacity(history);
}

static wr_page *take_page_locked(wr_history *history)
{
    wr_page *page = history->partial;
    if (page) {
        history->partial = page->next;
        return page;
    }
    if (!has_enough_locked(history)) page = make_page_locked(history);
    return page ? page : reuse_oldest_locked(history);
}

static bool has_room(const pen *p)
{
    return p->page && atomic_load_explicit(&p->page->count, memory_order_relaxed) < WR_HISTORY_PAGE;
}

/* Whether the thread's last label in the page has not ended there: it put the page down then, and has ended the label
 * in another one since. */
static bool is_under_label_locked(const wr_page *page)
{
    const uint32_t thread = wr_thread_number();
    unsigned at = atomic_load_explicit(&page->count, memory_order_relaxed);
    size_t length = 0;
    while (at > 0 && (page->events[at - 1].kind != WEIR_EVENT_LABEL || page->events[at - 1].thread != thread)) at--;
    if (at > 0) (void)weir_event_label(&page->events[at - 1], &length);
    return length != 0;
}

/* Gives the pen a page with room. False: there is no memory for one, and the event is lost. */
static WR_NOINLINE bool refill(wr_history *history, pen *p)
{
    if (!mine.watched) watch_thread();
    if (p->serial && p->serial != history->serial) put_down(p);
    if (p->serial != history->serial && mine.left_under & device_bit(history)) {
        mine.left_under &= ~device_bit(history);
        p->label = NO_LABEL;
    }
    p->serial = history->serial;
    wr_lock_acquire(&history->lock);
    while (!has_room(p)) {
        if (p->page) queue_full_locked(history, p->page);
        p->page = take_page_locked(history);
        if (!p->page) break;
    }
    if (!p->page)
        history->dropped++;
    else if (mine.last_label != 0 && is_under_label_locked(p->page))
        p->label = NO_LABEL;
    wr_lock_release(&history->lock);
    if (!p->page) return false;
    if (mine.labels) p->label = 0; /* write the label again, because the page before this one is dropped first */
    return true;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The thread's pen for a history, with room for an event; NULL: no memory. A page is ordered by time, so the event gets
 * a new time along with a new page: a thread that has ended may have written into that meanwhile. */
static inline pen *pen_for(wr_history *history, weir_event *event)
{
    pen *p = &mine.pens[(unsigned)history->device % PENS];
    if (WR_LIKELY(p->serial == history->serial && has_room(p))) return p;
    if (!refill(history, p)) return NULL;
    event->time_ns = wr_clock_ns(CLOCK_MONOTONIC);
    return p;
}

static inline void put(const pen *p, const weir_event *event)
{
    const unsigned count = atomic_load_explicit(&p->page->count, memory_order_relaxed);
    p->page->events[count] = *event;
    p->page->stacks[count] = wr_stack_now;
    atomic_store_explicit(&p->page->count, count + 1, memory_order_release);
}

_Static_assert(offsetof(weir_event, kind) - offsetof(weir_event, address) == WEIR_HISTORY_LABEL_MAX,
               "a label takes the place of address, size, stream and pool");

static WR_NOINLINE void say_label(wr_history *history, pen *p, uint64_t time_ns)
{
    weir_event event = {
        .time_ns = time_ns, .kind = WEIR_EVENT_LABEL, .device = history->device, .thread = wr_thread_number()
    };
    if (mine.labels)
        memcpy((char *)&event + offsetof(weir_event, address), mine.labels->text[mine.labels->depth - 1],
               WEIR_HISTORY_LABEL_MAX);
    p->label = mine.label;
    put(p, &event);
}

static inline void write_at(wr_history *history, weir_event *event)
{
    pen *p = pen_for(history, event);
    while (WR_UNLIKELY(p && p->label != mine.label)) { /* again if the label took a page's last place */
        say_label(history, p, event->time_ns);
        p = pen_for(history, event);
    }
    if (WR_LIKELY(p != NULL)) put(p, event);
}

static inline weir_event event_now(const wr_history *history, weir_event_kind kind, const void *address, uint64_t size,
                                   const void *stream, weir_mempool pool)
{
    return (weir_event){ .time_ns = wr_clock_ns(CLOCK_MONOTONIC),
                         .address = (uint64_t)(uintptr_t)address,
                         .size = size,
                         .stream = (uint64_t)(uintptr_t)stream,
                         .pool = { pool.capture, pool.user },
                         .kind = (uint16_t)kind,
                         .device = history->device,
                         .thread = wr_thread_number() };
}

void wr_history_write(wr_history *history, weir_event_kind kind, const void *address, uint64_t size, const void *stream,
                      weir_mempool pool)
{
    weir_event event = event_now(history, kind, address, size, stream, pool);
    write_at(history, &event);
}

void wr_history_write_free(wr_history *history, const void *address, uint64_t size, const void *stream,
                           weir_mempool pool)
{
    weir_event event = event_now(history, WEIR_EVENT_FREE_REQUESTED, address, size, stream, pool);
    write_at(history, &event);
    event.kind = WEIR_EVENT_FREE_COMPLETED;
    write_at(history, &event);
}

/* A page's thread only writes behind the last event. */
static void move_mapped_of_page(wr_page *page, uint64_t from, uint64_t to)
{
    const unsigned count = atomic_load_explicit(&page->count, memory_order_acquire);
    for (weir_event *e = page->events + page->cleared; e < page->events + count; e++)
        if ((e->kind == WEIR_EVENT_SEGMENT_MAP || e->kind == WEIR_EVENT_SEGMENT_UNMAP) && e->stream == from)
            e->stream = to;
}

void wr_history_move_mapped(wr_history *history, const void *from, const void *to)
{
    wr_lock_acquire(&history->lock);
    for (uint32_t i = 0; i < history->page_count; i++)
        move_mapped_of_page(history->pages[i], (uint64_t)(uintptr_t)from, (uint64_t)(uintptr_t)to);
    wr_lock_release(&history->lock);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

weir_status wr_history_push_label(const char *label)
{
    label_stack *labels = mine.labels;
    const size_t length = strlen(label);
    WR_ENSURE(length != 0 && length <= WEIR_HISTORY_LABEL_MAX, WEIR_ERR_INVALID_ARGUMENT,
              "weir_history_label_push: a label must have 1 to %d bytes, but this one has %zu", WEIR_HISTORY_LABEL_MAX,
              length);
    WR_ENSURE(!labels || labels->depth < LABELS, WEIR_ERR_INVALID_ARGUMENT,
              "weir_history_label_push: this thread already has %d labels in force, the most it can have", LABELS);
    if (!labels) {
        void *made = NULL;
        WR_TRY(wr_meta_alloc(sizeof(label_stack), "labels", &made));
        mine.labels = labels = made;
        if (!mine.watched) watch_thread();
    }
    memset(labels->text[labels->depth], 0, WEIR_HISTORY_LABEL_MAX);
    memcpy(labels->text[labels->depth++], label, length);
    mine.label = ++mine.last_label;
    return WEIR_OK;
}

weir_status wr_history_pop_label(void)
{
    WR_ENSURE(mine.labels, WEIR_ERR_INVALID_ARGUMENT, "weir_history_label_pop: this thread has no label in force");
    mine.label = ++mine.last_label;
    if (--mine.labels->depth == 0) {
        mine.label = 0;
        wr_meta_free(mine.labels);
        mine.labels = NULL;
    }
    return WEIR_OK;
}

/* ---- on and off -------------------------------------------------------------------------------------------------- */

#define UNUSED UINT32_MAX /* `at` of a page that no thread has, until it is freed */

static void mark_unused(wr_page **list)
{
    for (wr_page *page = *list; page; page = page->next) page->at = UNUSED;
    *list = NULL;
}

static void free_unused_locked(wr_history *history)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < history->page_count; i++)
        if (history->pages[i]->at == UNUSED)
            wr_meta_free(history->pages[i]);
        else
            history->pages[kept++] = history->pages[i];
    history->page_count = kept;
}

void wr_history_start(wr_history *history, uint64_t capacity, uint64_t missing)
{
    wr_lock_acquire(&history->lock);
    if (wr_history_capacity(history) == 0) {
        wr_history_clear_locked(history); /* of what came from somebody who saw it switched off too late */
        history->dropped = missing;
    }
    atomic_store_explicit(&history->capacity, capacity, memory_order_relaxed);
    while (has_enough_locked(history)) reuse_oldest_locked(history)->at = UNUSED;
    free_unused_locked(history);
    wr_lock_release(&history->lock);
}

void wr_history_stop(wr_history *history)
{
    wr_lock_acquire(&history->lock);
    atomic_store_explicit(&history->capacity, 0, memory_order_relaxed);
    mark_unused(&history->first_full);
    mark_unused(&history->partial);
    history->last_full = NULL;
    history->full_count = 0;
    free_unused_locked(history);
    wr_history_clear_locked(history);
    wr_lock_release(&history->lock);
}
