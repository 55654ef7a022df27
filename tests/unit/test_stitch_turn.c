/*
 * Turns at getting chunks (pool/chunk/stitch_turn.h), and what may be held where threads wait for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "meanwhile_support.h"
#include "pool/chunk/stitch_turn.h"
#include "pool_support.h"

#define BLOCK (16 * MIB)

/* Mapping stops once there is memory for all parts beside the blocks, which is more than may be held. In ROUNDS rounds
 * of a second it takes little of the time. */
enum { BLOCKS = 24, PARTS = 3, PART_BLOCKS = 5, TOGETHER = PARTS * PART_BLOCKS, ROUNDS = 64 };
#define BYTES (BLOCKS * BLOCK)
#define PART (PART_BLOCKS * BLOCK)
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
    void *parts[PARTS];
    for (size_t i = 0; i < TOGETHER; i++) assert_ok(weir_free(j->blocks[(first + i * step) % BLOCKS]));
    for (size_t i = 0; i < PARTS; i++) parts[i] = alloc(PART);
    for (size_t i = 0; i < PARTS; i++) assert_ok(weir_free(parts[i]));
    for (size_t i = 0; i < TOGETHER; i++) j->blocks[(first + i * step) % BLOCKS] = alloc(BLOCK);
    atomic_store(&j->done, true);
    return NULL;
}

static void begin_turn(const wr_front *front)
{
    const wr_request request = { .pool = front->pool, .stream = front->stream };
    wr_stitch_begin_turn(front->cache, &request);
}

static wr_cache *cache_of(const job *j)
{
    return front_of(j->blocks[0])->cache;
}

/* The first request of the round that needs chunks waits so long for another thread's turn; there may be none once more
 * is held. */
static void map_after(job *j, uint64_t waited)
{
    enum { LOOKS_MOST = 10000000 };
    wr_cache *cache = cache_of(j);
    const uint64_t asked = calls_of(WEIR_BACKEND_clock_ns);
    pthread_t thread;
    int looks = 0;
    atomic_store(&j->done, false);
    begin_turn(front_of(j->blocks[0]));
    start(&thread, map_together, j);
    while (calls_of(WEIR_BACKEND_clock_ns) == asked && !atomic_load(&j->done) && looks++ < LOOKS_MOST) sched_yield();
    assert_ok(weir_host_clock_advance(waited));
    wr_stitch_end_turn(cache);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(looks < LOOKS_MOST);
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

/* Only the first request of a round waits. */
static void threads_that_wait_long_for_each_other_hold_more(void **state)
{
    job j;
    (void)state;
    begin(&j);
    run(&j, SECOND);
    assert_in_range(reserved_on(0), BYTES + BLOCK, BYTES + BYTES / 2 + SLACK);
}

/* Each turn takes long here. The rounds are too few to exceed what mapping itself may take. */
static void no_more_than_a_half_is_held_for_that(void **state)
{
    job j;
    (void)state;
    begin(&j);
    assert_ok(weir_host_latency(WEIR_BACKEND_clock_ns, SECOND / 10));
    for (int i = 0; i < ROUNDS / 2; i++) {
        assert_ok(try_detach(front_of(j.blocks[0])));
        (void)map_together(&j);
    }
    assert_in_range(reserved_on(0), BYTES + 2 * PART, BYTES + BYTES / 2 + SLACK);
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
    assert_in_range(reserved_on(0), BYTES, BYTES + PART / 8 + SLACK);
}

static void memory_that_was_given_back_is_not_held_again_at_once(void **state)
{
    job j;
    (void)state;
    begin(&j);
    run(&j, SECOND);
    assert_true(reserved_on(0) > (int64_t)BYTES);
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

/* Such as a thread that gives memory back. */
static void threads_that_wait_for_something_else_hold_no_more(void **state)
{
    const struct timespec long_enough = { 0, 1000000 };
    job j;
    (void)state;
    begin(&j);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        wr_lock_acquire(&cache_of(&j)->move_lock);
        start(&thread, map_together, &j);
        (void)nanosleep(&long_enough, NULL); /* it most likely waits by then */
        assert_ok(weir_host_clock_advance(SECOND));
        wr_lock_release(&cache_of(&j)->move_lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(reserved_on(0), BYTES);
}

/* ---- turns themselves -------------------------------------------------------------------------------------------- */

static void take_turn(const wr_front *front, uint64_t ns)
{
    begin_turn(front);
    assert_ok(weir_host_clock_advance(ns));
    wr_stitch_end_turn(front->cache);
}

static bool is_crowded(const wr_front *front)
{
    begin_turn(front);
    const bool crowded = front->cache->chunks.crowded;
    wr_stitch_end_turn(front->cache);
    return crowded;
}

/* Twenty turns of so long, one after another. */
static void take_turns(const wr_front *front, const wr_front *between, uint64_t ns)
{
    for (int i = 0; i < 20; i++) {
        take_turn(front, ns);
        if (between) take_turn(between, 0);
    }
}

static wr_front *new_front(void)
{
    return front_of(alloc_on(512, new_stream(0)));
}

static void long_turns_count_where_many_want_the_caches_lock(void **state)
{
    (void)state;
    wr_front *front = new_front();
    assert_ok(weir_host_clock_hold(true));
    take_turns(front, NULL, SECOND / 100);
    assert_false(is_crowded(front));
    assert_ok(try_detach(front));
    take_turns(front, NULL, SECOND / 1000);
    assert_false(is_crowded(front)); /* yet */
    take_turns(front, NULL, SECOND / 100);
    assert_true(is_crowded(front));
    assert_false(front->cache->chunks.crowded); /* it is nobody's turn */
}

static void long_turns_count_though_others_follow_that_do_not(void **state)
{
    (void)state;
    wr_front *front = new_front(), *other = new_front();
    assert_ok(weir_host_clock_hold(true));
    assert_ok(try_detach(front));
    take_turns(front, other, SECOND / 100);
    assert_false(is_crowded(other));
    assert_true(is_crowded(front));
}

static void turns_that_are_a_200th_of_the_time_do_not_count(void **state)
{
    (void)state;
    wr_front *front = new_front();
    assert_ok(weir_host_clock_hold(true));
    assert_ok(try_detach(front));
    for (int i = 0; i < 100; i++) {
        take_turn(front, SECOND / 100);
        assert_ok(weir_host_clock_advance(2 * SECOND));
    }
    assert_false(is_crowded(front));
    for (int i = 0; i < 100; i++) {
        take_turn(front, SECOND / 100);
        assert_ok(weir_host_clock_advance(SECOND));
    }
    assert_true(is_crowded(front));
}

#define TURN_TEST(name) cmocka_unit_test_setup_teardown(name, open_large_host, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TURN_TEST(threads_that_wait_long_for_each_other_hold_more),
        TURN_TEST(no_more_than_a_half_is_held_for_that),
        TURN_TEST(threads_that_wait_for_little_of_the_time_hold_no_more),
        TURN_TEST(threads_that_have_waited_once_hold_no_more),
        TURN_TEST(memory_that_was_given_back_is_not_held_again_at_once),
        TURN_TEST(under_a_limit_threads_that_wait_hold_no_more),
        TURN_TEST(threads_that_wait_for_something_else_hold_no_more),
        TURN_TEST(long_turns_count_where_many_want_the_caches_lock),
        TURN_TEST(long_turns_count_though_others_follow_that_do_not),
        TURN_TEST(turns_that_are_a_200th_of_the_time_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
