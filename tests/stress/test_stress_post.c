/*
 * Threads that allocate on streams of their own, and threads that free what those hand over, while another one looks at
 * everything, empties caches and pauses pools, and streams end. A block that is reused too early loses its mark.
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
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { MAKERS = 3, BREAKERS = 2, ROOM = 512, BLOCKS = SANITIZED ? 6000 : 60000, STREAM_LASTS = 4000 };

typedef struct marked {
    uint64_t mark;
    size_t bytes;
} marked;

/* From every maker to every breaker: a block's pointer, or NULL. */
static _Atomic(marked *) rooms[MAKERS][ROOM];
static atomic_bool over;
static weir_mempool pool;

static size_t random_size(uint32_t *random)
{
    return next_random(random) % 16 ? 512 * (1 + next_random(random) % 6) : (1 + next_random(random) % 40) * 100000;
}

static void hand_over(unsigned number, size_t at, marked *block)
{
    marked *none = NULL;
    while (!atomic_compare_exchange_weak(&rooms[number][at % ROOM], &none, block)) {
        none = NULL;
        sched_yield();
    }
}

/* Some of its blocks it frees itself. Its streams end while others still have blocks of them. */
static void *make(void *argument)
{
    const unsigned number = (unsigned)(uintptr_t)argument;
    uint32_t random = 1 + number;
    weir_stream stream = { 0 };
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % STREAM_LASTS == 0) {
            if (stream.id) must(weir_stream_destroy(stream) == WEIR_OK);
            must(weir_stream_create(0, 0, &stream) == WEIR_OK);
        }
        void *memory = NULL;
        const size_t bytes = random_size(&random);
        const bool of_pool = number == 0;
        weir_status status;
        do status = of_pool ? weir_alloc_from(pool, bytes, stream, &memory) : weir_alloc_on(bytes, stream, &memory);
        while (status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_BUSY); /* the pool is paused */
        must(status == WEIR_OK);
        marked *block = memory;
        if (of_pool || next_random(&random) % 4) {
            /* What lies in a pool that may be paused is not touched. */
            if (!of_pool) *block = (marked){ (uintptr_t)block ^ bytes, bytes };
            hand_over(number, i, block);
        } else {
            must(weir_free(block) == WEIR_OK);
        }
    }
    must(weir_stream_destroy(stream) == WEIR_OK);
    return NULL;
}

static void *break_up(void *argument)
{
    uint32_t random = 77 + (uint32_t)(uintptr_t)argument;
    bool last = false;
    while (!last) {
        last = atomic_load(&over); /* then everything has been handed over */
        for (size_t n = 0; n < (last ? ROOM * MAKERS : 256); n++) {
            const size_t at = last ? n : next_random(&random) % (ROOM * MAKERS);
            marked *block = atomic_exchange(&rooms[at / ROOM][at % ROOM], NULL);
            if (!block) continue;
            if (at / ROOM != 0) {
                must(block->mark == ((uintptr_t)block ^ block->bytes));
                block->mark = 0;
            }
            must(weir_free(block) == WEIR_OK);
        }
    }
    return NULL;
}

static void *look(void *argument)
{
    weir_memory_stats stats = { .size = sizeof stats };
    (void)argument;
    for (int i = 0; !atomic_load(&over); i++) {
        must(weir_stats_get(0, &stats) == WEIR_OK);
        if (i % 4 == 1) must(weir_validate(0) == WEIR_OK);
        if (i % 8 == 2) must(weir_empty_cache(0) == WEIR_OK);
        if (i % 16 == 3) {
            must(weir_pause(0, "pool", WEIR_PAUSE_KEEP) == WEIR_OK);
            must(weir_resume(0, "pool") == WEIR_OK);
        }
        sched_yield();
    }
    return NULL;
}

static void what_others_free_is_free_once(void **state)
{
    (void)state;
    pthread_t makers[MAKERS], breakers[BREAKERS], looker;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = WEIR_MEMORY_MAPPED;
    snprintf(options.tag, sizeof options.tag, "pool");
    open_host((weir_settings){ .host_memory = 512 * MIB });
    assert_ok(weir_mempool_create(&options, &pool));
    for (uintptr_t i = 0; i < MAKERS; i++) assert_int_equal(pthread_create(&makers[i], NULL, make, (void *)i), 0);
    for (uintptr_t i = 0; i < BREAKERS; i++)
        assert_int_equal(pthread_create(&breakers[i], NULL, break_up, (void *)i), 0);
    assert_int_equal(pthread_create(&looker, NULL, look, NULL), 0);
    for (int i = 0; i < MAKERS; i++) pthread_join(makers[i], NULL);
    atomic_store(&over, true);
    for (int i = 0; i < BREAKERS; i++) pthread_join(breakers[i], NULL);
    pthread_join(looker, NULL);
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_mempool_unref(pool));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_ok(weir_close());
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_others_free_is_free_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
