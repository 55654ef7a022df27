#include "thread/thread.h"

#include "base/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "thread_support.h"

#include <pthread.h>
#include <semaphore.h>

static weir_stream current_stream(int device)
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

static void a_thread_starts_on_device_0_and_its_default_stream(void **state)
{
    (void)state;
    assert_int_equal(current_device(), 0);
    assert_int_equal(current_stream(WEIR_DEVICE_CURRENT).id, default_stream(0).id);
    assert_int_equal(current_stream(1).id, default_stream(1).id);
}

static void the_current_stream_is_kept_per_device(void **state)
{
    (void)state;
    weir_stream here = new_stream(0), there = new_stream(1);
    assert_ok(weir_stream_set_current(here));
    assert_ok(weir_stream_set_current(there));
    assert_int_equal(current_device(), 0); /* setting a stream does not change the device */
    assert_int_equal(current_stream(0).id, here.id);
    assert_int_equal(current_stream(1).id, there.id);
    assert_ok(weir_device_set_current(1));
    assert_int_equal(current_stream(WEIR_DEVICE_CURRENT).id, there.id);
}

typedef struct seen {
    int device;
    weir_stream stream;
    weir_status status;
} seen;

static void *look(void *argument)
{
    seen *s = argument;
    s->status = weir_device_get_current(&s->device);
    if (s->status == WEIR_OK) s->status = weir_stream_get_current(0, &s->stream);
    return NULL;
}

static void new_threads_inherit_nothing(void **state)
{
    (void)state;
    seen s = { .device = -1 };
    assert_ok(weir_stream_set_current(new_stream(0)));
    assert_ok(weir_device_set_current(1));
    in_a_thread(look, &s);
    assert_int_equal(s.status, WEIR_OK);
    assert_int_equal(s.device, 0);
    assert_int_equal(s.stream.id, default_stream(0).id);
}

static void *change_everything(void *argument)
{
    weir_stream *stream = argument;
    if (weir_stream_create(0, 0, stream) != WEIR_OK || weir_stream_set_current(*stream) != WEIR_OK ||
        weir_device_set_current(1) != WEIR_OK)
        stream->id = 0;
    return NULL;
}

static void a_threads_choices_do_not_affect_other_threads(void **state)
{
    (void)state;
    weir_stream theirs = { 0 };
    in_a_thread(change_everything, &theirs);
    assert_int_not_equal(theirs.id, 0);
    assert_int_equal(current_device(), 0);
    assert_int_equal(current_stream(0).id, default_stream(0).id);
}

static void a_threads_context_ends_with_the_thread(void **state)
{
    (void)state;
    weir_stream stream = { 0 };
    in_a_thread(change_everything, &stream); /* opens the devices, and the driver's stream stays open */
    uint64_t before = wr_meta_live();
    for (int i = 0; i < 100; i++) {
        in_a_thread(change_everything, &stream);
        assert_ok(weir_stream_destroy(stream));
    }
    assert_int_equal(wr_meta_live(), before);
}

static pthread_key_t programs_key;

static void *choose_and_leave_a_destructor(void *seen)
{
    weir_stream stream = { 0 };
    change_everything(&stream);
    if (stream.id != 0) (void)pthread_setspecific(programs_key, seen);
    return NULL;
}

static void look_at_the_end(void *argument)
{
    (void)look(argument);
}

static void a_destructor_that_runs_after_the_threads_context_ended_finds_none(void **state)
{
    (void)state;
    seen s = { .device = -1, .status = WEIR_ERR_INTERNAL };
    assert_ok(weir_device_set_current(0)); /* so that weir's key comes before the program's */
    assert_int_equal(pthread_key_create(&programs_key, look_at_the_end), 0);
    in_a_thread(choose_and_leave_a_destructor, &s);
    assert_int_equal(pthread_key_delete(programs_key), 0);
    assert_int_equal(s.status, WEIR_OK);
    assert_int_equal(s.device, 0);
    assert_int_equal(s.stream.id, default_stream(0).id);
}

static void reading_makes_no_context(void **state)
{
    (void)state;
    seen s = { 0 };
    assert_ok(weir_free(alloc(512)));
    uint64_t before = wr_meta_live();
    in_a_thread(look, &s);
    assert_int_equal(wr_meta_live(), before);
}

static void the_current_stream_cannot_be_destroyed(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0);
    assert_ok(weir_stream_set_current(stream));
    assert_status(weir_stream_destroy(stream), WEIR_ERR_BUSY);
    assert_ok(weir_stream_set_current(default_stream(0)));
    assert_ok(weir_stream_destroy(stream));
    assert_int_equal(current_stream(0).id, default_stream(0).id);
    assert_status(weir_stream_set_current(stream), WEIR_ERR_INVALID_STREAM);
}

static void *destroy(void *argument)
{
    weir_stream *stream = argument;
    if (weir_stream_destroy(*stream) == WEIR_OK) stream->id = 0;
    return NULL;
}

static void a_stream_destroyed_elsewhere_is_current_no_more(void **state)
{
    (void)state;
    weir_stream stream = new_stream(0), copy = stream;
    assert_ok(weir_stream_set_current(stream));
    in_a_thread(destroy, &copy);
    assert_int_equal(copy.id, 0);
    assert_int_equal(current_stream(0).id, default_stream(0).id);
    assert_int_equal(info_of(alloc(512)).stream.id, default_stream(0).id);
}

static void a_threads_choices_are_void_after_close(void **state)
{
    assert_ok(weir_stream_set_current(new_stream(0)));
    assert_ok(weir_device_set_current(1));
    assert_ok(weir_mempool_enter((weir_mempool){ 0, 0 }));
    assert_ok(weir_close());
    open_two_small_hosts(state);
    assert_int_equal(current_device(), 0);
    assert_int_equal(current_stream(0).id, default_stream(0).id);
    assert_status(weir_mempool_leave((weir_mempool){ 0, 0 }), WEIR_ERR_POOL_MISMATCH);
}

typedef struct late_thread {
    sem_t ready, closed;
    weir_status after_close;
} late_thread;

static void *outlive(void *argument)
{
    late_thread *late = argument;
    weir_stream stream = { 0 };
    change_everything(&stream);
    sem_post(&late->ready);
    wait_for(&late->closed);
    void *block = NULL;
    late->after_close = weir_alloc(512, &block);
    return NULL;
}

static void a_thread_may_outlive_the_library(void **state)
{
    (void)state;
    late_thread late = { .after_close = WEIR_OK };
    pthread_t thread;
    sem_init(&late.ready, 0, 0);
    sem_init(&late.closed, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, outlive, &late), 0);
    wait_for(&late.ready);
    assert_ok(weir_close());
    uint64_t before = wr_meta_live();
    sem_post(&late.closed);
    pthread_join(thread, NULL);
    assert_int_equal(late.after_close, WEIR_ERR_CLOSED);
    assert_int_equal(wr_meta_live(), before - 1); /* its context */
    sem_destroy(&late.ready);
    sem_destroy(&late.closed);
}

static void *fail_to_set(void *argument)
{
    seen *s = argument;
    wr_meta_fail_nth(1);
    s->status = weir_stream_set_current(s->stream);
    wr_meta_fail_nth(0);
    if (weir_stream_get_current(0, &s->stream) != WEIR_OK) s->stream.id = 0;
    return NULL;
}

static void a_thread_without_memory_for_its_context_gets_an_error(void **state)
{
    (void)state;
    seen s = { .stream = new_stream(0) };
    in_a_thread(fail_to_set, &s);
    assert_int_equal(s.status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(s.stream.id, default_stream(0).id);
}

#define DEVICE_TEST(test) cmocka_unit_test_setup_teardown(test, open_two_small_hosts, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(a_thread_without_memory_for_its_context_gets_an_error),
        DEVICE_TEST(a_thread_starts_on_device_0_and_its_default_stream),
        DEVICE_TEST(the_current_stream_is_kept_per_device),
        DEVICE_TEST(new_threads_inherit_nothing),
        DEVICE_TEST(a_threads_choices_do_not_affect_other_threads),
        DEVICE_TEST(a_threads_context_ends_with_the_thread),
        DEVICE_TEST(a_destructor_that_runs_after_the_threads_context_ended_finds_none),
        DEVICE_TEST(reading_makes_no_context),
        DEVICE_TEST(the_current_stream_cannot_be_destroyed),
        DEVICE_TEST(a_stream_destroyed_elsewhere_is_current_no_more),
        DEVICE_TEST(a_threads_choices_are_void_after_close),
        cmocka_unit_test_setup(a_thread_may_outlive_the_library, open_two_small_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
