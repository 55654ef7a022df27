/*
 * The option `debug` with all its checks, while threads allocate, use and free memory on shared streams: nothing is
 * reported about correct threads, but a wrong one among them is found.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "sanitized.h"
#include "stress_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 4, STREAMS = 3, PASSED = 8 };
#define ROUNDS (SANITIZED ? 300 : 3000)

static weir_stream streams[STREAMS];
static _Atomic(void *) passed[PASSED]; /* blocks on their way from one thread to another */

/* Uses the block on another stream correctly: the block's own stream waits, or the use is recorded. */
static void use_rightly(void *block, size_t bytes, weir_stream home, weir_stream other, bool records)
{
    unsigned char byte;
    must(weir_fill(block, 7, bytes, home) == WEIR_OK);
    must(weir_stream_wait(other, home) == WEIR_OK);
    if (records) must(weir_record_stream(block, other) == WEIR_OK);
    must(weir_copy(&byte, block, 1, other) == WEIR_OK);
    if (!records) must(weir_stream_wait(home, other) == WEIR_OK);
    must(weir_stream_synchronize(other) == WEIR_OK); /* `byte` goes */
}

static void *work(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument + 1;
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t chance = next_random(&random), at = chance % STREAMS;
        const size_t bytes = chance % 20000 + 1;
        void *block = NULL;
        must(weir_alloc_on(bytes, streams[at], &block) == WEIR_OK);
        use_rightly(block, bytes, streams[at], streams[(at + 1) % STREAMS], chance & 64);
        block = atomic_exchange(&passed[chance % PASSED], block);
        must(weir_free(block) == WEIR_OK);
        if (i % 100 == 0) must(weir_empty_cache(0) == WEIR_OK);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) must(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++) must(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < PASSED; i++) assert_ok(weir_free(atomic_exchange(&passed[i], NULL)));
}

static int open_debugged(void **state)
{
    (void)state;
    open_host(
        (weir_settings){ .host_memory = 256 * MIB, .history = 10000, .history_stacks = 8, .debug = "all,streams" });
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(0);
    return 0;
}

static void a_correct_program_is_not_reported(void **state)
{
    (void)state;
    run_threads();
    assert_int_equal(stats_of(0).stream_misuses, 0);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
}

static atomic_bool over;

/* A faulty use: never waits and never records. */
static void *misuse(void *unused)
{
    weir_stream other = new_stream(0);
    (void)unused;
    while (!atomic_load(&over)) {
        void *block = NULL;
        must(weir_alloc_on(40000, streams[0], &block) == WEIR_OK);
        must(weir_fill(block, 1, 1, other) == WEIR_OK); /* so that no red zone of the next block is broken */
        must(weir_free(block) == WEIR_OK);
    }
    must(weir_stream_destroy(other) == WEIR_OK);
    return NULL;
}

static void a_faulty_program_beside_it_is_reported(void **state)
{
    (void)state;
    pthread_t thread;
    const int real = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    must(real >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    atomic_store(&over, false);
    must(pthread_create(&thread, NULL, misuse, NULL) == 0);
    while (stats_of(0).stream_misuses == 0) continue;
    run_threads();
    atomic_store(&over, true);
    must(pthread_join(thread, NULL) == 0);
    must(dup2(real, STDERR_FILENO) >= 0);
    close(real);
    close(nowhere);
    assert_ok(weir_validate(0));
}

static int open_without_caching(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 256 * MIB, .debug = "nosub" });
    return 0;
}

/* Each free makes its address one that another thread may get at once. */
static void *take_and_give(void *unused)
{
    for (int i = 0; i < 10 * ROUNDS; i++) {
        void *block = NULL;
        must(weir_alloc(4096, &block) == WEIR_OK);
        must(weir_free(block) == WEIR_OK);
    }
    return unused;
}

static void without_caching_a_thread_may_free_what_it_has(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) must(pthread_create(&threads[i], NULL, take_and_give, NULL) == 0);
    for (int i = 0; i < THREADS; i++) must(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_correct_program_is_not_reported, open_debugged, close_host),
        cmocka_unit_test_setup_teardown(a_faulty_program_beside_it_is_reported, open_debugged, close_host),
        cmocka_unit_test_setup_teardown(without_caching_a_thread_may_free_what_it_has, open_without_caching,
                                        close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
