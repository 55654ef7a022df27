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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_that_is_to_be_refused_is_one_call_and_keeps_nothing),
        cmocka_unit_test(memory_created_costs_a_call_for_each_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
