/*
 * Memory mapped at one address after another, run for every n with the n-th driver call failing, then with the n-th of
 * weir's own records refused. After each run no contents are lost, the structures are consistent, a refused request
 * works when repeated, and nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "base/size.h"
#include "detach_support.h"
#include "fail_support.h"
#include "pool_support.h"
#include "random_support.h"

#define MEMORY (256 * MIB)
#define BLOCKS 24
#define EDGE 4096

typedef struct scene {
    weir_stream streams[2];
    unsigned char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
} scene;

/* Records that are there when the library is closed. */
static uint64_t records_at_rest;

static void check_contents(const scene *s)
{
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

static void take(scene *s, unsigned index, size_t bytes, weir_stream stream)
{
    void *block = NULL;
    give(s, index);
    if (weir_alloc_on(bytes, stream, &block) != WEIR_OK) {
        assert_null(block);
        return;
    }
    s->blocks[index] = block;
    s->bytes[index] = bytes;
    write_pattern(block, EDGE, index);
    write_pattern(s->blocks[index] + bytes - EDGE, EDGE, index + 100);
}

static void check(const scene *s)
{
    assert_ok(weir_validate(0));
    check_contents(s);
}

/* Chunks, every other one free, are mapped together; then their first addresses are used again. */
static void grow_and_stitch(scene *s)
{
    for (unsigned i = 0; i < 10; i++) take(s, i, 12 * MIB, s->streams[0]);
    for (unsigned i = 0; i < 10; i += 2) give(s, i);
    take(s, 10, 40 * MIB, s->streams[0]);
    check(s);
    give(s, 10);
    take(s, 0, 12 * MIB, s->streams[0]);
    take(s, 2, 12 * MIB, s->streams[0]);
    check(s);
}

/* The stream splits and coalesces its blocks without the cache's lock for a while. */
static void work_detached(scene *s)
{
    (void)!try_detach(front_of(s->blocks[1]));
    for (unsigned i = 11; i < 20; i++) take(s, i, (size_t)(i - 10) * 300 * WR_KIB, s->streams[0]);
    for (unsigned i = 11; i < 20; i += 2) give(s, i);
    for (unsigned i = 11; i < 20; i += 2) take(s, i, (size_t)(i - 10) * 200 * WR_KIB, s->streams[0]);
    for (unsigned i = 11; i < 20; i++) give(s, i);
    check_contents(s);
}

/* Both ends of chunks in use, and something new between them. */
static void use_ends(scene *s)
{
    take(s, 11, 50 * MIB, s->streams[0]);
    give(s, 11);
    take(s, 12, 24 * MIB, s->streams[0]);
    take(s, 13, 4 * MIB, s->streams[0]);
    give(s, 12);
    take(s, 14, 60 * MIB, s->streams[0]);
    check(s);
    give(s, 14);
    give(s, 13);
}

/* Takes the free memory of an idle stream, then of a busy one. */
static void use_another_streams_memory(scene *s)
{
    for (unsigned i = 0; i < 10; i++) give(s, i);
    take(s, 15, 70 * MIB, s->streams[1]);
    check(s);
    give(s, 15);
    take(s, 15, 200 * MIB, s->streams[1]);
    give(s, 15);
    assert_ok(weir_host_stream_hold(0, native_of(s->streams[1])));
    (void)!weir_stream_callback(s->streams[1], do_nothing, NULL);
    take(s, 16, 180 * MIB, s->streams[0]);
    check(s);
    assert_ok(weir_host_stream_release(0, native_of(s->streams[1])));
    give(s, 16);
    (void)!weir_empty_cache(0);
}

/* Maps four of eight chunks together, others each time. */
static void map_again(scene *s, uint32_t *random)
{
    unsigned order[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    for (unsigned i = 0; i < 4; i++) {
        const unsigned j = i + (next_random(random) >> 8) % (8 - i), chosen = order[j];
        order[j] = order[i];
        order[i] = chosen;
    }
    for (int i = 0; i < 4; i++) give(s, order[i]);
    take(s, 17, 32 * MIB, s->streams[0]);
    give(s, 17);
    for (int i = 0; i < 4; i++) take(s, order[i], 8 * MIB, s->streams[0]);
}

static void run_scenario(scene *s)
{
    s->streams[0] = default_stream(0);
    (void)!weir_stream_create(0, 0, &s->streams[1]);
    (void)!weir_device_enable_peer(1, 0);
    grow_and_stitch(s);
    if (s->blocks[1]) work_detached(s);
    use_ends(s);
    if (s->streams[1].id) use_another_streams_memory(s);
    take(s, 19, 20 * MIB, s->streams[0]);
    take(s, 20, 3 * MIB, s->streams[1]);
    (void)!weir_empty_cache(0);
    check(s);
    if (s->streams[1].id) (void)!weir_stream_destroy(s->streams[1]);
    check(s);
}

/* Once the failure is over everything is there, works, and goes. */
static void check_aftermath(scene *s, uint64_t left)
{
    assert_ok(weir_host_fail_clear());
    check(s);
    for (unsigned i = 0; i < BLOCKS; i++) give(s, i);
    take(s, 0, 200 * MIB, s->streams[0]);
    assert_non_null(s->blocks[0]);
    give(s, 0);
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, 0);
    assert_int_equal(free_memory(0), left);
}

static uint64_t open_scene(void)
{
    /* The limit refuses before anything is created. Memory that is created in vain and not taken back would be lost. */
    open_host((weir_settings){ .host_memory = MEMORY, .memory_limit = MEMORY - 16 * MIB, .host_devices = 2 });
    (void)default_stream(1); /* both devices are open */
    return free_memory(0);
}

static int warm_up(void **state)
{
    (void)state;
    scene s = { .bytes = { 0 } };
    (void)open_scene();
    run_scenario(&s); /* per-thread state is made once */
    assert_ok(weir_close());
    records_at_rest = wr_meta_live();
    return 0;
}

static void play(failing *f)
{
    scene s = { .bytes = { 0 } };
    const uint64_t left = open_scene();
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s, left);
    assert_ok(weir_close());
    assert_records(records_at_rest, f->nth);
}

FAIL_ALL_OF(play, 100, 20)

static void play_with_clean_up(failing *f)
{
    scene s = { .bytes = { 0 } };
    (void)open_scene();
    begin_failing(f);
    run_scenario(&s);
    end_failing_soundly(f);
    check(&s);
    (void)!weir_empty_cache(0);
    assert_ok(weir_validate(0));
    assert_nothing_is_uncounted(f->nth);
    (void)!weir_close(); /* addresses that stay mapped are not taken back */
}

static void every_driver_call_may_break_and_its_clean_up_too(void **state)
{
    fail_each_call_and_its_clean_up(play_with_clean_up, *state, 100);
}

/* The failure comes when too much is mapped. */
static void play_mapping_too_much(failing *f)
{
    scene s = { .bytes = { 0 } };
    uint32_t random = 1;
    const uint64_t left = open_scene();
    s.streams[0] = default_stream(0);
    for (unsigned i = 0; i < 8; i++) take(&s, i, 8 * MIB, s.streams[0]);
    for (int i = 0; calls_of(WEIR_BACKEND_vm_unmap) == 0; i++) {
        if (i == 1000) fail_msg("never too much mapped");
        map_again(&s, &random);
    }
    begin_failing(f);
    for (int i = 0; i < 12; i++) map_again(&s, &random);
    end_failing(f);
    check_aftermath(&s, left);
    assert_ok(weir_close());
    assert_records(records_at_rest, f->nth);
}

static void unmapping_stale_places_survives_every_failing_call(void **state)
{
    fail_each_call(play_mapping_too_much, WEIR_ERR_DRIVER, *state, 10);
}

/* The driver maps chunks, refuses what comes next, and does not take the mapping back: the memory is where it was, and
 * can be mapped elsewhere. */
static void addresses_that_stay_mapped_are_not_asked_for_again(void **state)
{
    (void)state;
    scene s = { .bytes = { 0 } };
    (void)open_scene();
    s.streams[0] = default_stream(0);
    for (unsigned i = 0; i < 10; i++) take(&s, i, 12 * MIB, s.streams[0]);
    for (unsigned i = 0; i < 10; i += 2) give(&s, i);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_access, 1, WEIR_ERR_DRIVER));
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, 1, WEIR_ERR_DRIVER));
    take(&s, 10, 40 * MIB, s.streams[0]);
    assert_null(s.blocks[10]);
    check(&s);
    take(&s, 10, 40 * MIB, s.streams[0]);
    assert_non_null(s.blocks[10]);
    check(&s);
}

static void closing_survives_every_failing_call(void **state)
{
    (void)state;
    int broken = 0;
    for (uint64_t nth = 1; nth < 60; nth++) {
        scene s = { .bytes = { 0 } };
        (void)open_scene();
        run_scenario(&s);
        assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
        weir_status status = weir_close();
        assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER);
        broken += status != WEIR_OK;
        assert_int_equal(wr_meta_live(), records_at_rest);
    }
    assert_true(broken > 5 && broken < 59);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TESTS,
        FAIL_TEST(every_driver_call_may_break_and_its_clean_up_too),
        FAIL_TEST(unmapping_stale_places_survives_every_failing_call),
        FAIL_TEST(addresses_that_stay_mapped_are_not_asked_for_again),
        FAIL_TEST(closing_survives_every_failing_call),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
