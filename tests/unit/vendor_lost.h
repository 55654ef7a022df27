/*
 * vendor_lost: loses a device of the cuda or hip back end, and tests of that that hold for both. Include after
 * cuda_support.h or hip_support.h.
 */
#ifndef WEIR_TESTS_VENDOR_LOST_H
#define WEIR_TESTS_VENDOR_LOST_H

static void lose(int code)
{
    void *event;
    standin_fail(EVENT_CREATE, 1, code);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(native_code(), code);
}

/* After lose(700), whose code has that name. */
static void assert_lost(void *stream, const char *name)
{
    void *base, *event;
    uint64_t one, two;
    weir_capture_state capture;
    weir_backend_scope scope;
    size_t count;
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(native_code(), 700);
    assert_non_null(strstr(weir_error_text(), name));
    assert_int_equal(b->segment_alloc(0, 2 * MIB, &base), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->segment_free(0, &base, 2 * MIB), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->vm_reserve(0, 2 * MIB, 0, &base), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->stream_query(0, stream), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_synchronize(0), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_memory(0, &one, &two), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->capture_status(0, NULL, &capture, &one), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->capture_tips(0, NULL, &base, 1, &count), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->device_set_current(0), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(b->scope_enter(0, &scope), WEIR_ERR_DEVICE_LOST);
}

static void first_reason_stays(void **state)
{
    (void)state;
    void *event;
    lose(719);
    standin_fail(EVENT_CREATE, 1, 700);
    assert_int_equal(b->event_create(0, &event), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(native_code(), 719);
    standin_fail(EVENT_CREATE, 0, 0);
}

static void other_devices_go_on(void **state)
{
    (void)state;
    weir_device_caps caps;
    void *base, *event;
    ok(b->device_open(1, &caps));
    lose(700);
    ok(b->segment_alloc(1, 2 * MIB, &base));
    ok(b->segment_free(1, base, 2 * MIB));
    ok(b->event_create(1, &event));
    ok(b->event_destroy(1, event));
}

static void memory_of_others_is_not_made_reachable_for_a_lost_device(void **state)
{
    (void)state;
    weir_device_caps caps;
    weir_chunk chunk;
    void *base;
    ok(b->device_open(1, &caps));
    ok(b->vm_reserve(1, 2 * MIB, 0, &base));
    ok(b->vm_create(1, 2 * MIB, &chunk));
    ok(b->vm_map(1, base, 2 * MIB, chunk));
    lose(700);
    assert_int_equal(b->vm_access(1, base, 2 * MIB, 0), WEIR_ERR_DEVICE_LOST);
    ok(b->vm_access(1, base, 2 * MIB, 1));
    ok(b->vm_unmap(1, base, 2 * MIB));
    ok(b->vm_destroy(1, chunk, 2 * MIB));
    ok(b->vm_release(1, base, 2 * MIB));
}

#endif
