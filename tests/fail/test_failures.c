/*
 * One scenario, run for every n with the n-th driver call failing, then with the n-th allocation of weir's own records
 * failing. After each run the structures are consistent, everything can still be freed, and closing leaves nothing
 * behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fail_support.h"
#include "host_support.h"
#include "weir/trace.h"

#include <stdio.h>
#include <unistd.h>

#define BLOCKS 12

/* What the scenario holds; a step that failed leaves its out-parameter as it was. */
typedef struct scene {
    weir_stream streams[3];
    void *blocks[BLOCKS];
    weir_mempool pools[2];
    int failures; /* calls that did not return WEIR_OK */
} scene;

/* Marks an out-parameter that was not written. */
static char untouched;

static bool works(scene *s, weir_status status)
{
    if (as_told(status) != WEIR_OK) s->failures++;
    return status == WEIR_OK;
}

static void take(scene *s, int index, size_t bytes, weir_stream stream)
{
    void *block = &untouched;
    if (works(s, weir_alloc_on(bytes, stream, &block)))
        s->blocks[index] = block;
    else
        assert_ptr_equal(block, &untouched);
}

static void give(scene *s, int index)
{
    if (!s->blocks[index]) return;
    weir_status status = weir_free(s->blocks[index]);
    works(s, status);
    /* A free has no reason to fail: steps that can fail are deferred or worked around. */
    assert_status(status, WEIR_OK);
    s->blocks[index] = NULL;
}

static void make_stream(scene *s, int index)
{
    weir_stream stream = { 77 };
    if (works(s, weir_stream_create(0, 0, &stream)))
        s->streams[index] = stream;
    else
        assert_int_equal(stream.id, 77);
}

static void end_stream(scene *s, int index)
{
    if (s->streams[index].id == 0) return;
    works(s, weir_stream_destroy(s->streams[index]));
    s->streams[index].id = 0;
}

static bool helps(void *user, int device, size_t needed)
{
    (void)device, (void)needed;
    scene *s = user;
    if (!s->blocks[0]) return false;
    give(s, 0);
    return true;
}

static void growing_and_sharing(scene *s)
{
    for (int i = 0; i < 3; i++) make_stream(s, i);
    take(s, 0, 1000, s->streams[0]);
    take(s, 1, 3 * MIB, s->streams[1]);
    take(s, 2, 12 * MIB, s->streams[2]);
    take(s, 3, 70000, WEIR_STREAM_CURRENT);
    for (int i = 0; i < 4; i++)
        if (s->blocks[i]) works(s, weir_record_stream(s->blocks[i], s->streams[(i + 1) % 3]));
    if (s->blocks[1]) works(s, weir_fill(s->blocks[1], 1, 1000, s->streams[2]));
    works(s, weir_stream_wait(s->streams[0], s->streams[1]));
    for (int i = 0; i < 4; i++) give(s, i);
    take(s, 1, 3 * MIB, s->streams[1]);
    take(s, 2, 14 * MIB, s->streams[0]);
}

static void pressing(scene *s)
{
    works(s, weir_reclaim_add(helps, s));
    take(s, 0, 10 * MIB, s->streams[0]);
    works(s, weir_memory_limit_set(0, 64 * MIB));
    for (int i = 4; i < 9; i++) take(s, i, 16 * MIB, s->streams[i % 3]); /* not all fit */
    for (int i = 4; i < 7; i++) {
        if (s->blocks[i] && i == 5) works(s, weir_record_stream(s->blocks[i], s->streams[0]));
        give(s, i);
    }
    take(s, 9, 22 * MIB, s->streams[2]);
    works(s, weir_empty_cache(0));
    works(s, weir_memory_limit_set(0, 0));
}

static void ending(scene *s)
{
    weir_stream pooled = { 0 };
    end_stream(s, 1);
    works(s, weir_stream_from_pool(0, -1, &pooled));
    take(s, 10, 512, pooled);
    take(s, 11, 5 * MIB, WEIR_STREAM_CURRENT); /* may reuse the ended stream's memory */
    end_stream(s, 2);
    take(s, 4, 16 * MIB, s->streams[0]);
    take(s, 5, 16 * MIB, pooled);
}

static void make_pool(scene *s, int index, weir_memory_kind memory)
{
    weir_mempool_options options = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_mempool pool = { 0, 77 };
    options.device = 0;
    options.memory = memory;
    options.use_on_oom = index == 0;
    if (works(s, weir_mempool_create(&options, &pool)))
        s->pools[index] = pool;
    else
        assert_int_equal(pool.user, 77);
}

static void take_from(scene *s, int index, const weir_mempool *pool, size_t bytes)
{
    void *block = &untouched;
    if (pool->user == 0) return;
    if (works(s, weir_alloc_from(*pool, bytes, s->streams[0], &block)))
        s->blocks[index] = block;
    else
        assert_ptr_equal(block, &untouched);
}

/* Calls that end something have no reason to fail. */
static void drop_pool(scene *s, int index)
{
    if (s->pools[index].user) assert_ok(weir_mempool_unref(s->pools[index]));
    s->pools[index].user = 0;
}

static void pooling(scene *s)
{
    const weir_mempool none = { 0, 0 };
    make_pool(s, 0, WEIR_MEMORY_DEVICE);
    make_pool(s, 1, WEIR_MEMORY_MAPPED);
    take_from(s, 0, &s->pools[0], 3 * MIB);
    take_from(s, 1, &s->pools[1], 1000);
    const bool entered = s->pools[1].user && works(s, weir_mempool_enter(s->pools[1]));
    take(s, 2, 12 * MIB, s->streams[0]);
    if (entered) assert_ok(weir_mempool_leave(s->pools[1]));
    const bool routed = s->pools[0].user && works(s, weir_mempool_route_stream(s->pools[0], s->streams[0]));
    take(s, 3, 24 * MIB, s->streams[0]);
    if (routed) assert_ok(weir_mempool_route_stream(none, s->streams[0]));
    give(s, 3);
    take(s, 3, 60 * MIB, s->streams[0]); /* too much */
    take(s, 4, 40 * MIB, s->streams[0]); /* needs cached memory given back */
    take(s, 5, 20 * MIB, s->streams[0]); /* served by the pool that lends, if the requests before succeeded */
    if (s->pools[1].user) works(s, weir_mempool_empty_cache(s->pools[1]));
    drop_pool(s, 1);
    for (int i = 0; i < 6; i++) give(s, i);
    drop_pool(s, 0);
}

static void run_scenario(scene *s)
{
    make_stream(s, 0);
    pooling(s);
    end_stream(s, 0);
    growing_and_sharing(s);
    pressing(s);
    ending(s);
}

/* After the failure is over, everything still works. */
static void check_aftermath(scene *s)
{
    assert_ok(weir_host_fail_clear());
    assert_ok(weir_validate(0));
    for (int i = 0; i < BLOCKS; i++) {
        if (!s->blocks[i]) continue;
        assert_ptr_equal(info_of(s->blocks[i]).base, s->blocks[i]);
        give(s, i);
    }
    assert_ok(weir_validate(0));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(stats_of(0).pending_frees, 0);
    void *block = NULL;
    assert_ok(weir_alloc(MIB, &block));
    assert_ok(weir_free(block));
    assert_ok(weir_validate(0));
}

static weir_status open_scene(const char *policy)
{
    weir_settings settings = { .size = sizeof settings, .backend = "host", .policy = policy, .host_memory = 96 * MIB };
    return weir_open(&settings);
}

/* The main thread's own context is made once and stays. */
static int warm_up(void **state)
{
    (void)state;
    assert_ok(open_scene("weir"));
    assert_ok(weir_device_set_current(0));
    assert_ok(weir_close());
    return 0;
}

/* The test's state is the policy. */
static void play(failing *f)
{
    const uint64_t before = wr_meta_live();
    scene s = { .failures = 0 };
    assert_ok(open_scene(f->state));
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s);
    assert_ok(weir_close());
    assert_records(before, f->nth);
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static void every_driver_call_may_run_out_of_memory(void **state)
{
    fail_each_call(play, WEIR_ERR_OUT_OF_MEMORY, *state, 40);
}

static void every_driver_call_may_break(void **state)
{
    fail_each_call(play, WEIR_ERR_DRIVER, *state, 40);
}

static void play_with_clean_up(failing *f)
{
    scene s = { .failures = 0 };
    assert_ok(open_scene(f->state));
    begin_failing(f);
    run_scenario(&s);
    end_failing_soundly(f);
    assert_ok(weir_close());
}

static void every_driver_call_may_break_and_its_clean_up_too(void **state)
{
    fail_each_call_and_its_clean_up(play_with_clean_up, *state, 40);
}

static void every_driver_call_may_find_the_device_lost(void **state)
{
    fail_each_call(play, WEIR_ERR_DEVICE_LOST, *state, 40);
}

/* A device that is lost for good: from the n-th call on everything fails; freeing and closing still work. */
static void the_device_may_be_lost_for_good(void **state)
{
    for (int at = 0; at < 3; at++) {
        const uint64_t before = wr_meta_live();
        scene s = { .failures = 0 };
        assert_ok(open_scene(*state));
        assert_ok(weir_device_synchronize(0)); /* opens it */
        if (at > 0) growing_and_sharing(&s);
        if (at > 1) pressing(&s);
        assert_ok(weir_validate(0));
        assert_ok(weir_host_lose_device(0));
        if (at <= 1) pressing(&s);
        ending(&s);
        assert_ok(weir_validate(0));
        for (int i = 0; i < BLOCKS; i++) give(&s, i);
        void *block = &untouched;
        assert_status(weir_alloc_on(80 * MIB, WEIR_STREAM_CURRENT, &block), WEIR_ERR_DEVICE_LOST);
        assert_ptr_equal(block, &untouched);
        assert_ok(weir_validate(0));
        assert_status(weir_close(), WEIR_ERR_DEVICE_LOST);
        assert_int_equal(wr_meta_live(), before);
    }
}

static void closing_survives_every_failing_call(void **state)
{
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        const uint64_t before = wr_meta_live();
        scene s = { .failures = 0 };
        assert_ok(open_scene(*state));
        run_scenario(&s);
        assert_ok(weir_host_fail_any(nth, WEIR_ERR_DRIVER));
        for (uint64_t later = nth + 1; later < nth + 20; later++)
            assert_ok(weir_host_fail_any(later, WEIR_ERR_TIMEOUT));
        weir_status status = as_told(weir_close());
        reached = status != WEIR_OK;
        assert_true(status == WEIR_OK || status == WEIR_ERR_DRIVER);
        assert_int_equal(wr_meta_live(), before);
    }
    assert_true(nth > 5);
}

/* ---- weir's own records ------------------------------------------------------------------------------------------ */

static void every_record_may_be_refused(void **state)
{
    fail_each_record(play, *state, 20);
}

static void opening_may_run_out_of_records(void **state)
{
    const uint64_t before = wr_meta_live();
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    uint64_t nth = 1;
    for (; status != WEIR_OK; nth++) {
        weir_stream stream = { 0 };
        wr_meta_fail_nth(nth);
        status = open_scene(*state);
        if (status == WEIR_OK) status = weir_stream_default(0, &stream);
        wr_meta_fail_nth(0);
        assert_true(status == WEIR_OK || status == WEIR_ERR_OUT_OF_HOST_MEMORY);
        assert_ok(weir_close());
        assert_int_equal(wr_meta_live(), before);
    }
    assert_true(nth > 3);
}

static void saving_may_run_out_of_records(void **state)
{
    const char *const path = "saved"; /* in the test's own folder */
    weir_settings settings = { .size = sizeof settings, .backend = "host", .policy = *state, .history = 100 };
    (void)unlink(path);
    assert_ok(weir_open(&settings));
    assert_ok(weir_free(alloc(512)));
    const uint64_t before = wr_meta_live();
    wr_meta_fail_nth(1);
    assert_status(weir_history_save(path), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(wr_meta_live(), before);
    assert_ok(weir_history_save(path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(wr_meta_live(), before);
    assert_ok(weir_close());
}

#define BOTH(test)                                                                                                     \
    { #test " (weir)", test, NULL, close_after_failure, (void *)(uintptr_t)"weir" },                                   \
        { #test " (torch)", test, NULL, close_after_failure, (void *)(uintptr_t)"torch" }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(every_driver_call_may_run_out_of_memory),
        BOTH(every_driver_call_may_break),
        BOTH(every_driver_call_may_break_and_its_clean_up_too),
        BOTH(every_driver_call_may_find_the_device_lost),
        BOTH(the_device_may_be_lost_for_good),
        BOTH(closing_survives_every_failing_call),
        BOTH(every_record_may_be_refused),
        BOTH(opening_may_run_out_of_records),
        BOTH(saving_may_run_out_of_records),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
