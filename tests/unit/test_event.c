#include "stream/event.h"

#include "base/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"
#include "host_support.h"

static wr_event_pool pool;

static int open_pool(void **state)
{
    wr_device *device = NULL;
    (void)state;
    open_host((weir_settings){ .host_memory = 64 * MIB });
    assert_int_equal(wr_runtime_device(0, &device), WEIR_OK);
    wr_events_init(&pool, device->backend, 0);
    return 0;
}

static int close_pool(void **state)
{
    assert_int_equal(wr_events_release(&pool), WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_event_destroy), calls_of(WEIR_BACKEND_event_create));
    return close_host(state);
}

static int close_pool_after_failures(void **state)
{
    assert_int_equal(wr_events_release(&pool), WEIR_OK);
    return close_host(state);
}

static void an_event_given_back_is_handed_out_again(void **state)
{
    (void)state;
    void *first = NULL, *second = NULL;
    assert_int_equal(wr_event_get(&pool, &first), WEIR_OK);
    wr_event_put(&pool, first);
    assert_int_equal(wr_event_get(&pool, &second), WEIR_OK);
    assert_ptr_equal(first, second);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 1);
    wr_event_put(&pool, second);
}

static void events_in_use_are_distinct(void **state)
{
    (void)state;
    void *events[100];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(wr_event_get(&pool, &events[i]), WEIR_OK);
        for (int j = 0; j < i; j++) assert_ptr_not_equal(events[i], events[j]);
    }
    for (int i = 0; i < 100; i++) wr_event_put(&pool, events[i]);
    for (int i = 0; i < 100; i++) assert_int_equal(wr_event_get(&pool, &events[i]), WEIR_OK);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 100);
    for (int i = 0; i < 100; i++) wr_event_put(&pool, events[i]);
}

static void a_driver_failure_is_forwarded_and_leaves_nothing(void **state)
{
    (void)state;
    void *event = &pool;
    for (int i = 0; i < 40; i++) {
        assert_ok(weir_host_fail(WEIR_BACKEND_event_create, 1, WEIR_ERR_DRIVER));
        assert_int_equal(wr_event_get(&pool, &event), WEIR_ERR_DRIVER);
        assert_ptr_equal(event, &pool);
    }
    assert_int_equal(pool.made, 0);
    assert_int_equal(pool.capacity, 16);
}

static void without_host_memory_no_event_is_made(void **state)
{
    (void)state;
    void *event = NULL;
    wr_meta_fail_nth(1);
    assert_int_equal(wr_event_get(&pool, &event), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_null(event);
    assert_int_equal(calls_of(WEIR_BACKEND_event_create), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_given_back_is_handed_out_again, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(events_in_use_are_distinct, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_driver_failure_is_forwarded_and_leaves_nothing, open_pool,
                                        close_pool_after_failures),
        cmocka_unit_test_setup_teardown(without_host_memory_no_event_is_made, open_pool, close_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
