/*
 * Random allocations and frees on many streams of a small device, some held by hand, some running freely, with sizes
 * that soon fit nowhere, so that memory is mapped at one address after another. Each block is written on its stream
 * when it is allocated and checked there before it is freed: memory at two live addresses at once, or reused by another
 * stream too early, loses its contents.
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

#define MEMORY (512 * MIB)
#define STREAMS 6
#define BLOCKS 48
#define WORKERS 6
#define EDGE 64

typedef struct block {
    unsigned char *base;
    size_t bytes;
    uint64_t mark;
    int stream;
} block;

/* ---- what is in a block ------------------------------------------------------------------------------------------ */

/* Work on a stream: writes the block's mark, or looks for it. */
typedef struct touch {
    unsigned char *base;
    size_t bytes;
    uint64_t mark;
} touch;

static atomic_uint_fast64_t last_mark;

/* Both ends and the middle. */
static void places_of(const touch *t, unsigned char *places[3])
{
    places[0] = t->base;
    places[1] = t->base + t->bytes / 2;
    places[2] = t->base + t->bytes - EDGE;
}

static void write_mark(void *argument)
{
    touch *t = argument;
    unsigned char *places[3];
    places_of(t, places);
    for (int i = 0; i < 3; i++)
        for (size_t at = 0; at < EDGE; at += sizeof t->mark) memcpy(places[i] + at, &t->mark, sizeof t->mark);
    free(t);
}

static void find_mark(void *argument)
{
    touch *t = argument;
    unsigned char *places[3];
    places_of(t, places);
    for (int i = 0; i < 3; i++)
        for (size_t at = 0; at < EDGE; at += sizeof t->mark)
            must(memcmp(places[i] + at, &t->mark, sizeof t->mark) == 0);
    free(t);
}

static void queue_touch(const block *b, weir_stream stream, void (*what)(void *))
{
    touch *t = malloc(sizeof *t);
    must(t != NULL);
    *t = (touch){ b->base, b->bytes, b->mark };
    must(weir_stream_callback(stream, what, t) == WEIR_OK);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Sizes are mostly large, seldom repeated, and now and then most of the device. */
static size_t random_size(uint32_t *random)
{
    const uint32_t kind = next_random(random) % 16;
    const size_t fine = next_random(random);
    if (kind < 3) return 512 + fine % (64 << 10);
    if (kind < 6) return 512 + fine % (4 * MIB);
    if (kind < 13) return 2 * MIB + (fine * 4096) % (40 * MIB);
    if (kind < 15) return 20 * MIB + (fine * 4096) % (80 * MIB);
    return 100 * MIB + (fine * 4096) % (100 * MIB);
}

static void take(block *b, weir_stream stream, int index, uint32_t *random)
{
    void *base = NULL;
    const size_t bytes = random_size(random);
    weir_status status = weir_alloc_on(bytes, stream, &base);
    must(status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    if (status != WEIR_OK) return;
    *b = (block){ base, bytes, atomic_fetch_add(&last_mark, 1) + 1, index };
    queue_touch(b, stream, write_mark);
}

/* Another stream, which is recorded, uses the block after its own stream has. */
static void lend(const block *b, weir_stream own, weir_stream other)
{
    must(weir_stream_wait(other, own) == WEIR_OK);
    queue_touch(b, other, find_mark);
    must(weir_record_stream(b->base, other) == WEIR_OK);
}

static void give(block *b, weir_stream stream)
{
    queue_touch(b, stream, find_mark);
    must(weir_free(b->base) == WEIR_OK);
    b->base = NULL;
}

/* ---- one thread, streams by hand --------------------------------------------------------------------------------- */

typedef struct scene {
    block blocks[BLOCKS];
    weir_stream streams[STREAMS];
    bool held[STREAMS];
    uint32_t random;
} scene;

static void hold_step_or_release(scene *s, int index)
{
    void *native = native_of(s->streams[index]);
    if (s->held[index] && next_random(&s->random) % 2) {
        uint64_t ran = 0;
        assert_ok(weir_host_stream_step(0, native, 1 + next_random(&s->random) % 8, &ran));
        return;
    }
    assert_ok(s->held[index] ? weir_host_stream_release(0, native) : weir_host_stream_hold(0, native));
    s->held[index] = !s->held[index];
}

/* Blocks of the stream stay and go to its heir, the default stream. */
static void replace_stream(scene *s, int index)
{
    if (index == 0) return;
    assert_ok(weir_stream_destroy(s->streams[index]));
    for (block *b = s->blocks; b < s->blocks + BLOCKS; b++)
        if (b->base && b->stream == index) b->stream = 0;
    s->streams[index] = new_stream(0);
    s->held[index] = false;
}

static void check_addresses(const scene *s)
{
    for (const block *b = s->blocks; b < s->blocks + BLOCKS; b++)
        for (const block *o = s->blocks; b->base && o < b; o++)
            assert_true(!o->base || o->base + o->bytes <= b->base || b->base + b->bytes <= o->base);
}

static void one_step(scene *s)
{
    block *b = &s->blocks[next_random(&s->random) % BLOCKS];
    const int index = (int)(next_random(&s->random) % STREAMS), other = (int)(next_random(&s->random) % STREAMS);
    switch (next_random(&s->random) % 32) {
    case 0: hold_step_or_release(s, index); break;
    case 1: assert_ok(weir_validate(0)); break;
    case 2:
        if (next_random(&s->random) % 8 == 0) assert_ok(weir_empty_cache(0));
        break;
    case 3:
        if (next_random(&s->random) % 4 == 0) replace_stream(s, index);
        break;
    case 4: assert_ok(weir_memory_limit_set(0, next_random(&s->random) % 3 ? 0 : 300 * MIB)); break;
    case 5:
        if (b->base) lend(b, s->streams[b->stream], s->streams[other]);
        break;
    default:
        if (b->base)
            give(b, s->streams[b->stream]);
        else
            take(b, s->streams[index], index, &s->random);
    }
}

/* Everything can be freed and given back, and then nothing is left. */
static void finish(scene *s)
{
    for (block *b = s->blocks; b < s->blocks + BLOCKS; b++)
        if (b->base) give(b, s->streams[b->stream]);
    for (int i = 0; i < STREAMS; i++) let_run(s->streams[i]);
    assert_ok(weir_validate(0));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_reserve), calls_of(WEIR_BACKEND_vm_release));
}

static void contents_stay_while_chunks_are_mapped_again(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 8; seed++) {
        scene s = { .random = seed * 7919 };
        open_host((weir_settings){ .host_memory = MEMORY, .history = seed % 4 == 0 ? 64 : 0 });
        s.streams[0] = default_stream(0);
        for (int i = 1; i < STREAMS; i++) s.streams[i] = new_stream(0);
        for (int i = 0; i < (SANITIZED ? 1000 : 4000); i++) {
            one_step(&s);
            if (i % 64 == 0) check_addresses(&s);
        }
        finish(&s);
        assert_ok(weir_close());
    }
}

/* ---- many threads ------------------------------------------------------------------------------------------------ */

static weir_stream shared[3];

static void end_own_stream(weir_stream *own, block *blocks)
{
    for (block *b = blocks; b < blocks + BLOCKS / WORKERS; b++)
        if (b->base && b->stream < 0) give(b, *own);
    must(weir_stream_destroy(*own) == WEIR_OK);
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, own) == WEIR_OK);
}

/* Streams: one of the thread's own (-1) and those that all threads share. */
static void *work(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 977 + 1;
    block blocks[BLOCKS / WORKERS] = { { 0 } };
    weir_stream own = { 0 };
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own) == WEIR_OK);
    for (int i = 0; i < (SANITIZED ? 400 : 1500); i++) {
        block *b = &blocks[next_random(&random) % (BLOCKS / WORKERS)];
        const int index = (int)(next_random(&random) % 4) - 1;
        if (b->base)
            give(b, b->stream < 0 ? own : shared[b->stream]);
        else
            take(b, index < 0 ? own : shared[index], index, &random);
        if (b->base && next_random(&random) % 8 == 0)
            lend(b, b->stream < 0 ? own : shared[b->stream], shared[next_random(&random) % 3]);
        if (next_random(&random) % 64 == 0) must(weir_validate(0) == WEIR_OK);
        if (next_random(&random) % 128 == 0) must(weir_empty_cache(0) == WEIR_OK);
        if (next_random(&random) % 128 == 0) end_own_stream(&own, blocks);
    }
    for (block *b = blocks; b < blocks + BLOCKS / WORKERS; b++)
        if (b->base) give(b, b->stream < 0 ? own : shared[b->stream]);
    must(weir_stream_destroy(own) == WEIR_OK);
    return NULL;
}

static void threads_that_take_each_others_memory_keep_what_they_wrote(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    open_host((weir_settings){ .host_memory = MEMORY });
    for (int i = 0; i < 3; i++) shared[i] = i == 0 ? default_stream(0) : new_stream(0);
    for (uintptr_t i = 0; i < WORKERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 3; i++) let_run(shared[i]);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    close_host(NULL);
}

/* ---- one stream -------------------------------------------------------------------------------------------------- */

static void *miss_on_the_first(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument * 31 + 5;
    for (int i = 0; i < (SANITIZED ? 100 : 400); i++) {
        block b = { NULL, 0, 0, 0 };
        take(&b, shared[0], 0, &random);
        if (b.base) give(&b, shared[0]);
    }
    return NULL;
}

static void threads_that_miss_on_one_stream_at_once_are_all_served(void **state)
{
    (void)state;
    pthread_t threads[WORKERS];
    open_host((weir_settings){ .host_memory = 2048 * MIB });
    shared[0] = new_stream(0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, miss_on_the_first, (void *)i), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    let_run(shared[0]);
    assert_int_equal(stats_of(0).ooms, 0);
    close_host(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_stay_while_chunks_are_mapped_again),
        cmocka_unit_test(threads_that_take_each_others_memory_keep_what_they_wrote),
        cmocka_unit_test(threads_that_miss_on_one_stream_at_once_are_all_served),
    };
    return cmocka_run_group_tests_name("stress_stitch", tests, NULL, NULL);
}
