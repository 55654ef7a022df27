#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/plan_support.h"

#include "plan/decode.h"
#include "plan/skyline.h"

static layout random_layout(uint64_t *random, size_t count, size_t live)
{
    arena a = { 0 };
    layout l;
    arena_random(&a, random, count, 100, live, 1);
    layout_init(&l, &a);
    arena_release(&a);
    return l;
}

static int by_low(const void *left, const void *right)
{
    const extent *a = left, *b = right;
    if (a->low != b->low) return a->low < b->low ? -1 : 1;
    return a->high < b->high ? -1 : a->high > b->high;
}

/* Puts all that was found in order, and compares it with what a walk over all blocks finds. */
static void compare(occupancy *t, const layout *l, const uint64_t *offset, const bool *placed, size_t block)
{
    extent *expected = malloc((2 * l->count + 1) * sizeof *expected);
    assert_non_null(expected);
    size_t count = 0;
    for (size_t i = 0; i < l->count; i++)
        for (int part = 0; placed[i] && part < 4; part++) {
            const span a = l->blocks[i].life[part % 2], b = l->blocks[block].life[part / 2];
            if (a.start < a.end && b.start < b.end && a.start < b.end && b.start < a.end)
                expected[count++] = (extent){ offset[i], offset[i] + l->blocks[i].bytes };
        }
    occupancy_meet(t, block);
    assert_int_equal(t->found_count, count);
    for (size_t before = t->sorted; occupancy_more(t); before = t->sorted) assert_true(t->sorted > before);
    assert_int_equal(t->sorted, count);
    for (size_t i = 1; i < count; i++) assert_true(t->found[i - 1].low <= t->found[i].low);
    if (count) {
        qsort(expected, count, sizeof *expected, by_low);
        qsort(t->found, count, sizeof *t->found, by_low);
        assert_memory_equal(t->found, expected, count * sizeof *expected);
    }
    free(expected);
}

/* `spread`: offsets are below that. Small ones make many blocks share an address. */
static void check_meetings(uint64_t seed, size_t count, size_t live, uint64_t spread)
{
    uint64_t random = random_seed(seed, 0);
    layout l = random_layout(&random, count, live);
    occupancy t;
    occupancy_init(&t, &l);
    uint64_t *offset = malloc(l.count * sizeof *offset);
    bool *placed = calloc(l.count, sizeof *placed);
    assert_non_null(offset);
    assert_non_null(placed);
    for (size_t step = 0; step < 3 * count; step++) {
        const size_t block = (size_t)random_below(&random, l.count);
        if (placed[block] && random_below(&random, 3) == 0) {
            occupancy_remove(&t, block);
            placed[block] = false;
        } else if (!placed[block]) {
            offset[block] = random_below(&random, spread) * PLAN_ALIGNMENT;
            occupancy_add(&t, block, offset[block]);
            placed[block] = true;
        }
        if (step % 16 == 0) compare(&t, &l, offset, placed, (size_t)random_below(&random, l.count));
    }
    free(placed);
    free(offset);
    occupancy_release(&t);
    layout_release(&l);
}

static void all_that_overlaps_is_found_lowest_first(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) check_meetings(seed, 60, 8, 1000);
    check_meetings(21, 2000, 600, UINT64_C(1) << 40);
    check_meetings(22, 2000, 600, 1000);
    check_meetings(23, 1000, 600, 2);
    check_meetings(24, 1000, 600, 1);
    check_meetings(25, 1, 1, 1);
}

static void blocks_are_put_on_top_of_what_lives_with_them(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t random = random_seed(seed, 0);
        const uint32_t sections = 1 + (uint32_t)random_below(&random, 70);
        uint64_t heights[70] = { 0 }, read[70] = { 0 };
        skyline s;
        skyline_init(&s, sections);
        for (int i = 0; i < 60; i++) {
            plan_block b = { .bytes = (1 + random_below(&random, 9)) * PLAN_ALIGNMENT };
            const uint32_t start = (uint32_t)random_below(&random, sections);
            b.life[0] = (span){ start, start + 1 + (uint32_t)random_below(&random, sections - start) };
            if (start && random_below(&random, 2)) b.life[1] = (span){ 0, 1 + (uint32_t)random_below(&random, start) };
            assert_int_equal(skyline_put(&s, &b), put_on_top(heights, &b));
        }
        skyline_read(&s, sections, read);
        assert_memory_equal(read, heights, sections * sizeof *read);
        skyline_release(&s);
    }
}

static void blocks_that_stay_to_the_end_are_piled_up(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    arena a = { 0 };
    for (int i = 0; i < 2 * MANY; i++) {
        if (i < MANY) arena_alloc(&a, 1, 0);
        arena_free(&a, arena_alloc(&a, 1 + i % 3, 0));
    }
    arena_close(&a);
    layout l;
    solution s;
    solve_arena(&a, &(solve_options){ .seed = 1, .threads = 1 }, &l, &s);
    assert_int_equal(s.residents, MANY);
    assert_int_equal(s.height, s.bound);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_overlaps_is_found_lowest_first),
        cmocka_unit_test(blocks_are_put_on_top_of_what_lives_with_them),
        cmocka_unit_test(blocks_that_stay_to_the_end_are_piled_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
