/*
 * Devices and streams as users see them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/runtime.h"
#include "host_support.h"

#include <pthread.h>
#include <string.h>

static weir_stream current(int device)
{
    weir_stream stream = { 0 };
    assert_ok(weir_stream_get_current(device, &stream));
    return stream;
}

static int current_device(void)
{
    int device = -1;
    assert_ok(weir_device_get_current(&device));
    return device;
}

static weir_stream pooled(int device, int priority)
{
    weir_stream stream = { 0 };
    assert_ok(weir_stream_from_pool(device, priority, &stream));
    return stream;
}

static int priority_of(weir_stream stream)
{
    int priority = 99;
    assert_ok(weir_stream_priority(stream, &priority));
    return priority;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void devices_are_counted_and_described(void **state)
{
    (void)state;
    int count = 0;
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_count(&count));
    assert_int_equal(count, 2);
    assert_ok(weir_device_info_get(1, &info));
    assert_string_equal(info.name, "weir host device 1");
    assert_string_equal(info.backend, "host");
    assert_int_equal(info.total_memory, 64 * MIB);
    assert_int_equal(info.free_memory, 64 * MIB);
    assert_true(info.priority_greatest <= info.priority_least);
    assert_int_equal(info.size, sizeof info);
}

static void a_single_device_is_no_plural(void **state)
{
    (void)state;
    weir_device_info info = { .size = sizeof info };
    assert_status(weir_device_info_get(1, &info), WEIR_ERR_NO_DEVICE);
    assert_string_equal(weir_error_text(), "device 1: back end host has 1 device");
}

static void devices_that_are_not_there_are_refused(void **state)
{
    (void)state;
    weir_device_info info = { .size = sizeof info };
    weir_stream stream = { 7 };
    assert_status(weir_device_info_get(2, &info), WEIR_ERR_NO_DEVICE);
    assert_non_null(strstr(weir_error_text(), "2 devices"));
    assert_status(weir_device_set_current(64), WEIR_ERR_NO_DEVICE);
    assert_status(weir_device_set_current(INT32_MIN), WEIR_ERR_NO_DEVICE);
    assert_status(weir_stream_default(-2, &stream), WEIR_ERR_NO_DEVICE);
    assert_status(weir_stream_create(2, 0, &stream), WEIR_ERR_NO_DEVICE);
    assert_int_equal(stream.id, 7);
    assert_int_equal(current_device(), 0);
}

static void a_device_is_opened_when_first_used(void **state)
{
    (void)state;
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 0);
    default_stream(1);
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 1);
    assert_ok(weir_free(alloc_on(512, default_stream(1))));
    assert_int_equal(calls_of(WEIR_BACKEND_device_open), 1);
}

static void synchronising_a_device_waits_for_its_streams(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 20 };
    start_slow_work(new_stream(1), &work);
    assert_ok(weir_device_synchronize(1));
    assert_true(atomic_load(&work.done));
}

static void synchronising_a_device_waits_for_streams_that_weir_does_not_know(void **state)
{
    (void)state;
    const weir_backend *driver = wr_runtime_global.backend;
    slow_work work = { .milliseconds = 20 };
    void *native = NULL;
    default_stream(1);
    assert_ok(driver->stream_create(1, 0, &native));
    assert_ok(driver->stream_callback(1, native, do_slow_work, &work));
    assert_ok(weir_device_synchronize(1));
    assert_true(atomic_load(&work.done));
    assert_ok(driver->stream_destroy(1, native));
}

static void peers_may_be_enabled_repeatedly(void **state)
{
    (void)state;
    assert_ok(weir_device_enable_peer(0, 1));
    assert_ok(weir_device_enable_peer(0, 1));
    assert_status(weir_device_enable_peer(0, 2), WEIR_ERR_NO_DEVICE);
}

static void a_device_needs_nothing_to_be_its_own_peer(void **state)
{
    (void)state;
    assert_ok(weir_device_enable_peer(1, 1));
    assert_int_equal(calls_of(WEIR_BACKEND_peer_enable), 0);
}

/* ---- default and pooled streams ---------------------------------------------------------------------------------- */

static void the_default_stream_is_what_null_means(void **state)
{
    (void)state;
    weir_stream adopted = { 0 };
    assert_null(native_of(default_stream(0)));
    assert_ok(weir_stream_from_native(0, NULL, &adopted));
    assert_int_equal(adopted.id, default_stream(0).id);
    assert_int_not_equal(default_stream(0).id, default_stream(1).id);
    assert_int_equal(device_of(default_stream(1)), 1);
}

static void pooled_streams_are_created_one_by_one_and_then_go_round(void **state)
{
    (void)state;
    weir_stream streams[32];
    for (uint64_t i = 0; i < 32; i++) {
        assert_int_equal(calls_of(WEIR_BACKEND_stream_create), i);
        streams[i] = pooled(0, 0);
        for (uint64_t j = 0; j < i; j++) assert_int_not_equal(streams[i].id, streams[j].id);
    }
    for (int i = 0; i < 70; i++) assert_int_equal(pooled(0, 0).id, streams[i % 32].id);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_create), 32);
}

static void pools_are_per_device_and_priority(void **state)
{
    (void)state;
    weir_stream normal = pooled(0, 0), urgent = pooled(0, -1), far = pooled(1, 0);
    assert_int_equal(priority_of(normal), 0);
    assert_int_equal(priority_of(urgent), -1);
    assert_int_equal(device_of(far), 1);
    for (int i = 1; i < 32; i++) pooled(0, 0);
    assert_int_equal(pooled(0, 0).id, normal.id);
    assert_int_not_equal(pooled(0, -1).id, urgent.id);
}

static void priorities_are_clamped(void **state)
{
    (void)state;
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_info_get(0, &info));
    assert_int_equal(priority_of(pooled(0, 1000)), info.priority_least);
    assert_int_equal(priority_of(pooled(0, -1000)), info.priority_greatest);
    weir_stream stream = { 0 };
    assert_ok(weir_stream_create(0, INT32_MIN, &stream));
    assert_int_equal(priority_of(stream), info.priority_greatest);
    assert_ok(weir_stream_create(0, INT32_MAX, &stream));
    assert_int_equal(priority_of(stream), info.priority_least);
    assert_int_equal(priority_of(default_stream(0)), 0);
}

static void streams_of_weirs_own_cannot_be_destroyed(void **state)
{
    (void)state;
    assert_status(weir_stream_destroy(default_stream(0)), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_destroy(pooled(0, 0)), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_destroy(WEIR_STREAM_CURRENT), WEIR_ERR_INVALID_ARGUMENT);
}

/* ---- streams of the user's own ----------------------------------------------------------------------------------- */

static void an_exclusive_stream_is_handed_to_nobody_else(void **state)
{
    (void)state;
    weir_stream own = new_stream(0);
    for (int i = 0; i < 70; i++) {
        assert_int_not_equal(pooled(0, 0).id, own.id);
        assert_ptr_not_equal(native_of(pooled(0, 0)), native_of(own));
    }
}

static void a_foreign_stream_has_one_name(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), first = { 0 };
    assert_ok(weir_stream_from_native(0, native_of(own), &first));
    assert_int_equal(first.id, own.id); /* weir knows it already */
    void *native = native_of(own);
    assert_ok(weir_stream_from_native(0, native, &first));
    assert_ptr_equal(native_of(first), native);
}

static void a_foreign_stream_of_another_device_is_refused(void **state)
{
    (void)state;
    weir_stream own = new_stream(0), stream = { 7 };
    assert_status(weir_stream_from_native(1, native_of(own), &stream), WEIR_ERR_INVALID_STREAM);
    assert_non_null(strstr(weir_error_text(), "belongs to device 0, not to device 1"));
    assert_int_equal(stream.id, 7);
    assert_ok(weir_stream_destroy(own));
    assert_ok(weir_device_synchronize(1)); /* asks every stream that has a name there */
}

static void the_legacy_streams_value_names_the_default_stream(void **state)
{
    (void)state;
    weir_stream stream = { 0 };
    assert_ok(weir_stream_from_native(1, (void *)0x1, &stream));
    assert_int_equal(stream.id, default_stream(1).id);
}

static void the_per_thread_stream_is_refused(void **state)
{
    (void)state;
    weir_stream stream = { 7 };
    assert_status(weir_stream_from_native(0, (void *)0x2, &stream), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "cudaStreamPerThread"));
    assert_non_null(strstr(weir_error_text(), "weir_stream_from_pool"));
    assert_int_equal(stream.id, 7);
}

static void destroying_waits_for_the_streams_work(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 20 };
    weir_stream stream = new_stream(0);
    start_slow_work(stream, &work);
    assert_ok(weir_stream_destroy(stream));
    assert_true(atomic_load(&work.done));
    assert_int_equal(calls_of(WEIR_BACKEND_stream_destroy), 1);
}

static void *destroy_it(void *stream)
{
    return (void *)(intptr_t)weir_stream_destroy(*(weir_stream *)stream);
}

static void of_two_threads_that_destroy_a_stream_one_is_refused(void **state)
{
    (void)state;
    slow_work work = { .milliseconds = 50 };
    weir_stream stream = new_stream(0);
    pthread_t threads[2];
    void *results[2];
    start_slow_work(stream, &work); /* both threads then wait for it */
    assert_ok(weir_host_latency(WEIR_BACKEND_stream_destroy, 50000000));
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, destroy_it, &stream), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &results[i]);
    assert_int_equal((intptr_t)results[0] + (intptr_t)results[1], WEIR_ERR_INVALID_STREAM);
    assert_int_equal(calls_of(WEIR_BACKEND_stream_destroy), 1);
    assert_ok(weir_host_latency(WEIR_BACKEND_stream_destroy, 0));
    weir_stream next = new_stream(0);
    new_stream(0); /* with a record of its own */
    assert_ok(weir_stream_query(next));
}

static void a_stream_whose_end_failed_can_be_ended_again(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    assert_ok(weir_host_fail(WEIR_BACKEND_stream_synchronize, 1, WEIR_ERR_DRIVER));
    assert_status(weir_stream_destroy(stream), WEIR_ERR_DRIVER);
    assert_ok(weir_stream_query(stream));
    assert_ok(weir_stream_destroy(stream));
}

static void a_destroyed_stream_is_refused_everywhere(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    weir_stream_guard guard = { .thread = 0 };
    void *pointer = NULL;
    uint64_t count = 0;
    int number = 0;
    assert_ok(weir_stream_destroy(stream));
    new_stream(0); /* takes the record over */
    assert_status(weir_stream_destroy(stream), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_set_current(stream), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_enter(stream, &guard), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_native(stream, &pointer), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_device(stream, &number), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_priority(stream, &number), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_queued(stream, &count), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_query(stream), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_synchronize(stream), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_wait(stream, default_stream(0)), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_wait(default_stream(0), stream), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_callback(stream, do_slow_work, &guard), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_copy(&number, &number, sizeof number, stream), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_fill(&number, 0, sizeof number, stream), WEIR_ERR_INVALID_STREAM);
    assert_int_equal(guard.thread, 0);
}

static void streams_from_before_a_close_are_refused(void **state)
{
    weir_stream own = new_stream(0), standard = default_stream(0), shared = pooled(0, 0);
    assert_ok(weir_close());
    open_two_small_hosts(state);
    assert_status(weir_stream_set_current(own), WEIR_ERR_INVALID_STREAM); /* the device is not even open */
    new_stream(0);
    pooled(0, 0);
    assert_status(weir_stream_set_current(own), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_set_current(standard), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_query(shared), WEIR_ERR_INVALID_STREAM);
}

static void numbers_that_are_no_stream_are_refused(void **state)
{
    (void)state;
    new_stream(0);
    for (uint64_t bit = 0; bit < 64; bit++)
        assert_status(weir_stream_query((weir_stream){ (uint64_t)1 << bit }), WEIR_ERR_INVALID_STREAM);
    assert_status(weir_stream_query((weir_stream){ UINT64_MAX }), WEIR_ERR_INVALID_STREAM);
}

static void thousands_of_streams_may_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) assert_ok(weir_stream_destroy(new_stream(0)));
    weir_stream streams[300];
    for (int i = 0; i < 300; i++) streams[i] = new_stream(0);
    for (int i = 0; i < 300; i++) assert_ok(weir_stream_destroy(streams[i]));
}

static void missing_out_parameters_are_refused(void **state)
{
    (void)state;
    assert_status(weir_device_count(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_device_get_current(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_device_info_get(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_device_info_get(0, &(weir_device_info){ .size = 8 }), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_default(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_from_pool(0, 0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_create(0, 0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_from_native(0, NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_get_current(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_enter(default_stream(0), NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_leave(NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_native(default_stream(0), NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_device(default_stream(0), NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_priority(default_stream(0), NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_queued(default_stream(0), NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_stream_callback(default_stream(0), NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_copy(NULL, &state, 1, default_stream(0)), WEIR_ERR_INVALID_ARGUMENT);
    assert_status(weir_fill(NULL, 0, 1, default_stream(0)), WEIR_ERR_INVALID_ARGUMENT);
}

/* ---- current streams and guards ---------------------------------------------------------------------------------- */

static void entering_makes_stream_and_device_current_and_leaving_restores(void **state)
{
    (void)state;
    weir_stream before = new_stream(1), entered = new_stream(1);
    weir_stream_guard guard;
    assert_ok(weir_stream_set_current(before));
    assert_ok(weir_stream_enter(entered, &guard));
    assert_int_equal(current_device(), 1);
    assert_int_equal(current(WEIR_DEVICE_CURRENT).id, entered.id);
    assert_ok(weir_stream_leave(&guard));
    assert_int_equal(current_device(), 0);
    assert_int_equal(current(1).id, before.id);
}

static void guards_nest(void **state)
{
    (void)state;
    weir_stream streams[4];
    weir_stream_guard guards[4];
    for (int i = 0; i < 4; i++) {
        streams[i] = new_stream(i % 2);
        assert_ok(weir_stream_enter(streams[i], &guards[i]));
        assert_int_equal(current(WEIR_DEVICE_CURRENT).id, streams[i].id);
    }
    for (int i = 3; i > 0; i--) {
        assert_ok(weir_stream_leave(&guards[i]));
        assert_int_equal(current_device(), (i - 1) % 2);
        assert_int_equal(current(WEIR_DEVICE_CURRENT).id, streams[i - 1].id);
    }
    assert_ok(weir_stream_leave(&guards[0]));
    assert_int_equal(current(0).id, default_stream(0).id);
    assert_int_equal(current(1).id, default_stream(1).id);
}

static void a_guard_is_left_once(void **state)
{
    (void)state;
    weir_stream_guard guard = { .thread = 0 };
    assert_status(weir_stream_leave(&guard), WEIR_ERR_INVALID_ARGUMENT);
    assert_ok(weir_stream_enter(new_stream(0), &guard));
    assert_ok(weir_stream_leave(&guard));
    assert_status(weir_stream_leave(&guard), WEIR_ERR_INVALID_ARGUMENT);
}

static void *leave_elsewhere(void *argument)
{
    const bool refused = weir_stream_leave(argument) == WEIR_ERR_WRONG_THREAD;
    return (void *)(intptr_t)(refused && current_device() == 0 && current(1).id == default_stream(1).id);
}

static void a_guard_is_left_by_the_thread_that_entered(void **state)
{
    (void)state;
    pthread_t thread;
    void *untouched = NULL;
    weir_stream before = new_stream(1), entered = new_stream(1);
    weir_stream_guard guard;
    assert_ok(weir_device_set_current(1));
    assert_ok(weir_stream_set_current(before));
    assert_ok(weir_stream_enter(entered, &guard));
    assert_int_equal(pthread_create(&thread, NULL, leave_elsewhere, &guard), 0);
    assert_int_equal(pthread_join(thread, &untouched), 0);
    assert_non_null(untouched);
    assert_int_equal(current(1).id, entered.id);
    assert_ok(weir_stream_leave(&guard));
    assert_int_equal(current(1).id, before.id);
}

static void closing_ends_guards(void **state)
{
    weir_stream_guard guard;
    assert_ok(weir_device_set_current(1));
    assert_ok(weir_stream_enter(new_stream(0), &guard));
    assert_ok(weir_close());
    assert_status(weir_stream_leave(&guard), WEIR_ERR_CLOSED);
    open_two_small_hosts(state);
    assert_ok(weir_alloc(512, &(void *){ NULL }));
    assert_status(weir_stream_leave(&guard), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(current_device(), 0);
}

static void leaving_to_a_stream_that_was_destroyed_gives_the_default(void **state)
{
    (void)state;
    weir_stream previous = new_stream(1);
    weir_stream_guard guard;
    assert_ok(weir_stream_set_current(previous));
    assert_ok(weir_stream_enter(new_stream(1), &guard));
    assert_ok(weir_stream_destroy(previous));
    assert_ok(weir_stream_leave(&guard));
    assert_int_equal(current_device(), 0);
    assert_int_equal(current(1).id, default_stream(1).id);
}

static void a_current_stream_cannot_be_destroyed(void **state)
{
    (void)state;
    weir_stream stream = new_stream(1);
    assert_ok(weir_stream_set_current(stream));
    assert_status(weir_stream_destroy(stream), WEIR_ERR_BUSY); /* of a device that is not the current one, too */
    assert_ok(weir_stream_set_current(default_stream(1)));
    assert_ok(weir_stream_destroy(stream));
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static void a_stream_is_not_ready_while_it_has_work(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    unsigned char *block = alloc_on(512, stream);
    hold(stream);
    assert_ok(weir_fill(block, 7, 512, stream));
    assert_status(weir_stream_query(stream), WEIR_ERR_NOT_READY);
    let_run(stream);
    assert_ok(weir_stream_query(stream));
    assert_int_equal(block[511], 7);
}

static void waiting_orders_one_stream_behind_another(void **state)
{
    (void)state;
    weir_stream first = new_stream(0), second = new_stream(1);
    unsigned char *block = alloc_on(512, first);
    hold(first);
    assert_ok(weir_fill(block, 1, 512, first));
    assert_ok(weir_stream_wait(second, first));
    assert_ok(weir_fill(block, 2, 512, second));
    assert_status(weir_stream_query(second), WEIR_ERR_NOT_READY);
    let_run(first);
    assert_ok(weir_stream_synchronize(second));
    assert_int_equal(block[0], 2);
}

static void a_stream_follows_itself_without_waiting(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    assert_ok(weir_stream_wait(stream, stream));
    assert_int_equal(calls_of(WEIR_BACKEND_event_record), 0);
}

static void synchronising_uses_one_event_again_and_again(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    for (int i = 0; i < 10; i++) assert_ok(weir_stream_synchronize(stream));
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 1);
}

static void nothing_is_copied_or_filled_though_no_pointer_is_given(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    assert_ok(weir_copy(NULL, NULL, 0, stream));
    assert_ok(weir_fill(NULL, 1, 0, stream));
}

static void copies_and_fills_without_a_pointer_are_refused_by_its_name(void **state)
{
    (void)state;
    char bytes[8] = "";
    weir_stream stream = new_stream(0);
    assert_status(weir_copy(NULL, bytes, sizeof bytes, stream), WEIR_ERR_INVALID_ARGUMENT);
    assert_string_equal(weir_error_text(), "weir_copy: destination is NULL");
    assert_status(weir_copy(bytes, NULL, sizeof bytes, stream), WEIR_ERR_INVALID_ARGUMENT);
    assert_string_equal(weir_error_text(), "weir_copy: source is NULL");
    assert_status(weir_fill(NULL, 1, sizeof bytes, stream), WEIR_ERR_INVALID_ARGUMENT);
    assert_string_equal(weir_error_text(), "weir_fill: destination is NULL");
}

static void a_callback_without_a_function_is_refused(void **state)
{
    (void)state;
    assert_status(weir_stream_callback(new_stream(0), NULL, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_string_equal(weir_error_text(), "weir_stream_callback: function is NULL");
}

static void copies_and_fills_are_ordered_work(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    char from[] = "over the weir", to[sizeof from] = "";
    char *block = alloc_on(sizeof from, stream);
    assert_ok(weir_fill(block, 'x', sizeof from, stream));
    assert_ok(weir_copy(block, from, sizeof from, stream));
    assert_ok(weir_copy(to, block, sizeof from, stream));
    assert_ok(weir_stream_synchronize(stream));
    assert_string_equal(to, from);
}

#define DEVICE_TEST(test) cmocka_unit_test_setup_teardown(test, open_two_small_hosts, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_single_device_is_no_plural, open_small_host, close_host),
        DEVICE_TEST(devices_are_counted_and_described),
        DEVICE_TEST(devices_that_are_not_there_are_refused),
        DEVICE_TEST(a_device_is_opened_when_first_used),
        DEVICE_TEST(synchronising_a_device_waits_for_its_streams),
        DEVICE_TEST(synchronising_a_device_waits_for_streams_that_weir_does_not_know),
        DEVICE_TEST(peers_may_be_enabled_repeatedly),
        DEVICE_TEST(a_device_needs_nothing_to_be_its_own_peer),
        DEVICE_TEST(the_default_stream_is_what_null_means),
        DEVICE_TEST(pooled_streams_are_created_one_by_one_and_then_go_round),
        DEVICE_TEST(pools_are_per_device_and_priority),
        DEVICE_TEST(priorities_are_clamped),
        DEVICE_TEST(streams_of_weirs_own_cannot_be_destroyed),
        DEVICE_TEST(an_exclusive_stream_is_handed_to_nobody_else),
        DEVICE_TEST(a_foreign_stream_has_one_name),
        DEVICE_TEST(a_foreign_stream_of_another_device_is_refused),
        DEVICE_TEST(the_legacy_streams_value_names_the_default_stream),
        DEVICE_TEST(the_per_thread_stream_is_refused),
        DEVICE_TEST(destroying_waits_for_the_streams_work),
        DEVICE_TEST(of_two_threads_that_destroy_a_stream_one_is_refused),
        DEVICE_TEST(a_stream_whose_end_failed_can_be_ended_again),
        DEVICE_TEST(a_destroyed_stream_is_refused_everywhere),
        DEVICE_TEST(streams_from_before_a_close_are_refused),
        DEVICE_TEST(numbers_that_are_no_stream_are_refused),
        DEVICE_TEST(thousands_of_streams_may_come_and_go),
        DEVICE_TEST(missing_out_parameters_are_refused),
        DEVICE_TEST(entering_makes_stream_and_device_current_and_leaving_restores),
        DEVICE_TEST(guards_nest),
        DEVICE_TEST(a_guard_is_left_once),
        DEVICE_TEST(a_guard_is_left_by_the_thread_that_entered),
        DEVICE_TEST(closing_ends_guards),
        DEVICE_TEST(leaving_to_a_stream_that_was_destroyed_gives_the_default),
        DEVICE_TEST(a_current_stream_cannot_be_destroyed),
        DEVICE_TEST(a_stream_is_not_ready_while_it_has_work),
        DEVICE_TEST(waiting_orders_one_stream_behind_another),
        DEVICE_TEST(a_stream_follows_itself_without_waiting),
        DEVICE_TEST(synchronising_uses_one_event_again_and_again),
        DEVICE_TEST(nothing_is_copied_or_filled_though_no_pointer_is_given),
        DEVICE_TEST(copies_and_fills_without_a_pointer_are_refused_by_its_name),
        DEVICE_TEST(a_callback_without_a_function_is_refused),
        DEVICE_TEST(copies_and_fills_are_ordered_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
