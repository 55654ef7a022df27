#include "contract/contract.h"

static void table_passes_the_check(void **state)
{
    (void)state;
    ok(wr_backend_check(b));
}

static void caps_are_plausible(void **state)
{
    (void)state;
    for (int i = 0; i < devices; i++) {
        assert_true(strlen(caps[i].name) > 0);
        assert_true(caps[i].total_memory > 0);
        assert_true(caps[i].priority_greatest <= caps[i].priority_least);
        assert_true((caps[i].granularity & (caps[i].granularity - 1)) == 0);
    }
}

static void memory_is_within_total(void **state)
{
    (void)state;
    uint64_t free_bytes, total;
    ok(b->device_memory(0, &free_bytes, &total));
    assert_int_equal(total, caps[0].total_memory);
    assert_true(free_bytes <= total);
}

static void unknown_device_is_refused(void **state)
{
    (void)state;
    uint64_t free_bytes = 11, total = 22;
    void *base = &free_bytes;
    int count;
    ok(b->device_count(&count));
    refused(b->device_memory(count, &free_bytes, &total));
    refused(b->device_memory(-1, &free_bytes, &total));
    refused(b->device_memory(-1, &free_bytes, &total));
    refused(b->segment_alloc(count, 2 * MIB, &base));
    assert_int_equal(free_bytes, 11);
    assert_int_equal(total, 22);
    assert_ptr_equal(base, &free_bytes);
}

static void synchronize_waits_for_all_streams(void **state)
{
    (void)state;
    void *one = new_stream(0), *two = new_stream(0);
    void *memory = new_segment(0, 2 * MIB);
    unsigned char bytes[2] = { 0, 0 };
    ok(b->fill(0, one, memory, 1, 1));
    ok(b->fill(0, two, (char *)memory + 1, 2, 1));
    ok(b->device_synchronize(0));
    ok(b->stream_query(0, one));
    ok(b->stream_query(0, two));
    ok(b->copy(0, one, bytes, memory, 2));
    ok(b->device_synchronize(0));
    assert_int_equal(bytes[0], 1);
    assert_int_equal(bytes[1], 2);
    ok(b->segment_free(0, memory, 2 * MIB));
    ok(b->stream_destroy(0, one));
    ok(b->stream_destroy(0, two));
}

static void peer_enabling_twice_is_fine(void **state)
{
    (void)state;
    if (devices < 2) skip();
    weir_status status = b->peer_enable(0, 1);
    if (status == WEIR_ERR_NOT_SUPPORTED) skip();
    ok(status);
    ok(b->peer_enable(0, 1));
    ok(b->peer_enable(1, 0));
}

static void memory_of_devices_is_separate(void **state)
{
    (void)state;
    if (devices < 2) skip();
    uint64_t before = free_memory(1);
    void *base = new_segment(0, 64 * MIB);
    assert_int_equal(free_memory(1), before);
    ok(b->segment_free(0, base, 64 * MIB));
}

static void clock_does_not_run_backwards(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t now;
        ok(b->clock_ns(&now));
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(table_passes_the_check),
    cmocka_unit_test(caps_are_plausible),
    cmocka_unit_test(memory_is_within_total),
    cmocka_unit_test(unknown_device_is_refused),
    cmocka_unit_test(synchronize_waits_for_all_streams),
    cmocka_unit_test(peer_enabling_twice_is_fine),
    cmocka_unit_test(memory_of_devices_is_separate),
    cmocka_unit_test(clock_does_not_run_backwards),
};

CONTRACT_MAIN(tests)
