/*
 * The private pools of events, from the segments that a snapshot lists.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/input_support.h"

/* As protocol 0 text: see test_input_snapshot.c. */
#define EVENT(action, address, size)                                                                                   \
    "(dS'action'\nS'" action "'\nsS'addr'\nI" address "\nsS'size'\nI" size "\nsS'stream'\nI0\nsa"
#define DEVICE(events) "(l" events "a"
#define IN_POOL(device, address, size, pool)                                                                           \
    "(dS'device'\nI" device "\nsS'address'\nI" address "\nsS'total_size'\nI" size "\nsS'segment_pool_id'\n(I0\nI" pool \
    "\ntsS'blocks'\n(lsa"
#define SNAPSHOT(segments, devices) "(dS'segments'\n(l" segments "sS'device_traces'\n(l" devices "s."

/* Expects the number of each event's pool. */
static void assert_pools(const char *text, const char *wanted)
{
    trace t;
    trace_error e;
    if (!read_exact(text, strlen(text), NULL, &t, &e)) fail_msg("at %llu: %s", (unsigned long long)e.offset, e.text);
    char pools[64] = "";
    assert_in_range(t.count, 1, sizeof pools - 1);
    for (size_t i = 0; i < t.count; i++) {
        assert_int_equal(t.events[i].pool[0], 0);
        pools[i] = (char)('0' + t.events[i].pool[1]);
    }
    assert_string_equal(pools, wanted);
    trace_release(&t);
}

static void events_are_in_the_pool_of_the_segment_around_them(void **state)
{
    (void)state;
    assert_pools(
        SNAPSHOT(IN_POOL("0", "2000", "1000", "7") IN_POOL("0", "3000", "1000", "8") IN_POOL("0", "9000", "10", "0"),
                 DEVICE(EVENT("alloc", "2000", "10") EVENT("alloc", "2999", "1") EVENT("free_requested", "2000", "10")
                            EVENT("free_completed", "2000", "10") EVENT("alloc", "3000", "10")
                                EVENT("alloc", "1999", "1") EVENT("alloc", "4000", "1") EVENT("alloc", "9000", "1"))),
        "77778000");
}

static void a_segment_begins_where_it_was_taken_last(void **state)
{
    (void)state;
    assert_pools(SNAPSHOT(IN_POOL("0", "2000", "1000", "7"),
                          DEVICE(EVENT("segment_alloc", "2000", "500") EVENT("alloc", "2000", "10")
                                     EVENT("free_requested", "2000", "10") EVENT("free_completed", "2000", "10")
                                         EVENT("segment_free", "2000", "500") EVENT("segment_alloc", "2000", "1000")
                                             EVENT("alloc", "2000", "10"))),
                 "0000077");
}

static void a_segment_that_grows_begins_with_its_first_piece(void **state)
{
    (void)state;
    assert_pools(SNAPSHOT(IN_POOL("0", "2000", "900", "7"),
                          DEVICE(EVENT("alloc", "2300", "1") EVENT("segment_map", "2000", "300") EVENT(
                              "alloc", "2000", "1") EVENT("segment_map", "2300", "600") EVENT("alloc", "2300", "1"))),
                 "07777");
}

/* What was given back of it and mapped again since is still its own. */
static void a_segment_that_shrank_meanwhile_is_the_same(void **state)
{
    (void)state;
    assert_pools(SNAPSHOT(IN_POOL("0", "2000", "900", "7"),
                          DEVICE(EVENT("alloc", "2300", "1") EVENT("segment_map", "2000", "300")
                                     EVENT("segment_map", "2300", "600") EVENT("segment_unmap", "2300", "600")
                                         EVENT("segment_map", "2300", "600") EVENT("alloc", "2300", "1"))),
                 "077777");
}

/* They count as far as they lie in it. */
static void pieces_may_reach_beyond_a_segment(void **state)
{
    (void)state;
    assert_pools(
        SNAPSHOT(IN_POOL("0", "100", "100", "0") IN_POOL("0", "2000", "900", "7") IN_POOL("0", "2900", "100", "8"),
                 DEVICE(EVENT("alloc", "2000", "1") EVENT("segment_map", "2200", "300") EVENT(
                     "segment_map", "1000", "1200") EVENT("segment_map", "2500", "2000") EVENT("alloc", "2900", "1"))),
        "07078");
}

static void devices_are_told_apart(void **state)
{
    (void)state;
    assert_pools(SNAPSHOT(IN_POOL("1", "2000", "1000", "7") IN_POOL("2", "2000", "1000", "8"),
                          DEVICE(EVENT("alloc", "2000", "1") EVENT("segment_alloc", "2000", "1000"))
                              DEVICE(EVENT("alloc", "2000", "1")) DEVICE(EVENT("alloc", "2000", "1"))),
                 "0078");
}

static void failures_lie_nowhere(void **state)
{
    (void)state;
    assert_pools(
        SNAPSHOT(IN_POOL("0", "2000", "1000", "7"), DEVICE(EVENT("oom", "2000", "1") EVENT("snapshot", "2000", "1"))),
        "00");
}

static void pools_that_events_tell_themselves_stay(void **state)
{
    (void)state;
    assert_pools(SNAPSHOT(IN_POOL("0", "2000", "1000", "7"),
                          DEVICE(EVENT("alloc", "2000",
                                       "1") "(dS'action'\nS'alloc'\nsS'addr'\nI2500\nsS'size'\nI1\nsS'pool_id'\n"
                                            "(I0\nI9\ntsa")),
                 "09");
}

static void many_pools_are_told_apart(void **state)
{
    (void)state;
    enum { POOLS = 3000 };
    char *text = NULL;
    size_t count = 0;
    FILE *to = open_memstream(&text, &count);
    assert_non_null(to);
    fputs("(dS'device_traces'\n(l(l", to);
    for (int i = 0; i < 2 * POOLS; i++)
        fprintf(to, "(dS'action'\nS'alloc'\nsS'addr'\nI1\nsS'size'\nI1\nsS'pool_id'\n(I%d\nI%d\ntsa", i % 2, i % POOLS);
    fputs("as.", to);
    assert_int_equal(fclose(to), 0);
    trace t;
    assert_true(read_exact(text, count, NULL, &t, NULL));
    assert_int_equal(t.count, 2 * POOLS);
    for (int i = 0; i < 2 * POOLS; i++) {
        assert_int_equal(t.events[i].pool[0], i % 2);
        assert_int_equal(t.events[i].pool[1], i % POOLS);
    }
    trace_release(&t);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_in_the_pool_of_the_segment_around_them),
        cmocka_unit_test(a_segment_begins_where_it_was_taken_last),
        cmocka_unit_test(a_segment_that_grows_begins_with_its_first_piece),
        cmocka_unit_test(a_segment_that_shrank_meanwhile_is_the_same),
        cmocka_unit_test(pieces_may_reach_beyond_a_segment),
        cmocka_unit_test(devices_are_told_apart),
        cmocka_unit_test(failures_lie_nowhere),
        cmocka_unit_test(many_pools_are_told_apart),
        cmocka_unit_test(pools_that_events_tell_themselves_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
