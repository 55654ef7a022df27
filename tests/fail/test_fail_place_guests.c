/*
 * Two streams that share addresses by a learned plan, from the learning on, run for every n with the n-th driver call
 * failing, then with the n-th of weir's own records refused. After each run no contents are lost, the structures are
 * consistent, and all memory can be given back.
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

enum { SMALL_ONES = 20, EDGE = 4096 };

typedef struct scene {
    weir_stream host, guest;
} scene;

static uint64_t records_at_rest;

static void take_small(weir_stream stream)
{
    for (size_t i = 0; i < SMALL_ONES; i++) {
        void *block = NULL;
        if (weir_alloc_on((1 + i) * 20000, stream, &block) == WEIR_OK) assert_ok(weir_free(block));
    }
}

/* The guest's block lives while the host takes and frees a block, and keeps its contents. */
static void play_round(const scene *s)
{
    void *lent = NULL, *own = NULL, *large = NULL;
    take_small(s->host);
    take_small(s->guest);
    if (weir_alloc_on(24 * MIB, s->guest, &lent) == WEIR_OK) write_pattern(lent, EDGE, 1);
    if (weir_alloc_on(2 * MIB, s->host, &own) == WEIR_OK) write_pattern(own, EDGE, 2);
    if (lent) assert_true(has_pattern(lent, EDGE, 1));
    if (own) assert_true(has_pattern(own, EDGE, 2));
    assert_ok(weir_free(own));
    assert_ok(weir_free(lent));
    if (weir_alloc_on(48 * MIB, s->host, &large) == WEIR_OK) write_pattern(large, EDGE, 3);
    assert_ok(weir_validate(0));
    assert_ok(weir_free(large));
}

static scene open_scene(void)
{
    open_host((weir_settings){ .host_memory = 256 * MIB, .history = 1024, .plan_share = 1 });
    const scene s = { .host = default_stream(0), .guest = new_stream(0) };
    for (int i = 0; i < 2; i++) play_round(&s);
    return s;
}

static void run_scenario(const scene *s)
{
    (void)!weir_plan_learn(0);
    for (int i = 0; i < 2; i++) play_round(s);
}

static void check_aftermath(const scene *s)
{
    assert_ok(weir_host_fail_clear());
    for (int i = 0; i < 2; i++) play_round(s);
    assert_ok(weir_device_synchronize(0));
    assert_ok(weir_empty_cache(0));
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), 0);
}

static void play(failing *f)
{
    const scene s = open_scene();
    begin_failing(f);
    run_scenario(&s);
    end_failing(f);
    check_aftermath(&s);
    assert_ok(weir_close());
    assert_records(records_at_rest, f->nth);
}

static int warm_up(void **state)
{
    (void)state;
    const scene s = open_scene();
    run_scenario(&s);
    assert_in_range(reserved_on(0), 48 * MIB, 52 * MIB); /* they do share */
    assert_ok(weir_close());
    records_at_rest = wr_meta_live();
    return 0;
}

FAIL_ALL_OF(play, 20, 10)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAIL_TESTS,
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
