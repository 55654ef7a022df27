#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "unit/plan_support.h"

#include "plan/make.h"

#include "script/script.h"

static const solve_options quick = { .seed = 1, .threads = 1, .seconds = 30, .work = 1 << 18 };

#define EVENTS 64
typedef struct recording {
    weir_event events[EVENTS];
    trace t;
} recording;

static void record(recording *r, weir_event_kind kind, uint64_t address, uint64_t size, uint64_t stream)
{
    assert_true(r->t.count < EVENTS);
    r->t.events = r->events;
    r->events[r->t.count] = (weir_event){
        .kind = (uint16_t)kind, .address = address, .size = size, .stream = stream, .time_ns = r->t.count
    };
    r->t.count++;
}

static void record_free(recording *r, uint64_t address, uint64_t size, uint64_t stream)
{
    record(r, WEIR_EVENT_FREE_REQUESTED, address, size, stream);
    record(r, WEIR_EVENT_FREE_COMPLETED, address, size, stream);
}

static void build(const recording *r, bool apart, problem *p)
{
    script s;
    char error[256];
    assert_true(script_build(&r->t, &s, error, sizeof error));
    assert_true(problem_build(&s, apart, p, error, sizeof error));
    script_release(&s);
}

static void sizes_are_rounded_and_lives_counted_in_steps(void **state)
{
    (void)state;
    recording r = { 0 };
    record(&r, WEIR_EVENT_ALLOC, 0x1000, 1, 0);
    record(&r, WEIR_EVENT_ALLOC, 0x2000, 512, 0);
    record_free(&r, 0x1000, 1, 0);
    record(&r, WEIR_EVENT_ALLOC, 0x1000, 513, 0);
    problem p;
    build(&r, false, &p);
    assert_int_equal(p.count, 1);
    const arena *a = &p.arenas[0];
    assert_int_equal(a->count, 3);
    assert_int_equal(a->steps, 4);
    static const arena_block expected[] = { { 512, 0, 2, 0 }, { 512, 1, 4, 0 }, { 1024, 3, 4, 0 } };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a->blocks[i].bytes, expected[i].bytes);
        assert_int_equal(a->blocks[i].start, expected[i].start);
        assert_int_equal(a->blocks[i].end, expected[i].end);
    }
    assert_int_equal(p.live[0], 512 + 513);
    problem_release(&p);
}

/* The operation for that counts others, more here than there are slots. */
static void memory_given_back_for_lack_of_it_is_no_block(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    recording r = { 0 };
    record(&r, WEIR_EVENT_SEGMENT_ALLOC, 0, 10 * MIB, 0);
    record(&r, WEIR_EVENT_ALLOC, 0, MIB, 0);
    record(&r, WEIR_EVENT_ALLOC, MIB, MIB, 0);
    record(&r, WEIR_EVENT_FREE_REQUESTED, 0, MIB, 0);
    record(&r, WEIR_EVENT_FREE_REQUESTED, MIB, MIB, 0);
    record(&r, WEIR_EVENT_FREE_COMPLETED, MIB, MIB, 0);
    record(&r, WEIR_EVENT_FREE_COMPLETED, 0, MIB, 0);
    record(&r, WEIR_EVENT_SEGMENT_FREE, 0, 10 * MIB, 0);
    record(&r, WEIR_EVENT_SEGMENT_ALLOC, 0, 12 * MIB, 0);
    record(&r, WEIR_EVENT_ALLOC, 0, 12 * MIB, 0);
    problem p;
    build(&r, false, &p);
    assert_int_equal(p.arenas[0].count, 3);
    assert_int_equal(p.live[0], 12 * MIB);
    problem_release(&p);
}

static void blocks_from_before_the_trace_are_there_from_the_beginning(void **state)
{
    (void)state;
    recording r = { 0 };
    record(&r, WEIR_EVENT_ALLOC, 0x1000, 512, 0);
    record_free(&r, 0x9000, 2048, 0);
    problem p;
    build(&r, false, &p);
    assert_int_equal(p.arenas[0].blocks[0].bytes, 2048);
    assert_int_equal(p.arenas[0].blocks[0].start, 0);
    assert_int_equal(p.arenas[0].blocks[0].end, 2);
    assert_int_equal(p.arenas[0].residents, 1);
    made_plan m;
    make_plan(&p, &quick, false, &m);
    assert_int_equal(m.arenas[0].residents, 1);
    made_plan_release(&m);
    problem_release(&p);
}

static void a_block_that_another_stream_uses_lives_until_that_is_over(void **state)
{
    (void)state;
    recording r = { 0 };
    record(&r, WEIR_EVENT_ALLOC, 0x1000, 512, 0);
    record(&r, WEIR_EVENT_FREE_REQUESTED, 0x1000, 512, 0);
    record(&r, WEIR_EVENT_ALLOC, 0x2000, 512, 0);
    record(&r, WEIR_EVENT_FREE_COMPLETED, 0x1000, 512, 0);
    problem p;
    build(&r, false, &p);
    assert_int_equal(p.arenas[0].blocks[0].end, 2);
    assert_int_equal(p.live[0], 1024);
    problem_release(&p);
}

static void streams_share_an_arena_unless_they_are_kept_apart(void **state)
{
    (void)state;
    recording r = { 0 };
    record(&r, WEIR_EVENT_ALLOC, 0x1000, 512, 7);
    record_free(&r, 0x1000, 512, 7);
    record(&r, WEIR_EVENT_ALLOC, 0x2000, 512, 9);
    problem p;
    build(&r, false, &p);
    assert_int_equal(p.count, 1);
    assert_int_equal(p.arenas[0].stream_count, 2);
    assert_int_equal(p.arenas[0].blocks[1].stream, 1);
    made_plan m;
    make_plan(&p, &quick, false, &m);
    assert_int_equal(m.arenas[0].bytes, 512);
    assert_int_equal(m.arenas[0].waits, 1);
    made_plan_release(&m);
    problem_release(&p);

    build(&r, true, &p);
    assert_int_equal(p.count, 2);
    make_plan(&p, &quick, true, &m);
    assert_int_equal(m.arenas[0].waits + m.arenas[1].waits, 0);
    assert_int_equal(m.arenas[1].flags, WEIR_PLAN_ONE_STREAM);
    made_plan_release(&m);
    problem_release(&p);
}

static void the_hash_is_of_what_is_allocated_not_of_where(void **state)
{
    (void)state;
    uint64_t hashes[3];
    for (int i = 0; i < 3; i++) {
        recording r = { 0 };
        uint64_t base = i == 1 ? 0x700000000000 : 0x1000;
        record(&r, WEIR_EVENT_ALLOC, base, 512, 0);
        record(&r, WEIR_EVENT_ALLOC, base + 0x1000, i == 2 ? 1024 : 512, 0);
        record_free(&r, base, 512, 0);
        problem p;
        build(&r, false, &p);
        hashes[i] = p.hash;
        problem_release(&p);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(hashes[0] != hashes[2]);
}

static void sizes_that_no_device_has_are_refused(void **state)
{
    (void)state;
    recording r = { 0 };
    record(&r, WEIR_EVENT_ALLOC, 0x1000, UINT64_C(1) << 61, 0);
    record(&r, WEIR_EVENT_ALLOC, 0x2000, UINT64_C(1) << 61, 0);
    script s;
    problem p;
    char error[256] = "";
    assert_true(script_build(&r.t, &s, error, sizeof error));
    assert_false(problem_build(&s, false, &p, error, sizeof error));
    assert_non_null(strstr(error, "no device has"));
    script_release(&s);
}

/* An arena that repeats: its problem and its plan. */
static void repeating(problem *p, made_plan *m)
{
    uint64_t random = 3;
    *p = (problem){ .count = 1, .devices = 1, .hash = 99 };
    p->arenas = calloc(1, sizeof *p->arenas);
    p->live = calloc(1, sizeof *p->live);
    assert_non_null(p->arenas);
    arena *a = p->arenas;
    arena_alloc(a, 20, 0);
    uint32_t held = arena_alloc(a, 3, 0);
    for (int i = 0; i < 12; i++) {
        uint32_t one = arena_alloc(a, 5, 0), two = arena_alloc(a, 4, 0);
        arena_free(a, held);
        arena_free(a, one);
        held = arena_alloc(a, 3, 0);
        arena_free(a, two);
    }
    uint32_t last = arena_alloc(a, 1 + random_below(&random, 9), 0);
    arena_free(a, held);
    arena_free(a, last);
    arena_close(a);
    make_plan(p, &quick, false, m);
    assert_true(m->arenas[0].loop_times > 1);
}

static void a_plan_serves_its_trace_and_is_valid(void **state)
{
    (void)state;
    problem p;
    made_plan m;
    char error[240];
    repeating(&p, &m);
    if (!plan_serves(&m.plan, &p, error, sizeof error)) fail_msg("%s", error);
    if (!plan_holds(&m.plan, error, sizeof error)) fail_msg("%s", error);
    made_plan_release(&m);
    problem_release(&p);
}

static void a_repeated_entry_is_not_a_resident(void **state)
{
    (void)state;
    problem p;
    made_plan m;
    char error[240];
    repeating(&p, &m);
    made_plan_release(&m);
    p.arenas[0].residents = p.arenas[0].count;
    make_plan(&p, &quick, false, &m);
    assert_int_equal(m.arenas[0].residents, m.arenas[0].loop_first);
    assert_true(plan_serves(&m.plan, &p, error, sizeof error));
    m.arenas[0].residents--;
    assert_false(plan_serves(&m.plan, &p, error, sizeof error));
    made_plan_release(&m);
    problem_release(&p);
}

static void random_plans_serve_and_are_valid(void **state)
{
    (void)state;
    uint64_t random = 55;
    for (int round = 0; round < 60; round++) {
        problem p = { .count = 1, .devices = 1 };
        p.arenas = calloc(1, sizeof *p.arenas);
        p.live = calloc(1, sizeof *p.live);
        assert_non_null(p.arenas);
        arena_random(p.arenas, &random, 1 + random_below(&random, 80), 20, 9, 3);
        made_plan m;
        char error[240];
        make_plan(&p, &quick, false, &m);
        if (!plan_serves(&m.plan, &p, error, sizeof error)) fail_msg("%s", error);
        if (!plan_holds(&m.plan, error, sizeof error)) fail_msg("%s", error);
        made_plan_release(&m);
        problem_release(&p);
    }
}

static void a_plan_of_something_else_does_not_serve(void **state)
{
    (void)state;
    problem p;
    made_plan m;
    char error[240];
    repeating(&p, &m);
    p.hash++;
    assert_false(plan_serves(&m.plan, &p, error, sizeof error));
    assert_non_null(strstr(error, "another trace"));
    p.hash--;
    p.arenas[0].blocks[4].bytes += 512;
    assert_false(plan_serves(&m.plan, &p, error, sizeof error));
    assert_non_null(strstr(error, "differs from that of the trace"));
    p.arenas[0].blocks[4].bytes -= 512;
    m.arenas[0].loop_times++;
    assert_false(plan_serves(&m.plan, &p, error, sizeof error));
    m.arenas[0].loop_times = UINT64_MAX;
    assert_false(plan_serves(&m.plan, &p, error, sizeof error));
    made_plan_release(&m);
    problem_release(&p);
}

static void plans_with_overlaps_serve_no_trace_and_are_invalid(void **state)
{
    (void)state;
    problem p;
    made_plan m;
    char error[240];
    repeating(&p, &m);
    for (uint64_t i = 0; i < m.plan.entry_count; i++) {
        uint64_t offset = m.entries[i].offset;
        m.entries[i].offset = i == 0 ? m.entries[2].offset : m.entries[0].offset; /* the first lives all the time */
        assert_false(plan_serves(&m.plan, &p, error, sizeof error));
        assert_false(plan_holds(&m.plan, error, sizeof error));
        assert_non_null(strstr(error, "overlaps"));
        m.entries[i].offset = offset;
    }
    made_plan_release(&m);
    problem_release(&p);
}

enum { PART = 4 };

/* Random entries before, in and behind a loop, a few units wide. */
static void random_entries(weir_plan_entry *e, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        e[i] = (weir_plan_entry){ .offset = random_below(random, 16) * 512,
                                  .bytes = 512 * (1 + random_below(random, 2)),
                                  .lives = (uint32_t)random_below(random, 1 + random_below(random, 24)) };
        if (random_below(random, 24) == 0) e[i].lives = WEIR_PLAN_FOREVER;
    }
}

static bool arena_holds_by_itself(weir_plan_entry *entries, weir_plan_arena a)
{
    char error[240];
    for (size_t i = 0; i < a.entries; i++)
        if (entries[i].offset + entries[i].bytes > a.bytes) a.bytes = entries[i].offset + entries[i].bytes;
    const weir_plan plan = { .arena_count = 1, .entry_count = a.entries, .arenas = &a, .entries = entries };
    return plan_holds(&plan, error, sizeof error);
}

static void a_loop_is_valid_when_all_its_iterations_are(void **state)
{
    (void)state;
    uint64_t random = 9;
    unsigned good = 0;
    for (int round = 0; round < 20000; round++) {
        weir_plan_entry short_form[3 * PART], long_form[8 * PART];
        const size_t first = random_below(&random, PART), count = 1 + random_below(&random, PART - 1);
        const size_t last = random_below(&random, PART), times = 2 + random_below(&random, 5);
        random_entries(short_form, first + count + last, &random);
        size_t n = 0;
        for (size_t i = 0; i < first; i++) long_form[n++] = short_form[i];
        for (size_t i = 0; i < count * times; i++) long_form[n++] = short_form[first + i % count];
        for (size_t i = 0; i < last; i++) long_form[n++] = short_form[first + count + i];
        const bool holds = arena_holds_by_itself(long_form, (weir_plan_arena){ .entries = n });
        const weir_plan_arena looped = {
            .entries = first + count + last, .loop_first = first, .loop_entries = count, .loop_times = times
        };
        assert_int_equal(arena_holds_by_itself(short_form, looped), holds);
        good += holds;
    }
    assert_in_range(good, 500, 19500);
}

static void the_cost_of_a_loop_does_not_grow_with_its_iterations(void **state)
{
    (void)state;
    weir_plan_entry entries[] = { { .bytes = 512, .lives = UINT32_MAX - 1 }, { .offset = 512, .bytes = 512 } };
    const weir_plan_arena a = { .entries = 2, .loop_first = 1, .loop_entries = 1, .loop_times = UINT64_MAX };
    assert_true(arena_holds_by_itself(entries, a));
    entries[1].offset = 0;
    assert_false(arena_holds_by_itself(entries, a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded_and_lives_counted_in_steps),
        cmocka_unit_test(memory_given_back_for_lack_of_it_is_no_block),
        cmocka_unit_test(blocks_from_before_the_trace_are_there_from_the_beginning),
        cmocka_unit_test(a_block_that_another_stream_uses_lives_until_that_is_over),
        cmocka_unit_test(streams_share_an_arena_unless_they_are_kept_apart),
        cmocka_unit_test(the_hash_is_of_what_is_allocated_not_of_where),
        cmocka_unit_test(sizes_that_no_device_has_are_refused),
        cmocka_unit_test(a_plan_serves_its_trace_and_is_valid),
        cmocka_unit_test(a_repeated_entry_is_not_a_resident),
        cmocka_unit_test(random_plans_serve_and_are_valid),
        cmocka_unit_test(a_loop_is_valid_when_all_its_iterations_are),
        cmocka_unit_test(the_cost_of_a_loop_does_not_grow_with_its_iterations),
        cmocka_unit_test(a_plan_of_something_else_does_not_serve),
        cmocka_unit_test(plans_with_overlaps_serve_no_trace_and_are_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
