/*
 * Pinned memory, and checkpoints of pools: two scenarios, each run for every n with the n-th driver call failing, then
 * with the n-th allocation of weir's own records failing. After each run the structures are consistent, everything can
 * still be freed and given back, and closing leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fail_support.h"
#include "host_support.h"

#include <string.h>
#include <sys/mman.h>

#define BLOCKS 10

/* What a scenario holds; a step that failed leaves its out-parameter as it was. */
typedef struct scene {
    weir_stream streams[2];
    void *blocks[BLOCKS];
    weir_mempool pool;
    weir_checkpoint *checkpoint;
} scene;

typedef struct scenario {
    void (*run)(scene *s);
    void (*check)(scene *s); /* with the failure over: gives back what the scene holds */
    uint64_t calls, records; /* that it makes at least */
} scenario;

static void make_streams(scene *s)
{
    for (int i = 0; i < 2; i++) (void)!weir_stream_create(0, 0, &s->streams[i]);
}

static void end_streams(scene *s)
{
    for (int i = 0; i < 2; i++)
        if (s->streams[i].id) assert_ok(weir_stream_destroy(s->streams[i]));
}

/* ---- pinned memory ----------------------------------------------------------------------------------------------- */

static int64_t held(void)
{
    weir_memory_stats stats = { .size = sizeof stats };
    assert_ok(weir_pinned_stats_get(&stats));
    return stats.reserved_bytes[WEIR_STAT_ALL].current;
}

static void pin(scene *s, int index, size_t bytes)
{
    if (weir_pinned_alloc(bytes, WEIR_NUMA_ANY, &s->blocks[index]) == WEIR_OK)
        memset(s->blocks[index], index, bytes);
    else
        assert_null(s->blocks[index]);
}

/* A free has no reason to fail: steps that can fail are deferred. */
static void unpin(scene *s, int index)
{
    if (s->blocks[index]) assert_ok(weir_pinned_free(s->blocks[index]));
    s->blocks[index] = NULL;
}

static void use(const scene *s, int index, int stream)
{
    if (!s->blocks[index] || !s->streams[stream].id) return;
    /* Memory that a stream works on and that cannot be recorded there must not be freed: the work has to be over. */
    if (weir_fill(s->blocks[index], 1, 1000, s->streams[stream]) != WEIR_OK) return;
    if (weir_pinned_record(s->blocks[index], s->streams[stream]) == WEIR_OK) return;
    while (weir_stream_synchronize(s->streams[stream]) != WEIR_OK) continue;
}

static void run_pinned(scene *s)
{
    make_streams(s);
    pin(s, 0, 1000);
    pin(s, 1, 3 * MIB);
    pin(s, 2, 9 * MIB);
    for (int i = 0; i < 3; i++) {
        use(s, i, i % 2);
        use(s, i, 1);
    }
    for (int i = 0; i < 3; i++) unpin(s, i);
    pin(s, 0, 9 * MIB);
    (void)!weir_pinned_reserve(5 * MIB, WEIR_NUMA_ANY);
    (void)!weir_pinned_limit_set(48 * MIB);
    for (int i = 3; i < 7; i++) {
        pin(s, i, 11 * MIB); /* not all fit */
        use(s, i, 0);
    }
    unpin(s, 4);
    pin(s, 7, 12 * MIB);
    unpin(s, 0);
    (void)!weir_pinned_trim(30 * MIB);
    (void)!weir_pinned_trim(0);
    (void)!weir_pinned_limit_set(0);
    pin(s, 8, 2 * MIB);
}

static void check_pinned(scene *s)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (s->blocks[i]) assert_ptr_equal(info_of(s->blocks[i]).base, s->blocks[i]);
        unpin(s, i);
    }
    end_streams(s);
    assert_ok(weir_validate(0));
    assert_ok(weir_pinned_trim(0));
    assert_int_equal(held(), 0);
    assert_ok(weir_pinned_alloc(9 * MIB, WEIR_NUMA_ANY, &s->blocks[0]));
    unpin(s, 0);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

#define LAYOUT_MAX 32

/* The blocks of a pool, for comparing. */
static void look(const scene *s, weir_block_info blocks[LAYOUT_MAX], size_t *count)
{
    memset(blocks, 0, LAYOUT_MAX * sizeof blocks[0]);
    *count = 0;
    if (s->pool.user) assert_ok(weir_mempool_blocks(s->pool, blocks, LAYOUT_MAX, count));
    assert_true(*count <= LAYOUT_MAX);
}

static void take(scene *s, int index, size_t bytes)
{
    if (!s->pool.user || !s->streams[0].id) return;
    (void)!weir_alloc_from(s->pool, bytes, s->streams[0], &s->blocks[index]);
}

static void give(scene *s, int index)
{
    if (s->blocks[index]) assert_ok(weir_free(s->blocks[index]));
    s->blocks[index] = NULL;
}

static void try_to_restore(const scene *s)
{
    weir_block_info before[LAYOUT_MAX], after[LAYOUT_MAX];
    size_t count_before = 0, count_after = 0;
    if (!s->checkpoint) return;
    look(s, before, &count_before);
    const bool pending = stats_of(0).pending_frees != 0;
    if (weir_mempool_restore(s->pool, s->checkpoint, NULL, NULL, NULL) == WEIR_OK || pending) return;
    look(s, after, &count_after);
    assert_int_equal(count_before, count_after);
    assert_memory_equal(before, after, sizeof before);
}

static void run_checkpoint(scene *s)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    options.device = 0;
    make_streams(s);
    if (weir_mempool_create(&options, &s->pool) != WEIR_OK) return;
    for (int i = 0; i < 4; i++) take(s, i, 100000 + 300000 * (size_t)i);
    take(s, 4, 3 * MIB);
    give(s, 1);
    (void)!weir_mempool_checkpoint(s->pool, &s->checkpoint);
    give(s, 2);
    take(s, 1, 50000);
    take(s, 5, 22 * MIB); /* where the checkpoint has no block */
    give(s, 4);
    if (s->blocks[5] && s->streams[1].id) (void)!weir_record_stream(s->blocks[5], s->streams[1]);
    try_to_restore(s);
}

static void check_checkpoint(scene *s)
{
    weir_block_info blocks[LAYOUT_MAX];
    size_t count = 0;
    weir_checkpoint *again = NULL;
    if (s->checkpoint) assert_ok(weir_mempool_restore(s->pool, s->checkpoint, NULL, NULL, NULL));
    if (s->pool.user) assert_ok(weir_mempool_checkpoint(s->pool, &again));
    assert_ok(weir_validate(0));
    look(s, blocks, &count);
    for (size_t i = 0; i < count; i++)
        if (blocks[i].state == WEIR_BLOCK_LIVE) assert_ok(weir_free(blocks[i].base));
    weir_checkpoint_destroy(again);
    weir_checkpoint_destroy(s->checkpoint);
    end_streams(s);
    if (s->pool.user) assert_ok(weir_mempool_unref(s->pool));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
}

/* ---- running them ------------------------------------------------------------------------------------------------ */

static const scenario pinned = { run_pinned, check_pinned, 40, 15 };
static const scenario checkpoint = { run_checkpoint, check_checkpoint, 10, 12 };

static weir_status open_scene(void)
{
    weir_settings settings = { .size = sizeof settings, .backend = "host", .host_memory = 96 * MIB };
    return weir_open(&settings);
}

/* The main thread's own context and the first page of names of pools are made once and stay. */
static int warm_up(void **state)
{
    (void)state;
    weir_mempool name;
    assert_ok(open_scene());
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_mempool_reserve(&name));
    assert_ok(weir_close());
    return 0;
}

/* The test's state is the scenario. */
static void play(failing *f)
{
    const scenario *of = f->state;
    const uint64_t before = wr_meta_live();
    scene s = { .checkpoint = NULL };
    assert_ok(open_scene());
    begin_failing(f);
    of->run(&s);
    end_failing(f);
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    of->check(&s);
    assert_ok(weir_validate(0));
    assert_ok(weir_close());
    assert_records(before, f->nth);
}

static void every_driver_call_fails(void *state, weir_status failure)
{
    const scenario *of = state;
    fail_each_call(play, failure, state, of->calls);
}

static void every_driver_call_may_run_out_of_host_memory(void **state)
{
    every_driver_call_fails(*state, WEIR_ERR_OUT_OF_HOST_MEMORY);
}

static void every_driver_call_may_break(void **state)
{
    every_driver_call_fails(*state, WEIR_ERR_DRIVER);
}

static void every_driver_call_may_find_the_device_lost(void **state)
{
    every_driver_call_fails(*state, WEIR_ERR_DEVICE_LOST);
}

static void every_record_may_be_refused(void **state)
{
    const scenario *of = *state;
    fail_each_record(play, *state, of->records);
}

static void closing_survives_every_failing_call(void **state)
{
    const scenario *of = *state;
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        const uint64_t before = wr_meta_live();
        scene s = { .checkpoint = NULL };
        assert_ok(open_scene());
        of->run(&s);
        assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
        const weir_status status = weir_close();
        reached = status != WEIR_OK;
        assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER);
        weir_checkpoint_destroy(s.checkpoint);
        assert_int_equal(wr_meta_live(), before);
    }
    assert_true(nth > 5);
}

/* From the n-th call on everything fails; freeing and closing still work. */
static void the_device_may_be_lost_for_good(void **state)
{
    const scenario *of = *state;
    const uint64_t before = wr_meta_live();
    scene s = { .checkpoint = NULL };
    void *block = NULL;
    unsigned char page;
    assert_ok(open_scene());
    of->run(&s);
    void *kept = of == &pinned ? s.blocks[8] : NULL;
    assert_ok(weir_host_lose_device(0));
    assert_status(weir_pinned_alloc(70 * MIB, WEIR_NUMA_ANY, &block), WEIR_ERR_DEVICE_LOST);
    assert_null(block);
    assert_ok(weir_validate(0));
    for (int i = 0; of == &pinned && i < BLOCKS; i++) unpin(&s, i);
    weir_checkpoint_destroy(s.checkpoint);
    assert_ok(weir_validate(0));
    assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
    assert_int_equal(wr_meta_live(), before);
    if (kept) assert_int_equal(mincore(kept, 4096, &page), -1); /* not mapped any more */
}

#define BOTH(test)                                                                                                     \
    { #test " (pinned)", test, NULL, close_after_failure, (void *)(uintptr_t)&pinned },                                \
    {                                                                                                                  \
        #test " (checkpoint)", test, NULL, close_after_failure, (void *)(uintptr_t)&checkpoint                         \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(every_driver_call_may_run_out_of_host_memory), BOTH(every_driver_call_may_break),
        BOTH(every_driver_call_may_find_the_device_lost),   BOTH(every_record_may_be_refused),
        BOTH(closing_survives_every_failing_call),          BOTH(the_device_may_be_lost_for_good),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
