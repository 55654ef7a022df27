/*
 * Threads that create handles again and again, of a device that has no other user: how much memory a create took is
 * believed only if it ran alone, and then it is right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "handle/handle_measure.h"
#include "sanitized.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CREATORS = 3, CREATES = SANITIZED ? 100000 : 3000000, TOOK = 1000, TYPICAL = 7 };

static atomic_int_fast64_t taken;
static wr_creates creates;

static weir_status device_memory(int device, uint64_t *free_bytes, uint64_t *total)
{
    (void)device;
    *total = UINT64_C(1) << 40;
    *free_bytes = *total - (uint64_t)atomic_load(&taken);
    return WEIR_OK;
}

static uint64_t held(void *device)
{
    (void)device;
    return 0;
}

static const weir_backend backend = { .size = sizeof backend, .name = "stress", .device_memory = device_memory };
static wr_handle_pool pool = { .site = { .backend = &backend, .creates = &creates, .held = held },
                               .typical_bytes = TYPICAL };

static void *create(void *argument)
{
    uint64_t *alone = argument;
    for (int i = 0; i < CREATES; i++) {
        const wr_handle_measure m = wr_handle_measure_begin(&pool);
        atomic_fetch_add(&taken, TOOK);
        const uint64_t bytes = wr_handle_measure_end(&pool, &m);
        must(bytes == TOOK || bytes == TYPICAL);
        *alone += bytes == TOOK;
    }
    return NULL;
}

static void what_creates_took_at_once_is_never_taken_for_that_of_one(void **state)
{
    (void)state;
    pthread_t threads[CREATORS];
    uint64_t alone[CREATORS] = { 0 }, sum = 0;
    wr_lock_init(&pool.lock, WR_RANK_HANDLES, "handles");
    for (int i = 0; i < CREATORS; i++) assert_int_equal(pthread_create(&threads[i], NULL, create, &alone[i]), 0);
    for (int i = 0; i < CREATORS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        sum += alone[i];
    }
    assert_true(sum > 0);
    wr_lock_destroy(&pool.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_creates_took_at_once_is_never_taken_for_that_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
