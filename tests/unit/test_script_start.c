/*
 * What a recording that begins late began with: how its segments and blocks are made by PyTorch's native rules.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "script/script.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MIB UINT64_C(1048576)
#define BASE UINT64_C(0x10000000)
#define EVENT(what, at, bytes) { .kind = WEIR_EVENT_##what, .address = BASE + (at), .size = (bytes) }
#define FREED(at, bytes) EVENT(FREE_REQUESTED, at, bytes), EVENT(FREE_COMPLETED, at, bytes)

static script s;

static void build(weir_event *events, size_t count, trace_segment *segments, size_t segment_count, uint64_t max_split)
{
    char error[256];
    const trace t = { .events = events,
                      .count = count,
                      .segments = segments,
                      .segment_count = segment_count,
                      .settings = { .known = true, .max_split_size = max_split } };
    assert_true(script_build(&t, &s, error, sizeof error));
}

static int release(void **state)
{
    (void)state;
    script_release(&s);
    return 0;
}

/* Allocations by their bytes, frees as 0. */
static void assert_ops(const uint64_t *wanted, size_t count)
{
    assert_null(s.start.unknown);
    assert_int_equal(s.start.ops.count, count);
    for (size_t i = 0; i < count; i++) {
        const script_op *op = &s.start.ops.at[i];
        assert_int_equal(op->kind, wanted[i] ? SCRIPT_ALLOC : SCRIPT_FREE);
        assert_int_equal(op->bytes, wanted[i]);
    }
}

#define ASSERT_OPS(...) assert_ops((const uint64_t[]){ __VA_ARGS__ }, COUNT(((const uint64_t[]){ __VA_ARGS__ })))

static void what_begins_with_the_program_begins_with_nothing(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 2 * MIB } };
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 2 * MIB), EVENT(ALLOC, 0, 512) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    assert_int_equal(s.start.count, 0);
    assert_int_equal(s.start.ops.count, 0);
}

static void blocks_lie_in_their_segment_where_they_lay(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    weir_event events[] = { FREED(3 * MIB, 2 * MIB), FREED(9 * MIB, 4 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 3 * MIB, 2 * MIB, 4 * MIB, 4 * MIB, 7 * MIB, 0, 0, 0);
    assert_int_equal(s.start.segments[0].address, BASE);
    assert_int_equal(s.start.segments[0].bytes, 20 * MIB);
}

static void holes_among_small_blocks_are_filled_by_small_ones(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 2 * MIB } };
    weir_event events[] = { FREED(0, 100) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(MIB, 0, 512, MIB, MIB - 512, 0, 0);
}

static void segments_that_came_later_are_not_made_and_those_that_went_are(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB },
                                 { .address = BASE + 64 * MIB, .bytes = 30 * MIB } };
    weir_event events[] = { EVENT(SEGMENT_FREE, 32 * MIB, 12 * MIB), EVENT(SEGMENT_ALLOC, 64 * MIB, 30 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 20 * MIB, 12 * MIB, 0, 12 * MIB, 0, 0);
    assert_int_equal(s.start.segments[1].address, BASE + 32 * MIB);
    assert_true(s.held[0] == 50.0 * MIB);
}

static void a_large_block_keeps_what_is_too_little_for_another(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    weir_event events[] = { FREED(0, 4 * MIB), FREED(5 * MIB, 15 * MIB - 600) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 5 * MIB, 15 * MIB);
}

static void the_next_allocation_behind_a_block_tells_how_much_it_has(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    weir_event events[] = { EVENT(ALLOC, 5 * MIB, 3 * MIB), FREED(0, 4 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 5 * MIB, 15 * MIB, 0);
    assert_int_equal(s.start.guesses, 0);
}

static void an_allocation_elsewhere_before_it_changes_nothing_about_that(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB },
                                 { .address = BASE + 64 * MIB, .bytes = 30 * MIB } };
    weir_event events[] = { EVENT(ALLOC, 64 * MIB, 30 * MIB), EVENT(ALLOC, 5 * MIB, 3 * MIB), FREED(0, 4 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 5 * MIB, 15 * MIB, 30 * MIB, 0, 30 * MIB, 0, 0);
}

static void an_allocation_after_a_block_was_freed_tells_nothing_about_it(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    weir_event events[] = { FREED(0, 4 * MIB), EVENT(ALLOC, 5 * MIB, 3 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 4 * MIB, 16 * MIB, 0);
    assert_int_equal(s.start.guesses, 1);
}

static void a_block_too_large_to_be_split_has_its_whole_segment(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 60 * MIB } };
    weir_event events[] = { FREED(0, 50 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 40 * MIB);
    ASSERT_OPS(60 * MIB, 0, 60 * MIB);
}

static void the_list_of_live_blocks_tells_how_much_they_have(void **state)
{
    (void)state;
    char error[256];
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    trace_live live[] = { { .address = BASE, .bytes = 5 * MIB, .requested = 4 * MIB } };
    const trace t = { .segments = segments, .segment_count = 1, .live = live, .live_count = 1 };
    assert_true(script_build(&t, &s, error, sizeof error));
    ASSERT_OPS(20 * MIB, 0, 5 * MIB, 15 * MIB, 0);
}

static void build_rounded(weir_event *events, size_t count, const char *divisions)
{
    char error[256];
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    trace t = {
        .events = events, .count = count, .segments = segments, .segment_count = 1, .settings = { .known = true }
    };
    snprintf(t.settings.roundup_power2_divisions, sizeof t.settings.roundup_power2_divisions, "%s", divisions);
    assert_true(script_build(&t, &s, error, sizeof error));
}

static void a_block_of_a_size_that_is_rounded_comes_once_nothing_else_is_free(void **state)
{
    (void)state;
    weir_event events[] = { FREED(9 * MIB, 10 * MIB) };
    build_rounded(events, COUNT(events), "4");
    ASSERT_OPS(20 * MIB, 0, 7 * MIB, 2 * MIB, 8 * MIB, 3 * MIB, 0, 0, 10 * MIB, 0, 0);
}

static void a_segment_whose_size_is_rounded_is_made_by_a_smaller_request(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 64 * MIB, 512) };
    build_rounded(events, COUNT(events), "2");
    ASSERT_OPS(2 * MIB, 0, 16 * MIB, 4 * MIB, 0, 0);
}

static void a_hole_that_all_sizes_are_rounded_beyond_is_not_filled(void **state)
{
    (void)state;
    weir_event events[] = { FREED(5 * MIB / 4, 2 * MIB) };
    build_rounded(events, COUNT(events), "2");
    assert_string_equal(s.start.unknown, "no requests fill its holes (roundup_power2_divisions)");
}

static void a_block_freed_before_but_still_in_use_is_so(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    weir_event events[] = { EVENT(FREE_COMPLETED, 0, 20 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    assert_int_equal(s.start.ops.count, 4);
    assert_int_equal(s.start.ops.at[3].kind, SCRIPT_FREE_LATER);
    assert_int_equal(s.start.ops.at[3].slot, s.start.ops.at[2].slot);
}

static void a_segment_is_made_on_its_stream_and_in_its_pool(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB, .stream = 7, .pool = { 0, 3 } } };
    weir_event events[] = { EVENT(ALLOC, 64 * MIB, 512) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    ASSERT_OPS(20 * MIB, 0, 20 * MIB, 0);
    const script_stream *stream = &s.streams[s.start.ops.at[0].where];
    assert_int_equal(stream->number, 7);
    assert_int_not_equal(stream->pool, 0);
    assert_int_equal(s.start.segments[0].stream, 7);
}

static void segments_of_a_device_without_events_are_left_out(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB, .device = 1 } };
    weir_event events[] = { EVENT(ALLOC, 64 * MIB, 512) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    assert_int_equal(s.start.count, 0);
    assert_int_equal(s.stream_count, 1);
}

static void segments_behind_one_that_cannot_be_made_were_held_too(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB },
                                 { .address = BASE + 64 * MIB, .bytes = 30 * MIB } };
    weir_event events[] = { FREED(MIB / 2, 4 * MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    assert_non_null(s.start.unknown);
    assert_true(s.held[0] == 50.0 * MIB);
}

static void a_file_of_weirs_own_does_not_say_what_segments_there_were(void **state)
{
    (void)state;
    char error[256];
    weir_event events[] = { FREED(0, 20 * MIB), EVENT(SEGMENT_FREE, 0, 20 * MIB) };
    const trace t = { .format = "weir", .events = events, .count = COUNT(events) };
    assert_true(script_build(&t, &s, error, sizeof error));
    assert_string_equal(s.start.unknown, "it does not say what segments there were");
    assert_int_equal(s.start.count, 0);
}

static void a_segment_larger_than_any_device_is_not_made(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = UINT64_C(1) << 60 } };
    weir_event events[] = { FREED(0, MIB) };
    build(events, COUNT(events), segments, COUNT(segments), 0);
    assert_string_equal(s.start.unknown, "one of its segments is larger than any device");
}

static void what_contradicts_the_rules_is_not_made(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = BASE, .bytes = 20 * MIB } };
    weir_event outside[] = { FREED(20 * MIB, 2 * MIB) }, beyond[] = { FREED(19 * MIB, 2 * MIB) };
    weir_event overlapping[] = { FREED(0, 4 * MIB), FREED(2 * MIB, 4 * MIB) };
    weir_event hole[] = { FREED(MIB / 2, 4 * MIB) }, small[] = { FREED(0, MIB) }, endless[] = { FREED(0, UINT64_MAX) };
    const struct {
        weir_event *events;
        size_t count;
        const char *why;
    } cases[] = { { outside, COUNT(outside), "blocks from before it overlap, or lie in no segment that it names" },
                  { beyond, COUNT(beyond), "blocks from before it overlap, or lie in no segment that it names" },
                  { overlapping, COUNT(overlapping),
                    "blocks from before it overlap, or lie in no segment that it names" },
                  { endless, COUNT(endless), "blocks from before it overlap, or lie in no segment that it names" },
                  { hole, COUNT(hole), "its segments have holes that PyTorch's rules do not leave" },
                  { small, COUNT(small), "its segments have blocks that PyTorch puts elsewhere" } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        build(cases[i].events, cases[i].count, segments, COUNT(segments), 0);
        assert_string_equal(s.start.unknown, cases[i].why);
        script_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_begins_with_the_program_begins_with_nothing, release),
        cmocka_unit_test_teardown(blocks_lie_in_their_segment_where_they_lay, release),
        cmocka_unit_test_teardown(holes_among_small_blocks_are_filled_by_small_ones, release),
        cmocka_unit_test_teardown(segments_that_came_later_are_not_made_and_those_that_went_are, release),
        cmocka_unit_test_teardown(a_large_block_keeps_what_is_too_little_for_another, release),
        cmocka_unit_test_teardown(the_next_allocation_behind_a_block_tells_how_much_it_has, release),
        cmocka_unit_test_teardown(an_allocation_elsewhere_before_it_changes_nothing_about_that, release),
        cmocka_unit_test_teardown(an_allocation_after_a_block_was_freed_tells_nothing_about_it, release),
        cmocka_unit_test_teardown(a_block_too_large_to_be_split_has_its_whole_segment, release),
        cmocka_unit_test_teardown(the_list_of_live_blocks_tells_how_much_they_have, release),
        cmocka_unit_test_teardown(a_block_of_a_size_that_is_rounded_comes_once_nothing_else_is_free, release),
        cmocka_unit_test_teardown(a_segment_whose_size_is_rounded_is_made_by_a_smaller_request, release),
        cmocka_unit_test_teardown(a_hole_that_all_sizes_are_rounded_beyond_is_not_filled, release),
        cmocka_unit_test_teardown(a_block_freed_before_but_still_in_use_is_so, release),
        cmocka_unit_test_teardown(a_segment_is_made_on_its_stream_and_in_its_pool, release),
        cmocka_unit_test_teardown(segments_of_a_device_without_events_are_left_out, release),
        cmocka_unit_test_teardown(segments_behind_one_that_cannot_be_made_were_held_too, release),
        cmocka_unit_test_teardown(a_file_of_weirs_own_does_not_say_what_segments_there_were, release),
        cmocka_unit_test_teardown(a_segment_larger_than_any_device_is_not_made, release),
        cmocka_unit_test(what_contradicts_the_rules_is_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
