/*
 * Threads, each on a stream of its own, repeat the plan's requests for their stream, with other requests now and then,
 * while another thread serves other plans, or none, and empties the cache. One of the plans lends places of the first
 * stream to the others. Each block is written on its stream when it is allocated and checked there before it is freed:
 * a place handed out twice loses its contents.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/plan.h"
#include "device/runtime.h"
#include "host_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"
#include "weir/plan.h"

#include <pthread.h>

enum { WORKERS = 4, ENTRIES = 60, PLANS = 2, SHARED = PLANS, ROUNDS = SANITIZED ? 60 : 600 };

static weir_plan_entry entries[PLANS + 1][WORKERS * ENTRIES];
static weir_plan_arena arenas[PLANS + 1][WORKERS];
static weir_plan plans[PLANS + 1];
static wr_arena_user users[WORKERS];
static weir_stream streams[WORKERS];
static atomic_uint_fast64_t last_mark;
static atomic_bool over;

/* The first request identifies the stream. */
static size_t bytes_of(int worker, int entry)
{
    if (entry == 0) return (size_t)(worker + 1) * 3 * 512;
    return (size_t)(1 + entry * 37 % 23) * (entry % 3 ? 64 << 10 : 1 << 20);
}

/* Each block lives while the next few are allocated, in one order and then in the other. */
static void make_plan(int number)
{
    for (int w = 0; w < WORKERS; w++) {
        uint64_t end = 0;
        for (int i = 0; i < ENTRIES; i++) {
            const int entry = number ? ENTRIES - 1 - i : i;
            entries[number][w * ENTRIES + entry] = (weir_plan_entry){ .offset = end, .bytes = bytes_of(w, entry) };
            end += bytes_of(w, entry);
        }
        arenas[number][w] =
            (weir_plan_arena){ .streams = 1, .bytes = end, .first = (uint64_t)w * ENTRIES, .entries = ENTRIES };
    }
    plans[number] = (weir_plan){
        .arena_count = WORKERS, .entry_count = WORKERS * ENTRIES, .arenas = arenas[number], .entries = entries[number]
    };
}

/* Every fourth block of the other streams lies where a block of the first stream begins, which lends it the place. The
 * marks are at that address. */
static void make_shared_plan(void)
{
    make_plan(SHARED);
    const uint64_t hosts = arenas[SHARED][0].bytes;
    for (int w = 0; w < WORKERS; w++) {
        weir_plan_arena *a = &arenas[SHARED][w];
        users[w] = (wr_arena_user){ .native = (uint64_t)(uintptr_t)native_of(streams[w]),
                                    .own = a->bytes,
                                    .host = w == 0 ? WR_ARENA_ALONE : 0 };
        if (w == 0) continue;
        a->bytes += hosts;
        for (int i = 0; i < ENTRIES; i += 4) {
            weir_plan_entry *e = &entries[SHARED][w * ENTRIES + i];
            const uint64_t at = entries[SHARED][(i + w * 7) % (ENTRIES / 2)].offset;
            if (at + e->bytes <= hosts) e->offset = users[w].own + at;
        }
    }
}

typedef struct touch {
    uint64_t *base;
    uint64_t mark;
} touch;

static void write_mark(void *argument)
{
    touch *t = argument;
    for (int i = 0; i < 64; i++) t->base[i] = t->mark;
    free(t);
}

/* Checks late sometimes, as work on a device does. */
static void find_mark(void *argument)
{
    touch *t = argument;
    if (t->mark % 16 == 0) nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    for (int i = 0; i < 64; i++) must(t->base[i] == t->mark);
    free(t);
}

static void queue_touch(void *base, uint64_t mark, weir_stream stream, void (*what)(void *))
{
    touch *t = malloc(sizeof *t);
    must(t != NULL);
    *t = (touch){ base, mark };
    must(weir_stream_callback(stream, what, t) == WEIR_OK);
}

/* A round is the plan's sequence, sometimes with requests left out or added. */
static void one_round(int worker, weir_stream stream, weir_stream other, uint32_t *random)
{
    void *blocks[ENTRIES] = { NULL };
    uint64_t marks[ENTRIES];
    const bool departs = next_random(random) % 3 == 0;
    for (int i = 0; i < ENTRIES; i++) {
        size_t bytes = bytes_of(worker, i);
        if (departs && next_random(random) % 16 == 0) continue;
        if (departs && next_random(random) % 16 == 0) bytes += 512;
        weir_status status = weir_alloc_on(bytes, stream, &blocks[i]);
        must(status == WEIR_OK);
        marks[i] = atomic_fetch_add(&last_mark, 1) + 1;
        queue_touch(blocks[i], marks[i], stream, write_mark);
    }
    for (int i = 0; i < ENTRIES; i++) {
        if (!blocks[i]) continue;
        queue_touch(blocks[i], marks[i], stream, find_mark);
        if (next_random(random) % 32 == 0) {
            must(weir_stream_wait(other, stream) == WEIR_OK);
            must(weir_record_stream(blocks[i], other) == WEIR_OK);
        }
        must(weir_free(blocks[i]) == WEIR_OK);
    }
}

static void *work(void *argument)
{
    const int worker = (int)(uintptr_t)argument;
    uint32_t random = (uint32_t)worker * 977 + 1;
    for (int i = 0; i < ROUNDS; i++) one_round(worker, streams[worker], streams[(worker + 1) % WORKERS], &random);
    return NULL;
}

static void *disturb(void *argument)
{
    uint32_t random = 77;
    wr_device *device = argument;
    while (!atomic_load(&over)) {
        const uint32_t what = next_random(&random) % 12;
        must(what != 0 || weir_empty_cache(0) == WEIR_OK);
        must(what != 1 || weir_validate(0) == WEIR_OK);
        if (what == 2) must(weir_plan_serve(0, NULL) == WEIR_OK);
        if (what > 2 && what < 8) must(weir_plan_serve(0, &plans[what % PLANS]) == WEIR_OK);
        if (what >= 8) must(wr_device_serve(device, &plans[SHARED], users) == WEIR_OK);
        nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    }
    return NULL;
}

static void threads_keep_what_they_wrote_to_planned_places(void **state)
{
    (void)state;
    pthread_t threads[WORKERS], other;
    wr_device *device = NULL;
    open_host((weir_settings){ .host_memory = 8192 * MIB });
    for (int i = 0; i < PLANS; i++) make_plan(i);
    for (int i = 0; i < WORKERS; i++) streams[i] = new_stream(0);
    make_shared_plan();
    assert_ok(wr_runtime_device(0, &device));
    assert_ok(weir_plan_serve(0, &plans[0]));
    assert_int_equal(pthread_create(&other, NULL, disturb, device), 0);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&over, true);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(stats_of(0).plan_served > 0);
    for (int i = 0; i < WORKERS; i++) assert_ok(weir_stream_synchronize(streams[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(threads_keep_what_they_wrote_to_planned_places, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
