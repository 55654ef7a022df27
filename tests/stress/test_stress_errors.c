/*
 * Programs with errors: threads free what others have freed, or free at the same moment, record streams on it, ask
 * about it and free inside of it, while streams end and another thread looks at everything and empties caches. Nobody
 * knows which of two frees is the wrong one, so blocks are not looked into. Each call must say what is wrong, if
 * anything, and weir's structures must stay as they should be: in the end each block can be freed once, and nothing is
 * left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "detach_support.h"
#include "graph_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"
#include "weir/trace.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { WORKERS = 4, KNOWN = 24, STREAMS = 3, STEPS = SANITIZED ? 12000 : 30000, BLOCKS_MOST = 16384 };

/* What a test's threads do. */
typedef struct plan {
    const char *policy;
    unsigned streams;  /* that they allocate on; 1: they share it */
    bool ends_streams; /* now and then one ends, and another takes its place */
    bool detaches;     /* fronts are detached all the time */
    bool uses_a_pool;  /* a private pool comes and goes */
    bool captures;     /* one more stream, which does not end, is captured again and again */
    const char *debug;
} plan;

static plan now;
static _Atomic(uint64_t) streams[STREAMS + 1];
static _Atomic(char *) known[KNOWN]; /* pointers, freed or not */
static _Atomic(uint64_t) passing;    /* a private pool, which may be gone */
static atomic_bool over;

static bool is_one_of(weir_status status, weir_status a, weir_status b, weir_status c)
{
    return status == WEIR_OK || status == WEIR_ERR_UNKNOWN_POINTER || status == a || status == b || status == c;
}

static weir_stream random_stream(uint32_t *random)
{
    return (weir_stream){ atomic_load(&streams[next_random(random) % (now.streams + now.captures)]) };
}

static char *random_pointer(uint32_t *random)
{
    return atomic_load(&known[next_random(random) % KNOWN]);
}

static size_t random_size(uint32_t *random)
{
    const uint32_t kind = next_random(random) % 16;
    if (kind == 0) return MIB * (1 + next_random(random) % 6);
    return (size_t)512 * (1 + (kind < 12 ? next_random(random) % 4 : next_random(random) % 800));
}

static void free_it(void *pointer)
{
    const weir_status corrupt = now.debug ? WEIR_ERR_CORRUPT : WEIR_OK; /* where it was, another block's end is now */
    must(is_one_of(weir_free(pointer), WEIR_ERR_DOUBLE_FREE, WEIR_ERR_INVALID_ARGUMENT, corrupt));
}

static weir_status take(size_t bytes, uint32_t *random, void **out)
{
    const weir_mempool pool = { 0, atomic_load(&passing) };
    if (pool.user && next_random(random) % 4 == 0) return weir_alloc_from(pool, bytes, random_stream(random), out);
    return weir_alloc_on(bytes, random_stream(random), out);
}

static void allocate(uint32_t *random)
{
    void *memory = NULL;
    const weir_status status = take(random_size(random), random, &memory);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_INVALID_STREAM ||
         status == WEIR_ERR_POOL_MISMATCH || status == WEIR_ERR_BUSY ||
         (now.captures && status == WEIR_ERR_CAPTURE)); /* which is just ending */
    if (status != WEIR_OK) return;
    char *old = atomic_exchange(&known[next_random(random) % KNOWN], memory);
    if (next_random(random) % 32) free_it(old); /* else it is forgotten */
}

static void ask_about(const char *pointer)
{
    weir_pointer_info info = { .size = sizeof info };
    must(is_one_of(weir_pointer_info_get(pointer, &info), WEIR_ERR_DOUBLE_FREE, WEIR_OK, WEIR_OK));
}

static void record(const char *pointer, weir_stream stream)
{
    must(is_one_of(weir_record_stream(pointer, stream), WEIR_ERR_DOUBLE_FREE, WEIR_ERR_INVALID_STREAM, WEIR_OK));
}

static void free_twice(void *pointer)
{
    free_it(pointer);
    free_it(pointer);
}

static void do_something(uint32_t *random)
{
    char *pointer = random_pointer(random);
    switch (next_random(random) % 16) {
    case 0: ask_about(pointer); break;
    case 1: record(pointer, random_stream(random)); break;
    case 2: free_it(pointer ? pointer + 512 : NULL); break;
    case 3: free_twice(pointer); break;
    case 4:
    case 5:
    case 6:
    case 7: free_it(pointer); break;
    default: allocate(random);
    }
}

static void *work(void *argument)
{
    uint32_t random = 1 + (uint32_t)(uintptr_t)argument;
    for (int i = 0; i < STEPS; i++) do_something(&random);
    return NULL;
}

static void change_a_stream(uint32_t *random)
{
    weir_stream made = { 0 };
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &made) == WEIR_OK);
    const weir_stream old = { atomic_exchange(&streams[next_random(random) % now.streams], made.id) };
    must(weir_stream_destroy(old) == WEIR_OK);
}

static void detach_one(const char *pointer)
{
    wr_front *front = front_of(pointer);
    if (front && !wr_front_is_side(front)) (void)!try_detach(front);
}

static void change_the_pool(void)
{
    weir_mempool pool = { 0, 0 };
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = WEIR_MEMORY_MAPPED;
    snprintf(options.tag, sizeof options.tag, "pool");
    must(weir_mempool_create(&options, &pool) == WEIR_OK);
    const weir_mempool old = { 0, atomic_exchange(&passing, pool.user) };
    if (old.user) must(weir_mempool_unref(old) == WEIR_OK);
}

/* No work uses it, and nobody looks into its blocks. */
static void pause_the_pool(void)
{
    must(weir_pause(0, "pool", WEIR_PAUSE_DROP) == WEIR_OK);
    must(weir_resume(0, "pool") == WEIR_OK);
}

static void *capture(void *unused)
{
    (void)unused;
    while (!atomic_load(&over) && now.captures) {
        weir_graph graph = { 0 };
        must(try_begin((weir_stream){ atomic_load(&streams[now.streams]) }, (weir_mempool){ 0, 0 }, &graph) == WEIR_OK);
        for (int n = 0; n < 20; n++) sched_yield();
        must(weir_graph_end(graph) == WEIR_OK);
        must(weir_graph_destroy(graph) == WEIR_OK);
    }
    return NULL;
}

static void look_at_blocks(void)
{
    static weir_block_info blocks[BLOCKS_MOST];
    size_t count = 0;
    must(weir_mempool_blocks((weir_mempool){ 0, 0 }, blocks, BLOCKS_MOST, &count) == WEIR_OK);
}

static void *look(void *unused)
{
    uint32_t random = 99;
    weir_memory_stats stats = { .size = sizeof stats };
    (void)unused;
    for (unsigned i = 0; !atomic_load(&over); i++) {
        must(weir_stats_get(0, &stats) == WEIR_OK);
        if (i % 4 == 1) must(weir_validate(0) == WEIR_OK);
        if (i % 8 == 2) must(weir_empty_cache(0) == WEIR_OK);
        if (i % 8 == 3) look_at_blocks();
        if (i % 64 == 4) must(weir_history_start(1000, 0) == WEIR_OK);
        if (i % 64 == 36) must(weir_history_stop() == WEIR_OK);
        if (i % 4 == 2 && now.ends_streams) change_a_stream(&random);
        if (i % 8 == 5 && now.uses_a_pool) change_the_pool();
        if (i % 8 == 7 && now.uses_a_pool) pause_the_pool();
        for (int n = 0; n < 50; n++) {
            if (now.detaches) detach_one(random_pointer(&random));
            sched_yield();
        }
    }
    return NULL;
}

/* What the threads have forgotten. */
static void free_what_is_live(weir_mempool pool)
{
    static weir_block_info blocks[BLOCKS_MOST];
    size_t count = 0;
    assert_ok(weir_mempool_blocks(pool, blocks, BLOCKS_MOST, &count));
    assert_true(count <= BLOCKS_MOST);
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].state != WEIR_BLOCK_LIVE) continue;
        assert_ok(weir_free(blocks[i].base));
        assert_status(weir_free(blocks[i].base), WEIR_ERR_DOUBLE_FREE);
    }
}

static void forget_what_is_known(void)
{
    for (int i = 0; i < KNOWN; i++) atomic_store(&known[i], NULL);
}

static void let_them_err(void **state)
{
    (void)state;
    pthread_t workers[WORKERS], looker, capturer;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&looker, NULL, look, NULL), 0);
    assert_int_equal(pthread_create(&capturer, NULL, capture, NULL), 0);
    for (uintptr_t i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&workers[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    atomic_store(&over, true);
    pthread_join(looker, NULL);
    pthread_join(capturer, NULL);
    for (int i = 0; i < KNOWN; i++) free_it(atomic_load(&known[i]));
    forget_what_is_known();
    (void)weir_history_stop();
    free_what_is_live((weir_mempool){ 0, 0 });
    assert_ok(weir_device_synchronize(0));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    const uint64_t pool = atomic_exchange(&passing, 0);
    if (pool) assert_ok(weir_mempool_unref((weir_mempool){ 0, pool }));
    if (now.uses_a_pool || now.captures) return; /* pools that went may have blocks that nobody knows */
    assert_int_equal(stats_of(0).allocation[WEIR_STAT_ALL].current, 0);
    assert_int_equal(reserved_on(0), 0);
}

static int open_for(void **state)
{
    now = *(const plan *)*state;
    open_host((weir_settings){ .policy = now.policy, .debug = now.debug, .host_memory = 2048 * MIB });
    for (unsigned i = 0; i < now.streams + now.captures; i++) atomic_store(&streams[i], new_stream(0).id);
    return 0;
}

#define TEST(name, ...)                                                                                                \
    {                                                                                                                  \
        name, let_them_err, open_for, close_host, &(plan)                                                              \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST("threads that share a stream may err", "weir", .streams = 1),
        TEST("threads that use several streams may err", "weir", .streams = STREAMS),
        TEST("threads whose streams end may err", "weir", .streams = STREAMS, .ends_streams = true),
        TEST("threads that use detached fronts may err", "weir", .streams = STREAMS, .detaches = true),
        TEST("threads that share a pool that goes may err", "weir", .streams = 2, .uses_a_pool = true),
        TEST("threads may err beside captures", "weir", .streams = STREAMS, .ends_streams = true, .captures = true),
        TEST("threads may err under all checks", "weir", .streams = 2, .ends_streams = true, .debug = "all"),
        TEST("threads may err in segments", "segments", .streams = 2, .ends_streams = true, .uses_a_pool = true),
        TEST("threads may err in PyTorch's pools", "torch", .streams = 2, .ends_streams = true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
