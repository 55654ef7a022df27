/*
 * Running totals that pass their end, as bytes do within days where large blocks come and go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device_support.h"
#include "pool/account.h"
#include "pool/count.h"
#include "weir/observe.h"

static void allocate_and_free(int times)
{
    for (int i = 0; i < times; i++) assert_ok(weir_free(alloc(4 * MIB)));
}

static void move_to_the_end(weir_stat *stat)
{
    stat->added = stat->removed = INT64_MAX;
}

/* As after allocations of 2^63 - 1 bytes, all freed. */
static void let_totals_end(void)
{
    wr_cache *cache = &atomic_load(&wr_runtime_global.devices[0])->cache;
    wr_cache_lock(cache);
    weir_memory_stats *stats = wr_stats_locked(cache);
    for (int kind = 0; kind < WEIR_STAT_KINDS; kind++) {
        move_to_the_end(&stats->allocated_bytes[kind]);
        move_to_the_end(&stats->active_bytes[kind]);
        move_to_the_end(&stats->requested_bytes[kind]);
    }
    move_to_the_end(&wr_account_locked(cache, 0)->bytes);
    wr_cache_unlock(cache);
}

static void check_total(weir_stat stat, int64_t bytes)
{
    assert_int_equal(stat.current, 0);
    assert_int_equal(stat.added, bytes);
    assert_int_equal(stat.removed, bytes);
}

static void totals_begin_again_at_zero(void **state)
{
    (void)state;
    allocate_and_free(1);
    (void)stats_of(0);
    let_totals_end();
    allocate_and_free(3);
    const weir_memory_stats stats = stats_of(0);
    const int64_t bytes = 12 * MIB - 1;
    for (int i = 0; i < 2; i++) {
        const int kind = i ? WEIR_STAT_LARGE : WEIR_STAT_ALL;
        check_total(stats.allocated_bytes[kind], bytes);
        check_total(stats.active_bytes[kind], bytes);
        check_total(stats.requested_bytes[kind], bytes);
    }
    assert_ok(weir_validate(0));
}

static void those_of_a_stream_do(void **state)
{
    (void)state;
    weir_stream stream = { 0 };
    weir_stream_stats stats = { .size = sizeof stats };
    allocate_and_free(1);
    (void)stats_of(0);
    let_totals_end();
    allocate_and_free(3);
    assert_ok(weir_stream_default(0, &stream));
    assert_ok(weir_stream_stats_get(stream, &stats));
    assert_int_equal(stats.allocations_bytes, 12 * MIB - 1);
}

/* Under policy torch nothing is parked, so each allocation is counted by itself. */
static char weir[] = "weir", torch[] = "torch";

#define FLOW_TEST(test, policy) { #test ", " #policy, test, open_host_of_policy, close_host, policy }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FLOW_TEST(totals_begin_again_at_zero, weir),
        FLOW_TEST(totals_begin_again_at_zero, torch),
        FLOW_TEST(those_of_a_stream_do, weir),
        FLOW_TEST(those_of_a_stream_do, torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
