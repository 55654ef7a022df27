#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "script/part.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ALLOC(n, size) { .kind = SCRIPT_ALLOC, .slot = (n), .bytes = (size) }
#define FREE(n) { .kind = SCRIPT_FREE, .slot = (n) }
#define FREE_LATER(n) { .kind = SCRIPT_FREE_LATER, .slot = (n) }
#define COMPLETE { .kind = SCRIPT_COMPLETE }

static script_op before[] = { ALLOC(0, 100), ALLOC(1, 200) };
static int gates[] = { 0 };

static script make(script_op *body, size_t count)
{
    return (script){ .before = { .at = before, .count = COUNT(before) },
                     .body = { .at = body, .count = count },
                     .slots = 4,
                     .gates = gates,
                     .gate_count = 1,
                     .segments = &(script_segment){ 0 },
                     .segment_count = 1,
                     .devices = 1 };
}

static void assert_op(const script_ops *ops, size_t index, script_kind kind, uint32_t slot, uint64_t bytes)
{
    assert_true(index < ops->count);
    assert_int_equal(ops->at[index].kind, kind);
    assert_int_equal(ops->at[index].slot, slot);
    assert_int_equal(ops->at[index].bytes, bytes);
}

static void the_first_part_frees_blocks_live_at_its_end(void **state)
{
    (void)state;
    script_op body[] = { ALLOC(2, 300), FREE(0), FREE(1), FREE(2) };
    const script whole = make(body, COUNT(body));
    script part;
    script_part(&whole, 0, 2, &part);
    assert_int_equal(part.before.count, 2);
    assert_int_equal(part.body.count, 2);
    assert_int_equal(part.operations, 2);
    assert_int_equal(part.after.count, 2);
    assert_op(&part.after, 0, SCRIPT_FREE, 1, 0);
    assert_op(&part.after, 1, SCRIPT_FREE, 2, 0);
    script_part_release(&part);
}

static void the_second_part_begins_with_live_blocks_in_order_of_allocation(void **state)
{
    (void)state;
    script_op body[] = { ALLOC(3, 300), FREE(0), ALLOC(2, 400), ALLOC(0, 500), FREE(2), FREE(0) };
    const script whole = make(body, COUNT(body));
    script part;
    script_part(&whole, 4, 6, &part);
    assert_int_equal(part.before.count, 4);
    assert_int_equal(part.residents, 4);
    assert_op(&part.before, 0, SCRIPT_ALLOC, 1, 200);
    assert_op(&part.before, 1, SCRIPT_ALLOC, 3, 300);
    assert_op(&part.before, 2, SCRIPT_ALLOC, 2, 400);
    assert_op(&part.before, 3, SCRIPT_ALLOC, 0, 500);
    assert_int_equal(part.body.count, 2);
    assert_int_equal(part.after.count, 2);
    assert_op(&part.after, 0, SCRIPT_FREE, 1, 0);
    assert_op(&part.after, 1, SCRIPT_FREE, 3, 0);
    script_part_release(&part);
}

static void a_block_that_waits_at_the_cut_completes_at_the_end_of_the_first_part(void **state)
{
    (void)state;
    script_op body[] = { FREE_LATER(0), FREE_LATER(1), COMPLETE, COMPLETE };
    const script whole = make(body, COUNT(body));
    script part;
    script_part(&whole, 0, 3, &part);
    assert_int_equal(part.body.count, 3);
    assert_int_equal(part.after.count, 1);
    assert_op(&part.after, 0, SCRIPT_COMPLETE, 0, 0);
    script_part_release(&part);
}

static void a_block_that_waits_at_the_cut_waits_in_the_second_part(void **state)
{
    (void)state;
    script_op body[] = { FREE_LATER(0), FREE_LATER(1), COMPLETE, COMPLETE };
    const script whole = make(body, COUNT(body));
    script part;
    script_part(&whole, 1, 4, &part);
    assert_int_equal(part.before.count, 3);
    assert_int_equal(part.residents, 2);
    assert_op(&part.before, 0, SCRIPT_ALLOC, 0, 100);
    assert_op(&part.before, 1, SCRIPT_ALLOC, 1, 200);
    assert_op(&part.before, 2, SCRIPT_FREE_LATER, 0, 0);
    assert_int_equal(part.body.count, 3);
    assert_op(&part.body, 0, SCRIPT_FREE_LATER, 1, 0);
    assert_op(&part.body, 1, SCRIPT_COMPLETE, 0, 0);
    assert_op(&part.body, 2, SCRIPT_COMPLETE, 0, 0);
    assert_int_equal(part.after.count, 0);
    script_part_release(&part);
}

static void a_block_from_before_the_recording_that_waits_is_in_the_whole_and_in_both_halves(void **state)
{
    (void)state;
    script_op held[] = { ALLOC(0, 100), ALLOC(1, 200), FREE_LATER(0) };
    script_op body[] = { ALLOC(2, 300), FREE(2), COMPLETE, FREE(1) };
    script whole = make(body, COUNT(body)), part;
    whole.before = (script_ops){ .at = held, .count = COUNT(held) };
    for (size_t from = 0; from <= 2; from += 2) {
        script_part(&whole, from, 4, &part);
        assert_int_equal(part.before.count, 3);
        assert_int_equal(part.residents, 2);
        assert_op(&part.before, 2, SCRIPT_FREE_LATER, 0, 0);
        assert_int_equal(part.body.count, 4 - from);
        assert_int_equal(part.after.count, 0);
        script_part_release(&part);
    }
    script_part(&whole, 0, 2, &part);
    assert_int_equal(part.before.count, 3);
    assert_int_equal(part.after.count, 2);
    assert_op(&part.after, 0, SCRIPT_FREE, 1, 0);
    assert_op(&part.after, 1, SCRIPT_COMPLETE, 0, 0);
    script_part_release(&part);
}

static void of_blocks_that_wait_in_one_slot_each_is_kept_until_it_has_passed(void **state)
{
    (void)state;
    script_op body[] = { FREE_LATER(0), ALLOC(0, 500), FREE_LATER(0), ALLOC(0, 600),
                         FREE_LATER(0), COMPLETE,      ALLOC(0, 700) };
    const script whole = make(body, COUNT(body));
    script part;
    script_part(&whole, 6, 7, &part);
    assert_int_equal(part.before.count, 5);
    assert_int_equal(part.residents, 3);
    assert_op(&part.before, 0, SCRIPT_ALLOC, 1, 200);
    assert_op(&part.before, 1, SCRIPT_ALLOC, 0, 500);
    assert_op(&part.before, 2, SCRIPT_FREE_LATER, 0, 0);
    assert_op(&part.before, 3, SCRIPT_ALLOC, 0, 600);
    assert_op(&part.before, 4, SCRIPT_FREE_LATER, 0, 0);
    assert_int_equal(part.after.count, 4);
    script_part_release(&part);
}

static void actions_of_the_recorded_allocator_are_left_out_and_those_of_the_program_stay(void **state)
{
    (void)state;
    script_op body[] = { { .kind = SCRIPT_RELIEVE }, { .kind = SCRIPT_EMPTY }, ALLOC(2, 300) };
    const script whole = make(body, COUNT(body));
    script part;
    script_part(&whole, 0, 3, &part);
    assert_int_equal(part.body.count, 2);
    assert_op(&part.body, 0, SCRIPT_EMPTY, 0, 0);
    assert_op(&part.body, 1, SCRIPT_ALLOC, 2, 300);
    assert_int_equal(part.operations, 1);
    assert_int_equal(part.segment_count, 0);
    script_part_release(&part);
}

static void a_failed_request_keeps_its_place(void **state)
{
    (void)state;
    script_op body[] = { ALLOC(2, 300), { .kind = SCRIPT_REFUSED, .bytes = 900 }, ALLOC(3, 400) };
    script whole = make(body, COUNT(body)), part;
    whole.operations = 2;
    whole.refused = 1;
    script_part(&whole, 0, 2, &part);
    assert_op(&part.body, 1, SCRIPT_REFUSED, 0, 900);
    assert_int_equal(part.refused, 1);
    assert_int_equal(part.operations, 1);
    script_part_release(&part);
    script_part(&whole, 2, 3, &part);
    assert_int_equal(part.body.count, 1);
    assert_int_equal(part.refused, 0);
    script_part_release(&part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_part_frees_blocks_live_at_its_end),
        cmocka_unit_test(the_second_part_begins_with_live_blocks_in_order_of_allocation),
        cmocka_unit_test(a_block_that_waits_at_the_cut_completes_at_the_end_of_the_first_part),
        cmocka_unit_test(a_block_that_waits_at_the_cut_waits_in_the_second_part),
        cmocka_unit_test(a_block_from_before_the_recording_that_waits_is_in_the_whole_and_in_both_halves),
        cmocka_unit_test(of_blocks_that_wait_in_one_slot_each_is_kept_until_it_has_passed),
        cmocka_unit_test(actions_of_the_recorded_allocator_are_left_out_and_those_of_the_program_stay),
        cmocka_unit_test(a_failed_request_keeps_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
