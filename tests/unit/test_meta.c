#include "base/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

/* Every test must give back what it takes. */
static int check_nothing_live(void **state)
{
    (void)state;
    wr_meta_fail_nth(0);
    return wr_meta_live() == 0 ? 0 : -1;
}

static void alloc_gives_zeroed_memory(void **state)
{
    (void)state;
    void *memory;
    static const char zeros[1000];
    assert_int_equal(wr_meta_alloc(sizeof zeros, "a test", &memory), WEIR_OK);
    assert_memory_equal(memory, zeros, sizeof zeros);
    assert_int_equal(wr_meta_live(), 1);
    wr_meta_free(memory);
}

static void zero_bytes_are_fine(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(wr_meta_alloc(0, "a test", &memory), WEIR_OK);
    assert_non_null(memory);
    assert_int_equal(wr_meta_resize(&memory, 0, "a test"), WEIR_OK);
    assert_non_null(memory);
    wr_meta_free(memory);
}

static void free_takes_null(void **state)
{
    (void)state;
    wr_meta_free(NULL);
    wr_meta_release(NULL, 4096);
    assert_int_equal(wr_meta_live(), 0);
}

static void resize_keeps_contents_and_counts_once(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(wr_meta_resize(&memory, 4, "a test"), WEIR_OK);
    memcpy(memory, "abc", 4);
    assert_int_equal(wr_meta_resize(&memory, 100000, "a test"), WEIR_OK);
    assert_string_equal(memory, "abc");
    assert_int_equal(wr_meta_live(), 1);
    wr_meta_free(memory);
}

static void an_array_grows_and_its_new_part_is_zeroed(void **state)
{
    (void)state;
    uint64_t *items = NULL;
    uint32_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(wr_meta_grow(&items, &capacity, i + 1, sizeof *items, "a test"), WEIR_OK);
        assert_true(capacity > i);
        assert_int_equal(items[i], 0);
        items[i] = i + 1;
    }
    for (uint32_t i = 0; i < 1000; i++) assert_int_equal(items[i], i + 1);
    assert_int_equal(wr_meta_live(), 1);
    wr_meta_free(items);
}

static void an_array_that_cannot_grow_stays_as_it_was(void **state)
{
    (void)state;
    uint64_t *items = NULL;
    uint32_t capacity = 0;
    assert_int_equal(wr_meta_grow(&items, &capacity, 1, sizeof *items, "a test"), WEIR_OK);
    uint64_t *const before = items;
    const uint32_t had = capacity;
    items[0] = 77;
    wr_meta_fail_nth(1);
    assert_int_equal(wr_meta_grow(&items, &capacity, had + 1, sizeof *items, "a test"), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(wr_meta_grow(&items, &capacity, SIZE_MAX, sizeof *items, "a test"), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ptr_equal(items, before);
    assert_int_equal(items[0], 77);
    assert_int_equal(capacity, had);
    wr_meta_free(items);
}

static void strdup_copies(void **state)
{
    (void)state;
    char text[] = "a name";
    char *copy;
    assert_int_equal(wr_meta_strdup(text, &copy), WEIR_OK);
    assert_ptr_not_equal(copy, text);
    assert_string_equal(copy, "a name");
    wr_meta_free(copy);
}

static void reserve_gives_zeroed_space_that_costs_nothing_yet(void **state)
{
    (void)state;
    size_t bytes = (size_t)64 << 30;
    void *memory;
    assert_int_equal(wr_meta_reserve(bytes, "a sparse table", &memory), WEIR_OK);
    char *table = memory;
    assert_int_equal(table[0], 0);
    assert_int_equal(table[bytes - 1], 0);
    table[bytes / 2] = 1;
    assert_int_equal(table[bytes / 2], 1);
    assert_int_equal(wr_meta_live(), 1);
    wr_meta_release(memory, bytes);
}

static void impossible_reservations_fail_and_leave_out_untouched(void **state)
{
    (void)state;
    int mark;
    void *memory = &mark;
    assert_int_equal(wr_meta_reserve(SIZE_MAX / 2, "huge", &memory), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(wr_meta_reserve(0, "nothing", &memory), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ptr_equal(memory, &mark);
}

static void failure_says_how_many_bytes_for_what(void **state)
{
    (void)state;
    void *memory = NULL;
    wr_meta_fail_nth(1);
    assert_int_equal(wr_meta_alloc(123, "the stream table", &memory), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(weir_error_text(), "123 bytes for the stream table"));
    assert_null(memory);
}

static void only_the_nth_allocation_fails(void **state)
{
    (void)state;
    void *memory[4] = { NULL };
    wr_meta_fail_nth(3);
    assert_int_equal(wr_meta_alloc(8, "a test", &memory[0]), WEIR_OK);
    assert_int_equal(wr_meta_alloc(8, "a test", &memory[1]), WEIR_OK);
    assert_int_equal(wr_meta_alloc(8, "a test", &memory[2]), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_int_equal(wr_meta_alloc(8, "a test", &memory[3]), WEIR_OK);
    assert_int_equal(wr_meta_live(), 3);
    for (int i = 0; i < 4; i++) wr_meta_free(memory[i]);
}

static void every_kind_of_allocation_can_be_made_to_fail(void **state)
{
    (void)state;
    void *memory = NULL;
    char *text = NULL;
    assert_int_equal(wr_meta_alloc(8, "a test", &memory), WEIR_OK);
    void *before = memory;
    memcpy(memory, "stands", 7);

    wr_meta_fail_nth(1);
    assert_int_equal(wr_meta_resize(&memory, 16, "a test"), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_ptr_equal(memory, before);
    assert_string_equal(memory, "stands");
    wr_meta_fail_nth(1);
    assert_int_equal(wr_meta_strdup("x", &text), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_null(text);
    wr_meta_fail_nth(1);
    void *space = NULL;
    assert_int_equal(wr_meta_reserve(4096, "a test", &space), WEIR_ERR_OUT_OF_HOST_MEMORY);
    assert_null(space);
    assert_int_equal(wr_meta_live(), 1);
    wr_meta_free(memory);
}

static void zero_calls_the_failure_off(void **state)
{
    (void)state;
    void *memory;
    wr_meta_fail_nth(1);
    wr_meta_fail_nth(0);
    assert_int_equal(wr_meta_alloc(8, "a test", &memory), WEIR_OK);
    wr_meta_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(alloc_gives_zeroed_memory, check_nothing_live),
        cmocka_unit_test_teardown(zero_bytes_are_fine, check_nothing_live),
        cmocka_unit_test_teardown(free_takes_null, check_nothing_live),
        cmocka_unit_test_teardown(resize_keeps_contents_and_counts_once, check_nothing_live),
        cmocka_unit_test_teardown(an_array_grows_and_its_new_part_is_zeroed, check_nothing_live),
        cmocka_unit_test_teardown(an_array_that_cannot_grow_stays_as_it_was, check_nothing_live),
        cmocka_unit_test_teardown(strdup_copies, check_nothing_live),
        cmocka_unit_test_teardown(reserve_gives_zeroed_space_that_costs_nothing_yet, check_nothing_live),
        cmocka_unit_test_teardown(impossible_reservations_fail_and_leave_out_untouched, check_nothing_live),
        cmocka_unit_test_teardown(failure_says_how_many_bytes_for_what, check_nothing_live),
        cmocka_unit_test_teardown(only_the_nth_allocation_fails, check_nothing_live),
        cmocka_unit_test_teardown(every_kind_of_allocation_can_be_made_to_fail, check_nothing_live),
        cmocka_unit_test_teardown(zero_calls_the_failure_off, check_nothing_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
