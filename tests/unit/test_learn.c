/*
 * Plans of what a program repeats: placing with known lives, finding rounds in a history, and serving them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/meta.h"
#include "device_support.h"
#include "learn_support.h"
#include "log_support.h"
#include "observe/plan.h"
#include "pool/plan/learn.h"
#include "pool/plan/serve.h"
#include "pool_support.h"
#include "random_support.h"
#include "weir/observe.h"
#include "weir/plan.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static void assert_apart(const wr_item *items, size_t count, uint32_t steps)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (meet(&items[i], &items[k], steps) && overlap(&items[i], &items[k]))
                fail_msg("items %zu and %zu overlap", i, k);
}

static void items_of_one_time_lie_side_by_side(void **state)
{
    (void)state;
    uint64_t bytes = UINT64_MAX, live = UINT64_MAX; /* of no account */
    wr_item items[] = { { 512, 0, 0, 4 }, { 1024, 0, 1, 3 }, { 2048, 0, 3, 5 } };
    assert_ok(wr_place(items, 3, 5, UNLIMITED, &bytes, &live));
    assert_apart(items, 3, 5);
    assert_int_equal(bytes, 512 + 2048);
    assert_int_equal(live, bytes);
}

static void an_item_that_lives_over_the_border_meets_both_ends(void **state)
{
    (void)state;
    uint64_t bytes = 0, live = 0;
    wr_item items[] = { { 512, 0, 4, 1 }, { 512, 0, 0, 2 }, { 512, 0, 4, 5 }, { 512, 0, 2, 2 } };
    assert_ok(wr_place(items, 4, 5, UNLIMITED, &bytes, &live));
    assert_apart(items, 4, 5);
    assert_int_equal(bytes, 3 * 512);
}

static void random_items_lie_apart_and_near_the_bound(void **state)
{
    (void)state;
    enum { COUNT = 300, STEPS = 200 };
    uint32_t random = 5;
    for (int run = 0; run < 10; run++) {
        wr_item items[COUNT];
        uint64_t load[STEPS] = { 0 }, bound = 0, bytes = 0, live = 0;
        for (int i = 0; i < COUNT; i++) {
            const uint32_t a = (random = random * 1664525 + 1013904223) >> 16,
                           b = (random = random * 1664525 + 1) >> 16;
            items[i] = (wr_item){ 512 * (1 + a % 64), 0, a % STEPS, (a + 1 + b % 40) % STEPS };
        }
        for (int i = 0; i < COUNT; i++)
            for (uint32_t step = 0; step < STEPS; step++) load[step] += lives_at(&items[i], step) ? items[i].bytes : 0;
        for (int step = 0; step < STEPS; step++) bound = load[step] > bound ? load[step] : bound;
        assert_ok(wr_place(items, COUNT, STEPS, UNLIMITED, &bytes, &live));
        assert_int_equal(live, bound);
        assert_apart(items, COUNT, STEPS);
        assert_in_range(bytes, bound, bound + bound / 4);
    }
}

/* Sets that reach no higher than what lives at once: the first seven in one of the orders each, six in those that are
 * wholly sorted, large and long-lived ones first among equals, and three with the lowest of the tightest gaps, with the
 * lowest gap, and with a floor of those that live for most of the round. */
static void items_that_one_order_places_too_high_are_placed_low_by_another(void **state)
{
    (void)state;
    enum { SETS = 16, MOST = 9, STEPS = 8 };
    /* Sizes in 512 bytes. */
    const wr_item sets[SETS][MOST] = {
        { { 1, 0, 0, 4 }, { 6, 0, 6, 1 }, { 2, 0, 1, 3 }, { 3, 0, 0, 4 }, { 2, 0, 6, 2 }, { 5, 0, 7, 0 } },
        { { 2, 0, 7, 3 },
          { 3, 0, 4, 6 },
          { 3, 0, 4, 7 },
          { 5, 0, 0, 2 },
          { 5, 0, 6, 1 },
          { 1, 0, 0, 3 },
          { 4, 0, 4, 0 },
          { 3, 0, 2, 5 },
          { 4, 0, 5, 0 } },
        { { 3, 0, 0, 4 },
          { 3, 0, 6, 2 },
          { 4, 0, 1, 2 },
          { 5, 0, 3, 7 },
          { 3, 0, 7, 0 },
          { 6, 0, 5, 0 },
          { 3, 0, 0, 2 } },
        { { 4, 0, 4, 0 }, { 4, 0, 2, 6 }, { 6, 0, 6, 0 }, { 2, 0, 1, 4 }, { 1, 0, 1, 5 }, { 2, 0, 3, 7 } },
        { { 4, 0, 1, 5 },
          { 5, 0, 2, 6 },
          { 4, 0, 1, 4 },
          { 3, 0, 0, 3 },
          { 2, 0, 0, 2 },
          { 4, 0, 7, 1 },
          { 2, 0, 0, 4 } },
        { { 6, 0, 1, 2 },
          { 4, 0, 2, 5 },
          { 3, 0, 0, 3 },
          { 1, 0, 7, 3 },
          { 5, 0, 3, 7 },
          { 2, 0, 0, 3 },
          { 1, 0, 6, 0 },
          { 6, 0, 4, 0 } },
        { { 6, 0, 1, 3 }, { 4, 0, 5, 1 }, { 5, 0, 0, 2 }, { 5, 0, 7, 1 } },
        { { 5, 0, 6, 0 }, { 3, 0, 6, 1 }, { 4, 0, 3, 5 }, { 2, 0, 0, 4 } },
        { { 1, 0, 4, 0 }, { 2, 0, 1, 5 }, { 5, 0, 7, 0 }, { 5, 0, 1, 3 } },
        { { 2, 0, 1, 4 }, { 3, 0, 6, 2 }, { 4, 0, 4, 6 }, { 4, 0, 5, 7 } },
        { { 6, 0, 5, 0 }, { 2, 0, 6, 1 }, { 4, 0, 0, 4 }, { 4, 0, 2, 4 } },
        { { 2, 0, 0, 2 }, { 5, 0, 1, 5 }, { 3, 0, 4, 5 }, { 3, 0, 0, 1 } },
        { { 4, 0, 4, 6 }, { 6, 0, 7, 2 }, { 4, 0, 3, 7 }, { 4, 0, 5, 1 } },
        { { 5, 0, 2, 3 }, { 3, 0, 0, 4 }, { 2, 0, 2, 5 }, { 5, 0, 6, 2 }, { 2, 0, 3, 7 }, { 3, 0, 4, 0 } },
        { { 6, 0, 3, 6 },
          { 3, 0, 4, 0 },
          { 1, 0, 2, 6 },
          { 5, 0, 5, 7 },
          { 5, 0, 2, 3 },
          { 5, 0, 1, 4 },
          { 5, 0, 1, 3 } },
        { { 4, 0, 3, 0 }, { 3, 0, 2, 6 }, { 2, 0, 3, 6 }, { 4, 0, 7, 2 }, { 2, 0, 0, 4 } },
    };
    for (int k = 0; k < SETS; k++) {
        wr_item items[MOST];
        uint64_t bytes = 0, live = 0;
        size_t count = 0;
        for (; count < MOST && sets[k][count].bytes; count++) {
            items[count] = sets[k][count];
            items[count].bytes *= 512;
        }
        assert_ok(wr_place(items, count, STEPS, UNLIMITED, &bytes, &live));
        assert_apart(items, count, STEPS);
        assert_int_equal(bytes, live);
    }
}

/* About a quarter of them live at any time. Looking for each one through all of them a few times is work enough. */
static void many_items_of_one_time_lie_apart(void **state)
{
    (void)state;
    enum { COUNT = 600, STEPS = COUNT };
    static wr_item items[COUNT];
    uint32_t random = 5;
    uint64_t bytes = 0, live = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        random = random * 1664525 + 1013904223;
        items[i] = (wr_item){ 512 * (1 + (random >> 8) % 64), 0, i, (i + 1 + (random >> 14) % (COUNT / 2)) % STEPS };
    }
    assert_ok(wr_place(items, COUNT, STEPS, (wr_place_limit){ .work = (uint64_t)4 * COUNT * COUNT }, &bytes, &live));
    assert_in_range(bytes, live, live + live / 4);
    assert_apart(items, COUNT, STEPS);
}

enum { LIVE = 200, RING = 3 * LIVE };

/* Each begins as an earlier one ends, and meets far more than a few others. */
static uint64_t place_ring(uint64_t work, wr_item items[RING])
{
    uint64_t bytes = 0, live = 0;
    for (uint32_t i = 0; i < RING; i++) items[i] = (wr_item){ 512, 0, i, (i + LIVE) % RING };
    assert_ok(wr_place(items, RING, RING, (wr_place_limit){ .work = work }, &bytes, &live));
    assert_int_equal(live, 512 * LIVE);
    return bytes;
}

static void many_items_that_follow_each_other_take_the_same_places(void **state)
{
    (void)state;
    wr_item items[RING];
    assert_int_equal(place_ring(UINT64_MAX, items), 512 * LIVE);
    assert_apart(items, RING, RING);
}

/* Finding out that there are too many, with the tree, takes two thirds of the work. */
static void it_is_work_to_find_items_and_to_go_through_them(void **state)
{
    (void)state;
    wr_item items[RING];
    assert_int_equal(place_ring(550000, items), 512 * LIVE);
    assert_int_equal(place_ring(450000, items), UINT64_MAX);
}

static void it_is_work_to_find_a_few_items(void **state)
{
    (void)state;
    enum { FEW = 60 };
    wr_item items[FEW];
    uint64_t bytes = 0, live = 0;
    for (uint32_t i = 0; i < FEW; i++) items[i] = (wr_item){ 512, 0, i, FEW };
    assert_ok(wr_place(items, FEW, 2 * FEW, (wr_place_limit){ .work = FEW * FEW }, &bytes, &live));
    assert_int_equal(bytes, UINT64_MAX);
}

static void items_that_take_too_long_are_not_placed(void **state)
{
    (void)state;
    enum { COUNT = 100, STEPS = 2 * COUNT };
    static wr_item items[COUNT];
    uint64_t bytes = 0, live = 0;
    for (uint32_t i = 0; i < COUNT; i++) items[i] = (wr_item){ 512, 0, i, COUNT };
    assert_ok(wr_place(items, COUNT, STEPS, (wr_place_limit){ .work = COUNT }, &bytes, &live));
    assert_int_equal(bytes, UINT64_MAX);
    assert_int_equal(live, 512 * COUNT);
    assert_ok(wr_place(items, COUNT, STEPS, UNLIMITED, &bytes, &live));
    assert_int_equal(bytes, live);
}

static void placing_ends_when_it_is_stopped(void **state)
{
    (void)state;
    const atomic_bool stop = true;
    uint64_t bytes = 0, live = 0;
    wr_item items[] = { { 512, 0, 0, 1 }, { 512, 0, 1, 2 } };
    assert_ok(wr_place(items, 2, 4, (wr_place_limit){ UINT64_MAX, &stop }, &bytes, &live));
    assert_int_equal(bytes, UINT64_MAX);
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

enum { ROUND = 40 };

static uint64_t round_bytes(int i)
{
    return 512 * (1 + (uint64_t)i * 7 % 31);
}

/* Allocations, each of which is freed three later. */
static void add_round(tape *t, uint64_t stream)
{
    uint64_t addresses[ROUND];
    for (int i = 0; i < ROUND; i++) {
        addresses[i] = t->next += 1 << 20;
        add(t, WEIR_EVENT_ALLOC, addresses[i], round_bytes(i), stream);
        if (i >= 3) add(t, WEIR_EVENT_FREE_COMPLETED, addresses[i - 3], round_bytes(i - 3), stream);
    }
    for (int i = ROUND - 3; i < ROUND; i++) add(t, WEIR_EVENT_FREE_COMPLETED, addresses[i], round_bytes(i), stream);
}

static void two_equal_rounds_are_a_plan(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (int i = 0; i < 10; i++) add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 512 * (100 + (uint64_t)i), 7);
    add_round(&t, 7);
    add_round(&t, 7);
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arena_count, 1);
    assert_int_equal(plan->arenas[0].entries, ROUND);
    assert_int_equal(users[0].native, 7);
    uint64_t most = 0;
    for (int i = 0; i < ROUND; i++) {
        assert_int_equal(plan->entries[i].bytes, round_bytes(i));
        if (i < 3) continue;
        const uint64_t live = round_bytes(i) + round_bytes(i - 1) + round_bytes(i - 2) + round_bytes(i - 3);
        most = live > most ? live : most;
    }
    assert_in_range(plan->arenas[0].bytes, most, most + most / 8);
    wr_plan_destroy(plan);
}

static void streams_have_rounds_of_their_own(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (int i = 0; i < 3; i++) {
        add_round(&t, 1);
        for (uint64_t k = 0; k < 20; k++) add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 512 * (1 + k * k), 2);
        add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 512 * (50 + (uint64_t)i), 3);
    }
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arena_count, 2);
    assert_int_equal(users[0].native, 1);
    assert_int_equal(users[1].native, 2);
    assert_int_equal(plan->arenas[1].entries, 20);
    assert_int_equal(plan->arenas[1].first, ROUND);
    wr_plan_destroy(plan);
}

static void a_round_of_a_ring_of_buffers_is_one_turn(void **state)
{
    (void)state;
    enum { BUFFERS = 100 };
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_ring(&t, BUFFERS, 5 * BUFFERS, 512, 7);
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arenas[0].entries, BUFFERS);
    assert_int_equal(plan->arenas[0].bytes, BUFFERS * 512);
    wr_plan_destroy(plan);
}

static void a_plan_much_larger_than_what_lives_at_once_is_not_made(void **state)
{
    (void)state;
    enum { BUFFERS = 10 };
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_ring(&t, BUFFERS, 10 * BUFFERS, 512, 7);
    assert_no_plan(&t, &SHARING);
    const size_t of_others = t.count;
    for (int i = 0; i < 3; i++) add_round(&t, 8);
    weir_plan *alone = NULL;
    assert_ok(wr_learn(t.events + of_others, t.count - of_others, &SHARING, &alone, &users));
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arena_count, 1);
    assert_int_equal(users[0].native, 8);
    assert_int_equal(plan->entry_count, ROUND);
    assert_memory_equal(plan->arenas, alone->arenas, sizeof *plan->arenas);
    assert_memory_equal(plan->entries, alone->entries, ROUND * sizeof *plan->entries);
    wr_plan_destroy(alone);
    wr_plan_destroy(plan);
}

/* Some blocks are allocated again before those of the iteration before are freed. */
static void when_many_blocks_outlive_an_iteration_a_round_is_two_iterations(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (uint64_t i = 1; i <= 6 * (uint64_t)ROUND; i++) {
        const uint64_t bytes = i % 10 == 0 ? 512 : 20 * round_bytes((int)(i % ROUND));
        add(&t, WEIR_EVENT_ALLOC, i << 20, bytes, 7);
        if (i > 3 && i % 10 != 3) add(&t, WEIR_EVENT_FREE_COMPLETED, (i - 3) << 20, 0, 7);
        if (i > ROUND && i % 10 == 0) add(&t, WEIR_EVENT_FREE_COMPLETED, (i - ROUND) << 20, 0, 7);
    }
    assert_ok(wr_learn(t.events, t.count, &SHARING, &plan, &users));
    assert_int_equal(plan->arenas[0].entries, 2 * ROUND);
    wr_plan_destroy(plan);
}

static void without_repetition_no_plan_is_made(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    assert_no_plan(&t, &SHARING);
    add_round(&t, 7);
    assert_no_plan(&t, &SHARING);
    for (uint64_t i = 0; i < 200; i++) add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 512 * (1 + i * i), 7);
    assert_no_plan(&t, &SHARING);
}

/* Each block is freed three allocations later, in the next round if need be. */
static void blocks_that_live_into_the_next_round_keep_their_places_there(void **state)
{
    (void)state;
    enum { ALL = 4 * ROUND, LIVES = 4 };
    static tape t;
    t = (tape){ .next = 0 };
    uint64_t addresses[ALL];
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (int i = 0; i < ALL; i++) {
        addresses[i] = t.next += 1 << 20;
        add(&t, WEIR_EVENT_ALLOC, addresses[i], round_bytes(i % ROUND), 7);
        if (i >= LIVES - 1)
            add(&t, WEIR_EVENT_FREE_COMPLETED, addresses[i - LIVES + 1], round_bytes((i - LIVES + 1) % ROUND), 7);
    }
    assert_ok(wr_learn(t.events, t.count, &APART, &plan, &users));
    assert_int_equal(plan->arenas[0].entries, ROUND);
    for (int i = 0; i < ROUND; i++)
        for (int k = i + 1; k < i + LIVES; k++) {
            const weir_plan_entry *a = &plan->entries[i], *b = &plan->entries[k % ROUND];
            assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
        }
    wr_plan_destroy(plan);
}

static void what_repeats_in_less_than_a_quarter_is_not_planned(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (uint64_t i = 0; i < 7 * ROUND; i++) add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 512 * (100 + i), 7);
    for (int i = 0; i < 2; i++) add_round(&t, 7);
    assert_no_plan(&t, &APART);
    add_round(&t, 7);
    assert_ok(wr_learn(t.events, t.count, &APART, &plan, &users));
    wr_plan_destroy(plan);
}

static void no_plan_is_made_once_it_is_stopped(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    atomic_bool stop = false;
    const wr_learn_options options = { .fit = as_it_is, .stop = &stop };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_round(&t, 7);
    add_round(&t, 7);
    assert_ok(wr_learn(t.events, t.count, &options, &plan, &users));
    wr_plan_destroy(plan);
    stop = true;
    assert_status(wr_learn(t.events, t.count, &options, &plan, &users), WEIR_ERR_NOT_READY);
}

static void of_a_plan_that_was_stopped_the_log_says_nothing(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    const atomic_bool stop = true;
    const wr_learn_options options = { .fit = as_it_is, .stop = &stop };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (int i = 0; i < 2; i++) add_round(&t, 7);
    begin_log();
    atomic_store(&wr_log_threshold, WR_LOG_INFO);
    const weir_status status = wr_learn(t.events, t.count, &options, &plan, &users);
    atomic_store(&wr_log_threshold, WR_LOG_OFF);
    assert_string_equal(end_log(), "");
    assert_status(status, WEIR_ERR_NOT_READY);
}

static void the_log_says_why_no_plan_is_made(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    char text[256] = "";
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_round(&t, 7);
    FILE *file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_return_code(kept, 0);
    assert_return_code(dup2(fileno(file), STDERR_FILENO), 0);
    atomic_store(&wr_log_threshold, WR_LOG_INFO);
    const weir_status status = wr_learn(t.events, t.count, &APART, &plan, &users);
    atomic_store(&wr_log_threshold, WR_LOG_OFF);
    assert_return_code(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    rewind(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_status(status, WEIR_ERR_NOT_READY);
    assert_non_null(strstr(text, "no plan: at the end of what is recorded (allocations: 40, streams: 1)"));
}

/* A round that holds so many bytes in the end: a large block throughout, and small ones in turn. */
static void add_turn(tape *t, uint64_t stream, uint64_t bytes, int count)
{
    const uint64_t large = t->next += 1 << 20;
    add(t, WEIR_EVENT_ALLOC, large, bytes - 512, stream);
    for (int i = 1; i < count; i++) {
        add(t, WEIR_EVENT_ALLOC, t->next += 1 << 20, 512, stream);
        add(t, WEIR_EVENT_FREE_COMPLETED, t->next, 512, stream);
    }
    add(t, WEIR_EVENT_FREE_COMPLETED, large, bytes - 512, stream);
}

enum { TURN = 20 };

static void add_turns(tape *t, uint64_t first_bytes, uint64_t second_bytes, int second_count)
{
    for (int i = 0; i < 3; i++) {
        add_turn(t, 1, first_bytes, TURN);
        add_turn(t, 2, second_bytes, second_count);
    }
}

static void of_streams_that_take_turns_those_that_hold_least_are_left_out(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_turns(&t, 8 * MIB, 2 * MIB, TURN);
    assert_ok(wr_learn(t.events, t.count, &APART, &plan, &users));
    assert_int_equal(plan->arena_count, 1);
    assert_int_equal(users[0].native, 1);
    wr_plan_destroy(plan);
}

static void where_taking_turns_leaves_out_more_than_half_no_plan_is_made(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    add_turns(&t, 8 * MIB, 2 * MIB, TURN + 1);
    assert_no_plan(&t, &APART);
}

static void streams_that_take_turns_are_planned_if_that_costs_a_sixteenth(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_turns(&t, 16 * MIB, MIB, TURN);
    assert_ok(wr_learn(t.events, t.count, &APART, &plan, &users));
    assert_int_equal(plan->arena_count, 2);
    wr_plan_destroy(plan);
}

/* What stays has no places in the plan, so it pays for none. */
static void streams_that_take_turns_beside_what_stays_are_not_planned(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 64 * MIB, 2);
    add_turns(&t, 8 * MIB, 4 * MIB, TURN + 1);
    assert_no_plan(&t, &APART);
}

/* The rounds of a stream that is not planned were earlier, too: it holds buffers in rotation. */
static void streams_that_take_turns_after_they_held_more_are_not_planned(void **state)
{
    (void)state;
    enum { BUFFERS = 10 };
    static tape t;
    t = (tape){ .next = 0 };
    add_ring(&t, BUFFERS, 10 * BUFFERS, 64 * MIB, 7);
    add(&t, WEIR_EVENT_ALLOC, t.next += 1 << 20, 64 * MIB, 2);
    add(&t, WEIR_EVENT_FREE_COMPLETED, t.next, 64 * MIB, 2);
    add_turns(&t, 8 * MIB, 4 * MIB, TURN + 1);
    assert_no_plan(&t, &APART);
}

static void streams_that_take_turns_beside_others_that_hold_much_are_not_planned(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    const uint64_t much = t.next += 1 << 20;
    add(&t, WEIR_EVENT_ALLOC, much, 64 * MIB, 7);
    add_turns(&t, 8 * MIB, 4 * MIB, TURN + 1);
    add(&t, WEIR_EVENT_FREE_COMPLETED, much, 64 * MIB, 7);
    assert_no_plan(&t, &APART);
}

static void a_plan_is_for_the_device_of_its_events(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    for (int i = 0; i < 2; i++) add_round(&t, 7);
    for (size_t i = 0; i < t.count; i++) t.events[i].device = 3;
    assert_ok(wr_learn(t.events, t.count, &APART, &plan, &users));
    assert_int_equal(plan->arenas[0].device, 3);
    wr_plan_destroy(plan);
}

/* Events are numbered with 32 bits, and the last number means none. */
static void too_many_events_are_refused_before_they_are_read(void **state)
{
    (void)state;
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    assert_status(wr_learn(NULL, UINT32_MAX, &APART, &plan, &users), WEIR_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(weir_error_text(), "4294967295 events are too many"));
}

/* One holds its large block while the other holds its own. */
static void add_rounds_of_one_time(tape *t)
{
    for (int i = 0; i < 3; i++) {
        const uint64_t large = t->next += 1 << 20;
        add(t, WEIR_EVENT_ALLOC, large, 8 * MIB, 1);
        add_turn(t, 2, 4 * MIB, TURN);
        for (int k = 1; k < TURN; k++) {
            add(t, WEIR_EVENT_ALLOC, t->next += 1 << 20, 512, 1);
            add(t, WEIR_EVENT_FREE_COMPLETED, t->next, 512, 1);
        }
        add(t, WEIR_EVENT_FREE_COMPLETED, large, 8 * MIB, 1);
    }
}

static void where_a_record_cannot_be_made_no_plan_is(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    const uint64_t before = wr_meta_live();
    weir_status status = WEIR_ERR_OUT_OF_HOST_MEMORY;
    weir_plan *plan = NULL;
    const wr_arena_user *users = NULL;
    add_rounds_of_one_time(&t);
    for (uint64_t nth = 1; status != WEIR_OK; nth++) {
        assert_status(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
        assert_int_equal(wr_meta_live(), before);
        wr_meta_fail_nth(nth);
        status = wr_learn(t.events, t.count, &SHARING, &plan, &users);
    }
    wr_meta_fail_nth(0);
    assert_int_equal(plan->arena_count, 2);
    for (uint64_t i = 0; i < plan->entry_count; i++) assert_true(plan->entries[i].bytes > 0);
    wr_plan_destroy(plan);
}

static void private_pools_are_left_out(void **state)
{
    (void)state;
    static tape t;
    t = (tape){ .next = 0 };
    add_round(&t, 7);
    add_round(&t, 7);
    for (size_t i = 0; i < t.count; i++) t.events[i].pool[1] = 1;
    assert_no_plan(&t, &SHARING);
}

/* ---- a running program ------------------------------------------------------------------------------------------- */

static int open_recording(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB, .history = 4096 });
    return 0;
}

/* A training job: activations are allocated forwards and freed backwards, some of them kept for a while. */
/* On all of the streams at once. */
static void iterate_on(const weir_stream *streams, size_t count, size_t more)
{
    enum { LAYERS = 20, MOST = 2 };
    void *activations[LAYERS][MOST], *kept[LAYERS][MOST];
    assert_true(count <= MOST);
    for (size_t i = 0; i < LAYERS; i++)
        for (size_t k = 0; k < count; k++) {
            activations[i][k] = alloc_on((3 + i * 5 % 7) * 4 * MIB + more, streams[k]);
            void *scratch = alloc_on((1 + i % 3) * 9 * MIB, streams[k]);
            kept[i][k] = alloc_on((1 + i % 5) * 400000, streams[k]);
            assert_ok(weir_free(scratch));
        }
    for (size_t i = LAYERS; i-- > 0;)
        for (size_t k = 0; k < count; k++) {
            void *gradient = alloc_on((3 + i * 5 % 7) * 4 * MIB, streams[k]);
            assert_ok(weir_free(activations[i][k]));
            assert_ok(weir_free(gradient));
        }
    for (size_t i = 0; i < LAYERS; i++)
        for (size_t k = 0; k < count; k++) assert_ok(weir_free(kept[i][k]));
}

static void one_iteration(weir_stream stream, size_t more)
{
    iterate_on(&stream, 1, more);
}

static double ratio_of_an_iteration(size_t more)
{
    assert_ok(weir_stats_reset_peaks(0));
    one_iteration(default_stream(0), more);
    const weir_memory_stats s = stats_of(0);
    return (double)s.reserved_bytes[WEIR_STAT_ALL].peak / (double)s.requested_bytes[WEIR_STAT_ALL].peak;
}

static void from_the_third_round_on_little_more_is_held_than_lives(void **state)
{
    (void)state;
    void *weights = alloc(400 * MIB);
    one_iteration(default_stream(0), 0);
    assert_status(weir_plan_learn(0), WEIR_ERR_NOT_READY);
    one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    for (int i = 0; i < 4; i++) {
        assert_true(ratio_of_an_iteration(0) <= 1.01);
        assert_ok(weir_plan_learn(0));
    }
    assert_int_equal(stats_of(0).plan_missed + stats_of(0).plan_late, 0);
    assert_ok(weir_free(weights));
}

static void rounds_after_the_first_planned_one_call_no_driver(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    one_iteration(default_stream(0), 0);
    const uint64_t calls = driver_calls();
    one_iteration(default_stream(0), 0);
    assert_int_equal(driver_calls(), calls);
}

/* As a program's source may not for good. */
static void memory_that_is_not_taken_back_keeps_no_plan_from_being_served(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    for (uint64_t nth = 1; nth <= 3; nth++) assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, nth, WEIR_ERR_DRIVER));
    assert_ok(weir_plan_learn(0));
    assert_ok(weir_host_fail_clear());
    one_iteration(default_stream(0), 0);
    assert_true(stats_of(0).plan_served > 0);
}

static void round_and_learn(int rounds)
{
    for (int i = 0; i < rounds; i++) {
        one_iteration(default_stream(0), 0);
        assert_ok(weir_plan_learn(0));
    }
}

static void what_lay_beside_a_plan_goes_back_once_it_fits(void **state)
{
    (void)state;
    void *beside = alloc(4096 * MIB);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    assert_ok(weir_free(beside));
    assert_true(reserved_on(0) >= (int64_t)(4096 * MIB));
    round_and_learn(3);
    assert_true(reserved_on(0) < (int64_t)(2048 * MIB));
}

static void what_lies_beside_a_plan_stays_until_two_rounds_have_shown_that_it_fits(void **state)
{
    (void)state;
    void *beside = alloc(4096 * MIB);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    assert_ok(weir_free(beside));
    assert_ok(weir_plan_learn(0));
    assert_true(reserved_on(0) >= (int64_t)(4096 * MIB));
}

/* It would come again, round after round. */
static void what_comes_to_lie_beside_a_plan_that_fits_stays(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    round_and_learn(3);
    assert_ok(weir_free(alloc(4096 * MIB)));
    round_and_learn(3);
    assert_true(reserved_on(0) >= (int64_t)(4096 * MIB));
}

static void a_program_that_changes_is_planned_anew(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    for (int i = 0; i < 2; i++) {
        one_iteration(default_stream(0), 3 * MIB);
        (void)!weir_plan_learn(0);
    }
    assert_true(ratio_of_an_iteration(3 * MIB) <= 1.01);
}

static void parked_blocks_do_not_hide_requests_from_a_plan(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    const weir_memory_stats before = stats_of(0);
    one_iteration(default_stream(0), 0);
    assert_int_equal(stats_of(0).plan_served - before.plan_served, 4 * 20);
}

/* Of a stream whose requests do not repeat. */
static void ask_for_other_things(weir_stream stream, int times)
{
    static uint32_t random = 5;
    for (int i = 0; i < times; i++)
        assert_ok(weir_free(alloc_on(512 * (1 + (next_random(&random) >> 8) % 4096), stream)));
}

static void assert_next_round_is_served(weir_stream stream)
{
    const weir_memory_stats before = stats_of(0);
    one_iteration(stream, 0);
    assert_int_equal(stats_of(0).plan_served - before.plan_served, 4 * 20);
}

static void a_stream_that_is_not_planned_does_not_end_the_plan_of_another(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    assert_next_round_is_served(default_stream(0));
    ask_for_other_things(other, 5000);
    assert_next_round_is_served(default_stream(0));
}

static void a_plan_of_streams_that_ask_for_nothing_is_given_up_in_the_end(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    ask_for_other_things(other, 1);
    const wr_cache *cache = &device_0()->cache;
    atomic_load(&cache->serving)->in_vain_others = (1 << 20) - 1;
    ask_for_other_things(other, 1);
    assert_null(atomic_load(&cache->serving));
}

static void a_stream_that_is_not_planned_is_no_reason_to_plan_the_others_anew(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    for (int i = 0; i < 9; i++) {
        one_iteration(default_stream(0), 0);
        ask_for_other_things(other, 100);
        assert_ok(weir_plan_learn(0));
    }
    assert_int_equal(device_0()->cache.servings, 1);
}

static void a_stream_that_begins_to_repeat_is_planned_too(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    const weir_stream both[] = { default_stream(0), other };
    for (int i = 0; i < 4; i++) iterate_on(both, 2, 0);
    assert_ok(weir_plan_learn(0));
    const weir_memory_stats before = stats_of(0);
    iterate_on(both, 2, 0);
    assert_int_equal(stats_of(0).plan_served - before.plan_served, 2 * 4 * 20);
}

/* Together they need as much as one. */
static void many_streams_that_take_turns_are_not_planned(void **state)
{
    (void)state;
    weir_stream streams[4];
    for (int k = 0; k < 4; k++) streams[k] = new_stream(0);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) one_iteration(streams[k], 0);
    assert_status(weir_plan_learn(0), WEIR_ERR_NOT_READY);
    assert_null(atomic_load(&device_0()->cache.serving));
}

static void streams_that_repeat_while_the_planned_ones_rest_are_planned(void **state)
{
    (void)state;
    const weir_stream other = new_stream(0);
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    assert_ok(weir_plan_learn(0));
    for (int i = 0; i < 4; i++) one_iteration(other, 0);
    assert_ok(weir_plan_learn(0));
    assert_next_round_is_served(other);
}

enum { REQUESTS = 8 };

static size_t in_round(int i)
{
    return (size_t)(1 + i) * MIB;
}

static void one_round(weir_stream stream)
{
    void *blocks[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) blocks[i] = alloc_on(in_round(i), stream);
    for (int i = 0; i < REQUESTS; i++) assert_ok(weir_free(blocks[i]));
}

static void a_plan_of_the_programs_own_is_kept_while_its_stream_keeps_to_it(void **state)
{
    (void)state;
    const weir_stream planned = new_stream(0), other = new_stream(0);
    weir_plan_entry entries[REQUESTS];
    weir_plan_arena arena = { .streams = 1, .entries = REQUESTS, .loop_entries = REQUESTS, .loop_times = 2 };
    for (int i = 0; i < REQUESTS; i++) {
        entries[i] = (weir_plan_entry){ arena.bytes, in_round(i), WEIR_PLAN_FOREVER, 0 };
        arena.bytes += in_round(i);
    }
    const weir_plan plan = { .arenas = &arena, .arena_count = 1, .entries = entries, .entry_count = REQUESTS };
    ask_for_other_things(other, 100); /* takes the memory that it will need */
    assert_ok(weir_plan_serve(0, &plan));
    for (int i = 0; i < 9; i++) {
        one_round(planned);
        ask_for_other_things(other, 100);
    }
    assert_int_equal(stats_of(0).plan_served, 9 * REQUESTS);
    assert_ok(weir_plan_learn(0));
    assert_int_equal(device_0()->cache.servings, 1);
    one_round(planned);
    assert_int_equal(stats_of(0).plan_served, 10 * REQUESTS);
}

static int open_learning(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB, .history = 8192, .plan = "auto" });
    return 0;
}

/* The plan may come in the middle of a round; a while later its memory is all that is held. */
static void a_thread_plans_repeated_requests(void **state)
{
    (void)state;
    const struct timespec moment = { 0, 2000000 };
    bool served = false;
    for (int i = 0; i < 5000 && !served; i++) {
        const uint64_t before = stats_of(0).plan_served;
        one_iteration(default_stream(0), 0);
        served = stats_of(0).plan_served - before == 4 * 20 && ratio_of_an_iteration(0) <= 1.01;
        nanosleep(&moment, NULL);
    }
    assert_true(served);
}

static int open_learning_of_little(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB, .history = 2048, .plan = "auto" });
    return 0;
}

/* The program repeats something else every few milliseconds. */
static void a_thread_whose_plans_do_not_fit_plans_less_and_less(void **state)
{
    (void)state;
    const struct timespec moment = { 0, 2000000 };
    const uint64_t end = wr_clock_ns(CLOCK_MONOTONIC) + UINT64_C(1200000000);
    for (size_t i = 0; wr_clock_ns(CLOCK_MONOTONIC) < end; i++) {
        one_iteration(default_stream(0), i / 6 % 50 * 512 * 1024);
        nanosleep(&moment, NULL);
    }
    assert_true(device_0()->cache.servings <= 5);
}

static void learning_by_itself_needs_a_history(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.plan = "auto";
    assert_status(weir_open(&settings), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "WEIR_HISTORY"));
}

static void learning_by_itself_needs_chunks(void **state)
{
    (void)state;
    const weir_settings wrong[] = {
        { .policy = "segments" }, { .policy = "torch" }, { .max_split_size = 32 * MIB }, { .gc_threshold = 0.5 }
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weir_settings settings = wrong[i];
        settings.size = sizeof settings;
        settings.backend = "host";
        settings.plan = "auto";
        settings.history = 4096;
        assert_status(weir_open(&settings), WEIR_ERR_OPTION);
        assert_non_null(strstr(weir_error_text(), "option plan: auto serves plans, which needs policy weir"));
    }
}

static int open_learning_of_segments(void **state)
{
    (void)state;
    open_host((weir_settings){
        .host_memory = 512 * MIB, .history = 4096, .plan = "auto", .debug = "poison,streams", .log = "warn" });
    return 0;
}

/* At the first look, 100 ms after the device was opened. */
static void a_thread_that_can_plan_nothing_says_why(void **state)
{
    (void)state;
    const struct timespec moment = { 0, 2000000 };
    const char *text = "";
    begin_log();
    (void)device_0();
    for (int i = 0; i < 5000 && !strstr(text, "\n"); i++) {
        nanosleep(&moment, NULL);
        text = log_so_far();
    }
    end_log();
    assert_non_null(strstr(text, "plan=auto: no plan was made: "));
    assert_non_null(strstr(text, "under policy weir"));
}

/* It would say the same at the next looks, 200 and 400 ms later. */
static void a_thread_that_can_plan_nothing_says_so_once(void **state)
{
    (void)state;
    const struct timespec moment = { 0, 2000000 }, while_longer = { 0, 500000000 };
    begin_log();
    (void)device_0();
    for (int i = 0; i < 5000 && !strstr(log_so_far(), "\n"); i++) nanosleep(&moment, NULL);
    nanosleep(&while_longer, NULL);
    const char *text = end_log(), *first = strstr(text, "plan=auto: no plan was made: ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "plan=auto: no plan was made: "));
}

static int open_learning_with_log(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB, .history = 8192, .plan = "auto", .log = "info" });
    return 0;
}

static const char *behind(const char *text, const char *words)
{
    const char *found = text ? strstr(text, words) : NULL;
    return found ? found + strlen(words) : NULL;
}

/* Of two looks the second begins when the first has said all. */
static void a_thread_that_plans_as_it_should_warns_of_nothing(void **state)
{
    (void)state;
    const struct timespec moment = { 0, 2000000 };
    const char *none = "nothing is recorded yet";
    begin_log();
    (void)device_0();
    for (int i = 0; i < 5000 && !behind(behind(log_so_far(), none), none); i++) nanosleep(&moment, NULL);
    for (int i = 0; i < 5000 && !strstr(log_so_far(), "serving a plan made of its history"); i++) {
        one_iteration(default_stream(0), 0);
        nanosleep(&moment, NULL);
    }
    assert_ok(weir_close()); /* the thread has ended */
    const char *text = end_log();
    assert_non_null(behind(behind(text, none), none));
    assert_non_null(strstr(text, "serving a plan made of its history"));
    assert_null(strstr(text, "no plan was made"));
}

static void a_thread_that_cannot_be_made_is_said_to_be_for_the_option(void **state)
{
    (void)state;
    void *block = NULL;
    pthread_attr_t usual, endless;
    assert_int_equal(pthread_getattr_default_np(&usual) | pthread_attr_init(&endless), 0);
    assert_int_equal(pthread_attr_setstacksize(&endless, (size_t)1 << 60), 0);
    assert_int_equal(pthread_setattr_default_np(&endless), 0);
    const weir_status status = weir_alloc(512, &block);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    pthread_attr_destroy(&endless);
    pthread_attr_destroy(&usual);
    assert_status(status, WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "option plan"));
    assert_non_null(strstr(weir_error_text(), "ulimit -u"));
    assert_ok(weir_alloc(512, &block)); /* the device opens at the next call */
    assert_ok(weir_free(block));
}

static void without_a_history_nothing_is_learned(void **state)
{
    (void)state;
    assert_status(weir_plan_learn(0), WEIR_ERR_NOT_SUPPORTED);
}

static int open_segments(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = 8192 * MIB, .history = 4096, .policy = "segments" });
    return 0;
}

static void where_no_plan_is_served_learning_leaves_the_cache_alone(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) one_iteration(default_stream(0), 0);
    const int64_t reserved = reserved_on(0);
    assert_status(weir_plan_learn(0), WEIR_ERR_NOT_SUPPORTED);
    assert_int_equal(reserved_on(0), reserved);
}

#define LEARN_TEST(test) cmocka_unit_test_setup_teardown(test, open_recording, close_host)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_of_one_time_lie_side_by_side),
        cmocka_unit_test(an_item_that_lives_over_the_border_meets_both_ends),
        cmocka_unit_test(random_items_lie_apart_and_near_the_bound),
        cmocka_unit_test(items_that_one_order_places_too_high_are_placed_low_by_another),
        cmocka_unit_test(many_items_of_one_time_lie_apart),
        cmocka_unit_test(many_items_that_follow_each_other_take_the_same_places),
        cmocka_unit_test(it_is_work_to_find_items_and_to_go_through_them),
        cmocka_unit_test(it_is_work_to_find_a_few_items),
        cmocka_unit_test(items_that_take_too_long_are_not_placed),
        cmocka_unit_test(placing_ends_when_it_is_stopped),
        cmocka_unit_test(two_equal_rounds_are_a_plan),
        cmocka_unit_test(streams_have_rounds_of_their_own),
        cmocka_unit_test(a_round_of_a_ring_of_buffers_is_one_turn),
        cmocka_unit_test(a_plan_much_larger_than_what_lives_at_once_is_not_made),
        cmocka_unit_test(when_many_blocks_outlive_an_iteration_a_round_is_two_iterations),
        cmocka_unit_test(without_repetition_no_plan_is_made),
        cmocka_unit_test(blocks_that_live_into_the_next_round_keep_their_places_there),
        cmocka_unit_test(what_repeats_in_less_than_a_quarter_is_not_planned),
        cmocka_unit_test(no_plan_is_made_once_it_is_stopped),
        cmocka_unit_test(of_a_plan_that_was_stopped_the_log_says_nothing),
        cmocka_unit_test(the_log_says_why_no_plan_is_made),
        cmocka_unit_test(of_streams_that_take_turns_those_that_hold_least_are_left_out),
        cmocka_unit_test(where_taking_turns_leaves_out_more_than_half_no_plan_is_made),
        cmocka_unit_test(streams_that_take_turns_are_planned_if_that_costs_a_sixteenth),
        cmocka_unit_test(streams_that_take_turns_beside_what_stays_are_not_planned),
        cmocka_unit_test(streams_that_take_turns_after_they_held_more_are_not_planned),
        cmocka_unit_test(streams_that_take_turns_beside_others_that_hold_much_are_not_planned),
        cmocka_unit_test(a_plan_is_for_the_device_of_its_events),
        cmocka_unit_test(too_many_events_are_refused_before_they_are_read),
        cmocka_unit_test(where_a_record_cannot_be_made_no_plan_is),
        cmocka_unit_test(private_pools_are_left_out),
        LEARN_TEST(from_the_third_round_on_little_more_is_held_than_lives),
        LEARN_TEST(rounds_after_the_first_planned_one_call_no_driver),
        LEARN_TEST(memory_that_is_not_taken_back_keeps_no_plan_from_being_served),
        LEARN_TEST(what_lay_beside_a_plan_goes_back_once_it_fits),
        LEARN_TEST(what_lies_beside_a_plan_stays_until_two_rounds_have_shown_that_it_fits),
        LEARN_TEST(what_comes_to_lie_beside_a_plan_that_fits_stays),
        LEARN_TEST(a_program_that_changes_is_planned_anew),
        LEARN_TEST(parked_blocks_do_not_hide_requests_from_a_plan),
        cmocka_unit_test_setup_teardown(a_thread_plans_repeated_requests, open_learning, close_host),
        LEARN_TEST(a_stream_that_is_not_planned_does_not_end_the_plan_of_another),
        LEARN_TEST(a_plan_of_streams_that_ask_for_nothing_is_given_up_in_the_end),
        LEARN_TEST(a_stream_that_is_not_planned_is_no_reason_to_plan_the_others_anew),
        LEARN_TEST(a_stream_that_begins_to_repeat_is_planned_too),
        LEARN_TEST(many_streams_that_take_turns_are_not_planned),
        LEARN_TEST(streams_that_repeat_while_the_planned_ones_rest_are_planned),
        LEARN_TEST(a_plan_of_the_programs_own_is_kept_while_its_stream_keeps_to_it),
        cmocka_unit_test_setup_teardown(a_thread_whose_plans_do_not_fit_plans_less_and_less, open_learning_of_little,
                                        close_host),
        cmocka_unit_test(learning_by_itself_needs_a_history),
        cmocka_unit_test(learning_by_itself_needs_chunks),
        cmocka_unit_test_setup_teardown(a_thread_that_can_plan_nothing_says_why, open_learning_of_segments, close_host),
        cmocka_unit_test_setup_teardown(a_thread_that_can_plan_nothing_says_so_once, open_learning_of_segments,
                                        close_host),
        cmocka_unit_test_setup(a_thread_that_plans_as_it_should_warns_of_nothing, open_learning_with_log),
        cmocka_unit_test_setup_teardown(a_thread_that_cannot_be_made_is_said_to_be_for_the_option, open_learning,
                                        close_host),
        cmocka_unit_test_setup_teardown(without_a_history_nothing_is_learned, open_medium_host, close_host),
        cmocka_unit_test_setup_teardown(where_no_plan_is_served_learning_leaves_the_cache_alone, open_segments,
                                        close_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
