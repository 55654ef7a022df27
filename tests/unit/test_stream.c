#include "stream/stream.h"

#include "base/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "host_support.h"
#include "pool_support.h"
#include "thread_support.h"

#include <pthread.h>

/* A table of streams of the test's own, beside the device's. */
static wr_stream_table table;

static int open_table(void **state)
{
    wr_device *device = NULL;
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    assert_int_equal(wr_streams_init(&table, device->backend, 0, &device->caps), WEIR_OK);
    return 0;
}

static int close_table(void **state)
{
    assert_int_equal(wr_streams_release(&table), WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_destroy), calls_of(WEIR_BACKEND_stream_create));
    return close_host(state);
}

static wr_stream *create(void)
{
    wr_stream *stream = NULL;
    assert_int_equal(wr_stream_create(&table, 0, &stream), WEIR_OK);
    return stream;
}

static void the_default_stream_is_the_null_stream(void **state)
{
    (void)state;
    wr_stream *stream = wr_stream_default_of(&table);
    assert_null(stream->native);
    assert_int_equal(stream->owner, WR_STREAM_DEFAULT);
    assert_ptr_equal(wr_stream_find(&table, stream->id), stream);
}

static void a_stream_is_found_by_its_id(void **state)
{
    (void)state;
    wr_stream *one = create(), *two = create();
    assert_ptr_equal(wr_stream_find(&table, one->id), one);
    assert_ptr_equal(wr_stream_find(&table, two->id), two);
    assert_int_equal(wr_stream_id_device(one->id), 0);
}

static weir_status retire(wr_stream *stream)
{
    wr_stream_withdraw(&table, stream);
    return wr_stream_retire(&table, stream);
}

static void made_up_ids_find_nothing(void **state)
{
    (void)state;
    wr_stream *stream = create();
    assert_null(wr_stream_find(&table, 0));
    assert_null(wr_stream_find(&table, 1));
    assert_null(wr_stream_find(&table, stream->id + 1));
    assert_null(wr_stream_find(&table, UINT64_MAX));
}

static void ids_are_never_used_again_but_records_are(void **state)
{
    (void)state;
    wr_stream *stream = create();
    for (int i = 0; i < 1000; i++) {
        const uint64_t id = stream->id;
        assert_int_equal(retire(stream), WEIR_OK);
        assert_null(wr_stream_find(&table, id));
        wr_stream *next = create();
        assert_ptr_equal(next, stream);
        assert_int_not_equal(next->id, id);
    }
    assert_int_equal(table.used, 2);
}

static void retiring_needs_no_memory(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    wr_stream *streams[COUNT];
    for (int i = 0; i < COUNT; i++) streams[i] = create();
    wr_meta_fail_nth(1);
    for (int i = 0; i < COUNT; i++) assert_int_equal(retire(streams[i]), WEIR_OK);
    wr_meta_fail_nth(0);
    for (int i = 0; i < COUNT; i++) assert_true(create()->index <= COUNT);
}

static void a_failed_creation_leaves_nothing(void **state)
{
    (void)state;
    wr_stream *stream = NULL;
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_create, 1, WEIR_ERR_DRIVER));
    assert_int_equal(wr_stream_create(&table, 0, &stream), WEIR_ERR_DRIVER);
    assert_null(stream);
    wr_meta_fail_nth(2); /* the first record is the native stream's */
    assert_int_equal(wr_stream_create(&table, 0, &stream), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_null(stream);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_destroy), 1);
    assert_int_equal(table.used, 1);
    assert_int_equal(wr_stream_create(&table, 0, &stream), WEIR_OK);
    assert_int_equal(stream->index, 1);
    assert_int_equal(wr_streams_release(&table), WEIR_OK);
}

static weir_status create_of_any_priority(int device, int priority, void **out)
{
    (void)priority;
    return wr_backend_host.stream_create(device, 0, out);
}

/* As many pools as there is room for: those of the greatest priorities are one. */
static void a_device_may_have_any_number_of_priorities(void **state)
{
    (void)state;
    wr_stream *last = NULL, *other = NULL;
    weir_backend driver = *table.backend;
    driver.stream_create = create_of_any_priority;
    table.backend = &driver;
    table.priority_greatest = -100;
    assert_ok(wr_stream_from_pool(&table, -100, &last));
    assert_int_equal(last->priority, -100);
    assert_ok(wr_stream_from_pool(&table, -50, &other));
    assert_int_equal(table.pool[WR_STREAM_PRIORITIES - 1].count, 2);
    table.backend = &wr_backend_host;
}

static void the_default_stream_has_a_priority_of_the_device(void **state)
{
    (void)state;
    wr_stream_table other;
    const weir_device_caps caps = { .priority_least = -1, .priority_greatest = -3 };
    assert_ok(wr_streams_init(&other, table.backend, 0, &caps));
    assert_int_equal(wr_stream_default_of(&other)->priority, -1);
    assert_ok(wr_streams_release(&other));
}

static void a_foreign_stream_keeps_its_id_until_it_is_retired(void **state)
{
    (void)state;
    void *native = NULL;
    uint64_t first = 0, again = 0;
    assert_int_equal(wr_driver(table.backend, stream_create, 0, 0, &native), WEIR_OK);
    assert_int_equal(wr_stream_adopt(&table, native, &first), WEIR_OK);
    assert_int_equal(wr_stream_adopt(&table, native, &again), WEIR_OK);
    assert_int_equal(first, again);
    assert_int_equal(retire(wr_stream_find(&table, first)), WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_destroy), 0);
    assert_int_equal(wr_stream_adopt(&table, native, &again), WEIR_OK);
    assert_int_not_equal(again, first);
    assert_int_equal(retire(wr_stream_find(&table, again)), WEIR_OK);
    assert_int_equal(wr_driver(table.backend, stream_destroy, 0, native), WEIR_OK);
}

static weir_status accept(int device, void *native)
{
    (void)device, (void)native;
    return WEIR_OK;
}

/* Lets any pointer be a stream. */
static weir_backend credulous;

static void believe(weir_status (*check)(int device, void *native))
{
    credulous = *table.backend;
    credulous.stream_check = check;
    table.backend = &credulous;
}

/* The record of the ended one stays, ahead of the new one's. */
static void a_foreign_stream_where_another_one_was_has_one_id(void **state)
{
    (void)state;
    int natives[2];
    uint64_t one = 0, two = 0, first = 0, again = 0;
    believe(accept);
    assert_ok(wr_stream_adopt(&table, &natives[0], &one));
    assert_ok(wr_stream_adopt(&table, &natives[1], &two));
    const uint32_t index = wr_stream_find(&table, one)->index;
    assert_ok(retire(wr_stream_find(&table, one)));
    assert_ok(retire(wr_stream_find(&table, two)));
    assert_ok(wr_stream_adopt(&table, &natives[0], &first));
    assert_true(wr_stream_find(&table, first)->index > index);
    assert_ok(wr_stream_adopt(&table, &natives[0], &again));
    assert_int_equal(again, first);
    table.backend = &wr_backend_host;
}

static uint64_t adopted_meanwhile;

static weir_status adopt_meanwhile(int device, void *native)
{
    (void)device;
    credulous.stream_check = accept;
    assert_ok(wr_stream_adopt(&table, native, &adopted_meanwhile));
    return WEIR_OK;
}

static void a_foreign_stream_that_another_thread_adopts_meanwhile_has_one_id(void **state)
{
    (void)state;
    int native = 0;
    uint64_t id = 0;
    believe(adopt_meanwhile);
    assert_ok(wr_stream_adopt(&table, &native, &id));
    assert_int_equal(id, adopted_meanwhile);
    table.backend = &wr_backend_host;
}

static void a_foreign_stream_is_left_alone_by_release(void **state)
{
    (void)state;
    void *native = NULL;
    uint64_t foreign = 0;
    assert_int_equal(wr_driver(table.backend, stream_create, 0, 0, &native), WEIR_OK);
    assert_int_equal(wr_stream_adopt(&table, native, &foreign), WEIR_OK);
    assert_int_equal(wr_streams_release(&table), WEIR_OK);
    assert_int_equal(wr_driver(wr_runtime_global.backend, stream_query, 0, native), WEIR_OK);
    assert_int_equal(wr_driver(wr_runtime_global.backend, stream_destroy, 0, native), WEIR_OK);
}

static void a_full_table_refuses_another_stream(void **state)
{
    (void)state;
    wr_stream *stream = NULL;
    table.used = WR_STREAM_MAX;
    const weir_status status = wr_stream_create(&table, 0, &stream);
    table.used = 1;
    assert_status(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_null(stream);
}

/* ---- what the driver is asked ------------------------------------------------------------------------------------ */

static void a_stream_that_the_driver_cannot_tell_about_may_be_capturing(void **state)
{
    (void)state;
    const wr_stream *stream = create();
    assert_false(wr_stream_capturing(table.backend, 0, stream->native));
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_true(wr_stream_capturing(table.backend, 0, stream->native));
}

static void not_to_know_whether_a_stream_captures_is_a_failure_whatever_the_others_do(void **state)
{
    (void)state;
    bool captured = false;
    (void)create();
    assert_ok(weir_host_fail(WEIR_BACKEND_capture_status, 1, WEIR_ERR_DRIVER));
    assert_status(wr_streams_captured(&table, &captured), WEIR_ERR_DRIVER);
}

static void a_stream_has_work_whatever_the_driver_says_of_others(void **state)
{
    (void)state;
    const wr_stream *stream = create();
    assert_ok(weir_host_stream_hold(0, stream->native));
    assert_ok(wr_driver(table.backend, stream_callback, 0, stream->native, do_nothing, NULL));
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_query, 1, WEIR_ERR_DRIVER)); /* of the default stream */
    assert_true(wr_streams_any_busy(&table));
    assert_ok(weir_host_stream_release(0, stream->native));
}

static void streams_that_have_ended_are_not_asked_for_their_work(void **state)
{
    (void)state;
    assert_ok(retire(create()));
    const uint64_t before = calls_of(WEIR_BACKEND_stream_query);
    assert_false(wr_streams_any_busy(&table));
    assert_int_equal(calls_of(WEIR_BACKEND_stream_query), before + 1); /* the default stream */
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

/* A driver that makes a stream so slowly that others fill the pool meanwhile. */
static weir_status fill_the_pool_first(int device, int priority, void **native)
{
    const weir_backend *slow = table.backend;
    wr_stream *stream = NULL;
    table.backend = wr_runtime_global.backend;
    for (int i = 0; i < WR_STREAM_POOL_SIZE; i++) assert_ok(wr_stream_from_pool(&table, 0, &stream));
    table.backend = slow;
    return wr_driver(wr_runtime_global.backend, stream_create, device, priority, native);
}

static weir_status take_one_too_many(wr_stream **stream)
{
    weir_backend slow = *table.backend;
    const weir_backend *real = table.backend;
    slow.stream_create = fill_the_pool_first;
    table.backend = &slow;
    const weir_status status = wr_stream_from_pool(&table, 0, stream);
    table.backend = real;
    return status;
}

static void a_stream_made_while_others_fill_the_pool_is_ended(void **state)
{
    (void)state;
    wr_stream *stream = NULL;
    assert_ok(take_one_too_many(&stream));
    assert_in_range(stream->index, 1, WR_STREAM_POOL_SIZE);
    assert_int_equal(table.used, WR_STREAM_POOL_SIZE + 2); /* the default stream, and the one too many */
    assert_int_equal(table.records[WR_STREAM_POOL_SIZE + 1].id, 0);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_destroy), 1);
}

static void a_stream_too_many_that_cannot_be_ended_is_not_handed_out(void **state)
{
    (void)state;
    wr_stream *stream = NULL;
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_destroy, 1, WEIR_ERR_DRIVER));
    assert_status(take_one_too_many(&stream), WEIR_ERR_DRIVER);
    assert_null(stream);
    assert_int_equal(table.records[WR_STREAM_POOL_SIZE + 1].id, 0);
}

#define THREADS 8
#define TURNS 50

static void *take_many(void *argument)
{
    wr_stream **taken = argument;
    for (int i = 0; i < TURNS; i++)
        if (wr_stream_from_pool(&table, 0, &taken[i]) != WEIR_OK) taken[i] = NULL;
    return NULL;
}

static void threads_that_fill_the_pool_at_once_get_32_streams(void **state)
{
    (void)state;
    static wr_stream *taken[THREADS][TURNS];
    static bool seen[WR_STREAM_MAX];
    pthread_t threads[THREADS];
    int distinct = 0;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_many, taken[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS * TURNS; i++) {
        wr_stream *stream = taken[i / TURNS][i % TURNS];
        assert_non_null(stream);
        assert_ptr_equal(wr_stream_find(&table, stream->id), stream);
        if (!seen[stream->index]) distinct++;
        seen[stream->index] = true;
    }
    assert_int_equal(distinct, WR_STREAM_POOL_SIZE);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_create) - calls_of(WEIR_BACKEND_stream_destroy), WR_STREAM_POOL_SIZE);
}

/* A slow driver that notices when the stream it is asked about is destroyed meanwhile. */
static atomic_bool asked, answered, destroyed_too_early;
static void *slow_native;

static weir_status slow_capture_status(int device, void *native, weir_capture_state *state, uint64_t *id)
{
    (void)device, (void)id;
    if (native == slow_native) {
        struct timespec time = { 0, 50000000 };
        atomic_store(&asked, true);
        nanosleep(&time, NULL);
        atomic_store(&answered, true);
    }
    *state = WEIR_CAPTURE_NONE;
    return WEIR_OK;
}

static weir_status watched_stream_destroy(int device, void *native)
{
    if (native == slow_native && atomic_load(&asked) && !atomic_load(&answered))
        atomic_store(&destroyed_too_early, true);
    return wr_driver(wr_runtime_global.backend, stream_destroy, device, native);
}

static void *ask_about_all(void *unused)
{
    (void)unused;
    bool captured = true;
    return wr_streams_captured(&table, &captured) != WEIR_OK || captured ? &table : NULL;
}

static void no_stream_is_destroyed_while_the_driver_is_asked_about_it(void **state)
{
    (void)state;
    weir_backend slow = *table.backend;
    const weir_backend *real = table.backend;
    pthread_t thread;
    void *capturing = NULL;
    slow.capture_status = slow_capture_status;
    slow.stream_destroy = watched_stream_destroy;
    wr_stream *stream = create();
    slow_native = stream->native;
    table.backend = &slow;
    assert_int_equal(pthread_create(&thread, NULL, ask_about_all, NULL), 0);
    while (!atomic_load(&asked)) continue;
    assert_int_equal(retire(stream), WEIR_OK);
    pthread_join(thread, &capturing);
    table.backend = real;
    assert_null(capturing);
    assert_false(atomic_load(&destroyed_too_early));
}

static atomic_bool withdrawn;

static void *withdraw(void *stream)
{
    wr_stream_withdraw(&table, stream);
    atomic_store(&withdrawn, true);
    return NULL;
}

static void a_held_stream_is_withdrawn_once_it_is_let_go(void **state)
{
    (void)state;
    pthread_t thread;
    wr_stream *stream = create();
    const uint64_t id = stream->id;
    atomic_store(&withdrawn, false);
    assert_ptr_equal(wr_stream_hold(&table, id), stream);
    assert_int_equal(pthread_create(&thread, NULL, withdraw, stream), 0);
    while (wr_stream_find(&table, id)) sched_yield();
    assert_null(wr_stream_hold(&table, id)); /* a thread that comes now is too late */
    assert_false(atomic_load(&withdrawn));
    wr_stream_let_go(stream);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&withdrawn));
    assert_int_equal(wr_stream_retire(&table, stream), WEIR_OK);
}

static void a_stream_is_claimed_once(void **state)
{
    (void)state;
    wr_stream *stream = create();
    const uint64_t id = stream->id;
    assert_true(wr_stream_claim(&table, stream, id));
    assert_false(wr_stream_claim(&table, stream, id));
    wr_stream_unclaim(&table, stream);
    assert_true(wr_stream_claim(&table, stream, id));
    assert_int_equal(retire(stream), WEIR_OK);
    assert_ptr_equal(create(), stream);
    assert_false(wr_stream_claim(&table, stream, id));
    assert_true(wr_stream_claim(&table, stream, stream->id));
}

static int open_segments(void **state)
{
    (void)state;
    open_host((weir_settings){ .policy = "segments", .host_memory = 64 * MIB });
    return 0;
}

/* A stream that leaves a free block to the default one. It got work after it was waited for, as from a free that makes
 * it wait for another. */
static weir_status leave(weir_stream stream, void *block, void (*work)(void *), void *argument)
{
    wr_device *device = NULL;
    assert_ok(wr_runtime_device(0, &device));
    wr_stream *record = wr_stream_find(&device->streams, stream.id);
    const uint64_t waited = record->queued;
    assert_ok(weir_free(block));
    assert_ok(weir_stream_callback(stream, work, argument));
    wr_stream_note_queued(record);
    return wr_cache_forget_stream(&device->cache, record, wr_stream_default_of(&device->streams), waited);
}

static void memory_of_an_ended_stream_is_used_after_work_that_came_meanwhile(void **state)
{
    (void)state;
    static atomic_bool ends; /* which the work reads, even after this function */
    const weir_stream stream = new_stream(0), other = new_stream(0);
    const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, ""));
    void *block = alloc_from(pool, MIB, stream);
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_wait);
    assert_ok(leave(stream, block, last_until, &ends));
    const uint64_t waited = calls_of(WEIR_BACKEND_stream_wait);
    void *others = alloc_from(pool, MIB, other), *heirs = alloc_from(pool, MIB, default_stream(0));
    atomic_store(&ends, true);
    assert_int_equal(waited, waits + 1); /* the default stream for it */
    assert_ptr_not_equal(others, block);
    assert_ptr_equal(heirs, block);
    assert_ok(weir_stream_destroy(stream));
    assert_ok(weir_stream_destroy(other));
}

static void such_work_is_waited_for_where_no_stream_can(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 20 };
    const weir_stream stream = new_stream(0);
    void *block = alloc_on(MIB, stream);
    const uint64_t waits = calls_of(WEIR_BACKEND_stream_wait);
    assert_ok(weir_host_fail(WEIR_BACKEND_event_record, 1, WEIR_ERR_DRIVER));
    assert_ok(leave(stream, block, do_slow_work, &work));
    assert_true(atomic_load(&work.done));
    assert_int_equal(calls_of(WEIR_BACKEND_stream_wait), waits);
    assert_ok(weir_stream_destroy(stream));
}

#define TABLE_TEST(test) cmocka_unit_test_setup_teardown(test, open_table, close_table)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TABLE_TEST(the_default_stream_is_the_null_stream),
        TABLE_TEST(a_stream_is_found_by_its_id),
        TABLE_TEST(made_up_ids_find_nothing),
        TABLE_TEST(ids_are_never_used_again_but_records_are),
        TABLE_TEST(retiring_needs_no_memory),
        cmocka_unit_test_setup_teardown(a_failed_creation_leaves_nothing, open_table, close_host),
        TABLE_TEST(a_device_may_have_any_number_of_priorities),
        TABLE_TEST(the_default_stream_has_a_priority_of_the_device),
        TABLE_TEST(a_foreign_stream_keeps_its_id_until_it_is_retired),
        TABLE_TEST(a_foreign_stream_where_another_one_was_has_one_id),
        TABLE_TEST(a_foreign_stream_that_another_thread_adopts_meanwhile_has_one_id),
        cmocka_unit_test_setup_teardown(a_foreign_stream_is_left_alone_by_release, open_table, close_host),
        TABLE_TEST(no_stream_is_destroyed_while_the_driver_is_asked_about_it),
        TABLE_TEST(a_held_stream_is_withdrawn_once_it_is_let_go),
        TABLE_TEST(a_stream_is_claimed_once),
        TABLE_TEST(a_full_table_refuses_another_stream),
        TABLE_TEST(a_stream_that_the_driver_cannot_tell_about_may_be_capturing),
        TABLE_TEST(not_to_know_whether_a_stream_captures_is_a_failure_whatever_the_others_do),
        TABLE_TEST(a_stream_has_work_whatever_the_driver_says_of_others),
        TABLE_TEST(streams_that_have_ended_are_not_asked_for_their_work),
        TABLE_TEST(a_stream_made_while_others_fill_the_pool_is_ended),
        TABLE_TEST(a_stream_too_many_that_cannot_be_ended_is_not_handed_out),
        cmocka_unit_test_setup_teardown(memory_of_an_ended_stream_is_used_after_work_that_came_meanwhile, open_segments,
                                        close_host),
        cmocka_unit_test_setup_teardown(such_work_is_waited_for_where_no_stream_can, open_segments, close_host),
        TABLE_TEST(threads_that_fill_the_pool_at_once_get_32_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
