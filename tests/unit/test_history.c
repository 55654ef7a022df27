#include "observe/history.h"

#include "base/meta.h"
#include "base/thread_number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "thread_support.h"

static wr_history history;
static const weir_mempool none;

static int open_four(void **state)
{
    (void)state;
    assert_int_equal(wr_history_init(&history, 3, 4), WEIR_OK);
    return 0;
}

static int release(void **state)
{
    (void)state;
    wr_history_release(&history);
    assert_int_equal(wr_meta_live(), 0);
    return 0;
}

static void record(int count)
{
    for (int i = 0; i < count; i++)
        wr_history_record(&history, WEIR_EVENT_ALLOC, (void *)(uintptr_t)(0x1000 + i), (uint64_t)i, &history, none);
}

static void an_event_has_all_its_parts(void **state)
{
    (void)state;
    weir_event event;
    uint64_t count = 0, dropped = 1;
    wr_history_record(&history, WEIR_EVENT_SEGMENT_FREE, (void *)(uintptr_t)0x123000, 77, (void *)(uintptr_t)0x99,
                      (weir_mempool){ 5, 6 });
    wr_history_copy(&history, &event, NULL, 1, &count, &dropped);
    assert_int_equal(count, 1);
    assert_int_equal(dropped, 0);
    assert_int_equal(event.kind, WEIR_EVENT_SEGMENT_FREE);
    assert_int_equal(event.address, 0x123000);
    assert_int_equal(event.size, 77);
    assert_int_equal(event.stream, 0x99);
    assert_int_equal(event.device, 3);
    assert_int_equal(event.thread, wr_thread_number());
    assert_true(event.time_ns != 0);
    assert_true(event.pool[0] == 5 && event.pool[1] == 6);
}

static void the_latest_events_are_kept_oldest_first(void **state)
{
    (void)state;
    weir_event events[8];
    uint64_t count = 0, dropped = 0;
    record(10);
    wr_history_copy(&history, events, NULL, 8, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(dropped, 6);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(events[i].size, 6 + i);
        assert_true(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
    }
}

static void a_full_ring_has_dropped_nothing(void **state)
{
    (void)state;
    weir_event events[4];
    uint64_t count = 0, dropped = 1;
    record(4);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(dropped, 0);
    assert_int_equal(events[0].size, 0);
}

static void a_short_buffer_gets_the_oldest(void **state)
{
    (void)state;
    weir_event events[2] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    record(5);
    wr_history_copy(&history, events, NULL, 2, &count, &dropped);
    assert_int_equal(count, 2);
    assert_int_equal(dropped, 1);
    assert_int_equal(events[0].size, 1);
    assert_int_equal(events[1].size, 2);
}

static void what_was_cleared_does_not_count_as_dropped(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    record(100);
    wr_history_clear(&history);
    for (int i = 0; i < 8; i++) record(WR_HISTORY_PAGE); /* uses the pages again */
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(dropped, 8 * WR_HISTORY_PAGE - 4);
}

/* A page can be read after the one before it was dropped. */
static void each_page_of_a_labelled_thread_begins_with_the_label(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    record(WR_HISTORY_PAGE - 1);
    assert_int_equal(wr_history_push_label("step"), WEIR_OK); /* takes the last place */
    record(1);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(events[1].kind, WEIR_EVENT_LABEL);
    assert_int_equal(events[2].kind, WEIR_EVENT_LABEL);
    assert_int_equal(events[3].kind, WEIR_EVENT_ALLOC);
}

static void after_clearing_events_are_under_their_label_as_before(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 1;
    size_t length = 0;
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    for (int i = 0; i < 3; i++) {
        record(1 + i);
        wr_history_clear(&history);
        wr_history_clear(&history);
        assert_int_equal(wr_history_held(&history), 0);
    }
    record(1);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 2);
    assert_int_equal(dropped, 0);
    assert_int_equal(events[0].kind, WEIR_EVENT_LABEL);
    assert_memory_equal(weir_event_label(&events[0], &length), "step", 4);
    assert_int_equal(length, 4);
    assert_int_equal(events[1].kind, WEIR_EVENT_ALLOC);
    assert_true(events[0].time_ns <= events[1].time_ns);
}

static void after_clearing_an_ended_label_is_not_repeated(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 1;
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    record(1);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    record(1);
    wr_history_clear(&history);
    record(1);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 1);
    assert_int_equal(events[0].kind, WEIR_EVENT_ALLOC);
}

static void assert_label(const weir_event *event, const char *label)
{
    size_t length = 0;
    assert_int_equal(event->kind, WEIR_EVENT_LABEL);
    assert_memory_equal(weir_event_label(event, &length), label, strlen(label));
    assert_int_equal(length, strlen(label));
}

static void events_that_are_kept_stay_under_their_label(void **state)
{
    (void)state;
    weir_event events[5] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    record(10);
    assert_int_equal(wr_history_held(&history), 4);
    for (int read = 0; read < 2; read++) {
        wr_history_copy(&history, events, NULL, 5, &count, &dropped);
        assert_int_equal(count, 4);
        assert_int_equal(dropped, 7);
        assert_label(&events[0], "step");
        for (int i = 1; i < 4; i++) assert_int_equal(events[i].size, 6 + i);
    }
    record(2);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    record(1);
    wr_history_copy(&history, events, NULL, 5, &count, &dropped);
    assert_int_equal(count, 4);
    assert_label(&events[0], "step");
    assert_int_equal(events[1].size, 1);
    assert_int_equal(events[2].kind, WEIR_EVENT_LABEL); /* its end */
    assert_int_equal(events[3].size, 0);
}

static pthread_barrier_t holding;

/* Goes on with the page that was put down, until the test has another one. */
static void *write_and_hold(void *argument)
{
    record(1);
    (void)pthread_barrier_wait(&holding);
    (void)pthread_barrier_wait(&holding);
    return argument;
}

/* Both histories share a pen. */
static void a_label_that_ended_in_another_page_is_not_in_force_in_one_that_the_thread_comes_back_to(void **state)
{
    (void)state;
    weir_event events[8] = { { 0 } };
    wr_history other;
    pthread_t thread;
    uint64_t count = 0, dropped = 0;
    size_t length = 0;
    assert_int_equal(wr_history_init(&other, 7, 4), WEIR_OK);
    assert_int_equal(pthread_barrier_init(&holding, NULL, 2), 0);
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    record(1);
    wr_history_record(&other, WEIR_EVENT_ALLOC, NULL, 1, NULL, none); /* puts the page down */
    assert_int_equal(pthread_create(&thread, NULL, write_and_hold, NULL), 0);
    (void)pthread_barrier_wait(&holding);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    record(1); /* in another page */
    wr_history_record(&other, WEIR_EVENT_ALLOC, NULL, 1, NULL, none);
    (void)pthread_barrier_wait(&holding);
    pthread_join(thread, NULL);
    record(5); /* in the first one */
    assert_int_equal(history.page_count, 2);
    wr_history_copy(&history, events, NULL, 8, &count, &dropped);
    assert_int_equal(count, 4);
    for (uint64_t i = 0; i < count; i++)
        if (events[i].kind == WEIR_EVENT_LABEL) {
            (void)weir_event_label(&events[i], &length);
            assert_int_equal(length, 0);
        }
    wr_history_release(&other);
    pthread_barrier_destroy(&holding);
}

/* Another thread has the page with the beginning. */
static void the_end_of_a_label_is_told_in_whatever_page_the_thread_comes_back_to(void **state)
{
    (void)state;
    weir_event events[8] = { { 0 } };
    wr_history other;
    pthread_t thread;
    uint64_t count = 0, dropped = 0;
    assert_int_equal(wr_history_init(&other, 7, 4), WEIR_OK); /* shares the pen */
    assert_int_equal(pthread_barrier_init(&holding, NULL, 2), 0);
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    record(1);
    wr_history_record(&other, WEIR_EVENT_ALLOC, NULL, 1, NULL, none); /* puts the page down */
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    assert_int_equal(pthread_create(&thread, NULL, write_and_hold, NULL), 0);
    (void)pthread_barrier_wait(&holding);
    record(1);
    (void)pthread_barrier_wait(&holding);
    pthread_join(thread, NULL);
    wr_history_copy(&history, events, NULL, 8, &count, &dropped);
    assert_int_equal(count, 5); /* the label, two blocks, its end, and a block */
    assert_label(&events[0], "step");
    assert_label(&events[3], "");
    wr_history_record(&other, WEIR_EVENT_ALLOC, NULL, 1, NULL, none); /* is told it too, and later tests need not be */
    wr_history_release(&other);
    pthread_barrier_destroy(&holding);
}

static void a_label_has_nothing_of_a_longer_one_that_ended(void **state)
{
    (void)state;
    weir_event events[2] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    assert_int_equal(wr_history_push_label("epoch"), WEIR_OK);
    assert_int_equal(wr_history_push_label("backward"), WEIR_OK);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    record(1);
    wr_history_copy(&history, events, NULL, 2, &count, &dropped);
    assert_label(&events[0], "step");
    for (int i = 0; i < 2; i++) assert_int_equal(wr_history_pop_label(), WEIR_OK);
}

static void *push_a_label(void *unused)
{
    (void)!wr_history_push_label("step");
    return unused;
}

static void a_thread_that_ends_under_a_label_leaves_nothing(void **state)
{
    (void)state;
    (void)in_a_thread(push_a_label, NULL);
    assert_int_equal(wr_meta_live(), 0);
}

/* The only full page is used again. */
static void after_a_lack_of_memory_the_latest_events_are_kept(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    record(WR_HISTORY_PAGE);
    wr_meta_fail_nth(1);
    record(1);
    wr_meta_fail_nth(0);
    for (int i = 0; i < 8; i++) record(WR_HISTORY_PAGE);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 4);
    assert_int_equal(dropped, 9 * WR_HISTORY_PAGE + 1 - 4);
    assert_int_equal(events[3].size, WR_HISTORY_PAGE - 1);
}

/* ---- stops ------------------------------------------------------------------------------------------------------- */

static void *record_one(void *unused)
{
    record(1);
    return unused;
}

static void a_stop_forgets_events_and_frees_pages_of_threads_that_have_ended(void **state)
{
    (void)state;
    (void)in_a_thread(record_one, NULL);
    assert_int_equal(wr_meta_live(), 2); /* a page, and the list of them */
    wr_history_stop(&history);
    assert_int_equal(wr_meta_live(), 1);
    wr_history_start(&history, 4, 0);
    record(1);
    wr_history_stop(&history);
    assert_int_equal(wr_history_held(&history), 0);
    wr_history_write(&history, WEIR_EVENT_ALLOC, NULL, 1, NULL, none); /* who had seen it switched on */
    wr_history_start(&history, 4, 0);
    assert_int_equal(wr_history_held(&history), 0);
}

static void after_a_stop_the_latest_events_are_kept_as_before(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) record(WR_HISTORY_PAGE);
        record(2); /* half of what is kept is in another page */
        wr_history_copy(&history, events, NULL, 4, &count, &dropped);
        assert_int_equal(count, 4);
        assert_int_equal(dropped, 8 * WR_HISTORY_PAGE + 2 - 4);
        assert_int_equal(events[3].size, 1);
        wr_history_stop(&history);
        wr_history_start(&history, 4, 0);
    }
}

static void without_capacity_nothing_is_recorded(void **state)
{
    (void)state;
    uint64_t count = 1, dropped = 1;
    assert_int_equal(wr_history_init(&history, 0, 0), WEIR_OK);
    record(3);
    wr_history_copy(&history, NULL, NULL, 0, &count, &dropped);
    assert_int_equal(count, 0);
    assert_int_equal(dropped, 0);
    assert_int_equal(history.page_count, 0);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static int open_many(void **state)
{
    (void)state;
    assert_int_equal(wr_history_init(&history, 3, 100000), WEIR_OK);
    return 0;
}

enum { WRITERS = 8, EACH = 5000, SHORT_LIVED = 2000 };

static void *write_some(void *argument)
{
    (void)argument;
    for (int i = 0; i < EACH; i++) wr_history_record(&history, WEIR_EVENT_ALLOC, NULL, (uint64_t)i, NULL, none);
    return NULL;
}

static void *write_once(void *argument)
{
    wr_history_record(&history, WEIR_EVENT_ALLOC, NULL, (uint64_t)(uintptr_t)argument, NULL, none);
    return NULL;
}

static void events_of_threads_are_merged_by_time(void **state)
{
    (void)state;
    static weir_event events[WRITERS * EACH];
    pthread_t threads[WRITERS];
    uint64_t count = 0, dropped = 1, next[64] = { 0 };
    for (int i = 0; i < WRITERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_some, NULL), 0);
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    wr_history_copy(&history, events, NULL, WRITERS * EACH, &count, &dropped);
    assert_int_equal(count, WRITERS * EACH);
    assert_int_equal(dropped, 0);
    const uint32_t first = wr_thread_number();
    for (uint64_t i = 0; i < count; i++) {
        assert_true(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
        assert_in_range(events[i].thread - first, 0, 63);
        assert_int_equal(events[i].size, next[events[i].thread - first]++);
    }
}

static void *write_under_a_label(void *argument)
{
    assert_int_equal(wr_history_push_label("of a thread that ends"), WEIR_OK);
    return write_once(argument);
}

static void after_clearing_threads_that_have_ended_leave_no_event(void **state)
{
    (void)state;
    weir_event events[4] = { { 0 } };
    uint64_t count = 0, dropped = 1;
    (void)in_a_thread(write_under_a_label, NULL);
    wr_history_clear(&history);
    record(1);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(count, 1);
    assert_int_equal(events[0].kind, WEIR_EVENT_ALLOC);
}

static void what_is_forgotten_by_clearing_is_not_lost(void **state)
{
    (void)state;
    weir_event events[4];
    uint64_t count = 0, dropped = 1;
    assert_int_equal(wr_history_push_label("one"), WEIR_OK);
    record(1);
    wr_history_clear(&history);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    assert_int_equal(wr_history_push_label("two"), WEIR_OK);
    record(1);
    wr_history_copy(&history, events, NULL, 4, &count, &dropped);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    assert_int_equal(dropped, 0);
}

/* As if its thread had been about to write it meanwhile. */
static void an_event_of_before_the_clearing_is_forgotten_though_it_is_written_later(void **state)
{
    (void)state;
    weir_event events[2];
    uint64_t count = 1;
    record(1);
    wr_page *page = history.pages[0];
    wr_history_clear(&history);
    page->events[1] = page->events[0];
    atomic_store(&page->count, 2);
    uint64_t dropped = 1;
    wr_history_copy(&history, events, NULL, 2, &count, &dropped);
    assert_int_equal(count, 0);
    assert_int_equal(dropped, 0);
}

/* As if it had been written while the pages of other threads were cleared. */
static void an_event_of_after_the_clearing_is_kept_though_it_is_there(void **state)
{
    (void)state;
    record(2);
    wr_page *page = history.pages[0];
    page->events[1].time_ns += UINT64_C(1000000000000);
    wr_history_clear(&history);
    assert_int_equal(page->cleared, 1);
}

static void threads_that_come_and_go_share_a_page(void **state)
{
    (void)state;
    static weir_event events[SHORT_LIVED];
    uint64_t count = 0, dropped = 1;
    for (uintptr_t i = 0; i < SHORT_LIVED; i++) {
        (void)in_a_thread(write_once, (void *)i);
    }
    assert_true(history.page_count <= SHORT_LIVED / WR_HISTORY_PAGE + 1);
    wr_history_copy(&history, events, NULL, SHORT_LIVED, &count, &dropped);
    assert_int_equal(count, SHORT_LIVED);
    for (uint64_t i = 0; i < count; i++) assert_int_equal(events[i].size, i);
}

static void write_late(void *unused)
{
    (void)write_once(unused);
}

static void *write_once_and_late(void *of_key)
{
    wr_history_record(&history, WEIR_EVENT_ALLOC, NULL, 0, NULL, none);
    assert_int_equal(pthread_setspecific(*(pthread_key_t *)of_key, &history), 0);
    return NULL;
}

/* Threads may still write when the page has been put down: from what another library does at their end. */
static void threads_that_write_at_their_end_share_a_page_too(void **state)
{
    (void)state;
    pthread_key_t key;
    uint64_t count = 0, dropped = 1;
    static weir_event events[20];
    record(1); /* the history's own key comes first, so that its end does, too */
    assert_int_equal(pthread_key_create(&key, write_late), 0);
    for (int i = 0; i < 5; i++) (void)in_a_thread(write_once_and_late, &key);
    assert_int_equal(pthread_key_delete(key), 0);
    assert_int_equal(history.page_count, 2); /* with that of this thread */
    wr_history_copy(&history, events, NULL, 20, &count, &dropped);
    assert_int_equal(count, 11);
    assert_int_equal(dropped, 0);
}

/* An event that a slow thread wrote long ago would have a gap behind it. */
static void there_are_no_gaps(void **state)
{
    (void)state;
    static weir_event events[1000];
    uint64_t count = 0, dropped = 0;
    wr_history_release(&history);
    assert_int_equal(wr_history_init(&history, 3, 1000), WEIR_OK);
    record(1);
    (void)in_a_thread(write_some, NULL);
    wr_history_copy(&history, events, NULL, 1000, &count, &dropped);
    assert_int_equal(count, 1000);
    assert_int_equal(dropped, EACH + 1 - 1000);
    for (uint64_t i = 0; i < count; i++) assert_int_equal(events[i].size, EACH - 1000 + i);
}

/* Of each thread, events whose sizes count up. */
static void assert_each_has_its_last(const weir_event *events, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t next = i + 1; next < count; next++)
            if (events[next].thread == events[i].thread) {
                assert_true(events[next].size == events[i].size + 1 || events[next].size == 0);
                break;
            }
}

static void *fill_a_page_and_go_on(void *unused)
{
    record(WR_HISTORY_PAGE);
    (void)pthread_barrier_wait(&holding);
    (void)pthread_barrier_wait(&holding);
    record(1);
    (void)pthread_barrier_wait(&holding); /* one that ends leaves its page to the next */
    return unused;
}

static void *write_a_page_and_one(void *unused)
{
    record(WR_HISTORY_PAGE + 1);
    return unused;
}

/* Pages are dropped in the order in which they were left, also where one that was left later had ended before. */
static void there_are_no_gaps_where_a_newer_page_is_dropped_before_an_older_one(void **state)
{
    (void)state;
    static weir_event events[WR_HISTORY_PAGE];
    pthread_t slow[3];
    uint64_t count = 0, dropped = 0;
    wr_history_release(&history);
    assert_int_equal(wr_history_init(&history, 3, WR_HISTORY_PAGE), WEIR_OK);
    assert_int_equal(pthread_barrier_init(&holding, NULL, 4), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&slow[i], NULL, fill_a_page_and_go_on, NULL), 0);
    (void)pthread_barrier_wait(&holding);
    record(1);
    (void)in_a_thread(write_a_page_and_one, NULL); /* leaves its page first */
    (void)pthread_barrier_wait(&holding);
    (void)pthread_barrier_wait(&holding);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(slow[i], NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&holding), 0);
    wr_history_copy(&history, events, NULL, WR_HISTORY_PAGE, &count, &dropped);
    assert_int_equal(count, WR_HISTORY_PAGE);
    assert_int_equal(count + dropped, 4 * (WR_HISTORY_PAGE + 1) + 1);
    assert_each_has_its_last(events, count);
}

enum { TURNS = 3000, TAKERS = 4 };
static pthread_barrier_t turns;

static void *take_turns(void *number)
{
    for (uintptr_t i = 0; i < TURNS; i++) {
        if (i % TAKERS == (uintptr_t)number)
            wr_history_record(&history, WEIR_EVENT_ALLOC, NULL, (uint64_t)(i / TAKERS), NULL, none);
        (void)pthread_barrier_wait(&turns);
        (void)pthread_barrier_wait(&turns);
    }
    return NULL;
}

/* Their pages become full at the same time, so a page that is dropped takes most of the others' events with it. */
static void what_threads_write_in_turns_is_kept_as_asked_for(void **state)
{
    (void)state;
    static weir_event events[WR_HISTORY_PAGE];
    pthread_t thread[TAKERS];
    uint64_t count = 0, dropped = 0;
    wr_history_release(&history);
    assert_int_equal(wr_history_init(&history, 3, WR_HISTORY_PAGE), WEIR_OK);
    assert_int_equal(pthread_barrier_init(&turns, NULL, TAKERS + 1), 0);
    for (uintptr_t i = 0; i < TAKERS; i++) assert_int_equal(pthread_create(&thread[i], NULL, take_turns, (void *)i), 0);
    for (uint64_t i = 0; i < TURNS; i++) {
        (void)pthread_barrier_wait(&turns);
        wr_history_copy(&history, events, NULL, WR_HISTORY_PAGE, &count, &dropped);
        (void)pthread_barrier_wait(&turns);
        assert_int_equal(count, i < WR_HISTORY_PAGE ? i + 1 : WR_HISTORY_PAGE);
        assert_int_equal(count + dropped, i + 1);
    }
    for (int i = 0; i < TAKERS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&turns), 0);
    assert_each_has_its_last(events, count);
    const uint32_t open = TAKERS, full = 2 + open; /* one in use, one more than is asked for, one for each thread */
    assert_in_range(history.page_count, 1, full + open);
}

/* What a slow thread wrote long ago goes with what was written since, but for its label. */
static void after_a_gap_events_are_under_their_label_as_before(void **state)
{
    (void)state;
    static weir_event events[1000];
    uint64_t count = 0, dropped = 0;
    wr_history_release(&history);
    assert_int_equal(wr_history_init(&history, 3, 1000), WEIR_OK);
    assert_int_equal(wr_history_push_label("slow"), WEIR_OK);
    record(3);
    (void)in_a_thread(write_some, NULL);
    assert_int_equal(wr_history_held(&history), 1000);
    record(1);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    wr_history_copy(&history, events, NULL, 1000, &count, &dropped);
    assert_int_equal(count, 1000);
    assert_int_equal(dropped + count, 3 + EACH + 2);
    assert_label(&events[998], "slow");
    assert_int_equal(events[999].thread, wr_thread_number());
    assert_int_equal(events[999].kind, WEIR_EVENT_ALLOC);
    assert_true(events[998].time_ns <= events[999].time_ns);
}

static void *write_under_own_label(void *argument)
{
    assert_int_equal(wr_history_push_label("own"), WEIR_OK);
    (void)write_some(argument);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    return NULL;
}

/* Wherever the cut falls in the events of many threads. */
static void every_event_kept_of_many_threads_is_under_its_label(void **state)
{
    (void)state;
    static weir_event events[2000];
    pthread_t threads[WRITERS];
    bool labelled[64] = { false };
    uint64_t count = 0, dropped = 0;
    for (int i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_under_own_label, NULL), 0);
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    for (uint64_t kept = 2000; kept > 100; kept -= 100) {
        wr_history_start(&history, kept, 0);
        const uint64_t held = wr_history_held(&history);
        wr_history_copy(&history, events, NULL, 2000, &count, &dropped);
        assert_int_equal(count, held);
        assert_in_range(count, 1, kept);
        memset(labelled, 0, sizeof labelled);
        for (uint64_t i = 0; i < count; i++) {
            bool *under_one = &labelled[events[i].thread % 64];
            if (events[i].kind == WEIR_EVENT_LABEL) *under_one = true;
            assert_true(*under_one);
        }
    }
}

static void a_thread_may_write_into_many_histories(void **state)
{
    (void)state;
    enum { MANY = 9 };
    static wr_history many[MANY];
    for (int i = 0; i < MANY; i++) assert_int_equal(wr_history_init(&many[i], i, 100), WEIR_OK);
    for (int round = 0; round < 50; round++)
        for (int i = 0; i < MANY; i++) wr_history_record(&many[i], WEIR_EVENT_ALLOC, NULL, (uint64_t)round, NULL, none);
    for (int i = 0; i < MANY; i++) {
        weir_event events[50];
        uint64_t count = 0, dropped = 1;
        assert_true(many[i].page_count == 1);
        wr_history_copy(&many[i], events, NULL, 50, &count, &dropped);
        assert_int_equal(count, 50);
        for (uint64_t k = 0; k < count; k++) assert_int_equal(events[k].size, k);
        wr_history_release(&many[i]);
    }
    record(1);
    assert_int_equal(wr_history_held(&history), 1);
}

/* A thread has four pages at a time: it may come back to a history that it left under a label that has ended since. */
static void the_end_of_a_label_is_told_to_every_history(void **state)
{
    (void)state;
    enum { MANY = 6 };
    static wr_history many[MANY];
    for (int i = 0; i < MANY; i++) assert_int_equal(wr_history_init(&many[i], i, 100), WEIR_OK);
    assert_int_equal(wr_history_push_label("step"), WEIR_OK);
    for (int i = 0; i < MANY; i++) wr_history_record(&many[i], WEIR_EVENT_ALLOC, NULL, 1, NULL, none);
    assert_int_equal(wr_history_pop_label(), WEIR_OK);
    for (int i = 0; i < MANY; i++) wr_history_record(&many[i], WEIR_EVENT_ALLOC, NULL, 2, NULL, none);
    for (int i = 0; i < MANY; i++) {
        weir_event events[5];
        uint64_t count = 0, dropped = 0;
        size_t length = 1;
        wr_history_copy(&many[i], events, NULL, 5, &count, &dropped);
        assert_int_equal(count, 4);
        assert_int_equal(events[2].kind, WEIR_EVENT_LABEL);
        (void)weir_event_label(&events[2], &length);
        assert_int_equal(length, 0);
        assert_int_equal(events[3].size, 2);
        wr_history_release(&many[i]);
    }
}

static void without_memory_events_are_lost_and_counted(void **state)
{
    (void)state;
    weir_event event;
    uint64_t count = 7, dropped = 0;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        wr_meta_fail_nth(nth);
        record(1);
        wr_meta_fail_nth(0);
    }
    wr_history_copy(&history, &event, NULL, 1, &count, &dropped);
    assert_int_equal(count, 0);
    assert_int_equal(dropped, 2);
    record(1);
    assert_int_equal(wr_history_held(&history), 1);
}

static void a_capacity_beyond_the_address_space_is_refused(void **state)
{
    (void)state;
    assert_int_equal(wr_history_init(&history, 0, UINT64_MAX / 8), WEIR_ERR_OPTION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_has_all_its_parts, open_four, release),
        cmocka_unit_test_setup_teardown(the_latest_events_are_kept_oldest_first, open_four, release),
        cmocka_unit_test_setup_teardown(a_full_ring_has_dropped_nothing, open_four, release),
        cmocka_unit_test_setup_teardown(a_short_buffer_gets_the_oldest, open_four, release),
        cmocka_unit_test_setup_teardown(what_was_cleared_does_not_count_as_dropped, open_four, release),
        cmocka_unit_test_setup_teardown(each_page_of_a_labelled_thread_begins_with_the_label, open_four, release),
        cmocka_unit_test_setup_teardown(after_clearing_events_are_under_their_label_as_before, open_four, release),
        cmocka_unit_test_setup_teardown(after_clearing_an_ended_label_is_not_repeated, open_four, release),
        cmocka_unit_test_setup_teardown(events_that_are_kept_stay_under_their_label, open_four, release),
        cmocka_unit_test_setup_teardown(
            a_label_that_ended_in_another_page_is_not_in_force_in_one_that_the_thread_comes_back_to, open_four,
            release),
        cmocka_unit_test_setup_teardown(the_end_of_a_label_is_told_in_whatever_page_the_thread_comes_back_to, open_many,
                                        release),
        cmocka_unit_test_setup_teardown(a_label_has_nothing_of_a_longer_one_that_ended, open_many, release),
        cmocka_unit_test_setup_teardown(a_thread_that_ends_under_a_label_leaves_nothing, open_four, release),
        cmocka_unit_test_setup_teardown(after_a_lack_of_memory_the_latest_events_are_kept, open_four, release),
        cmocka_unit_test_setup_teardown(a_stop_forgets_events_and_frees_pages_of_threads_that_have_ended, open_four,
                                        release),
        cmocka_unit_test_setup_teardown(after_a_stop_the_latest_events_are_kept_as_before, open_four, release),
        cmocka_unit_test_setup_teardown(events_of_threads_are_merged_by_time, open_many, release),
        cmocka_unit_test_setup_teardown(after_clearing_threads_that_have_ended_leave_no_event, open_many, release),
        cmocka_unit_test_setup_teardown(what_is_forgotten_by_clearing_is_not_lost, open_many, release),
        cmocka_unit_test_setup_teardown(an_event_of_before_the_clearing_is_forgotten_though_it_is_written_later,
                                        open_many, release),
        cmocka_unit_test_setup_teardown(an_event_of_after_the_clearing_is_kept_though_it_is_there, open_many, release),
        cmocka_unit_test_setup_teardown(threads_that_come_and_go_share_a_page, open_many, release),
        cmocka_unit_test_setup_teardown(threads_that_write_at_their_end_share_a_page_too, open_many, release),
        cmocka_unit_test_setup_teardown(there_are_no_gaps, open_many, release),
        cmocka_unit_test_setup_teardown(there_are_no_gaps_where_a_newer_page_is_dropped_before_an_older_one, open_many,
                                        release),
        cmocka_unit_test_setup_teardown(what_threads_write_in_turns_is_kept_as_asked_for, open_many, release),
        cmocka_unit_test_setup_teardown(after_a_gap_events_are_under_their_label_as_before, open_many, release),
        cmocka_unit_test_setup_teardown(every_event_kept_of_many_threads_is_under_its_label, open_many, release),
        cmocka_unit_test_setup_teardown(a_thread_may_write_into_many_histories, open_many, release),
        cmocka_unit_test_setup_teardown(the_end_of_a_label_is_told_to_every_history, open_many, release),
        cmocka_unit_test_setup_teardown(without_memory_events_are_lost_and_counted, open_many, release),
        cmocka_unit_test_teardown(without_capacity_nothing_is_recorded, release),
        cmocka_unit_test_teardown(a_capacity_beyond_the_address_space_is_refused, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
