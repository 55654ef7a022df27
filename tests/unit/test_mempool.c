#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"

static weir_mempool make_pool(weir_mempool_options options)
{
    weir_mempool pool;
    if (options.device == WEIR_DEVICE_UNNAMED) options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    return pool;
}

static weir_mempool plain_pool(void)
{
    return make_pool((weir_mempool_options)WEIR_MEMPOOL_OPTIONS_INIT);
}

static weir_mempool pool_of(const void *pointer)
{
    weir_pointer_info info = { .size = sizeof info };
    assert_ok(weir_pointer_info_get(pointer, &info));
    return info.pool;
}

static int open_device(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    return 0;
}

static void allocations_of_a_thread_come_from_the_pool_it_entered(void **state)
{
    (void)state;
    weir_mempool pool = plain_pool();
    assert_ok(weir_mempool_enter(pool));
    void *inside = alloc(MIB);
    assert_ok(weir_mempool_leave(pool));
    void *outside = alloc(MIB);
    assert_int_equal(pool_of(inside).user, pool.user);
    assert_int_equal(pool_of(outside).user, 0);
    assert_ok(weir_free(inside));
    assert_ok(weir_free(outside));
    assert_ok(weir_validate(0));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(weir_mempool_ref(pool), WEIR_ERR_POOL_MISMATCH);
    assert_ok(weir_validate(0));
}

static void a_released_pool_with_live_memory_can_be_opened_again(void **state)
{
    (void)state;
    void *block = NULL, *again = NULL;
    weir_mempool pool = plain_pool();
    assert_ok(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &block));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &again), WEIR_ERR_POOL_MISMATCH);
    assert_ok(weir_mempool_ref(pool));
    assert_ok(weir_alloc_from(pool, MIB, WEIR_STREAM_CURRENT, &again));
    assert_ok(weir_free(block));
    assert_ok(weir_free(again));
    assert_ok(weir_mempool_unref(pool));
    assert_int_equal(weir_mempool_ref(pool), WEIR_ERR_POOL_MISMATCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(allocations_of_a_thread_come_from_the_pool_it_entered, open_device, close_host),
        cmocka_unit_test_setup_teardown(a_released_pool_with_live_memory_can_be_opened_again, open_device, close_host),
    };
    return cmocka_run_group_tests_name("mempool", tests, NULL, NULL);
}
