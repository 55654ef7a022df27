/*
 * history_read: what is read of a history: the threads' pages merged by time, from the first event that it is to keep.
 */
#include "observe/history.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Where events go while the pages are merged. */
typedef struct sink {
    weir_event *to;
    uint32_t *stacks; /* NULL: not wanted */
    uint64_t count;
} sink;

static void pour(sink *s, const wr_page *page, unsigned from, unsigned count)
{
    memcpy(s->to + s->count, page->events + from, count * sizeof *s->to);
    if (s->stacks) memcpy(s->stacks + s->count, page->stacks + from, count * sizeof *s->stacks);
    s->count += count;
}

/* The time of the page's next event; without one, later than any. */
static uint64_t next_time(const wr_page *page)
{
    return page->at < page->end ? page->events[page->at].time_ns : UINT64_MAX;
}

/* The label that the page's events from `at` on are under, if it is before them; NULL: none. */
static const weir_event *label_before(const wr_page *page, unsigned at)
{
    if (at == 0) return NULL;
    const weir_event *last = &page->events[at - 1], *said = last, *next = last + 1;
    if (at < atomic_load_explicit(&page->count, memory_order_acquire) &&
        (next->kind == WEIR_EVENT_LABEL || next->thread != last->thread))
        return NULL;
    while (said != page->events && (said->kind != WEIR_EVENT_LABEL || said->thread != last->thread)) said--;
    size_t length = 0;
    if (said->kind == WEIR_EVENT_LABEL && said->thread == last->thread) (void)weir_event_label(said, &length);
    return length ? said : NULL;
}

/* Forgets the page's events before `at`, but for the label that later ones are under, since the thread writes it again
 * only in its next page: that takes the place of the last one forgotten, and the time of the next one kept. */
static void forget_before(wr_page *page, unsigned at)
{
    const weir_event *label = at < WR_HISTORY_PAGE ? label_before(page, at) : NULL;
    page->cleared = at;
    if (!label) return;
    page->cleared--;
    weir_event *kept = &page->events[page->cleared];
    const uint64_t time_ns =
        at < atomic_load_explicit(&page->count, memory_order_acquire) ? kept[1].time_ns : kept->time_ns;
    *kept = *label;
    kept->time_ns = time_ns;
    page->stacks[page->cleared] = 0;
}

/* What is before the page's range is lost. A label that no event is under yet is left out of the range. */
static void drop_before(wr_history *history, wr_page *page)
{
    const unsigned cleared = page->cleared;
    if (page->at != cleared) forget_before(page, page->at);
    history->dropped += page->cleared - cleared;
    page->at = page->cleared;
    if (page->end == page->at + 1 && page->events[page->at].kind == WEIR_EVENT_LABEL) page->end = page->at;
}

/* The range of all that the page has. */
static void rewind_page(wr_page *page)
{
    page->at = page->cleared;
    page->end = atomic_load_explicit(&page->count, memory_order_acquire);
}

/* Forgets what is in the page's range and was before that moment. */
static void forget_until(wr_page *page, uint64_t time_ns)
{
    while (next_time(page) < time_ns) page->at++;
    if (page->at != page->cleared) forget_before(page, page->at);
    page->at = page->cleared;
}

/* Sets each page's range to the events to be copied: not those that were cleared, nor any older than a dropped one,
 * which go as well, or later than this moment. So there are no gaps: what depends on an event that is not there yet
 * comes after this moment too. Returns how many events these are. */
static uint64_t rewind_locked(wr_history *history)
{
    const uint64_t now = wr_clock_ns(CLOCK_MONOTONIC);
    uint64_t held = 0;
    for (uint32_t i = 0; i < history->page_count; i++) {
        wr_page *page = history->pages[i];
        rewind_page(page);
        while (page->end > page->at && page->events[page->end - 1].time_ns > now) page->end--;
        forget_until(page, history->cleared_until);
        while (next_time(page) < history->gone_until) page->at++;
        drop_before(history, page);
        held += page->end - page->at;
    }
    return held;
}

static int by_time(const void *left, const void *right)
{
    const uint64_t a = next_time(*(wr_page *const *)left), b = next_time(*(wr_page *const *)right);
    return (a > b) - (a < b);
}

/* The page of a list whose next event is the earliest; *others: the earliest time among the others. Among equals the
 * page that came into the list first wins. */
static wr_page *earliest(wr_page *list, uint64_t *others)
{
    wr_page *best = list;
    *others = UINT64_MAX;
    for (wr_page *c = list ? list->beside : NULL; c; c = c->beside) {
        const bool earlier = next_time(c) < next_time(best);
        const uint64_t later = next_time(earlier ? best : c);
        if (later < *others) *others = later;
        if (earlier) best = c;
    }
    return best;
}

/* `list`: the pages that may hold the next event; `rest`: those that begin later, by time. */
typedef struct merge {
    wr_page *list;
    wr_page **rest;
    uint32_t rest_count;
} merge;

static wr_page *choose(merge *m, uint64_t *others)
{
    wr_page *best = earliest(m->list, others);
    while (m->rest_count != 0) {
        wr_page *first = m->rest[0];
        if (best && next_time(first) >= next_time(best)) {
            if (next_time(first) < *others) *others = next_time(first);
            break;
        }
        wr_page **end = &m->list;
        while (*end) end = &(*end)->beside;
        first->beside = NULL;
        *end = first;
        m->rest++;
        m->rest_count--;
        best = earliest(m->list, others);
    }
    return best;
}

static void leave(merge *m, const wr_page *finished)
{
    for (wr_page **link = &m->list; *link; link = &(*link)->beside)
        if (*link == finished) {
            *link = finished->beside;
            return;
        }
}

static merge merge_begin(wr_history *history)
{
    if (history->page_count) qsort(history->pages, history->page_count, sizeof *history->pages, by_time);
    return (merge){ .rest = history->pages, .rest_count = history->page_count };
}

/* Goes on by so many events at most, and returns by how many. `to` NULL: they are passed over. */
static uint64_t merge_next(merge *m, uint64_t count, sink *to)
{
    uint64_t passed = 0;
    while (passed < count) {
        uint64_t others = UINT64_MAX;
        wr_page *best = choose(m, &others);
        if (!best || best->at == best->end) break; /* pages without events come last */
        const unsigned from = best->at;
        const unsigned end = count - passed < best->end - from ? from + (unsigned)(count - passed) : best->end;
        if (best->events[end - 1].time_ns <= others)
            best->at = end;
        else
            while (best->events[best->at].time_ns <= others) best->at++;
        if (to) pour(to, best, from, best->at - from);
        passed += best->at - from;
        if (best->at == best->end) leave(m, best);
    }
    return passed;
}

/* Drops the oldest events, so that so many fewer are left, among them the labels that the first ones left are under. */
static void drop_oldest_locked(wr_history *history, merge *m, uint64_t excess)
{
    uint64_t passed = 0, labels = 0;
    while (passed < excess + labels) {
        const uint64_t more = merge_next(m, excess + labels - passed, NULL);
        if (more == 0) break;
        passed += more;
        labels = 0;
        for (const wr_page *page = m->list; page; page = page->beside)
            if (page->at != page->cleared && label_before(page, page->at)) labels++;
    }
    for (uint32_t i = 0; i < history->page_count; i++) drop_before(history, history->pages[i]);
}

/* A merge of the events that the history is to keep; *held: how many these are. */
static merge merge_kept_locked(wr_history *history, uint64_t *held)
{
    const uint64_t kept = wr_history_capacity(history);
    *held = rewind_locked(history);
    merge m = merge_begin(history);
    if (*held <= kept) return m;
    drop_oldest_locked(history, &m, *held - kept);
    *held = 0;
    for (uint32_t i = 0; i < history->page_count; i++) *held += history->pages[i]->end - history->pages[i]->at;
    return m;
}

void wr_history_copy(wr_history *history, weir_event *events, uint32_t *stacks, uint64_t capacity, uint64_t *count,
                     uint64_t *dropped)
{
    uint64_t held;
    wr_lock_acquire(&history->lock);
    merge m = merge_kept_locked(history, &held);
    *count = merge_next(&m, capacity, &(sink){ .to = events, .stacks = stacks });
    *dropped = history->dropped;
    wr_lock_release(&history->lock);
}

uint64_t wr_history_held(wr_history *history)
{
    uint64_t held;
    wr_lock_acquire(&history->lock);
    (void)merge_kept_locked(history, &held);
    wr_lock_release(&history->lock);
    return held;
}

/* All events are forgotten that were before one moment, also those whose threads have yet to write them, and no others:
 * else an allocation could be forgotten of which a later event is left. */
void wr_history_clear_locked(wr_history *history)
{
    history->cleared_until = wr_clock_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < history->page_count; i++) {
        rewind_page(history->pages[i]);
        forget_until(history->pages[i], history->cleared_until);
    }
    for (wr_page *page = history->partial; page; page = page->next) /* no thread has it, so no label needs to stay */
        page->cleared = atomic_load_explicit(&page->count, memory_order_relaxed);
    history->dropped = 0;
    history->gone_until = 0;
}

void wr_history_clear(wr_history *history)
{
    wr_lock_acquire(&history->lock);
    wr_history_clear_locked(history);
    wr_lock_release(&history->lock);
}
