/*
 * Threads allocate, record and free in pools that another thread keeps pausing and resuming, while others empty the
 * cache, end streams, give devices access, export and import. Blocks of pools that keep their contents must keep them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <unistd.h>

#define CYCLES (SANITIZED ? 25 : 100)
#define WORKERS 4
#define HELD 24
#define KEPT 8

static weir_mempool pools[3]; /* mapped, exportable, deterministic */
static atomic_bool over;
static atomic_uint refused, served;

/* Allocating may be refused, because memory of ended streams is reused only when memory is short. Freeing never is. The
 * memory is not touched: it may be paused at any time. */
static void work_once(void **held, uint32_t *random, weir_stream own, weir_stream other)
{
    void **slot = &held[next_random(random) % HELD];
    if (*slot) {
        if (next_random(random) % 3 == 0) must(weir_record_stream(*slot, other) == WEIR_OK);
        must(weir_free(*slot) == WEIR_OK);
        *slot = NULL;
        return;
    }
    const uint32_t n = next_random(random);
    weir_status status = weir_alloc_from(pools[n % 3], n % 7 ? 1 + n % 50000 : 3 * MIB, own, slot);
    must(status == WEIR_OK || ((status == WEIR_ERR_BUSY || status == WEIR_ERR_OUT_OF_MEMORY) && !*slot));
    atomic_fetch_add(status == WEIR_OK ? &served : &refused, 1);
}

static void *work(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument;
    void *held[HELD] = { NULL };
    while (!atomic_load(&over)) {
        weir_stream own = { 0 }, other = { 0 };
        must(weir_stream_create(0, 0, &own) == WEIR_OK && weir_stream_create(0, 0, &other) == WEIR_OK);
        for (int i = 0; i < 300 && !atomic_load(&over); i++) work_once(held, &random, own, other);
        must(weir_stream_destroy(own) == WEIR_OK && weir_stream_destroy(other) == WEIR_OK);
    }
    for (int i = 0; i < HELD; i++) must(weir_free(held[i]) == WEIR_OK);
    return NULL;
}

static void *disturb(void *argument)
{
    (void)argument;
    weir_export_part part;
    uint64_t offset = 0;
    size_t count = 0;
    for (int i = 0; !atomic_load(&over); i++) {
        void *block = NULL, *base = NULL;
        must(weir_empty_cache(0) == WEIR_OK);
        must(weir_validate(0) == WEIR_OK);
        must(weir_device_enable_peer(1 + i % 2, 0) == WEIR_OK);
        weir_status status = weir_alloc_from(pools[1], 1000, WEIR_STREAM_CURRENT, &block);
        if (status == WEIR_OK && weir_export(block, &part, 1, &count, &offset) == WEIR_OK) {
            must(weir_import(1, &part, 1, &base) == WEIR_OK);
            close(part.descriptor);
            must(weir_import_close(base) == WEIR_OK);
            must(weir_import_close(base) == WEIR_ERR_UNKNOWN_POINTER);
        }
        must(weir_free(block) == WEIR_OK);
    }
    return NULL;
}

static void pause_all_the_time(void)
{
    static const size_t sizes[KEPT] = { 100, 5000, 70000, 1000000, 2000, 3 * MIB, 512, 1500000 };
    void *kept[KEPT];
    for (unsigned i = 0; i < KEPT; i++) {
        kept[i] = alloc_from(pools[i % 2], sizes[i], WEIR_STREAM_CURRENT);
        write_pattern(kept[i], sizes[i], i);
    }
    for (unsigned cycle = 0; cycle < CYCLES; cycle++) {
        assert_ok(weir_pause(0, cycle % 2 ? "a" : NULL, WEIR_PAUSE_KEEP));
        if (cycle % 5 == 0) assert_ok(weir_validate(0));
        assert_ok(weir_resume(0, cycle % 3 ? NULL : "a"));
        for (unsigned i = 0; i < KEPT; i++)
            if (!has_pattern(kept[i], sizes[i], i)) fail_msg("cycle %u: block %u is not what it was", cycle, i);
    }
    for (unsigned i = 0; i < KEPT; i++) assert_ok(weir_free(kept[i]));
}

static void pausing_among_other_threads_loses_nothing(void **state)
{
    (void)state;
    pthread_t threads[WORKERS + 1];
    open_host((weir_settings){ .host_memory = 512 * MIB, .host_devices = 3 });
    const uint64_t left = free_memory(0);
    pools[0] = make_pool(pool_options(WEIR_MEMORY_MAPPED, "a"));
    pools[1] = make_pool(pool_options(WEIR_MEMORY_EXPORTABLE, "a"));
    weir_mempool_options options = pool_options(WEIR_MEMORY_MAPPED, "a");
    options.deterministic = true;
    pools[2] = make_pool(options);
    atomic_store(&over, false);
    for (uintptr_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    assert_int_equal(pthread_create(&threads[WORKERS], NULL, disturb, NULL), 0);
    pause_all_the_time();
    atomic_store(&over, true);
    for (int i = 0; i <= WORKERS; i++) pthread_join(threads[i], NULL);

    assert_true(atomic_load(&served) > 100);
    for (int i = 0; i < 3; i++) assert_ok(weir_mempool_unref(pools[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(stats_of(0).paused_bytes, 0);
    assert_int_equal(free_memory(0), left);
    assert_int_equal(calls_of(WEIR_BACKEND_pinned_alloc), calls_of(WEIR_BACKEND_pinned_free));
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
}

/* Two threads that pause and resume the same pools may be refused, and nothing worse. */
static void *pause_and_resume(void *argument)
{
    (void)argument;
    for (int i = 0; i < CYCLES; i++) {
        must(weir_pause(0, "a", WEIR_PAUSE_KEEP) == WEIR_OK);
        must(weir_resume(0, "a") == WEIR_OK);
    }
    return NULL;
}

static void two_threads_may_pause_the_same_pools(void **state)
{
    (void)state;
    pthread_t threads[3];
    open_host((weir_settings){ .host_memory = 512 * MIB });
    void *block = alloc_from(make_pool(pool_options(WEIR_MEMORY_MAPPED, "a")), 3 * MIB, WEIR_STREAM_CURRENT);
    write_pattern(block, 3 * MIB, 5);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, pause_and_resume, NULL), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_true(has_pattern(block, 3 * MIB, 5));
    assert_int_equal(stats_of(0).paused_bytes, 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
}

/* Streams fill and check freed memory by calls that the pausing thread knows nothing of. */
static void debugging_touches_nothing_that_is_paused(void **state)
{
    (void)state;
    pthread_t threads[2];
    open_host((weir_settings){ .host_memory = 512 * MIB, .debug = "redzone,poison" });
    for (int i = 0; i < 3; i++) pools[i] = make_pool(pool_options(WEIR_MEMORY_MAPPED, "a"));
    atomic_store(&over, false);
    for (uintptr_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < 10 * CYCLES; i++) {
        assert_ok(weir_pause(0, "a", i % 2 ? WEIR_PAUSE_DROP : WEIR_PAUSE_KEEP));
        assert_ok(weir_resume(0, "a"));
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pausing_among_other_threads_loses_nothing),
        cmocka_unit_test(two_threads_may_pause_the_same_pools),
        cmocka_unit_test(debugging_touches_nothing_that_is_paused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
