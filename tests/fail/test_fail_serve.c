/*
 * A plan served, left and served again, run for every n with the n-th driver call failing, then with the n-th of weir's
 * own records refused. After each run no contents are lost, the structures are consistent, and a plan is served in full
 * again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "fail_support.h"
#include "pool_support.h"
#include "weir/plan.h"

enum { ENTRIES = 16, EDGE = 4096 };

static weir_plan_entry entries[ENTRIES];
static weir_plan_arena arena;
static const weir_plan plan = { .arena_count = 1, .entry_count = ENTRIES, .arenas = &arena, .entries = entries };
static uint64_t records_at_rest;

typedef struct scene {
    unsigned char *blocks[ENTRIES + 2]; /* the last two are not planned */
    size_t bytes[ENTRIES + 2];
} scene;

static void make_plan(void)
{
    arena = (weir_plan_arena){ .streams = 1, .entries = ENTRIES };
    for (unsigned i = 0; i < ENTRIES; i++) {
        entries[i] =
            (weir_plan_entry){ .offset = arena.bytes, .bytes = (1 + i * 5 % 7) * MIB, .lives = WEIR_PLAN_FOREVER };
        arena.bytes += entries[i].bytes;
    }
}

static void take(scene *s, unsigned index, size_t bytes)
{
    void *block = NULL;
    if (weir_alloc(bytes, &block) != WEIR_OK) return;
    s->blocks[index] = block;
    s->bytes[index] = bytes;
    write_pattern(block, EDGE, index);
    write_pattern(s->blocks[index] + bytes - EDGE, EDGE, index + 100);
}

static void give(scene *s, unsigned index)
{
    assert_ok(weir_free(s->blocks[index])); /* a free has no reason to fail */
    s->blocks[index] = NULL;
}

static void check(const scene *s)
{
    assert_ok(weir_validate(0));
    for (unsigned i = 0; i < ENTRIES + 2; i++)
        if (s->blocks[i] &&
            !(has_pattern(s->blocks[i], EDGE, i) && has_pattern(s->blocks[i] + s->bytes[i] - EDGE, EDGE, i + 100)))
            fail_msg("block %u is not what it was", i);
}

/* Serves the plan, lets its memory go elsewhere and to the driver, and serves the plan from what is left. */
static void run_scenario(scene *s)
{
    (void)!weir_plan_serve(0, &plan);
    for (unsigned i = 0; i < ENTRIES; i++) take(s, i, entries[i].bytes);
    check(s);
    for (unsigned i = 1; i < ENTRIES; i++) give(s, i);
    take(s, ENTRIES, 30 * MIB);
    (void)!weir_empty_cache(0);
    check(s);
    (void)!weir_plan_serve(0, &plan);
    give(s, 0);
    for (unsigned i = 0; i < ENTRIES; i++) take(s, i, entries[i].bytes);
    take(s, ENTRIES + 1, 9 * MIB);
    check(s);
}

static void check_aftermath(scene *s)
{
    assert_ok(weir_host_fail_clear());
    check(s);
    for (unsigned i = 0; i < ENTRIES + 2; i++) give(s, i);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_plan_serve(0, &plan));
    const uint64_t served = stats_of(0).plan_served;
    for (unsigned i = 0; i < ENTRIES; i++) take(s, i, entries[i].bytes);
    assert_int_equal(stats_of(0).plan_served - served, ENTRIES);
    check(s);
    for (unsigned i = 0; i < ENTRIES; i++) give(s, i);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
}

static void open_scene(void)
{
    open_host((weir_settings){ .host_memory = 512 * MIB });
    (void)default_stream(0);
}

static int warm_up(void **state)
{
    (void)state;
    scene s = { .bytes = { 0 } };
    make_plan();
    open_scene();
    run_scenario(&s); /* per-thread state is made once */
    assert_ok(weir_close());
    records_at_rest = wr_meta_live();
    return 0;
}

static void play(failing *f)
{
    scene s = { .bytes = { 0 } };
    open_scene();
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s);
    assert_ok(weir_close());
    assert_records(records_at_rest, f->nth);
}

FAIL_ALL_OF(play, 20, 10)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TESTS,
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
