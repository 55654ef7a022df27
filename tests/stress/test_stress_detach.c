/*
 * Threads split and coalesce blocks of their streams under the fronts' own locks, half of them in a private pool, two
 * on one stream. They free each other's blocks and record each other's streams, while another thread inspects
 * everything, gives memory back, and makes pools and streams. Each block still has its contents when it is freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "pool_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <unistd.h>

#define MEMORY (768 * MIB)
#define WORKERS 4
#define LIVE 64
#define OPERATIONS (SANITIZED ? 10000 : 200000)

static weir_stream streams[WORKERS];
static weir_mempool shared;
static _Atomic(uint64_t *) passed; /* a block from one thread to another */
static atomic_uint working;

/* The first and last word of a block hold its size. */
static uint64_t *take(size_t words, weir_stream stream)
{
    void *base = NULL;
    must(weir_alloc_on(words * sizeof(uint64_t), stream, &base) == WEIR_OK);
    uint64_t *block = base;
    block[0] = block[words - 1] = words;
    return block;
}

static void give(uint64_t *block)
{
    must(block[block[0] - 1] == block[0]);
    must(weir_free(block) == WEIR_OK);
}

static size_t random_words(uint32_t *random)
{
    const uint32_t fine = next_random(random);
    return 1 + (fine % 32 ? fine / 32 % 16384 : fine / 32 % (256 << 10));
}

static void one_step(uint64_t *live[LIVE], int worker, uint32_t *random)
{
    uint64_t **slot = &live[next_random(random) % LIVE];
    const uint32_t what = next_random(random) % 256;
    if (*slot && what == 0) must(try_detach(front_of(*slot)) == WEIR_OK);
    if (*slot && what == 1) must(weir_record_stream(*slot, streams[(worker + 1) % WORKERS]) == WEIR_OK);
    if (what < 16) *slot = atomic_exchange(&passed, *slot);
    if (*slot) give(*slot);
    *slot = take(random_words(random), streams[worker]);
}

static void *work(void *argument)
{
    const int worker = *(const int *)argument;
    uint32_t random = 2463534242u + (uint32_t)worker;
    uint64_t *live[LIVE] = { NULL };
    if (worker % 2) must(weir_mempool_enter(shared) == WEIR_OK);
    for (int i = 0; i < OPERATIONS; i++) one_step(live, worker, &random);
    for (int i = 0; i < LIVE; i++)
        if (live[i]) give(live[i]);
    if (worker % 2) must(weir_mempool_leave(shared) == WEIR_OK);
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static void look(uint32_t turn)
{
    assert_in_range(stats_of(0).allocation[WEIR_STAT_ALL].current, 0, WORKERS * LIVE + 1);
    assert_in_range(pool_stats(shared).allocation[WEIR_STAT_ALL].current, 0, WORKERS * LIVE + 1);
    assert_ok(weir_validate(0));
    if (turn % 4 == 0) assert_ok(weir_empty_cache(0));
    if (turn % 4 == 1) assert_ok(weir_mempool_empty_cache(shared));
    if (turn % 8 == 0) {
        const weir_mempool pool = make_pool(pool_options(WEIR_MEMORY_DEVICE, "looked at"));
        assert_ok(weir_free(alloc_from(pool, MIB, default_stream(0))));
        assert_ok(weir_mempool_unref(pool));
    }
    if (turn % 2 == 0) {
        const weir_stream stream = new_stream(0);
        void *block = alloc_on(3 * MIB, stream);
        assert_ok(weir_stream_destroy(stream));
        assert_ok(weir_free(block));
    }
}

static void streams_that_are_detached_and_attached_keep_what_is_theirs(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    int numbers[WORKERS];
    open_host((weir_settings){ .host_memory = MEMORY });
    for (int i = 0; i < WORKERS; i++) streams[i] = i == 1 ? streams[0] : new_stream(0);
    shared = make_pool(pool_options(WEIR_MEMORY_DEVICE, "shared"));
    atomic_store(&working, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
    }
    for (uint32_t turn = 0; atomic_load(&working) > 0; turn++) {
        look(turn);
        assert_int_equal(usleep(2000), 0);
    }
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    uint64_t *last = atomic_load(&passed);
    if (last) give(last);
    assert_ok(weir_validate(0));
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_mempool_unref(shared));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_close());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_that_are_detached_and_attached_keep_what_is_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
