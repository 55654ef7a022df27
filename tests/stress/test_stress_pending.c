/*
 * Threads that free blocks which other streams use: each with a second stream of its own, and all with streams that are
 * shared and end meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, SHARED = 3, FREES = SANITIZED ? 4000 : 50000 };

static weir_stream streams[THREADS][2];
static atomic_uint_fast64_t shared[SHARED];
static atomic_bool over;

static void *use_twice(void *argument)
{
    const weir_stream *own = streams[(uintptr_t)argument];
    for (int i = 0; i < FREES; i++) {
        void *block = NULL;
        must(weir_alloc_on(65536, own[0], &block) == WEIR_OK);
        must(weir_record_stream(block, own[1]) == WEIR_OK);
        must(weir_free(block) == WEIR_OK);
    }
    return NULL;
}

/* A stream that has just ended is refused. */
static void *use_shared(void *argument)
{
    const uintptr_t number = (uintptr_t)argument;
    uint32_t random = 1 + (uint32_t)number;
    for (int i = 0; i < FREES; i++) {
        void *block = NULL;
        must(weir_alloc_on((size_t)512 * (1 + next_random(&random) % 64), streams[number][0], &block) == WEIR_OK);
        for (uint32_t uses = next_random(&random) % 3; uses > 0; uses--)
            (void)!weir_record_stream(block, (weir_stream){ atomic_load(&shared[next_random(&random) % SHARED]) });
        must(weir_free(block) == WEIR_OK);
    }
    return NULL;
}

static uint64_t made(void)
{
    weir_stream stream;
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream) == WEIR_OK);
    return stream.id;
}

static void *end_streams(void *unused)
{
    (void)unused;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        const uint64_t old = atomic_exchange(&shared[i % SHARED], made());
        must(weir_stream_destroy((weir_stream){ old }) == WEIR_OK);
        if (i % 8 == 0) must(weir_empty_cache(0) == WEIR_OK);
        if (i % 8 == 4) must(weir_validate(0) == WEIR_OK);
    }
    return NULL;
}

static void run_all(void *(*one)(void *))
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) must(pthread_create(&threads[i], NULL, one, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) must(pthread_join(threads[i], NULL) == 0);
}

static int open_streams(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < 2; k++) streams[i][k] = new_stream(0);
    for (int i = 0; i < SHARED; i++) atomic_store(&shared[i], made());
    return 0;
}

/* Each thread has one block, whose uses are over at once. If they were found later than more are made, there would be
 * ten thousands of them: memory would run out, for a block for each. */
static void what_is_over_is_found_as_fast_as_more_is_freed(void **state)
{
    (void)state;
    run_all(use_twice);
    const weir_memory_stats stats = stats_of(0);
    assert_in_range(stats.active[WEIR_STAT_ALL].peak, 1, 2000);
    assert_int_equal(stats.alloc_retries + stats.ooms, 0);
    assert_ok(weir_validate(0));
}

static void streams_may_end_while_others_wait_for_them(void **state)
{
    (void)state;
    pthread_t ender;
    atomic_store(&over, false);
    must(pthread_create(&ender, NULL, end_streams, NULL) == 0);
    run_all(use_shared);
    atomic_store(&over, true);
    must(pthread_join(ender, NULL) == 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).reserved_bytes[WEIR_STAT_ALL].current, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_over_is_found_as_fast_as_more_is_freed, open_streams, close_host),
        cmocka_unit_test_setup_teardown(streams_may_end_while_others_wait_for_them, open_streams, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
