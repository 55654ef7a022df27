#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "unit/cuda_support.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

static void device_is_described(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_close(0));
    ok(b->device_open(0, &caps));
    assert_string_equal(caps.name, "stand-in for a CUDA device (no GPU)");
    assert_int_equal(caps.total_memory, 512 * MIB);
    assert_int_equal(caps.granularity, 2 * MIB);
    assert_true(caps.chunk_aliases);
    assert_int_equal(caps.priority_least, 0);
    assert_int_equal(caps.priority_greatest, -5);
    assert_int_equal(caps.compute_major, 9);
    assert_int_equal(caps.compute_minor, 7);
}

static void unused_devices_have_no_context(void **state)
{
    (void)state;
    void *event = new_event();
    int count, current;
    ok(b->device_count(&count));
    assert_int_equal(count, 2);
    ok(b->device_get_current(&current));
    ok(b->event_destroy(0, event));
    assert_true(has_context(0));
    assert_false(has_context(1));
    ok(b->device_close(0));
    assert_false(has_context(0));
}

static void entries_leave_the_current_context_alone(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_open(1, &caps));
    CUcontext zero = wr_cuda.devices[0].context, one = wr_cuda.devices[1].context;
    CUcontext before[] = { NULL, zero, one };
    for (int i = 0; i < 3; i++) {
        driver_ok(wr_cu.cuCtxSetCurrent(before[i]));
        ok(b->event_destroy(0, new_event()));
        assert_ptr_equal(current_context(), before[i]);
        ok(b->device_synchronize(1));
        assert_ptr_equal(current_context(), before[i]);
        ok(b->peer_enable(0, 1));
        assert_ptr_equal(current_context(), before[i]);
    }
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

static void failed_entries_leave_it_alone_too(void **state)
{
    (void)state;
    weir_device_caps caps;
    void *event;
    ok(b->device_open(1, &caps));
    CUcontext one = wr_cuda.devices[1].context;
    driver_ok(wr_cu.cuCtxSetCurrent(one));
    standin_fail("cuEventCreate", 1, 1);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(current_context(), one);
    standin_fail("cuCtxGetId", 1, 999);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DRIVER);
    assert_ptr_equal(current_context(), one);
    standin_fail("cuDeviceCanAccessPeer", 1, 999);
    assert_int_equal(b->peer_enable(0, 1), WEIR_ERR_DRIVER);
    assert_ptr_equal(current_context(), one);
    assert_int_equal(exchange(WR_CU_STREAM_CAPTURE_MODE_GLOBAL), WR_CU_STREAM_CAPTURE_MODE_GLOBAL);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

static void entries_leave_the_capture_mode_alone(void **state)
{
    (void)state;
    exchange(WR_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    ok(b->event_destroy(0, new_event()));
    assert_int_equal(exchange(WR_CU_STREAM_CAPTURE_MODE_GLOBAL), WR_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

static void thread_without_a_context_is_on_device_0(void **state)
{
    (void)state;
    int current = 7;
    assert_null(current_context());
    ok(b->device_get_current(&current));
    assert_int_equal(current, 0);
    assert_null(current_context());
}

static void set_current_lasts(void **state)
{
    (void)state;
    weir_device_caps caps;
    int current;
    ok(b->device_open(1, &caps));
    ok(b->device_set_current(1));
    assert_ptr_equal(current_context(), wr_cuda.devices[1].context);
    ok(b->device_get_current(&current));
    assert_int_equal(current, 1);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

static void a_device_that_is_not_open_becomes_current_again(void **state)
{
    (void)state;
    weir_device_caps caps;
    CUcontext theirs;
    ok(b->device_open(1, &caps));
    ok(b->device_close(0));
    ok(b->device_set_current(1));
    ok(b->device_set_current(0)); /* it was current without a context */
    assert_null(current_context());
    driver_ok(wr_cu.cuDevicePrimaryCtxRetain(&theirs, 0));
    ok(b->device_set_current(1));
    ok(b->device_set_current(0));
    assert_ptr_equal(current_context(), theirs);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    driver_ok(wr_cu.cuDevicePrimaryCtxRelease(0));
    ok(b->device_close(1));
    assert_int_equal(b->device_set_current(1), WEIR_ERR_INVALID_ARGUMENT); /* and it was not current */
    assert_int_equal(b->device_set_current(99), WEIR_ERR_NO_DEVICE);
}

static void scopes_nest(void **state)
{
    (void)state;
    weir_device_caps caps;
    weir_backend_scope outer, inner;
    ok(b->device_open(1, &caps));
    ok(b->scope_enter(0, &outer));
    assert_ptr_equal(current_context(), wr_cuda.devices[0].context);
    ok(b->scope_enter(1, &inner));
    assert_ptr_equal(current_context(), wr_cuda.devices[1].context);
    assert_int_equal(exchange(WR_CU_STREAM_CAPTURE_MODE_RELAXED), WR_CU_STREAM_CAPTURE_MODE_RELAXED);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL)); /* as other people's code may */
    b->scope_leave(&inner);
    assert_ptr_equal(current_context(), wr_cuda.devices[0].context);
    b->scope_leave(&outer);
    assert_null(current_context());
    assert_int_equal(exchange(WR_CU_STREAM_CAPTURE_MODE_GLOBAL), WR_CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* The device's own too, which was current already. */
static void a_scope_puts_back_what_was_current(void **state)
{
    (void)state;
    weir_backend_scope scope;
    ok(b->device_set_current(0));
    ok(b->scope_enter(0, &scope));
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    b->scope_leave(&scope);
    assert_ptr_equal(current_context(), wr_cuda.devices[0].context);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

static void closing_leaves_no_dead_context_current(void **state)
{
    (void)state;
    ok(b->device_set_current(0));
    ok(b->device_close(0));
    assert_null(current_context());
}

static void closing_leaves_a_shared_context_current(void **state)
{
    (void)state;
    CUcontext theirs;
    driver_ok(wr_cu.cuDevicePrimaryCtxRetain(&theirs, 0));
    ok(b->device_set_current(0));
    ok(b->device_close(0));
    assert_ptr_equal(current_context(), theirs);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    driver_ok(wr_cu.cuDevicePrimaryCtxRelease(0));
}

static void closing_leaves_the_context_of_another_device_current(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_open(1, &caps));
    ok(b->device_set_current(1));
    ok(b->device_close(0));
    assert_ptr_equal(current_context(), wr_cuda.devices[1].context);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
}

static void peers_without_access_are_not_supported(void **state)
{
    (void)state;
    weir_device_caps caps;
    assert_int_equal(b->peer_enable(0, 1), WEIR_ERR_INVALID_ARGUMENT); /* device 1 is not open */
    ok(b->device_open(1, &caps));
    setenv("STANDIN_CUDA_PEERS", "0", 1);
    assert_int_equal(b->peer_enable(0, 1), WEIR_ERR_NOT_SUPPORTED);
    unsetenv("STANDIN_CUDA_PEERS");
    assert_null(current_context());
    ok(b->peer_enable(0, 0));
    ok(b->peer_enable(0, 1));
    ok(b->peer_enable(0, 1));
}

/* ---- contexts that are not the primary one ----------------------------------------------------------------------- */

static CUcontext own_context(int device)
{
    CUcontext made;
    driver_ok(standin_make_context(&made, 0, device));
    assert_ptr_equal(current_context(), made);
    return made;
}

static CUstream stream_of_current_context(void)
{
    CUstream made;
    driver_ok(wr_cu.cuStreamCreateWithPriority(&made, WR_CU_STREAM_NON_BLOCKING, 0));
    return made;
}

static void programs_own_context_is_not_taken_for_the_device(void **state)
{
    (void)state;
    int current = 7;
    for (int device = 0; device < 2; device++) { /* open, and not */
        CUcontext own = own_context(device);
        assert_int_equal(b->device_get_current(&current), WEIR_ERR_NOT_SUPPORTED);
        assert_non_null(strstr(weir_error_text(), "primary"));
        assert_int_equal(current, 7);
        assert_ptr_equal(current_context(), own);
        assert_int_equal(has_context(device), device == 0); /* no context was made for a comparison */
        driver_ok(standin_end_context(own));
    }
}

static void primary_context_of_an_unopened_device_is_its_device(void **state)
{
    (void)state;
    int current = 7;
    CUcontext theirs;
    driver_ok(wr_cu.cuDevicePrimaryCtxRetain(&theirs, 1));
    driver_ok(wr_cu.cuCtxSetCurrent(theirs));
    ok(b->device_get_current(&current));
    assert_int_equal(current, 1);
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    driver_ok(wr_cu.cuDevicePrimaryCtxRelease(1));
    assert_false(has_context(1)); /* looking at the context left no retain */
}

static void programs_own_context_stays_current(void **state)
{
    (void)state;
    CUcontext own = own_context(0);
    void *stream = new_stream(), *event = new_event();
    ok(b->event_record(0, event, stream));
    ok(b->event_synchronize(0, event));
    ok(b->stream_check(0, stream));
    ok(b->event_destroy(0, event));
    ok(b->stream_destroy(0, stream));
    assert_ptr_equal(current_context(), own);
    driver_ok(standin_end_context(own));
}

static void stream_of_another_context_is_refused(void **state)
{
    (void)state;
    CUcontext own = own_context(0);
    CUstream stream = stream_of_current_context();
    assert_int_equal(b->stream_check(0, stream), WEIR_ERR_INVALID_STREAM);
    assert_non_null(strstr(weir_error_text(), "primary context"));
    ok(b->stream_check(0, NULL));
    assert_ptr_equal(current_context(), own);
    driver_ok(wr_cu.cuStreamDestroy(stream));
    driver_ok(standin_end_context(own));
}

static void stream_of_a_green_context_is_the_primary_ones(void **state)
{
    (void)state;
    CUcontext green;
    driver_ok(standin_green_context(&green, 0));
    CUstream stream = stream_of_current_context();
    ok(b->stream_check(0, stream));
    ok(b->device_open(1, &(weir_device_caps){ 0 }));
    assert_int_equal(b->stream_check(1, stream), WEIR_ERR_INVALID_STREAM);
    standin_fail("cuStreamGetCtx_v2", 1, 999);
    assert_int_equal(b->stream_check(0, stream), WEIR_ERR_DRIVER);
    assert_ptr_equal(current_context(), green);
    driver_ok(wr_cu.cuStreamDestroy(stream));
    driver_ok(standin_end_context(green));
}

static void old_driver_knows_no_streams_of_other_contexts(void **state)
{
    (void)state;
    CUcontext green;
    wr_cu.cuStreamGetCtx_v2 = NULL;
    driver_ok(standin_green_context(&green, 0));
    CUstream stream = stream_of_current_context();
    assert_int_equal(b->stream_check(0, stream), WEIR_ERR_INVALID_STREAM);
    driver_ok(wr_cu.cuStreamDestroy(stream));
    driver_ok(standin_end_context(green));
}

static void calls_that_name_no_device_are_refused_in_a_programs_own_context(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    weir_stream stream, adopted = { 0 };
    void *block, *native;
    CUstream theirs;
    use_standin(CUDA_STANDIN);
    ok(weir_open(&settings));
    ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream));
    ok(weir_stream_native(stream, &native));
    CUcontext own = own_context(0);
    assert_int_equal(weir_alloc(512, &block), WEIR_ERR_NOT_SUPPORTED);
    ok(weir_alloc_on(512, stream, &block));
    ok(weir_free(block));
    theirs = stream_of_current_context();
    assert_int_equal(weir_stream_from_native(0, theirs, &adopted), WEIR_ERR_INVALID_STREAM);
    assert_int_equal(adopted.id, 0);
    ok(weir_stream_from_native(0, native, &adopted));
    assert_int_equal(adopted.id, stream.id);
    assert_ptr_equal(current_context(), own);
    driver_ok(wr_cu.cuStreamDestroy(theirs));
    driver_ok(standin_end_context(own));
    ok(weir_alloc(512, &block));
    ok(weir_close());
}

static void *alloc_often(int device)
{
    weir_pointer_info info = { .size = sizeof info };
    void *block = NULL;
    for (int i = 0; i < 200; i++) {
        if (block) ok(weir_free(block));
        ok(weir_alloc(512, &block));
    }
    ok(weir_pointer_info_get(block, &info));
    assert_int_equal(info.device, device);
    return block;
}

/* The thread remembers where it allocates, but other code may make another context current at any time. */
static void an_allocation_is_on_the_device_that_other_code_has_made_current(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    void *block = NULL;
    use_standin(CUDA_STANDIN);
    ok(weir_open(&settings));
    for (int i = 0; i < 2; i++) {
        ok(weir_device_set_current(i));
        ok(weir_free(alloc_often(i)));
    }
    for (int i = 0; i < 4; i++) {
        driver_ok(wr_cu.cuCtxSetCurrent(wr_cuda.devices[i % 2].context));
        ok(weir_free(alloc_often(i % 2)));
    }
    driver_ok(wr_cu.cuCtxSetCurrent(NULL));
    ok(weir_free(alloc_often(0)));
    CUcontext own = own_context(0);
    assert_int_equal(weir_alloc(512, &block), WEIR_ERR_NOT_SUPPORTED);
    driver_ok(standin_end_context(own));
    ok(weir_free(alloc_often(0)));
    standin_fail("cuCtxGetCurrent", 1, 1); /* is asked again, and then says */
    ok(weir_free(alloc_often(0)));
    ok(weir_close());
}

/* A thread that chose device 1, and goes on once the library was closed and opened again. */
typedef struct stayer {
    sem_t chose, goes_on;
    weir_status alloc;
    int device, device_after_0;
} stayer;

static void *stay_on_device_1(void *argument)
{
    stayer *s = argument;
    void *block = NULL;
    weir_stream stream_0 = { 0 };
    ok(weir_device_set_current(1));
    sem_post(&s->chose);
    sem_wait(&s->goes_on);
    s->alloc = weir_alloc(MIB, &block);
    ok(weir_device_get_current(&s->device));
    ok(weir_stream_default(0, &stream_0));
    ok(weir_alloc_on(MIB, stream_0, &block));
    ok(weir_device_get_current(&s->device_after_0));
    return NULL;
}

static void a_thread_stays_on_its_device_when_another_closes_and_opens(void **state)
{
    (void)state;
    pthread_t thread;
    weir_settings settings = WEIR_SETTINGS_INIT;
    stayer s = { .device = -1, .device_after_0 = -1 };
    settings.backend = "cuda";
    use_standin(CUDA_STANDIN);
    sem_init(&s.chose, 0, 0);
    sem_init(&s.goes_on, 0, 0);
    ok(weir_open(&settings));
    assert_int_equal(pthread_create(&thread, NULL, stay_on_device_1, &s), 0);
    sem_wait(&s.chose);
    ok(weir_close());
    ok(weir_open(&settings));
    sem_post(&s.goes_on);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ok(s.alloc);
    assert_int_equal(s.device, 1);
    assert_int_equal(s.device_after_0, 1);
    ok(weir_close());
}

/* cuInit is enough to spoil it: the child's driver has none of the parent's threads. */
static void a_child_forked_after_the_driver_started_is_refused(void **state)
{
    (void)state;
    int count = 0, status = 0;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    use_standin(CUDA_STANDIN);
    ok(weir_open(&settings));
    ok(weir_device_count(&count));
    pid_t child = fork();
    if (child == 0) _exit(weir_device_synchronize(0) == WEIR_ERR_FORKED ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ok(weir_close());
}

/* Must run before every test that opens the library: a driver initialised earlier stays so. */
static void a_child_forked_after_opening_failed_with_the_driver_started_is_refused(void **state)
{
    (void)state;
    int status = 0;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "cuda";
    settings.history = 1000;
    settings.history_stacks = 4;
    use_standin(CUDA_STANDIN);
    wr_meta_fail_nth(1);
    assert_int_equal(weir_open(&settings), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_true(standin_calls("cuInit") > 0);
    pid_t child = fork();
    if (child == 0) _exit(weir_open(&settings) == WEIR_ERR_FORKED ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_child_forked_after_opening_failed_with_the_driver_started_is_refused),
    cuda_test(device_is_described),
    cuda_test(unused_devices_have_no_context),
    cuda_test(entries_leave_the_current_context_alone),
    cuda_test(failed_entries_leave_it_alone_too),
    cuda_test(entries_leave_the_capture_mode_alone),
    cuda_test(thread_without_a_context_is_on_device_0),
    cuda_test(set_current_lasts),
    cuda_test(a_device_that_is_not_open_becomes_current_again),
    cuda_test(scopes_nest),
    cuda_test(a_scope_puts_back_what_was_current),
    cuda_test(closing_leaves_no_dead_context_current),
    cuda_test(closing_leaves_a_shared_context_current),
    cuda_test(closing_leaves_the_context_of_another_device_current),
    cuda_test(peers_without_access_are_not_supported),
    cuda_test(programs_own_context_is_not_taken_for_the_device),
    cuda_test(primary_context_of_an_unopened_device_is_its_device),
    cuda_test(programs_own_context_stays_current),
    cuda_test(stream_of_another_context_is_refused),
    cuda_test(stream_of_a_green_context_is_the_primary_ones),
    cuda_test(old_driver_knows_no_streams_of_other_contexts),
    cmocka_unit_test(calls_that_name_no_device_are_refused_in_a_programs_own_context),
    cmocka_unit_test(an_allocation_is_on_the_device_that_other_code_has_made_current),
    cmocka_unit_test(a_thread_stays_on_its_device_when_another_closes_and_opens),
    cmocka_unit_test(a_child_forked_after_the_driver_started_is_refused),
};

int main(void)
{
    return cmocka_run_group_tests(tests, NULL, NULL);
}
