/*
 * Many threads on small devices: blocks with their owner's mark at both ends pass between threads and streams, while
 * other threads empty the cache, change the limit and check the structures. Overlapping blocks, or one reused too
 * early, destroy a mark.
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
#include "thread_support.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_THREADS (SANITIZED ? 1000 : 10000)
#define AT_A_TIME 16
#define WORKERS 8
#define GENERATIONS 8
#define ROUNDS (SANITIZED ? 100 : 1000)
#define DEVICES 2

/* ---- marked blocks ----------------------------------------------------------------------------------------------- */

typedef struct marked {
    unsigned char *memory;
    size_t bytes;
    uint64_t mark;
    weir_stream home;
} marked;

static atomic_uint_fast64_t last_mark;

static void put_mark(marked *m)
{
    m->mark = atomic_fetch_add(&last_mark, 1) + 1;
    memcpy(m->memory, &m->mark, sizeof m->mark);
    memcpy(m->memory + m->bytes - sizeof m->mark, &m->mark, sizeof m->mark);
}

static bool mark_is_whole(const marked *m)
{
    return memcmp(m->memory, &m->mark, sizeof m->mark) == 0 &&
           memcmp(m->memory + m->bytes - sizeof m->mark, &m->mark, sizeof m->mark) == 0;
}

/* False when there is no memory now, which happens because there is so little of it. */
static bool take(marked *m, size_t bytes, weir_stream home)
{
    void *memory = NULL;
    weir_status status = weir_alloc_on(bytes, home, &memory);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status != WEIR_OK) return false;
    *m = (marked){ .memory = memory, .bytes = bytes, .home = home };
    put_mark(m);
    return true;
}

static size_t random_size(uint32_t *random)
{
    switch (next_random(random) % 8) {
    case 0: return 1 * MIB + next_random(random) % (8 * MIB);
    case 1: return 10 * MIB + next_random(random) % (4 * MIB);
    default: return 16 + next_random(random) % 200000;
    }
}

/* ---- threads that come and go ------------------------------------------------------------------------------------ */

static sem_t places;
static pthread_barrier_t all_there; /* the first, so that as many as may be have been there at once */

static void *live_shortly(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument;
    weir_stream stream = { 0 };
    marked blocks[4];
    must(weir_stream_from_pool((int)(random % DEVICES), 0, &stream) == WEIR_OK);
    must(weir_device_set_current((int)(random % DEVICES)) == WEIR_OK);
    must(weir_stream_set_current(stream) == WEIR_OK);
    int count = 0;
    while (count < 4 && take(&blocks[count], 16 + next_random(&random) % 5000, WEIR_STREAM_CURRENT)) count++;
    must(count > 0);
    if ((uintptr_t)argument < AT_A_TIME) pthread_barrier_wait(&all_there);
    for (int i = 0; i < count; i++) must(mark_is_whole(&blocks[i]) && weir_free(blocks[i].memory) == WEIR_OK);
    sem_post(&places);
    return NULL;
}

static void start_shortly(uintptr_t number)
{
    pthread_t thread;
    pthread_attr_t detached;
    wait_for(&places);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 256 * 1024);
    int error = pthread_create(&thread, &detached, live_shortly, (void *)number);
    pthread_attr_destroy(&detached);
    if (error) fail_msg("thread %lu: %s", (unsigned long)number, strerror(error));
}

static void await_all(void)
{
    for (int i = 0; i < AT_A_TIME; i++) wait_for(&places);
    for (int i = 0; i < AT_A_TIME; i++) sem_post(&places);
}

/* A detached thread that has posted may still be in its exit hook. */
static void expect_records(uint64_t expected)
{
    struct timespec pause = { 0, 1000000 };
    for (int i = 0; i < 5000 && wr_meta_live() > expected; i++) nanosleep(&pause, NULL);
    assert_true(wr_meta_live() <= expected);
}

static void nothing_grows_with_the_number_of_threads(void **state)
{
    (void)state;
    sem_init(&places, 0, AT_A_TIME);
    assert_int_equal(pthread_barrier_init(&all_there, NULL, AT_A_TIME), 0);
    uintptr_t number = 0;
    for (; number < SHORT_THREADS / 2; number++) start_shortly(number);
    await_all();
    /* Every pooled stream has its memory by now, with blocks of most sizes parked, and the threads' own memory is
     * bounded, too. */
    const uint64_t records = wr_meta_live() + AT_A_TIME;
    for (; number < SHORT_THREADS; number++) start_shortly(number);
    await_all();
    expect_records(records);
    for (int device = 0; device < DEVICES; device++) {
        assert_ok(weir_validate(device));
        assert_int_equal(stats_of(device).allocation[WEIR_STAT_ALL].current, 0);
        /* A segment for each pooled stream, and one more where two threads missed on the same stream at once. */
        assert_true(reserved_on(device) <= (int64_t)((32 + AT_A_TIME) * 2 * MIB));
        assert_ok(weir_empty_cache(device));
        assert_int_equal(reserved_on(device), 0);
    }
    pthread_barrier_destroy(&all_there);
    sem_destroy(&places);
}

/* ---- blocks that pass between threads ---------------------------------------------------------------------------- */

#define QUEUE 64

typedef struct exchange {
    pthread_mutex_t mutex;
    marked blocks[QUEUE];
    int count;
} exchange;

static exchange market = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* Puts a block in and takes a random one out when there are many; false when none came out. */
static bool trade(const marked *in, marked *out, uint32_t *random)
{
    bool got = false;
    pthread_mutex_lock(&market.mutex);
    if (in) {
        if (market.count == QUEUE) {
            int at = (int)(next_random(random) % QUEUE);
            *out = market.blocks[at];
            market.blocks[at] = *in;
            got = true;
        } else {
            market.blocks[market.count++] = *in;
        }
    } else if (market.count > 0) {
        *out = market.blocks[--market.count];
        got = true;
    }
    pthread_mutex_unlock(&market.mutex);
    return got;
}

typedef struct reading {
    marked block;
    atomic_bool *broken;
} reading;

static atomic_bool broken;

/* Runs on the recorded stream: the block was freed long ago, but may not have a new owner yet. */
static void read_later(void *argument)
{
    reading *r = argument;
    if (!mark_is_whole(&r->block)) atomic_store(r->broken, true);
    free(r);
}

/* Now and then a block goes to another thread, which frees it when the stream may have ended. */
static void use_and_free(const marked *block, weir_stream own, uint32_t *random)
{
    marked other;
    must(mark_is_whole(block));
    if (block->home.id != own.id && next_random(random) % 2) {
        reading *r = malloc(sizeof *r);
        must(r != NULL);
        *r = (reading){ *block, &broken };
        must(weir_stream_callback(own, read_later, r) == WEIR_OK);
        must(weir_record_stream(block->memory + next_random(random) % block->bytes, own) == WEIR_OK);
        if (next_random(random) % 4 == 0) {
            if (!trade(block, &other, random)) return;
            must(mark_is_whole(&other));
            must(weir_free(other.memory) == WEIR_OK);
            return;
        }
    }
    must(weir_free(block->memory) == WEIR_OK);
}

static void *work(void *argument)
{
    const uintptr_t number = (uintptr_t)argument;
    uint32_t random = (uint32_t)number * 7919 + 1;
    weir_stream own = { 0 };
    marked made, got;
    must(weir_stream_create((int)(number % DEVICES), 0, &own) == WEIR_OK);
    for (int i = 0; i < ROUNDS; i++) {
        bool has = take(&made, random_size(&random), own);
        if (trade(has ? &made : NULL, &got, &random)) use_and_free(&got, own, &random);
        if (next_random(&random) % 64 == 0 && trade(NULL, &got, &random)) use_and_free(&got, own, &random);
    }
    must(weir_stream_destroy(own) == WEIR_OK); /* blocks that were allocated or recorded on it are still around */
    return NULL;
}

static atomic_bool over;

static void *look_after(void *argument)
{
    (void)argument;
    uint32_t random = 99;
    struct timespec pause = { 0, 200000 };
    while (!atomic_load(&over)) {
        int device = (int)(next_random(&random) % DEVICES);
        weir_memory_stats stats = { .size = sizeof stats };
        weir_stream stream = { 0 };
        must(weir_validate(device) == WEIR_OK);
        must(weir_stats_get(device, &stats) == WEIR_OK);
        must(stats.reserved_bytes[0].current >= stats.active_bytes[0].current);
        must(stats.active_bytes[0].current >= stats.allocated_bytes[0].current);
        switch (next_random(&random) % 4) {
        case 0: must(weir_empty_cache(device) == WEIR_OK); break;
        case 1: must(weir_memory_limit_set(device, (40 + next_random(&random) % 40) * MIB) == WEIR_OK); break;
        case 2: must(weir_memory_limit_set(device, 0) == WEIR_OK); break;
        default:
            must(weir_stream_create(device, 0, &stream) == WEIR_OK);
            marked block;
            if (take(&block, 5000, stream)) must(weir_free(block.memory) == WEIR_OK);
            must(weir_stream_destroy(stream) == WEIR_OK);
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static bool gives_up_a_block(void *user, int device, size_t needed)
{
    (void)user, (void)device, (void)needed;
    uint32_t random = 1;
    marked block;
    if (!trade(NULL, &block, &random)) return false;
    must(mark_is_whole(&block));
    must(weir_free(block.memory) == WEIR_OK);
    return true;
}

static void drain(void)
{
    marked block;
    uint32_t random = 1;
    while (trade(NULL, &block, &random)) {
        assert_true(mark_is_whole(&block));
        assert_ok(weir_free(block.memory));
    }
}

static void blocks_pass_between_threads_and_streams_unharmed(void **state)
{
    (void)state;
    pthread_t workers[WORKERS], keeper;
    atomic_store(&over, false);
    atomic_store(&broken, false);
    assert_ok(weir_reclaim_add(gives_up_a_block, NULL));
    assert_int_equal(pthread_create(&keeper, NULL, look_after, NULL), 0);
    for (uintptr_t i = 0; i < WORKERS * GENERATIONS; i++) {
        if (i >= WORKERS) pthread_join(workers[i % WORKERS], NULL);
        assert_int_equal(pthread_create(&workers[i % WORKERS], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    atomic_store(&over, true);
    pthread_join(keeper, NULL);
    drain();
    assert_false(atomic_load(&broken));
    for (int device = 0; device < DEVICES; device++) {
        assert_ok(weir_validate(device));
        assert_ok(weir_empty_cache(device));
        weir_memory_stats stats = stats_of(device);
        assert_int_equal(stats.pending_frees, 0);
        assert_int_equal(stats.allocation[WEIR_STAT_ALL].current, 0);
        assert_int_equal(stats.reserved_bytes[WEIR_STAT_ALL].current, 0);
        assert_true(stats.reserved_bytes[WEIR_STAT_ALL].peak <= (int64_t)(96 * MIB));
        assert_true(stats.driver_allocs == stats.driver_frees);
    }
}

/* ---- one block, many who would free it --------------------------------------------------------------------------- */

typedef struct race {
    void *_Atomic block;
    atomic_int freed;
    sem_t start, done;
} race;

static void *try_to_free(void *argument)
{
    race *r = argument;
    for (int i = 0; i < ROUNDS; i++) {
        wait_for(&r->start);
        weir_status status = weir_free(atomic_load(&r->block));
        must(status == WEIR_OK || status == WEIR_ERR_DOUBLE_FREE || status == WEIR_ERR_UNKNOWN_POINTER);
        if (status == WEIR_OK) atomic_fetch_add(&r->freed, 1);
        sem_post(&r->done);
    }
    return NULL;
}

static void of_several_frees_of_a_block_one_succeeds(void **state)
{
    (void)state;
    static race r;
    pthread_t threads[3];
    r = (race){ .freed = 0 };
    sem_init(&r.start, 0, 0);
    sem_init(&r.done, 0, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, try_to_free, &r), 0);
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&r.block, alloc(i % 3 ? 12 * MIB : 5000));
        for (int j = 0; j < 3; j++) sem_post(&r.start);
        if (i % 2) assert_ok(weir_empty_cache(0)); /* the segment may go while they look for it */
        for (int j = 0; j < 3; j++) wait_for(&r.done);
        assert_int_equal(atomic_load(&r.freed), i + 1);
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    assert_ok(weir_validate(0));
    sem_destroy(&r.start);
    sem_destroy(&r.done);
}

/* ---- threads that take each other's room ------------------------------------------------------------------------- */

static sem_t rooms;

/* At most half of the threads hold a block, and each block is as large as a segment, so there is always room. */
static void *take_turns(void *unused)
{
    weir_stream stream = { 0 };
    (void)unused;
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &stream) == WEIR_OK);
    for (int i = 0; i < ROUNDS; i++) {
        void *block = NULL;
        wait_for(&rooms);
        must(weir_alloc_on(24 * MIB, stream, &block) == WEIR_OK);
        must(weir_fill(block, 1, 4096, stream) == WEIR_OK);
        must(weir_free(block) == WEIR_OK);
        sem_post(&rooms);
    }
    return NULL;
}

static void no_thread_fails_while_there_is_room_for_all(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    sem_init(&rooms, 0, WORKERS / 2); /* of 24 MiB: the device's 96 */
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(stats_of(0).ooms, 0);
    assert_ok(weir_validate(0));
    sem_destroy(&rooms);
}

/* ---- names of streams -------------------------------------------------------------------------------------------- */

static atomic_uint_fast64_t shared_stream;
static atomic_bool names_asked;

static void *end_and_make(void *unused)
{
    (void)unused;
    while (!atomic_load(&names_asked)) {
        weir_stream made = { 0 };
        must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &made) == WEIR_OK);
        const weir_stream ended = { atomic_exchange(&shared_stream, made.id) };
        must(weir_stream_destroy(ended) == WEIR_OK);
    }
    return NULL;
}

/* The current stream is the one that was set or, once another thread has ended that, the default one. */
static void a_stream_that_was_never_set_is_never_current(void **state)
{
    (void)state;
    pthread_t ending;
    const weir_stream first = default_stream(0);
    atomic_store(&names_asked, false);
    atomic_store(&shared_stream, new_stream(0).id);
    assert_int_equal(pthread_create(&ending, NULL, end_and_make, NULL), 0);
    for (int i = 0; i < 100 * ROUNDS; i++) {
        const weir_stream set = { atomic_load(&shared_stream) };
        if (weir_stream_set_current(set) != WEIR_OK) continue;
        for (int again = 0; again < 20; again++) {
            weir_stream current = { 0 };
            assert_ok(weir_stream_get_current(0, &current));
            if (current.id != set.id) assert_int_equal(current.id, first.id);
        }
    }
    assert_ok(weir_stream_set_current(first)); /* the last one is ended at close */
    atomic_store(&names_asked, true);
    assert_int_equal(pthread_join(ending, NULL), 0);
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

static int open_small(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_devices = DEVICES, .host_memory = 96 * MIB });
    return 0;
}

static int open_large(void **state)
{
    open_host((weir_settings){ .policy = *state, .host_devices = DEVICES, .host_memory = 1024 * MIB });
    return 0;
}

#define BOTH(test, setup)                                                                                              \
    { #test " (weir)", test, setup, close_host, (void *)(uintptr_t)"weir" },                                           \
        { #test " (torch)", test, setup, close_host, (void *)(uintptr_t)"torch" }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(nothing_grows_with_the_number_of_threads, open_large),
        BOTH(blocks_pass_between_threads_and_streams_unharmed, open_small),
        BOTH(of_several_frees_of_a_block_one_succeeds, open_small),
        BOTH(no_thread_fails_while_there_is_room_for_all, open_small),
        cmocka_unit_test_prestate_setup_teardown(a_stream_that_was_never_set_is_never_current, open_small, close_host,
                                                 (void *)(uintptr_t)"weir"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
