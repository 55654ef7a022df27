/*
 * Threads that allocate on one stream at the same time, pass blocks to each other and come and go, while another one
 * looks at everything, empties caches and records events. A block that two of them had at once loses its mark.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "host_support.h"
#include "pool/front/side.h"
#include "sanitized.h"
#include "stress/stress_support.h"
#include "weir/trace.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { WORKERS = 4, LIVE = 24, SIZES = 7, PASSED = 8, GENERATIONS = 3, STEPS = SANITIZED ? 6000 : 60000 };

typedef struct marked {
    uint64_t owner;
    size_t bytes;
} marked;

static weir_stream stream;
static _Atomic(marked *) passed[PASSED]; /* on their way from one thread to another */
static atomic_bool over;
static unsigned any_size_of; /* one in so many threads asks for any size */

/* Mostly of a few sizes, so that sides are of use, or of any, so that they are not, or graded. */
static size_t random_size(uint32_t *random, bool any)
{
    if (any) return (size_t)512 * (1 + next_random(random) % 500);
    if (next_random(random) % 64 == 0) return 2 * MIB + (next_random(random) % 3) * MIB;
    return (size_t)5000 * (1 + next_random(random) % SIZES);
}

static void drop(marked *block, uint64_t owner)
{
    if (!block) return;
    must(block->owner == owner);
    block->owner = 0;
    must(weir_free(block) == WEIR_OK);
}

static marked *take(size_t bytes, uint64_t owner)
{
    void *memory = NULL;
    must(weir_alloc_on(bytes, stream, &memory) == WEIR_OK);
    marked *block = memory;
    *block = (marked){ owner, bytes };
    return block;
}

static void *work(void *argument)
{
    const uint64_t owner = (uintptr_t)argument;
    uint32_t random = (uint32_t)owner;
    marked *live[LIVE] = { NULL };
    for (int i = 0; i < STEPS; i++) {
        marked **at = &live[next_random(&random) % LIVE];
        drop(*at, owner);
        *at = take(random_size(&random, owner % any_size_of == 0), owner);
        if (next_random(&random) % 8) continue;
        (*at)->owner = UINT64_MAX;
        drop(atomic_exchange(&passed[next_random(&random) % PASSED], *at), UINT64_MAX);
        *at = NULL;
    }
    for (int i = 0; i < LIVE; i++) drop(live[i], owner);
    return NULL;
}

static void *look(void *unused)
{
    weir_memory_stats stats = { .size = sizeof stats };
    (void)unused;
    for (int i = 0; !atomic_load(&over); i++) {
        must(weir_stats_get(0, &stats) == WEIR_OK);
        if (i % 4 == 1) must(weir_validate(0) == WEIR_OK);
        if (i % 8 == 2) must(weir_empty_cache(0) == WEIR_OK);
        if (i % 32 == 3) must(weir_history_start(1000, 0) == WEIR_OK);
        if (i % 32 == 19) must(weir_history_stop() == WEIR_OK);
        for (int n = 0; n < 50; n++) sched_yield();
    }
    return NULL;
}

static int open_stream(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 512 * MIB });
    stream = new_stream(0);
    return 0;
}

static void share_the_stream(void)
{
    pthread_t workers[WORKERS], looker;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&looker, NULL, look, NULL), 0);
    for (uintptr_t i = 0; i < (uintptr_t)WORKERS * GENERATIONS; i++) {
        if (i >= WORKERS) pthread_join(workers[i % WORKERS], NULL);
        assert_int_equal(pthread_create(&workers[i % WORKERS], NULL, work, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    atomic_store(&over, true);
    pthread_join(looker, NULL);
    for (int i = 0; i < PASSED; i++) drop(atomic_exchange(&passed[i], NULL), UINT64_MAX);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

static void blocks_of_threads_that_share_a_stream_are_theirs_alone(void **state)
{
    (void)state;
    any_size_of = 5;
    share_the_stream();
}

static void blocks_of_threads_whose_sizes_hardly_ever_come_again_are_theirs_alone(void **state)
{
    (void)state;
    any_size_of = 1;
    share_the_stream();
}

/* ---- one block that two threads free at the same moment, each into its own side ---------------------------------- */

enum { TURNS = 500, ROUNDS = SANITIZED ? 5000 : 200000 };

static atomic_int turn, freed;
static void *_Atomic contested;

/* Spins, so that both begin at the same moment, unless the other one needs the processor. */
static void await_turn(int value)
{
    for (int i = 1; atomic_load(&turn) != value; i++)
        if (i % 1000 == 0) sched_yield();
}

static void get_a_side(int number)
{
    for (int i = 0; i < TURNS; i++) {
        await_turn(2 * i + number);
        drop(take(65536, 1), 1);
        atomic_fetch_add(&turn, 1);
    }
}

static void try_to_free(void)
{
    const weir_status status = weir_free(atomic_load(&contested));
    must(status == WEIR_OK || status == WEIR_ERR_DOUBLE_FREE);
    if (status == WEIR_OK) atomic_fetch_add(&freed, 1);
}

static void *free_as_well(void *unused)
{
    (void)unused;
    get_a_side(1);
    for (int i = 0; i < ROUNDS; i++) {
        await_turn(2 * (TURNS + i) + 1);
        try_to_free();
        atomic_fetch_add(&turn, 1);
    }
    return NULL;
}

static int sides_beside(const void *block)
{
    int count = 0;
    for (const wr_front *f = wr_front_beside(front_of(block)); f; f = wr_front_beside(f)) count++;
    return count;
}

/* Where locks cannot be biased there are no sides. */
static void of_two_sides_one_gets_a_block_that_both_free(void **state)
{
    (void)state;
    pthread_t other;
    if (!wr_bias_prepare_thread()) skip();
    assert_int_equal(pthread_create(&other, NULL, free_as_well, NULL), 0);
    get_a_side(0);
    for (int i = 0; i < ROUNDS; i++) {
        await_turn(2 * (TURNS + i));
        must(atomic_load(&freed) == i);
        atomic_store(&contested, take(65536, 2));
        if (i == 0) must(sides_beside(atomic_load(&contested)) == 2);
        atomic_fetch_add(&turn, 1);
        for (int late = i % 50; late > 0; late--)
            (void)atomic_load(&freed); /* about as late as the other one sees it */
        try_to_free();
        if (i % 64 == 0) must(weir_validate(0) == WEIR_OK); /* fronts close and open meanwhile */
    }
    pthread_join(other, NULL);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_of_threads_that_share_a_stream_are_theirs_alone, open_stream,
                                        close_host),
        cmocka_unit_test_setup_teardown(blocks_of_threads_whose_sizes_hardly_ever_come_again_are_theirs_alone,
                                        open_stream, close_host),
        cmocka_unit_test_setup_teardown(of_two_sides_one_gets_a_block_that_both_free, open_stream, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
