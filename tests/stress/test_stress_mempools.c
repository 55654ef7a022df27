/*
 * Many threads make, enter, share, route to, open again and drop memory pools on a small device, while blocks pass
 * between threads and outlive their pools. Overlapping blocks destroy a mark; a missing reference loses a pool in use;
 * an extra one leaves memory behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "host_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 8
#define ROUNDS 300
#define SHARED 3
#define KEPT 16

/* Blocks that any thread may take out and free; a mark is written at both ends. */
static struct {
    pthread_mutex_t mutex;
    unsigned char *blocks[KEPT];
    size_t bytes[KEPT];
} shelf = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static weir_mempool shared[SHARED];
static weir_stream streams[2];
static atomic_uint_fast64_t passing; /* a thread's own pool, which any other thread may name at any later time */

static void put_mark(unsigned char *block, size_t bytes)
{
    memcpy(block, &bytes, sizeof bytes);
    memcpy(block + bytes - sizeof bytes, &bytes, sizeof bytes);
}

static void free_marked(unsigned char *block, size_t bytes)
{
    must(memcmp(block, &bytes, sizeof bytes) == 0 && memcmp(block + bytes - sizeof bytes, &bytes, sizeof bytes) == 0);
    must(weir_free(block) == WEIR_OK);
}

/* Puts the block on the shelf and frees the one that lay there, whoever made it. */
static void keep(unsigned char *block, size_t bytes, uint32_t *random)
{
    const uint32_t place = next_random(random) % KEPT;
    put_mark(block, bytes);
    pthread_mutex_lock(&shelf.mutex);
    unsigned char *old = shelf.blocks[place];
    const size_t old_bytes = shelf.bytes[place];
    shelf.blocks[place] = block;
    shelf.bytes[place] = bytes;
    pthread_mutex_unlock(&shelf.mutex);
    if (old) free_marked(old, old_bytes);
}

static void allocate(const weir_mempool *from, uint32_t *random)
{
    void *block = NULL;
    const weir_stream stream = streams[next_random(random) % 2];
    const size_t bytes = 16 + next_random(random) % (next_random(random) % 8 ? 100000 : 4 * MIB);
    weir_status status = from ? weir_alloc_from(*from, bytes, stream, &block) : weir_alloc_on(bytes, stream, &block);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status == WEIR_OK) keep(block, bytes, random);
}

static void ask_a_pool_that_goes(uint32_t *random)
{
    void *block = NULL;
    const weir_mempool pool = { 0, atomic_load(&passing) };
    const size_t bytes = 16 + next_random(random) % 100000;
    if (!pool.user) return;
    const weir_status status = weir_alloc_from(pool, bytes, streams[next_random(random) % 2], &block);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_POOL_MISMATCH);
    if (status == WEIR_OK) keep(block, bytes, random);
}

static void use_a_pool_of_ones_own(uint32_t *random)
{
    weir_mempool pool = { 0, 0 };
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = next_random(random) % 2 ? WEIR_MEMORY_MAPPED : WEIR_MEMORY_DEVICE;
    options.use_on_oom = next_random(random) % 2;
    options.alignment = next_random(random) % 2 ? 4096 : 0;
    must(weir_mempool_create(&options, &pool) == WEIR_OK);
    atomic_store(&passing, pool.user);
    must(weir_mempool_enter(pool) == WEIR_OK);
    for (int i = 0; i < 4; i++) allocate(NULL, random);
    must(weir_mempool_leave(pool) == WEIR_OK);
    must(weir_mempool_unref(pool) == WEIR_OK);
    /* The pool is gone, or stays with blocks of the shelf until another thread frees them. */
    weir_status status = weir_mempool_ref(pool);
    must(status == WEIR_OK || status == WEIR_ERR_POOL_MISMATCH);
    if (status != WEIR_OK) return;
    allocate(&pool, random);
    must(weir_mempool_unref(pool) == WEIR_OK);
}

static bool odd(void *user, weir_stream stream, size_t bytes)
{
    (void)user, (void)stream;
    return bytes % 2 == 1;
}

static void change_routes(uint32_t *random)
{
    static const weir_mempool none = { 0, 0 };
    const weir_mempool pool = shared[next_random(random) % SHARED];
    const weir_stream stream = streams[next_random(random) % 2];
    switch (next_random(random) % 4) {
    case 0: must(weir_mempool_route_stream(pool, stream) == WEIR_OK); break;
    case 1: must(weir_mempool_route_stream(none, stream) == WEIR_OK); break;
    case 2:
        must(weir_mempool_route_filter(pool, odd, random) == WEIR_OK);
        allocate(NULL, random);
        must(weir_mempool_unroute_filter(pool, odd, random) == WEIR_OK);
        break;
    default: {
        weir_status status = weir_mempool_empty_cache(pool);
        must(status == WEIR_OK);
    }
    }
}

static void *work(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 977 + 1;
    for (int i = 0; i < ROUNDS; i++) {
        const weir_mempool pool = shared[next_random(&random) % SHARED];
        must(weir_mempool_enter(pool) == WEIR_OK);
        allocate(NULL, &random);
        if (next_random(&random) % 4 == 0) use_a_pool_of_ones_own(&random);
        must(weir_mempool_leave(pool) == WEIR_OK);
        allocate(&pool, &random);
        for (int k = 0; k < 4; k++) ask_a_pool_that_goes(&random);
        if (next_random(&random) % 4 == 0) change_routes(&random);
        if (next_random(&random) % 16 == 0) must(weir_empty_cache(0) == WEIR_OK);
        if (next_random(&random) % 16 == 0) must(weir_validate(0) == WEIR_OK);
    }
    return NULL;
}

static void pools_come_and_go_while_their_blocks_pass_between_threads(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    static const weir_mempool none = { 0, 0 };
    open_host((weir_settings){ .host_memory = 192 * MIB });
    for (int i = 0; i < SHARED; i++) {
        weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
        options.device = 0;
        assert_ok(weir_mempool_create(&options, &shared[i]));
    }
    for (int i = 0; i < 2; i++) streams[i] = new_stream(0);
    for (uintptr_t i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);

    for (int i = 0; i < 2; i++) assert_ok(weir_mempool_route_stream(none, streams[i]));
    for (int i = 0; i < KEPT; i++)
        if (shelf.blocks[i]) free_marked(shelf.blocks[i], shelf.bytes[i]);
    for (int i = 0; i < SHARED; i++) {
        weir_mempool_info info = { .size = sizeof info };
        assert_ok(weir_mempool_info_get(shared[i], &info));
        assert_int_equal(info.references, 1);
        assert_ok(weir_mempool_unref(shared[i]));
        assert_status(weir_mempool_ref(shared[i]), WEIR_ERR_POOL_MISMATCH);
    }
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    close_host(NULL);
}

static atomic_bool over;

/* Requests that fail, and checkpoints, of a pool that may go, and its record be another pool's, at any time. */
static void *ask_too_much(void *argument)
{
    (void)argument;
    while (!atomic_load(&over)) {
        const weir_mempool pool = { 0, atomic_load(&passing) };
        weir_checkpoint *checkpoint = NULL;
        void *block = NULL;
        weir_status status = weir_alloc_from(pool, 100 * MIB, WEIR_STREAM_CURRENT, &block);
        must(status == WEIR_ERR_OUT_OF_MEMORY || status == WEIR_ERR_POOL_MISMATCH);
        status = weir_mempool_checkpoint(pool, &checkpoint);
        must(status == WEIR_OK || status == WEIR_ERR_POOL_MISMATCH || status == WEIR_ERR_INVALID_ARGUMENT);
        weir_checkpoint_destroy(checkpoint);
    }
    return NULL;
}

static void pools_go_while_requests_of_them_fail_and_checkpoints_are_taken(void **state)
{
    (void)state;
    pthread_t threads[2];
    weir_mempool pool = { 0, 0 };
    open_host((weir_settings){ .host_memory = 64 * MIB });
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &pool));
    atomic_store(&passing, pool.user);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, ask_too_much, NULL), 0);
    for (int i = 0; i < 3000; i++) {
        assert_ok(weir_mempool_unref(pool));
        options.memory = i % 3 ? WEIR_MEMORY_DEVICE : WEIR_MEMORY_MANAGED;
        options.use_on_oom = i % 5 == 0 && i % 3;
        assert_ok(weir_mempool_create(&options, &pool));
        atomic_store(&passing, pool.user);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    close_host(NULL);
}

static atomic_uint_fast64_t latest_stream;

static void *route_the_latest(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        const weir_stream stream = { atomic_load(&latest_stream) };
        const weir_status status = weir_mempool_route_stream(shared[0], stream);
        must(status == WEIR_OK || status == WEIR_ERR_INVALID_STREAM);
    }
    return NULL;
}

/* A new stream may have the record of the one that ended. */
static void no_route_of_an_ended_stream_is_a_new_ones(void **state)
{
    (void)state;
    pthread_t thread;
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool_info info = { .size = sizeof info };
    open_host((weir_settings){ .host_memory = 64 * MIB });
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &shared[0]));
    atomic_store(&over, false);
    atomic_store(&latest_stream, new_stream(0).id);
    assert_int_equal(pthread_create(&thread, NULL, route_the_latest, NULL), 0);
    for (int i = 0; i < (SANITIZED ? 5000 : 100000); i++) {
        weir_mempool pool = { 0, 1 };
        assert_ok(weir_stream_destroy((weir_stream){ atomic_load(&latest_stream) }));
        const weir_stream made = new_stream(0);
        assert_ok(weir_mempool_current(made, &pool));
        assert_int_equal(pool.user, 0);
        atomic_store(&latest_stream, made.id);
    }
    atomic_store(&over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(weir_stream_destroy((weir_stream){ atomic_load(&latest_stream) }));
    assert_ok(weir_mempool_info_get(shared[0], &info));
    assert_int_equal(info.references, 1);
    close_host(NULL);
}

static weir_status alloc_on_latest(int way, weir_stream stream, void **out)
{
    if (way == 0) return weir_alloc_on(1000, stream, out);
    if (way == 1) return weir_alloc_from(shared[0], 1000, stream, out);
    const weir_status status = weir_stream_set_current(stream);
    return status == WEIR_OK ? weir_alloc(1000, out) : status;
}

static void *allocate_on_the_latest(void *seed)
{
    for (unsigned i = *(unsigned *)seed; !atomic_load(&over); i++) {
        weir_pointer_info info = { .size = sizeof info };
        const weir_stream stream = { atomic_load(&latest_stream) };
        void *block = NULL;
        const weir_status status = alloc_on_latest(i % 3, stream, &block);
        must(status == WEIR_OK || status == WEIR_ERR_INVALID_STREAM);
        if (status != WEIR_OK) continue;
        must(weir_pointer_info_get(block, &info) == WEIR_OK);
        /* Memory of an ended stream is the default one's, which no longer current streams are, too */
        must(info.stream.id == stream.id || info.stream.id == default_stream(0).id);
        must(weir_free(block) == WEIR_OK);
    }
    return NULL;
}

static void no_request_on_an_ended_stream_gets_a_new_ones_memory(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    open_host((weir_settings){ .host_memory = 256 * MIB });
    options.device = 0;
    assert_ok(weir_mempool_create(&options, &shared[0]));
    atomic_store(&over, false);
    atomic_store(&latest_stream, new_stream(0).id);
    for (int i = 0; i < THREADS; i++) {
        seeds[i] = (unsigned)i;
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_on_the_latest, &seeds[i]), 0);
    }
    for (int i = 0; i < (SANITIZED ? 1000 : 10000); i++) {
        assert_ok(weir_stream_destroy((weir_stream){ atomic_load(&latest_stream) }));
        atomic_store(&latest_stream, new_stream(0).id);
        if (i % 4 == 0) usleep(20);
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_ok(weir_stream_destroy((weir_stream){ atomic_load(&latest_stream) }));
    close_host(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_come_and_go_while_their_blocks_pass_between_threads),
        cmocka_unit_test(pools_go_while_requests_of_them_fail_and_checkpoints_are_taken),
        cmocka_unit_test(no_route_of_an_ended_stream_is_a_new_ones),
        cmocka_unit_test(no_request_on_an_ended_stream_gets_a_new_ones_memory),
    };
    return cmocka_run_group_tests_name("stress_mempools", tests, NULL, NULL);
}
