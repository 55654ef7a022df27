/*
 * Building a script from a recording: which pool blocks are in, and why memory was given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "input/pools.h"
#include "script/script.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EVENT(what, where, bytes) { .kind = WEIR_EVENT_##what, .address = (where), .size = (bytes) }
#define MIB UINT64_C(1048576)

/* ---- pools ------------------------------------------------------------------------------------------------------- */

#define ASSERT_POOLS(events, ...)                                                                                      \
    do {                                                                                                               \
        const uint64_t wanted_[] = { __VA_ARGS__ };                                                                    \
        for (size_t i_ = 0; i_ < COUNT(wanted_); i_++) assert_int_equal((events)[i_].pool[0], wanted_[i_]);            \
    } while (0)

static void tell(weir_event *events, size_t count, trace_segment *segments, size_t segment_count)
{
    trace t = { .events = events, .count = count, .segments = segments, .segment_count = segment_count };
    assert_true(pools_tell(&t));
}

static void events_are_in_the_pool_of_their_segment(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = 0x1000, .bytes = 0x1000, .pool = { 1, 0 } },
                                 { .address = 0x3000, .bytes = 0x1000 },
                                 { .address = 0x5000, .bytes = 0x1000, .pool = { 2, 0 } } };
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0x1000, 0x1000),
                            EVENT(ALLOC, 0x1fff, 1),
                            EVENT(ALLOC, 0x2000, 1),
                            EVENT(ALLOC, 0x3000, 1),
                            EVENT(ALLOC, 0x5000, 1),
                            EVENT(ALLOC, 0xfff, 1) };
    tell(events, COUNT(events), segments, COUNT(segments));
    ASSERT_POOLS(events, 1, 1, 0, 0, 2, 0);
}

static void blocks_from_before_a_segment_are_not_in_it(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = 0x1000, .bytes = 0x1000, .pool = { 1, 0 } } };
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0x1000, 0x1000), EVENT(ALLOC, 0x1800, 1),
                            EVENT(SEGMENT_FREE, 0x1000, 0x1000), EVENT(SEGMENT_ALLOC, 0x1000, 0x1000),
                            EVENT(ALLOC, 0x1800, 1) };
    tell(events, COUNT(events), segments, COUNT(segments));
    ASSERT_POOLS(events, 0, 0, 0, 1, 1);
}

static void a_segment_that_grows_begins_where_nothing_of_it_was_mapped(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = 0x1000, .bytes = 0x2000, .pool = { 1, 0 }, .mapped = true } };
    weir_event events[] = { EVENT(SEGMENT_MAP, 0, 0x2000),
                            EVENT(ALLOC, 0x1800, 1),
                            EVENT(SEGMENT_UNMAP, 0, 0x2000),
                            EVENT(SEGMENT_MAP, 0x1000, 0x1000),
                            EVENT(ALLOC, 0x1800, 1),
                            EVENT(SEGMENT_MAP, 0x2000, 0x1000),
                            EVENT(SEGMENT_UNMAP, 0x2000, 0x1000),
                            EVENT(SEGMENT_MAP, 0x2000, 0x1000),
                            EVENT(ALLOC, 0x2800, 1) };
    tell(events, COUNT(events), segments, COUNT(segments));
    ASSERT_POOLS(events, 0, 0, 0, 1, 1, 1, 1, 1, 1);
}

static void segments_of_another_device_tell_nothing(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = 0x1000, .bytes = 0x1000, .device = 1, .pool = { 1, 0 } } };
    weir_event events[] = { EVENT(ALLOC, 0x1800, 1), EVENT(ALLOC, 0x1800, 1) };
    events[1].device = 1;
    tell(events, COUNT(events), segments, COUNT(segments));
    ASSERT_POOLS(events, 0, 1);
}

static void events_that_name_their_pool_are_believed(void **state)
{
    (void)state;
    trace_segment segments[] = { { .address = 0x1000, .bytes = 0x1000, .pool = { 1, 0 } } };
    weir_event events[] = { EVENT(ALLOC, 0x1800, 1), EVENT(ALLOC, 0x1900, 1) };
    events[1].pool[0] = 7;
    tell(events, COUNT(events), segments, COUNT(segments));
    ASSERT_POOLS(events, 0, 7);
}

/* ---- memory given back ------------------------------------------------------------------------------------------- */

static void build(const trace *t, script *s, const script_kind *wanted, size_t wanted_count)
{
    char error[256];
    assert_true(script_build(t, s, error, sizeof error));
    assert_int_equal(s->body.count, wanted_count);
    for (size_t i = 0; i < wanted_count; i++) assert_int_equal(s->body.at[i].kind, wanted[i]);
}

#define BUILD(trace, script, ...)                                                                                      \
    do {                                                                                                               \
        const script_kind wanted_[] = { __VA_ARGS__ };                                                                 \
        build(trace, script, wanted_, COUNT(wanted_));                                                                 \
    } while (0)

static void assert_ops(weir_event *events, size_t count, bool expandable, const script_kind *wanted,
                       size_t wanted_count)
{
    const trace t = { .events = events, .count = count, .settings = { .expandable_segments = expandable } };
    script s;
    build(&t, &s, wanted, wanted_count);
    script_release(&s);
}

#define ASSERT_OPS(events, expandable, ...)                                                                            \
    do {                                                                                                               \
        const script_kind wanted_[] = { __VA_ARGS__ };                                                                 \
        assert_ops(events, COUNT(events), expandable, wanted_, COUNT(wanted_));                                        \
    } while (0)

static void memory_given_back_on_its_own_was_given_back_by_the_program(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB), EVENT(SEGMENT_FREE, 0, 10 * MIB), EVENT(ALLOC, MIB, 1) };
    ASSERT_OPS(events, false, SCRIPT_EMPTY, SCRIPT_ALLOC);
}

static void memory_given_back_before_a_new_high_was_given_back_for_lack_of_memory(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB), EVENT(SEGMENT_FREE, 0, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 12 * MIB) };
    ASSERT_OPS(events, false, SCRIPT_RELIEVE);
}

/* It is unknown which of them the allocator waited for. */
static void uses_that_end_before_memory_is_given_back_for_lack_of_it_belong_to_that(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB),
                            EVENT(ALLOC, 0, MIB),
                            EVENT(ALLOC, MIB, MIB),
                            EVENT(FREE_REQUESTED, 0, MIB),
                            EVENT(FREE_REQUESTED, MIB, MIB),
                            EVENT(FREE_COMPLETED, MIB, MIB),
                            EVENT(FREE_COMPLETED, 0, MIB),
                            EVENT(SEGMENT_FREE, 0, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 12 * MIB),
                            EVENT(ALLOC, 0, 12 * MIB) };
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_ALLOC, SCRIPT_FREE_LATER, SCRIPT_RELIEVE, SCRIPT_FREE, SCRIPT_COMPLETE,
          SCRIPT_ALLOC);
    assert_int_equal(s.body.at[3].slot, 2);
    assert_int_equal(s.gate_count, 2);
    assert_int_not_equal(s.body.at[4].where, s.body.at[5].where);
    script_release(&s);
}

static void nothing_is_waited_for_before_max_split_size_chooses(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 30 * MIB),  EVENT(ALLOC, 0, 30 * MIB),
                            EVENT(FREE_REQUESTED, 0, 30 * MIB), EVENT(FREE_COMPLETED, 0, 30 * MIB),
                            EVENT(SEGMENT_FREE, 0, 30 * MIB),   EVENT(SEGMENT_ALLOC, 0, 32 * MIB),
                            EVENT(ALLOC, 0, 32 * MIB) };
    const trace t = { .events = events,
                      .count = COUNT(events),
                      .settings = { .known = true, .max_split_size = 20 * MIB } };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_FREE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    assert_int_equal(s.body.at[2].slot, 0);
    script_release(&s);
}

/* What max_split_size chose was not enough, so it waited, and gave all back. */
static void memory_given_back_twice_with_uses_in_between_is_one_lack_of_it(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 30 * MIB),    EVENT(SEGMENT_ALLOC, 32 * MIB, 10 * MIB),
                            EVENT(ALLOC, 32 * MIB, MIB),          EVENT(ALLOC, 33 * MIB, MIB),
                            EVENT(FREE_REQUESTED, 32 * MIB, MIB), EVENT(FREE_REQUESTED, 33 * MIB, MIB),
                            EVENT(SEGMENT_FREE, 0, 30 * MIB),     EVENT(FREE_COMPLETED, 32 * MIB, MIB),
                            EVENT(FREE_COMPLETED, 33 * MIB, MIB), EVENT(SEGMENT_FREE, 32 * MIB, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 36 * MIB),    EVENT(ALLOC, 0, 36 * MIB) };
    const trace t = { .events = events,
                      .count = COUNT(events),
                      .settings = { .known = true, .max_split_size = 20 * MIB } };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_ALLOC, SCRIPT_FREE_LATER, SCRIPT_FREE_LATER, SCRIPT_RELIEVE, SCRIPT_COMPLETE,
          SCRIPT_COMPLETE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    assert_int_equal(s.body.at[4].slot, 3);
    assert_int_equal(s.body.at[4].bytes, 30 * MIB);
    script_release(&s);
}

/* As where two threads of a program run short at once. */
static void memory_given_back_after_some_was_taken_is_another_lack_of_it(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 20 * MIB),
                            EVENT(SEGMENT_ALLOC, 32 * MIB, 20 * MIB),
                            EVENT(ALLOC, 0, 15 * MIB),
                            EVENT(ALLOC, 32 * MIB, 15 * MIB),
                            EVENT(FREE_REQUESTED, 0, 15 * MIB),
                            EVENT(FREE_COMPLETED, 0, 15 * MIB),
                            EVENT(SEGMENT_FREE, 0, 20 * MIB),
                            EVENT(SEGMENT_ALLOC, 64 * MIB, 22 * MIB),
                            EVENT(SEGMENT_FREE, 64 * MIB, 22 * MIB),
                            EVENT(SEGMENT_ALLOC, 96 * MIB, 24 * MIB),
                            EVENT(ALLOC, 96 * MIB, 24 * MIB) };
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_ALLOC, SCRIPT_RELIEVE, SCRIPT_FREE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    assert_int_equal(s.body.at[2].slot, 1);
    assert_int_equal(s.body.at[3].slot, s.body.at[0].slot);
    assert_int_equal(s.body.at[4].slot, 0);
    script_release(&s);
}

static void uses_belong_to_the_first_lack_of_memory_after_them(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 20 * MIB),
                            EVENT(ALLOC, 0, MIB),
                            EVENT(ALLOC, MIB, MIB),
                            EVENT(FREE_REQUESTED, 0, MIB),
                            EVENT(FREE_REQUESTED, MIB, MIB),
                            EVENT(ALLOC, 2 * MIB, MIB),
                            EVENT(FREE_COMPLETED, 0, MIB),
                            EVENT(FREE_COMPLETED, MIB, MIB),
                            EVENT(SEGMENT_FREE, 0, 20 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 22 * MIB),
                            EVENT(SEGMENT_FREE, 0, 22 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 24 * MIB),
                            EVENT(ALLOC, 0, 24 * MIB) };
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_ALLOC, SCRIPT_FREE_LATER, SCRIPT_FREE_LATER, SCRIPT_ALLOC, SCRIPT_RELIEVE,
          SCRIPT_COMPLETE, SCRIPT_COMPLETE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    assert_int_equal(s.body.at[5].slot, 2);
    assert_int_equal(s.body.at[8].slot, 0);
    script_release(&s);
}

static void the_frees_of_another_device_belong_to_no_lack_of_memory(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(FREE_REQUESTED, 0, MIB), EVENT(FREE_COMPLETED, 0, MIB),
                            EVENT(SEGMENT_FREE, 0, 10 * MIB), EVENT(SEGMENT_ALLOC, 0, 12 * MIB),
                            EVENT(ALLOC, 0, 12 * MIB) };
    events[0].device = events[1].device = 1;
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    BUILD(&t, &s, SCRIPT_FREE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    script_release(&s);
}

/* Each device's frees, uses and allocation come behind what it gave back, and no other device's come in between. */
static void what_other_devices_do_during_a_lack_of_memory_comes_behind_it(void **state)
{
    (void)state;
    weir_event events[] = {
        EVENT(SEGMENT_ALLOC, 0, 10 * MIB),
        EVENT(ALLOC, 0, MIB),
        EVENT(SEGMENT_ALLOC, 32 * MIB, 20 * MIB),
        EVENT(ALLOC, 32 * MIB, 2 * MIB),
        EVENT(FREE_REQUESTED, 0, MIB),
        EVENT(FREE_REQUESTED, 32 * MIB, 2 * MIB),
        EVENT(FREE_COMPLETED, 0, MIB),
        EVENT(FREE_COMPLETED, 32 * MIB, 2 * MIB),
        EVENT(SEGMENT_FREE, 0, 10 * MIB),
        EVENT(SEGMENT_FREE, 32 * MIB, 20 * MIB),
        EVENT(SEGMENT_ALLOC, 0, 12 * MIB),
        EVENT(SEGMENT_ALLOC, 32 * MIB, 22 * MIB),
        EVENT(ALLOC, 0, 12 * MIB),
        EVENT(ALLOC, 32 * MIB, 22 * MIB),
    };
    for (size_t i = 0; i < COUNT(events); i++) events[i].device = events[i].address != 0;
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_ALLOC, SCRIPT_RELIEVE, SCRIPT_FREE, SCRIPT_ALLOC, SCRIPT_RELIEVE, SCRIPT_FREE,
          SCRIPT_ALLOC);
    assert_int_equal(s.body.at[2].slot, 1);
    assert_ptr_equal(script_relieved(&s, &s.body.at[2]), &s.body.at[4]);
    assert_int_equal(s.body.at[4].bytes, 12 * MIB);
    assert_ptr_equal(script_relieved(&s, &s.body.at[5]), &s.body.at[7]);
    assert_int_equal(s.body.at[7].bytes, 22 * MIB);
    script_release(&s);
}

static void what_several_devices_do_is_otherwise_in_the_recorded_order(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1),
                            EVENT(SEGMENT_ALLOC, MIB, 10 * MIB),
                            EVENT(ALLOC, MIB, 2),
                            EVENT(FREE_REQUESTED, MIB, 2),
                            EVENT(FREE_REQUESTED, 0, 1),
                            EVENT(FREE_COMPLETED, 0, 1),
                            EVENT(FREE_COMPLETED, MIB, 2),
                            EVENT(SEGMENT_FREE, MIB, 10 * MIB),
                            EVENT(ALLOC, 0, 3),
                            EVENT(ALLOC, MIB, 4) };
    for (size_t i = 0; i < COUNT(events); i++) events[i].device = events[i].address != 0;
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_ALLOC, SCRIPT_FREE, SCRIPT_FREE, SCRIPT_EMPTY, SCRIPT_ALLOC, SCRIPT_ALLOC);
    assert_int_equal(s.body.at[5].bytes, 3);
    script_release(&s);
}

static void memory_given_back_that_would_have_served_was_given_back_by_the_program(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 20 * MIB), EVENT(SEGMENT_FREE, 0, 20 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 20 * MIB), EVENT(ALLOC, 0, 15 * MIB) };
    ASSERT_OPS(events, false, SCRIPT_EMPTY, SCRIPT_ALLOC);
}

static void unless_it_was_in_use_until_then(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 20 * MIB),        EVENT(ALLOC, 0, 20 * MIB),
                            EVENT(FREE_REQUESTED, 0, 20 * MIB),       EVENT(ALLOC, 32 * MIB, 1),
                            EVENT(FREE_COMPLETED, 0, 20 * MIB),       EVENT(SEGMENT_FREE, 0, 20 * MIB),
                            EVENT(SEGMENT_ALLOC, 64 * MIB, 20 * MIB), EVENT(ALLOC, 64 * MIB, 15 * MIB) };
    ASSERT_OPS(events, false, SCRIPT_ALLOC, SCRIPT_FREE_LATER, SCRIPT_ALLOC, SCRIPT_RELIEVE, SCRIPT_COMPLETE,
               SCRIPT_ALLOC);
}

static void what_max_split_size_would_have_chosen_first_was_given_back_by_the_program(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 20 * MIB),         EVENT(SEGMENT_ALLOC, 32 * MIB, 60 * MIB),
                            EVENT(SEGMENT_FREE, 0, 20 * MIB),          EVENT(SEGMENT_FREE, 32 * MIB, 60 * MIB),
                            EVENT(SEGMENT_ALLOC, 128 * MIB, 90 * MIB), EVENT(ALLOC, 128 * MIB, 90 * MIB) };
    const trace t = { .events = events,
                      .count = COUNT(events),
                      .settings = { .known = true, .max_split_size = 32 * MIB } };
    script s;
    BUILD(&t, &s, SCRIPT_EMPTY, SCRIPT_ALLOC);
    script_release(&s);
}

/* Other programs may have taken the rest of the device since. */
static void what_max_split_size_chose_was_given_back_for_lack_of_memory_though_more_was_held_before(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 62 * MIB),       EVENT(SEGMENT_ALLOC, 64 * MIB, 50 * MIB),
                            EVENT(SEGMENT_FREE, 64 * MIB, 50 * MIB), EVENT(ALLOC, 256 * MIB, MIB),
                            EVENT(SEGMENT_FREE, 0, 62 * MIB),        EVENT(SEGMENT_ALLOC, 128 * MIB, 40 * MIB),
                            EVENT(ALLOC, 128 * MIB, 40 * MIB) };
    const trace t = { .events = events,
                      .count = COUNT(events),
                      .settings = { .known = true, .max_split_size = 32 * MIB } };
    script s;
    BUILD(&t, &s, SCRIPT_EMPTY, SCRIPT_ALLOC, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    script_release(&s);
}

static void after_what_max_split_size_chose_all_was_given_back_where_the_driver_refused_again(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 62 * MIB),
                            EVENT(SEGMENT_ALLOC, 64 * MIB, 10 * MIB),
                            EVENT(ALLOC, 256 * MIB, MIB),
                            EVENT(SEGMENT_FREE, 0, 62 * MIB),
                            EVENT(SEGMENT_FREE, 64 * MIB, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 128 * MIB, 40 * MIB),
                            EVENT(ALLOC, 128 * MIB, 40 * MIB) };
    const trace t = { .events = events,
                      .count = COUNT(events),
                      .settings = { .known = true, .max_split_size = 32 * MIB } };
    script s;
    BUILD(&t, &s, SCRIPT_ALLOC, SCRIPT_RELIEVE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
    assert_int_equal(s.body.at[1].bytes, 62 * MIB);
    assert_int_equal(s.body.at[1].slot, 1);
    assert_int_equal(s.body.at[2].bytes, 10 * MIB);
    script_release(&s);
}

static void memory_given_back_while_there_was_more_was_given_back_by_the_program(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB), EVENT(SEGMENT_FREE, 0, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 12 * MIB), EVENT(SEGMENT_ALLOC, 32 * MIB, 10 * MIB) };
    ASSERT_OPS(events, false, SCRIPT_EMPTY);
}

/* A new high, which alone would mean that there was none left. */
static void memory_given_back_is_the_programs_where_a_stack_says_so(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB), EVENT(SEGMENT_FREE, 0, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 12 * MIB) };
    char emptied[] = "memory.py:230:empty_cache", entered[] = "graphs.py:1324:__enter__", later[] = "empty_cache_later";
    char *frames[] = { emptied, entered, later };
    uint32_t items[] = { 0, 1, 1, 2 }, of[] = { 2, 1, 2 };
    size_t first[] = { 0, 0, 2, 4 };
    trace t = { .events = events, .count = COUNT(events), .stacks = { frames, 3, items, first, 3, of, 0 } };
    static const script_kind wanted[] = { SCRIPT_EMPTY, SCRIPT_RELIEVE };
    for (int i = 0; i < 2; i++) {
        script s;
        build(&t, &s, &wanted[i], 1);
        script_release(&s);
        of[1] = 2;
    }
}

static void memory_given_back_before_a_capture_is_the_programs(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB),        EVENT(SEGMENT_FREE, 0, 10 * MIB),
                            EVENT(SEGMENT_ALLOC, 0, 12 * MIB),        EVENT(ALLOC, 0, 12 * MIB),
                            EVENT(FREE_COMPLETED, 0, 12 * MIB),       EVENT(SEGMENT_FREE, 64 * MIB, 12 * MIB),
                            EVENT(SEGMENT_ALLOC, 32 * MIB, 14 * MIB), EVENT(ALLOC, 32 * MIB, MIB) };
    events[2].pool[0] = events[3].pool[0] = events[4].pool[0] = 1; /* a capture's */
    ASSERT_OPS(events, false, SCRIPT_EMPTY, SCRIPT_ALLOC, SCRIPT_FREE, SCRIPT_RELIEVE, SCRIPT_ALLOC);
}

static void memory_that_expandable_segments_unmap_was_given_back(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_MAP, 0, 20 * MIB), EVENT(SEGMENT_UNMAP, 0, 20 * MIB), EVENT(ALLOC, MIB, 1),
                            EVENT(SEGMENT_UNMAP, 0, 20 * MIB) };
    ASSERT_OPS(events, true, SCRIPT_EMPTY, SCRIPT_ALLOC, SCRIPT_EMPTY);
}

static void a_pool_that_weir_unmaps_all_memory_of_gave_it_back(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_MAP, 0, 20 * MIB),
                            EVENT(SEGMENT_MAP, 20 * MIB, 4 * MIB),
                            EVENT(ALLOC, MIB, 1),
                            EVENT(SEGMENT_UNMAP, 20 * MIB, 4 * MIB),
                            EVENT(FREE_COMPLETED, MIB, 1),
                            EVENT(SEGMENT_UNMAP, 0, 20 * MIB),
                            EVENT(SEGMENT_UNMAP, 0, 20 * MIB), /* mapped before the first event */
                            EVENT(ALLOC, MIB, 1) };
    for (size_t i = 0; i < COUNT(events); i++) events[i].pool[1] = 1;
    ASSERT_OPS(events, false, SCRIPT_ALLOC, SCRIPT_FREE, SCRIPT_EMPTY_POOL, SCRIPT_ALLOC);
}

static void a_pool_that_is_emptied_again_gave_back_twice(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 32 * MIB, 10 * MIB), EVENT(SEGMENT_ALLOC, 0, 10 * MIB),
                            EVENT(SEGMENT_FREE, 0, 10 * MIB),         EVENT(ALLOC, 32 * MIB, MIB),
                            EVENT(SEGMENT_ALLOC, 0, 10 * MIB),        EVENT(SEGMENT_FREE, 0, 10 * MIB) };
    events[1].pool[0] = events[2].pool[0] = events[4].pool[0] = events[5].pool[0] = 1;
    ASSERT_OPS(events, false, SCRIPT_EMPTY_POOL, SCRIPT_ALLOC, SCRIPT_EMPTY_POOL);
}

/* What is idle elsewhere stays there. */
static void a_pool_that_goes_takes_its_own_memory_alone(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 10 * MIB),        EVENT(SEGMENT_ALLOC, 32 * MIB, 10 * MIB),
                            EVENT(SEGMENT_FREE, 32 * MIB, 10 * MIB),  EVENT(SEGMENT_ALLOC, 64 * MIB, 14 * MIB),
                            EVENT(ALLOC, 64 * MIB, 14 * MIB),         EVENT(FREE_COMPLETED, 64 * MIB, 14 * MIB),
                            EVENT(SEGMENT_FREE, 96 * MIB, 10 * MIB),  EVENT(SEGMENT_FREE, 0, 10 * MIB),
                            EVENT(SEGMENT_FREE, 128 * MIB, 10 * MIB), EVENT(ALLOC, 64 * MIB, MIB) };
    events[1].pool[1] = events[2].pool[1] = events[6].pool[1] = events[8].pool[1] = 1;
    ASSERT_OPS(events, false, SCRIPT_EMPTY_POOL, SCRIPT_ALLOC, SCRIPT_FREE, SCRIPT_EMPTY_POOL, SCRIPT_EMPTY,
               SCRIPT_EMPTY_POOL, SCRIPT_ALLOC);
}

static void memory_that_weir_maps_elsewhere_was_not_given_back(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_MAP, 0, 20 * MIB), EVENT(SEGMENT_UNMAP, 0, 20 * MIB),
                            EVENT(SEGMENT_MAP, 64 * MIB, 20 * MIB), EVENT(ALLOC, 64 * MIB, 1) };
    ASSERT_OPS(events, false, SCRIPT_ALLOC);
}

static void impossible_sizes_do_not_overflow(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, UINT64_MAX), EVENT(SEGMENT_ALLOC, 0, UINT64_MAX),
                            EVENT(SEGMENT_FREE, 0, UINT64_MAX), EVENT(SEGMENT_ALLOC, 0, 1) };
    ASSERT_OPS(events, false, SCRIPT_EMPTY);
}

/* To go through the uses for each segment would take longer than the time limit of the test. */
static void a_million_segments_after_as_many_uses_take_no_quadratic_time(void **state)
{
    (void)state;
    enum { EACH = 1000000 };
    static const weir_event_kind kinds[] = { WEIR_EVENT_ALLOC, WEIR_EVENT_FREE_REQUESTED, WEIR_EVENT_FREE_COMPLETED,
                                             WEIR_EVENT_SEGMENT_ALLOC };
    weir_event *events = calloc(COUNT(kinds) * EACH, sizeof *events);
    assert_non_null(events);
    for (size_t i = 0; i < COUNT(kinds) * EACH; i++)
        events[i] = (weir_event){ .kind = (uint16_t)kinds[i / EACH], .address = i % EACH * 512, .size = 512 };
    const trace t = { .events = events, .count = COUNT(kinds) * EACH };
    script s;
    char error[SCRIPT_ERROR];
    assert_true(script_build(&t, &s, error, sizeof error));
    assert_int_equal(s.body.count, 3 * EACH);
    script_release(&s);
    free(events);
}

/* ---- allocations that failed ------------------------------------------------------------------------------------- */

static void a_failed_request_keeps_its_place_and_is_no_operation(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, MIB), EVENT(OOM, 7, 3 * MIB), EVENT(FREE_REQUESTED, 0, MIB),
                            EVENT(OOM, 7, 2 * MIB), EVENT(FREE_COMPLETED, 0, MIB) };
    const trace t = { .events = events, .count = COUNT(events) };
    script s;
    char error[256];
    ASSERT_OPS(events, false, SCRIPT_ALLOC, SCRIPT_REFUSED, SCRIPT_FREE, SCRIPT_REFUSED);
    assert_true(script_build(&t, &s, error, sizeof error));
    assert_int_equal(s.body.at[1].bytes, 3 * MIB);
    assert_int_equal(s.refused, 2);
    assert_int_equal(s.refused_first, 3 * MIB);
    assert_int_equal(s.operations, 2);
    script_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_in_the_pool_of_their_segment),
        cmocka_unit_test(blocks_from_before_a_segment_are_not_in_it),
        cmocka_unit_test(a_segment_that_grows_begins_where_nothing_of_it_was_mapped),
        cmocka_unit_test(segments_of_another_device_tell_nothing),
        cmocka_unit_test(events_that_name_their_pool_are_believed),
        cmocka_unit_test(memory_given_back_on_its_own_was_given_back_by_the_program),
        cmocka_unit_test(memory_given_back_before_a_new_high_was_given_back_for_lack_of_memory),
        cmocka_unit_test(uses_that_end_before_memory_is_given_back_for_lack_of_it_belong_to_that),
        cmocka_unit_test(nothing_is_waited_for_before_max_split_size_chooses),
        cmocka_unit_test(memory_given_back_twice_with_uses_in_between_is_one_lack_of_it),
        cmocka_unit_test(memory_given_back_after_some_was_taken_is_another_lack_of_it),
        cmocka_unit_test(uses_belong_to_the_first_lack_of_memory_after_them),
        cmocka_unit_test(the_frees_of_another_device_belong_to_no_lack_of_memory),
        cmocka_unit_test(what_other_devices_do_during_a_lack_of_memory_comes_behind_it),
        cmocka_unit_test(what_several_devices_do_is_otherwise_in_the_recorded_order),
        cmocka_unit_test(memory_given_back_that_would_have_served_was_given_back_by_the_program),
        cmocka_unit_test(unless_it_was_in_use_until_then),
        cmocka_unit_test(what_max_split_size_would_have_chosen_first_was_given_back_by_the_program),
        cmocka_unit_test(what_max_split_size_chose_was_given_back_for_lack_of_memory_though_more_was_held_before),
        cmocka_unit_test(after_what_max_split_size_chose_all_was_given_back_where_the_driver_refused_again),
        cmocka_unit_test(memory_given_back_while_there_was_more_was_given_back_by_the_program),
        cmocka_unit_test(memory_given_back_is_the_programs_where_a_stack_says_so),
        cmocka_unit_test(memory_given_back_before_a_capture_is_the_programs),
        cmocka_unit_test(memory_that_expandable_segments_unmap_was_given_back),
        cmocka_unit_test(a_pool_that_weir_unmaps_all_memory_of_gave_it_back),
        cmocka_unit_test(a_pool_that_is_emptied_again_gave_back_twice),
        cmocka_unit_test(a_pool_that_goes_takes_its_own_memory_alone),
        cmocka_unit_test(memory_that_weir_maps_elsewhere_was_not_given_back),
        cmocka_unit_test(impossible_sizes_do_not_overflow),
        cmocka_unit_test(a_million_segments_after_as_many_uses_take_no_quadratic_time),
        cmocka_unit_test(a_failed_request_keeps_its_place_and_is_no_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
