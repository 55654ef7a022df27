#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "script/demand.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ALLOC_ON(stream, n, size) { .kind = SCRIPT_ALLOC, .where = (stream), .slot = (n), .bytes = (size) }
#define ALLOC(n, size) ALLOC_ON(0, n, size)
#define FREE(n) { .kind = SCRIPT_FREE, .slot = (n) }
#define FREE_LATER(n, gate) { .kind = SCRIPT_FREE_LATER, .where = (gate), .slot = (n) }
#define COMPLETE(gate) { .kind = SCRIPT_COMPLETE, .where = (gate) }
#define REFUSED(size) { .kind = SCRIPT_REFUSED, .bytes = (size) }

/* Stream 1 and gate 2 are of another device. */
static script_stream streams[] = { { .device = 0 }, { .device = 1 } };
static int gates[] = { 0, 0, 1 };
static script_op before[] = { ALLOC(0, 100) };

static uint64_t demand_of(script_op *body, size_t count, bool refused)
{
    const script s = { .before = { .at = before, .count = COUNT(before) },
                       .body = { .at = body, .count = count },
                       .slots = 4,
                       .streams = streams,
                       .stream_count = COUNT(streams),
                       .gates = gates,
                       .gate_count = COUNT(gates),
                       .devices = 2 };
    return script_demand(&s, refused, NULL);
}

static void blocks_from_before_count(void **state)
{
    (void)state;
    script_op body[] = { FREE(0), ALLOC(1, 60), ALLOC(0, 30), FREE(1), ALLOC(1, 60) };
    assert_int_equal(demand_of(body, 1, false), 100);
    assert_int_equal(demand_of(body, COUNT(body), false), 100);
    script_op more[] = { ALLOC(1, 60), FREE(0), ALLOC(2, 50) };
    assert_int_equal(demand_of(more, COUNT(more), false), 160);
}

static void a_freed_block_counts_until_its_use_is_over(void **state)
{
    (void)state;
    script_op waits[] = { FREE_LATER(0, 0), ALLOC(0, 50), COMPLETE(0) };
    assert_int_equal(demand_of(waits, COUNT(waits), false), 150);
    script_op is_over[] = { FREE_LATER(0, 0), COMPLETE(0), ALLOC(0, 50) };
    assert_int_equal(demand_of(is_over, COUNT(is_over), false), 100);
}

static void uses_end_in_the_order_of_their_gate(void **state)
{
    (void)state;
    script_op body[] = { ALLOC(1, 10),     FREE_LATER(1, 0), FREE_LATER(0, 1), ALLOC(0, 1),   ALLOC(1, 10),
                         FREE_LATER(1, 0), COMPLETE(1),      COMPLETE(0),      ALLOC(2, 109), ALLOC(3, 1) };
    assert_int_equal(demand_of(body, COUNT(body) - 1, false), 121); /* live: 100, 1 and both of 10 */
    body[COUNT(body) - 2].bytes = 110;
    assert_int_equal(demand_of(body, COUNT(body), false), 122); /* live: 1, the second of 10, 110 and 1 */
}

static void devices_have_peaks_of_their_own(void **state)
{
    (void)state;
    script_op body[] = { FREE(0),           ALLOC_ON(1, 0, 70), FREE_LATER(0, 2),
                         ALLOC_ON(1, 0, 7), COMPLETE(2),        ALLOC_ON(1, 1, 70) };
    assert_int_equal(demand_of(body, COUNT(body), false), 100 + 77);
}

static void a_refused_request_counts_on_demand(void **state)
{
    (void)state;
    script_op body[] = { REFUSED(500), ALLOC(1, 1) };
    assert_int_equal(demand_of(body, COUNT(body), false), 101);
    assert_int_equal(demand_of(body, COUNT(body), true), 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_from_before_count),
        cmocka_unit_test(a_freed_block_counts_until_its_use_is_over),
        cmocka_unit_test(uses_end_in_the_order_of_their_gate),
        cmocka_unit_test(devices_have_peaks_of_their_own),
        cmocka_unit_test(a_refused_request_counts_on_demand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
