#include "unit/host.h"

#include "backend/host/space.h"

#define SPAN 4096
#define TAKEN 64

static wr_host_range *take(wr_host_space *space, uint64_t bytes, uint64_t alignment)
{
    wr_host_range *range;
    ok(wr_host_space_take(space, bytes, alignment, &range));
    return range;
}

static void first_fit_takes_the_lowest_place(void **state)
{
    (void)state;
    wr_host_space space;
    ok(wr_host_space_init(&space, SPAN));
    wr_host_range *one = take(&space, 100, 1), *two = take(&space, 50, 1), *three = take(&space, 100, 1);
    assert_int_equal(one->base, 0);
    assert_int_equal(two->base, 100);
    assert_int_equal(three->base, 150);
    wr_host_space_give(&space, one);
    assert_int_equal(take(&space, 101, 1)->base, 250);
    assert_int_equal(take(&space, 100, 1)->base, 0);
    wr_host_space_clear(&space);
}

static void alignment_is_kept(void **state)
{
    (void)state;
    wr_host_space space;
    ok(wr_host_space_init(&space, SPAN));
    take(&space, 10, 1);
    assert_int_equal(take(&space, 64, 64)->base, 64);
    assert_int_equal(take(&space, 54, 1)->base, 10);
    wr_host_space_clear(&space);
}

static void whole_span_can_be_taken_and_no_more(void **state)
{
    (void)state;
    wr_host_space space;
    ok(wr_host_space_init(&space, SPAN));
    assert_null(take(&space, SPAN + 1, 1));
    wr_host_range *all = take(&space, SPAN, 1);
    assert_int_equal(all->bytes, SPAN);
    assert_null(take(&space, 1, 1));
    wr_host_space_give(&space, all);
    assert_true(wr_host_space_empty(&space));
    assert_int_equal(take(&space, SPAN, 1)->base, 0);
    wr_host_space_clear(&space);
}

static void place_is_taken_only_when_all_of_it_is_vacant(void **state)
{
    (void)state;
    wr_host_space space;
    wr_host_range *range;
    ok(wr_host_space_init(&space, SPAN));
    ok(wr_host_space_take_at(&space, 100, 100, &range));
    assert_int_equal(range->base, 100);
    ok(wr_host_space_take_at(&space, 150, 10, &range));
    assert_null(range);
    ok(wr_host_space_take_at(&space, 50, 51, &range));
    assert_null(range);
    ok(wr_host_space_take_at(&space, SPAN - 10, 11, &range));
    assert_null(range);
    ok(wr_host_space_take_at(&space, UINT64_MAX - 5, 10, &range));
    assert_null(range);
    ok(wr_host_space_take_at(&space, 50, 50, &range));
    assert_int_equal(range->base, 50);
    wr_host_space_clear(&space);
}

static void ranges_are_found_by_base_and_by_place(void **state)
{
    (void)state;
    wr_host_space space;
    ok(wr_host_space_init(&space, SPAN));
    wr_host_range *one = take(&space, 100, 1), *two = take(&space, 100, 1);
    assert_ptr_equal(wr_host_space_find(&space, 100), two);
    assert_null(wr_host_space_find(&space, 101));
    assert_ptr_equal(wr_host_space_around(&space, 99), one);
    assert_ptr_equal(wr_host_space_around(&space, 199), two);
    assert_null(wr_host_space_around(&space, 200));
    assert_ptr_equal(wr_host_space_first(&space), one);
    assert_ptr_equal(wr_host_space_next(one), two);
    assert_null(wr_host_space_next(two));
    wr_host_space_clear(&space);
}

/* The place that first fit must choose, found by looking at every byte. */
static uint64_t naive_first_fit(const unsigned char *used, uint64_t bytes, uint64_t alignment)
{
    for (uint64_t base = 0; base + bytes <= SPAN; base += alignment) {
        uint64_t at = 0;
        while (at < bytes && !used[base + at]) at++;
        if (at == bytes) return base;
    }
    return UINT64_MAX;
}

static void random_use_agrees_with_a_map_of_bytes(void **state)
{
    (void)state;
    static unsigned char used[SPAN];
    wr_host_range *taken[TAKEN] = { NULL };
    wr_host_space space;
    unsigned seed = 7;
    memset(used, 0, sizeof used);
    ok(wr_host_space_init(&space, SPAN));
    for (int i = 0; i < 20000; i++) {
        int slot = rand_r(&seed) % TAKEN;
        if (taken[slot] != NULL) {
            memset(used + taken[slot]->base, 0, taken[slot]->bytes);
            wr_host_space_give(&space, taken[slot]);
            taken[slot] = NULL;
            continue;
        }
        uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % 150, alignment = (uint64_t)1 << rand_r(&seed) % 8;
        uint64_t expected = naive_first_fit(used, bytes, alignment);
        taken[slot] = take(&space, bytes, alignment);
        assert_int_equal(taken[slot] != NULL, expected != UINT64_MAX);
        if (taken[slot] == NULL) continue;
        assert_int_equal(taken[slot]->base, expected);
        memset(used + expected, 1, bytes);
    }
    wr_host_space_clear(&space);
    assert_int_equal(wr_meta_live(), 0);
}

static void failure_of_a_record_changes_nothing(void **state)
{
    (void)state;
    wr_host_space space;
    wr_host_range *range = NULL;
    ok(wr_host_space_init(&space, SPAN));
    for (uint64_t nth = 1; nth <= 2; nth++) {
        wr_meta_fail_nth(nth);
        assert_int_equal(wr_host_space_take_at(&space, 64, 64, &range), WEIR_ERR_OUT_OF_HOST_MEMORY);
        wr_meta_fail_nth(0);
        assert_true(wr_host_space_empty(&space));
    }
    ok(wr_host_space_take_at(&space, 64, 64, &range));
    wr_host_space_give(&space, range);
    assert_int_equal(take(&space, SPAN, 1)->base, 0);
    wr_host_space_clear(&space);
    assert_int_equal(wr_meta_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_fit_takes_the_lowest_place),
        cmocka_unit_test(alignment_is_kept),
        cmocka_unit_test(whole_span_can_be_taken_and_no_more),
        cmocka_unit_test(place_is_taken_only_when_all_of_it_is_vacant),
        cmocka_unit_test(ranges_are_found_by_base_and_by_place),
        cmocka_unit_test(random_use_agrees_with_a_map_of_bytes),
        cmocka_unit_test(failure_of_a_record_changes_nothing),
    };
    (void)host_open;
    (void)host_close;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
