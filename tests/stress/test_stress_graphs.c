/*
 * Threads capture at the same time on one device, each on its own streams, some sharing a pool. Meanwhile another
 * thread allocates, frees recorded blocks, empties the cache, and has handles destroyed, which must not coincide with a
 * capture. Every replay is checked. And threads whose captures name the same reserved pool.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "handle_support.h"
#include "stress/stress_support.h"

#include <sched.h>
#include <stdio.h>

enum { CAPTURERS = 4, ROUNDS = SANITIZED ? 200 : 2000, STEPS = 12 };

static library lib = { .name = "graphs at once" }, syncs = { .name = "synchronises when destroyed" };
static weir_mempool shared;
static atomic_int failures;
static atomic_bool stop;
static char first_failure[512];

/* Threads must not assert; the first failure is kept. */
static bool works(weir_status status, const char *what)
{
    if (status == WEIR_OK) return true;
    if (atomic_fetch_add(&failures, 1) == 0)
        snprintf(first_failure, sizeof first_failure, "%s: %s: %s", what, weir_status_name(status), weir_error_text());
    return false;
}
#define WORKS(call) works(call, #call)

typedef struct capturer {
    pthread_t thread;
    int number;
    weir_stream origin, side;
    unsigned char *result;
    uint32_t seed;
} capturer;

/* One step of the captured work: a scratch block, filled on one stream and copied on through another, freed before or
 * after the graph joins them again. */
static bool capture_step(capturer *c, unsigned char value)
{
    void *scratch = NULL;
    const size_t bytes = 512 + next_random(&c->seed) % (3 * MIB);
    const bool early = next_random(&c->seed) & 1;
    bool good = WORKS(weir_alloc_on(bytes, c->origin, &scratch)) && WORKS(weir_fill(scratch, value, 512, c->origin)) &&
                WORKS(weir_stream_wait(c->side, c->origin)) && WORKS(weir_record_stream(scratch, c->side)) &&
                WORKS(weir_copy(c->result, scratch, 512, c->side));
    if (early) good = WORKS(weir_free(scratch)) && good;
    good = good && WORKS(weir_stream_wait(c->origin, c->side));
    if (!early) good = WORKS(weir_free(scratch)) && good;
    return good;
}

static bool capture_and_replay(capturer *c, unsigned char value)
{
    weir_graph graph;
    void *handle = NULL;
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    if (c->number % 2) options.pool = shared;
    if (!WORKS(weir_graph_begin(c->origin, &options, &graph))) return false;
    bool good = WORKS(weir_handle_get_on(lib.kind, c->origin, &handle));
    for (int i = 0; i < STEPS && good; i++) good = capture_step(c, (unsigned char)(value + i));
    const bool abandoned = next_random(&c->seed) % 8 == 0;
    if (!abandoned)
        good = good && WORKS(weir_graph_end(graph)) && WORKS(weir_graph_launch(graph, c->origin)) &&
               WORKS(weir_stream_synchronize(c->origin));
    if (good && !abandoned && c->result[511] != (unsigned char)(value + STEPS - 1))
        good = works(WEIR_ERR_INTERNAL, "a replay gave something else");
    return WORKS(weir_graph_destroy(graph)) && good;
}

static void *capture_often(void *argument)
{
    capturer *c = argument;
    for (int i = 0; i < ROUNDS && atomic_load(&failures) == 0; i++)
        if (!capture_and_replay(c, (unsigned char)(i * 3 + c->number))) break;
    return NULL;
}

/* This ends the captures that are underway. */
static void synchronize(void)
{
    (void)WORKS(wr_runtime_global.backend->device_synchronize(0));
}

static bool use_and_trim(void)
{
    weir_lease lease;
    return WORKS(weir_handle_borrow(syncs.kind, WEIR_STREAM_CURRENT, 0, &lease)) && WORKS(weir_handle_return(lease)) &&
           WORKS(weir_handles_trim(syncs.kind, 0, NULL));
}

static void *disturb(void *argument)
{
    const capturer *all = argument;
    for (unsigned i = 0; !atomic_load(&stop) && atomic_load(&failures) == 0; i++) {
        void *block = NULL;
        weir_memory_stats stats = { .size = sizeof stats };
        if (!WORKS(weir_stats_get(0, &stats))) break;
        /* A free that waits for a capturing stream waits as long as the capture lasts. */
        if (stats.pending_frees > 20) {
            sched_yield();
            continue;
        }
        if (!WORKS(weir_alloc(4096 + i % 7 * MIB, &block))) break;
        if (!WORKS(weir_record_stream(block, all[i % CAPTURERS].origin))) break;
        if (!WORKS(weir_free(block))) break;
        if (i % 16 == 0 && !WORKS(weir_empty_cache(0))) break;
        if (i % 32 == 0 && !WORKS(weir_handles_trim(lib.kind, 0, NULL))) break;
        if (i % 4 == 0 && !use_and_trim()) break;
    }
    return NULL;
}

static void captures_at_once_compute_what_each_recorded(void **state)
{
    (void)state;
    capturer all[CAPTURERS];
    pthread_t disturber;
    library_start(&lib);
    library_start(&syncs);
    syncs.on_destroy = synchronize;
    open_host((weir_settings){ .host_memory = 1024 * MIB });
    assert_ok(weir_mempool_reserve(&shared));
    weir_stream keeper_stream = new_stream(0);
    weir_graph keeper = begin_in(keeper_stream, shared); /* so that the shared pool does not come and go */
    assert_ok(weir_graph_end(keeper));
    for (int i = 0; i < CAPTURERS; i++)
        all[i] = (capturer){
            .number = i, .origin = new_stream(0), .side = new_stream(0), .result = alloc(512), .seed = 77u + (unsigned)i
        };
    assert_int_equal(pthread_create(&disturber, NULL, disturb, all), 0);
    for (int i = 0; i < CAPTURERS; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, capture_often, &all[i]), 0);
    for (int i = 0; i < CAPTURERS; i++) pthread_join(all[i].thread, NULL);
    atomic_store(&stop, true);
    pthread_join(disturber, NULL);
    if (atomic_load(&failures) != 0) fail_msg("%s", first_failure);
    for (int i = 0; i < CAPTURERS; i++) assert_ok(weir_free(all[i].result));
    assert_ok(weir_graph_destroy(keeper));
    assert_ok(weir_validate(0));
    trim(&lib, 0);
    assert_int_equal(numbers_of(&lib, 0).live, 0);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(stats_of(0).pending_frees, 0);
    assert_int_equal(reserved_on(0), 0);
    close_host(state);
    library_end(&lib);
    library_end(&syncs);
}

/* ---- an id that several captures name ---------------------------------------------------------------------------- */

enum { IDS = SANITIZED ? 2000 : 20000 };

static pthread_barrier_t named, tried;
static weir_stream known; /* captures all the time, which weir knows, so that it cannot be adopted */

static void *make_pools_in_vain(void *unused)
{
    (void)unused;
    for (int i = 0; i < IDS; i++) {
        weir_graph graph = { 0 };
        pthread_barrier_wait(&named);
        for (int tries = 0; tries < 4; tries++) {
            must(try_adopt(known, shared, &graph) == WEIR_ERR_CAPTURE);
        }
        pthread_barrier_wait(&tried);
    }
    return NULL;
}

static void a_capture_begins_though_others_fail_to_in_its_pool(void **state)
{
    pthread_t thread;
    open_host((weir_settings){ .host_memory = 64 * MIB });
    known = new_stream(0);
    const weir_stream stream = new_stream(0);
    const weir_graph capturing = begin_on(known);
    pthread_barrier_init(&named, NULL, 2);
    pthread_barrier_init(&tried, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, make_pools_in_vain, NULL), 0);
    for (int i = 0; i < IDS; i++) {
        assert_ok(weir_mempool_reserve(&shared));
        pthread_barrier_wait(&named);
        const weir_graph graph = begin_in(stream, shared);
        pthread_barrier_wait(&tried);
        assert_ok(weir_graph_end(graph));
        assert_ok(weir_graph_destroy(graph));
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&named);
    pthread_barrier_destroy(&tried);
    assert_ok(weir_graph_end(capturing));
    close_host(state);
}

static int register_library(void **state)
{
    (void)state;
    library_register(&lib, 0);
    library_register(&syncs, WEIR_HANDLE_DESTROY_SYNCS);
    library_works_in_memory_of_weirs(&lib);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(captures_at_once_compute_what_each_recorded),
                                        cmocka_unit_test(a_capture_begins_though_others_fail_to_in_its_pool) };
    return cmocka_run_group_tests_name("graphs at once", tests, register_library, NULL);
}
