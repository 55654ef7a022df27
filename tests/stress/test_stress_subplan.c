/*
 * Threads, each on streams of its own, capture repeatedly the requests that a plan has for a graph's pool, with others
 * now and then, while another thread serves other plans, or none, and empties the cache. Places are used in turn on two
 * streams: one handed out too early, or twice, shows in the result of a replay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "sanitized.h"
#include "stress/stress_support.h"
#include "weir/plan.h"

#include <pthread.h>

enum { CAPTURERS = 4, ENTRIES = 24, PLACES = 3, PLANS = 2, ROUNDS = SANITIZED ? 100 : 1000 };

static weir_plan_entry entries[PLANS][CAPTURERS * ENTRIES];
static weir_plan_arena arenas[PLANS][CAPTURERS];
static weir_plan plans[PLANS];
static weir_mempool shared;
static atomic_bool over;

typedef struct capturer {
    pthread_t thread;
    int number;
    weir_stream origin, side;
    unsigned char *results; /* of each entry */
    uint32_t random;
} capturer;

/* The first request identifies the capture. */
static size_t bytes_of(int number, int entry)
{
    if (entry == 0) return (size_t)(number + 1) * 3 * 512;
    return (size_t)(1 + entry * 37 % 23) * (entry % 3 ? 64 << 10 : 512 << 10);
}

/* As many places as the largest size fits, used in turn, in one order or the other. */
static void make_plan(int plan)
{
    const uint64_t place = 12 << 20;
    for (int c = 0; c < CAPTURERS; c++) {
        for (int i = 0; i < ENTRIES; i++)
            entries[plan][c * ENTRIES + i] =
                (weir_plan_entry){ .offset = (uint64_t)(plan ? PLACES - 1 - i % PLACES : i % PLACES) * place,
                                   .bytes = bytes_of(c, i) };
        arenas[plan][c] = (weir_plan_arena){ .pool = 1 + (uint32_t)c,
                                             .streams = 1,
                                             .bytes = PLACES * place,
                                             .first = (uint64_t)c * ENTRIES,
                                             .entries = ENTRIES };
    }
    plans[plan] = (weir_plan){ .arena_count = CAPTURERS,
                               .entry_count = (uint64_t)CAPTURERS * ENTRIES,
                               .arenas = arenas[plan],
                               .entries = entries[plan] };
}

/* A block that is filled on one stream and read on another, which is joined at once or later. */
static void capture_step(capturer *c, int entry, unsigned char value)
{
    void *block = NULL;
    const uint32_t random = next_random(&c->random);
    const size_t bytes = bytes_of(c->number, entry) + (random % 64 == 0 ? 512 : 0);
    must(weir_alloc_on(bytes, c->origin, &block) == WEIR_OK);
    must(weir_fill((char *)block + bytes - 1, value, 1, c->origin) == WEIR_OK);
    must(weir_stream_wait(c->side, c->origin) == WEIR_OK);
    must(weir_record_stream(block, c->side) == WEIR_OK);
    must(weir_copy(c->results + entry, (char *)block + bytes - 1, 1, c->side) == WEIR_OK);
    must(weir_free(block) == WEIR_OK);
    if (random % 4 != 0 || entry == ENTRIES - 1) must(weir_stream_wait(c->origin, c->side) == WEIR_OK);
}

static void capture_and_replay(capturer *c, unsigned char value)
{
    weir_graph graph;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    if (c->number % 2) options.pool = shared;
    must(weir_graph_begin(c->origin, &options, &graph) == WEIR_OK);
    for (int i = 0; i < ENTRIES; i++) capture_step(c, i, (unsigned char)(value + i));
    must(weir_graph_end(graph) == WEIR_OK);
    memset(c->results, 0, ENTRIES);
    must(weir_graph_launch(graph, c->origin) == WEIR_OK);
    must(weir_stream_synchronize(c->origin) == WEIR_OK);
    for (int i = 0; i < ENTRIES; i++) must(c->results[i] == (unsigned char)(value + i));
    must(weir_graph_destroy(graph) == WEIR_OK);
}

static void *capture_often(void *argument)
{
    capturer *c = argument;
    for (int i = 0; i < ROUNDS; i++) capture_and_replay(c, (unsigned char)(i * 3 + c->number + 1));
    return NULL;
}

static void *disturb(void *argument)
{
    uint32_t random = 77;
    (void)argument;
    while (!atomic_load(&over)) {
        const uint32_t what = next_random(&random) % 8;
        must(what != 0 || weir_empty_cache(0) == WEIR_OK);
        must(what != 1 || weir_validate(0) == WEIR_OK);
        if (what == 2) must(weir_plan_serve(0, NULL) == WEIR_OK);
        if (what > 2) must(weir_plan_serve(0, &plans[what % PLANS]) == WEIR_OK);
        nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
    }
    return NULL;
}

static void captures_from_planned_places_compute_what_each_recorded(void **state)
{
    (void)state;
    capturer all[CAPTURERS];
    pthread_t other;
    open_host((weir_settings){ .host_memory = 4096 * MIB });
    for (int i = 0; i < PLANS; i++) make_plan(i);
    assert_ok(weir_mempool_reserve(&shared));
    weir_graph keeper = begin_in(new_stream(0), shared); /* so that the shared pool does not come and go */
    assert_ok(weir_graph_end(keeper));
    assert_ok(weir_plan_serve(0, &plans[0]));
    for (int i = 0; i < CAPTURERS; i++)
        all[i] = (capturer){ .number = i,
                             .origin = new_stream(0),
                             .side = new_stream(0),
                             .results = alloc(ENTRIES),
                             .random = 77u + (uint32_t)i };
    assert_int_equal(pthread_create(&other, NULL, disturb, NULL), 0);
    for (int i = 0; i < CAPTURERS; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, capture_often, &all[i]), 0);
    for (int i = 0; i < CAPTURERS; i++) assert_int_equal(pthread_join(all[i].thread, NULL), 0);
    atomic_store(&over, true);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_true(stats_of(0).plan_served > 0);
    for (int i = 0; i < CAPTURERS; i++) assert_ok(weir_free(all[i].results));
    assert_ok(weir_graph_destroy(keeper));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(captures_from_planned_places_compute_what_each_recorded, close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
