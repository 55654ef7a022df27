/*
 * Numbered call stacks: each distinct one is kept once, in a table that never grows.
 */
#include "observe/stacks.h"

#include "base/meta.h"
#include "observe/stack_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <gnu/libc-version.h>
#include <pthread.h>
#include <string.h>

static int open_four(void **state)
{
    (void)state;
    return wr_stacks_open(8, 4) == WEIR_OK ? 0 : -1;
}

static int open_many(void **state)
{
    (void)state;
    return wr_stacks_open(16, 10000) == WEIR_OK ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    wr_stacks_close();
    assert_int_equal(wr_meta_live(), 0);
    return 0;
}

/* The stack of one made-up frame, or of two. */
static uint32_t number(uintptr_t inner, uintptr_t outer)
{
    void *frames[] = { (void *)inner, (void *)outer };
    return wr_stacks_number(frames, outer ? 2 : 1);
}

static void equal_stacks_have_one_number(void **state)
{
    (void)state;
    const uint32_t first = number(0x1000, 0x2000);
    assert_int_not_equal(first, 0);
    assert_int_equal(number(0x1000, 0x2000), first);
    assert_int_not_equal(number(0x2000, 0x1000), first);
    assert_int_not_equal(number(0x1000, 0), first);
    const wr_stack *s = wr_stacks_find(first);
    assert_int_equal(s->count, 2);
    assert_ptr_equal(s->frames[0], (void *)(uintptr_t)0x1000);
    assert_int_equal(wr_stacks_lost(), 0);
}

/* As a history does that is started again, even with other numbers of frames and stacks. */
static void opening_again_keeps_the_stacks(void **state)
{
    (void)state;
    const uint32_t first = number(0x1000, 0x2000);
    assert_int_equal(wr_stacks_open(8, 1000), WEIR_OK);
    assert_int_equal(number(0x1000, 0x2000), first);
    assert_non_null(wr_stacks_find(first));
}

static void stacks_without_room_are_counted(void **state)
{
    (void)state;
    uint32_t kept[4];
    for (uintptr_t i = 0; i < 4; i++) assert_int_not_equal(kept[i] = number(0x1000 + i, 0), 0);
    assert_int_equal(number(0x2000, 0), 0);
    assert_int_equal(number(0x2000, 0), 0);
    assert_int_equal(wr_stacks_lost(), 2);
    for (uintptr_t i = 0; i < 4; i++) assert_int_equal(number(0x1000 + i, 0), kept[i]); /* stacks that are there stay */
    assert_null(wr_stacks_find(0));
    assert_null(wr_stacks_find(wr_stacks_end()));
}

static void lack_of_memory_counts_as_lack_of_room(void **state)
{
    (void)state;
    wr_meta_fail_nth(1);
    assert_int_equal(number(0x1000, 0), 0);
    wr_meta_fail_nth(0);
    assert_int_equal(wr_stacks_lost(), 1);
    assert_int_not_equal(number(0x1000, 0), 0);
}

static void without_a_table_there_are_no_stacks(void **state)
{
    (void)state;
    assert_int_equal(wr_stacks_open(0, 100), WEIR_OK);
    assert_int_equal(number(0x1000, 0), 0);
    assert_int_equal(wr_stacks_take(NULL), 0);
    assert_int_equal(wr_stacks_lost(), 0);
    assert_null(wr_stacks_find(1));
    wr_meta_fail_nth(1);
    assert_int_equal(wr_stacks_open(8, 10), WEIR_ERR_OUT_OF_HOST_MEMORY);
    wr_meta_fail_nth(0);
}

/* ---- the thread's own -------------------------------------------------------------------------------------------- */

static const void *called_from;

static WR_NOINLINE uint32_t take(void)
{
    called_from = WR_CALLER;
    return wr_stacks_take(called_from);
}

static WR_NOINLINE uint32_t one_site(void)
{
    const uint32_t taken = take();
    __asm__ volatile(""); /* no tail call */
    return taken;
}

static WR_NOINLINE uint32_t other_site(void)
{
    const uint32_t taken = take();
    __asm__ volatile("");
    return taken;
}

static WR_NOINLINE uint32_t deep(int more)
{
    const uint32_t taken = more ? deep(more - 1) : take();
    __asm__ volatile("");
    return taken;
}

static void a_stack_begins_where_the_program_called(void **state)
{
    (void)state;
    uint32_t again[2];
    for (volatile int i = 0; i < 2; i++) again[i] = one_site(); /* not unrolled: one place */
    const wr_stack *s = wr_stacks_find(again[0]);
    assert_non_null(s);
    assert_ptr_equal(s->frames[0], called_from);
    assert_in_range(s->count, 2, 16);
    assert_int_equal(again[0], again[1]);
    assert_int_not_equal(other_site(), again[0]);
}

static void the_innermost_frames_are_kept(void **state)
{
    (void)state;
    const wr_stack *s = wr_stacks_find(deep(100));
    assert_int_equal(s->count, 16);
    assert_ptr_equal(s->frames[0], called_from);
}

static void a_stack_without_the_callers_frame_is_kept_whole(void **state)
{
    (void)state;
    const wr_stack *s = wr_stacks_find(wr_stacks_take(state));
    assert_non_null(s);
    assert_in_range(s->count, 3, 16);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void frames_are_named_by_object_and_function(void **state)
{
    (void)state;
    char name[WR_FRAME_NAME];
    wr_frame f = wr_frame_of((const char *)(uintptr_t)&gnu_get_libc_version + 5);
    assert_non_null(f.symbol);
    assert_non_null(strstr(f.object, "libc"));
    wr_frame_name(&f, name);
    assert_non_null(strstr(name, "+0x4"));
    f = wr_frame_of(&called_from); /* in this program, but no function */
    assert_non_null(f.object);
    f = (wr_frame){ .object = f.object, .in_object = 0x4c1d };
    wr_frame_name(&f, name);
    assert_string_equal(name, "0x4c1d");
    f = wr_frame_of((void *)(uintptr_t)0x11);
    assert_null(f.object);
    wr_frame_name(&f, name);
    assert_string_equal(name, "0x10");
}

static void a_file_numbers_only_the_stacks_that_it_mentions(void **state)
{
    (void)state;
    wr_stack_set set;
    const uint32_t a = number(0x3000, 0x1000), b = number(0x2000, 0x1000), unasked = number(0x9000, 0);
    assert_int_equal(wr_stack_set_begin(&set), WEIR_OK);
    const uint32_t mentioned[] = { 0, b, a, b };
    for (int i = 0; i < 4; i++) assert_int_equal(wr_stack_set_mention(&set, mentioned[i]), WEIR_OK);
    assert_int_equal(wr_stack_set_end(&set), WEIR_OK);
    assert_int_equal(set.count, 2);
    assert_int_equal(wr_stack_set_number(&set, b), 1);
    assert_int_equal(wr_stack_set_number(&set, a), 2);
    assert_int_equal(wr_stack_set_number(&set, unasked), 0);
    assert_int_equal(wr_stack_set_number(&set, 0), 0);
    assert_int_equal(set.frame_count, 3);
    for (uintptr_t i = 0; i < 3; i++) {
        assert_ptr_equal(set.frames[i], (void *)((i + 1) * 0x1000));
        assert_int_equal(wr_stack_set_frame(&set, set.frames[i]), i);
    }
    wr_stack_set_release(&set);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, STACKS = 5000 };
static uint32_t numbers[THREADS][STACKS];

static void *number_all(void *argument)
{
    const uintptr_t thread = (uintptr_t)argument;
    for (uintptr_t i = 0; i < STACKS; i++) {
        const uintptr_t which = (i + thread * (STACKS / THREADS)) % STACKS;
        numbers[thread][which] = number(0x1000 + which, 0x10);
        const wr_stack *s = wr_stacks_find(numbers[thread][which]);
        if (!s || s->frames[0] != (void *)(0x1000 + which)) numbers[thread][which] = 0;
    }
    return NULL;
}

static void threads_agree_on_the_numbers(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, number_all, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < STACKS; i++) {
        assert_int_not_equal(numbers[0][i], 0);
        for (int k = 1; k < THREADS; k++) assert_int_equal(numbers[k][i], numbers[0][i]);
    }
    assert_int_equal(wr_stacks_lost(), 0);
}

#define FOUR(test) cmocka_unit_test_setup_teardown(test, open_four, close_all)
#define MANY(test) cmocka_unit_test_setup_teardown(test, open_many, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOUR(equal_stacks_have_one_number),
        FOUR(opening_again_keeps_the_stacks),
        FOUR(stacks_without_room_are_counted),
        FOUR(lack_of_memory_counts_as_lack_of_room),
        cmocka_unit_test_teardown(without_a_table_there_are_no_stacks, close_all),
        MANY(a_stack_begins_where_the_program_called),
        MANY(the_innermost_frames_are_kept),
        MANY(a_stack_without_the_callers_frame_is_kept_whole),
        cmocka_unit_test(frames_are_named_by_object_and_function),
        MANY(a_file_numbers_only_the_stacks_that_it_mentions),
        MANY(threads_agree_on_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
