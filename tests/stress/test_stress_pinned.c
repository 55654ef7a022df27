/*
 * Many threads on pinned memory: streams of two devices copy to blocks with their owner's mark at both ends, which are
 * freed while copies may be underway. Other threads trim, reserve, change the limit and check the structures. A block
 * reused too early, or overlapping blocks, destroy a mark.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "base/numa.h"
#include "host_support.h"
#include "stress/stress_support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 6
#define DEVICES 2
#define ROUNDS 400
#define LIMIT (96 * MIB)

typedef struct marked {
    unsigned char *memory;
    size_t bytes;
    uint64_t mark;
} marked;

static atomic_uint_fast64_t last_mark;
static atomic_bool over;

/* Runs on a recorded stream, maybe long after the free: nobody else may have the block yet. */
static void read_late(void *argument)
{
    marked *m = argument;
    const size_t end = m->bytes - sizeof m->mark;
    must(memcmp(m->memory, &m->mark, sizeof m->mark) == 0 && memcmp(m->memory + end, &m->mark, sizeof m->mark) == 0);
    free(m);
}

static void use_on(const marked *block, weir_stream stream, uint32_t *random)
{
    marked *late = malloc(sizeof *late);
    must(late != NULL);
    *late = *block;
    must(weir_stream_callback(stream, read_late, late) == WEIR_OK);
    must(weir_pinned_record(block->memory + next_random(random) % block->bytes, stream) == WEIR_OK);
}

static size_t random_size(uint32_t *random)
{
    switch (next_random(random) % 8) {
    case 0: return MIB + next_random(random) % (7 * MIB);
    case 1: return 8 * MIB + next_random(random) % (4 * MIB);
    default: return 16 + next_random(random) % 200000;
    }
}

static void *work(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 7919 + 1;
    weir_stream streams[DEVICES];
    for (int i = 0; i < DEVICES; i++) must(weir_stream_create(i, 0, &streams[i]) == WEIR_OK);
    for (int i = 0; i < ROUNDS; i++) {
        void *memory = NULL;
        const size_t bytes = random_size(&random);
        weir_status status = weir_pinned_alloc(bytes, (int)(next_random(&random) % 3) - 1, &memory);
        must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        if (status != WEIR_OK) continue;
        marked block = { .memory = memory, .bytes = bytes, .mark = atomic_fetch_add(&last_mark, 1) + 1 };
        memcpy(block.memory, &block.mark, sizeof block.mark);
        memcpy(block.memory + bytes - sizeof block.mark, &block.mark, sizeof block.mark);
        for (uint32_t uses = next_random(&random) % 3; uses > 0; uses--)
            use_on(&block, streams[next_random(&random) % DEVICES], &random);
        must(weir_pinned_free(memory) == WEIR_OK);
        if (next_random(&random) % 128 != 0) continue;
        must(weir_stream_destroy(streams[0]) == WEIR_OK); /* with blocks recorded on it */
        must(weir_stream_create(0, 0, &streams[0]) == WEIR_OK);
    }
    for (int i = 0; i < DEVICES; i++) must(weir_stream_destroy(streams[i]) == WEIR_OK);
    return NULL;
}

static void *look_after(void *argument)
{
    (void)argument;
    uint32_t random = 99;
    struct timespec pause = { 0, 200000 };
    while (!atomic_load(&over)) {
        weir_memory_stats stats = { .size = sizeof stats };
        must(weir_validate(0) == WEIR_OK);
        must(weir_pinned_stats_get(&stats) == WEIR_OK);
        must(weir_pinned_limit_set(next_random(&random) % 4 ? LIMIT : LIMIT / 4) == WEIR_OK);
        if (next_random(&random) % 4 == 0) must(weir_pinned_trim(next_random(&random) % LIMIT) == WEIR_OK);
        weir_status status = weir_pinned_reserve(next_random(&random) % (4 * MIB), 0);
        must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void marks_of_pinned_blocks_survive(void **state)
{
    (void)state;
    pthread_t workers[WORKERS], other;
    const uint64_t before = wr_meta_live();
    wr_numa_pretend("0-1", 0);
    open_host((weir_settings){ .host_memory = 64 * MIB, .host_devices = DEVICES });
    assert_ok(weir_pinned_limit_set(LIMIT));
    for (uintptr_t i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&workers[i], NULL, work, (void *)i), 0);
    assert_int_equal(pthread_create(&other, NULL, look_after, NULL), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(workers[i], NULL), 0);
    atomic_store(&over, true);
    assert_int_equal(pthread_join(other, NULL), 0);
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_pinned_trim(0));
    assert_ok(weir_pinned_stats_get(&stats));
    assert_int_equal(stats.reserved_bytes[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats.pending_frees, 0);
    assert_true(stats.hits > 0);
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
    wr_numa_pretend(NULL, 0);
    assert_true(wr_meta_live() <= before + 1); /* this thread's own context */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(marks_of_pinned_blocks_survive) };
    return cmocka_run_group_tests_name("stress_pinned", tests, NULL, NULL);
}
