/*
 * Finding a program's position in a plan by the sizes that it requests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "assert_weir.h"
#include "pool/plan/follow.h"

enum { ENTRIES = 200, LOOP_FIRST = 20, LOOP_COUNT = 60, RESIDENTS = 30, ALIKE = 6, SHORT = 3 };

typedef struct scene {
    weir_plan_entry entries[ENTRIES];
    weir_plan_arena arena;
    wr_course course;
    wr_follower follower;
} scene;

/* Sizes in 512 bytes: no two alike, and none 999. */
static uint64_t size_of(uint32_t entry)
{
    return 512 * (1 + (uint64_t)entry * 389 % 997);
}

static void take_course(scene *s)
{
    const weir_plan plan = { .arena_count = 1, .entry_count = ENTRIES, .arenas = &s->arena, .entries = s->entries };
    assert_ok(wr_course_init(&s->course, &plan, &s->arena));
    wr_follower_init(&s->follower, &s->course);
}

static void make_course(scene *s, bool loops)
{
    for (uint32_t i = 0; i < ENTRIES; i++)
        s->entries[i] = (weir_plan_entry){ .offset = 4096, .bytes = size_of(i), .lives = WEIR_PLAN_FOREVER };
    s->arena = (weir_plan_arena){ .streams = 1, .bytes = 1 << 20, .entries = ENTRIES };
    if (loops) {
        s->arena.loop_first = LOOP_FIRST;
        s->arena.loop_entries = LOOP_COUNT;
        s->arena.loop_times = 3;
    }
    take_course(s);
}

static int make_plain(void **state)
{
    static scene s;
    make_course(&s, false);
    *state = &s;
    return 0;
}

static int make_looping(void **state)
{
    static scene s;
    make_course(&s, true);
    *state = &s;
    return 0;
}

/* From some entry on there are only three sizes, in any order, so no single one identifies a place. */
static int make_monotonous(void **state)
{
    static scene s;
    uint64_t random = 1;
    make_course(&s, false);
    wr_course_release(&s.course);
    for (uint32_t i = 50; i < ENTRIES; i++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        s.entries[i].bytes = size_of(50 + (random >> 33) % 3);
    }
    take_course(&s);
    *state = &s;
    return 0;
}

/* The first entries were live when the recording began: the first few have one size, the last few die soon. */
static int make_begun(void **state)
{
    static scene s;
    make_course(&s, false);
    wr_course_release(&s.course);
    s.arena.residents = RESIDENTS;
    for (uint32_t i = 0; i < ALIKE; i++) s.entries[i].bytes = size_of(0);
    for (uint32_t i = RESIDENTS - SHORT; i < RESIDENTS; i++) s.entries[i].lives = 10;
    take_course(&s);
    *state = &s;
    return 0;
}

static int release(void **state)
{
    scene *s = *state;
    wr_course_release(&s->course);
    return 0;
}

/* The program makes the course's entries [from, to); each is found. */
static void make_entries(scene *s, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        uint32_t entry = UINT32_MAX;
        assert_int_equal(wr_follow(&s->follower, &s->course, s->entries[i].bytes, &entry), WR_FOLLOW_NEXT);
        assert_int_equal(entry, i);
    }
}

/* Makes entries from this one on. Returns how many requests it takes until the program is found. */
static uint32_t entries_until_found(scene *s, uint32_t from)
{
    uint32_t entry = UINT32_MAX, asked = 1;
    while (wr_follow(&s->follower, &s->course, s->entries[from + asked - 1].bytes, &entry) == WR_FOLLOW_NONE) asked++;
    assert_int_equal(entry, from + asked - 1);
    return asked;
}

static wr_followed ask(scene *s, uint64_t bytes)
{
    uint32_t entry;
    return wr_follow(&s->follower, &s->course, bytes, &entry);
}

static void the_same_sequence_is_followed(void **state)
{
    scene *s = *state;
    make_entries(s, 0, ENTRIES);
    assert_true(wr_follower_trusted(&s->follower));
}

static void a_course_without_a_loop_begins_again(void **state)
{
    scene *s = *state;
    make_entries(s, 0, ENTRIES);
    make_entries(s, 0, ENTRIES);
}

static void a_request_of_another_size_is_passed_over(void **state)
{
    scene *s = *state;
    make_entries(s, 0, 50);
    assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    make_entries(s, 50, ENTRIES);
    assert_true(wr_follower_trusted(&s->follower));
}

/* Each size occurs twice, so only the neighbourhood tells which entry is meant. */
static void left_out_entries_are_skipped_at_the_second_request(void **state)
{
    scene *s = *state;
    wr_course_release(&s->course);
    for (uint32_t i = 0; i < ENTRIES; i++) s->entries[i].bytes = size_of(i % (ENTRIES / 2));
    take_course(s);
    make_entries(s, 0, 50);
    assert_int_equal(entries_until_found(s, 70), 2);
    make_entries(s, 72, ENTRIES);
    assert_true(wr_follower_trusted(&s->follower));
}

static void a_size_that_is_found_once_tells_where_the_program_is(void **state)
{
    scene *s = *state;
    assert_int_equal(entries_until_found(s, 130), 1);
    make_entries(s, 131, ENTRIES);
}

static void a_program_that_goes_back_is_found_too(void **state)
{
    scene *s = *state;
    make_entries(s, 0, 150);
    assert_int_equal(entries_until_found(s, 10), 1);
    make_entries(s, 11, 60);
}

static uint32_t entry_found(wr_follower *f, wr_course *c, uint64_t bytes)
{
    uint32_t entry = UINT32_MAX;
    assert_int_not_equal(wr_follow(f, c, bytes, &entry), WR_FOLLOW_NONE);
    return entry;
}

enum { MANY = 600, ONE = 20, TWO = 400, THREE = 500 };

/* A course in which a size occurs three times among many others, each time after others. The program has done some of
 * it. */
static void follow_many(weir_plan_entry entries[MANY], wr_course *course, wr_follower *follower)
{
    const weir_plan_arena arena = { .streams = 1, .bytes = 1 << 20, .entries = MANY };
    const weir_plan plan = { .arena_count = 1, .entry_count = MANY, .arenas = &arena, .entries = entries };
    for (uint32_t i = 0; i < MANY; i++)
        if (!entries[i].bytes) entries[i] = (weir_plan_entry){ .offset = 4096, .bytes = size_of(i) };
    entries[TWO].bytes = entries[THREE].bytes = size_of(ONE);
    assert_ok(wr_course_init(course, &plan, &arena));
    wr_follower_init(follower, course);
    for (uint32_t i = 0; i < 100; i++) assert_int_equal(entry_found(follower, course, entries[i].bytes), i);
}

static void of_places_that_agree_as_much_the_next_ahead_is_taken_or_else_the_first(void **state)
{
    (void)state;
    weir_plan_entry entries[MANY] = { { 0 } };
    wr_course course;
    wr_follower follower;
    follow_many(entries, &course, &follower);
    assert_int_equal(entry_found(&follower, &course, entries[ONE].bytes), TWO);
    assert_int_equal(entry_found(&follower, &course, entries[THREE + 1].bytes), THREE + 1);
    assert_int_equal(entry_found(&follower, &course, entries[ONE].bytes), ONE);
    wr_course_release(&course);
}

/* The request before it, too, is for a size of three places. The next of those is not one before the size. */
static void a_place_that_agrees_more_is_taken_before_one_that_is_ahead(void **state)
{
    (void)state;
    weir_plan_entry entries[MANY] = { { 0 } };
    wr_course course;
    wr_follower follower;
    entries[200] = entries[300] = (weir_plan_entry){ .offset = 4096, .bytes = size_of(ONE - 1) };
    follow_many(entries, &course, &follower);
    assert_int_equal(entry_found(&follower, &course, entries[ONE - 1].bytes), 200);
    assert_int_equal(entry_found(&follower, &course, entries[ONE].bytes), ONE);
    wr_course_release(&course);
}

/* The course is the same sizes again and again, more often than a few. The program goes on further ahead than it is
 * looked for. */
static void of_many_places_the_next_ahead_is_taken_or_else_the_first(void **state)
{
    scene *s = *state;
    enum { AGAIN = 50 };
    wr_course_release(&s->course);
    for (uint32_t i = AGAIN; i < ENTRIES; i++) s->entries[i].bytes = size_of(i % AGAIN);
    take_course(s);
    make_entries(s, 0, AGAIN + 2);
    uint32_t entry = 0;
    for (uint32_t i = 40; i < 40 + WR_FOLLOW_RECENT; i++) (void)wr_follow(&s->follower, &s->course, size_of(i), &entry);
    assert_int_equal(entry, AGAIN + 40 + WR_FOLLOW_RECENT - 1);
    make_entries(s, entry + 1, ENTRIES - 4);
    for (uint32_t i = 20; i < 20 + WR_FOLLOW_RECENT; i++) (void)wr_follow(&s->follower, &s->course, size_of(i), &entry);
    assert_int_equal(entry, 20 + WR_FOLLOW_RECENT - 1);
}

static void several_frequent_sizes_together_tell_where_the_program_is(void **state)
{
    scene *s = *state;
    const uint32_t asked = entries_until_found(s, 130);
    assert_in_range(asked, 2, WR_FOLLOW_RECENT);
    make_entries(s, 130 + asked, ENTRIES);
}

/* From this entry on the program is served only after so many expected requests. */
static void expect_probation(scene *s, uint32_t from, uint32_t run)
{
    make_entries(s, from, from + run - 1);
    assert_false(wr_follower_trusted(&s->follower));
    make_entries(s, from + run - 1, from + run);
    assert_true(wr_follower_trusted(&s->follower));
}

static void lose(scene *s)
{
    for (int i = 0; i < WR_TRUST_MOST / WR_TRUST_LATE; i++) assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    assert_false(wr_follower_trusted(&s->follower));
}

static void a_program_that_is_found_is_served_after_a_run_of_expected_requests(void **state)
{
    scene *s = *state;
    lose(s);
    expect_probation(s, 100 + entries_until_found(s, 100), WR_PROBATION_LEAST / 2);
}

static void a_program_that_was_lost_again_needs_a_longer_run(void **state)
{
    scene *s = *state;
    lose(s);
    expect_probation(s, 100 + entries_until_found(s, 100), WR_PROBATION_LEAST / 2);
    assert_true(wr_follower_proven(&s->follower));
    lose(s);
    expect_probation(s, 20 + entries_until_found(s, 20), WR_PROBATION_LEAST);
    assert_false(wr_follower_proven(&s->follower));
}

static void a_program_that_is_served_again_has_half_of_all_trust(void **state)
{
    scene *s = *state;
    lose(s);
    expect_probation(s, 100 + entries_until_found(s, 100), WR_PROBATION_LEAST / 2);
    for (int i = 0; i < WR_TRUST_MOST / 2 / WR_TRUST_LATE; i++) {
        assert_true(wr_follower_trusted(&s->follower));
        wr_follower_fail(&s->follower, WR_TRUST_LATE);
    }
    assert_false(wr_follower_trusted(&s->follower));
}

static void a_program_that_was_lost_for_long_is_found_a_little_later(void **state)
{
    scene *s = *state;
    lose(s);
    for (int i = 0; i < WR_FOLLOW_LONG; i++) assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    const uint32_t asked = entries_until_found(s, 100);
    assert_in_range(asked, 1, WR_FOLLOW_SELDOM);
    make_entries(s, 100 + asked, 180);
}

/* Each request is of a size that occurs once, and tells where the program is if it is looked for. */
static void of_a_program_that_was_lost_for_long_one_request_in_so_many_is_looked_for(void **state)
{
    scene *s = *state;
    enum { TIMES = 4 };
    uint32_t found = 0;
    lose(s);
    for (int i = 0; i < WR_FOLLOW_LONG; i++) assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    for (uint32_t i = 0; i < TIMES * WR_FOLLOW_SELDOM; i++) found += ask(s, size_of(180 - 2 * i)) == WR_FOLLOW_FOUND;
    assert_int_equal(found, TIMES);
}

static void a_program_that_jumps_about_is_not_followed(void **state)
{
    scene *s = *state;
    make_entries(s, 0, 50);
    for (uint32_t i = 0; i < WR_TRUST_MOST / WR_TRUST_JUMPED; i++) {
        assert_true(wr_follower_trusted(&s->follower));
        assert_int_equal(entries_until_found(s, i % 2 ? 20 + i : 120 + i), 1);
    }
    assert_false(wr_follower_trusted(&s->follower));
}

static void past_the_end_of_the_course_the_program_is_not_served(void **state)
{
    scene *s = *state;
    make_entries(s, 0, ENTRIES);
    assert_true(wr_follower_trusted(&s->follower));
    assert_int_equal(entries_until_found(s, 100), 1);
    assert_false(wr_follower_trusted(&s->follower));
    make_entries(s, 101, ENTRIES);
    assert_false(wr_follower_trusted(&s->follower));
}

static void a_program_that_begins_again_with_something_else_is_served(void **state)
{
    scene *s = *state;
    make_entries(s, 0, ENTRIES);
    assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    make_entries(s, 0, 5);
    assert_int_equal(entries_until_found(s, 7), 1);
    make_entries(s, 8, 60);
    assert_int_equal(entries_until_found(s, 100), 1);
    assert_true(wr_follower_trusted(&s->follower));
}

/* How many requests outside the course, in a row, cost a program all its trust. */
static uint32_t misses_until_lost(scene *s)
{
    uint32_t misses = 0;
    for (; wr_follower_trusted(&s->follower); misses++) assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    return misses;
}

static void the_first_of_several_requests_outside_the_course_costs_most(void **state)
{
    scene *s = *state;
    make_entries(s, 0, 50);
    assert_int_equal(misses_until_lost(s), 1 + (WR_TRUST_MOST - WR_TRUST_LOST) / WR_TRUST_LATE);
}

static void the_first_request_outside_the_course_costs_most_each_time(void **state)
{
    scene *s = *state;
    make_entries(s, 0, 50);
    for (uint32_t i = 50; i < 54; i++) {
        assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
        make_entries(s, i, i + 1);
        assert_true(wr_follower_trusted(&s->follower));
    }
    assert_int_equal(misses_until_lost(s), 1);
}

static void a_program_that_was_served_in_between_was_not_lost_for_long(void **state)
{
    scene *s = *state;
    for (uint32_t from = 150; from > 50; from -= 100) {
        lose(s);
        for (int i = 0; i < WR_FOLLOW_LONG / 2 + 1000; i++) assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
        if (s->follower.asked % WR_FOLLOW_SELDOM == WR_FOLLOW_SELDOM - 1) (void)ask(s, 999 * 512);
        assert_int_equal(entries_until_found(s, from), 1);
        make_entries(s, from + 1, from + 1 + WR_PROBATION_LEAST / 2);
        assert_true(wr_follower_trusted(&s->follower));
    }
}

/* The course has ended, and the program goes on at an entry. */
static bool is_served_at(scene *s, uint32_t entry)
{
    make_entries(s, s->follower.next, ENTRIES);
    assert_int_equal(entries_until_found(s, entry), 1);
    return wr_follower_trusted(&s->follower);
}

static void past_the_end_a_program_is_served_again_near_the_beginning_only(void **state)
{
    scene *s = *state;
    assert_true(is_served_at(s, WR_FOLLOW_NEAR));
    assert_false(is_served_at(s, WR_FOLLOW_NEAR + 1));
}

/* It has done so many entries again. */
static bool is_served_after_a_new_beginning(scene *s, uint32_t entries)
{
    make_entries(s, s->follower.next, ENTRIES);
    make_entries(s, 0, entries);
    assert_int_equal(entries_until_found(s, 100), 1);
    return wr_follower_trusted(&s->follower);
}

static void a_program_has_begun_again_after_some_entries(void **state)
{
    scene *s = *state;
    assert_true(is_served_after_a_new_beginning(s, WR_FOLLOW_RECENT + 1));
    assert_false(is_served_after_a_new_beginning(s, WR_FOLLOW_RECENT));
}

static void past_the_end_of_the_course_a_whole_round_must_be_done(void **state)
{
    scene *s = *state;
    assert_false(is_served_at(s, 100));
    make_entries(s, 101, ENTRIES);
    make_entries(s, 0, ENTRIES);
    assert_false(wr_follower_trusted(&s->follower));
    make_entries(s, 0, 1);
    assert_true(wr_follower_trusted(&s->follower));
}

/* ---- residents --------------------------------------------------------------------------------------------------- */

/* The entry of a resident. */
static uint32_t ask_resident(scene *s, uint64_t bytes)
{
    uint32_t entry = UINT32_MAX;
    assert_int_equal(wr_follow(&s->follower, &s->course, bytes, &entry), WR_FOLLOW_RESIDENT);
    assert_in_range(entry, 0, RESIDENTS - 1);
    assert_int_equal(s->entries[entry].bytes, bytes);
    return entry;
}

static void residents_are_made_in_any_order(void **state)
{
    scene *s = *state;
    bool made[RESIDENTS] = { false };
    for (uint32_t i = RESIDENTS - SHORT; i-- > 0;) made[ask_resident(s, s->entries[i].bytes)] = true;
    for (uint32_t i = 0; i < RESIDENTS - SHORT; i++) assert_true(made[i]);
    assert_true(wr_follower_trusted(&s->follower));
    assert_int_equal(entries_until_found(s, RESIDENTS), 1);
    make_entries(s, RESIDENTS + 1, ENTRIES);
}

static void residents_of_one_size_take_turns(void **state)
{
    scene *s = *state;
    for (uint32_t i = 0; i < 2 * ALIKE; i++) assert_int_equal(ask_resident(s, size_of(0)), i % ALIKE);
}

static void a_program_may_begin_with_a_resident_or_the_first_that_is_none(void **state)
{
    scene *s = *state;
    const uint32_t may[] = { 0, 5, RESIDENTS - SHORT - 1, RESIDENTS },
                   may_not[] = { RESIDENTS - 1, RESIDENTS + 1, 100 };
    for (size_t i = 0; i < sizeof may / sizeof *may; i++)
        assert_true(wr_course_may_begin(&s->course, s->entries[may[i]].bytes));
    for (size_t i = 0; i < sizeof may_not / sizeof *may_not; i++)
        assert_false(wr_course_may_begin(&s->course, s->entries[may_not[i]].bytes));
    assert_false(wr_course_may_begin(&s->course, 999 * 512));
}

static void after_the_end_of_a_course_residents_are_expected(void **state)
{
    scene *s = *state;
    assert_int_equal(entries_until_found(s, RESIDENTS), 1);
    make_entries(s, RESIDENTS + 1, ENTRIES);
    assert_int_equal(ask(s, size_of(0)), WR_FOLLOW_RESIDENT);
}

static void a_new_follower_has_made_no_residents(void **state)
{
    scene *s = *state;
    assert_int_equal(ask_resident(s, size_of(0)), 0);
    wr_follower_init(&s->follower, &s->course); /* as another stream's */
    assert_int_equal(ask_resident(s, size_of(0)), 0);
}

static void short_lived_entries_are_not_residents(void **state)
{
    scene *s = *state;
    for (uint32_t i = RESIDENTS - SHORT; i < RESIDENTS; i++) assert_int_equal(ask(s, size_of(i)), WR_FOLLOW_NONE);
}

static void blocks_that_live_for_half_of_the_recording_are_residents(void **state)
{
    scene *s = *state;
    wr_course_release(&s->course);
    s->entries[10].lives = ENTRIES / 2;
    s->entries[11].lives = ENTRIES / 2 - 1;
    take_course(s);
    assert_int_equal(ask_resident(s, size_of(10)), 10);
    assert_int_equal(ask(s, size_of(11)), WR_FOLLOW_NONE);
}

static void residents_may_be_made_in_the_middle_of_the_course(void **state)
{
    scene *s = *state;
    (void)ask_resident(s, size_of(10));
    assert_int_equal(entries_until_found(s, 60), 1);
    make_entries(s, 61, 70);
    for (uint32_t i = 11; i < 20; i++) (void)ask_resident(s, size_of(i));
    make_entries(s, 70, 80);
    assert_true(wr_follower_trusted(&s->follower));
}

static void an_expected_request_is_not_taken_for_a_resident(void **state)
{
    scene *s = *state;
    wr_course_release(&s->course);
    s->entries[100].bytes = size_of(10);
    take_course(s);
    (void)ask_resident(s, size_of(10));
    assert_int_equal(entries_until_found(s, 99), 1);
    make_entries(s, 100, 101);
}

/* A program's optimizer asks for all sizes of the model again. */
static void no_place_is_searched_while_residents_are_made(void **state)
{
    scene *s = *state;
    enum { FROM = 8, TO = 24 };
    wr_course_release(&s->course);
    for (uint32_t i = FROM; i < TO; i++) s->entries[100 + i].bytes = size_of(i);
    take_course(s);
    for (uint32_t i = FROM; i < TO; i++) assert_int_equal(ask_resident(s, size_of(i)), i);
    assert_int_equal(entries_until_found(s, 99 + FROM), 1);
    make_entries(s, 100 + FROM, 100 + TO);
}

/* The program is in the middle of the course, where a size is asked for that is expected much later. */
static wr_followed ask_for_a_later_size(scene *s, uint32_t *entry)
{
    assert_int_equal(entries_until_found(s, 50), 1);
    make_entries(s, 51, 60);
    return wr_follow(&s->follower, &s->course, size_of(10), entry);
}

static void a_resident_that_was_not_made_is_meant_before_a_place_that_few_sizes_confirm(void **state)
{
    scene *s = *state;
    uint32_t entry = 0;
    wr_course_release(&s->course);
    s->entries[100].bytes = size_of(10);
    take_course(s);
    assert_int_equal(ask_for_a_later_size(s, &entry), WR_FOLLOW_RESIDENT);
    assert_int_equal(entry, 10);
}

static void once_all_residents_of_a_size_are_made_another_place_is_meant(void **state)
{
    scene *s = *state;
    uint32_t entry = 0;
    wr_course_release(&s->course);
    s->entries[100].bytes = size_of(10);
    take_course(s);
    (void)ask_resident(s, size_of(10));
    assert_int_equal(ask_for_a_later_size(s, &entry), WR_FOLLOW_FOUND);
    assert_int_equal(entry, 100);
}

static void a_place_that_all_sizes_confirm_is_meant_before_a_resident(void **state)
{
    scene *s = *state;
    uint32_t entry = 0;
    wr_course_release(&s->course);
    for (uint32_t i = 1; i < WR_FOLLOW_RECENT; i++) s->entries[100 - i].bytes = size_of(60 - i);
    s->entries[100].bytes = size_of(10);
    take_course(s);
    assert_int_equal(ask_for_a_later_size(s, &entry), WR_FOLLOW_FOUND);
    assert_int_equal(entry, 100);
}

static void after_other_requests_no_resident_is_served(void **state)
{
    scene *s = *state;
    lose(s);
    assert_int_equal(ask(s, size_of(10)), WR_FOLLOW_NONE);
}

static void past_the_end_a_program_is_served_again_near_the_first_that_is_no_resident(void **state)
{
    scene *s = *state;
    assert_int_equal(entries_until_found(s, RESIDENTS), 1);
    assert_true(is_served_at(s, RESIDENTS + WR_FOLLOW_NEAR));
    assert_false(is_served_at(s, RESIDENTS + WR_FOLLOW_NEAR + 1));
}

static void a_program_with_residents_has_begun_again_after_some_entries(void **state)
{
    scene *s = *state;
    assert_int_equal(entries_until_found(s, RESIDENTS), 1);
    assert_true(is_served_at(s, RESIDENTS));
    assert_int_equal(entries_until_found(s, 100), 1);
    assert_false(wr_follower_trusted(&s->follower));
}

static void while_residents_are_made_each_other_request_costs_little(void **state)
{
    scene *s = *state;
    assert_int_equal(misses_until_lost(s), WR_TRUST_LOST / WR_TRUST_LATE);
}

static void residents_gain_as_much_trust_as_there_is(void **state)
{
    scene *s = *state;
    for (int i = 0; i < 2 * WR_TRUST_MOST; i++) (void)ask_resident(s, size_of(0));
    assert_int_equal(misses_until_lost(s), WR_TRUST_MOST / WR_TRUST_LATE);
}

static void a_course_of_residents_only_has_no_end(void **state)
{
    scene *s = *state;
    wr_course_release(&s->course);
    s->arena.residents = ENTRIES;
    take_course(s);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = RESIDENTS; i < ENTRIES; i++) {
            uint32_t entry = UINT32_MAX;
            assert_int_equal(wr_follow(&s->follower, &s->course, size_of(i), &entry), WR_FOLLOW_RESIDENT);
            assert_int_equal(entry, i);
        }
}

static void a_program_that_begins_differently_is_not_served(void **state)
{
    scene *s = *state;
    assert_true(wr_follower_trusted(&s->follower));
    assert_int_equal(ask(s, 999 * 512), WR_FOLLOW_NONE);
    assert_false(wr_follower_trusted(&s->follower));
}

/* Half of the entries stay, in units of their own or half of each unit; the others repeat. */
static bool begins_at_the_loop(scene *s, bool apart)
{
    enum { HALF = ENTRIES / 2 };
    for (uint32_t i = 0; i < ENTRIES; i++) {
        const uint64_t place = apart ? i : (uint64_t)i % HALF * 2 + i / HALF;
        s->entries[i] =
            (weir_plan_entry){ place * WR_SEGMENT_UNIT / 2, WR_SEGMENT_UNIT / 2, i < HALF ? ENTRIES : 1, 0 };
    }
    s->arena = (weir_plan_arena){ .streams = 1,
                                  .bytes = ENTRIES * WR_SEGMENT_UNIT / 2,
                                  .entries = ENTRIES,
                                  .loop_first = HALF,
                                  .loop_entries = HALF,
                                  .loop_times = 2 };
    take_course(s);
    return wr_course_begin_at(&s->course, HALF + 7);
}

static void a_program_that_begins_late_needs_no_memory_for_missed_residents(void **state)
{
    static scene s;
    *state = &s;
    assert_true(begins_at_the_loop(&s, true));
    for (uint32_t unit = 0; unit < ENTRIES / 2; unit++)
        assert_int_equal(s.course.units[unit / 64] >> unit % 64 & 1, unit >= ENTRIES / 4);
}

static void the_next_program_that_begins_at_the_beginning_needs_all_units_again(void **state)
{
    static scene s;
    *state = &s;
    assert_true(begins_at_the_loop(&s, true));
    assert_true(wr_course_begin_at(&s.course, 0));
    assert_null(s.course.units);
}

static void a_program_that_begins_late_is_not_served_between_missed_residents(void **state)
{
    static scene s;
    *state = &s;
    assert_false(begins_at_the_loop(&s, false));
}

static bool begins_at(const weir_plan_entry *entries, uint32_t count, uint64_t bytes, uint32_t entry, wr_course *course)
{
    weir_plan_arena arena = { .streams = 1, .bytes = bytes, .entries = count };
    const weir_plan plan = { .arena_count = 1, .entry_count = count, .arenas = &arena, .entries = entries };
    assert_ok(wr_course_init(course, &plan, &arena));
    return wr_course_begin_at(course, entry);
}

/* The first entry stays but is never made. An entry across the border of units 0 and 1 needs both. Nobody needs unit 2,
 * though an entry ends where it begins, but the last unit, which is only partly in the arena, is needed. */
static void units_are_needed_from_the_first_byte_of_an_entry_to_the_last(void **state)
{
    const uint64_t end = 3 * WR_SEGMENT_UNIT + 512;
    const weir_plan_entry entries[] = { { 0, end, WEIR_PLAN_FOREVER, 0 },
                                        { WR_SEGMENT_UNIT - 512, 1024, 1, 0 },
                                        { 2 * WR_SEGMENT_UNIT - 512, 512, 1, 0 },
                                        { 3 * WR_SEGMENT_UNIT, 512, 1, 0 } };
    wr_course course;
    (void)state;
    (void)begins_at(entries, 4, end, 1, &course);
    assert_int_equal(course.units[0], 0xb);
    wr_course_release(&course);
}

/* In such a plan more bytes stay than the arena has. */
static void a_plan_whose_entries_all_lie_in_one_place_saves_nothing(void **state)
{
    const uint64_t bytes = 64 * WR_SEGMENT_UNIT;
    const weir_plan_entry all = { 0, bytes, WEIR_PLAN_FOREVER, 0 }, entries[] = { all, all, all, all };
    wr_course course;
    (void)state;
    assert_false(begins_at(entries, 4, bytes, 2, &course));
    wr_course_release(&course);
}

static void a_plan_in_which_more_stays_than_its_highest_place_saves_nothing(void **state)
{
    const uint64_t bytes = 64 * WR_SEGMENT_UNIT;
    const weir_plan_entry each = { 0, bytes / 4 * 3, WEIR_PLAN_FOREVER, 0 }, entries[] = { each, each, each, each };
    wr_course course;
    (void)state;
    assert_false(begins_at(entries, 4, bytes, 2, &course));
    wr_course_release(&course);
}

/* Each entry takes nearly all of an arena of 16 TiB: going unit by unit would take 10^12 steps. */
static void a_plan_of_many_huge_entries_takes_no_longer_than_its_arena_and_entries(void **state)
{
    enum { MANY = 1 << 17 };
    const uint64_t bytes = UINT64_C(16) << 40;
    weir_plan_entry *entries = calloc(MANY, sizeof *entries);
    wr_course course;
    (void)state;
    assert_non_null(entries);
    for (uint32_t i = 0; i < MANY; i++)
        entries[i] = (weir_plan_entry){ (uint64_t)i * 512, bytes - (uint64_t)MANY * 512, i ? 1 : WEIR_PLAN_FOREVER, 0 };
    (void)begins_at(entries, MANY, bytes, MANY / 2, &course);
    const uint64_t last = (bytes - MANY / 2 * 512 - 1) / WR_SEGMENT_UNIT;
    assert_true(course.units[last / 64] >> last % 64 & 1);
    wr_course_release(&course);
    free(entries);
}

static void a_program_that_begins_at_the_beginning_needs_all_units(void **state)
{
    scene *s = *state;
    assert_true(wr_course_begin_at(&s->course, 0));
    assert_null(s->course.units);
}

static void places_in_use_cost_trust(void **state)
{
    scene *s = *state;
    make_entries(s, 0, 50);
    for (int i = 0; i < WR_TRUST_MOST / WR_TRUST_LATE; i++) {
        assert_true(wr_follower_trusted(&s->follower));
        wr_follower_fail(&s->follower, WR_TRUST_LATE);
    }
    assert_false(wr_follower_trusted(&s->follower));
}

static void a_loop_goes_round(void **state)
{
    scene *s = *state;
    make_entries(s, 0, LOOP_FIRST);
    for (int i = 0; i < 5; i++) make_entries(s, LOOP_FIRST, LOOP_FIRST + LOOP_COUNT);
}

/* From now on it takes long to be served in the middle of a round. */
static void lose_for_long(scene *s)
{
    while (s->follower.probation < WR_PROBATION_LEAST * WR_PROBATION_MORE) {
        lose(s);
        uint32_t entry = 100 + entries_until_found(s, 100);
        while (!wr_follower_trusted(&s->follower)) {
            make_entries(s, entry, entry + 1);
            entry++;
        }
    }
    lose(s);
}

/* The program is found as it begins a round, and is served as it begins another, after so many. */
static void expect_rounds(scene *s, uint32_t rounds)
{
    uint32_t entry = LOOP_FIRST + entries_until_found(s, LOOP_FIRST);
    for (; rounds > 0; rounds--, entry = LOOP_FIRST) {
        make_entries(s, entry, LOOP_FIRST + LOOP_COUNT);
        assert_false(wr_follower_trusted(&s->follower));
    }
    make_entries(s, LOOP_FIRST, LOOP_FIRST + 1);
    assert_true(wr_follower_trusted(&s->follower));
}

static void a_program_that_has_done_a_whole_round_is_served_from_the_next_on(void **state)
{
    scene *s = *state;
    lose_for_long(s);
    expect_rounds(s, 2); /* the first is not whole */
}

static void each_time_a_program_is_lost_it_must_do_more_rounds(void **state)
{
    scene *s = *state;
    lose_for_long(s);
    expect_rounds(s, 2);
    lose(s);
    expect_rounds(s, 5);
    s->follower.probation = WR_PROBATION_MOST; /* as if only rounds could help */
    lose(s);
    expect_rounds(s, 17);
}

static void a_program_that_was_served_for_long_must_do_one_round_again(void **state)
{
    scene *s = *state;
    lose_for_long(s);
    expect_rounds(s, 2);
    lose(s);
    expect_rounds(s, 5);
    make_entries(s, LOOP_FIRST + 1, LOOP_FIRST + LOOP_COUNT);
    for (int i = 0; i < 16 * WR_PROBATION_OVER; i++) make_entries(s, LOOP_FIRST, LOOP_FIRST + LOOP_COUNT);
    s->follower.probation = WR_PROBATION_MOST; /* as if only rounds could help */
    lose(s);
    expect_rounds(s, 2);
}

static void a_program_must_do_no_more_than_so_many_rounds(void **state)
{
    scene *s = *state;
    const uint32_t rounds[] = { 2, 5, 17, WR_ROUNDS_MOST + 1, WR_ROUNDS_MOST + 1 };
    lose_for_long(s);
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        s->follower.probation = WR_PROBATION_MOST; /* as if only rounds could help */
        expect_rounds(s, rounds[i]);
        lose(s);
    }
}

/* The program is found so many entries before it begins a round. */
static bool is_served_from_the_second_round_on(scene *s, uint32_t before)
{
    const uint32_t end = LOOP_FIRST + LOOP_COUNT;
    lose(s);
    s->follower.probation = WR_PROBATION_MOST;
    make_entries(s, end - before + entries_until_found(s, end - before), end);
    make_entries(s, LOOP_FIRST, end);
    make_entries(s, LOOP_FIRST, LOOP_FIRST + 1);
    return wr_follower_trusted(&s->follower);
}

static void a_program_must_do_more_than_a_least_number_of_requests_besides_a_round(void **state)
{
    scene *s = *state;
    assert_false(is_served_from_the_second_round_on(s, WR_PROBATION_LEAST - LOOP_COUNT));
    assert_true(is_served_from_the_second_round_on(s, WR_PROBATION_LEAST - LOOP_COUNT + 1));
}

/* The program does the next so many entries of the loop. */
static void go_on(scene *s, uint32_t count)
{
    for (; count > 0; count--) make_entries(s, s->follower.next, s->follower.next + 1);
}

static void a_program_that_was_served_for_long_has_lost_trust_no_more_than_once(void **state)
{
    scene *s = *state;
    const uint32_t enough = WR_PROBATION_OVER * WR_PROBATION_LEAST * WR_PROBATION_MORE;
    for (uint32_t run = WR_PROBATION_LEAST / 2; run <= WR_PROBATION_LEAST; run *= 2) {
        lose(s);
        (void)entries_until_found(s, LOOP_FIRST);
        go_on(s, run);
    }
    assert_true(wr_follower_trusted(&s->follower));
    go_on(s, enough - 2);
    wr_follower_fail(&s->follower, WR_TRUST_LATE); /* and is served as before */
    go_on(s, 1);
    assert_false(wr_follower_proven(&s->follower));
    go_on(s, 1);
    assert_true(wr_follower_proven(&s->follower));
}

static void no_run_must_be_longer_than_the_longest(void **state)
{
    scene *s = *state;
    s->follower.rounds = WR_PROBATION_MOST; /* as if rounds could not help */
    s->follower.probation = WR_PROBATION_MOST / 2;
    for (uint32_t run = WR_PROBATION_MOST / 2; run <= WR_PROBATION_MOST; run *= 2) {
        lose(s);
        (void)entries_until_found(s, LOOP_FIRST);
        go_on(s, run - 1);
        assert_false(wr_follower_trusted(&s->follower));
        go_on(s, 1);
        assert_true(wr_follower_trusted(&s->follower));
    }
}

static void without_a_loop_the_whole_course_is_a_round(void **state)
{
    scene *s = *state;
    lose_for_long(s);
    make_entries(s, entries_until_found(s, 0), ENTRIES);
    assert_false(wr_follower_trusted(&s->follower));
    make_entries(s, 0, ENTRIES);
    assert_false(wr_follower_trusted(&s->follower));
    make_entries(s, 0, 1);
    assert_true(wr_follower_trusted(&s->follower));
}

static void a_loop_ends_with_the_entries_behind_it(void **state)
{
    scene *s = *state;
    make_entries(s, 0, LOOP_FIRST + LOOP_COUNT);
    make_entries(s, LOOP_FIRST, LOOP_FIRST + LOOP_COUNT);
    make_entries(s, LOOP_FIRST + LOOP_COUNT, ENTRIES);
}

static void behind_its_loop_a_course_has_no_end(void **state)
{
    scene *s = *state;
    make_entries(s, 0, LOOP_FIRST + LOOP_COUNT);
    make_entries(s, LOOP_FIRST, LOOP_FIRST + LOOP_COUNT);
    make_entries(s, LOOP_FIRST + LOOP_COUNT, ENTRIES);
    assert_int_equal(entries_until_found(s, 100), 1);
    assert_true(wr_follower_trusted(&s->follower));
}

static void impossible_courses_are_refused(void **state)
{
    (void)state;
    wr_course course;
    /* The plan has the first only. */
    const weir_plan_entry good[] = { { 0, 512, 0, 0 }, { 0, 512, 0, 0 }, { 0, 512, 0, 0 }, { 0, 512, 0, 0 } };
    const weir_plan_entry wrong[] = { { 512, 1024, 0, 0 }, { 0, 0, 0, 0 },   { 0, 100, 0, 0 },
                                      { 100, 512, 0, 0 },  { 0, 512, 0, 1 }, { 2048, 512, 0, 0 } };
    const weir_plan_arena arena = { .streams = 1, .bytes = 1024, .entries = 1 };
    weir_plan plan = { .arena_count = 1, .entry_count = 1, .arenas = &arena };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        plan.entries = &wrong[i];
        assert_status(wr_course_init(&course, &plan, &arena), WEIR_ERR_INVALID_ARGUMENT);
    }
    plan.entries = good;
    const weir_plan_arena elsewhere[] = {
        { .streams = 1, .bytes = 1024, .entries = 2 },
        { .streams = 1, .bytes = 1024, .entries = 0 },
        { .streams = 1, .bytes = 1024, .entries = 1, .first = 1 },
        { .streams = 1, .bytes = 1024, .entries = 1, .first = 2 },
        { .streams = 1, .bytes = 1024, .entries = 1, .loop_times = 2 },
        { .streams = 1, .bytes = 1024, .entries = 1, .loop_times = 2, .loop_first = 1, .loop_entries = 1 },
        { .streams = 1, .bytes = 1024, .entries = 1, .loop_times = 2, .loop_first = 2, .loop_entries = 1 },
        { .streams = 1, .bytes = 1024, .entries = 1, .residents = 2 },
        { .streams = 1, .bytes = 1024, .entries = 1, .residents = UINT64_MAX },
        { .streams = 1, .bytes = 1024, .entries = 1, .loop_times = 2, .loop_entries = 1, .residents = 1 },
    };
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        assert_status(wr_course_init(&course, &plan, &elsewhere[i]), WEIR_ERR_INVALID_ARGUMENT);
}

/* Entries are numbered with 32 bits, and WR_NOWHERE is none. */
static void a_course_of_too_many_entries_is_refused_before_it_is_read(void **state)
{
    (void)state;
    wr_course course;
    const weir_plan_entry entry = { 0, 512, 0, 0 };
    const weir_plan_arena arena = { .streams = 1, .bytes = 1024, .entries = UINT32_MAX };
    const weir_plan plan = { .arena_count = 1, .entry_count = UINT64_MAX, .arenas = &arena, .entries = &entry };
    assert_status(wr_course_init(&course, &plan, &arena), WEIR_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(weir_error_text(), "entries that the plan does not have"));
}

#define FOLLOW_TEST(test) cmocka_unit_test_setup_teardown(test, make_plain, release)
#define RESIDENT_TEST(test) cmocka_unit_test_setup_teardown(test, make_begun, release)
#define LOOP_TEST(test) cmocka_unit_test_setup_teardown(test, make_looping, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLLOW_TEST(the_same_sequence_is_followed),
        FOLLOW_TEST(a_course_without_a_loop_begins_again),
        FOLLOW_TEST(a_request_of_another_size_is_passed_over),
        FOLLOW_TEST(left_out_entries_are_skipped_at_the_second_request),
        FOLLOW_TEST(a_size_that_is_found_once_tells_where_the_program_is),
        FOLLOW_TEST(of_many_places_the_next_ahead_is_taken_or_else_the_first),
        cmocka_unit_test_setup_teardown(several_frequent_sizes_together_tell_where_the_program_is, make_monotonous,
                                        release),
        cmocka_unit_test(of_places_that_agree_as_much_the_next_ahead_is_taken_or_else_the_first),
        cmocka_unit_test(a_place_that_agrees_more_is_taken_before_one_that_is_ahead),
        FOLLOW_TEST(a_program_that_goes_back_is_found_too),
        FOLLOW_TEST(a_program_that_is_found_is_served_after_a_run_of_expected_requests),
        FOLLOW_TEST(a_program_that_was_lost_again_needs_a_longer_run),
        FOLLOW_TEST(a_program_that_is_served_again_has_half_of_all_trust),
        FOLLOW_TEST(a_program_that_was_lost_for_long_is_found_a_little_later),
        FOLLOW_TEST(of_a_program_that_was_lost_for_long_one_request_in_so_many_is_looked_for),
        FOLLOW_TEST(a_program_that_jumps_about_is_not_followed),
        FOLLOW_TEST(past_the_end_of_the_course_the_program_is_not_served),
        FOLLOW_TEST(a_program_that_begins_again_with_something_else_is_served),
        FOLLOW_TEST(the_first_of_several_requests_outside_the_course_costs_most),
        FOLLOW_TEST(the_first_request_outside_the_course_costs_most_each_time),
        FOLLOW_TEST(a_program_that_was_served_in_between_was_not_lost_for_long),
        FOLLOW_TEST(past_the_end_a_program_is_served_again_near_the_beginning_only),
        FOLLOW_TEST(a_program_has_begun_again_after_some_entries),
        FOLLOW_TEST(past_the_end_of_the_course_a_whole_round_must_be_done),
        RESIDENT_TEST(residents_are_made_in_any_order),
        RESIDENT_TEST(residents_of_one_size_take_turns),
        RESIDENT_TEST(a_program_may_begin_with_a_resident_or_the_first_that_is_none),
        RESIDENT_TEST(after_the_end_of_a_course_residents_are_expected),
        RESIDENT_TEST(a_new_follower_has_made_no_residents),
        RESIDENT_TEST(short_lived_entries_are_not_residents),
        RESIDENT_TEST(blocks_that_live_for_half_of_the_recording_are_residents),
        RESIDENT_TEST(residents_may_be_made_in_the_middle_of_the_course),
        RESIDENT_TEST(an_expected_request_is_not_taken_for_a_resident),
        RESIDENT_TEST(no_place_is_searched_while_residents_are_made),
        RESIDENT_TEST(a_resident_that_was_not_made_is_meant_before_a_place_that_few_sizes_confirm),
        RESIDENT_TEST(once_all_residents_of_a_size_are_made_another_place_is_meant),
        RESIDENT_TEST(a_place_that_all_sizes_confirm_is_meant_before_a_resident),
        RESIDENT_TEST(after_other_requests_no_resident_is_served),
        RESIDENT_TEST(past_the_end_a_program_is_served_again_near_the_first_that_is_no_resident),
        RESIDENT_TEST(a_program_with_residents_has_begun_again_after_some_entries),
        RESIDENT_TEST(while_residents_are_made_each_other_request_costs_little),
        RESIDENT_TEST(residents_gain_as_much_trust_as_there_is),
        RESIDENT_TEST(a_course_of_residents_only_has_no_end),
        FOLLOW_TEST(a_program_that_begins_differently_is_not_served),
        cmocka_unit_test_teardown(a_program_that_begins_late_needs_no_memory_for_missed_residents, release),
        cmocka_unit_test_teardown(the_next_program_that_begins_at_the_beginning_needs_all_units_again, release),
        cmocka_unit_test_teardown(a_program_that_begins_late_is_not_served_between_missed_residents, release),
        cmocka_unit_test(units_are_needed_from_the_first_byte_of_an_entry_to_the_last),
        cmocka_unit_test(a_plan_whose_entries_all_lie_in_one_place_saves_nothing),
        cmocka_unit_test(a_plan_in_which_more_stays_than_its_highest_place_saves_nothing),
        cmocka_unit_test(a_plan_of_many_huge_entries_takes_no_longer_than_its_arena_and_entries),
        FOLLOW_TEST(a_program_that_begins_at_the_beginning_needs_all_units),
        FOLLOW_TEST(places_in_use_cost_trust),
        LOOP_TEST(a_loop_goes_round),
        LOOP_TEST(a_program_that_has_done_a_whole_round_is_served_from_the_next_on),
        LOOP_TEST(each_time_a_program_is_lost_it_must_do_more_rounds),
        LOOP_TEST(a_program_that_was_served_for_long_must_do_one_round_again),
        LOOP_TEST(a_program_must_do_no_more_than_so_many_rounds),
        LOOP_TEST(a_program_must_do_more_than_a_least_number_of_requests_besides_a_round),
        LOOP_TEST(a_program_that_was_served_for_long_has_lost_trust_no_more_than_once),
        LOOP_TEST(no_run_must_be_longer_than_the_longest),
        FOLLOW_TEST(without_a_loop_the_whole_course_is_a_round),
        LOOP_TEST(a_loop_ends_with_the_entries_behind_it),
        LOOP_TEST(behind_its_loop_a_course_has_no_end),
        cmocka_unit_test(impossible_courses_are_refused),
        cmocka_unit_test(a_course_of_too_many_entries_is_refused_before_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
