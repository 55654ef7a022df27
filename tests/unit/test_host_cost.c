#include "unit/host.h"

#include <pthread.h>

static uint64_t cost(enum weir_backend_entry entry, uint64_t bytes)
{
    uint64_t nanoseconds;
    ok(weir_host_cost(entry, bytes, &nanoseconds));
    return nanoseconds;
}

static uint64_t spent(void)
{
    uint64_t nanoseconds;
    ok(weir_host_driver_time(&nanoseconds));
    return nanoseconds;
}

/* 1 GiB in chunks, microseconds in all: create, map, set access, unmap, release. */
static void bulk_costs_are_those_measured(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, handles, total[5];
    } measured[] = {
        { 2 * MIB, 512, { 4924, 987, 14541, 8849, 5176 } }, { 8 * MIB, 128, { 1140, 79, 3264, 2019, 1614 } },
        { 20 * MIB, 51, { 564, 31, 1554, 769, 976 } },      { 32 * MIB, 32, { 362, 35, 845, 502, 786 } },
        { 128 * MIB, 8, { 136, 9, 321, 171, 700 } },        { 512 * MIB, 2, { 39, 3, 110, 47, 400 } },
    };
    static const enum weir_backend_entry entries[] = { WEIR_BACKEND_vm_create, WEIR_BACKEND_vm_map,
                                                       WEIR_BACKEND_vm_access, WEIR_BACKEND_vm_unmap,
                                                       WEIR_BACKEND_vm_destroy };
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        for (size_t k = 0; k < 5; k++) {
            const uint64_t total = cost(entries[k], measured[i].bytes) * measured[i].handles;
            const uint64_t wanted = measured[i].total[k] * 1000;
            assert_in_range(total, wanted - measured[i].handles, wanted + measured[i].handles);
        }
}

static void between_two_sizes_the_cost_is_on_the_line(void **state)
{
    (void)state;
    assert_int_equal(cost(WEIR_BACKEND_segment_alloc, 256 * MIB), 60000);
    assert_int_equal(cost(WEIR_BACKEND_segment_alloc, 138 * MIB), 56000);
    assert_int_equal(cost(WEIR_BACKEND_segment_free, 4096 * MIB), 2118000);
    assert_int_equal(cost(WEIR_BACKEND_vm_create, 80 * MIB), (11313 + 17000) / 2 + 1);
}

static void beyond_the_measured_sizes_the_last_line_goes_on(void **state)
{
    (void)state;
    const uint64_t step = cost(WEIR_BACKEND_vm_destroy, 512 * MIB) - cost(WEIR_BACKEND_vm_destroy, 128 * MIB);
    assert_int_equal(cost(WEIR_BACKEND_vm_destroy, 896 * MIB), cost(WEIR_BACKEND_vm_destroy, 512 * MIB) + step);
    assert_int_equal(cost(WEIR_BACKEND_segment_alloc, 1), cost(WEIR_BACKEND_segment_alloc, 512));
    assert_true(cost(WEIR_BACKEND_segment_free, UINT64_MAX) > cost(WEIR_BACKEND_segment_free, UINT64_MAX / 2));
}

static void other_entries_cost_the_same_for_every_size(void **state)
{
    (void)state;
    assert_int_equal(cost(WEIR_BACKEND_event_record, 0), 466);
    assert_int_equal(cost(WEIR_BACKEND_event_record, UINT64_MAX), 466);
    assert_int_equal(cost(WEIR_BACKEND_event_create, 0) + cost(WEIR_BACKEND_event_destroy, 0), 460);
    assert_int_equal(cost(WEIR_BACKEND_copy, MIB), 0);
}

static void costs_need_no_open_library_and_a_known_entry(void **state)
{
    (void)state;
    assert_int_equal(cost(WEIR_BACKEND_stream_wait, 0), 472);
    uint64_t nanoseconds = 7;
    assert_int_equal(weir_host_cost(WEIR_BACKEND_ENTRY_COUNT, 0, &nanoseconds), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(weir_host_cost(WEIR_BACKEND_open, 0, NULL), WEIR_ERR_INVALID_ARGUMENT);
    assert_int_equal(nanoseconds, 7);
}

static void driver_time_is_the_sum_of_the_calls(void **state)
{
    (void)state;
    uint64_t before = spent();
    void *segment = new_segment(0, 2 * MIB);
    ok(b->segment_free(0, segment, 2 * MIB));
    void *event = new_event(0);
    ok(b->event_record(0, event, NULL));
    ok(b->event_destroy(0, event));
    assert_int_equal(spent() - before,
                     cost(WEIR_BACKEND_segment_alloc, 2 * MIB) + cost(WEIR_BACKEND_segment_free, 2 * MIB) + 460 + 466);
    assert_int_equal(weir_host_driver_time(NULL), WEIR_ERR_INVALID_ARGUMENT);
}

static void access_and_unmap_cost_as_much_for_every_handle(void **state)
{
    (void)state;
    void *base;
    weir_chunk chunks[3];
    ok(b->vm_reserve(0, 6 * MIB, 0, &base));
    for (size_t i = 0; i < 3; i++) {
        ok(b->vm_create(0, 2 * MIB, &chunks[i]));
        ok(b->vm_map(0, (char *)base + i * 2 * MIB, 2 * MIB, chunks[i]));
    }
    uint64_t before = spent();
    ok(b->vm_access(0, base, 6 * MIB, 0));
    assert_int_equal(spent() - before, 3 * cost(WEIR_BACKEND_vm_access, 2 * MIB));
    before = spent();
    ok(b->vm_unmap(0, base, 6 * MIB));
    assert_int_equal(spent() - before, 3 * cost(WEIR_BACKEND_vm_unmap, 2 * MIB));
    before = spent();
    for (size_t i = 0; i < 3; i++) ok(b->vm_destroy(0, chunks[i], 2 * MIB));
    ok(b->vm_release(0, base, 6 * MIB));
    assert_int_equal(spent() - before, 3 * cost(WEIR_BACKEND_vm_destroy, 2 * MIB) + cost(WEIR_BACKEND_vm_release, 0));
}

static void memory_that_is_refused_costs_nothing(void **state)
{
    (void)state;
    void *base;
    uint64_t before = spent();
    assert_int_equal(b->segment_alloc(0, HOST_MEMORY + 1, &base), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(spent(), before);
}

static void nothing_is_slept_and_the_clock_stands(void **state)
{
    (void)state;
    uint64_t before, after;
    ok(weir_host_clock_hold(true));
    ok(b->clock_ns(&before));
    ok(b->segment_free(0, new_segment(0, 2 * MIB), 2 * MIB));
    ok(b->clock_ns(&after));
    assert_int_equal(before, after);
}

enum { THREADS = 4, ROUNDS = 500 };

static void *take_and_give(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        void *base;
        if (b->segment_alloc(1, 4096, &base) != WEIR_OK || b->segment_free(1, base, 4096) != WEIR_OK) return &b;
    }
    return unused;
}

static void threads_add_up(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    uint64_t before = spent();
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(spent() - before,
                     THREADS * ROUNDS *
                         (cost(WEIR_BACKEND_segment_alloc, 4096) + cost(WEIR_BACKEND_segment_free, 4096)));
}

static void closing_forgets_the_driver_time(void **state)
{
    (void)state;
    new_segment(0, 2 * MIB);
    const uint64_t before = spent();
    host_close(NULL);
    host_open(NULL);
    assert_true(spent() < before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bulk_costs_are_those_measured),
        cmocka_unit_test(between_two_sizes_the_cost_is_on_the_line),
        cmocka_unit_test(beyond_the_measured_sizes_the_last_line_goes_on),
        cmocka_unit_test(other_entries_cost_the_same_for_every_size),
        cmocka_unit_test(costs_need_no_open_library_and_a_known_entry),
        host_test(driver_time_is_the_sum_of_the_calls),
        host_test(access_and_unmap_cost_as_much_for_every_handle),
        host_test(memory_that_is_refused_costs_nothing),
        host_test(nothing_is_slept_and_the_clock_stands),
        host_test(threads_add_up),
        host_test(closing_forgets_the_driver_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
