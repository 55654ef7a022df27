/*
 * Memory of the default pool mapped together for a private pool, run for every n with the n-th driver call failing,
 * then with the n-th of weir's own records refused. After each run no contents are lost, the structures are consistent,
 * and nothing is left of the pool after its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "device_support.h"
#include "fail_support.h"
#include "graph_support.h"

#define MEMORY (256 * MIB)
#define CHUNK (8 * MIB)
#define EDGE 4096

enum { BLOCKS = 12, CHUNKS = 8 };

typedef struct scene {
    weir_stream stream;
    weir_mempool pool;
    weir_checkpoint *then;
    unsigned char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
} scene;

/* Records that are there when the library is closed. */
static uint64_t records_at_rest;

static void check(const scene *s)
{
    assert_ok(weir_validate(0));
    for (unsigned i = 0; i < BLOCKS; i++)
        if (s->blocks[i] &&
            !(has_pattern(s->blocks[i], EDGE, i) && has_pattern(s->blocks[i] + s->bytes[i] - EDGE, EDGE, i + 100)))
            fail_msg("block %u is not what it was", i);
}

static void give(scene *s, unsigned index)
{
    assert_ok(weir_free(s->blocks[index])); /* a free has no reason to fail */
    s->blocks[index] = NULL;
}

static void take(scene *s, unsigned index, size_t bytes, weir_mempool pool)
{
    void *block = NULL;
    give(s, index);
    if (weir_alloc_from(pool, bytes, s->stream, &block) != WEIR_OK) {
        assert_null(block);
        return;
    }
    s->blocks[index] = block;
    s->bytes[index] = bytes;
    write_pattern(block, EDGE, index);
    write_pattern(s->blocks[index] + bytes - EDGE, EDGE, index + 100);
}

static void give_all(scene *s)
{
    for (unsigned i = 0; i < BLOCKS; i++) give(s, i);
}

/* First from chunks of the default pool, then from the pool's own. */
static void grow_and_stitch(scene *s)
{
    const weir_mempool default_pool = { 0, 0 };
    for (unsigned i = 0; i < CHUNKS; i++) take(s, i, CHUNK, default_pool);
    give_all(s);
    for (unsigned i = 0; i < CHUNKS; i++) take(s, i, CHUNK, s->pool);
    check(s);
    for (unsigned i = 0; i < CHUNKS; i += 2) give(s, i);
    take(s, 8, CHUNKS / 2 * CHUNK, s->pool);
    take(s, 9, 100000, s->pool);
    check(s);
}

/* A checkpoint keeps blocks where they are. A failed call changes nothing. */
static void go_back(scene *s)
{
    if (weir_mempool_checkpoint(s->pool, &s->then) != WEIR_OK) return;
    take(s, 10, CHUNKS / 2 * CHUNK, s->pool);
    check(s);
    if (weir_mempool_restore(s->pool, s->then, NULL, NULL, NULL) == WEIR_OK) s->blocks[10] = NULL;
    check(s);
}

static void run_scenario(scene *s)
{
    weir_mempool_options options = pool_options(WEIR_MEMORY_DEVICE, "");
    s->stream = default_stream(0);
    if (weir_mempool_create(&options, &s->pool) != WEIR_OK) return;
    grow_and_stitch(s);
    (void)!weir_mempool_empty_cache(s->pool);
    check(s);
    go_back(s);
    (void)!weir_mempool_unref(s->pool);
    check(s);
}

/* Captures a graph, launches and destroys it. Work that the driver refuses is not captured. */
static void run_graph(scene *s)
{
    weir_graph graph = { 0 };
    s->stream = default_stream(0);
    if (weir_stream_create(0, 0, &s->stream) != WEIR_OK || try_begin(s->stream, s->pool, &graph) != WEIR_OK) return;
    for (unsigned i = 0; i < CHUNKS; i++) {
        void *block = NULL;
        if (weir_alloc_on(CHUNK, s->stream, &block) != WEIR_OK) continue;
        s->blocks[i] = block;
    }
    for (unsigned i = 0; i < CHUNKS; i += 2) give(s, i);
    void *large = NULL;
    if (weir_alloc_on(CHUNKS / 2 * CHUNK, s->stream, &large) == WEIR_OK) assert_ok(weir_free(large));
    if (weir_graph_end(graph) == WEIR_OK) (void)!weir_graph_launch(graph, s->stream);
    for (unsigned i = 0; i < CHUNKS; i++) give(s, i);
    (void)!weir_graph_destroy(graph);
    assert_ok(weir_validate(0));
}

/* Once the failure is over everything is there, works, and goes. */
static void check_aftermath(scene *s, uint64_t left)
{
    assert_ok(weir_host_fail_clear());
    check(s);
    give_all(s);
    weir_checkpoint_destroy(s->then);
    take(s, 0, 200 * MIB, (weir_mempool){ 0, 0 });
    assert_non_null(s->blocks[0]);
    give(s, 0);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(free_memory(0), left);
}

static uint64_t open_scene(void)
{
    /* The limit refuses before anything is created. Memory that is created in vain and not taken back would be lost. */
    open_host((weir_settings){ .host_memory = MEMORY, .memory_limit = MEMORY - 16 * MIB });
    (void)default_stream(0); /* the device is open */
    return free_memory(0);
}

static void play_with(failing *f, void (*run)(scene *s))
{
    scene s = { .bytes = { 0 } };
    const uint64_t left = open_scene();
    begin_failing(f);
    run(&s);
    end_failing(f);
    assert_ok(weir_host_fail_clear());
    if (s.stream.id && run == run_graph) end_what_goes_on(device_0()->backend, s.stream);
    check_aftermath(&s, left);
    assert_ok(weir_close());
    assert_records_but_pages(records_at_rest, f);
}

static void play(failing *f)
{
    play_with(f, run_scenario);
}

static void play_graph(failing *f)
{
    play_with(f, run_graph);
}

FAIL_ALL_OF(play, 60, 10)

static void a_graphs_pool_survives_every_failing_call(void **state)
{
    fail_each_call(play_graph, WEIR_ERR_DRIVER, *state, 40);
}

static void a_graphs_pool_survives_every_record_refused(void **state)
{
    fail_each_record(play_graph, *state, 10);
}

/* Moving the memory of either pool needs a record. */
static void a_stream_that_cannot_end_keeps_all_that_it_has(void **state)
{
    (void)state;
    bool came = true;
    for (uint64_t nth = 1; came; nth++) {
        open_host((weir_settings){ .host_memory = MEMORY });
        const weir_stream stream = new_stream(0);
        void *blocks[] = { alloc_on(CHUNK, stream),
                           alloc_from(make_pool(pool_options(WEIR_MEMORY_DEVICE, "")), CHUNK, stream) };
        wr_meta_fail_nth(nth);
        const weir_status status = weir_stream_destroy(stream);
        came = failure_came(nth);
        for (int i = 0; i < 2; i++) {
            const bool still = info_of(blocks[i]).stream.id == stream.id;
            if (still != (status != WEIR_OK)) fail_msg("record %u, block %d is elsewhere", (unsigned)nth, i);
        }
        assert_ok(weir_validate(0));
        assert_ok(weir_close());
    }
}

static int warm_up(void **state)
{
    (void)state;
    scene s = { .bytes = { 0 } };
    (void)open_scene();
    assert_ok(weir_device_set_current(0));
    run_scenario(&s); /* per-thread state is made once */
    weir_checkpoint_destroy(s.then);
    assert_ok(weir_close());
    records_at_rest = wr_meta_live();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TESTS,
        FAIL_TEST(a_graphs_pool_survives_every_failing_call),
        FAIL_TEST(a_graphs_pool_survives_every_record_refused),
        cmocka_unit_test(a_stream_that_cannot_end_keeps_all_that_it_has),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
