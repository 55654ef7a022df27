/*
 * Served plans: blocks lie where the plan has them, as long as the place is free.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "device/runtime.h"
#include "pool_support.h"
#include "records_support.h"
#include "thread_support.h"
#include "weir/plan.h"

#include <pthread.h>
#include <time.h>

enum { ENTRIES = 40, HALF = ENTRIES / 2, EDGE = 4096 };

/* A plan of blocks of 1, 2, 3, ... half MiB, all apart; `streams` arenas of it. */
typedef struct sample {
    weir_plan_entry entries[ENTRIES];
    weir_plan_arena arenas[2];
    weir_plan plan;
} sample;

static size_t bytes_of(int entry)
{
    return (size_t)(1 + entry) * MIB / 2;
}

static sample make_plan(uint64_t arenas)
{
    sample s = { 0 };
    uint64_t offset = 0;
    for (int i = 0; i < ENTRIES; i++) {
        s.entries[i] = (weir_plan_entry){ offset, bytes_of(i), WEIR_PLAN_FOREVER, 0 };
        offset += bytes_of(i);
    }
    for (uint64_t i = 0; i < arenas; i++)
        s.arenas[i] = (weir_plan_arena){
            .streams = 1, .bytes = offset, .first = i * (ENTRIES / arenas), .entries = ENTRIES / arenas
        };
    s.plan = (weir_plan){ .arena_count = arenas, .entry_count = ENTRIES };
    return s;
}

static void serve(sample *s)
{
    s->plan.arenas = s->arenas;
    s->plan.entries = s->entries;
    assert_ok(weir_plan_serve(0, &s->plan));
}

static int open_default(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 2048 * MIB, .host_devices = 2 });
    return 0;
}

static char *take(int entry)
{
    return alloc(bytes_of(entry));
}

static void take_all(char *blocks[ENTRIES], int from, int to)
{
    for (int i = from; i < to; i++) {
        blocks[i] = take(i);
        write_pattern(blocks[i], EDGE, (unsigned)i);
    }
}

static void free_all(char *blocks[ENTRIES])
{
    for (int i = 0; i < ENTRIES; i++) assert_ok(weir_free(blocks[i]));
}

/* All places have been in use and have their memory; *blocks are their addresses. */
static void serve_and_use(sample *s, char *blocks[ENTRIES])
{
    serve(s);
    take_all(blocks, 0, ENTRIES);
    free_all(blocks);
}

static void blocks_lie_as_planned(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
        assert_true(has_pattern(blocks[i], EDGE, (unsigned)i));
    }
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
    assert_int_equal(reserved_on(0), (s.arenas[0].bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
}

static void a_second_round_calls_no_driver(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *again[ENTRIES];
    serve_and_use(&s, blocks);
    const uint64_t calls = driver_calls(), hits = stats_of(0).hits;
    take_all(again, 0, ENTRIES);
    assert_int_equal(driver_calls(), calls);
    assert_int_equal(stats_of(0).hits - hits, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) assert_ptr_equal(again[i], blocks[i]);
}

/* Refused at once, before records are made for all the chunks that it would take. */
static void a_place_larger_than_the_device_is_refused(void **state)
{
    (void)state;
    const size_t huge = (size_t)1 << 52;
    void *block = NULL;
    sample s = make_plan(1);
    s.entries[1].bytes = huge;
    for (int i = 2; i < ENTRIES; i++) s.entries[i].offset += huge;
    s.arenas[0].bytes += huge;
    serve(&s);
    char *first = take(0);
    assert_int_equal(weir_alloc(huge, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(weir_error_text(), "asked for 4194304.00 GiB"));
    assert_ok(weir_free(first));
}

static void a_place_in_use_is_not_given_out(void **state)
{
    (void)state;
    enum { KEPT = 4 }; /* small enough for the memory that may be held beyond the most ever live */
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    for (int i = 0; i < ENTRIES; i++)
        if (i != KEPT) assert_ok(weir_free(blocks[i]));
    char *again[ENTRIES];
    take_all(again, 0, ENTRIES);
    for (int i = 0; i < ENTRIES; i++)
        if (i != KEPT) assert_ptr_equal(again[i], blocks[i]);
    assert_true(again[KEPT] + bytes_of(KEPT) <= blocks[0] || again[KEPT] >= blocks[0] + s.arenas[0].bytes);
    assert_true(has_pattern(blocks[KEPT], EDGE, KEPT));
    assert_int_equal(stats_of(0).plan_late, 1);
    assert_int_equal(stats_of(0).plan_missed_bytes, bytes_of(KEPT));
}

/* All places have been in use; one block waits for work of the stream that is returned, which is held. */
static weir_stream use_and_wait(char *blocks[ENTRIES], int waiting)
{
    sample s = make_plan(1);
    weir_stream other = new_stream(0);
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    hold(other);
    assert_ok(weir_record_stream(blocks[waiting], other));
    free_all(blocks);
    return other;
}

static void a_place_whose_block_waits_for_a_stream_is_not_given_out(void **state)
{
    (void)state;
    char *blocks[ENTRIES];
    weir_stream other = use_and_wait(blocks, 3);
    for (int i = 0; i < 3; i++) assert_ptr_equal(take(i), blocks[i]);
    assert_ptr_not_equal(take(3), blocks[3]);
    let_run(other);
    assert_ptr_equal(take(4), blocks[4]);
}

static void a_place_is_given_out_once_the_stream_is_done(void **state)
{
    (void)state;
    char *blocks[ENTRIES];
    weir_stream other = use_and_wait(blocks, 0);
    let_run(other);
    assert_ptr_equal(take(0), blocks[0]);
}

static void a_place_given_out_once_the_stream_is_done_is_a_hit(void **state)
{
    (void)state;
    char *blocks[ENTRIES];
    weir_stream other = use_and_wait(blocks, 0);
    let_run(other);
    const uint64_t hits = stats_of(0).hits;
    (void)take(0);
    assert_int_equal(stats_of(0).hits - hits, 1);
}

static void a_place_that_gets_free_memory_from_elsewhere_is_a_hit(void **state)
{
    (void)state;
    sample s = make_plan(1);
    assert_ok(weir_free(alloc(300 * MIB)));
    serve(&s);
    const weir_memory_stats before = stats_of(0);
    for (int i = 0; i < ENTRIES / 2; i++) (void)take(i);
    assert_int_equal(stats_of(0).plan_served, ENTRIES / 2);
    assert_int_equal(stats_of(0).hits - before.hits + stats_of(0).driver_allocs - before.driver_allocs, ENTRIES / 2);
}

static void a_place_that_gets_new_memory_is_no_hit(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    (void)take(0);
    assert_int_equal(stats_of(0).plan_served, 1);
    assert_int_equal(stats_of(0).hits, 0);
}

static void a_request_that_is_served_elsewhere_from_new_memory_is_no_hit(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    (void)alloc(3 * MIB + 512);
    assert_int_equal(stats_of(0).plan_missed, 1);
    assert_int_equal(stats_of(0).hits, 0);
}

/* Of all trust a place in use costs two, and following to it gains one. */
static void a_stream_for_half_of_which_the_places_are_in_use_is_still_served(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *again[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    for (int i = 0; i < HALF; i++) assert_ok(weir_free(blocks[i]));
    take_all(again, 0, ENTRIES);
    for (int i = 0; i < HALF; i++) assert_ok(weir_free(again[i]));
    assert_int_equal(stats_of(0).plan_late, HALF);
    assert_ptr_equal(take(0), blocks[0]);
}

static void a_stream_for_which_all_places_are_in_use_is_no_longer_served(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *again[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    take_all(again, 0, ENTRIES);
    free_all(blocks);
    (void)take(0);
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

static void unplanned_requests_are_served_elsewhere(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, 20);
    char *more = alloc(78 * MIB);
    assert_true(more + 78 * MIB <= blocks[0] || more >= blocks[0] + s.arenas[0].bytes);
    take_all(blocks, 20, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
    assert_int_equal(stats_of(0).plan_missed, 1);
}

static void places_without_use_hold_no_memory(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    (void)take(0);
    assert_true(reserved_on(0) <= (int64_t)(16 * MIB));
}

static void free_places_serve_requests_that_would_need_more_memory(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    const int64_t reserved = reserved_on(0);
    free_all(blocks);
    for (int i = 0; i < 4; i++) (void)alloc(77 * MIB);
    assert_true(reserved_on(0) <= reserved + reserved / 100);
    for (int i = 0; i < ENTRIES; i += 3) blocks[i] = take(i);
    assert_ok(weir_validate(0));
}

static void memory_that_went_elsewhere_comes_back(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    const int64_t reserved = reserved_on(0);
    free_all(blocks);
    void *large = alloc(300 * MIB);
    assert_ok(weir_free(large));
    assert_ok(weir_plan_serve(0, &s.plan)); /* from the beginning */
    char *again[ENTRIES];
    take_all(again, 0, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) assert_ptr_equal(again[i], blocks[i]);
    assert_true(reserved_on(0) <= reserved + 2 * reserved / 100);
}

/* It is 2 MiB, between chunks of the places before and behind it. */
static void memory_that_is_too_large_for_a_hole_is_not_mapped_there(void **state)
{
    (void)state;
    sample s = make_plan(1);
    void *elsewhere = alloc(33 * MIB / 4);
    s.arenas[0].residents = HALF; /* in any order */
    serve(&s);
    char *first = take(0), *before = take(4), *behind = take(6);
    write_pattern(behind, bytes_of(6), 6);
    assert_int_equal(before - first, 5 * MIB);
    assert_int_equal(behind - first, 21 * MIB / 2);
    assert_ok(weir_free(elsewhere));
    (void)stats_of(0);
    const uint64_t mapped = calls_of(WEIR_BACKEND_vm_map);
    assert_int_equal((char *)take(5) - first, 15 * MIB / 2);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), mapped + 1);
    assert_true(has_pattern(behind, bytes_of(6), 6));
}

/* The one that covers what is missing is smaller than the place. */
static void a_place_takes_free_memory_from_elsewhere_before_new(void **state)
{
    (void)state;
    weir_plan_entry entries[] = { { 0, 10 * MIB, WEIR_PLAN_FOREVER, 0 }, { 10 * MIB, 40 * MIB, WEIR_PLAN_FOREVER, 0 } };
    weir_plan_arena arena = { .streams = 1, .bytes = 50 * MIB, .entries = 2 };
    const weir_plan plan = { .arenas = &arena, .arena_count = 1, .entries = entries, .entry_count = 2 };
    void *large = alloc(8 * MIB), *small = alloc(6 * MIB);
    assert_ok(weir_free(large));
    assert_ok(weir_free(small));
    (void)stats_of(0); /* nothing is parked */
    assert_ok(weir_plan_serve(0, &plan));
    const uint64_t made = calls_of(WEIR_BACKEND_vm_create);
    (void)alloc(10 * MIB);
    assert_int_equal(stats_of(0).plan_served, 1);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), made);
}

/* Each chunk comes out of the middle of a free block. */
static void however_few_records_are_to_spare_memory_that_went_elsewhere_comes_back(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    free_all(blocks);
    assert_ok(weir_free(alloc(300 * MIB)));
    assert_ok(weir_plan_serve(0, &s.plan));
    (void)stats_of(0); /* nothing is parked */
    for (int i = 0; i < ENTRIES; i++) {
        wr_block *taken = take_spare_records((size_t)i % 4);
        assert_ptr_equal(take(i), blocks[i]);
        put_records_back(taken);
    }
}

/* The request's chunk is larger than all places. */
static void free_memory_that_fits_no_place_is_exchanged_for_some_that_does(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, HALF);
    assert_ok(weir_free(alloc(800 * MIB)));
    const int64_t reserved = reserved_on(0);
    take_all(blocks, HALF, ENTRIES);
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
    assert_true(reserved_on(0) <= reserved);
}

/* Half of the places have memory. What is free besides is on a stream that works on it, and fits no place. */
static void leave_unfitting(sample *s, char *blocks[ENTRIES], weir_stream stream, void (*work)(void *), void *argument)
{
    serve(s);
    take_all(blocks, 0, HALF);
    void *large = alloc_on(800 * MIB, stream);
    assert_ok(weir_stream_callback(stream, work, argument));
    assert_ok(weir_free(large));
    (void)stats_of(0); /* nothing is parked */
}

/* As it is on a device that is behind. */
static void another_streams_work_on_such_memory_is_waited_for(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    slow_work work = { .milliseconds = 20 };
    leave_unfitting(&s, blocks, new_stream(0), do_slow_work, &work);
    take_all(blocks, HALF, ENTRIES);
    assert_true(atomic_load(&work.done));
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

/* Always has some work for two streams. */
typedef struct feeder {
    weir_stream streams[2];
    atomic_bool ends;
} feeder;

static void nap(void *nothing)
{
    const struct timespec millisecond = { 0, 1000000 };
    (void)nothing;
    nanosleep(&millisecond, NULL);
}

static void *feed(void *argument)
{
    feeder *f = argument;
    for (int i = 0; !atomic_load(&f->ends); i = 1 - i) {
        uint64_t queued = 0;
        assert_ok(weir_host_stream_queued(0, native_of(f->streams[i]), &queued));
        if (queued < 3) assert_ok(weir_stream_callback(f->streams[i], nap, NULL));
    }
    return NULL;
}

static void streams_that_always_have_work_get_their_places(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    feeder f = { .streams = { default_stream(0), new_stream(0) } };
    pthread_t thread;
    serve(&s);
    take_all(blocks, 0, HALF);
    void *large = alloc_on(800 * MIB, f.streams[1]);
    assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
    await_call_of(WEIR_BACKEND_stream_callback, 0);
    assert_ok(weir_free(large));
    (void)stats_of(0); /* nothing is parked */
    take_all(blocks, HALF, ENTRIES);
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
    atomic_store(&f.ends, true);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) assert_ok(weir_stream_synchronize(f.streams[i]));
}

static void work_that_does_not_end_is_waited_for_once(void **state)
{
    (void)state;
    static atomic_bool ends; /* which the work reads */
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    atomic_store(&ends, false);
    leave_unfitting(&s, blocks, new_stream(0), last_until, &ends);
    const uint64_t made = calls_of(WEIR_BACKEND_vm_create);
    int last = HALF;
    const uint64_t late = stats_of(0).plan_late;
    while (last < ENTRIES && stats_of(0).plan_late == late) blocks[last] = take(last), last++;
    assert_true(stats_of(0).plan_late > late);
    const uint64_t asked = calls_of(WEIR_BACKEND_event_query), queried = calls_of(WEIR_BACKEND_stream_query);
    for (int i = last; i < ENTRIES; i++) blocks[i] = take(i);
    assert_int_equal(calls_of(WEIR_BACKEND_event_query), asked);
    assert_in_range(calls_of(WEIR_BACKEND_stream_query) - queried, 0, 2 * HALF); /* once for all chunks */
    assert_true(calls_of(WEIR_BACKEND_vm_create) > made);
    atomic_store(&ends, true);
}

typedef struct waiter {
    weir_stream stream;
    weir_status status;
} waiter;

static void *take_rest(void *argument)
{
    waiter *w = argument;
    void *block = NULL;
    for (int i = HALF; i < ENTRIES && w->status == WEIR_OK; i++)
        w->status = weir_alloc_on(bytes_of(i), w->stream, &block);
    return NULL;
}

static void a_stream_that_ends_while_its_place_is_awaited_gets_nothing(void **state)
{
    (void)state;
    static atomic_bool ends; /* which the work reads */
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    waiter w = { .stream = new_stream(0) };
    pthread_t thread;
    atomic_store(&ends, false);
    assert_ok(weir_stream_set_current(w.stream));
    leave_unfitting(&s, blocks, new_stream(0), last_until, &ends);
    assert_ok(weir_stream_set_current(default_stream(0)));
    const uint64_t asked = calls_of(WEIR_BACKEND_event_query);
    assert_int_equal(pthread_create(&thread, NULL, take_rest, &w), 0);
    await_call_of(WEIR_BACKEND_event_query, asked); /* it waits without a lock */
    assert_ok(weir_stream_destroy(w.stream));
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    assert_status(w.status, WEIR_ERR_INVALID_STREAM);
    assert_ok(weir_validate(0));
}

/* A little memory that nobody works on does not suffice. */
static void the_streams_own_work_on_such_memory_is_waited_for(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    slow_work work = { .milliseconds = 20 };
    serve(&s);
    take_all(blocks, 0, HALF);
    assert_ok(weir_free(alloc_on(4 * MIB, new_stream(0))));
    void *large = alloc(800 * MIB);
    start_slow_work(default_stream(0), &work);
    assert_ok(weir_free(large));
    (void)stats_of(0); /* nothing is parked */
    take_all(blocks, HALF, ENTRIES);
    assert_true(atomic_load(&work.done));
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

static void own_work_that_waits_for_the_thread_does_not_keep_it(void **state)
{
    (void)state;
    static atomic_bool ends; /* which the work reads */
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    atomic_store(&ends, false);
    leave_unfitting(&s, blocks, default_stream(0), last_until, &ends);
    take_all(blocks, HALF, ENTRIES);
    assert_true(stats_of(0).plan_late > 0);
    atomic_store(&ends, true);
}

static void an_emptied_cache_gets_its_places_back(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    char *kept = blocks[10];
    for (int i = 0; i < ENTRIES; i++)
        if (i != 10) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_true(reserved_on(0) <= (int64_t)(64 * MIB));
    assert_ok(weir_free(kept));
    char *again[ENTRIES];
    take_all(again, 0, ENTRIES);
    for (int i = 1; i < ENTRIES; i++) assert_int_equal(again[i] - again[0], s.entries[i].offset);
}

static void no_place_is_mapped_among_addresses_that_the_driver_kept(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, HALF);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_OUT_OF_MEMORY));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    take_all(blocks, HALF, HALF + 1);
    const uint64_t in_vain = calls_of(WEIR_BACKEND_vm_destroy);
    take_all(blocks, HALF + 1, ENTRIES);
    assert_int_equal(stats_of(0).plan_served, HALF);
    assert_true(stats_of(0).plan_late > 1);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_destroy), in_vain);
    free_all(blocks);
    assert_ok(weir_validate(0));
}

static void *empty_it(void *unused)
{
    assert_ok(weir_empty_cache(0));
    return unused;
}

/* While the stream is asked for its work, the chunk belongs to nobody. */
static void a_place_that_may_be_about_to_go_is_waited_for(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *again[ENTRIES];
    pthread_t thread;
    serve_and_use(&s, blocks);
    const uint64_t asked = calls_of(WEIR_BACKEND_stream_query), late = stats_of(0).plan_late;
    assert_ok(weir_host_latency(WEIR_BACKEND_stream_query, 20000000));
    assert_int_equal(pthread_create(&thread, NULL, empty_it, NULL), 0);
    await_call_of(WEIR_BACKEND_stream_query, asked);
    take_all(again, 0, ENTRIES);
    pthread_join(thread, NULL);
    assert_int_equal(stats_of(0).plan_late, late);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(again[i] - again[0], s.entries[i].offset);
    assert_ok(weir_host_latency(WEIR_BACKEND_stream_query, 0));
}

static void write_late(void *argument)
{
    write_pattern(argument, 300 * MIB, 200);
}

/* The other stream's work is still queued when its memory becomes free. */
static void memory_that_another_stream_works_on_does_not_come_back(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_stream other = new_stream(0);
    serve_and_use(&s, blocks);
    const uint64_t created = calls_of(WEIR_BACKEND_vm_create);
    void *large = alloc_on(300 * MIB, other);
    assert_true(calls_of(WEIR_BACKEND_vm_create) - created < 3); /* it consists of the plan's chunks */
    hold(other);
    assert_ok(weir_stream_callback(other, write_late, large));
    assert_ok(weir_free(large));
    assert_ok(weir_validate(0)); /* it is no longer parked */
    assert_ok(weir_plan_serve(0, &s.plan));
    take_all(blocks, 0, ENTRIES);
    let_run(other);
    for (int i = 0; i < ENTRIES; i++) assert_true(has_pattern(blocks[i], EDGE, (unsigned)i));
    free_all(blocks);

    /* The next plan has its places elsewhere. */
    const uint64_t served = stats_of(0).plan_served;
    assert_ok(weir_plan_serve(0, &s.plan));
    take_all(blocks, 0, ENTRIES);
    assert_int_equal(stats_of(0).plan_served - served, ENTRIES);
}

static void each_stream_has_its_arena(void **state)
{
    (void)state;
    sample s = make_plan(2);
    weir_stream other = new_stream(0);
    s.arenas[1].bytes = s.arenas[0].bytes;
    serve(&s);
    char *first[ENTRIES];
    for (int i = 0; i < ENTRIES / 2; i++) {
        first[i] = alloc_on(bytes_of(i), default_stream(0));
        first[i + ENTRIES / 2] = alloc_on(bytes_of(i + ENTRIES / 2), other);
    }
    for (int i = 1; i < ENTRIES; i++) {
        const int base = i < ENTRIES / 2 ? 0 : ENTRIES / 2;
        assert_int_equal(first[i] - first[base], s.entries[i].offset - s.entries[base].offset);
    }
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

static void a_program_that_begins_later_is_found(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    s.arenas[0].loop_entries = ENTRIES;
    s.arenas[0].loop_times = 2;
    serve(&s);
    take_all(blocks, ENTRIES / 4, ENTRIES);
    for (int i = ENTRIES / 4; i < ENTRIES; i++) assert_ok(weir_free(blocks[i]));
    take_all(blocks, 0, ENTRIES);
    for (int i = ENTRIES / 2; i < ENTRIES; i++)
        assert_int_equal(blocks[i] - blocks[ENTRIES / 2], s.entries[i].offset - s.entries[ENTRIES / 2].offset);
}

/* Every other place belongs to a block that stays, which this program does not have. */

static sample serve_between_what_stays(size_t place_bytes)
{
    sample s = make_plan(1);
    s.arenas[0].bytes = ENTRIES * place_bytes;
    s.arenas[0].loop_first = s.arenas[0].loop_entries = HALF;
    s.arenas[0].loop_times = 2;
    for (uint64_t i = 0; i < ENTRIES; i++) {
        const uint64_t place = i < HALF ? 2 * i : 2 * (i - HALF) + 1;
        s.entries[i] =
            (weir_plan_entry){ place * place_bytes, place_bytes - i * 512, i < HALF ? WEIR_PLAN_FOREVER : 1, 0 };
    }
    serve(&s);
    return s;
}

static void take_the_loop(const sample *s, void *blocks[HALF])
{
    for (int i = 0; i < HALF; i++) blocks[i] = alloc(s->entries[HALF + i].bytes);
}

static void free_the_loop(void *blocks[HALF])
{
    for (int i = 0; i < HALF; i++) assert_ok(weir_free(blocks[i]));
}

static void repeat_the_loop(const sample *s)
{
    void *blocks[HALF];
    for (int round = 0; round < 4; round++) {
        take_the_loop(s, blocks);
        free_the_loop(blocks);
    }
}

static void a_program_that_begins_later_holds_no_memory_for_earlier_entries(void **state)
{
    (void)state;
    void *blocks[HALF];
    sample s = serve_between_what_stays(2 * MIB);
    repeat_the_loop(&s);
    assert_ok(weir_empty_cache(0));
    take_the_loop(&s, blocks);
    assert_true(stats_of(0).plan_served >= HALF);
    assert_in_range(reserved_on(0), HALF * 2 * MIB, (HALF + 2) * 2 * MIB);
    free_the_loop(blocks);
}

/* Each chunk of 2 MiB has a place of either kind, so that serving the places would hold twice what is used. */
static void a_program_that_begins_later_is_not_served_places_that_would_waste_memory(void **state)
{
    (void)state;
    sample s = serve_between_what_stays(MIB);
    repeat_the_loop(&s);
    assert_int_equal(stats_of(0).plan_served, 0);
    assert_true(stats_of(0).plan_resyncs > 0);
}

static void use_stream(weir_stream stream)
{
    assert_ok(weir_stream_set_current(stream));
}

static void end_current(weir_stream stream)
{
    use_stream(default_stream(0));
    assert_ok(weir_stream_destroy(stream));
}

static void the_next_stream_is_judged_anew_by_where_it_begins(void **state)
{
    (void)state;
    sample s = serve_between_what_stays(MIB);
    weir_stream first = new_stream(0);
    use_stream(first);
    repeat_the_loop(&s);
    end_current(first);
    use_stream(new_stream(0));
    repeat_the_loop(&s);
    assert_int_equal(stats_of(0).plan_served, 0);
}

/* Between its residents what stays and what comes are as above. */
static sample serve_residents_between_what_stays(void)
{
    sample s = serve_between_what_stays(MIB);
    s.entries[0].bytes = 3 * MIB;
    s.entries[0].offset = s.arenas[0].bytes;
    s.arenas[0].bytes += 3 * MIB;
    s.arenas[0].residents = 1;
    serve(&s);
    return s;
}

static void a_resident_does_not_tell_where_a_program_begins(void **state)
{
    (void)state;
    sample s = serve_residents_between_what_stays();
    void *resident = alloc(3 * MIB);
    repeat_the_loop(&s);
    assert_int_equal(stats_of(0).plan_served, 1);
    assert_ok(weir_free(resident));
}

static void residents_of_the_next_stream_are_served_whatever_the_last_one_wasted(void **state)
{
    (void)state;
    sample s = serve_residents_between_what_stays();
    weir_stream first = new_stream(0);
    use_stream(first);
    repeat_the_loop(&s);
    end_current(first);
    assert_ok(weir_free(alloc_on(3 * MIB, new_stream(0))));
    assert_int_equal(stats_of(0).plan_served, 1);
}

static void a_stream_that_begins_as_planned_gets_the_arena_before_others(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    void *early = alloc_on(7 * MIB + 512, new_stream(0));
    take_all(blocks, 0, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
    assert_ok(weir_free(early));
}

static void a_stream_that_is_served_keeps_its_arena(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    weir_stream other = new_stream(0);
    serve(&s);
    blocks[0] = take(0);
    assert_int_equal(info_of(alloc_on(bytes_of(0), other)).stream.id, other.id);
    take_all(blocks, 1, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
}

static void a_stream_that_got_no_memory_leaves_its_arena_to_the_next(void **state)
{
    (void)state;
    sample s = make_plan(1);
    void *none = NULL;
    serve(&s);
    assert_ok(weir_memory_limit_set(0, 1));
    assert_int_equal(weir_alloc_on(bytes_of(0), new_stream(0), &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_ok(weir_memory_limit_set(0, 0));
    (void)take(0);
    assert_int_equal(stats_of(0).plan_served, 1);
}

static void a_stream_that_begins_otherwise_gets_none_of_several_arenas(void **state)
{
    (void)state;
    sample s = make_plan(2);
    char *blocks[ENTRIES];
    s.arenas[1].bytes = s.arenas[0].bytes;
    serve(&s);
    take_all(blocks, 5, ENTRIES / 2);
    assert_int_equal(stats_of(0).plan_resyncs, 0);
}

static void a_stream_that_ends_leaves_its_places(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_stream other = new_stream(0);
    serve(&s);
    char *kept = alloc_on(bytes_of(0), other);
    write_pattern(kept, EDGE, 1);
    assert_ok(weir_stream_destroy(other));
    assert_ok(weir_validate(0));
    const int64_t reserved = reserved_on(0);
    char *block = take(0);
    assert_true(block + bytes_of(0) <= kept || block >= kept + bytes_of(0));
    assert_int_equal(reserved_on(0), reserved + (int64_t)(2 * MIB)); /* the stream's first unplanned small block */
    assert_true(has_pattern(kept, EDGE, 1));
    assert_ok(weir_free(kept));
}

static void places_of_a_stream_that_ended_are_not_the_next_ones(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_stream first = new_stream(0), second = new_stream(0);
    serve(&s);
    assert_ok(weir_free(alloc_on(bytes_of(0), first)));
    assert_ok(weir_stream_destroy(first));
    for (int i = 0; i < 8; i++) assert_int_equal(info_of(alloc_on(bytes_of(i), second)).stream.id, second.id);
    assert_int_equal(stats_of(0).plan_served, 1 + 8);
}

static void a_stream_that_ends_leaves_the_only_arena_to_any_other(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_stream first = new_stream(0), late = new_stream(0);
    serve(&s);
    (void)alloc_on(bytes_of(0), first);
    assert_ok(weir_stream_destroy(first));
    for (int i = HALF; i < ENTRIES; i++) (void)alloc_on(bytes_of(i), late);
    assert_true(stats_of(0).plan_served > 1);
}

/* Of no planned size. */
static void depart(int requests)
{
    for (int i = 0; i < requests; i++) assert_ok(weir_free(alloc(3 * MIB + 512)));
}

static void a_stream_that_departed_is_not_served_until_it_follows_for_long(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve_and_use(&s, blocks);
    depart(20);
    take_all(blocks, 0, HALF);
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

static void a_stream_that_departed_uses_its_places_without_the_driver(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve_and_use(&s, blocks);
    depart(20);
    const uint64_t calls = driver_calls();
    const char *block = alloc(30 * MIB);
    assert_int_equal(driver_calls(), calls);
    assert_true(block >= blocks[0] && block < blocks[0] + s.arenas[0].bytes);
}

static void plans_that_came_and_went_keep_no_request_from_the_fronts(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    serve(&s);
    assert_ok(weir_plan_serve(0, NULL));
    assert_int_equal(atomic_load(&atomic_load(&wr_runtime_global.devices[0])->routes.any), 0);
}

static void blocks_outlive_their_plan(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES);
    assert_ok(weir_plan_serve(0, NULL));
    for (int i = 0; i < ENTRIES; i++) assert_true(has_pattern(blocks[i], EDGE, (unsigned)i));
    assert_int_equal(info_of(blocks[5] + 100).bytes, bytes_of(5));
    free_all(blocks);
    assert_status(weir_free(blocks[0]), WEIR_ERR_DOUBLE_FREE);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void a_plan_without_use_is_given_up(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    for (int i = 0; i < 5000; i++) assert_ok(weir_free(alloc(777 * 512)));
    assert_int_equal(stats_of(0).plan_missed, 4096);
    serve(&s);
    char *blocks[ENTRIES];
    take_all(blocks, 0, ENTRIES);
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

static void memory_of_a_plan_given_up_serves_other_requests(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve_and_use(&s, blocks);
    for (int i = 0; i < 5000; i++) assert_ok(weir_free(alloc(777 * 512)));
    const uint64_t calls = driver_calls();
    const int64_t reserved = reserved_on(0);
    const uint64_t hits = stats_of(0).hits;
    char *block = alloc(300 * MIB);
    assert_int_equal(stats_of(0).hits - hits, 1);
    assert_true(block >= blocks[0] && block + 300 * MIB <= blocks[0] + s.arenas[0].bytes);
    assert_int_equal(driver_calls(), calls);
    assert_int_equal(reserved_on(0), reserved);
}

/* The recording began in the middle: the program does not know the order of the first entries. */
static void residents_get_their_places_in_any_order(void **state)
{
    (void)state;
    enum { RESIDENTS = 20 };
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    s.arenas[0].residents = RESIDENTS;
    serve(&s);
    for (int i = RESIDENTS; i-- > 0;) {
        blocks[i] = take(i);
        write_pattern(blocks[i], EDGE, (unsigned)i);
    }
    take_all(blocks, RESIDENTS, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) {
        assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
        assert_true(has_pattern(blocks[i], EDGE, (unsigned)i));
    }
    assert_int_equal(stats_of(0).plan_served, ENTRIES);
}

static void residents_of_one_size_do_not_overlap(void **state)
{
    (void)state;
    enum { RESIDENTS = 8 };
    sample s = make_plan(1);
    char *blocks[RESIDENTS];
    s.arenas[0].residents = RESIDENTS;
    for (int i = 0; i < RESIDENTS; i++) {
        s.entries[i].bytes = MIB / 2;
        s.entries[i].offset = (uint64_t)(RESIDENTS - i) * MIB / 2;
    }
    serve(&s);
    for (int i = 0; i < RESIDENTS; i++) {
        blocks[i] = alloc(MIB / 2);
        assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset - s.entries[0].offset);
    }
    for (int i = 0; i < 2; i++) (void)alloc(MIB / 2); /* their places are in use */
    assert_ok(weir_free(blocks[2]));
    assert_ptr_equal(alloc(MIB / 2), blocks[2]);
    assert_int_equal(stats_of(0).plan_late, 2);
    assert_ok(weir_validate(0));
}

/* The request may have been for another one. */
static void a_resident_whose_place_is_in_use_costs_no_trust(void **state)
{
    (void)state;
    enum { RESIDENTS = 8, LATE = 5 * RESIDENTS };
    sample s = make_plan(1);
    char *blocks[RESIDENTS];
    s.arenas[0].residents = RESIDENTS;
    for (int i = 0; i < RESIDENTS; i++) {
        s.entries[i].bytes = MIB / 2;
        s.entries[i].offset = (uint64_t)i * MIB / 2;
    }
    serve(&s);
    for (int i = 0; i < RESIDENTS; i++) blocks[i] = alloc(MIB / 2);
    for (int i = 0; i < LATE; i++) (void)alloc(MIB / 2);
    assert_int_equal(stats_of(0).plan_late, LATE);
    assert_ok(weir_free(blocks[0]));
    assert_ptr_equal(alloc(MIB / 2), blocks[0]);
}

static void a_plan_larger_than_the_limit_is_served_as_far_as_it_goes(void **state)
{
    (void)state;
    sample s = make_plan(1);
    serve(&s);
    assert_ok(weir_memory_limit_set(0, 64 * MIB));
    int served = 0;
    for (void *p = NULL; served < ENTRIES && weir_alloc(bytes_of(served), &p) == WEIR_OK; served++) continue;
    assert_in_range(served, 10, ENTRIES - 1);
    assert_true(reserved_on(0) <= (int64_t)(64 * MIB));
}

/* The neighbourhood of a place gets its memory in advance only while there is enough. */
static void the_rest_of_a_limit_goes_to_the_requested_place(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES];
    serve(&s);
    take_all(blocks, 0, ENTRIES - 10);
    for (int i = ENTRIES - 10; i < ENTRIES; i++) {
        const uint64_t end = s.entries[i].offset + bytes_of(i);
        assert_ok(weir_memory_limit_set(0, (end + 2 * MIB - 1) / (2 * MIB) * (2 * MIB)));
        blocks[i] = take(i);
        assert_int_equal(blocks[i] - blocks[0], s.entries[i].offset);
    }
}

static void private_pools_are_not_served(void **state)
{
    (void)state;
    sample s = make_plan(1);
    weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "own"));
    serve(&s);
    (void)alloc_from(pool, bytes_of(0), default_stream(0));
    assert_int_equal(stats_of(0).plan_served, 0);
    assert_int_equal(stats_of(0).plan_missed, 0);
}

static void private_pools_take_no_memory_of_places(void **state)
{
    (void)state;
    sample s = make_plan(1);
    char *blocks[ENTRIES], *again[ENTRIES];
    serve_and_use(&s, blocks);
    assert_ok(weir_free(alloc_from(make_pool(pool_options(WEIR_MEMORY_DEVICE, "")), 64 * MIB, default_stream(0))));
    take_all(again, 0, ENTRIES);
    for (int i = 0; i < ENTRIES; i++) assert_ptr_equal(again[i], blocks[i]);
}

static void plans_of_several_streams_are_refused(void **state)
{
    (void)state;
    sample s = make_plan(1);
    s.arenas[0].streams = 2;
    s.plan.arenas = s.arenas;
    s.plan.entries = s.entries;
    assert_status(weir_plan_serve(0, &s.plan), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "--streams-apart"));
}

static void plans_of_other_devices_are_refused(void **state)
{
    (void)state;
    sample s = make_plan(1);
    s.plan.arenas = s.arenas;
    s.plan.entries = s.entries;
    assert_status(weir_plan_serve(1, &s.plan), WEIR_ERR_INVALID_ARGUMENT);
}

static void a_refusal_tells_arenas_of_pools_from_arenas_of_other_devices(void **state)
{
    (void)state;
    sample s = make_plan(2);
    s.arenas[0].pool = 1;
    s.arenas[0].streams = 2;
    s.arenas[1].device = 1;
    s.plan.arenas = s.arenas;
    s.plan.entries = s.entries;
    assert_status(weir_plan_serve(0, &s.plan), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "are all of private pools"));
}

static void an_arena_larger_than_any_request_is_refused(void **state)
{
    (void)state;
    sample s = make_plan(1);
    s.arenas[0].bytes = UINT64_MAX / 512 * 512;
    s.plan.arenas = s.arenas;
    s.plan.entries = s.entries;
    assert_status(weir_plan_serve(0, &s.plan), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "more than can be allocated"));
}

static int open_torch(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .policy = "torch" });
    return 0;
}

static void pools_without_chunks_are_refused(void **state)
{
    (void)state;
    sample s = make_plan(1);
    s.plan.arenas = s.arenas;
    s.plan.entries = s.entries;
    assert_status(weir_plan_serve(0, &s.plan), WEIR_ERR_NOT_SUPPORTED);
}

static int open_debug(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB, .debug = "poison,streams" });
    return 0;
}

static void a_refusal_names_the_debug_words_that_leave_no_chunks(void **state)
{
    pools_without_chunks_are_refused(state);
    assert_non_null(strstr(weir_error_text(), "poison"));
}

#define SERVE_TEST(test) cmocka_unit_test_setup_teardown(test, open_default, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVE_TEST(blocks_lie_as_planned),
        SERVE_TEST(a_second_round_calls_no_driver),
        SERVE_TEST(a_place_larger_than_the_device_is_refused),
        SERVE_TEST(a_place_in_use_is_not_given_out),
        SERVE_TEST(a_place_whose_block_waits_for_a_stream_is_not_given_out),
        SERVE_TEST(a_place_is_given_out_once_the_stream_is_done),
        SERVE_TEST(a_place_given_out_once_the_stream_is_done_is_a_hit),
        SERVE_TEST(a_place_that_gets_free_memory_from_elsewhere_is_a_hit),
        SERVE_TEST(a_place_that_gets_new_memory_is_no_hit),
        SERVE_TEST(a_request_that_is_served_elsewhere_from_new_memory_is_no_hit),
        SERVE_TEST(a_stream_for_half_of_which_the_places_are_in_use_is_still_served),
        SERVE_TEST(a_stream_for_which_all_places_are_in_use_is_no_longer_served),
        SERVE_TEST(unplanned_requests_are_served_elsewhere),
        SERVE_TEST(places_without_use_hold_no_memory),
        SERVE_TEST(free_places_serve_requests_that_would_need_more_memory),
        SERVE_TEST(memory_that_went_elsewhere_comes_back),
        SERVE_TEST(memory_that_is_too_large_for_a_hole_is_not_mapped_there),
        SERVE_TEST(a_place_takes_free_memory_from_elsewhere_before_new),
        SERVE_TEST(however_few_records_are_to_spare_memory_that_went_elsewhere_comes_back),
        SERVE_TEST(an_emptied_cache_gets_its_places_back),
        SERVE_TEST(no_place_is_mapped_among_addresses_that_the_driver_kept),
        SERVE_TEST(memory_that_another_stream_works_on_does_not_come_back),
        SERVE_TEST(each_stream_has_its_arena),
        SERVE_TEST(a_program_that_begins_later_is_found),
        SERVE_TEST(a_program_that_begins_later_holds_no_memory_for_earlier_entries),
        SERVE_TEST(a_program_that_begins_later_is_not_served_places_that_would_waste_memory),
        SERVE_TEST(a_stream_that_begins_as_planned_gets_the_arena_before_others),
        SERVE_TEST(a_stream_that_ends_leaves_its_places),
        SERVE_TEST(blocks_outlive_their_plan),
        SERVE_TEST(a_plan_without_use_is_given_up),
        SERVE_TEST(memory_of_a_plan_given_up_serves_other_requests),
        SERVE_TEST(residents_get_their_places_in_any_order),
        SERVE_TEST(residents_of_one_size_do_not_overlap),
        SERVE_TEST(a_plan_larger_than_the_limit_is_served_as_far_as_it_goes),
        SERVE_TEST(the_rest_of_a_limit_goes_to_the_requested_place),
        SERVE_TEST(private_pools_are_not_served),
        SERVE_TEST(private_pools_take_no_memory_of_places),
        SERVE_TEST(a_place_that_may_be_about_to_go_is_waited_for),
        SERVE_TEST(plans_of_several_streams_are_refused),
        SERVE_TEST(plans_of_other_devices_are_refused),
        SERVE_TEST(the_next_stream_is_judged_anew_by_where_it_begins),
        SERVE_TEST(a_resident_does_not_tell_where_a_program_begins),
        SERVE_TEST(residents_of_the_next_stream_are_served_whatever_the_last_one_wasted),
        SERVE_TEST(a_resident_whose_place_is_in_use_costs_no_trust),
        SERVE_TEST(free_memory_that_fits_no_place_is_exchanged_for_some_that_does),
        SERVE_TEST(another_streams_work_on_such_memory_is_waited_for),
        SERVE_TEST(streams_that_always_have_work_get_their_places),
        SERVE_TEST(work_that_does_not_end_is_waited_for_once),
        SERVE_TEST(a_stream_that_ends_while_its_place_is_awaited_gets_nothing),
        SERVE_TEST(the_streams_own_work_on_such_memory_is_waited_for),
        SERVE_TEST(own_work_that_waits_for_the_thread_does_not_keep_it),
        SERVE_TEST(a_stream_that_is_served_keeps_its_arena),
        SERVE_TEST(a_stream_that_got_no_memory_leaves_its_arena_to_the_next),
        SERVE_TEST(a_stream_that_begins_otherwise_gets_none_of_several_arenas),
        SERVE_TEST(places_of_a_stream_that_ended_are_not_the_next_ones),
        SERVE_TEST(a_stream_that_ends_leaves_the_only_arena_to_any_other),
        SERVE_TEST(a_stream_that_departed_is_not_served_until_it_follows_for_long),
        SERVE_TEST(a_stream_that_departed_uses_its_places_without_the_driver),
        SERVE_TEST(plans_that_came_and_went_keep_no_request_from_the_fronts),
        SERVE_TEST(a_refusal_tells_arenas_of_pools_from_arenas_of_other_devices),
        SERVE_TEST(an_arena_larger_than_any_request_is_refused),
        cmocka_unit_test_setup_teardown(pools_without_chunks_are_refused, open_torch, close_host),
        cmocka_unit_test_setup_teardown(a_refusal_names_the_debug_words_that_leave_no_chunks, open_debug, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
