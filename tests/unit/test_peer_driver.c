/* What the simulated driver of the models counts. */
#include "unit/peer_support.h"

static void count_refusal(void *user)
{
    ++*(int *)user;
}

static void a_create_that_is_to_be_refused_is_one_call_and_keeps_nothing(void **state)
{
    (void)state;
    driver d;
    int told = 0;
    uint64_t physical;
    driver_init(&d, GIB);
    d.refuse = count_refusal;
    d.user = &told;
    assert_false(driver_create(&d, 8 * MIB, 2 * MIB, &physical));
    assert_int_equal(told, 1);
    assert_int_equal(d.calls, 1);
    assert_int_equal(d.nanoseconds, 0);
    assert_int_equal(d.used, 0);
    assert_true(driver_create(&d, 8 * MIB, 2 * MIB, &physical)); /* only the next one was to fail */
    assert_int_equal(told, 1);
    driver_release(&d);
}

static void memory_created_costs_a_call_for_each_handle(void **state)
{
    (void)state;
    driver d;
    uint64_t physical;
    driver_init(&d, GIB);
    assert_true(driver_create(&d, 8 * MIB, 2 * MIB, &physical));
    assert_int_equal(d.calls, 4);
    driver_destroy(&d, 8 * MIB, 2 * MIB);
    assert_int_equal(d.calls, 8);
    assert_int_equal(d.peak, 8 * MIB);
    assert_int_equal(d.used, 0);
    driver_release(&d);
}

static void ranges_are_aligned_and_have_a_gap_between_them(void **state)
{
    (void)state;
    driver d;
    uint64_t first, second;
    driver_init(&d, GIB);
    assert_true(driver_alloc(&d, 2 * MIB, &first));
    assert_true(driver_alloc(&d, 1, &second));
    assert_int_equal(first % (2 * MIB), 0);
    assert_int_equal(second % (2 * MIB), 0);
    assert_true(second > first + 2 * MIB);
    assert_true(driver_reserve(&d, 1) > second + 2 * MIB - 1);
    driver_release(&d);
}

static void each_handle_that_becomes_usable_takes_its_time_in_one_call(void **state)
{
    (void)state;
    driver d;
    driver_init(&d, GIB);
    driver_access(&d, 8 * MIB, 2 * MIB);
    assert_int_equal(d.calls, 1);
    assert_int_equal(d.nanoseconds, 4 * peer_cost(WEIR_BACKEND_vm_access, 2 * MIB));
    driver_release(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_that_is_to_be_refused_is_one_call_and_keeps_nothing),
        cmocka_unit_test(memory_created_costs_a_call_for_each_handle),
        cmocka_unit_test(ranges_are_aligned_and_have_a_gap_between_them),
        cmocka_unit_test(each_handle_that_becomes_usable_takes_its_time_in_one_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
