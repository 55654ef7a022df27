/*
 * Private pools, pausing and sharing, run for every n with the n-th driver call failing, then with the n-th of weir's
 * own records refused. After each run no contents are lost, the structures are consistent, and everything can be given
 * back without a rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meta.h"
#include "fail_support.h"
#include "pool_support.h"

#include <unistd.h>

#define BLOCKS 8

/* What the scenario holds; a step that failed leaves its out-parameter as it was. */
typedef struct scene {
    weir_mempool pools[3];
    weir_stream stream;
    void *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    void *import;
    bool entered;
} scene;

/* Records that are there when the library is closed. */
static uint64_t records_at_rest;

/* The blocks must still hold what was written last. */
static void check_contents(const scene *s)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        if (s->blocks[i] && !has_pattern(s->blocks[i], s->bytes[i], i)) fail_msg("block %u is not what it was", i);
}

static void take(scene *s, unsigned index, size_t bytes)
{
    void *block = NULL;
    const weir_mempool pool = s->pools[index % 3];
    if (pool.user == 0 || weir_alloc_from(pool, bytes, s->stream, &block) != WEIR_OK) {
        assert_null(block);
        return;
    }
    s->blocks[index] = block;
    s->bytes[index] = bytes;
    write_pattern(block, bytes, index);
}

static void give(scene *s, unsigned index)
{
    assert_ok(weir_free(s->blocks[index])); /* a free has no reason to fail */
    s->blocks[index] = NULL;
}

static bool any_paused(const scene *s)
{
    bool paused = false;
    for (int i = 0; i < 3; i++) paused |= s->pools[i].user != 0 && pool_info(s->pools[i]).paused;
    return paused;
}

static bool big_enough(void *user, weir_stream stream, size_t bytes)
{
    (void)user, (void)stream;
    return bytes > MIB;
}

static void create_and_route(scene *s)
{
    void *block = NULL;
    const weir_memory_kind kinds[3] = { WEIR_MEMORY_MAPPED, WEIR_MEMORY_EXPORTABLE, WEIR_MEMORY_MAPPED };
    for (int i = 0; i < 3; i++) {
        weir_mempool_options options = pool_options(kinds[i], "a");
        options.deterministic = i == 2;
        (void)!weir_mempool_create(&options, &s->pools[i]);
    }
    (void)!weir_stream_create(0, 0, &s->stream);
    for (unsigned i = 0; i < BLOCKS; i++) take(s, i, i == 3 ? MIB + 200000 : 1000 + 7000 * i);
    if (s->pools[0].user == 0) return;
    s->entered = weir_mempool_enter(s->pools[0]) == WEIR_OK;
    if (weir_alloc(2000, &block) == WEIR_OK) assert_ok(weir_free(block));
    if (s->entered) assert_ok(weir_mempool_leave(s->pools[0]));
    if (weir_mempool_route_filter(s->pools[0], big_enough, NULL) == WEIR_OK)
        assert_ok(weir_mempool_unroute_filter(s->pools[0], big_enough, NULL));
}

static void pause_and_resume(scene *s)
{
    (void)!weir_device_enable_peer(1, 0);
    for (int round = 0; round < 2; round++) {
        const weir_status paused = weir_pause(0, "a", WEIR_PAUSE_KEEP);
        if (paused == WEIR_OK) assert_int_equal(any_paused(s), s->pools[0].user + s->pools[1].user != 0);
        if (!any_paused(s)) check_contents(s);
        assert_ok(weir_validate(0));
        give(s, round == 0 ? 1 : 4);
        const weir_status resumed = weir_resume(0, "a");
        assert_ok(weir_validate(0));
        if (resumed == WEIR_OK) check_contents(s);
        if (resumed != WEIR_OK && paused == WEIR_OK && resumed != WEIR_ERR_INVALID_ARGUMENT) assert_true(any_paused(s));
    }
}

static void share(scene *s)
{
    weir_export_part parts[2] = { { .descriptor = -1 } };
    uint64_t offset = 0;
    size_t count = 0;
    if (any_paused(s) || !s->blocks[7] || weir_export(s->blocks[7], parts, 1, &count, &offset) != WEIR_OK) {
        assert_int_equal(parts[0].descriptor, -1);
        return;
    }
    parts[1] = parts[0];
    (void)!weir_import(0, parts, 2, &s->import);
    close(parts[0].descriptor);
    if (s->import && weir_import_close(s->import) == WEIR_OK) s->import = NULL;
}

static void run_scenario(scene *s)
{
    create_and_route(s);
    pause_and_resume(s);
    share(s);
    take(s, 1, 5000);
    if (s->blocks[2] && s->stream.id) (void)!weir_record_stream(s->blocks[2], default_stream(0));
    give(s, 2);
    (void)!weir_pause(0, NULL, WEIR_PAUSE_KEEP);
    if (s->pools[0].user) assert_ok(weir_mempool_unref(s->pools[0])); /* it has blocks, and is mostly paused */
}

/* Once the failure is over everything is there, works, and goes. */
static void check_aftermath(scene *s, uint64_t left)
{
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    assert_ok(weir_resume(0, NULL));
    check_contents(s);
    if (s->import) assert_ok(weir_import_close(s->import));
    for (unsigned i = 0; i < BLOCKS; i++) give(s, i);
    for (int i = 1; i < 3; i++)
        if (s->pools[i].user) assert_ok(weir_mempool_unref(s->pools[i]));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(stats_of(0).segment[WEIR_STAT_ALL].current, 0);
    assert_int_equal(stats_of(0).paused_bytes, 0);
    assert_int_equal(free_memory(0), left);
    assert_ok(weir_mempool_enter((weir_mempool){ 0, 0 })); /* a thread's routes are its own and stay */
    assert_ok(weir_mempool_leave((weir_mempool){ 0, 0 }));
}

static uint64_t open_scene(void)
{
    weir_settings settings = { .size = sizeof settings, .backend = "host", .host_memory = 96 * MIB, .host_devices = 2 };
    assert_ok(weir_open(&settings));
    (void)default_stream(1); /* both devices are open */
    return free_memory(0);
}

static int warm_up(void **state)
{
    (void)state;
    scene s = { .entered = false };
    (void)open_scene();
    assert_ok(weir_device_set_current(0));
    run_scenario(&s); /* per-thread state is made once */
    assert_ok(weir_close());
    records_at_rest = wr_meta_live();
    return 0;
}

static void play(failing *f)
{
    scene s = { .entered = false };
    const uint64_t left = open_scene();
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s, left);
    assert_ok(weir_close());
    assert_records(records_at_rest, f->nth);
}

FAIL_ALL_OF(play, 80, 20)

static void play_with_clean_up(failing *f)
{
    scene s = { .entered = false };
    (void)open_scene();
    begin_failing(f);
    run_scenario(&s);
    end_failing_soundly(f);
    assert_ok(weir_resume(0, NULL));
    check_contents(&s);
    assert_ok(weir_validate(0));
    assert_nothing_is_uncounted(f->nth);
    (void)!weir_close(); /* addresses that stay mapped are not taken back */
}

static void every_driver_call_may_break_and_its_clean_up_too(void **state)
{
    fail_each_call_and_its_clean_up(play_with_clean_up, *state, 80);
}

static void closing_survives_every_failing_call(void **state)
{
    (void)state;
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        scene s = { .entered = false };
        (void)open_scene();
        run_scenario(&s);
        assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
        weir_status status = weir_close();
        assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER);
        reached = nth < 30; /* a failure to release addresses is only logged, so the status does not show it */
        assert_int_equal(wr_meta_live(), records_at_rest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TESTS,
        FAIL_TEST(every_driver_call_may_break_and_its_clean_up_too),
        FAIL_TEST(closing_survives_every_failing_call),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
