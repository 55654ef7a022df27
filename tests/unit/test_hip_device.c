#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "thread_support.h"
#include "unit/hip_support.h"

#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_both(void **state)
{
    weir_device_caps caps;
    open_hip(state);
    ok(b->device_open(1, &caps));
    return 0;
}

static void device_is_described(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_close(0));
    ok(b->device_open(0, &caps));
    assert_string_equal(caps.name, "stand-in, no AMD GPU (gfx90a:sramecc+:xnack-)");
    assert_int_equal(caps.total_memory, 512 * MIB);
    assert_int_equal(caps.granularity, 2 * MIB);
    assert_int_equal(caps.compute_major, 9);
    assert_int_equal(caps.compute_minor, 0);
}

/* HIP has three priorities, and the least urgent is not 0, as it is with CUDA. */
static void every_priority_of_hip_can_be_had(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_close(0));
    ok(b->device_open(0, &caps));
    assert_int_equal(caps.priority_least, 1);
    assert_int_equal(caps.priority_greatest, -1);
    for (int priority = -1; priority <= 1; priority++) {
        void *stream;
        ok(b->stream_create(0, priority, &stream));
        ok(b->stream_destroy(0, stream));
    }
}

static void entries_leave_the_current_device_alone(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        runtime_ok(wr_hip_runtime.hipSetDevice(device));
        ok(b->event_destroy(0, new_event()));
        assert_int_equal(current_device(), device);
        ok(b->device_synchronize(1));
        assert_int_equal(current_device(), device);
        ok(b->peer_enable(0, 1));
        assert_int_equal(current_device(), device);
    }
    runtime_ok(wr_hip_runtime.hipSetDevice(0));
}

static void a_device_that_is_not_open_becomes_current_again(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_set_current(1));
    ok(b->device_close(0));
    ok(b->device_set_current(0));
    assert_int_equal(current_device(), 0);
    ok(b->device_open(0, &caps));
    assert_int_equal(b->device_set_current(99), WEIR_ERR_NO_DEVICE);
}

static void entries_work_on_the_device_they_name(void **state)
{
    (void)state;
    uint64_t before, after, total;
    void *base;
    ok(b->device_memory(1, &before, &total));
    ok(b->segment_alloc(1, 8 * MIB, &base));
    ok(b->device_memory(1, &after, &total));
    assert_int_equal(before - after, 8 * MIB);
    ok(b->segment_free(1, base, 8 * MIB));
    assert_int_equal(current_device(), 0);
}

static void failed_entries_leave_it_alone_too(void **state)
{
    (void)state;
    void *event;
    runtime_ok(wr_hip_runtime.hipSetDevice(1));
    standin_fail("hipEventCreateWithFlags", 1, 1);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(current_device(), 1);
    standin_fail("hipGetDevice", 1, 999);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DRIVER);
    standin_fail("hipSetDevice", 1, 999);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DRIVER);
    assert_int_equal(current_device(), 1);
    standin_fail("hipDeviceCanAccessPeer", 1, 999);
    assert_int_equal(b->peer_enable(0, 1), WEIR_ERR_DRIVER);
    assert_int_equal(current_device(), 1);
    assert_int_equal(exchange(WR_hipStreamCaptureModeGlobal), WR_hipStreamCaptureModeGlobal);
    runtime_ok(wr_hip_runtime.hipSetDevice(0));
}

static void entries_leave_the_capture_mode_alone(void **state)
{
    (void)state;
    exchange(WR_hipStreamCaptureModeThreadLocal);
    ok(b->event_destroy(0, new_event()));
    assert_int_equal(exchange(WR_hipStreamCaptureModeGlobal), WR_hipStreamCaptureModeThreadLocal);
}

static void *ask_current(void *unused)
{
    int current = -1;
    (void)unused;
    if (b->device_get_current(&current) != WEIR_OK) current = -2;
    return (void *)(intptr_t)current;
}

static void every_thread_has_a_device_of_its_own(void **state)
{
    (void)state;
    int current;
    ok(b->device_set_current(1));
    ok(b->device_get_current(&current));
    assert_int_equal(current, 1);
    assert_int_equal(current_device(), 1);
    assert_int_equal((intptr_t)in_a_thread(ask_current, NULL), 0);
    runtime_ok(wr_hip_runtime.hipSetDevice(0));
}

static void scopes_nest(void **state)
{
    (void)state;
    weir_backend_scope outer, inner;
    ok(b->scope_enter(1, &outer));
    assert_int_equal(current_device(), 1);
    ok(b->scope_enter(0, &inner));
    assert_int_equal(current_device(), 0);
    assert_int_equal(exchange(WR_hipStreamCaptureModeRelaxed), WR_hipStreamCaptureModeRelaxed);
    runtime_ok(wr_hip_runtime.hipSetDevice(1)); /* as MIOpen does */
    b->scope_leave(&inner);
    assert_int_equal(current_device(), 1);
    b->scope_leave(&outer);
    assert_int_equal(current_device(), 0);
    assert_int_equal(exchange(WR_hipStreamCaptureModeGlobal), WR_hipStreamCaptureModeGlobal);
}

static void peers_without_access_are_not_supported(void **state)
{
    (void)state;
    weir_device_caps caps;
    ok(b->device_close(1));
    assert_int_equal(b->peer_enable(0, 1), WEIR_ERR_INVALID_ARGUMENT);
    ok(b->device_open(1, &caps));
    setenv("STANDIN_HIP_PEERS", "0", 1);
    assert_int_equal(b->peer_enable(0, 1), WEIR_ERR_NOT_SUPPORTED);
    unsetenv("STANDIN_HIP_PEERS");
    ok(b->peer_enable(0, 0));
    ok(b->peer_enable(0, 1));
    ok(b->peer_enable(0, 1));
}

static void a_device_without_virtual_memory_has_plain_segments(void **state)
{
    (void)state;
    weir_device_caps caps;
    void *base;
    setenv("STANDIN_HIP_VMM", "0", 1);
    ok(b->device_close(0));
    ok(b->device_open(0, &caps));
    unsetenv("STANDIN_HIP_VMM");
    assert_int_equal(caps.granularity, 0);
    assert_int_equal(b->vm_reserve(0, 2 * MIB, 0, &base), WEIR_ERR_NOT_SUPPORTED);
    ok(b->segment_alloc(0, 2 * MIB, &base));
    ok(b->segment_free(0, base, 2 * MIB));
}

/* ---- streams, which are kept because rocBLAS asks about those that its handles had before ------------------------ */

static void a_stream_of_another_device_is_told_apart(void **state)
{
    (void)state;
    void *stream;
    ok(b->stream_create(1, 0, &stream));
    assert_int_equal(b->stream_check(0, stream), WEIR_ERR_INVALID_STREAM);
    assert_non_null(strstr(weir_error_text(), "belongs to device 1, not to device 0"));
    ok(b->stream_check(1, stream));
    ok(b->stream_check(0, NULL));
    ok(b->stream_destroy(1, stream));
}

static void a_stream_that_the_runtime_does_not_know_is_refused(void **state)
{
    (void)state;
    void *nothing = &nothing;
    assert_int_equal(b->stream_check(0, nothing), WEIR_ERR_INVALID_STREAM);
    assert_non_null(strstr(weir_error_text(), "does not know stream"));
}

static void a_destroyed_stream_serves_the_next_who_wants_one(void **state)
{
    (void)state;
    void *stream = new_stream(), *again;
    const unsigned long destroyed = standin_calls("hipStreamDestroy");
    ok(b->stream_destroy(0, stream));
    again = new_stream();
    assert_ptr_equal(again, stream);
    ok(b->stream_destroy(0, again));
    assert_int_equal(standin_calls("hipStreamDestroy"), destroyed);
    ok(b->device_close(0));
    assert_int_equal(standin_calls("hipStreamDestroy"), destroyed + 1);
    weir_device_caps caps;
    ok(b->device_open(0, &caps));
}

static void what_keeps_a_stream_ends_with_that(void **state)
{
    (void)state;
    weir_device_caps caps;
    const uint64_t before = wr_meta_live();
    ok(b->stream_destroy(0, new_stream()));
    void *again = new_stream();
    assert_int_equal(wr_meta_live(), before);
    ok(b->stream_destroy(0, again));
    ok(b->device_close(0));
    assert_int_equal(wr_meta_live(), before);
    ok(b->device_open(0, &caps));
}

static void streams_are_kept_by_priority_and_device(void **state)
{
    (void)state;
    void *low, *high, *elsewhere, *again;
    ok(b->stream_create(0, 1, &low));
    ok(b->stream_destroy(0, low));
    ok(b->stream_create(0, -1, &high));
    assert_ptr_not_equal(high, low);
    ok(b->stream_create(1, 1, &elsewhere));
    assert_ptr_not_equal(elsewhere, low);
    ok(b->stream_create(0, 1, &again));
    assert_ptr_equal(again, low);
    ok(b->stream_destroy(0, again));
    ok(b->stream_destroy(0, high));
    ok(b->stream_destroy(1, elsewhere));
}

static void wait_for_it(void *semaphore)
{
    wait_for(semaphore);
}

static void a_stream_with_work_left_is_not_handed_out(void **state)
{
    (void)state;
    sem_t gate;
    void *busy = new_stream(), *other;
    sem_init(&gate, 0, 0);
    ok(b->stream_callback(0, busy, wait_for_it, &gate));
    ok(b->stream_destroy(0, busy));
    other = new_stream();
    assert_ptr_not_equal(other, busy);
    sem_post(&gate);
    ok(b->device_synchronize(0));
    assert_ptr_equal(new_stream(), busy);
    ok(b->stream_destroy(0, busy));
    ok(b->stream_destroy(0, other));
    sem_destroy(&gate);
}

static void a_stream_that_cannot_be_kept_is_destroyed(void **state)
{
    (void)state;
    void *stream = new_stream();
    const unsigned long destroyed = standin_calls("hipStreamDestroy");
    standin_fail("hipStreamGetPriority", 1, 999);
    ok(b->stream_destroy(0, stream));
    assert_int_equal(standin_calls("hipStreamDestroy"), destroyed + 1);
    assert_int_equal(b->stream_destroy(0, NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void devices_open_once(void **state)
{
    (void)state;
    weir_device_caps caps;
    assert_int_equal(b->device_open(0, &caps), WEIR_ERR_BUSY);
    assert_int_equal(b->device_open(2, &caps), WEIR_ERR_NO_DEVICE);
    ok(b->device_close(1));
    assert_int_equal(b->device_close(1), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(b->device_synchronize(1), WEIR_ERR_INVALID_ARGUMENT);
}

static void failed_open_of_a_device_leaves_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = { "hipThreadExchangeStreamCaptureMode",
                                         "hipGetDevice",
                                         "hipSetDevice",
                                         "hipDeviceGetName",
                                         "hipGetDevicePropertiesR0600",
                                         "hipMemGetInfo",
                                         "hipDeviceGetStreamPriorityRange",
                                         "hipDeviceComputeCapability",
                                         "hipDeviceGetAttribute",
                                         "hipMemGetAllocationGranularity" };
    weir_device_caps caps = { .total_memory = 77 };
    ok(b->device_close(1));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        standin_fail(calls[i], 1, 999);
        assert_int_equal(b->device_open(1, &caps), WEIR_ERR_DRIVER);
        assert_int_equal(caps.total_memory, 77);
        assert_int_equal(current_device(), 0);
        assert_int_equal(exchange(WR_hipStreamCaptureModeGlobal), WR_hipStreamCaptureModeGlobal);
    }
    ok(b->device_open(1, &caps));
}

/* hipInit is enough to spoil it: the child's runtime has none of the parent's threads. */
static void a_child_forked_after_the_runtime_started_is_refused(void **state)
{
    (void)state;
    int count = 0, status = 0;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "hip";
    use_standin(HIP_STANDIN_6);
    ok(weir_open(&settings));
    ok(weir_device_count(&count));
    pid_t child = fork();
    if (child == 0) _exit(weir_device_synchronize(0) == WEIR_ERR_FORKED ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ok(weir_close());
}

#define device_test(test) cmocka_unit_test_setup_teardown(test, open_both, close_vendor)

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Runs first: while there is no stream, no other thread runs at the fork. */
        cmocka_unit_test(a_child_forked_after_the_runtime_started_is_refused),
        device_test(device_is_described),
        device_test(every_priority_of_hip_can_be_had),
        device_test(entries_leave_the_current_device_alone),
        device_test(a_device_that_is_not_open_becomes_current_again),
        device_test(entries_work_on_the_device_they_name),
        device_test(failed_entries_leave_it_alone_too),
        device_test(entries_leave_the_capture_mode_alone),
        device_test(every_thread_has_a_device_of_its_own),
        device_test(scopes_nest),
        device_test(peers_without_access_are_not_supported),
        device_test(a_device_without_virtual_memory_has_plain_segments),
        device_test(a_stream_of_another_device_is_told_apart),
        device_test(a_stream_that_the_runtime_does_not_know_is_refused),
        device_test(a_destroyed_stream_serves_the_next_who_wants_one),
        device_test(what_keeps_a_stream_ends_with_that),
        device_test(streams_are_kept_by_priority_and_device),
        device_test(a_stream_with_work_left_is_not_handed_out),
        device_test(a_stream_that_cannot_be_kept_is_destroyed),
        device_test(devices_open_once),
        device_test(failed_open_of_a_device_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
