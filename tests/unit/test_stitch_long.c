/*
 * Chunks of programs that run for long: what stays mapped, and how much mapping is worth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph_support.h"
#include "random_support.h"
#include "stitch_support.h"

/* Maps the memory of some blocks of one size together, for a moment. */
static void map_together(char **blocks, size_t bytes, const unsigned *which, unsigned count)
{
    for (unsigned i = 0; i < count; i++) assert_ok(weir_free(blocks[which[i]]));
    assert_ok(weir_free(alloc(count * bytes)));
    for (unsigned i = 0; i < count; i++) blocks[which[i]] = alloc(bytes);
}

/* DEAR_ROUNDS rounds of mapping exceed the patience for mapping if the program spends nearly no other time. */
enum { LONG_BLOCKS = 24, LONG_ROUNDS = 768, DEAR_ROUNDS = 360, DEAR_TURN_MS = 36 };

#define LONG_BLOCK (2 * CHUNK)
#define LONG_BYTES (LONG_BLOCKS * LONG_BLOCK)
#define LONG_BYTES_MOST (LONG_BYTES + LONG_BYTES / 4 + LONG_BYTES / 100)

static void take_long(char *blocks[LONG_BLOCKS])
{
    for (int i = 0; i < LONG_BLOCKS; i++) blocks[i] = alloc(LONG_BLOCK);
}

/* The same with a clock that moves by hand. */
static void take_long_by_hand(char *blocks[LONG_BLOCKS])
{
    assert_ok(weir_host_clock_hold(true));
    take_long(blocks);
}

/* Maps the memory of three blocks together that are not neighbours, others each time. Returns the number of map
 * calls. */
static uint64_t run_rounds(char *blocks[LONG_BLOCKS], int rounds, uint32_t *random)
{
    const uint64_t mapped = calls_of(WEIR_BACKEND_vm_map);
    for (int i = 0; i < rounds; i++) {
        unsigned three[3];
        const uint32_t r = next_random(random);
        three[0] = r % LONG_BLOCKS;
        three[1] = (three[0] + 2 + (r >> 12) % 5) % LONG_BLOCKS;
        three[2] = (three[1] + 2 + (r >> 18) % 5) % LONG_BLOCKS;
        map_together(blocks, LONG_BLOCK, three, 3);
    }
    return calls_of(WEIR_BACKEND_vm_map) - mapped;
}

/* A chunk is a block here: the number of map calls that mapped a chunk and were not undone. */
static uint64_t places(void)
{
    return calls_of(WEIR_BACKEND_vm_map) - calls_of(WEIR_BACKEND_vm_unmap);
}

/* Places may cover so many times the held bytes. */
enum { MAPPED_TIMES = 16 };

/* Runs until places cover more than so many times the held bytes. Without a limit more memory is held, from 32 times
 * on. */
static void map_times(char *blocks[LONG_BLOCKS], uint64_t times, uint32_t *random)
{
    for (int i = 0; places() <= times * LONG_BLOCKS; i++) {
        if (i == 4 * LONG_ROUNDS) fail_msg("never more than %llu times mapped", (unsigned long long)times);
        (void)run_rounds(blocks, 1, random);
    }
}

static uint64_t run_for_long(char *blocks[LONG_BLOCKS], uint32_t *random)
{
    return run_rounds(blocks, DEAR_ROUNDS + LONG_ROUNDS, random);
}

/* The same, with so much of the program's time passing in each round. */
static uint64_t run_for_long_with(unsigned milliseconds, char *blocks[LONG_BLOCKS], uint32_t *random)
{
    uint64_t mapped = 0;
    for (int i = 0; i < DEAR_ROUNDS + LONG_ROUNDS; i++) {
        assert_ok(weir_host_clock_advance((uint64_t)milliseconds * 1000000));
        mapped += run_rounds(blocks, 1, random);
    }
    return mapped;
}

static void places_that_nobody_uses_are_unmapped_when_too_much_is_mapped(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    assert_int_equal(places(), LONG_BLOCKS);
    map_times(blocks, MAPPED_TIMES - 1, &random);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    (void)run_rounds(blocks, LONG_ROUNDS / 8, &random);
    assert_true(calls_of(WEIR_BACKEND_vm_unmap) > 0);
    assert_in_range(places(), MAPPED_TIMES * LONG_BLOCKS - 3, MAPPED_TIMES * LONG_BLOCKS);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void places_that_queued_work_may_use_stay_mapped(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    make_busy(default_stream(0));
    map_times(blocks, MAPPED_TIMES + 4, &random);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), 0);
    let_run(default_stream(0));
}

/* The first event that can tell follows the first work only. */
static void places_that_later_work_may_use_stay_mapped_when_earlier_work_is_over(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    uint64_t ran = 0;
    weir_stream stream = default_stream(0);
    take_long(blocks);
    assert_ok(weir_memory_limit_set(0, LONG_BYTES)); /* no more is ever held */
    make_busy(stream);
    map_times(blocks, MAPPED_TIMES, &random);
    const uint64_t before = places(), queued = queued_on(stream);
    assert_ok(weir_stream_callback(stream, do_nothing, NULL));
    map_times(blocks, 2 * MAPPED_TIMES + 2, &random);
    assert_ok(weir_host_stream_step(0, native_of(stream), queued, &ran));
    assert_int_equal(ran, queued);
    (void)run_rounds(blocks, 8, &random);
    assert_in_range(calls_of(WEIR_BACKEND_vm_unmap), 1, before - LONG_BLOCKS);
    assert_true(places() > MAPPED_TIMES * LONG_BLOCKS);
    let_run(stream);
    (void)run_rounds(blocks, LONG_ROUNDS / 8, &random);
    assert_in_range(places(), MAPPED_TIMES * LONG_BLOCKS - 3, MAPPED_TIMES * LONG_BLOCKS);
}

/* A stream that repeats its rounds has its places again, unless they make room for those that an idle one has left. */
static void places_of_an_idle_stream_go_before_those_of_one_at_work(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    uint64_t mapped = 0;
    take_long(blocks);
    assert_ok(weir_memory_limit_set(0, LONG_BYTES)); /* no more is ever held */
    map_times(blocks, MAPPED_TIMES - 1, &random);
    for (int i = 0; i < LONG_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_stream_set_current(new_stream(0)));
    take_long(blocks);
    for (int i = 0; i < 64; i++) {
        mapped = calls_of(WEIR_BACKEND_vm_map);
        for (unsigned k = 0; k < 24; k++)
            map_together(blocks, LONG_BLOCK, (unsigned[]){ k % 6, k % 6 + 5 + k / 6, k % 6 + 10 + k / 3 }, 3);
    }
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), mapped);
}

static void a_place_that_the_driver_does_not_take_back_stays(void **state)
{
    (void)state;
    enum { REFUSED = 8 };
    char *blocks[LONG_BLOCKS];
    const uint64_t left = free_memory(0);
    uint32_t random = 1;
    take_long(blocks);
    map_times(blocks, MAPPED_TIMES - 1, &random);
    for (uint64_t nth = 1; nth <= REFUSED; nth++)
        assert_ok(weir_host_fail(WEIR_BACKEND_vm_unmap, nth, WEIR_ERR_DRIVER));
    (void)run_rounds(blocks, LONG_ROUNDS / 8, &random);
    assert_ok(weir_validate(0));
    assert_int_equal(reserved_on(0), LONG_BYTES);
    for (int i = 0; i < LONG_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_unmap), calls_of(WEIR_BACKEND_vm_map) + REFUSED);
    assert_int_equal(free_memory(0), left);
}

static void a_long_running_program_stops_mapping(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    assert_int_equal(reserved_on(0), LONG_BYTES);
    assert_true(run_for_long(blocks, &random) > LONG_ROUNDS);
    assert_int_equal(run_for_long(blocks, &random), 0);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
}

static void a_program_that_spends_little_time_on_mapping_holds_no_more(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long_by_hand(blocks);
    for (int i = 0; i < 4; i++) assert_true(run_for_long_with(DEAR_TURN_MS, blocks, &random) > LONG_ROUNDS);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void a_program_that_spends_its_time_on_mapping_stops_however_long_it_was_idle(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long_by_hand(blocks);
    assert_ok(weir_host_clock_advance(UINT64_C(3600) * 1000000000));
    (void)run_for_long_with(DEAR_TURN_MS / 4, blocks, &random);
    (void)run_for_long_with(DEAR_TURN_MS / 4, blocks, &random);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
}

static void mapping_that_is_cheap_again_makes_no_program_hold_more(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long_by_hand(blocks);
    (void)run_rounds(blocks, DEAR_ROUNDS + LONG_ROUNDS / 4, &random);
    assert_int_equal(reserved_on(0), LONG_BYTES);
    for (int i = 0; i < 4; i++) (void)run_for_long_with(DEAR_TURN_MS + 1, blocks, &random);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

enum { TURN_STREAMS = 24, TURN_BLOCKS = 40, TURNS = 1000 };

static size_t up_to(uint32_t *random, size_t most)
{
    return 1 + next_random(random) % most;
}

/* Streams allocate blocks by turns, with no time in between: of so many MiB. With `keeps` the first of a turn stays to
 * the stream's next one. Returns the map calls in the last tenth. */
static uint64_t take_turns(size_t least, size_t most, bool keeps)
{
    weir_stream streams[TURN_STREAMS];
    void *blocks[TURN_BLOCKS], *kept[TURN_STREAMS] = { NULL };
    uint32_t random = 1;
    uint64_t mapped = 0;
    assert_ok(weir_host_clock_hold(true));
    for (int i = 0; i < TURN_STREAMS; i++) streams[i] = new_stream(0);
    for (int turn = 0; turn < TURNS; turn++) {
        const int which = turn % TURN_STREAMS;
        if (turn == TURNS - TURNS / 10) mapped = calls_of(WEIR_BACKEND_vm_map);
        for (int i = 0; i < TURN_BLOCKS; i++)
            blocks[i] = alloc_on((least - 1 + up_to(&random, most - least + 1)) * MIB, streams[which]);
        if (keeps && kept[which]) assert_ok(weir_free(kept[which]));
        if (keeps) kept[which] = blocks[0];
        for (int i = keeps; i < TURN_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    }
    return calls_of(WEIR_BACKEND_vm_map) - mapped;
}

static double held_of_live(void)
{
    const weir_memory_stats s = stats_of(0);
    return (double)s.reserved_bytes[WEIR_STAT_ALL].peak / (double)s.allocated_bytes[WEIR_STAT_ALL].peak;
}

static void streams_that_take_turns_have_the_same_memory_without_mapping(void **state)
{
    (void)state;
    assert_int_equal(take_turns(2, 2, false), 0);
    assert_true(held_of_live() < 1.25);
}

static void streams_that_take_turns_with_other_sizes_do_so_too(void **state)
{
    (void)state;
    assert_int_equal(take_turns(1, 13, false), 0);
    assert_true(held_of_live() < 1.25);
}

/* At first that takes much mapping, and then hardly any. */
static void streams_that_take_turns_and_keep_a_block_do_so_too(void **state)
{
    (void)state;
    assert_true(take_turns(1, 4, true) < TURNS / 10);
    assert_true(held_of_live() < 2);
}

/* As above, but each stream also keeps some blocks, and the sizes are others each time: what is free lies in pieces
 * that have to be mapped. Returns the map calls in the second half. */
static uint64_t take_turns_in_pieces(unsigned milliseconds)
{
    enum { STREAMS = 4, KEPT = 100, LAYERS = 14, LAYER = 800000, TURNS_IN_PIECES = 1600 };
    weir_stream streams[STREAMS];
    uint32_t random = 1;
    uint64_t mapped = 0;
    assert_ok(weir_host_clock_hold(true));
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0);
        for (int k = 0; k < KEPT; k++) (void)alloc_on(up_to(&random, 8) * MIB / 4, streams[i]);
    }
    for (int turn = 0; turn < TURNS_IN_PIECES; turn++) {
        if (turn == TURNS_IN_PIECES / 2) mapped = calls_of(WEIR_BACKEND_vm_map);
        const size_t which = up_to(&random, STREAMS), batch = up_to(&random, 64);
        void *previous = NULL;
        for (size_t l = 0; l < LAYERS; l++) {
            void *block = alloc_on(batch * which * (1 + l % 2) * LAYER / (1 + l % 3), streams[which - 1]);
            if (previous) assert_ok(weir_free(previous));
            previous = block;
        }
        assert_ok(weir_free(previous));
        assert_ok(weir_host_clock_advance((uint64_t)milliseconds * 1000000));
    }
    return calls_of(WEIR_BACKEND_vm_map) - mapped;
}

static void streams_share_what_lies_in_pieces_while_mapping_takes_little_time(void **state)
{
    (void)state;
    assert_true(take_turns_in_pieces(1000) > 4000);
    assert_true(held_of_live() < 1.125);
}

static void streams_hold_more_of_their_own_when_mapping_takes_much_time(void **state)
{
    (void)state;
    assert_true(take_turns_in_pieces(0) < 4000);
    assert_true(held_of_live() > 1.25);
}

/* What others have parked is had, dear or not, before more than half is held beside what was ever live. */
static void streams_that_take_turns_hold_no_more_than_half_for_the_sake_of_time(void **state)
{
    (void)state;
    enum { STREAMS = 8, BLOCKS = 20, STEPS = 80, PASSES = 200 };
    weir_stream streams[STREAMS];
    assert_ok(weir_host_clock_hold(true));
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(0);
    for (int pass = 0; pass < PASSES; pass++) {
        void *blocks[BLOCKS] = { NULL };
        uint32_t random = 7;
        for (int step = 0; step < STEPS; step++) {
            void **block = &blocks[next_random(&random) % BLOCKS];
            if (*block) assert_ok(weir_free(*block));
            *block = *block ? NULL : alloc_on(up_to(&random, 100) * MIB, streams[pass % STREAMS]);
        }
        for (int i = 0; i < BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    }
    assert_true(held_of_live() < 1.6);
}

/* Mapping would stop with a third more memory. In this sequence no block comes to lie across two chunks, which takes
 * more. */
static void no_more_than_a_quarter_is_held_to_stop_mapping(void **state)
{
    enum { TOGETHER = LONG_BLOCKS / 3 };
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 4;
    uint64_t mapped = 0;
    take_long_by_hand(blocks);
    for (int i = 0; i < 2 * LONG_ROUNDS; i++) {
        if (i == LONG_ROUNDS) mapped = calls_of(WEIR_BACKEND_vm_map);
        const uint32_t r = next_random(&random);
        unsigned some[TOGETHER] = { r % LONG_BLOCKS };
        for (int j = 1; j < TOGETHER; j++) some[j] = (some[j - 1] + 2 + (r >> (4 + j) & 1)) % LONG_BLOCKS;
        map_together(blocks, LONG_BLOCK, some, TOGETHER);
    }
    assert_true(calls_of(WEIR_BACKEND_vm_map) > mapped);
    assert_in_range(reserved_on(0), LONG_BYTES_MOST - LONG_BYTES / 8, LONG_BYTES_MOST);
}

static void under_a_limit_chunks_are_mapped_again_for_ever(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    assert_ok(weir_memory_limit_set(0, LONG_BYTES));
    take_long(blocks);
    (void)run_for_long(blocks, &random);
    assert_true(run_for_long(blocks, &random) > 0);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void memory_that_was_given_back_is_not_held_again_at_once(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    (void)run_for_long(blocks, &random);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), LONG_BYTES);
    assert_true(run_for_long(blocks, &random) > LONG_ROUNDS / 2);
}

static void a_program_refused_memory_to_stop_mapping_asks_again_much_later(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    const uint64_t asked = calls_of(WEIR_BACKEND_vm_create);
    assert_ok(weir_host_fail(WEIR_BACKEND_vm_create, 1, WEIR_ERR_OUT_OF_MEMORY));
    (void)run_rounds(blocks, DEAR_ROUNDS + LONG_ROUNDS / 2, &random);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), asked + 1);
    assert_int_equal(reserved_on(0), LONG_BYTES);
    (void)run_for_long(blocks, &random);
    assert_in_range(reserved_on(0), LONG_BYTES + 1, LONG_BYTES_MOST);
}

static int open_nearly_full(void **state)
{
    (void)state;
    open_host((weir_settings){ .host_memory = LONG_BYTES + LONG_BYTES / 7 });
    return 0;
}

static void the_last_eighth_of_a_device_is_left_to_others(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    uint32_t random = 1;
    take_long(blocks);
    for (int i = 0; i < 2; i++) (void)run_for_long(blocks, &random);
    assert_int_equal(reserved_on(0), LONG_BYTES);
}

static void emptying_the_cache_gives_back_everything(void **state)
{
    (void)state;
    char *blocks[LONG_BLOCKS];
    const uint64_t left = free_memory(0);
    uint32_t random = 1;
    take_long(blocks);
    (void)run_rounds(blocks, LONG_ROUNDS / 4, &random);
    for (int i = 0; i < LONG_BLOCKS; i++) assert_ok(weir_free(blocks[i]));
    assert_ok(weir_empty_cache(0));
    assert_int_equal(reserved_on(0), 0);
    assert_int_equal(free_memory(0), left);
    assert_int_equal(calls_of(WEIR_BACKEND_vm_create), calls_of(WEIR_BACKEND_vm_destroy));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_map), calls_of(WEIR_BACKEND_vm_unmap));
    assert_int_equal(calls_of(WEIR_BACKEND_vm_reserve), calls_of(WEIR_BACKEND_vm_release));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        STITCH_TEST(places_that_nobody_uses_are_unmapped_when_too_much_is_mapped),
        STITCH_TEST(places_that_queued_work_may_use_stay_mapped),
        STITCH_TEST(places_that_later_work_may_use_stay_mapped_when_earlier_work_is_over),
        STITCH_TEST(places_of_an_idle_stream_go_before_those_of_one_at_work),
        STITCH_TEST(a_place_that_the_driver_does_not_take_back_stays),
        STITCH_TEST(a_long_running_program_stops_mapping),
        STITCH_TEST(a_program_that_spends_little_time_on_mapping_holds_no_more),
        STITCH_TEST(a_program_that_spends_its_time_on_mapping_stops_however_long_it_was_idle),
        STITCH_TEST(mapping_that_is_cheap_again_makes_no_program_hold_more),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_have_the_same_memory_without_mapping, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_with_other_sizes_do_so_too, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_and_keep_a_block_do_so_too, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_share_what_lies_in_pieces_while_mapping_takes_little_time,
                                        open_large_host, close_host),
        cmocka_unit_test_setup_teardown(streams_hold_more_of_their_own_when_mapping_takes_much_time, open_large_host,
                                        close_host),
        cmocka_unit_test_setup_teardown(streams_that_take_turns_hold_no_more_than_half_for_the_sake_of_time, open_large,
                                        close_host),
        cmocka_unit_test_setup_teardown(no_more_than_a_quarter_is_held_to_stop_mapping, open_large_host, close_host),
        STITCH_TEST(under_a_limit_chunks_are_mapped_again_for_ever),
        STITCH_TEST(memory_that_was_given_back_is_not_held_again_at_once),
        STITCH_TEST(a_program_refused_memory_to_stop_mapping_asks_again_much_later),
        cmocka_unit_test_setup_teardown(the_last_eighth_of_a_device_is_left_to_others, open_nearly_full, close_host),
        STITCH_TEST(emptying_the_cache_gives_back_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
