/*
 * What an allocation tries before it fails, on a device of 64 MiB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "graph_support.h"
#include "ladder_support.h"
#include "pool/trim_wait.h"
#include "pool_support.h"

#include <malloc.h>
#include <pthread.h>
#include <string.h>

static void events_of_streams_that_were_waited_for_are_used_again(void **state)
{
    (void)state;
    uint64_t made = 0;
    for (int i = 0; i < 6; i++) {
        slow_work work = { .milliseconds = 2 };
        void *block = alloc_on(20 * MIB, one);
        start_slow_work(one, &work);
        assert_ok(weir_free(block));
        assert_ok(weir_empty_cache(0));
        assert_true(atomic_load(&work.done));
        assert_int_equal(reserved_on(0), 0);
        if (i == 0) made = calls_of(WEIR_BACKEND_event_create);
    }
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), made);
}

/* Neither weir's own records nor the texts of errors. */
static void refused_requests_leave_nothing_behind(void **state)
{
    (void)state;
    size_t before = 0;
    for (int i = 0; i < 200; i++) {
        refuse(100 * MIB, one);
        if (i == 100) before = mallinfo2().uordblks;
    }
    assert_in_range(mallinfo2().uordblks, 0, before + 10000);
}

static void the_largest_segments_of_all_streams_are_given_back_first(void **state)
{
    (void)state;
    leave_idle(10 * MIB, one);
    leave_idle(18 * MIB, two);
    leave_idle(10 * MIB, three);
    alloc(20 * MIB);
    alloc(20 * MIB);
    assert_int_equal(reserved_on(0), 50 * MIB);
}

enum { EVENTS = 64 };

/* The sizes of segments that were given back, in order. Returns how many. */
static size_t sizes_given_back(uint64_t sizes[EVENTS])
{
    weir_event events[EVENTS];
    size_t count = 0, freed = 0;
    assert_ok(weir_history_read(0, events, EVENTS, &count, NULL));
    for (size_t i = 0; i < count; i++)
        if (events[i].kind == WEIR_EVENT_SEGMENT_FREE) sizes[freed++] = events[i].size;
    return freed;
}

/* The order in which PyTorch empties its cache. */
static void large_segments_are_given_back_first(void **state)
{
    (void)state;
    uint64_t sizes[EVENTS];
    void *blocks[] = { alloc_on(1000, one), alloc_on(20 * MIB, one), alloc_on(2 * MIB, two) };
    for (int i = 0; i < 3; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(sizes_given_back(sizes), 3);
    assert_int_equal(sizes[0], 20 * MIB);
    assert_int_equal(sizes[1], 20 * MIB);
    assert_int_equal(sizes[2], 2 * MIB);
}

/* Of a private pool small ones go first in PyTorch. */
static void exactly_as_pytorch_small_segments_of_private_pools_are_given_back_first(void **state)
{
    (void)state;
    uint64_t sizes[EVENTS];
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    void *large = alloc_from(pool, 20 * MIB, one), *small = alloc_from(pool, 1000, one);
    assert_ok(weir_free(large));
    assert_ok(weir_free(small));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(sizes_given_back(sizes), 2);
    assert_int_equal(sizes[0], 2 * MIB);
    assert_int_equal(sizes[1], 20 * MIB);
}

static void exactly_as_pytorch_a_pool_in_use_keeps_its_idle_segments(void **state)
{
    (void)state;
    void *block = NULL;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    assert_ok(weir_free(alloc_from(pool, 40 * MIB, one)));
    assert_status(weir_alloc_from(pool, 40 * MIB, two, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(reserved_on(0), 40 * MIB);
    assert_ok(weir_mempool_unref(pool));
}

/* PyTorch takes 20 MiB for a request of 8, or nothing. */
static void policy_torch_takes_no_segment_of_the_size_that_is_needed(void **state)
{
    (void)state;
    void *block = NULL;
    assert_ok(weir_memory_limit_set(0, 12 * MIB));
    assert_status(weir_alloc(8 * MIB, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(reserved_on(0), 0);
}

static void other_policies_do(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 12 * MIB));
    assert_non_null(alloc(8 * MIB));
}

/* ---- pending frees ----------------------------------------------------------------------------------------------- */

static void finished_frees_are_found_before_the_driver_is_asked(void **state)
{
    (void)state;
    void *block = alloc_on(40 * MIB, one);
    assert_ok(weir_record_stream(block, two));
    assert_ok(weir_free(block));
    uint64_t before = calls_of(WEIR_BACKEND_segment_alloc);
    assert_ptr_equal(alloc_on(40 * MIB, one), block);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_alloc), before);
    assert_int_equal(stats_of(0).syncs, 0);
}

/* PyTorch waits, then asks only the driver, and fails although its free list has enough memory. */
static void running_frees_are_waited_for_and_the_free_list_is_searched_again(void **state)
{
    (void)state;
    releaser work;
    void *block = alloc_on(60 * MIB, one);
    free_while_used(block, &work);
    assert_ptr_equal(alloc_on(60 * MIB, one), block);
    pthread_join(work.thread, NULL);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.syncs, 1);
    assert_int_equal(stats.ooms, 0);
    assert_int_equal(stats.driver_frees, 0);
    assert_int_equal(stats.alloc_retries, 0);
}

static void what_was_waited_for_in_pieces_is_mapped_together(void **state)
{
    (void)state;
    releaser work;
    void *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = alloc_on(16 * MIB, one);
    start_releaser(&work, two);
    for (int i = 0; i < 4; i += 2) {
        assert_ok(weir_record_stream(blocks[i], two));
        assert_ok(weir_free(blocks[i]));
    }
    const uint64_t before = stats_of(0).driver_allocs;
    alloc_on(32 * MIB, one);
    pthread_join(work.thread, NULL);
    assert_int_equal(stats_of(0).syncs, 1);
    assert_int_equal(stats_of(0).driver_frees, 0);
    assert_int_equal(stats_of(0).driver_allocs, before);
}

static void exactly_as_pytorch_what_was_waited_for_is_given_back(void **state)
{
    (void)state;
    releaser work;
    void *block = alloc_on(60 * MIB, one);
    free_while_used(block, &work);
    assert_non_null(alloc_on(60 * MIB, one));
    pthread_join(work.thread, NULL);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.syncs, 1);
    assert_int_equal(stats.driver_frees, 1);
    assert_int_equal(stats.alloc_retries, 1);
}

/* PyTorch fails here: it asks only the driver. */
static void but_it_is_found_when_the_driver_has_no_more(void **state)
{
    (void)state;
    releaser work;
    void *block = alloc_on(60 * MIB, one);
    assert_ok(weir_free(block));
    block = alloc_on(40 * MIB, one);
    assert_non_null(alloc_on(10 * MIB, one)); /* keeps the segment */
    free_while_used(block, &work);
    assert_ptr_equal(alloc_on(40 * MIB, one), block);
    pthread_join(work.thread, NULL);
    assert_int_equal(stats_of(0).ooms, 0);
    assert_int_equal(stats_of(0).driver_frees, 0);
}

static void running_frees_of_other_streams_are_waited_for_and_released(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 50 };
    void *block = alloc_on(60 * MIB, one);
    start_slow_work(two, &work);
    assert_ok(weir_record_stream(block, two));
    assert_ok(weir_free(block));
    void *next = alloc_on(60 * MIB, three);
    assert_true(atomic_load(&work.done));
    assert_int_equal(info_of(next).stream.id, three.id);
    assert_int_equal(stats_of(0).ooms, 0);
    assert_int_equal(reserved_on(0), 60 * MIB);
}

static void several_running_frees_are_waited_for_until_they_suffice(void **state)
{
    (void)state;
    static slow_work works[3];
    char *blocks[3];
    for (int i = 0; i < 3; i++) {
        works[i] = (slow_work){ .milliseconds = 20 + 10 * i };
        blocks[i] = alloc_on(20 * MIB, one);
    }
    weir_stream streams[3] = { two, three, default_stream(0) };
    for (int i = 0; i < 3; i++) {
        start_slow_work(streams[i], &works[i]);
        assert_ok(weir_record_stream(blocks[i], streams[i]));
        assert_ok(weir_free(blocks[i]));
    }
    assert_non_null(alloc_on(60 * MIB, one));
    for (int i = 0; i < 3; i++) assert_true(atomic_load(&works[i].done));
    assert_int_equal(stats_of(0).pending_frees, 0);
}

typedef struct request {
    size_t bytes;
    weir_stream stream;
    weir_status status;
    void *block;
} request;

static void *allocate(void *argument)
{
    request *r = argument;
    r->status = weir_alloc_on(r->bytes, r->stream, &r->block);
    return NULL;
}

/* The first thread to wait polls for all. The next one, which finds nothing to wait for, must see what the first
 * left. */
static void threads_that_wait_for_the_same_frees_all_get_memory(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 100 };
    char *blocks[3];
    leave_idle(60 * MIB, one);
    for (int i = 0; i < 3; i++) blocks[i] = alloc_on(20 * MIB, one); /* the last keeps the segment in use */
    start_slow_work(two, &work);
    for (int i = 0; i < 2; i++) {
        assert_ok(weir_record_stream(blocks[i], two));
        assert_ok(weir_free(blocks[i]));
    }
    request requests[2] = { { .bytes = 20 * MIB, .stream = one }, { .bytes = 20 * MIB, .stream = one } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, allocate, &requests[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(requests[i].status, WEIR_OK);
    assert_int_equal(stats_of(0).ooms, 0);
}

/* ---- other streams' idle segments -------------------------------------------------------------------------------- */

static uint64_t queued_on(weir_stream stream)
{
    uint64_t count = 0;
    assert_ok(weir_stream_queued(stream, &count));
    return count;
}

static void weir_moves_an_idle_segment_instead_of_asking_the_driver(void **state)
{
    (void)state;
    void *block = leave_idle(60 * MIB, one);
    const uint64_t before[] = { queued_on(one), queued_on(two) };
    assert_ptr_equal(alloc_on(60 * MIB, two), block);
    assert_int_equal(info_of(block).stream.id, two.id);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.rehomed, 1);
    assert_int_equal(stats.driver_frees, 0);
    assert_int_equal(calls_of(WEIR_BACKEND_segment_free), 0);
    assert_int_equal(queued_on(two) - before[1], 1);
    assert_int_equal(queued_on(one), before[0]);
}

static void work_on_a_moved_segment_waits_for_the_stream_it_came_from(void **state)
{
    (void)state;
    hold(one);
    unsigned char *block = alloc_on(60 * MIB, one);
    assert_ok(weir_fill(block, 1, 4096, one));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(60 * MIB, two), block);
    assert_ok(weir_fill(block, 2, 4096, two));
    assert_status(weir_stream_query(two), WEIR_ERR_NOT_READY);
    let_run(one);
    assert_ok(weir_stream_synchronize(two));
    assert_int_equal(block[0], 2);
}

static void the_smallest_idle_segment_that_fits_is_moved(void **state)
{
    (void)state;
    void *large = alloc_on(30 * MIB, one), *middle = alloc_on(20 * MIB, two), *small = alloc_on(12 * MIB, one);
    assert_ok(weir_free(large));
    assert_ok(weir_free(middle));
    assert_ok(weir_free(small));
    assert_ptr_equal(alloc_on(18 * MIB, three), middle);
    assert_ptr_equal(alloc_on(10 * MIB, three), small);
    assert_ptr_equal(alloc_on(20 * MIB, three), large);
    assert_int_equal(stats_of(0).rehomed, 3);
}

static void a_segment_for_small_blocks_serves_no_large_request(void **state)
{
    (void)state;
    void *none = NULL;
    leave_idle(4096, one); /* 2 MiB */
    (void)alloc_on(20 * MIB, two);
    assert_ok(weir_memory_limit_set(0, 21 * MIB));
    assert_status(weir_alloc_on(3 * MIB / 2, two, &none), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(stats_of(0).rehomed, 0);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_SMALL].current, 0); /* given back instead */
    assert_int_equal(stats_of(0).segment[WEIR_STAT_LARGE].current, 1);
}

static void more_streams_may_be_busy_than_are_waited_for_at_once(void **state)
{
    enum { MANY = WR_TRIM_WAIT_STREAMS + 4 };
    (void)state;
    slow_work work[MANY];
    for (int i = 0; i < MANY; i++) {
        weir_stream stream = new_stream(0);
        work[i] = (slow_work){ .milliseconds = 300 };
        void *block = alloc_on(MIB, stream);
        start_slow_work(stream, &work[i]);
        assert_ok(weir_free(block));
    }
    assert_ok(weir_empty_cache(0));
    for (int i = 0; i < MANY; i++) assert_true(atomic_load(&work[i].done));
    assert_int_equal(reserved_on(0), 0);
}

static void segments_partly_in_use_are_not_moved(void **state)
{
    (void)state;
    leave_idle(60 * MIB, one);
    alloc_on(20 * MIB, one); /* cut from the 60 */
    refuse(30 * MIB, two);
    assert_int_equal(stats_of(0).rehomed, 0);
}

static void a_segment_that_cannot_be_chained_stays_where_it_is(void **state)
{
    (void)state;
    leave_idle(60 * MIB, one);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_record, 1, WEIR_ERR_DRIVER));
    void *next = alloc_on(60 * MIB, two);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.rehomed, 0);
    assert_int_equal(stats.driver_frees, 1); /* given back and taken anew */
    assert_int_equal(info_of(next).stream.id, two.id);
}

/* The count says that waits are queued, so it must not rise before they are. */
static void a_wait_that_the_driver_refuses_is_not_counted(void **state)
{
    (void)state;
    leave_idle(60 * MIB, one);
    const uint64_t before = queued_on(two);
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_wait, 1, WEIR_ERR_DRIVER));
    alloc_on(60 * MIB, two);
    assert_int_equal(stats_of(0).rehomed, 0);
    assert_int_equal(queued_on(two), before);
}

/* ---- what streams that ended have left --------------------------------------------------------------------------- */

static void memory_of_an_ended_stream_serves_the_next_without_a_wait(void **state)
{
    (void)state;
    void *left = leave_idle(12 * MIB, one);
    assert_ok(weir_stream_destroy(one));
    make_busy(default_stream(0)); /* the memory is that stream's now */
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_wait), records = calls_of(WEIR_BACKEND_event_record);
    assert_ptr_equal(alloc_on(12 * MIB, two), left);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), waits);
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), records);
    assert_int_equal(info_of(left).stream.id, two.id);
    assert_int_equal(reserved_on(0), 12 * MIB);
    let_run(default_stream(0));
}

static void what_ended_streams_left_is_not_looked_for_once_it_has_gone_back(void **state)
{
    (void)state;
    (void)leave_idle(12 * MIB, one);
    assert_ok(weir_stream_destroy(one));
    assert_int_equal(atomic_load(&device_0()->cache.left), 1);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(atomic_load(&device_0()->cache.left), 0);
}

static void streams_that_come_and_go_hold_no_more_than_one(void **state)
{
    (void)state;
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    for (int i = 0; i < 20; i++) {
        weir_stream stream = new_stream(0);
        void *small = alloc_from(pool, 12 * MIB, stream), *large = alloc_from(pool, 30 * MIB, stream);
        assert_ok(weir_free(small));
        assert_ok(weir_free(large));
        assert_ok(weir_stream_destroy(stream));
        assert_int_equal(reserved_on(0), 42 * MIB);
    }
    assert_int_equal(stats_of(0).alloc_retries, 0);
    assert_ok(weir_mempool_unref(pool));
}

static void inherited_memory_that_the_default_stream_used_is_its_own(void **state)
{
    (void)state;
    void *left = leave_idle(12 * MIB, one);
    assert_ok(weir_stream_destroy(one));
    assert_ptr_equal(leave_idle(12 * MIB, default_stream(0)), left);
    assert_true(alloc_on(12 * MIB, two) != left);
    assert_int_equal(reserved_on(0), 24 * MIB);
}

static void blocks_in_use_when_their_stream_ended_serve_others_once_the_default_stream_is_idle(void **state)
{
    (void)state;
    void *block = alloc_on(12 * MIB, one);
    assert_ok(weir_stream_destroy(one));
    make_busy(default_stream(0)); /* its work may use the block */
    assert_ok(weir_free(block));
    assert_true(alloc_on(12 * MIB, two) != block);
    let_run(default_stream(0));
    assert_ok(weir_stream_synchronize(default_stream(0)));
    assert_ptr_equal(alloc_on(12 * MIB, two), block);
    assert_int_equal(reserved_on(0), 24 * MIB);
}

static void memory_of_an_ended_stream_stays_when_it_does_not_fit(void **state)
{
    (void)state;
    void *quiet = alloc_on(12 * MIB, one), *used = alloc_on(12 * MIB, one);
    assert_ok(weir_free(quiet));
    assert_ok(weir_stream_destroy(one));
    assert_ok(weir_free(used));
    alloc_on(14 * MIB, two);
    assert_int_equal(stats_of(0).rehomed, 0);
    assert_int_equal(reserved_on(0), 38 * MIB);
}

static void idle_memory_of_a_stream_stays_its_own_beside_that_of_ended_streams(void **state)
{
    (void)state;
    leave_idle(10 * MIB, one);
    assert_ok(weir_stream_destroy(one));
    void *own = leave_idle(12 * MIB, three);
    assert_true(alloc_on(12 * MIB, two) != own);
    assert_int_equal(stats_of(0).rehomed, 0);
}

/* Where blocks lie must not depend on whether the default stream is idle. */
static void blocks_of_a_deterministic_pool_in_use_then_serve_no_other_stream(void **state)
{
    (void)state;
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    options.deterministic = true;
    const weir_mempool pool = make_pool(options);
    void *used = alloc_from(pool, 12 * MIB, one), *left = alloc_from(pool, 14 * MIB, one);
    assert_ok(weir_free(left));
    assert_ok(weir_stream_destroy(one));
    assert_ok(weir_free(used));
    assert_ptr_equal(alloc_from(pool, 14 * MIB, two), left);
    assert_true(alloc_from(pool, 12 * MIB, two) != used);
}

/* The graph uses the free memory of its pool. */
static void memory_of_an_ended_stream_in_a_graphs_pool_stays(void **state)
{
    (void)state;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    weir_graph graph;
    options.pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    assert_ok(weir_graph_begin(one, &options, &graph));
    void *used = alloc_on(12 * MIB, one);
    assert_ok(weir_free(used));
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_stream_destroy(one));
    assert_true(alloc_from(options.pool, 12 * MIB, two) != used);
    assert_ok(weir_graph_destroy(graph));
    assert_ok(weir_mempool_unref(options.pool));
}

static void *end_stream(void *stream)
{
    assert_ok(weir_stream_destroy(*(weir_stream *)stream));
    return NULL;
}

/* The request makes the ending stream wait for the one whose memory it gets, after its work was waited for. */
static void memory_that_a_stream_gets_as_it_ends_is_used_after_the_work_on_it(void **state)
{
    (void)state;
    static atomic_bool ends; /* which the work reads */
    pthread_t thread;
    void *block = alloc_on(40 * MIB, two);
    make_busy(two);
    assert_ok(weir_free(block));
    atomic_store(&ends, false);
    assert_ok(weir_stream_callback(one, last_until, &ends));
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_synchronize);
    start(&thread, end_stream, &one);
    await_call_of(WEIR_BACKEND_stream_synchronize, waits);
    assert_ok(weir_free(alloc_on(40 * MIB, one)));
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    alloc_on(40 * MIB, default_stream(0));
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_ALL].peak, 40 * MIB); /* it is that memory */
    assert_status(weir_stream_query(default_stream(0)), WEIR_ERR_NOT_READY);
    let_run(two);
    assert_ok(weir_stream_synchronize(default_stream(0)));
}

static void torch_releases_other_streams_segments_and_grows(void **state)
{
    (void)state;
    leave_idle(60 * MIB, one);
    alloc_on(60 * MIB, two);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.rehomed, 0);
    assert_int_equal(stats.driver_frees, 1);
    assert_int_equal(stats.driver_allocs, 2);
    assert_int_equal(stats.alloc_retries, 1);
}

static void idle_memory_goes_where_the_driver_has_none_for_a_stream(void **state)
{
    (void)state;
    weir_stream made;
    leave_idle(40 * MIB, one);
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_create, 1, WEIR_ERR_OUT_OF_MEMORY));
    assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &made));
    assert_int_equal(reserved_on(0), 0);
    leave_idle(40 * MIB, one);
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_create, 1, WEIR_ERR_OUT_OF_MEMORY));
    assert_ok(weir_stream_from_pool(0, WEIR_PRIORITY_DEFAULT, &made));
    assert_int_equal(reserved_on(0), 0);
}

static void a_refused_request_is_one_retry(void **state)
{
    (void)state;
    leave_idle(20 * MIB, one);
    alloc_on(30 * MIB, two);
    leave_idle(10 * MIB, one); /* giving it back is not enough, so the request climbs again */
    refuse(60 * MIB, two);
    assert_int_equal(stats_of(0).alloc_retries, 1);
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

static void weir_gives_back_just_enough(void **state)
{
    (void)state;
    void *small = alloc_on(10 * MIB, one), *middle = alloc_on(12 * MIB, one), *large = alloc_on(20 * MIB, one);
    assert_ok(weir_free(middle));
    assert_ok(weir_free(small));
    assert_ok(weir_free(large));
    assert_non_null(alloc_on(30 * MIB, two)); /* 22 MiB are free on the device */
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.driver_frees, 2);
    assert_int_equal(stats.alloc_retries, 1);
    assert_ptr_equal(alloc_on(12 * MIB, one), middle);
}

static void torch_gives_everything_idle_back(void **state)
{
    (void)state;
    leave_idle(20 * MIB, one);
    void *middle = alloc_on(12 * MIB, two);
    leave_idle(10 * MIB, two);
    assert_ok(weir_free(middle));
    alloc_on(30 * MIB, three);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.driver_frees, 3);
    assert_int_equal(stats.alloc_retries, 1);
    assert_int_equal(reserved_on(0), 30 * MIB);
}

static void *empty(void *argument)
{
    *(weir_status *)argument = weir_empty_cache(0);
    return NULL;
}

/* While another thread gives the memory back, it is neither free here nor with the driver. */
static void memory_on_its_way_back_to_the_driver_is_no_reason_to_fail(void **state)
{
    weir_status emptied = WEIR_ERR_INTERNAL;
    pthread_t thread;
    leave_idle(60 * MIB, one);
    assert_ok(weir_host_latency(giving_entry(state), 100000000));
    assert_int_equal(pthread_create(&thread, NULL, empty, &emptied), 0);
    await_call_of(giving_entry(state), 0);
    assert_non_null(alloc_on(60 * MIB, two));
    pthread_join(thread, NULL);
    assert_int_equal(emptied, WEIR_OK);
    assert_int_equal(stats_of(0).ooms, 0);
}

static void other_threads_get_memory_while_a_trim_waits_for_work(void **state)
{
    (void)state;
    atomic_bool ends = false;
    weir_status emptied = WEIR_ERR_INTERNAL;
    pthread_t thread;
    void *block = alloc_on(20 * MIB, one);
    assert_ok(weir_stream_callback(one, last_until, &ends));
    assert_ok(weir_free(block));
    const uint64_t waits = calls_of(WEIR_BACKEND_event_synchronize);
    assert_int_equal(pthread_create(&thread, NULL, empty, &emptied), 0);
    await_call_of(WEIR_BACKEND_event_synchronize, waits);
    alloc_on(24 * MIB, two);
    assert_int_equal(reserved_on(0), 44 * MIB);
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    assert_int_equal(emptied, WEIR_OK);
    assert_int_equal(reserved_on(0), 24 * MIB);
}

static void memory_without_work_on_it_is_given_back_first(void **state)
{
    (void)state;
    void *block = alloc_on(32 * MIB, one);
    leave_idle(30 * MIB, two);
    make_busy(one);
    assert_ok(weir_free(block));
    const uint64_t waits = calls_of(WEIR_BACKEND_event_synchronize);
    (void)alloc_from(make_pool(pool_options(WEIR_MEMORY_DEVICE, "")), 24 * MIB, three);
    assert_int_equal(calls_of(WEIR_BACKEND_event_synchronize), waits);
    assert_status(weir_stream_query(one), WEIR_ERR_NOT_READY);
    let_run(one);
}

static int open_oversize(void **state)
{
    return open_with(*state, (weir_settings){ .max_split_size = 21 * MIB, .history = 1000 });
}

static int open_small_oversize(void **state)
{
    return open_with(*state, (weir_settings){ .max_split_size = 15 * MIB, .large_segment = 15 * MIB, .history = 1000 });
}

static void oversize_segments_of_the_stream_are_given_back_first(void **state)
{
    (void)state;
    void *other = leave_idle(20 * MIB, two);
    leave_idle(42 * MIB, one); /* too large for it */
    alloc_on(21 * MIB, one);
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.driver_frees, 1);
    assert_int_equal(stats.alloc_retries, 0);
    assert_ptr_equal(alloc_on(20 * MIB, two), other);
}

static void oversize_segments_go_from_the_largest_down_until_they_add_up(void **state)
{
    (void)state;
    void *blocks[] = { alloc_on(16 * MIB, one), alloc_on(18 * MIB, one), alloc_on(16 * MIB, one) };
    for (int i = 0; i < 3; i++) assert_ok(weir_free(blocks[i]));
    alloc_on(34 * MIB, one);
    assert_int_equal(stats_of(0).driver_frees, 2);
    assert_int_equal(stats_of(0).alloc_retries, 0);
    assert_int_equal(reserved_on(0), 50 * MIB);
}

static void segments_below_oversize_stay_while_there_is_room_without_them(void **state)
{
    (void)state;
    alloc_on(20 * MIB, two);
    void *smaller = alloc_on(12 * MIB, one);
    leave_idle(22 * MIB, one);
    assert_ok(weir_free(smaller));
    alloc_on(26 * MIB, one);
    assert_int_equal(stats_of(0).driver_frees, 1);
    assert_ptr_equal(alloc_on(12 * MIB, one), smaller);
}

static void oversize_segments_that_do_not_add_up_go_with_everything(void **state)
{
    (void)state;
    leave_idle(12 * MIB, two);
    leave_idle(22 * MIB, one);
    alloc_on(40 * MIB, one); /* there is room for it without the 22 */
    assert_int_equal(stats_of(0).driver_frees, 2);
    assert_int_equal(reserved_on(0), 40 * MIB);
}

static void near_a_limit_a_request_gets_a_segment_of_its_own_size(void **state)
{
    (void)state;
    assert_ok(weir_memory_limit_set(0, 12 * MIB));
    void *block = alloc_on(3 * MIB, one);
    assert_int_equal(reserved_on(0), 4 * MIB);
    assert_non_null(alloc_on(8 * MIB, one));
    assert_ok(weir_free(block));
}

static void a_request_refused_with_nothing_idle_was_tried_again(void **state)
{
    (void)state;
    void *block = NULL;
    alloc_on(40 * MIB, one);
    assert_status(weir_alloc_on(40 * MIB, one, &block), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(stats_of(0).alloc_retries, 1);
}

static void an_oversize_segment_that_may_not_be_cut_makes_room_for_a_small_request(void **state)
{
    (void)state;
    alloc_on(20 * MIB, two);
    leave_idle(40 * MIB, one);
    alloc_on(12 * MIB, one);
    assert_int_equal(stats_of(0).driver_frees, 1);
    assert_int_equal(reserved_on(0), 32 * MIB);
}

static void a_hit_after_the_pressure_calls_no_driver(void **state)
{
    (void)state;
    leave_idle(30 * MIB, one);
    void *block = leave_idle(60 * MIB, two);
    uint64_t before = driver_calls();
    assert_ptr_equal(alloc_on(60 * MIB, two), block);
    assert_int_equal(driver_calls(), before);
}

/* ---- giving up --------------------------------------------------------------------------------------------------- */

static void a_failure_says_where_the_bytes_are(void **state)
{
    (void)state;
    alloc_on(30 * MIB, one);
    alloc_on(20 * MIB, two);
    alloc_on(512, one);
    refuse(50 * MIB, one);
    const char *text = weir_error_text();
    assert_non_null(strstr(text, "device 0"));
    assert_non_null(strstr(text, "weir host device 0"));
    assert_non_null(strstr(text, "asked for 50.00 MiB"));
    assert_non_null(strstr(text, "The device has 64.00 MiB, "));
    assert_non_null(strstr(text, "12.00 MiB free"));
    assert_non_null(strstr(text, "no limit"));
    assert_non_null(strstr(text, "weir holds 52.00 MiB"));
    assert_non_null(strstr(text, "50.00 MiB in use"));
    assert_non_null(strstr(text, "2.00 MiB free between blocks in use"));
}

static void a_failure_names_free_memory_of_other_streams(void **state)
{
    (void)state;
    void *kept[2];
    for (int i = 0; i < 2; i++) {
        weir_stream stream = i ? two : one;
        leave_idle(14 * MIB, stream);
        kept[i] = alloc_on(4 * MIB, stream); /* 10 MiB of the segment stay free */
    }
    refuse(40 * MIB, three);
    const char *text = weir_error_text();
    assert_non_null(strstr(text, "Largest free block of this pool on this stream: 0 bytes"));
    assert_non_null(strstr(text, "20.00 MiB free between blocks in use"));
    assert_ok(weir_free(kept[0]));
    assert_ok(weir_free(kept[1]));
}

static void a_failure_names_fragmentation_when_that_is_the_cause(void **state)
{
    (void)state;
    assert_ok(weir_free(alloc_on(60 * MIB, one)));
    void *blocks[3];
    for (int i = 0; i < 3; i++) blocks[i] = alloc_on(20 * MIB, one);
    assert_ok(weir_free(blocks[0]));
    assert_ok(weir_free(blocks[2]));
    refuse(30 * MIB, one);
    assert_non_null(strstr(weir_error_text(), "scattered"));
    assert_non_null(strstr(weir_error_text(), "Largest free block of this pool on this stream: 20.00 MiB"));
}

static void a_failure_names_another_streams_block_that_would_do(void **state)
{
    (void)state;
    leave_idle(60 * MIB, one);
    alloc_on(10 * MIB, one);
    refuse(40 * MIB, two); /* 50 MiB in one piece are free on the other stream */
    assert_null(strstr(weir_error_text(), "scattered"));
    assert_non_null(strstr(weir_error_text(), "another stream is large enough"));
}

static void the_library_is_usable_after_a_failure(void **state)
{
    (void)state;
    void *live = alloc_on(40 * MIB, one);
    for (int i = 0; i < 3; i++) {
        refuse(40 * MIB, one);
        assert_ok(weir_validate(0));
    }
    assert_int_equal(stats_of(0).ooms, 3);
    assert_ok(weir_free(alloc_on(20 * MIB, one)));
    assert_ok(weir_free(live));
    assert_non_null(alloc_on(64 * MIB, two));
}

/* PyTorch's rules move no segments, and there are no oversize segments. */
/* Where there are no handles, nor callbacks of the program's. */
static bool applies(weir_step step, const char *policy)
{
    const bool absent = step == WEIR_STEP_TRIM_OVERSIZE || step == WEIR_STEP_HANDLES || step == WEIR_STEP_PROGRAM;
    return !absent && (step != WEIR_STEP_REHOME || strcmp(policy, "torch") != 0);
}

static void a_failure_is_recorded(void **state)
{
    weir_event events[16];
    size_t count = 0;
    alloc_on(40 * MIB, one);
    assert_ok(weir_history_clear(0));
    refuse(30 * MIB - 5, two);
    assert_ok(weir_history_read(0, events, 16, &count, NULL));
    assert_int_equal(count, 2);
    assert_int_equal(events[1].kind, WEIR_EVENT_DECISION);
    assert_int_equal(weir_decision_served(&events[1]), WEIR_STEP_REFUSED);
    for (int step = WEIR_STEP_FINISHED; step < WEIR_STEPS; step++)
        assert_int_equal(weir_decision_tried(&events[1], (weir_step)step), applies((weir_step)step, *state));
    assert_int_equal(events[0].kind, WEIR_EVENT_OOM);
    assert_int_equal(events[0].size, 30 * MIB - 5);
    assert_int_equal(events[0].address, 24 * MIB); /* free on the device */
    assert_int_equal(events[0].stream, (uintptr_t)native_of(two));
}

static void more_than_the_device_has_is_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = { 66 * MIB, (size_t)1 << 40, (size_t)1 << 59, (size_t)1 << 60 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        refuse(sizes[i], one);
        assert_ok(weir_validate(0));
    }
}

static void more_than_1_eib_is_refused_without_a_driver_call(void **state)
{
    (void)state;
    uint64_t before = driver_calls();
    refuse(((size_t)1 << 60) + 1, one);
    assert_non_null(strstr(weir_error_text(), "1 EiB"));
    refuse(SIZE_MAX, one);
    refuse((size_t)-4096, one);
    assert_int_equal(driver_calls(), before);
}

static void a_broken_device_ends_the_climb(void **state)
{
    void *block = NULL;
    leave_idle(10 * MIB, one);
    assert_ok(weir_host_fail(taking_entry(state), 1, WEIR_ERR_DEVICE_LOST));
    assert_status(weir_alloc_on(30 * MIB, one, &block), WEIR_ERR_DEVICE_LOST);
    assert_null(block);
    assert_int_equal(stats_of(0).driver_frees, 0);
    assert_int_equal(stats_of(0).ooms, 0);
}

/* The largest segment goes first; the driver refuses it, and it stays. The others make room. */
static void memory_that_the_driver_does_not_take_back_is_no_reason_to_fail(void **state)
{
    leave_idle(30 * MIB, one);
    leave_idle(20 * MIB, two);
    assert_ok(weir_host_fail(giving_entry(state), 1, WEIR_ERR_DRIVER));
    assert_int_equal(info_of(alloc_on(34 * MIB, three)).bytes, 34 * MIB);
    assert_int_equal(stats_of(0).ooms, 0);
}

static void giving_back_nothing_at_all_is_a_reason_to_fail(void **state)
{
    void *block = NULL;
    leave_idle(60 * MIB, one);
    for (uint64_t nth = 1; nth <= 40; nth++) assert_ok(weir_host_fail(giving_entry(state), nth, WEIR_ERR_DRIVER));
    assert_status(weir_alloc_on(62 * MIB, two, &block), WEIR_ERR_DRIVER);
    assert_null(block);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_free(alloc_on(62 * MIB, two)));
}

/* A segment that a capturing stream keeps does not count as refused, and comes first. */
static void memory_that_the_driver_does_not_take_back_is_reported(void **state)
{
    (void)state;
    leave_idle(12 * MIB, one);
    leave_idle(12 * MIB, two);
    weir_graph graph = begin_on(one);
    for (uint64_t nth = 1; nth <= 4; nth++) assert_ok(weir_host_fail(giving_entry(state), nth, WEIR_ERR_DRIVER));
    assert_status(weir_empty_cache(0), WEIR_ERR_DRIVER);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 12 * MIB);
    assert_ok(weir_graph_end(graph));
    assert_ok(weir_graph_destroy(graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(finished_frees_are_found_before_the_driver_is_asked),
        ALL(running_frees_are_waited_for_and_the_free_list_is_searched_again),
        POLICY(what_was_waited_for_in_pieces_is_mapped_together, open_recording, "weir"),
        POLICY(exactly_as_pytorch_small_segments_of_private_pools_are_given_back_first, open_recording, "torch-exact"),
        POLICY(exactly_as_pytorch_a_pool_in_use_keeps_its_idle_segments, open_recording, "torch-exact"),
        POLICY(exactly_as_pytorch_what_was_waited_for_is_given_back, open_recording, "torch-exact"),
        POLICY(but_it_is_found_when_the_driver_has_no_more, open_recording, "torch-exact"),
        ALL(running_frees_of_other_streams_are_waited_for_and_released),
        ALL(several_running_frees_are_waited_for_until_they_suffice),
        ALL(threads_that_wait_for_the_same_frees_all_get_memory),
        POLICY(policy_torch_takes_no_segment_of_the_size_that_is_needed, open_recording, "torch"),
        POLICY(other_policies_do, open_recording, "segments"),
        POLICY(events_of_streams_that_were_waited_for_are_used_again, open_recording, "segments"),
        ALL(refused_requests_leave_nothing_behind),
        POLICY(large_segments_are_given_back_first, open_recording, "segments"),
        POLICY(weir_moves_an_idle_segment_instead_of_asking_the_driver, open_recording, "segments"),
        POLICY(work_on_a_moved_segment_waits_for_the_stream_it_came_from, open_recording, "segments"),
        POLICY(the_smallest_idle_segment_that_fits_is_moved, open_recording, "segments"),
        POLICY(a_segment_for_small_blocks_serves_no_large_request, open_recording, "segments"),
        POLICY(more_streams_may_be_busy_than_are_waited_for_at_once, open_host_of_policy, "weir"),
        POLICY(more_streams_may_be_busy_than_are_waited_for_at_once, open_host_of_policy, "segments"),
        SEGMENTS(segments_partly_in_use_are_not_moved),
        POLICY(a_segment_that_cannot_be_chained_stays_where_it_is, open_recording, "segments"),
        POLICY(a_wait_that_the_driver_refuses_is_not_counted, open_recording, "segments"),
        SEGMENTS(memory_of_an_ended_stream_serves_the_next_without_a_wait),
        SEGMENTS(what_ended_streams_left_is_not_looked_for_once_it_has_gone_back),
        ALL(streams_that_come_and_go_hold_no_more_than_one),
        POLICY(memory_that_a_stream_gets_as_it_ends_is_used_after_the_work_on_it, open_recording, "weir"),
        POLICY(memory_that_a_stream_gets_as_it_ends_is_used_after_the_work_on_it, open_recording, "segments"),
        SEGMENTS(inherited_memory_that_the_default_stream_used_is_its_own),
        SEGMENTS(memory_of_an_ended_stream_stays_when_it_does_not_fit),
        SEGMENTS(idle_memory_of_a_stream_stays_its_own_beside_that_of_ended_streams),
        SEGMENTS(blocks_in_use_when_their_stream_ended_serve_others_once_the_default_stream_is_idle),
        ALL(blocks_of_a_deterministic_pool_in_use_then_serve_no_other_stream),
        ALL(memory_of_an_ended_stream_in_a_graphs_pool_stays),
        POLICY(torch_releases_other_streams_segments_and_grows, open_recording, "torch"),
        ALL(idle_memory_goes_where_the_driver_has_none_for_a_stream),
        POLICY(a_refused_request_is_one_retry, open_recording, "torch"),
        POLICY(weir_gives_back_just_enough, open_recording, "segments"),
        POLICY(the_largest_segments_of_all_streams_are_given_back_first, open_recording, "segments"),
        POLICY(torch_gives_everything_idle_back, open_recording, "torch"),
        ALL(memory_on_its_way_back_to_the_driver_is_no_reason_to_fail),
        ALL(other_threads_get_memory_while_a_trim_waits_for_work),
        POLICY(memory_without_work_on_it_is_given_back_first, open_recording, "weir"),
        POLICY(memory_without_work_on_it_is_given_back_first, open_recording, "segments"),
        POLICY(oversize_segments_of_the_stream_are_given_back_first, open_oversize, "torch"),
        POLICY(oversize_segments_go_from_the_largest_down_until_they_add_up, open_small_oversize, "torch"),
        POLICY(segments_below_oversize_stay_while_there_is_room_without_them, open_oversize, "segments"),
        POLICY(oversize_segments_that_do_not_add_up_go_with_everything, open_oversize, "torch"),
        POLICY(near_a_limit_a_request_gets_a_segment_of_its_own_size, open_recording, "segments"),
        ALL(a_request_refused_with_nothing_idle_was_tried_again),
        POLICY(an_oversize_segment_that_may_not_be_cut_makes_room_for_a_small_request, open_oversize, "torch"),
        ALL(a_hit_after_the_pressure_calls_no_driver),
        SEGMENTS(a_failure_says_where_the_bytes_are),
        ALL(a_failure_names_free_memory_of_other_streams),
        POLICY(a_failure_names_fragmentation_when_that_is_the_cause, open_recording, "segments"),
        SEGMENTS(a_failure_names_another_streams_block_that_would_do),
        ALL(the_library_is_usable_after_a_failure),
        ALL(a_failure_is_recorded),
        ALL(more_than_the_device_has_is_refused),
        ALL(more_than_1_eib_is_refused_without_a_driver_call),
        ALL(a_broken_device_ends_the_climb),
        SEGMENTS(memory_that_the_driver_does_not_take_back_is_no_reason_to_fail),
        SEGMENTS(giving_back_nothing_at_all_is_a_reason_to_fail),
        ALL(memory_that_the_driver_does_not_take_back_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
