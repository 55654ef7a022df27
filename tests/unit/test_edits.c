#include "base/edits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static size_t edits(const char *name, const char *known)
{
    return wr_edits(name, strlen(name), known);
}

static void the_same_name_needs_none(void **state)
{
    (void)state;
    assert_int_equal(edits("", ""), 0);
    assert_int_equal(edits("memory", "memory"), 0);
}

static void each_letter_too_many_missing_or_wrong_is_one(void **state)
{
    (void)state;
    assert_int_equal(edits("", "abc"), 3);
    assert_int_equal(edits("abc", ""), 3);
    assert_int_equal(edits("xabc", "abc"), 1);
    assert_int_equal(edits("abc", "xabc"), 1);
    assert_int_equal(edits("abcx", "abc"), 1);
    assert_int_equal(edits("abc", "abcx"), 1);
    assert_int_equal(edits("axc", "abc"), 1);
    assert_int_equal(edits("kitten", "sitting"), 3);
    assert_int_equal(edits("bacd", "abcd"), 2);
    assert_int_equal(edits("abc", "xyz"), 3);
}

static void a_name_ends_where_its_length_says(void **state)
{
    (void)state;
    assert_int_equal(wr_edits("abc=4", 3, "abc"), 0);
}

static void a_long_name_is_compared_by_its_beginning(void **state)
{
    (void)state;
    char name[1000];
    memset(name, 'a', sizeof name);
    assert_int_equal(wr_edits(name, sizeof name, ""), 48);
    assert_int_equal(wr_edits(name, sizeof name, "aaa"), 45);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_name_needs_none),
        cmocka_unit_test(each_letter_too_many_missing_or_wrong_is_one),
        cmocka_unit_test(a_name_ends_where_its_length_says),
        cmocka_unit_test(a_long_name_is_compared_by_its_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
