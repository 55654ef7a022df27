/*
 * Threads that share a stream and hardly ever ask for a size again: their sides become graded (pool/front/grade.h,
 * pool/front/side.h), and serve requests with blocks that are a little larger.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/front/grade.h"
#include "pool/front/hit.h"
#include "side_support.h"

static void grades_have_slots_of_their_own(void **state)
{
    (void)state;
    bool taken[WR_FRONT_SLOTS] = { false };
    for (unsigned i = 0; i < WR_GRADES; i++) {
        assert_int_equal(wr_front_class(wr_grade_bytes(i)), WR_SMALL);
        bool *slot = &taken[wr_front_index(wr_grade_bytes(i))];
        assert_false(*slot);
        *slot = true;
    }
}

static void a_size_is_rounded_up_by_an_eighth_or_a_quantum_at_most(void **state)
{
    (void)state;
    for (size_t bytes = WR_FRONT_QUANTUM; bytes <= WR_SMALL_MAX; bytes += WR_FRONT_QUANTUM) {
        const unsigned grade = wr_grade_of(bytes);
        const size_t rounded = wr_grade_bytes(grade);
        assert_true(rounded >= bytes || grade == WR_GRADES);
        assert_true(rounded - bytes < bytes / 8 + WR_FRONT_QUANTUM || grade == WR_GRADES);
        assert_true(grade == 0 || wr_grade_bytes(grade - 1) < bytes);
    }
    assert_true(wr_grade_bytes(WR_GRADES - 1) > WR_SMALL_MAX * 15 / 16);
    assert_int_equal(wr_grade_bytes(WR_GRADES), 0);
}

/* ---- sides ------------------------------------------------------------------------------------------------------- */

enum { AT_ONCE = 32, SIZES = 500, GRADED_BYTES = 16 << 20 /* side.c */ };

static void take_and_give_a_new_size(worker *w)
{
    w->bytes = WR_FRONT_QUANTUM * (1 + w->sizes++ * 7 % SIZES);
    take_and_give(w);
}

static void take_and_give_other_sizes(worker *w)
{
    for (unsigned i = 0; i < w->count; i++) take_and_give_a_new_size(w);
}

static bool all_are_graded(bool graded)
{
    for (const wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f))
        if (f->main == main_front && f->graded != graded) return false;
    return sides(true) == THREADS;
}

/* So few requests in a row that none of the threads comes to own the main front's lock. */
static void ask_for_other_sizes(int turn)
{
    workers[turn % THREADS].count = AT_ONCE;
    tell(&workers[turn % THREADS], take_and_give_other_sizes);
}

static void have_all_graded(void)
{
    share();
    for (int i = 0; i < 10000 && !all_are_graded(true); i++) ask_for_other_sizes(i);
    assert_true(all_are_graded(true));
}

static void sides_of_little_use_to_threads_that_get_into_each_others_way_become_graded(void **state)
{
    (void)state;
    have_all_graded();
    assert_ok(weir_validate(0));
}

static void take_and_give_sizes_of_a_grade(worker *w)
{
    const unsigned grade = wr_grade_of(65536);
    const size_t least = wr_grade_bytes(grade - 1) + 1, most = wr_grade_bytes(grade);
    for (unsigned i = 0; i < w->count && w->status == WEIR_OK; i++) {
        w->bytes = least + i * 977 % (most - least);
        take_and_give(w);
    }
}

static void sizes_of_one_grade_hit_while_all_shared_locks_are_held(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < 3 * THREADS; i++) {
        workers[i % THREADS].count = 10;
        tell(&workers[i % THREADS], take_and_give_sizes_of_a_grade);
    }
    work_while_all_shared_locks_are_held(take_and_give_sizes_of_a_grade);
}

static void blocks_of_graded_sides_are_rounded_up_and_requests_are_counted_as_they_were(void **state)
{
    (void)state;
    have_all_graded();
    workers[0].bytes = 64 * WR_FRONT_QUANTUM - 1;
    tell(&workers[0], take_and_give); /* where nothing is free, as it is */
    tell(&workers[0], take);
    assert_int_equal(info_of(workers[0].block).bytes, wr_grade_bytes(wr_grade_of(workers[0].bytes)));
    const weir_memory_stats stats = stats_of(0);
    assert_int_equal(stats.requested_bytes[WEIR_STAT_ALL].current, workers[0].bytes);
    assert_int_equal(stats.allocation[WEIR_STAT_ALL].current, 1);
    tell(&workers[0], give);
    assert_int_equal(stats_of(0).requested_bytes[WEIR_STAT_ALL].current, 0);
}

/* What a miss left behind is of no concern to the next request. */
static void have_missed(void)
{
    tell(&workers[0], take_and_give_a_new_size);
    assert_int_equal(workers[0].status, WEIR_OK);
}

static void a_request_for_nothing_gets_nothing_from_a_graded_side(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < SIZES; i++) {
        have_missed();
        workers[0].bytes = 0;
        tell(&workers[0], take);
        assert_int_equal(workers[0].status, WEIR_OK);
        assert_null(workers[0].block);
    }
}

static void a_request_for_more_than_there_can_be_is_refused_after_a_graded_one(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < SIZES; i++) {
        have_missed();
        workers[0].bytes = SIZE_MAX;
        tell(&workers[0], take);
        assert_int_equal(workers[0].status, WEIR_ERR_OUT_OF_MEMORY);
    }
}

static int open_with_max_split_size(void **state)
{
    (void)state;
    return open_with((weir_settings){ .max_split_size = 32 * MIB });
}

static void a_large_request_gets_all_that_it_asks_for_after_a_graded_one(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < SIZES; i++) {
        have_missed();
        workers[0].bytes = 4 * MIB;
        tell(&workers[0], take);
        assert_true(info_of(workers[0].block).bytes >= 4 * MIB);
        tell(&workers[0], give);
    }
}

enum { LIMIT = 256, MUCH = 232 /* MiB */ };

static int open_with_limit(void **state)
{
    (void)state;
    return open_with((weir_settings){ .memory_limit = LIMIT * MIB });
}

/* Each of them a little larger than a grade: all rounded up, they would exceed the limit. */
static void take_much(worker *w)
{
    const size_t least = wr_grade_bytes(wr_grade_of(400 << 10)) + WR_FRONT_QUANTUM;
    for (size_t sum = 0, i = 0; sum < MUCH * MIB && w->status == WEIR_OK; sum += w->bytes, i++) {
        w->bytes = least + i % 8 * WR_FRONT_QUANTUM;
        take(w);
    }
}

static void as_much_memory_may_be_in_use_with_grades_as_without(void **state)
{
    (void)state;
    have_all_graded();
    tell(&workers[0], take_much);
    assert_int_equal(workers[0].status, WEIR_OK);
    assert_false(all_are_graded(true));
    assert_int_equal(info_of(workers[0].block).bytes, workers[0].bytes);
}

static void sides_do_not_become_graded_where_little_memory_is_left(void **state)
{
    (void)state;
    for (int i = 0; i < LIMIT; i++) {
        void *block = NULL;
        assert_ok(weir_alloc_on(MIB * 3 / 5, stream, &block));
    }
    share();
    for (int i = 0; i < 2000; i++) {
        atomic_store(&main_front->tight, false); /* as if no memory had been added since the front was shared */
        ask_for_other_sizes(i);
        for (const wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) assert_false(f->graded);
    }
}

static void *many[4 * GRADED_BYTES / (512 << 10)];
enum { MANY = sizeof many / sizeof *many };

static void take_many_at_once(worker *w)
{
    for (int i = 0; i < MANY && w->status == WEIR_OK; i++) {
        w->bytes = (512 << 10) - (size_t)i * WR_FRONT_QUANTUM;
        take(w);
        many[i] = w->block;
    }
}

static void give_many_at_once(worker *w)
{
    for (int i = 0; i < MANY; i++) {
        w->block = many[i];
        give(w);
    }
}

static void assert_no_side_parks_more(void)
{
    for (const wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f))
        assert_true(wr_front_parked_in_all(f, WR_FLOW_BYTES) <= GRADED_BYTES);
}

static void a_graded_side_parks_a_bounded_number_of_bytes(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < 4; i++) {
        tell(&workers[0], take_many_at_once);
        assert_int_equal(workers[0].status, WEIR_OK);
        tell(&workers[0], give_many_at_once);
        assert_no_side_parks_more();
    }
    assert_ok(weir_validate(0));
}

static void take_and_give_large_ones_at_once(worker *w)
{
    void *two[2];
    for (int i = 0; i < 2; i++) {
        w->bytes = GRADED_BYTES - MIB;
        take(w);
        two[i] = w->block;
    }
    for (int i = 0; i < 2; i++) {
        w->block = two[i];
        give(w);
    }
}

static void a_graded_side_parks_no_more_of_large_blocks(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < 4; i++) {
        tell(&workers[0], take_and_give_large_ones_at_once);
        assert_no_side_parks_more();
    }
}

/* Two thirds of the requests find what the one before left. */
static void take_and_give_and_keep_some(worker *w)
{
    for (int i = 0; i < MANY && w->status == WEIR_OK; i++) {
        w->bytes = 65536;
        take_and_give(w);
        take_and_give(w);
        w->bytes = WR_FRONT_QUANTUM;
        take(w);
        many[i] = w->block;
    }
}

static void a_side_is_graded_no_more_when_its_thread_has_the_front_for_itself(void **state)
{
    (void)state;
    have_all_graded();
    const wr_front *side = NULL;
    for (int i = 0; i < 100 && !side; i++) {
        tell(&workers[0], take_and_give_and_keep_some);
        assert_int_equal(workers[0].status, WEIR_OK);
        for (const wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f))
            if (!f->graded) side = f;
    }
    assert_non_null(side);
    assert_int_equal(side->rest, 0);
}

/* Sizes may come again by now. */
static void a_side_is_graded_no_more_after_many_requests(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < THREADS; i++) {
        workers[i].count = 1000;
        tell(&workers[i], take_and_give_sizes_of_a_grade);
    }
    for (wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) f->served = 1 << 22; /* side.c */
    for (int i = 0; i < THREADS; i++) {
        workers[i].count = 1;
        tell(&workers[i], take_and_give_other_sizes);
        workers[i].count = AT_ONCE;
    }
    for (const wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) {
        assert_false(f->graded);
        assert_int_equal(f->rest, 0);
    }
    for (int i = 0; i < 1000 && !all_are_graded(true); i++) tell(&workers[i % THREADS], take_and_give_other_sizes);
    assert_true(all_are_graded(true));
}

/* A side has room for all of them, but is not full after one period. */
static void take_and_give_two_of_each_size(worker *w)
{
    enum { COMING_AGAIN = 40 };
    for (unsigned i = 0; i < w->count; i++) {
        w->bytes = wr_grade_bytes(w->sizes++ % COMING_AGAIN);
        take(w);
        void *first = w->block;
        take_and_give(w);
        w->block = first;
        give(w);
    }
}

/* Or sizes that come again now would never be served as they are. */
static void a_side_that_was_graded_has_as_long_to_fill_as_one_that_was_not(void **state)
{
    (void)state;
    have_all_graded();
    for (wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) f->served = 1 << 22; /* side.c */
    for (int i = 0; i < 40 * THREADS; i++) {
        workers[i % THREADS].count = AT_ONCE / 2;
        tell(&workers[i % THREADS], take_and_give_two_of_each_size);
    }
    assert_true(all_are_graded(false));
}

/* A few requests say nothing. */
static void a_side_whose_graded_period_was_cut_short_is_not_set_to_rest(void **state)
{
    (void)state;
    share();
    unsigned seen = 0;
    for (int i = 0; i < 1000; i++) {
        ask_for_other_sizes(i);
        for (wr_front *f = wr_front_beside(main_front); f; f = wr_front_beside(f)) {
            assert_int_equal(f->rest, 0);
            if (!f->graded) continue;
            f->served = 1 << 22; /* side.c */
            seen++;
        }
    }
    assert_true(seen > 0);
}

static void a_thread_that_takes_over_a_graded_side_begins_without_grades(void **state)
{
    (void)state;
    have_all_graded();
    for (int i = 0; i < THREADS; i++) end(&workers[i]);
    for (int i = 0; i < THREADS; i++) begin(&workers[i]);
    share();
    assert_true(all_are_graded(false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grades_have_slots_of_their_own),
        cmocka_unit_test(a_size_is_rounded_up_by_an_eighth_or_a_quantum_at_most),
        SHARED(sides_of_little_use_to_threads_that_get_into_each_others_way_become_graded),
        SHARED(sizes_of_one_grade_hit_while_all_shared_locks_are_held),
        SHARED(blocks_of_graded_sides_are_rounded_up_and_requests_are_counted_as_they_were),
        SHARED(a_request_for_nothing_gets_nothing_from_a_graded_side),
        SHARED(a_request_for_more_than_there_can_be_is_refused_after_a_graded_one),
        cmocka_unit_test_setup_teardown(a_large_request_gets_all_that_it_asks_for_after_a_graded_one,
                                        open_with_max_split_size, close_shared),
        cmocka_unit_test_setup_teardown(as_much_memory_may_be_in_use_with_grades_as_without, open_with_limit,
                                        close_shared),
        cmocka_unit_test_setup_teardown(sides_do_not_become_graded_where_little_memory_is_left, open_with_limit,
                                        close_shared),
        SHARED(a_graded_side_parks_a_bounded_number_of_bytes),
        SHARED(a_graded_side_parks_no_more_of_large_blocks),
        SHARED(a_side_is_graded_no_more_when_its_thread_has_the_front_for_itself),
        SHARED(a_side_is_graded_no_more_after_many_requests),
        SHARED(a_side_that_was_graded_has_as_long_to_fill_as_one_that_was_not),
        SHARED(a_side_whose_graded_period_was_cut_short_is_not_set_to_rest),
        SHARED(a_thread_that_takes_over_a_graded_side_begins_without_grades),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
