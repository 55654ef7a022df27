/*
 * What may be held where threads wait until others have got their chunks (pool/chunk/stitch_bounds.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "meanwhile_support.h"
#include "pool_support.h"

#define BLOCK (16 * MIB)

/* Mapping stops with a third more memory. In ROUNDS rounds of a second it takes little of the time. */
enum { BLOCKS = 24, TOGETHER = 8, ROUNDS = 64 };
#define BYTES (BLOCKS * BLOCK)
#define SLACK (BYTES / 40)
#define SECOND UINT64_C(1000000000)

typedef struct job {
    char *blocks[BLOCKS];
    size_t round;
    atomic_bool done;
} job;

static void begin(job *j)
{
    *j = (job){ .round = 0 };
    assert_ok(weir_host_clock_hold(true));
    for (size_t i = 0; i < BLOCKS; i++) j->blocks[i] = alloc(BLOCK);
    assert_int_equal(reserved_on(0), BYTES);
}

/* Maps the memory of blocks together that are not all neighbours, others each time. */
static void *map_together(void *argument)
{
    job *j = argument;
    static const size_t apart[] = { 5, 7, 11, 13 }; /* no divisor of BLOCKS */
    const size_t first = j->round++, step = apart[j->round % 4];
    for (size_t i = 0; i < TOGETHER; i++) assert_ok(weir_free(j->blocks[(first + i * step) % BLOCKS]));
    assert_ok(weir_free(alloc(TOGETHER * BLOCK)));
    for (size_t i = 0; i < TOGETHER; i++) j->blocks[(first + i * step) % BLOCKS] = alloc(BLOCK);
    atomic_store(&j->done, true);
    return NULL;
}

/* The first request of the round that needs chunks waits so long for another thread; there may be none once more is
 * held. */
static void map_after(job *j, uint64_t waited)
{
    wr_cache *cache = front_of(j->blocks[0])->cache;
    const uint64_t asked = calls_of(WEIR_BACKEND_clock_ns);
    pthread_t thread;
    atomic_store(&j->done, false);
    wr_lock_acquire(&cache->move_lock);
    start(&thread, map_together, j);
    while (calls_of(WEIR_BACKEND_clock_ns) == asked && !atomic_load(&j->done)) sched_yield();
    assert_ok(weir_host_clock_advance(waited));
    wr_lock_release(&cache->move_lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void run(job *j, uint64_t waited)
{
    for (int i = 0; i < ROUNDS; i++) {
        map_after(j, waited);
        assert_ok(weir_host_clock_advance(SECOND));
    }
}

static void map_alone(job *j)
{
    for (int i = 0; i < ROUNDS; i++) {
        (void)map_together(j);
        assert_ok(weir_host_clock_advance(SECOND));
    }
}

static void threads_that_wait_long_for_each_other_hold_up_to_half_more(void **state)
{
    job j;
    (void)state;
    begin(&j);
    run(&j, SECOND);
    assert_in_range(reserved_on(0), BYTES + BYTES / 4 + SLACK, BYTES + BYTES / 2 + SLACK);
}

static void threads_that_wait_for_little_of_the_time_hold_no_more(void **state)
{
    job j;
    (void)state;
    begin(&j);
    run(&j, SECOND / 250);
    assert_int_equal(reserved_on(0), BYTES);
}

static void threads_that_have_waited_once_hold_no_more(void **state)
{
    job j;
    (void)state;
    begin(&j);
    map_after(&j, 3600 * SECOND);
    map_alone(&j);
    assert_in_range(reserved_on(0), BYTES, BYTES + TOGETHER * BLOCK / 8 + SLACK);
}

static void memory_that_was_given_back_is_not_held_again_at_once(void **state)
{
    job j;
    (void)state;
    begin(&j);
    run(&j, SECOND);
    assert_in_range(reserved_on(0), BYTES + BYTES / 4, BYTES + BYTES / 2 + SLACK);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), BYTES);
    map_alone(&j);
    assert_in_range(reserved_on(0), BYTES, BYTES + SLACK);
}

static void under_a_limit_threads_that_wait_hold_no_more(void **state)
{
    job j;
    (void)state;
    assert_ok(weir_memory_limit_set(0, BYTES));
    begin(&j);
    run(&j, SECOND);
    assert_int_equal(reserved_on(0), BYTES);
}

#define CROWDED_TEST(name) cmocka_unit_test_setup_teardown(name, open_large_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CROWDED_TEST(threads_that_wait_long_for_each_other_hold_up_to_half_more),
        CROWDED_TEST(threads_that_wait_for_little_of_the_time_hold_no_more),
        CROWDED_TEST(threads_that_have_waited_once_hold_no_more),
        CROWDED_TEST(memory_that_was_given_back_is_not_held_again_at_once),
        CROWDED_TEST(under_a_limit_threads_that_wait_hold_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
