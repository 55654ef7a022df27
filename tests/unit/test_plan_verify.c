#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/plan_support.h"

#include "plan/verify.h"

/* Two blocks that live at once, and one behind the first. */
static void three(arena *a)
{
    uint32_t first = arena_alloc(a, 2, 0);
    arena_alloc(a, 1, 0);
    arena_free(a, first);
    arena_alloc(a, 2, 0);
    arena_close(a);
}

static bool says(const arena *a, const uint64_t *offset, uint64_t peak, const char *part)
{
    char reason[160] = "";
    if (verify(a, offset, peak, reason, sizeof reason)) return false;
    return strstr(reason, part) != NULL;
}

static void a_correct_placement_passes(void **state)
{
    (void)state;
    arena a = { 0 };
    three(&a);
    char reason[160];
    const uint64_t offset[] = { 0, 1024, 0 };
    assert_true(verify(&a, offset, 1536, reason, sizeof reason));
    arena_release(&a);
}

static void an_overlap_of_living_blocks_is_found(void **state)
{
    (void)state;
    arena a = { 0 };
    three(&a);
    const uint64_t inside[] = { 0, 512, 0 }, same[] = { 0, 0, 0 }, later[] = { 0, 1024, 512 };
    assert_true(says(&a, inside, 1024, "allocation 1 overlaps allocation 0"));
    assert_true(says(&a, same, 1024, "allocation 1 overlaps allocation 0"));
    assert_true(says(&a, later, 1536, "allocation 2 overlaps allocation 1"));
    arena_release(&a);
}

static void a_block_may_take_memory_freed_in_the_step_before(void **state)
{
    (void)state;
    arena a = { 0 };
    arena_free(&a, arena_alloc(&a, 4, 0));
    arena_alloc(&a, 4, 0);
    arena_close(&a);
    char reason[160];
    assert_true(verify(&a, (const uint64_t[]){ 0, 0 }, 2048, reason, sizeof reason));
    arena_release(&a);
}

static void offsets_between_units_and_wrong_peaks_are_found(void **state)
{
    (void)state;
    arena a = { 0 };
    three(&a);
    const uint64_t crooked[] = { 0, 1032, 0 }, straight[] = { 0, 1024, 0 };
    assert_true(says(&a, crooked, 1544, "not aligned"));
    assert_true(says(&a, straight, 1024, "it reaches 1536 bytes"));
    assert_true(says(&a, straight, 2048, "it reaches 1536 bytes"));
    arena_release(&a);
}

static void verification_agrees_with_looking_at_every_pair(void **state)
{
    (void)state;
    uint64_t random = 7;
    unsigned wrong = 0;
    for (int round = 0; round < 2000; round++) {
        arena a = { 0 };
        arena_random(&a, &random, 2 + random_below(&random, 6), 4, 3, 1);
        uint64_t offset[8], peak = 0;
        for (size_t i = 0; i < a.count; i++) {
            offset[i] = random_below(&random, 12) * PLAN_ALIGNMENT;
            if (offset[i] + a.blocks[i].bytes > peak) peak = offset[i] + a.blocks[i].bytes;
        }
        char reason[160];
        bool right = plain_right(&a, offset);
        wrong += !right;
        assert_int_equal(verify(&a, offset, peak, reason, sizeof reason), right);
        arena_release(&a);
    }
    assert_in_range(wrong, 200, 1800);
}

/* Counted by the last users of every unit. */
static uint64_t plain_waits(const arena *a, const uint64_t *offset, uint64_t units)
{
    uint64_t waits = 0;
    int *last = malloc(units * sizeof *last);
    assert_non_null(last);
    for (uint64_t u = 0; u < units; u++) last[u] = -1;
    for (size_t i = 0; i < a->count; i++) {
        bool waited[8] = { false };
        for (uint64_t u = offset[i] / 512; u < (offset[i] + a->blocks[i].bytes) / 512; u++) {
            if (last[u] >= 0 && last[u] != (int)a->blocks[i].stream) waited[last[u]] = true;
            last[u] = (int)a->blocks[i].stream;
        }
        for (int s = 0; s < 8; s++) waits += waited[s];
    }
    free(last);
    return waits;
}

static void waits_are_the_changes_of_stream_at_an_address(void **state)
{
    (void)state;
    uint64_t random = 3, most = 0;
    const solve_options options = { .seed = 1, .threads = 1, .seconds = 10 };
    for (int round = 0; round < 200; round++) {
        arena a = { 0 };
        arena_random(&a, &random, 40, 5, 6, 1 + (uint32_t)random_below(&random, 4));
        layout l;
        solution s;
        solve_arena(&a, &options, &l, &s);
        uint64_t *offset = offsets_of(&a, &l, &s), waits = count_waits(&a, offset);
        assert_int_equal(waits, plain_waits(&a, offset, s.height / 512));
        if (waits > most) most = waits;
        free(offset);
        solution_release(&s);
        layout_release(&l);
        arena_release(&a);
    }
    assert_true(most > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_correct_placement_passes),
        cmocka_unit_test(an_overlap_of_living_blocks_is_found),
        cmocka_unit_test(a_block_may_take_memory_freed_in_the_step_before),
        cmocka_unit_test(offsets_between_units_and_wrong_peaks_are_found),
        cmocka_unit_test(verification_agrees_with_looking_at_every_pair),
        cmocka_unit_test(waits_are_the_changes_of_stream_at_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
