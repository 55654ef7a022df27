/*
 * Recording from many threads that come and go, while others read, clear and save: events are read in order, and
 * allocations and frees of each block alternate.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "host_support.h"
#include "sanitized.h"
#include "stress_support.h"
#include "weir/observe.h"
#include "weir/trace.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 4, CAPACITY = 20000, DEVICES = 2, PASSED = 16 };
#define GENERATIONS (SANITIZED ? 100 : 1500)
#define READS (SANITIZED ? 20 : 200)

static char folder[] = "/tmp/weir-stress-XXXXXX";
static char trace[sizeof folder + 16], pickle[sizeof folder + 16]; /* files there */
static weir_stream streams[DEVICES][2];
static _Atomic(void *) passed[PASSED]; /* blocks on their way from one thread to another */
static atomic_bool over;
static atomic_uint lived; /* threads that have ended */

/* A thread that lives for some allocations; frees what others left. */
static void *live_shortly(void *argument)
{
    const unsigned number = (unsigned)(uintptr_t)argument;
    must(weir_history_label_push("short") == WEIR_OK);
    for (unsigned i = 0; i < 6; i++) {
        void *block = NULL;
        must(weir_alloc_on(512 << (i % 3), streams[number % DEVICES][i % 2], &block) == WEIR_OK);
        if (i % 3 == 0) must(weir_record_stream(block, streams[number % DEVICES][1]) == WEIR_OK);
        block = atomic_exchange(&passed[(number + i) % PASSED], block);
        must(weir_free(block) == WEIR_OK);
    }
    if (number % 3 != 0) must(weir_history_label_pop() == WEIR_OK);
    atomic_fetch_add(&lived, 1);
    return NULL;
}

static void *work(void *argument)
{
    for (unsigned i = 0; i < (unsigned)GENERATIONS; i++) {
        pthread_t thread;
        must(pthread_create(&thread, NULL, live_shortly, (void *)((uintptr_t)argument + i)) == 0);
        must(pthread_join(thread, NULL) == 0);
    }
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Blocks by address, in a table with open addressing. */
enum { TABLE = 1 << 16 };
typedef struct seen {
    uint64_t address;
    uint16_t kind; /* of its last event */
} seen;

static seen *find(seen *table, uint64_t address)
{
    size_t at = (size_t)(address * UINT64_C(0x9E3779B97F4A7C15) >> 48);
    while (table[at].address && table[at].address != address) at = (at + 1) % TABLE;
    table[at].address = address;
    return &table[at];
}

static void check_turns(seen *table, const weir_event *e)
{
    seen *s = find(table, e->address);
    switch (e->kind) {
    case WEIR_EVENT_ALLOC: must(s->kind == 0 || s->kind == WEIR_EVENT_FREE_COMPLETED); break;
    case WEIR_EVENT_RECORD_STREAM: must(s->kind == 0 || s->kind == WEIR_EVENT_ALLOC); return;
    case WEIR_EVENT_FREE_REQUESTED: must(s->kind == 0 || s->kind == WEIR_EVENT_ALLOC); break;
    case WEIR_EVENT_FREE_COMPLETED: must(s->kind == 0 || s->kind == WEIR_EVENT_FREE_REQUESTED); break;
    default: return;
    }
    s->kind = e->kind;
}

static void check(const weir_event *events, size_t count)
{
    seen *table = calloc(TABLE, sizeof *table);
    must(table != NULL);
    for (size_t i = 0; i < count; i++) {
        must(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
        if (events[i].kind != WEIR_EVENT_LABEL && events[i].kind != WEIR_EVENT_DECISION) check_turns(table, &events[i]);
    }
    free(table);
}

static void *read_again_and_again(void *argument)
{
    const int device = (int)(intptr_t)argument;
    weir_event *events = calloc(CAPACITY, sizeof *events);
    must(events != NULL);
    for (int i = 0; i < READS || !atomic_load(&over); i++) {
        size_t count = 0;
        uint64_t dropped = 0;
        const weir_status status = weir_history_read(device, events, CAPACITY, &count, &dropped);
        if (status == WEIR_ERR_NOT_SUPPORTED) continue; /* not yet */
        must(status == WEIR_OK);
        check(events, count);
        if (i % 64 == 7) must(weir_history_clear(device) == WEIR_OK);
        if (i % 64 == 9) {
            const weir_status saved = weir_history_save(trace);
            must(saved == WEIR_OK || saved == WEIR_ERR_NOT_SUPPORTED); /* switched off since */
        }
        if (i % 64 == 11) must(weir_snapshot_save(pickle, NULL) == WEIR_OK);
    }
    free(events);
    return NULL;
}

/* Two at once, when others are at work. */
static void *start_soon(void *unused)
{
    (void)unused;
    while (atomic_load(&lived) < 50) must(sched_yield() == 0);
    must(weir_history_start(CAPACITY, 0) == WEIR_OK);
    return NULL;
}

/* With stacks and without; ends with what the reader expects. */
static void *start_and_stop(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i == 0 || !atomic_load(&over); i++) {
        must(weir_history_start(CAPACITY, i % 2 ? 8 : 0) == WEIR_OK);
        must(sched_yield() == 0);
        if (i % 3 == 0) must(weir_history_stop() == WEIR_OK);
    }
    must(weir_history_start(CAPACITY, 0) == WEIR_OK);
    return NULL;
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(trace, sizeof trace, "%s/trace", folder);
    snprintf(pickle, sizeof pickle, "%s/pickle", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(trace);
    unlink(pickle);
    return rmdir(folder);
}

static int open_with(uint64_t history, uint64_t frames, uint64_t kept)
{
    open_host((weir_settings){ .host_devices = DEVICES,
                               .host_memory = 64 * MIB,
                               .history = history,
                               .history_stacks = frames,
                               .history_stacks_kept = kept });
    for (int device = 0; device < DEVICES; device++)
        for (int i = 0; i < 2; i++) streams[device][i] = new_stream(device);
    return 0;
}

static int open_recording(void **state)
{
    (void)state;
    return open_with(CAPACITY, 0, 0);
}

static int open_with_stacks(void **state)
{
    (void)state;
    return open_with(CAPACITY, 16, 0);
}

/* The table of stacks is full before all have been met. */
static int open_with_few_stacks(void **state)
{
    (void)state;
    return open_with(CAPACITY, 16, 2);
}

static int open_silent(void **state)
{
    (void)state;
    return open_with(0, 0, 0);
}

static void events_of_many_threads_are_in_order(void **state)
{
    (void)state;
    pthread_t workers[WORKERS], readers[DEVICES];
    atomic_store(&over, false);
    for (int i = 0; i < DEVICES; i++)
        must(pthread_create(&readers[i], NULL, read_again_and_again, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < WORKERS; i++)
        must(pthread_create(&workers[i], NULL, work, (void *)(uintptr_t)(i * 100000)) == 0);
    for (int i = 0; i < WORKERS; i++) must(pthread_join(workers[i], NULL) == 0);
    atomic_store(&over, true);
    for (int i = 0; i < DEVICES; i++) must(pthread_join(readers[i], NULL) == 0);
    for (int i = 0; i < PASSED; i++) assert_ok(weir_free(atomic_exchange(&passed[i], NULL)));
}

static void events_are_in_order_whatever_two_threads_do(void **state, void *(*one)(void *))
{
    pthread_t starters[2];
    size_t count = 0;
    atomic_store(&lived, 0);
    atomic_store(&over, false);
    for (int i = 0; i < 2; i++) must(pthread_create(&starters[i], NULL, one, NULL) == 0);
    events_of_many_threads_are_in_order(state);
    for (int i = 0; i < 2; i++) must(pthread_join(starters[i], NULL) == 0);
    weir_event *events = calloc(CAPACITY, sizeof *events);
    must(events != NULL);
    for (int device = 0; device < DEVICES; device++) {
        assert_ok(weir_free(alloc_on(512, streams[device][0])));
        must(weir_history_read(device, events, CAPACITY, &count, NULL) == WEIR_OK);
        must(count > 0);
        check(events, count);
    }
    free(events);
}

static void recording_may_start_while_others_work(void **state)
{
    events_are_in_order_whatever_two_threads_do(state, start_soon);
}

static void recording_may_stop_while_others_work(void **state)
{
    events_are_in_order_whatever_two_threads_do(state, start_and_stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_of_many_threads_are_in_order, open_recording, close_host),
        cmocka_unit_test_setup_teardown(events_of_many_threads_are_in_order, open_with_stacks, close_host),
        cmocka_unit_test_setup_teardown(events_of_many_threads_are_in_order, open_with_few_stacks, close_host),
        cmocka_unit_test_setup_teardown(recording_may_start_while_others_work, open_silent, close_host),
        cmocka_unit_test_setup_teardown(recording_may_stop_while_others_work, open_silent, close_host),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
