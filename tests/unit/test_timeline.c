#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "timeline/summary.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EVENT(what, where, bytes) { .time_ns = 1, .address = (where), .size = (bytes), .kind = WEIR_EVENT_##what }
#define TRACE(of) { .events = (of), .count = COUNT(of) }
#define TRACE_LISTING(of, blocks) { .events = (of), .count = COUNT(of), .live = (blocks), .live_count = COUNT(blocks) }

typedef struct level {
    uint64_t requested, active, reserved;
} level;

static level level_at(const timeline *l, uint32_t moment)
{
    timeline_series s;
    timeline_sum(l, &s);
    level at = { s.requested[moment], s.active[moment], s.reserved[moment] };
    timeline_series_release(&s);
    return at;
}

static void each_operation_is_a_moment(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096),   EVENT(ALLOC, 0, 100),          EVENT(ALLOC, 512, 200),
                            EVENT(FREE_REQUESTED, 0, 100),   EVENT(FREE_COMPLETED, 0, 100), EVENT(SNAPSHOT, 0, 0),
                            EVENT(FREE_REQUESTED, 512, 200), EVENT(SEGMENT_FREE, 0, 4096) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.moments, 6);
    static const uint64_t wanted[] = { 0, 100, 300, 200, 0, 0 };
    for (uint32_t m = 0; m < l.moments; m++) assert_int_equal(level_at(&l, m).requested, wanted[m]);
    assert_int_equal(level_at(&l, 0).reserved, 0);
    for (uint32_t m = 1; m < 5; m++) assert_int_equal(level_at(&l, m).reserved, 4096);
    assert_int_equal(level_at(&l, 5).reserved, 0);
    timeline_release(&l);
}

static void a_free_that_waits_for_another_stream_is_active(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 100), EVENT(FREE_REQUESTED, 0, 100), EVENT(ALLOC, 512, 10),
                            EVENT(FREE_COMPLETED, 0, 100), EVENT(FREE_REQUESTED, 512, 10) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(level_at(&l, 3).requested, 10);
    assert_int_equal(level_at(&l, 3).active, 110); /* it was still pending right after the allocation */
    assert_int_equal(level_at(&l, 4).active, 10);
    timeline_release(&l);
}

static void a_free_that_ends_while_another_device_goes_on_waits_for_nobody(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 100), EVENT(FREE_REQUESTED, 0, 100), EVENT(ALLOC, 512, 10),
                            EVENT(FREE_COMPLETED, 0, 100) };
    events[2].device = 1;
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(level_at(&l, 2).active, 0);
    assert_int_equal(level_at(&l, 3).active, 10);
    timeline_release(&l);
}

static void a_block_that_waited_before_the_first_operation_is_active_then(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(FREE_COMPLETED, 1024, 100), EVENT(ALLOC, 0, 1) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(level_at(&l, 0).active, 100);
    assert_int_equal(level_at(&l, 1).active, 1);
    timeline_release(&l);
}

static void blocks_from_before_are_there_from_the_start(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1), EVENT(FREE_REQUESTED, 512, 10), EVENT(FREE_COMPLETED, 1024, 100) };
    trace_live live[] = { { .address = 0, .requested = 1 }, { .address = 2048, .bytes = 1000, .stack = 7 } };
    trace t = TRACE_LISTING(events, live);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.residents, 3);
    for (size_t i = 0; i < l.block_count; i++) assert_int_equal(l.blocks[i].stack, l.blocks[i].address == 2048 ? 7 : 0);
    assert_int_equal(level_at(&l, 0).requested, 1010);
    assert_int_equal(level_at(&l, 0).active, 1110);
    assert_int_equal(level_at(&l, 2).requested, 1001);
    assert_int_equal(l.malformed, 0);
    timeline_release(&l);
}

static void a_listed_block_where_the_trace_freed_one_was_made_later(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 100), EVENT(FREE_REQUESTED, 0, 100), EVENT(FREE_COMPLETED, 0, 100) };
    trace_live live[] = { { .address = 0, .requested = 10 } };
    trace t = TRACE_LISTING(events, live);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.residents, 0);
    assert_int_equal(level_at(&l, 0).requested, 0);
    assert_int_equal(level_at(&l, 1).requested, 100);
    timeline_release(&l);
}

static void a_listed_block_of_another_size_says_nothing_of_the_one_that_the_trace_has_there(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 100), EVENT(ALLOC, 4096, 100) };
    trace_live live[] = { { .address = 0, .requested = 90, .bytes = 512 },
                          { .address = 4096, .requested = 100, .bytes = 512 } };
    trace t = TRACE_LISTING(events, live);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.block_count, 2);
    assert_int_equal(l.blocks[0].held, 100);
    assert_int_equal(l.blocks[1].held, 512);
    timeline_release(&l);
}

/* The trace lacks its free. */
static void a_block_ends_where_another_is_made_at_its_address(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 100), EVENT(ALLOC, 0, 50), EVENT(FREE_REQUESTED, 0, 50),
                            EVENT(ALLOC, 0, 20) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    static const level wanted[] = { { 0 }, { 100, 100, 0 }, { 50, 50, 0 }, { 0, 50, 0 }, { 20, 20, 0 } };
    for (uint32_t m = 0; m < 5; m++) {
        assert_int_equal(level_at(&l, m).requested, wanted[m].requested);
        assert_int_equal(level_at(&l, m).active, wanted[m].active);
    }
    assert_int_equal(l.malformed, 2);
    timeline_release(&l);
}

static void segments_from_before_are_derived_from_the_end(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_FREE, 65536, 100), EVENT(ALLOC, 0, 1), EVENT(SEGMENT_ALLOC, 65536, 7),
                            EVENT(FREE_REQUESTED, 0, 1) };
    trace_segment segments[] = { { .address = 0, .bytes = 1000 }, { .address = 65536, .bytes = 7 } };
    trace t = TRACE(events);
    t.segments = segments;
    t.segment_count = COUNT(segments);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(level_at(&l, 0).reserved, 1100);
    assert_int_equal(level_at(&l, 1).reserved, 1000);
    assert_int_equal(level_at(&l, 3).reserved, 1007);
    timeline_release(&l);
}

static void a_part_of_a_mapped_range_is_unmapped(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_MAP, 1000, 100),  EVENT(ALLOC, 1000, 1),
                            EVENT(SEGMENT_UNMAP, 1040, 20), EVENT(FREE_REQUESTED, 1000, 1),
                            EVENT(SEGMENT_MAP, 1040, 20),   EVENT(ALLOC, 1000, 1) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(level_at(&l, 1).reserved, 100);
    assert_int_equal(level_at(&l, 2).reserved, 80);
    assert_int_equal(level_at(&l, 3).reserved, 100);
    summary s;
    summarize(&l, 0, &s);
    assert_int_equal(s.reserved.segments, 1); /* three pieces side by side */
    summary_release(&s);
    timeline_release(&l);
}

static void ranges_mapped_before_join_those_mapped_later(void **state)
{
    (void)state;
    enum { K = 1024 };
    weir_event events[] = { EVENT(SEGMENT_UNMAP, 60 * K, 20 * K), EVENT(SEGMENT_MAP, 60 * K, 20 * K),
                            EVENT(ALLOC, 50 * K, K) };
    trace_segment segments[] = { { .address = 0, .bytes = 80 * K, .mapped = true },
                                 { .address = 80 * K, .bytes = 7 * K } };
    trace t = TRACE(events);
    t.segments = segments;
    t.segment_count = COUNT(segments);
    timeline l;
    timeline_build(&t, &l);
    summary s;
    summarize(&l, 0, &s);
    assert_int_equal(s.requested.reserved, 87 * K);
    assert_int_equal(s.requested.segments, 2);
    assert_int_equal(s.requested.holes, 3);
    assert_int_equal(s.requested.largest_hole, 50 * K);
    summary_release(&s);
    timeline_release(&l);
}

static void what_was_in_the_default_pool_stays_there_when_a_private_pool_has_its_address(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096), EVENT(ALLOC, 512, 1), EVENT(SEGMENT_FREE, 0, 4096),
                            EVENT(SEGMENT_ALLOC, 0, 4096) };
    events[3].pool[1] = 9;
    trace_segment segments[] = { { .address = 0, .bytes = 4096, .pool = { 0, 9 } } };
    trace t = TRACE(events);
    t.segments = segments;
    t.segment_count = 1;
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.lanes[l.blocks[0].lane].pool[1], 0);
    assert_int_equal(l.lanes[l.segments[0].lane].pool[1], 0);
    assert_int_equal(l.lanes[l.segments[1].lane].pool[1], 9);
    timeline_release(&l);
}

static void events_that_make_no_sense_are_counted(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1),          EVENT(ALLOC, 0, 2),          EVENT(FREE_REQUESTED, 0, 2),
                            EVENT(FREE_REQUESTED, 0, 2), EVENT(FREE_COMPLETED, 0, 2), EVENT(FREE_COMPLETED, 0, 2) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.malformed, 3);
    assert_int_equal(level_at(&l, 1).requested, 1);
    assert_int_equal(level_at(&l, 2).requested, 2);
    assert_int_equal(level_at(&l, 5).requested, 0);
    timeline_release(&l);
}

static void a_failure_has_its_own_time(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1), EVENT(OOM, 7, 100), EVENT(FREE_REQUESTED, 0, 1) };
    events[1].time_ns = 5;
    events[2].time_ns = 60;
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.oom_count, 1);
    assert_int_equal(l.ooms[0].time, 4);
    assert_int_equal(l.ooms[0].moment, 2);
    timeline_release(&l);
}

static instant first_failure(weir_event *events, size_t count)
{
    trace t = { .events = events, .count = count };
    timeline l;
    timeline_build(&t, &l);
    summary s;
    summarize(&l, 0, &s);
    assert_int_equal(l.oom_count, 1);
    instant at = s.failures[0];
    summary_release(&s);
    timeline_release(&l);
    return at;
}

static void memory_given_back_before_a_failure_is_gone_at_the_failure(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 8192),
                            EVENT(SEGMENT_ALLOC, 65536, 4096),
                            EVENT(ALLOC, 0, 4096),
                            EVENT(FREE_REQUESTED, 0, 4096),
                            EVENT(ALLOC, 4096, 2048),
                            EVENT(FREE_COMPLETED, 0, 4096),
                            EVENT(SEGMENT_FREE, 65536, 4096),
                            EVENT(OOM, 0, 9999) };
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.requested, 2048);
    assert_int_equal(at.active, 2048);
    assert_int_equal(at.reserved, 8192);
    assert_int_equal(at.segments, 1);
    assert_int_equal(at.holes, 2);
    assert_int_equal(at.in_holes, 6144);
    assert_int_equal(at.largest_hole, 4096);
}

static void events_after_a_failure_do_not_count_at_the_failure(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 8192),
                            EVENT(ALLOC, 0, 4096),
                            EVENT(FREE_REQUESTED, 0, 4096),
                            EVENT(ALLOC, 4096, 2048),
                            EVENT(OOM, 0, 9999),
                            EVENT(FREE_COMPLETED, 0, 4096),
                            EVENT(SEGMENT_ALLOC, 65536, 512),
                            EVENT(FREE_REQUESTED, 4096, 2048) };
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.requested, 2048);
    assert_int_equal(at.active, 6144);
    assert_int_equal(at.reserved, 8192);
    assert_int_equal(at.holes, 1);
}

static void blocks_and_segments_from_before_are_there_at_a_failure(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(OOM, 0, 9999), EVENT(FREE_REQUESTED, 0, 1024), EVENT(SEGMENT_FREE, 0, 4096) };
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.requested, 1024);
    assert_int_equal(at.reserved, 4096);
    assert_int_equal(at.largest_hole, 3072);
}

static void a_failure_is_of_its_device_alone(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096), EVENT(ALLOC, 0, 1024), EVENT(SEGMENT_ALLOC, 0, 8192),
                            EVENT(ALLOC, 0, 2048), EVENT(OOM, 0, 9999) };
    for (size_t i = 2; i < COUNT(events); i++) events[i].device = 1;
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.requested, 2048);
    assert_int_equal(at.reserved, 8192);
    assert_int_equal(at.holes, 1);
    assert_int_equal(at.in_holes, 6144);
}

static void blocks_beside_the_largest_hole_are_found(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 16384), EVENT(ALLOC, 1024, 1024), EVENT(ALLOC, 8192, 8192),
                            EVENT(OOM, 0, 9999) };
    events[0].stream = 7;
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.largest_at, 2048);
    assert_int_equal(at.largest_lane, 0);
    assert_int_equal(at.below, 0);
    assert_int_equal(at.above, 1);
}

static void the_largest_hole_is_in_the_pool_and_the_stream_of_its_segment(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 1024), EVENT(SEGMENT_ALLOC, 65536, 8192),
                            EVENT(SEGMENT_ALLOC, 1 << 20, 2048), EVENT(ALLOC, 0, 1024) };
    for (int i = 0; i < 3; i++) events[i].stream = 7 + (uint64_t)i;
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    const instant_point p = { 1, TIMELINE_NEVER, -1 };
    const instant at = instant_at(&l, &p);
    assert_int_equal(at.largest_at, 65536);
    assert_int_equal(l.lanes[at.largest_lane].stream, 8);
    timeline_release(&l);
}

/* The trace lacks the end of the first. */
static void where_segments_overlap_their_bytes_count_once(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096), EVENT(ALLOC, 0, 1), EVENT(SEGMENT_ALLOC, 2048, 4096),
                            EVENT(ALLOC, 2048, 1) };
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(level_at(&l, 1).reserved, 4096);
    assert_int_equal(level_at(&l, 2).reserved, 2048 + 4096);
    timeline_release(&l);
}

static void a_hole_at_the_end_of_a_segment_has_one_neighbour(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096), EVENT(SEGMENT_ALLOC, 4096, 512), EVENT(ALLOC, 0, 1024),
                            EVENT(ALLOC, 4096, 512), EVENT(OOM, 0, 9999) };
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.largest_at, 1024);
    assert_int_equal(at.below, 0);
    assert_int_equal(at.above, TIMELINE_NEVER);
}

static void without_holes_nothing_is_beside_one(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096), EVENT(ALLOC, 0, 4096), EVENT(OOM, 0, 9999) };
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.holes, 0);
    assert_int_equal(at.below, TIMELINE_NEVER);
    assert_int_equal(at.above, TIMELINE_NEVER);
}

static void the_first_failures_and_the_last_are_looked_into(void **state)
{
    (void)state;
    weir_event events[SUMMARY_FAILURES + 4] = { EVENT(ALLOC, 0, 1) };
    for (size_t i = 1; i < COUNT(events); i++) events[i] = (weir_event)EVENT(OOM, 0, i);
    events[SUMMARY_FAILURES + 2] = (weir_event)EVENT(ALLOC, 4096, 5);
    trace t = TRACE(events);
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 0, &s);
    assert_int_equal(l.oom_count, SUMMARY_FAILURES + 2);
    assert_int_equal(summary_failure(&l, &s, SUMMARY_FAILURES - 1)->requested, 1);
    assert_null(summary_failure(&l, &s, SUMMARY_FAILURES));
    assert_int_equal(summary_failure(&l, &s, SUMMARY_FAILURES + 1)->requested, 6);
    summary_release(&s);
    timeline_release(&l);
}

static void the_blocks_that_hold_memory_at_a_failure_are_those_of_its_device_then(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1),
                            EVENT(ALLOC, 1024, 2),
                            EVENT(ALLOC, 2048, 4),
                            EVENT(ALLOC, 3072, 8),
                            EVENT(FREE_REQUESTED, 1024, 2),
                            EVENT(FREE_REQUESTED, 2048, 4),
                            EVENT(FREE_COMPLETED, 1024, 2),
                            EVENT(OOM, 0, 9999),
                            EVENT(FREE_COMPLETED, 2048, 4),
                            EVENT(ALLOC, 4096, 16) };
    events[3].device = 1;
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    const instant_point p = instant_point_of_failure(&l, &l.ooms[0]);
    uint64_t held = 0;
    for (size_t i = 0; i < l.block_count; i++)
        if (instant_holds(&l, &p, &l.blocks[i])) held += l.blocks[i].bytes;
    assert_int_equal(held, 1 + 4);
    assert_int_equal(instant_at(&l, &p).active, held);
    timeline_release(&l);
}

static void an_empty_trace_has_two_moments(void **state)
{
    (void)state;
    trace t = { 0 };
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 5, &s);
    assert_int_equal(l.moments, 2);
    assert_int_equal(s.largest_count, 0);
    summary_release(&s);
    timeline_release(&l);
}

static void holes_are_between_blocks_and_larger_than_rounding(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 8192), EVENT(SEGMENT_ALLOC, 65536, 4096), EVENT(ALLOC, 1024, 1000),
                            EVENT(ALLOC, 2048, 2048) };
    trace t = TRACE(events);
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 1, &s);
    assert_int_equal(s.requested.holes, 3);
    assert_int_equal(s.requested.in_holes, 1024 + 4096 + 4096);
    assert_int_equal(s.requested.largest_hole, 4096);
    assert_int_equal(s.largest_count, 1);
    assert_int_equal(l.blocks[s.largest[0]].bytes, 2048);
    summary_release(&s);
    timeline_release(&l);
}

/* As of a recording that contradicts itself. */
static void a_block_within_another_makes_no_hole(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 8 * INSTANT_HOLE), EVENT(ALLOC, 0, 6 * INSTANT_HOLE),
                            EVENT(ALLOC, INSTANT_HOLE, INSTANT_HOLE), EVENT(OOM, 0, 1) };
    instant at = first_failure(events, COUNT(events));
    assert_int_equal(at.holes, 1);
    assert_int_equal(at.in_holes, 2 * INSTANT_HOLE);
    assert_int_equal(at.largest_at, 6 * INSTANT_HOLE);
    assert_int_equal(at.below, 0);
}

static void sizes_and_lifetimes_are_classed(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1024), EVENT(ALLOC, 4096, 2047), EVENT(FREE_REQUESTED, 0, 1024),
                            EVENT(ALLOC, 8192, 2048), EVENT(ALLOC, 0, 0) };
    trace t = TRACE(events);
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 0, &s);
    assert_int_equal(s.sizes[10].count, 2);
    assert_int_equal(s.sizes[10].peak_requested, 1024 + 2047);
    assert_int_equal(s.sizes[11].count, 1);
    assert_int_equal(s.sizes[0].count, 1);
    assert_int_equal(s.lifetimes[0].count, 1);
    assert_int_equal(s.lifetimes[SUMMARY_LIFETIMES - 1].count, 3);
    summary_release(&s);
    timeline_release(&l);
}

static void every_lane_has_its_own_peak(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(SEGMENT_ALLOC, 0, 4096), EVENT(ALLOC, 0, 1), EVENT(FREE_REQUESTED, 0, 1),
                            EVENT(SEGMENT_ALLOC, 65536, 512), EVENT(ALLOC, 65536, 3) };
    events[3].stream = events[4].stream = 7;
    trace t = TRACE(events);
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 0, &s);
    assert_int_equal(l.lane_count, 2);
    assert_int_equal(s.lanes[0].peak_requested, 1);
    assert_int_equal(s.lanes[0].peak_reserved, 4096);
    assert_int_equal(s.lanes[1].peak_requested, 3);
    assert_int_equal(s.lanes[1].peak_reserved, 512);
    assert_int_equal(s.devices[0].peak_requested, 3);
    assert_int_equal(s.devices[0].peak_reserved, 4608);
    summary_release(&s);
    timeline_release(&l);
}

static void pools_differ_by_either_part_of_their_ids(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 1), EVENT(ALLOC, 512, 1), EVENT(ALLOC, 1024, 1), EVENT(ALLOC, 1536, 1) };
    events[1].pool[0] = events[3].pool[0] = 5;
    events[2].pool[1] = events[3].pool[1] = 5;
    trace t = TRACE(events);
    timeline l;
    timeline_build(&t, &l);
    assert_int_equal(l.lane_count, 4);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(l.blocks[i].lane, i);
    timeline_release(&l);
}

static void a_peak_that_comes_again_is_where_it_came_first(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(ALLOC, 0, 100), EVENT(FREE_REQUESTED, 0, 100), EVENT(FREE_COMPLETED, 0, 100),
                            EVENT(ALLOC, 512, 100) };
    trace t = TRACE(events);
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 10, &s);
    assert_int_equal(s.requested.moment, 1);
    assert_int_equal(s.devices[0].peak, 1);
    assert_int_equal(s.largest_count, 1);
    assert_int_equal(l.blocks[s.largest[0]].address, 0);
    summary_release(&s);
    timeline_release(&l);
}

static void every_kind_is_counted_and_a_label_has_no_bytes(void **state)
{
    (void)state;
    weir_event events[] = { EVENT(LABEL, 0, 0), EVENT(ALLOC, 0, 7), EVENT(DECISION, 1, 7) };
    memcpy((char *)&events[0] + offsetof(weir_event, address), "a label of more than sixteen bytes", 34);
    trace t = TRACE(events);
    timeline l;
    summary s;
    timeline_build(&t, &l);
    summarize(&l, 0, &s);
    assert_int_equal(s.kinds[WEIR_EVENT_LABEL].count, 1);
    assert_int_equal(s.kinds[WEIR_EVENT_LABEL].bytes, 0);
    assert_int_equal(s.kinds[WEIR_EVENT_DECISION].count, 1);
    assert_int_equal(s.kinds[WEIR_EVENT_DECISION].bytes, 7);
    assert_int_equal(l.lane_count, 1);
    summary_release(&s);
    timeline_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_operation_is_a_moment),
        cmocka_unit_test(a_free_that_waits_for_another_stream_is_active),
        cmocka_unit_test(a_free_that_ends_while_another_device_goes_on_waits_for_nobody),
        cmocka_unit_test(a_block_that_waited_before_the_first_operation_is_active_then),
        cmocka_unit_test(blocks_from_before_are_there_from_the_start),
        cmocka_unit_test(a_listed_block_where_the_trace_freed_one_was_made_later),
        cmocka_unit_test(a_listed_block_of_another_size_says_nothing_of_the_one_that_the_trace_has_there),
        cmocka_unit_test(a_block_ends_where_another_is_made_at_its_address),
        cmocka_unit_test(segments_from_before_are_derived_from_the_end),
        cmocka_unit_test(a_part_of_a_mapped_range_is_unmapped),
        cmocka_unit_test(ranges_mapped_before_join_those_mapped_later),
        cmocka_unit_test(what_was_in_the_default_pool_stays_there_when_a_private_pool_has_its_address),
        cmocka_unit_test(events_that_make_no_sense_are_counted),
        cmocka_unit_test(a_failure_has_its_own_time),
        cmocka_unit_test(memory_given_back_before_a_failure_is_gone_at_the_failure),
        cmocka_unit_test(events_after_a_failure_do_not_count_at_the_failure),
        cmocka_unit_test(blocks_and_segments_from_before_are_there_at_a_failure),
        cmocka_unit_test(a_failure_is_of_its_device_alone),
        cmocka_unit_test(blocks_beside_the_largest_hole_are_found),
        cmocka_unit_test(the_largest_hole_is_in_the_pool_and_the_stream_of_its_segment),
        cmocka_unit_test(where_segments_overlap_their_bytes_count_once),
        cmocka_unit_test(a_hole_at_the_end_of_a_segment_has_one_neighbour),
        cmocka_unit_test(without_holes_nothing_is_beside_one),
        cmocka_unit_test(the_first_failures_and_the_last_are_looked_into),
        cmocka_unit_test(the_blocks_that_hold_memory_at_a_failure_are_those_of_its_device_then),
        cmocka_unit_test(an_empty_trace_has_two_moments),
        cmocka_unit_test(holes_are_between_blocks_and_larger_than_rounding),
        cmocka_unit_test(a_block_within_another_makes_no_hole),
        cmocka_unit_test(sizes_and_lifetimes_are_classed),
        cmocka_unit_test(every_lane_has_its_own_peak),
        cmocka_unit_test(pools_differ_by_either_part_of_their_ids),
        cmocka_unit_test(a_peak_that_comes_again_is_where_it_came_first),
        cmocka_unit_test(every_kind_is_counted_and_a_label_has_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
