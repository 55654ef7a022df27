#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output/text.h"

#include <stdlib.h>
#include <string.h>

#define MOST 32

static const char *tail(const char *text, size_t size)
{
    static char to[MOST];
    assert_true(size <= sizeof to);
    return text_tail(text, text + strlen(text), to, size);
}

static void the_end_of_a_long_text_stays(void **state)
{
    (void)state;
    assert_string_equal(tail("abcdefghi", 10), "abcdefghi");
    assert_string_equal(tail("abcdefghi", 9), "...efghi");
    assert_string_equal(tail("abcdefghi", 5), "...i");
}

static void nothing_behind_the_end_is_shown(void **state)
{
    (void)state;
    static const char text[] = "abcdefghi";
    char to[MOST];
    assert_string_equal(text_tail(text, text + 4, to, sizeof to), "abcd");
    assert_string_equal(text_tail(text, text, to, sizeof to), "");
}

static void no_character_is_cut_at_either_end(void **state)
{
    (void)state;
    char to[MOST];
    assert_string_equal(tail("\u00e9\u00e9\u00e9\u00e9", 8), "...\u00e9\u00e9");
    assert_string_equal(tail("\u00e9\u00e9\u00e9\u00e9", 7), "...\u00e9");
    assert_string_equal(text_plain("\u00e9\u00e9", to, 4), "\u00e9");
}

static void a_tail_does_nothing_to_the_terminal(void **state)
{
    (void)state;
    assert_string_equal(tail("abcdef\x1b[2J\xff", 10), "...f?[2J?");
    assert_string_equal(tail("a\u202eb\u2066c\u2028", MOST), "a?b?c\u2028"); /* nor turns what follows around */
}

static void lines_with_foreign_words_stay_lines(void **state)
{
    (void)state;
    char *shown = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&shown, &length);
    text_printf(out, "%s: one\n%s\n", "\u00e9\x1b[2J", "\xff\r");
    fclose(out);
    assert_string_equal(shown, "\u00e9?[2J: one\n??\n");
    free(shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_long_text_stays),        cmocka_unit_test(nothing_behind_the_end_is_shown),
        cmocka_unit_test(no_character_is_cut_at_either_end),   cmocka_unit_test(a_tail_does_nothing_to_the_terminal),
        cmocka_unit_test(lines_with_foreign_words_stay_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
