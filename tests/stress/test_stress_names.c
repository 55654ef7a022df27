/*
 * Threads that ask what ids of pools stand for, while others make and end them, so that what is kept for ids serves
 * other ids again and again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host_support.h"
#include "pool/mempool.h"
#include "sanitized.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <stdatomic.h>

/* A prime number of pools: ids at the same place of different groups have different pools. */
enum { MAKERS = 2, FINDERS = 2, POOLS = 1021, MADE = SANITIZED ? 100000 : 2000000, HELD = 700 };

static wr_mempool pools[POOLS];
static _Atomic wr_mempool_name latest;
static atomic_bool over;

static wr_mempool *pool_of(wr_mempool_name name)
{
    return &pools[(name >> 1) % POOLS];
}

/* Its ids end in another order than they were made in, so that groups of ids end at different times. */
static void *make(void *argument)
{
    static wr_mempool_name held[MAKERS][HELD];
    wr_mempool_name *mine = held[(uintptr_t)argument];
    uint32_t random = 1 + (uint32_t)(uintptr_t)argument;
    for (int i = 0; i < MADE; i++) {
        wr_mempool_name *name = &mine[next_random(&random) % HELD];
        if (*name) wr_mempool_name_end(*name);
        must(wr_mempool_name_new(true, name) == WEIR_OK);
        must(wr_mempool_name_claim(*name, pool_of(*name)) == WEIR_OK);
        atomic_store(&latest, *name);
    }
    for (int i = 0; i < HELD; i++)
        if (mine[i]) wr_mempool_name_end(mine[i]);
    return NULL;
}

static void *ask(void *argument)
{
    uint32_t random = 7 + (uint32_t)(uintptr_t)argument;
    uintptr_t found = 0;
    while (!atomic_load(&over)) {
        const wr_mempool_name newest = atomic_load(&latest);
        const wr_mempool_name back = 2 * (wr_mempool_name)(next_random(&random) % (8 * HELD));
        wr_mempool_name name = 0;
        wr_mempool *pool = NULL;
        if (newest <= back) continue;
        if (wr_mempool_find(wr_mempool_id_of(newest - back), &name, &pool) != WEIR_OK) continue;
        must(!pool || pool == pool_of(newest - back));
        found += pool != NULL;
    }
    return (void *)found;
}

static void an_id_never_stands_for_the_pool_of_another(void **state)
{
    (void)state;
    pthread_t makers[MAKERS], finders[FINDERS];
    void *found = NULL;
    for (uintptr_t i = 0; i < MAKERS; i++) assert_int_equal(pthread_create(&makers[i], NULL, make, (void *)i), 0);
    for (uintptr_t i = 0; i < FINDERS; i++) assert_int_equal(pthread_create(&finders[i], NULL, ask, (void *)i), 0);
    for (int i = 0; i < MAKERS; i++) assert_int_equal(pthread_join(makers[i], NULL), 0);
    atomic_store(&over, true);
    for (int i = 0; i < FINDERS; i++) {
        assert_int_equal(pthread_join(finders[i], &found), 0);
        assert_non_null(found);
    }
    wr_mempool_names_release();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_never_stands_for_the_pool_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
