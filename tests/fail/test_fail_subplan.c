/*
 * A graph and one of the program's pools, served from a plan, run for every n with the n-th driver call failing, then
 * with the n-th of weir's own records refused. After each run no contents are lost, all memory can be given back, and a
 * capture is served in full again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/meta.h"
#include "fail_support.h"
#include "graph_support.h"
#include "weir/plan.h"

enum { ENTRIES = 8, POOLS = 2, BLOCKS = 3 * ENTRIES, EDGE = 64 };

static weir_plan_entry entries[(1 + POOLS) * ENTRIES];
static weir_plan_arena arenas[1 + POOLS];
static const weir_plan plan = {
    .arena_count = 1 + POOLS, .entry_count = (1 + POOLS) * ENTRIES, .arenas = arenas, .entries = entries
};
static const weir_backend *const b = &wr_backend_host;

typedef struct block {
    unsigned char *memory;
    size_t bytes;
} block;

typedef struct scene {
    weir_stream origin, side;
    weir_graph graph;
    weir_mempool pool;
    block blocks[BLOCKS];
} scene;

static size_t bytes_of(unsigned entry)
{
    return (1 + entry * 5 % 7) * MIB / 2 + 512;
}

/* An arena of the default pool, and one for each of the private pools. */
static void make_plan(void)
{
    for (unsigned a = 0; a < 1 + POOLS; a++) {
        arenas[a] = (weir_plan_arena){ .pool = a, .streams = 1, .first = a * ENTRIES, .entries = ENTRIES };
        for (unsigned i = 0; i < ENTRIES; i++) {
            entries[a * ENTRIES + i] = (weir_plan_entry){ .offset = arenas[a].bytes, .bytes = bytes_of(i) };
            arenas[a].bytes += bytes_of(i);
        }
    }
}

/* Failures are expected here; the checks come afterwards. */
static bool works(weir_status status)
{
    return status == WEIR_OK;
}

static void take(scene *s, weir_mempool pool, unsigned index)
{
    void *memory = NULL;
    const size_t bytes = bytes_of(index % ENTRIES);
    const bool named = pool.user != 0;
    if (!works(named ? weir_alloc_from(pool, bytes, s->origin, &memory) : weir_alloc_on(bytes, s->origin, &memory)))
        return;
    s->blocks[index] = (block){ memory, bytes };
    memset(memory, (int)index, EDGE);
    memset((char *)memory + bytes - EDGE, (int)index, EDGE);
}

static void give(scene *s, unsigned index)
{
    assert_ok(weir_free(s->blocks[index].memory)); /* a free has no reason to fail */
    s->blocks[index] = (block){ 0 };
}

static void check(const scene *s)
{
    assert_ok(weir_validate(0));
    for (unsigned i = 0; i < BLOCKS; i++) {
        const block *of = &s->blocks[i];
        if (of->memory && (of->memory[EDGE - 1] != i || of->memory[of->bytes - EDGE] != i))
            fail_msg("block %u is not what it was", i);
    }
}

static void begin(scene *s)
{
    weir_graph_options options = WEIR_GRAPH_OPTIONS_INIT;
    works(weir_graph_begin(s->origin, &options, &s->graph));
}

static void destroy(scene *s)
{
    if (s->graph.id) works(weir_graph_destroy(s->graph));
    s->graph.id = 0;
}

static const weir_mempool by_route = { 0, 0 };

/* Captured, with a block that another stream uses; then another pool, another plan, and a graph once more. */
static void run_scenario(scene *s)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    options.memory = WEIR_MEMORY_MAPPED;
    works(weir_plan_serve(0, &plan));
    begin(s);
    for (unsigned i = 0; i < ENTRIES; i++) take(s, by_route, i);
    if (works(weir_stream_wait(s->side, s->origin)) && s->blocks[2].memory)
        works(weir_record_stream(s->blocks[2].memory, s->side));
    give(s, 2);
    works(weir_stream_wait(s->origin, s->side));
    take(s, by_route, 2);
    check(s);
    if (s->graph.id && works(weir_graph_end(s->graph))) works(weir_graph_launch(s->graph, s->origin));
    works(weir_mempool_create(&options, &s->pool));
    for (unsigned i = ENTRIES; i < BLOCKS; i++) take(s, i < 2 * ENTRIES ? s->pool : by_route, i);
    works(weir_plan_serve(0, &plan));
    check(s);
    for (unsigned i = 0; i < ENTRIES; i++) give(s, i);
    destroy(s);
    works(weir_empty_cache(0));
    begin(s);
    for (unsigned i = 0; i < ENTRIES; i++) take(s, by_route, i);
    check(s);
}

static void check_aftermath(scene *s)
{
    assert_ok(weir_host_fail_clear());
    check(s);
    destroy(s);
    end_what_goes_on(b, s->origin);
    for (unsigned i = 0; i < BLOCKS; i++) give(s, i);
    if (s->pool.user) assert_ok(weir_mempool_unref(s->pool));
    assert_ok(weir_plan_serve(0, &plan));
    const uint64_t served = stats_of(0).plan_served;
    s->graph = begin_on(s->origin);
    for (unsigned i = 0; i < ENTRIES; i++) take(s, by_route, i);
    assert_int_equal(stats_of(0).plan_served - served, ENTRIES);
    for (unsigned i = 0; i < ENTRIES; i++)
        assert_int_equal(s->blocks[i].memory - s->blocks[0].memory, entries[ENTRIES + i].offset);
    check(s);
    assert_ok(weir_graph_end(s->graph));
    for (unsigned i = 0; i < ENTRIES; i++) give(s, i);
    assert_ok(weir_graph_destroy(s->graph));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
}

static void open_scene(scene *s)
{
    open_host((weir_settings){ .host_memory = 256 * MIB });
    *s = (scene){ .origin = new_stream(0), .side = new_stream(0) };
}

static void play(failing *f)
{
    const uint64_t before = wr_meta_live();
    scene s;
    open_scene(&s);
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s);
    assert_ok(weir_close());
    assert_records_but_pages(before, f);
}

FAIL_ALL_OF(play, 40, 20)

/* The main thread's own context and the first ids of pools are made once and stay. */
static int warm_up(void **state)
{
    scene s;
    (void)state;
    make_plan();
    open_scene(&s);
    run_scenario(&s);
    check_aftermath(&s);
    assert_ok(weir_close());
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TESTS,
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
