#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device/device.h"
#include "device_support.h"
#include "host_support.h"
#include "pool/address.h"
#include "pool/pending.h"
#include "pool/starts.h"
#include "thread_support.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

/* Blocks of this size have a segment to themselves, so that reuse shows in the address. */
#define OWN (12 * MIB)

static weir_stream home, other, third;

static int open_with_streams(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_devices = 2, .host_memory = 1024 * MIB });
    home = new_stream(0);
    other = new_stream(0);
    third = new_stream(0);
    return 0;
}

/* ---- what is waited for ------------------------------------------------------------------------------------------ */

static void a_recorded_block_is_reused_only_after_the_other_stream(void **state)
{
    (void)state;
    hold(other);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_fill(block, 1, OWN, other));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(other);
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void work_queued_between_record_and_free_is_waited_for(void **state)
{
    (void)state;
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other)); /* idle now */
    hold(other);
    assert_ok(weir_fill(block, 1, OWN, other));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(other);
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void work_queued_after_the_free_is_not_waited_for(void **state)
{
    (void)state;
    uint64_t ran = 0;
    hold(other);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    void *later = alloc_on(4096, other);
    assert_ok(weir_fill(later, 1, 4096, other));
    assert_ok(weir_host_stream_step(0, native_of(other), 1, &ran)); /* the event */
    assert_int_equal(ran, 1);
    assert_status(weir_stream_query(other), WEIR_ERR_NOT_READY);
    assert_ptr_equal(alloc_on(OWN, home), block);
    let_run(other);
}

static void two_recorded_streams_are_both_needed(void **state)
{
    (void)state;
    for (int first_is_other = 0; first_is_other < 2; first_is_other++) {
        hold(other);
        hold(third);
        void *block = alloc_on(OWN, home);
        assert_ok(weir_record_stream(block, other));
        assert_ok(weir_record_stream(block, third));
        assert_ok(weir_free(block));
        let_run(first_is_other ? other : third);
        void *meanwhile = alloc_on(OWN, home);
        assert_ptr_not_equal(meanwhile, block);
        let_run(first_is_other ? third : other);
        assert_ptr_equal(alloc_on(OWN, home), block);
        assert_ok(weir_free(meanwhile));
        assert_ok(weir_free(block));
        assert_ok(weir_empty_cache(0));
    }
}

static void one_slow_stream_does_not_delay_the_blocks_of_others(void **state)
{
    (void)state;
    hold(other);
    hold(third);
    void *slow = alloc_on(OWN, home), *quick = alloc_on(OWN, home);
    assert_ok(weir_record_stream(slow, other));
    assert_ok(weir_record_stream(quick, third));
    assert_ok(weir_free(slow));
    assert_ok(weir_free(quick));
    let_run(third);
    assert_ptr_equal(alloc_on(OWN, home), quick);
    assert_ptr_not_equal(alloc_on(OWN, home), slow);
    let_run(other);
}

static void blocks_waiting_for_one_stream_come_back_as_it_proceeds(void **state)
{
    (void)state;
    uint64_t ran = 0;
    hold(other);
    void *first = alloc_on(OWN, home), *second = alloc_on(OWN, home);
    assert_ok(weir_record_stream(first, other));
    assert_ok(weir_record_stream(second, other));
    assert_ok(weir_free(first));
    assert_ok(weir_free(second));
    assert_ok(weir_host_stream_step(0, native_of(other), 1, &ran));
    assert_ptr_equal(alloc_on(OWN, home), first);
    assert_int_equal(stats_of(0).pending_frees, 1);
    let_run(other);
    assert_ptr_equal(alloc_on(OWN, home), second);
}

static void an_interior_pointer_records_its_block(void **state)
{
    (void)state;
    hold(other);
    char *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block + OWN - 1, other));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(other);
}

static void recording_the_own_stream_does_nothing(void **state)
{
    (void)state;
    hold(home);
    void *block = alloc_on(OWN, home);
    const uint64_t before = driver_calls();
    assert_ok(weir_record_stream(block, home));
    assert_ok(weir_free(block));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ptr_equal(alloc_on(OWN, home), block);
    assert_int_equal(driver_calls(), before);
    let_run(home);
}

static void recording_twice_is_as_recording_once(void **state)
{
    (void)state;
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_record_stream((char *)block + 512, other));
    assert_ok(weir_free(block));
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), 1);
}

static void a_stream_of_another_device_is_waited_for(void **state)
{
    (void)state;
    weir_stream far = new_stream(1);
    hold(far);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, far));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(far);
    assert_ptr_equal(alloc_on(OWN, home), block);
    assert_ok(weir_validate(1));
}

static void the_default_stream_can_be_recorded(void **state)
{
    (void)state;
    weir_stream standard = default_stream(0);
    hold(standard);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, WEIR_STREAM_CURRENT));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(standard);
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void a_new_use_of_the_block_knows_nothing_of_the_old_streams(void **state)
{
    (void)state;
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(OWN, home), block);
    hold(other);
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(OWN, home), block);
    let_run(other);
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static void recording_the_own_stream_of_a_freed_block_is_refused(void **state)
{
    (void)state;
    weir_stream own = new_stream(0);
    for (int i = 0; i < 2; i++) { /* the second time the thread remembers where blocks are */
        void *block = alloc_on(1000, own);
        assert_ok(weir_record_stream(block, own));
        assert_ok(weir_free(block));
        assert_status(weir_record_stream(block, own), WEIR_ERR_DOUBLE_FREE);
    }
}

typedef struct recorder {
    sem_t ready, go;
    weir_status status;
} recorder;

static void *record_own(void *argument)
{
    recorder *r = argument;
    void *block = alloc_on(1000, home);
    r->status = weir_free(alloc_on(1000, home)); /* from then on the thread remembers where blocks are */
    sem_post(&r->ready);
    wait_for(&r->go);
    for (int i = 0; i < 10 && r->status == WEIR_OK; i++) r->status = weir_record_stream(block, home);
    sem_post(&r->ready);
    return NULL;
}

/* Else it would wait for ever. */
static void recording_the_own_stream_takes_no_lock(void **state)
{
    (void)state;
    recorder r = { .status = WEIR_OK };
    pthread_t thread;
    wr_device *d = NULL;
    assert_ok(wr_runtime_device(0, &d));
    sem_init(&r.ready, 0, 0);
    sem_init(&r.go, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, record_own, &r), 0);
    wait_for(&r.ready);
    wr_cache_lock(&d->cache);
    sem_post(&r.go);
    wait_for(&r.ready);
    wr_cache_unlock(&d->cache);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(r.status);
    sem_destroy(&r.ready);
    sem_destroy(&r.go);
}

/* However many there are. */
static void a_free_finds_all_that_is_over_on_its_streams(void **state)
{
    (void)state;
    enum { MANY = 100 };
    void *blocks[MANY];
    hold(other);
    for (int i = 0; i < MANY; i++) {
        blocks[i] = alloc_on(1000, home);
        assert_ok(weir_record_stream(blocks[i], other));
    }
    for (int i = 0; i < MANY; i++) assert_ok(weir_free(blocks[i]));
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.active[WEIR_STAT_ALL].current - stats.allocation[WEIR_STAT_ALL].current, MANY);
    void *last = alloc_on(1000, home);
    assert_ok(weir_record_stream(last, other));
    let_run(other);
    assert_ok(weir_free(last));
    stats = stats_of(0);
    assert_in_range(stats.active[WEIR_STAT_ALL].current - stats.allocation[WEIR_STAT_ALL].current, 0, 1);
}

static void frees_on_the_own_stream_record_no_event(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) assert_ok(weir_free(alloc_on(OWN, home)));
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), 0);
}

static void free_used_on(void *block, weir_stream user)
{
    assert_ok(weir_record_stream(block, user));
    assert_ok(weir_free(block));
}

static void a_stream_leaves_no_record_once_its_uses_are_over(void **state)
{
    (void)state;
    wr_device *device = NULL;
    assert_ok(wr_runtime_device(0, &device));
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_non_null(device->cache.waits);
    assert_ok(weir_empty_cache(0));
    assert_null(device->cache.waits);
}

static void events_are_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        void *block = alloc_on(OWN, home);
        assert_ok(weir_record_stream(block, other));
        assert_ok(weir_free(block));
    }
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), 100);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 1);
}

static void a_free_gives_back_the_events_of_what_it_finds_over(void **state)
{
    (void)state;
    void *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = alloc_on(OWN, home);
    for (int i = 0; i < 10; i++) free_used_on(blocks[i], other);
    assert_in_range(calls_of(WEIR_BACKEND_event_create), 1,
                    2); /* by turns: one is recorded before the other goes back */
}

static size_t unused_uses(void)
{
    size_t count = 0;
    for (const wr_use *u = device_0()->cache.unused_uses; u; u = u->next_in_wait) count++;
    return count;
}

static void a_block_that_need_not_wait_keeps_no_record(void **state)
{
    (void)state;
    wr_block *waiting = NULL;
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    const size_t before = unused_uses();
    assert_ok(wr_cache_free(wr_address_find(block), block, &waiting));
    assert_non_null(waiting);
    wr_pending_skip(waiting);
    assert_int_equal(unused_uses(), before + 1);
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void a_recording_that_fails_keeps_no_record(void **state)
{
    (void)state;
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    const size_t before = unused_uses();
    wr_meta_fail_nth(1);
    assert_status(weir_record_stream(block, third), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_int_equal(unused_uses(), before);
}

static void a_free_finds_finished_uses_on_its_streams(void **state)
{
    (void)state;
    void *first = alloc_on(OWN, home), *second = alloc_on(OWN, home), *elsewhere = alloc_on(OWN, home);
    hold(other);
    free_used_on(elsewhere, third);
    free_used_on(first, other);
    assert_int_equal(stats_of(0).pending_frees, 2);
    let_run(other);
    hold(other);
    free_used_on(second, other);
    assert_int_equal(stats_of(0).pending_frees, 2); /* `elsewhere`, whose stream nobody asked, and `second` */
    let_run(other);
}

static void a_free_asks_once_in_vain(void **state)
{
    (void)state;
    void *blocks[10];
    for (int i = 0; i < 10; i++) blocks[i] = alloc_on(OWN, home);
    hold(other);
    const uint64_t before = calls_of(WEIR_BACKEND_event_query);
    for (int i = 0; i < 10; i++) free_used_on(blocks[i], other);
    assert_int_equal(calls_of(WEIR_BACKEND_event_query) - before, 9); /* of the first; before it there was none */
    let_run(other);
}

/* Else pieces are cut from large free blocks while what would fit has long been over. */
static void large_requests_ask_every_so_often_what_is_over(void **state)
{
    (void)state;
    void *block = alloc_on(4 * MIB, home), *large = alloc_on(32 * MIB, home);
    hold(other);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ok(weir_free(large));
    let_run(other);
    assert_int_equal(stats_of(0).pending_frees, 1);
    for (int i = 0; i < 4; i++) (void)alloc_on(3 * MIB, home);
    assert_int_equal(stats_of(0).pending_frees, 0);
}

/* The device may be lost before the free, when no event can be recorded any more, or after it. */
static void check_lost_neighbour(bool before)
{
    weir_stream theirs = new_stream(1);
    void *block = alloc_on(OWN, home);
    make_busy(theirs);
    assert_ok(weir_record_stream(block, theirs));
    if (before) assert_ok(weir_host_lose_device(1));
    assert_ok(weir_free(block));
    if (!before) assert_ok(weir_host_lose_device(1));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_int_equal(reserved_on(0), 0);
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    open_host((weir_settings){ 0 }); /* to be closed */
}

static void a_device_lost_before_a_free_is_not_waited_for_by_another(void **state)
{
    (void)state;
    check_lost_neighbour(true);
}

static void a_device_lost_after_a_free_is_not_waited_for_by_another(void **state)
{
    (void)state;
    check_lost_neighbour(false);
}

static void uses_on_the_blocks_own_lost_device_are_not_over(void **state)
{
    (void)state;
    wr_device *device = NULL;
    assert_ok(wr_runtime_device(0, &device));
    void *block = alloc_on(OWN, home);
    make_busy(other);
    free_used_on(block, other);
    assert_ok(weir_host_lose_device(0));
    wr_pending_flush(&device->cache);
    assert_int_equal(stats_of(0).pending_frees, 1);
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    open_host((weir_settings){ 0 }); /* to be closed */
}

static void what_cannot_be_waited_for_does_not_keep_the_rest_from_going(void **state)
{
    (void)state;
    void *waits = alloc_on(OWN, home), *idle = alloc_on(OWN, home);
    hold(other);
    free_used_on(waits, other);
    assert_ok(weir_free(idle));
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(weir_empty_cache(0), WEIR_ERR_DRIVER);
    assert_int_equal(reserved_on(0), OWN);
    let_run(other);
}

/* The stream recorded last is asked first, and asked again once the other was waited for. */
static void streams_are_waited_for_although_another_cannot_be(void **state)
{
    (void)state;
    void *goes = alloc_on(OWN, home), *stays = alloc_on(OWN, home);
    hold(third);
    free_used_on(goes, third);
    hold(other);
    free_used_on(stays, other);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 3, WEIR_ERR_DRIVER));
    assert_status(weir_empty_cache(0), WEIR_ERR_DRIVER);
    assert_int_equal(reserved_on(0), OWN);
    let_run(third);
    let_run(other);
}

static void a_request_gets_what_is_idle_when_a_wait_fails(void **state)
{
    (void)state;
    void *waits = alloc_on(OWN, home), *idle = alloc_on(2 * OWN, home);
    hold(other);
    free_used_on(waits, other);
    assert_ok(weir_free(idle));
    assert_ok(weir_memory_limit_set(0, (uint64_t)reserved_on(0)));
    assert_ok(weir_host_fail(WEIR_BACKEND_event_synchronize, 1, WEIR_ERR_DRIVER));
    assert_non_null(alloc_on(2 * OWN, third)); /* with policy torch, what is idle goes after the wait */
    assert_ok(weir_host_fail_clear());
    let_run(other);
}

/* The stream's queue has an event for each block. */
static void what_is_over_is_found_wherever_it_ends(void **state)
{
    (void)state;
    enum { SOME = 40 };
    wr_device *device = NULL;
    assert_ok(wr_runtime_device(0, &device));
    for (uint64_t over = 0; over <= SOME; over++) {
        void *blocks[SOME];
        uint64_t ran = 0;
        for (int i = 0; i < SOME; i++) blocks[i] = alloc_on(1000, home);
        hold(other);
        for (int i = 0; i < SOME; i++) free_used_on(blocks[i], other);
        assert_ok(weir_host_stream_step(0, native_of(other), over, &ran));
        assert_int_equal(ran, over);
        wr_pending_flush(&device->cache);
        assert_int_equal(stats_of(0).pending_frees, SOME - over);
        let_run(other);
        wr_pending_flush(&device->cache);
        assert_int_equal(stats_of(0).pending_frees, 0);
    }
}

static void a_pending_block_is_active_but_not_allocated(void **state)
{
    (void)state;
    hold(other);
    void *block = alloc_on(OWN - 100, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.pending_frees, 1);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats.allocated_bytes[WEIR_STAT_LARGE].current, 0);
    assert_int_equal(stats.active[WEIR_STAT_ALL].current, 1);
    assert_int_equal(stats.active_bytes[WEIR_STAT_LARGE].current, OWN);
    assert_int_equal(stats.requested_bytes[WEIR_STAT_ALL].current, OWN - 100);
    assert_ok(weir_validate(0));
    let_run(other);
    assert_ok(weir_empty_cache(0));
    stats = stats_of(0);
    assert_int_equal(stats.pending_frees, 0);
    assert_int_equal(stats.active_bytes[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats.requested_bytes[WEIR_STAT_ALL].current, 0);
}

static void neighbours_do_not_merge_with_a_pending_block(void **state)
{
    hold(other);
    void *left = alloc_on(4096, home), *middle = alloc_on(4096, home), *right = alloc_on(4096, home);
    assert_ok(weir_record_stream(middle, other));
    assert_ok(weir_free(middle));
    assert_ok(weir_free(left));
    assert_ok(weir_free(right));
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).inactive_split[WEIR_STAT_ALL].current, strcmp(*state, "weir") == 0 ? 0 : 2);
    let_run(other);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void empty_cache_waits_for_pending_frees(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 50 };
    void *block = alloc_on(OWN, home);
    start_slow_work(other, &work);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ok(weir_empty_cache(0));
    assert_true(atomic_load(&work.done));
    assert_int_equal(reserved_on(0), 0);
}

/* ---- when things go wrong ---------------------------------------------------------------------------------------- */

static void freed_and_unknown_pointers_cannot_be_recorded(void **state)
{
    (void)state;
    int local = 0;
    void *block = alloc_on(OWN, home);
    hold(other);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_status(weir_record_stream(block, third), WEIR_ERR_DOUBLE_FREE); /* pending */
    assert_non_null(strstr(weir_error_text(), "waiting for the streams it was recorded on"));
    let_run(other);
    assert_ok(weir_free(alloc_on(OWN, home)));
    assert_status(weir_record_stream(block, third), WEIR_ERR_DOUBLE_FREE); /* cached */
    assert_non_null(strstr(weir_error_text(), ", cached"));
    assert_ok(weir_empty_cache(0));
    assert_status(weir_record_stream(block, third), WEIR_ERR_UNKNOWN_POINTER); /* gone */
    assert_status(weir_record_stream(&local, third), WEIR_ERR_UNKNOWN_POINTER);
    assert_status(weir_record_stream(NULL, third), WEIR_ERR_UNKNOWN_POINTER);
}

static void without_an_event_the_stream_itself_is_asked(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 64; nth++) assert_ok(weir_host_fail(WEIR_BACKEND_event_create, nth, WEIR_ERR_DRIVER));
    hold(other);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_fill(block, 1, OWN, other));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(other);
    assert_ptr_equal(alloc_on(OWN, home), block);
    assert_ok(weir_host_fail_clear());
}

/* A thread that waits for a held stream would run it. */
static sem_t may_end;

static void wait_to_end(void *unused)
{
    (void)unused;
    wait_for(&may_end);
}

static void *empty_the_cache(void *unused)
{
    (void)weir_empty_cache(0); /* refused for lack of events, after waiting */
    return unused;
}

static void a_capture_begins_while_a_stream_without_an_event_is_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    weir_graph graph;
    const weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    for (uint64_t nth = 1; nth <= 64; nth++) assert_ok(weir_host_fail(WEIR_BACKEND_event_create, nth, WEIR_ERR_DRIVER));
    void *block = alloc_on(OWN, home);
    weir_stream elsewhere = new_stream(1);
    sem_init(&may_end, 0, 0);
    assert_ok(weir_stream_callback(other, wait_to_end, NULL));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    const uint64_t asked = calls_of(WEIR_BACKEND_stream_query) + calls_of(WEIR_BACKEND_stream_synchronize);
    assert_int_equal(pthread_create(&thread, NULL, empty_the_cache, NULL), 0);
    while (calls_of(WEIR_BACKEND_stream_query) + calls_of(WEIR_BACKEND_stream_synchronize) == asked) sched_yield();
    assert_ok(weir_graph_begin(elsewhere, &options, &graph));
    assert_ok(weir_graph_destroy(graph));
    sem_post(&may_end);
    pthread_join(thread, NULL);
    sem_destroy(&may_end);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void an_event_that_could_not_be_recorded_is_recorded_later(void **state)
{
    (void)state;
    assert_ok(weir_host_fail(WEIR_BACKEND_event_record, 1, WEIR_ERR_DRIVER));
    hold(other);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(OWN, home), block);
    let_run(other);
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void a_recorded_stream_may_be_destroyed_before_the_free(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 30 };
    void *block = alloc_on(OWN, home);
    start_slow_work(other, &work);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_stream_destroy(other));
    assert_true(atomic_load(&work.done));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void a_recorded_stream_may_be_destroyed_after_the_free(void **state)
{
    (void)state;
    void *block = alloc_on(OWN, home);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_record, 1, WEIR_ERR_DRIVER)); /* only the stream can be asked */
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ok(weir_stream_destroy(other));
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void a_recorded_stream_of_another_device_may_be_destroyed(void **state)
{
    (void)state;
    weir_stream far = new_stream(1);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, far));
    assert_ok(weir_stream_destroy(far));
    assert_ok(weir_free(block));
    assert_ptr_equal(alloc_on(OWN, home), block);
}

static void closing_with_frees_pending_across_devices_works(void **state)
{
    (void)state;
    static slow_work work[2];
    weir_stream far = new_stream(1);
    for (int i = 0; i < 2; i++) work[i].milliseconds = 20;
    start_slow_work(home, &work[0]);
    start_slow_work(far, &work[1]);
    void *near_block = alloc_on(OWN, home), *far_block = alloc_on(OWN, far);
    assert_ok(weir_record_stream(near_block, far));
    assert_ok(weir_record_stream(far_block, home));
    assert_ok(weir_free(near_block));
    assert_ok(weir_free(far_block));
    assert_int_equal(stats_of(0).pending_frees + stats_of(1).pending_frees, 2);
} /* the teardown closes */

/* A block that waits for a stream, in all the places where that is known. */
static void a_use_missing_anywhere_is_noticed(void **state)
{
    (void)state;
    void *pointer = alloc_on(4096, home);
    hold(other);
    assert_ok(weir_fill(pointer, 1, 4096, other));
    assert_ok(weir_record_stream(pointer, other));
    assert_ok(weir_free(pointer));
    wr_block *block = wr_starts_block_at(wr_address_find(pointer), pointer);
    wr_use *use = block->uses;
    wr_wait *wait = use->wait;
    assert_ok(weir_validate(0));

    block->uses = NULL;
    assert_noticed("pending for nothing");
    block->uses = use;
    wait->first = wait->last = NULL;
    assert_noticed("queued");
    wait->first = wait->last = use;
    wait->last = NULL;
    assert_noticed("last use");
    wait->last = use;
    wait->uses++;
    assert_noticed("blocks have 1 uses");
    wait->uses -= 2;
    assert_noticed("more than 0 uses");
    wait->uses++;
    void *live = alloc_on(4096, third);
    use->block = wr_starts_block_at(wr_address_find(live), live);
    assert_noticed("no pending block");
    use->block = block;
    let_run(other);
}

#define BOTH(test)                                                                                                     \
    { #test " (weir)", test, open_with_streams, close_host, (void *)(uintptr_t)"weir" },                               \
        { #test " (torch)", test, open_with_streams, close_host, (void *)(uintptr_t)"torch" }

/* ---- races ------------------------------------------------------------------------------------------------------- */

static void free_used_by_other(void *block)
{
    assert_ok(weir_fill(block, 1, OWN, other));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
}

/* A thread that waits until nothing is pending would wait for ever beside threads that free all the time. */
static void blocks_freed_later_are_not_waited_for(void **state)
{
    (void)state;
    bool waited = false;
    void *first = alloc_on(OWN, home), *second = alloc_on(OWN, home);
    const wr_segment *segment = wr_address_find(first);
    wr_cache *cache = segment->cache;
    hold(other);
    free_used_by_other(first);
    const uint64_t newest = wr_pending_queued(cache);
    free_used_by_other(second);
    assert_ok(wr_pending_wait(cache, NULL, newest, &waited));
    assert_true(waited);
    assert_ok(wr_pending_wait(cache, NULL, newest, &waited));
    assert_false(waited);
    assert_int_equal(stats_of(0).pending_frees, 1);
    let_run(other);
}

static sem_t begun;

static void work_for_others(void *unused)
{
    (void)unused;
    sem_post(&begun);
    wait_for(&may_end);
}

static void *empty_and_tell(void *unused)
{
    (void)unused;
    return weir_empty_cache(0) == WEIR_OK ? NULL : &begun;
}

/* The work that it waits for may itself wait for what those threads do next. */
static void a_thread_that_waits_for_a_free_keeps_no_other_stream_from_ending(void **state)
{
    (void)state;
    pthread_t thread;
    void *failed = NULL;
    const uint64_t asked = calls_of(WEIR_BACKEND_event_synchronize);
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_stream_callback(other, work_for_others, NULL));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    wait_for(&begun);
    assert_int_equal(pthread_create(&thread, NULL, empty_and_tell, NULL), 0);
    await_call_of(WEIR_BACKEND_event_synchronize, asked);
    assert_ok(weir_stream_destroy(third));
    assert_ok(weir_free(alloc_on(4096, home)));
    sem_post(&may_end);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(stats_of(0).pending_frees, 0);
    sem_destroy(&begun);
    sem_destroy(&may_end);
}

/* Both blocks come back with one event. */
static void two_threads_may_wait_for_one_free(void **state)
{
    (void)state;
    pthread_t threads[2];
    const uint64_t asked = calls_of(WEIR_BACKEND_event_synchronize);
    sem_init(&begun, 0, 0);
    sem_init(&may_end, 0, 0);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_stream_callback(other, work_for_others, NULL));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    wait_for(&begun);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, empty_and_tell, NULL), 0);
    while (calls_of(WEIR_BACKEND_event_synchronize) < asked + 2) sched_yield();
    sem_post(&may_end);
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_ok(weir_validate(0));
    sem_destroy(&begun);
    sem_destroy(&may_end);
}

/* As if a free had taken the block before its mark was changed, and it had been handed out again. */
static void a_stream_that_a_block_came_back_with_can_be_recorded(void **state)
{
    (void)state;
    hold(other);
    void *block = alloc_on(4096, home);
    assert_ok(weir_record_stream(block, other));
    wr_block_mark_as(wr_starts_block_at(wr_address_find(block), block), WR_MARK_PARKABLE);
    assert_ok(weir_fill(block, 1, 4096, other));
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_ptr_not_equal(alloc_on(4096, home), block);
    let_run(other);
}

typedef struct flicker {
    wr_block *block;
    atomic_bool ends;
} flicker;

/* As if it were freed and handed out again all the time, by threads that need no lock for it. */
static void *park_and_take(void *argument)
{
    flicker *f = argument;
    while (!atomic_load(&f->ends)) {
        (void)wr_block_change_mark(f->block, WR_MARK_PARKABLE, WR_MARK_PARKED);
        (void)wr_block_change_mark(f->block, WR_MARK_PARKED, WR_MARK_PARKABLE);
    }
    return NULL;
}

/* It ends once both threads have run at the same time for a while; they need not ever do so. */
static void a_block_that_is_freed_while_it_is_recorded_is_refused_unless_nobody_can_park_it_any_more(void **state)
{
    (void)state;
    enum { CHANGES = 2000, MOST = 200000 };
    int turns = 0, changes = 0, refused = 0, recorded = 0;
    pthread_t thread;
    weir_status last = WEIR_OK;
    wr_device *device = device_0();
    const wr_stream *stream = wr_stream_find(&device->streams, other.id);
    void *pointer = alloc_on(4096, home);
    const wr_segment *segment = wr_address_find(pointer);
    flicker f = { .block = wr_starts_block_at(segment, pointer) };
    assert_int_equal(pthread_create(&thread, NULL, park_and_take, &f), 0);
    for (; changes < CHANGES && turns < MOST; turns++) {
        const weir_status status = wr_pending_record(segment, pointer, stream, &device->events);
        changes += status != last;
        last = status;
        refused += status == WEIR_ERR_DOUBLE_FREE;
        if (status != WEIR_OK) continue;
        recorded += wr_block_is(f.block, WR_MARK_NONE);
        wr_cache_lock(&device->cache);
        wr_pending_forget_locked(&device->cache, f.block);
        wr_cache_unlock(&device->cache);
        wr_block_mark_as(f.block, WR_MARK_PARKABLE);
    }
    atomic_store(&f.ends, true);
    pthread_join(thread, NULL);
    assert_int_equal(refused + recorded, turns);
}

static int made, gone;

static weir_status make_event(int device, void **event)
{
    made++;
    return wr_backend_host.event_create(device, event);
}

static weir_status destroy_event(int device, void *event)
{
    gone++;
    return wr_backend_host.event_destroy(device, event);
}

static void closing_destroys_the_events_of_pending_frees(void **state)
{
    weir_backend driver = wr_backend_host;
    driver.event_create = make_event;
    driver.event_destroy = destroy_event;
    device_0()->events.backend = &driver;
    made = gone = 0;
    make_busy(other);
    void *block = alloc_on(OWN, home);
    assert_ok(weir_record_stream(block, other));
    assert_ok(weir_free(block));
    assert_true(made > 0);
    assert_ok(weir_close());
    assert_int_equal(gone, made);
    (void)open_with_streams(state);
}

/* Others find what a thread waits for over before that thread does. */
static weir_status let_others_find_it_over(int device, void *event)
{
    const weir_status status = wr_backend_host.event_synchronize(device, event);
    wr_pending_flush(&device_0()->cache);
    return status;
}

static void the_last_who_waits_for_a_use_that_is_gone_puts_its_event_and_record_back(void **state)
{
    (void)state;
    bool waited = false;
    wr_device *device = device_0();
    wr_cache *cache = &device->cache;
    const weir_backend *real = cache->backend;
    weir_backend driver = *real;
    driver.event_synchronize = let_others_find_it_over;
    void *block = alloc_on(OWN, home);
    make_busy(other);
    free_used_on(block, other);
    const size_t before = unused_uses();
    cache->backend = &driver;
    const weir_status status = wr_pending_wait(cache, NULL, wr_pending_queued(cache), &waited);
    cache->backend = real;
    assert_ok(status);
    assert_true(waited);
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_int_equal(unused_uses(), before + 1);
    assert_int_equal(device->events.idle_count, device->events.made);
    let_run(other);
}

static void a_free_asks_each_stream_that_it_waits_for(void **state)
{
    (void)state;
    void *one = alloc_on(OWN, home), *two = alloc_on(OWN, home), *both = alloc_on(OWN, home);
    make_busy(other);
    make_busy(third);
    assert_ok(weir_record_stream(one, other));
    assert_ok(weir_record_stream(two, third));
    assert_ok(weir_free(one));
    assert_ok(weir_free(two));
    let_run(other);
    let_run(third);
    make_busy(other);
    assert_int_equal(stats_of(0).pending_frees, 2);
    assert_ok(weir_record_stream(both, other));
    assert_ok(weir_record_stream(both, third));
    assert_ok(weir_free(both));
    assert_int_equal(stats_of(0).pending_frees, 1); /* the last one; both others are free */
    let_run(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_recorded_block_is_reused_only_after_the_other_stream),
        BOTH(work_queued_between_record_and_free_is_waited_for),
        BOTH(work_queued_after_the_free_is_not_waited_for),
        BOTH(two_recorded_streams_are_both_needed),
        BOTH(one_slow_stream_does_not_delay_the_blocks_of_others),
        BOTH(blocks_waiting_for_one_stream_come_back_as_it_proceeds),
        BOTH(an_interior_pointer_records_its_block),
        BOTH(recording_the_own_stream_does_nothing),
        BOTH(recording_twice_is_as_recording_once),
        BOTH(a_stream_of_another_device_is_waited_for),
        BOTH(the_default_stream_can_be_recorded),
        BOTH(a_new_use_of_the_block_knows_nothing_of_the_old_streams),
        BOTH(recording_the_own_stream_of_a_freed_block_is_refused),
        cmocka_unit_test_prestate_setup_teardown(recording_the_own_stream_takes_no_lock, open_with_streams, close_host,
                                                 (void *)(uintptr_t)"weir"),
        BOTH(a_free_finds_all_that_is_over_on_its_streams),
        BOTH(frees_on_the_own_stream_record_no_event),
        BOTH(a_stream_leaves_no_record_once_its_uses_are_over),
        BOTH(events_are_used_again),
        BOTH(a_free_gives_back_the_events_of_what_it_finds_over),
        BOTH(a_block_that_need_not_wait_keeps_no_record),
        BOTH(a_recording_that_fails_keeps_no_record),
        BOTH(a_free_finds_finished_uses_on_its_streams),
        BOTH(a_free_asks_once_in_vain),
        BOTH(large_requests_ask_every_so_often_what_is_over),
        BOTH(a_device_lost_before_a_free_is_not_waited_for_by_another),
        BOTH(a_device_lost_after_a_free_is_not_waited_for_by_another),
        BOTH(uses_on_the_blocks_own_lost_device_are_not_over),
        BOTH(what_cannot_be_waited_for_does_not_keep_the_rest_from_going),
        BOTH(streams_are_waited_for_although_another_cannot_be),
        BOTH(a_request_gets_what_is_idle_when_a_wait_fails),
        BOTH(what_is_over_is_found_wherever_it_ends),
        BOTH(a_pending_block_is_active_but_not_allocated),
        BOTH(neighbours_do_not_merge_with_a_pending_block),
        BOTH(empty_cache_waits_for_pending_frees),
        BOTH(freed_and_unknown_pointers_cannot_be_recorded),
        BOTH(without_an_event_the_stream_itself_is_asked),
        BOTH(a_capture_begins_while_a_stream_without_an_event_is_waited_for),
        BOTH(an_event_that_could_not_be_recorded_is_recorded_later),
        BOTH(a_recorded_stream_may_be_destroyed_before_the_free),
        BOTH(a_recorded_stream_may_be_destroyed_after_the_free),
        BOTH(a_recorded_stream_of_another_device_may_be_destroyed),
        BOTH(closing_with_frees_pending_across_devices_works),
        BOTH(blocks_freed_later_are_not_waited_for),
        BOTH(a_thread_that_waits_for_a_free_keeps_no_other_stream_from_ending),
        BOTH(two_threads_may_wait_for_one_free),
        BOTH(a_stream_that_a_block_came_back_with_can_be_recorded),
        cmocka_unit_test_prestate_setup_teardown(
            a_block_that_is_freed_while_it_is_recorded_is_refused_unless_nobody_can_park_it_any_more, open_with_streams,
            close_host, (void *)(uintptr_t)"weir"),
        BOTH(a_use_missing_anywhere_is_noticed),
        cmocka_unit_test_setup_teardown(closing_destroys_the_events_of_pending_frees, open_with_streams, close_host),
        BOTH(the_last_who_waits_for_a_use_that_is_gone_puts_its_event_and_record_back),
        BOTH(a_free_asks_each_stream_that_it_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
