#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/plan_support.h"

#include "plan/core.h"
#include "plan/verify.h"

/* One iteration: nested blocks, one that outlives it by `late` allocations of the next, and weights once. */
typedef struct program {
    arena a;
    uint32_t held; /* blocks that are freed in the next iteration */
    bool holds;
} program;

static void iterate(program *p, unsigned shape)
{
    uint32_t first = arena_alloc(&p->a, 3, 0), second = arena_alloc(&p->a, 5 + shape, 0);
    if (p->holds) arena_free(&p->a, p->held);
    uint32_t third = arena_alloc(&p->a, 2, 1);
    arena_free(&p->a, second);
    p->held = arena_alloc(&p->a, 4, 0);
    p->holds = true;
    arena_free(&p->a, first);
    uint32_t fourth = arena_alloc(&p->a, 7, 0);
    arena_free(&p->a, third);
    arena_free(&p->a, fourth);
}

static void warm_up(program *p)
{
    *p = (program){ 0 };
    arena_alloc(&p->a, 9, 0);
    arena_free(&p->a, arena_alloc(&p->a, 30, 0));
    arena_alloc(&p->a, 1, 0);
}

static void finish(program *p)
{
    arena_free(&p->a, p->held);
    arena_free(&p->a, arena_alloc(&p->a, 6, 0));
    arena_close(&p->a);
}

static void iterations_are_found(void **state)
{
    (void)state;
    program p;
    warm_up(&p);
    for (int i = 0; i < 20; i++) iterate(&p, 0);
    finish(&p);
    loop l = loop_find(&p.a);
    assert_int_equal(l.period, 10);
    assert_int_equal(l.count, 5);
    assert_in_range(l.times, 16, 19);
    for (size_t i = 0; i < l.count * (l.times - 1); i++) {
        const arena_block *b = &p.a.blocks[l.first + i], *next = b + l.count;
        assert_int_equal(b->bytes, next->bytes);
        assert_int_equal(b->start + l.period, next->start);
    }
    arena_release(&p.a);
}

static void a_sequence_that_never_repeats_has_no_loop(void **state)
{
    (void)state;
    program p;
    warm_up(&p);
    for (unsigned i = 0; i < 20; i++) iterate(&p, i * i);
    finish(&p);
    assert_int_equal(loop_find(&p.a).times, 0);
    arena_release(&p.a);
}

static void a_repetition_of_less_than_half_is_no_loop(void **state)
{
    (void)state;
    uint64_t random = 8;
    program p;
    warm_up(&p);
    for (unsigned i = 0; i < 20; i++) iterate(&p, 0);
    arena_free(&p.a, p.held);
    for (unsigned i = 0; i < 60; i++) arena_free(&p.a, arena_alloc(&p.a, 1 + random_below(&random, 1000), 0));
    for (unsigned i = 0; i < 60; i++) arena_alloc(&p.a, 1 + random_below(&random, 1000), 0);
    arena_close(&p.a);
    assert_int_equal(loop_find(&p.a).times, 0);
    arena_release(&p.a);
}

/* Each iteration's block is freed only after the next iteration's was allocated, so that every second iteration
 * repeats. */
static void blocks_that_outlive_an_iteration_make_it_longer(void **state)
{
    (void)state;
    arena a = { 0 };
    uint32_t held[64];
    for (uint32_t i = 0; i < 60; i++) {
        held[i] = arena_alloc(&a, 4, 0);
        if (i > 0) arena_free(&a, held[i - 1]);
        uint32_t other = arena_alloc(&a, 3, 0), more = arena_alloc(&a, 2, 0);
        arena_free(&a, other);
        arena_free(&a, more);
    }
    arena_close(&a);
    loop l = loop_find(&a);
    assert_true(l.times >= 2);
    assert_int_equal(l.period % 12, 0);
    for (size_t i = l.first; i < l.first + l.count * l.times; i++)
        assert_true(a.blocks[i].end - a.blocks[i].start <= l.period);
    arena_release(&a);
}

static void each_allocation_has_an_entry(void **state)
{
    (void)state;
    const loop l = { .first = 3, .count = 4, .times = 3 };
    static const size_t entries[] = { 0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 6, 3, 4, 5, 6, 7, 8 };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) assert_int_equal(loop_entry(&l, i), entries[i]);
    assert_int_equal(loop_entry(&(loop){ 0 }, 5), 5);
}

/* Solves it with its loop, and checks every iteration as recorded. */
static void solve_and_check(const arena *a, bool tight)
{
    const solve_options options = { .seed = 1, .threads = 1, .seconds = 30, .work = 1 << 20 };
    layout l;
    solution s;
    char reason[160];
    solve_arena(a, &options, &l, &s);
    uint64_t *offset = offsets_of(a, &l, &s);
    if (!verify(a, offset, s.height, reason, sizeof reason)) fail_msg("%s", reason);
    if (tight) assert_int_equal(s.load, plain_load(a));
    free(offset);
    solution_release(&s);
    layout_release(&l);
}

static void one_iteration_is_planned_for_all(void **state)
{
    (void)state;
    program p;
    warm_up(&p);
    for (int i = 0; i < 30; i++) iterate(&p, 0);
    finish(&p);
    layout l;
    layout_init(&l, &p.a);
    assert_true(l.loop.times > 20);
    assert_true(l.entries < 30);
    assert_true(l.count < l.entries); /* a block that crosses into the loop is one with those that cross inside */
    layout_release(&l);
    solve_and_check(&p.a, true);
    arena_release(&p.a);
}

/* Programs of a random iteration that repeats, in which blocks cross into the next one. */
static void random_loops_are_placed_correctly(void **state)
{
    (void)state;
    uint64_t random = 17;
    unsigned loops = 0;
    for (int round = 0; round < 150; round++) {
        arena a = { 0 };
        size_t count = 3 + random_below(&random, 12), steps = 2 * count, times = 4 + random_below(&random, 6);
        /* Block k is allocated in step 2k of an iteration, and freed `life` odd steps later. */
        uint64_t bytes[16], life[16];
        uint32_t block[2][16];
        for (size_t k = 0; k < count; k++) {
            bytes[k] = 1 + random_below(&random, 9);
            life[k] = random_below(&random, count);
        }
        for (uint64_t i = 0; i < random_below(&random, 9); i++) arena_alloc(&a, 1 + random_below(&random, 5), 0);
        for (size_t t = 0; t < times * steps; t++) {
            size_t iteration = t / steps, k = t % steps / 2;
            if (t % 2 == 0) {
                block[iteration % 2][k] = arena_alloc(&a, bytes[k], 0);
                continue;
            }
            for (size_t born = 0; born < count; born++) {
                bool wraps = born + life[born] >= count;
                if ((born + life[born]) % count == k && (!wraps || iteration > 0))
                    arena_free(&a, block[(iteration - wraps) % 2][born]);
            }
        }
        arena_close(&a);
        layout l;
        layout_init(&l, &a);
        loops += l.loop.times > 0;
        layout_release(&l);
        solve_and_check(&a, false);
        arena_release(&a);
    }
    assert_true(loops > 100);
}

static void sections_keep_which_blocks_meet(void **state)
{
    (void)state;
    uint64_t random = 23;
    for (int round = 0; round < 50; round++) {
        arena a = { 0 };
        layout l;
        arena_random(&a, &random, 50, 5, 8, 1);
        layout_init(&l, &a);
        if (l.loop.times == 0) {
            assert_int_equal(l.count, a.count);
            for (size_t i = 0; i < a.count; i++)
                for (size_t j = 0; j < a.count; j++)
                    assert_int_equal(blocks_meet(&l.blocks[i], &l.blocks[j]), plain_meet(&a.blocks[i], &a.blocks[j]));
        }
        layout_release(&l);
        arena_release(&a);
    }
}

static void a_core_has_the_blocks_that_live_where_the_arena_is_full(void **state)
{
    (void)state;
    uint64_t random = 29;
    for (int round = 0; round < 50; round++) {
        arena a = { 0 };
        layout l;
        core c;
        arena_random(&a, &random, 80, 5, 8, 1);
        layout_init(&l, &a);
        uint64_t *load = layout_load(&l), full = plain_load(&a) * 3 / 4;
        core_init(&c, &l, load, full);
        size_t expected = 0;
        for (size_t i = 0; i < l.count; i++) {
            bool meets = false;
            for (int part = 0; part < 2; part++)
                for (uint32_t s = l.blocks[i].life[part].start; s < l.blocks[i].life[part].end; s++)
                    meets |= load[s] > full;
            if (meets) assert_int_equal(c.of[expected++], i);
        }
        assert_int_equal(c.l.count, expected);
        assert_in_range(c.l.count, 1, l.count);
        assert_in_range(c.l.sections, 1, l.sections);
        for (size_t i = 0; i < c.l.count; i++)
            for (size_t j = 0; j < c.l.count; j++)
                assert_int_equal(blocks_meet(&c.l.blocks[i], &c.l.blocks[j]),
                                 blocks_meet(&l.blocks[c.of[i]], &l.blocks[c.of[j]]));
        uint64_t *inner = layout_load(&c.l), most = 0;
        for (uint32_t s = 0; s < c.l.sections; s++) most = inner[s] > most ? inner[s] : most;
        assert_int_equal(most, plain_load(&a));
        free(inner);
        free(load);
        core_release(&c);
        layout_release(&l);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(iterations_are_found),
        cmocka_unit_test(a_sequence_that_never_repeats_has_no_loop),
        cmocka_unit_test(a_repetition_of_less_than_half_is_no_loop),
        cmocka_unit_test(blocks_that_outlive_an_iteration_make_it_longer),
        cmocka_unit_test(each_allocation_has_an_entry),
        cmocka_unit_test(one_iteration_is_planned_for_all),
        cmocka_unit_test(random_loops_are_placed_correctly),
        cmocka_unit_test(sections_keep_which_blocks_meet),
        cmocka_unit_test(a_core_has_the_blocks_that_live_where_the_arena_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
