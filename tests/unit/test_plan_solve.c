#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/plan_support.h"

#include "plan/anneal.h"
#include "plan/greedy.h"
#include "plan/online.h"
#include "plan/order.h"
#include "plan/verify.h"

static const solve_options quick = { .seed = 1, .threads = 2, .seconds = 30, .work = 1 << 22 };

static uint64_t solved_height(const arena *a, const solve_options *options)
{
    layout l;
    solution s;
    char reason[160];
    solve_arena(a, options, &l, &s);
    uint64_t *offset = offsets_of(a, &l, &s), height = s.height;
    if (!verify(a, offset, s.height, reason, sizeof reason)) fail_msg("%s", reason);
    assert_true(plain_right(a, offset));
    assert_true(s.height >= s.bound && s.bound >= s.load);
    assert_int_equal(s.load, plain_load(a));
    free(offset);
    solution_release(&s);
    layout_release(&l);
    return height;
}

/* The lowest height over all orders in which blocks can be piled up from the bottom. Every placement is as high as one
 * of these. */
static uint64_t lowest(const arena *a, uint64_t *offset, bool *placed, uint64_t above, uint64_t height, uint64_t best)
{
    bool complete = true;
    for (size_t i = 0; i < a->count; i++) {
        if (placed[i]) continue;
        complete = false;
        offset[i] = 0;
        for (size_t j = 0; j < a->count; j++)
            if (placed[j] && plain_meet(&a->blocks[i], &a->blocks[j]) && offset[j] + a->blocks[j].bytes > offset[i])
                offset[i] = offset[j] + a->blocks[j].bytes;
        uint64_t at = offset[i], top = at + a->blocks[i].bytes;
        if (at < above || top >= best) continue;
        placed[i] = true;
        best = lowest(a, offset, placed, at, top > height ? top : height, best);
        placed[i] = false;
    }
    return complete && height < best ? height : best;
}

static void tiny_problems_are_solved_to_the_optimum(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (int round = 0; round < 100; round++) {
        arena a = { 0 };
        arena_random(&a, &random, 4 + random_below(&random, 6), 6, 4, 1);
        uint64_t offset[10];
        bool placed[10] = { false };
        assert_int_equal(solved_height(&a, &quick), lowest(&a, offset, placed, 0, 0, UINT64_MAX));
        arena_release(&a);
    }
}

/* At most 8 units live at once, and no placement is lower than 9. */
static void awkward(arena *a)
{
    static const arena_block blocks[] = {
        { 1, 0, 4, 0 },  { 1, 1, 2, 0 },   { 3, 3, 18, 0 },  { 3, 5, 7, 0 },   { 2, 6, 11, 0 },  { 1, 8, 20, 0 },
        { 1, 9, 16, 0 }, { 1, 10, 13, 0 }, { 1, 12, 15, 0 }, { 2, 14, 20, 0 }, { 2, 17, 20, 0 }, { 2, 19, 20, 0 },
    };
    *a = (arena){ .steps = 20, .stream_count = 1, .count = sizeof blocks / sizeof *blocks };
    a->blocks = malloc(sizeof blocks);
    assert_non_null(a->blocks);
    memcpy(a->blocks, blocks, sizeof blocks);
    for (size_t i = 0; i < a->count; i++) a->blocks[i].bytes *= PLAN_ALIGNMENT;
}

static void an_exact_search_raises_the_bound(void **state)
{
    (void)state;
    arena a;
    layout l;
    solution s;
    awkward(&a);
    uint64_t offset[12];
    bool placed[12] = { false };
    assert_int_equal(lowest(&a, offset, placed, 0, 0, UINT64_MAX), 9 * PLAN_ALIGNMENT);
    solve_arena(&a, &quick, &l, &s);
    assert_int_equal(s.load, 8 * PLAN_ALIGNMENT);
    assert_int_equal(s.bound, 9 * PLAN_ALIGNMENT);
    assert_int_equal(s.height, 9 * PLAN_ALIGNMENT);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

static void random_problems_are_solved_correctly(void **state)
{
    (void)state;
    uint64_t random = 5;
    const solve_options hasty = { .seed = 1, .threads = 2, .seconds = 30, .work = 1 << 15 };
    for (int round = 0; round < 30; round++) {
        arena a = { 0 };
        size_t count = 1 + random_below(&random, 400);
        arena_random(&a, &random, count, 1 + random_below(&random, 100), 1 + random_below(&random, 40), 2);
        (void)solved_height(&a, &hasty);
        arena_release(&a);
    }
}

static void blocks_that_never_meet_are_all_at_the_bottom(void **state)
{
    (void)state;
    arena a = { 0 };
    for (int i = 1; i < 50; i++) arena_free(&a, arena_alloc(&a, (uint64_t)i * i % 13 + 1, 0));
    assert_int_equal(solved_height(&a, &quick), 13 * PLAN_ALIGNMENT);
    arena_release(&a);
}

static void equal_blocks_reach_the_load(void **state)
{
    (void)state;
    uint64_t random = 9;
    for (int round = 0; round < 20; round++) {
        arena a = { 0 };
        arena_random(&a, &random, 300, 1, 20, 1);
        assert_int_equal(solved_height(&a, &quick), plain_load(&a));
        arena_release(&a);
    }
}

static void an_empty_problem_is_solved(void **state)
{
    (void)state;
    arena a = { 0 };
    assert_int_equal(solved_height(&a, &quick), 0);
}

/* Where only residents live, the blocks before and behind are placed separately; their heights do not add up. */
static void time_is_cut_where_only_residents_live(void **state)
{
    (void)state;
    uint64_t random = 21;
    arena a = { 0 };
    arena_alloc(&a, 10, 0);
    arena_alloc(&a, 7, 0);
    for (int iteration = 0; iteration < 10; iteration++) {
        uint32_t first = (uint32_t)a.count;
        for (int i = 0; i < 8; i++) arena_alloc(&a, 1 + random_below(&random, 9), 0);
        for (uint32_t i = 0; i < 8; i++) arena_free(&a, first + (i * 5 + (uint32_t)iteration) % 8);
    }
    arena_close(&a);
    layout l;
    solution s;
    solve_arena(&a, &quick, &l, &s);
    assert_int_equal(s.parts, 10);
    assert_int_equal(s.residents, 2);
    assert_int_equal(s.height, s.load);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

/* A proof on a floor that is higher than the blocks below it says nothing of other placements. */
static void a_floor_with_a_hole_proves_nothing(void **state)
{
    (void)state;
    uint64_t random = 6;
    arena a = { 0 };
    uint32_t first = arena_alloc(&a, 50, 0);
    arena_alloc(&a, 9, 0);
    for (int i = 0; i < 30; i++) arena_free(&a, arena_alloc(&a, 1 + random_below(&random, 40), 0));
    arena_free(&a, first);
    for (int i = 0; i < 20; i++) arena_free(&a, arena_alloc(&a, 1 + random_below(&random, 40), 0));
    arena_close(&a);
    layout l;
    parts p;
    layout_init(&l, &a);
    uint64_t *load = layout_load(&l), *offset = calloc(l.count, sizeof *offset);
    assert_non_null(offset);
    parts_init(&p, &l, load, true, offset);
    assert_int_equal(p.residents, 2);
    for (size_t i = 0; i < p.count; i++) {
        uint64_t below = p.floor[p.at[i].sections.start];
        assert_int_equal(below, 59 * PLAN_ALIGNMENT);
        assert_int_equal(p.at[i].exact, p.at[i].load > 59 * PLAN_ALIGNMENT);
    }
    assert_true(p.at[0].exact && !p.at[p.count - 1].exact);
    parts_release(&p);
    free(load);
    free(offset);
    layout_release(&l);
    arena_release(&a);
}

static void a_seed_and_a_number_of_threads_give_one_placement(void **state)
{
    (void)state;
    uint64_t random = 77;
    arena a = { 0 };
    arena_random(&a, &random, 260, 60, 25, 1);
    for (unsigned threads = 1; threads <= 3; threads++) {
        const solve_options options = { .seed = 4, .threads = threads, .seconds = 3600, .work = 1 << 22 };
        layout l;
        solution first, second;
        layout_init(&l, &a);
        solve(&l, &options, &first);
        solve(&l, &options, &second);
        assert_int_equal(first.height, second.height);
        assert_memory_equal(first.offset, second.offset, l.count * sizeof *first.offset);
        solution_release(&first);
        solution_release(&second);
        layout_release(&l);
    }
    arena_release(&a);
}

/* A goal over a whole layout, with no floor. */
typedef struct stage {
    arena a;
    layout l;
    uint64_t *load, *offset;
    parts p;
    goal g;
} stage;

static void stage_init(stage *s, uint64_t *random, size_t count, size_t live)
{
    *s = (stage){ 0 };
    arena_random(&s->a, random, count, 50, live, 1);
    layout_init(&s->l, &s->a);
    s->load = layout_load(&s->l);
    s->offset = calloc(s->l.count, sizeof *s->offset);
    assert_non_null(s->offset);
    parts_init(&s->p, &s->l, s->load, false, s->offset);
    s->g = (goal){ .l = &s->l, .load = s->load, .floor = s->p.floor, .part = &s->p.at[0], .seed = 1 };
    s->g.bound = s->p.at[0].load;
    s->g.deadline_ns = UINT64_MAX;
}

static void stage_release(stage *s)
{
    parts_release(&s->p);
    free(s->offset);
    free(s->load);
    layout_release(&s->l);
    arena_release(&s->a);
}

static void moves_cost_their_predicted_price(void **state)
{
    (void)state;
    uint64_t random = 31;
    for (int round = 0; round < 20; round++) {
        stage s;
        stage_init(&s, &random, 40, 12);
        anneal a;
        anneal_init(&a, &s.g, s.g.part->blocks, round + 1);
        uint64_t before = a.height;
        for (int step = 0; step < 300; step++) {
            /* At nearly zero temperature, a move that was priced too low would raise the height. */
            anneal_step(&a, 1e-9);
            assert_true(a.height <= before);
            before = a.height;
        }
        anneal_release(&a);
        stage_release(&s);
    }
}

static void annealing_lowers_the_result_of_greedy(void **state)
{
    (void)state;
    uint64_t random = 42, greedy_sum = 0, annealed_sum = 0;
    for (int round = 0; round < 5; round++) {
        stage s;
        stage_init(&s, &random, 120, 30);
        crew c;
        const char *how;
        crew_init(&c, 1, &s.l, s.p.floor);
        uint64_t height = greedy(&c, &s.g, s.offset, &how);
        uint32_t *order = malloc(s.l.count * sizeof *order);
        assert_non_null(order);
        memcpy(order, s.g.part->blocks, s.g.part->count * sizeof *order);
        order_by_offset(order, s.g.part->count, s.offset);
        anneal a;
        anneal_init(&a, &s.g, order, 1);
        assert_true(a.height <= height); /* blocks only fall when piled up in the order of their offsets */
        uint64_t best = a.height;
        for (int step = 0; step < 3000 && best > s.g.bound; step++) {
            anneal_step(&a, 2000);
            if (a.height < best) best = a.height;
        }
        greedy_sum += height;
        annealed_sum += best;
        anneal_release(&a);
        free(order);
        crew_release(&c);
        stage_release(&s);
    }
    assert_true(annealed_sum < greedy_sum);
}

static void gaps_are_filled_without_overlaps_in_any_order(void **state)
{
    (void)state;
    uint64_t random = 13;
    for (int round = 0; round < 40; round++) {
        stage s;
        stage_init(&s, &random, 60, 15);
        decoder d;
        decoder_init(&d, &s.l, s.p.floor);
        for (int kind = 0; kind < ORDERS; kind++) {
            for (int way = DECODE_FIRST; way <= DECODE_TOP; way++) {
                uint32_t order[60];
                char reason[160];
                order_blocks(&s.l, s.g.part, s.load, (order_kind)kind, order);
                uint64_t *offset = calloc(s.l.count, sizeof *offset);
                assert_non_null(offset);
                uint64_t height = decode(&d, order, s.g.part->count, (decode_way)way, UINT64_MAX - 1, offset);
                if (s.p.count == 1 && !verify(&s.a, offset, height, reason, sizeof reason)) fail_msg("%s", reason);
                assert_int_equal(decode(&d, order, s.g.part->count, (decode_way)way, height, offset), height);
                assert_int_equal(decode(&d, order, s.g.part->count, (decode_way)way, height - 1, offset), UINT64_MAX);
                free(offset);
            }
        }
        decoder_release(&d);
        stage_release(&s);
    }
}

/* So many blocks that their addresses are sorted by radix; with blocks of a TiB the addresses use all digits. */
static void gaps_between_hundreds_of_blocks_are_filled_without_overlaps(void **state)
{
    (void)state;
    for (uint64_t most = 50; most < UINT64_C(1) << 40; most <<= 31) {
        enum { COUNT = 1000 };
        arena a = { 0 };
        uint64_t random = 19;
        arena_random(&a, &random, COUNT, most, 1000, 1);
        layout l;
        layout_init(&l, &a);
        assert_int_equal(l.count, COUNT);
        uint64_t *floor = calloc(l.sections, sizeof *floor), *offset = calloc(l.count, sizeof *offset);
        assert_true(floor && offset);
        decoder d;
        decoder_init(&d, &l, floor);
        for (int way = DECODE_FIRST; way <= DECODE_BEST; way++) {
            uint32_t order[COUNT];
            char reason[160];
            for (uint32_t i = 0; i < COUNT; i++) order[i] = i * 7 % COUNT;
            const uint64_t height = decode(&d, order, COUNT, (decode_way)way, UINT64_MAX - 1, offset);
            if (!verify(&a, offset, height, reason, sizeof reason)) fail_msg("%s", reason);
        }
        decoder_release(&d);
        free(floor);
        free(offset);
        layout_release(&l);
        arena_release(&a);
    }
}

/* More blocks than are placed between two looks at the clock. */
#define LATE_BLOCKS 600

static void every_way_of_decoding_stops_at_the_deadline(void **state)
{
    (void)state;
    uint64_t random = 17;
    stage s;
    stage_init(&s, &random, LATE_BLOCKS, 30);
    decoder d;
    decoder_init(&d, &s.l, s.p.floor);
    d.deadline_ns = 1;
    for (int way = DECODE_FIRST; way <= DECODE_TOP; way++) {
        uint32_t order[LATE_BLOCKS];
        for (uint32_t i = 0; i < s.l.count; i++) order[i] = i;
        assert_int_equal(decode(&d, order, s.l.count, (decode_way)way, UINT64_MAX - 1, s.offset), UINT64_MAX);
    }
    decoder_release(&d);
    stage_release(&s);
}

static uint64_t late_greedy(bool unanswered)
{
    uint64_t random = 17;
    stage s;
    crew c;
    const char *how = NULL;
    stage_init(&s, &random, LATE_BLOCKS, 30);
    s.g.deadline_ns = 1;
    s.g.unanswered = unanswered;
    crew_init(&c, 2, &s.l, s.p.floor);
    const uint64_t height = greedy(&c, &s.g, s.offset, &how);
    crew_release(&c);
    stage_release(&s);
    return height;
}

static void without_an_answer_greedy_finishes_one_attempt_behind_the_deadline(void **state)
{
    (void)state;
    assert_true(late_greedy(true) < UINT64_MAX);
}

static void with_an_answer_greedy_ends_at_the_deadline(void **state)
{
    (void)state;
    assert_int_equal(late_greedy(false), UINT64_MAX);
}

static void blocks_placed_in_the_order_of_time_do_not_overlap(void **state)
{
    (void)state;
    arena a = { 0 };
    uint64_t random = 31;
    char reason[160];
    layout l;
    arena_random(&a, &random, 2000, 50, 300, 1);
    layout_init(&l, &a);
    solution s = { .offset = calloc(l.count, sizeof *s.offset) };
    assert_non_null(s.offset);
    s.height = online(&l, s.offset);
    assert_true(s.height < plain_load(&a) * 3 / 2);
    uint64_t *offset = offsets_of(&a, &l, &s);
    if (!verify(&a, offset, s.height, reason, sizeof reason)) fail_msg("%s", reason);
    free(offset);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

/* To place them the largest first would take much longer. */
static void of_many_that_live_at_once_there_is_a_placement_without_time(void **state)
{
    (void)state;
    enum { BLOCKS = 400000, LIFE = BLOCKS * 9 / 10 };
    static const solve_options none = { .seed = 1, .threads = 1 };
    arena a = { .steps = 2 * BLOCKS, .stream_count = 1, .count = BLOCKS };
    uint64_t random = 37;
    layout l;
    solution s;
    a.blocks = calloc(BLOCKS, sizeof *a.blocks);
    assert_non_null(a.blocks);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const uint32_t end = 2 * i + 1 + LIFE;
        a.blocks[i] =
            (arena_block){ (1 + random_below(&random, 50)) * PLAN_ALIGNMENT, 2 * i, end < a.steps ? end : a.steps, 0 };
    }
    solve_arena(&a, &none, &l, &s);
    assert_string_equal(s.how, "start, best fit");
    assert_true(s.height >= s.load && s.height < s.load * 3 / 2);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

/* The reported progress. */
typedef struct told {
    unsigned placing, planning;
    double placed;
    bool went_back;
} told;

static void note(void *of_told, double seconds, double placed)
{
    told *t = of_told;
    assert_true(seconds >= 0 && placed >= 0 && placed <= 1);
    t->went_back |= placed < t->placed;
    t->placed = placed;
    ++*(placed < 1 ? &t->placing : &t->planning);
}

static solve_options telling(told *t)
{
    solve_options options = quick;
    options.progress = note;
    options.user = t;
    return options;
}

static void many_that_reach_the_bound_in_the_order_of_time_are_not_placed_again(void **state)
{
    (void)state;
    enum { BLOCKS = 40000, LIFE = 1000 };
    arena a = { .steps = 2 * BLOCKS, .stream_count = 1, .count = BLOCKS };
    layout l;
    solution s;
    told t = { 0 };
    const solve_options options = telling(&t);
    a.blocks = calloc(BLOCKS, sizeof *a.blocks);
    assert_non_null(a.blocks);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const uint32_t end = 2 * i + 1 + LIFE;
        a.blocks[i] = (arena_block){ PLAN_ALIGNMENT, 2 * i, end < a.steps ? end : a.steps, 0 };
    }
    solve_arena(&a, &options, &l, &s);
    assert_int_equal(s.height, s.bound);
    assert_int_equal(t.placing + t.planning, 0);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

static void progress_is_reported_at_the_first_placement_and_then_by_time(void **state)
{
    (void)state;
    uint64_t random = 23;
    arena a = { 0 };
    layout l;
    solution s;
    told t = { 0 };
    const solve_options options = telling(&t);
    arena_random(&a, &random, 1000, 50, 300, 1);
    solve_arena(&a, &options, &l, &s);
    assert_true(t.placing > 1000 / 256 - 1 && t.planning > 0 && !t.went_back);
    solution_release(&s);
    layout_release(&l);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_problems_are_solved_to_the_optimum),
        cmocka_unit_test(an_exact_search_raises_the_bound),
        cmocka_unit_test(random_problems_are_solved_correctly),
        cmocka_unit_test(blocks_that_never_meet_are_all_at_the_bottom),
        cmocka_unit_test(equal_blocks_reach_the_load),
        cmocka_unit_test(an_empty_problem_is_solved),
        cmocka_unit_test(time_is_cut_where_only_residents_live),
        cmocka_unit_test(a_floor_with_a_hole_proves_nothing),
        cmocka_unit_test(a_seed_and_a_number_of_threads_give_one_placement),
        cmocka_unit_test(moves_cost_their_predicted_price),
        cmocka_unit_test(annealing_lowers_the_result_of_greedy),
        cmocka_unit_test(gaps_are_filled_without_overlaps_in_any_order),
        cmocka_unit_test(gaps_between_hundreds_of_blocks_are_filled_without_overlaps),
        cmocka_unit_test(progress_is_reported_at_the_first_placement_and_then_by_time),
        cmocka_unit_test(every_way_of_decoding_stops_at_the_deadline),
        cmocka_unit_test(without_an_answer_greedy_finishes_one_attempt_behind_the_deadline),
        cmocka_unit_test(with_an_answer_greedy_ends_at_the_deadline),
        cmocka_unit_test(blocks_placed_in_the_order_of_time_do_not_overlap),
        cmocka_unit_test(of_many_that_live_at_once_there_is_a_placement_without_time),
        cmocka_unit_test(many_that_reach_the_bound_in_the_order_of_time_are_not_placed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
