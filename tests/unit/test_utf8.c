/*
 * Text of any bytes, as given to readers that require UTF-8.
 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#define R "\xEF\xBF\xBD"

static void check(const char *text, const char *expected)
{
    char got[64] = "";
    const char *end = text + strlen(text);
    size_t at = 0, bytes = 0;
    assert_int_equal(wr_utf8_bytes(text, strlen(text)), strlen(expected));
    while (text != end) {
        const char *character = wr_utf8_next(&text, end, &bytes);
        memcpy(got + at, character, bytes);
        at += bytes;
    }
    assert_string_equal(got, expected);
}

static void valid_characters_stay(void **state)
{
    (void)state;
    static const char *const texts[] = { "",
                                         "weir",
                                         "caf\xC3\xA9",
                                         "\x01\x7F\xC2\x80\xDF\xBF",
                                         "\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF",
                                         "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check(texts[i], texts[i]);
}

static void bytes_that_begin_no_character_are_replaced(void **state)
{
    (void)state;
    check("caf\xE9", "caf" R);
    check("\xE9t\xE9", R "t" R);
    check("\x80\xBF\xC0\xC1\xF5\xFF", R R R R R R);
    check("\xC3\xC3\xA9\xC3", R "\xC3\xA9" R);
}

static void truncated_overlong_and_surrogate_sequences_are_replaced(void **state)
{
    (void)state;
    check("a\xE2\x82", "a" R R);
    check("\xF0\x9F\x98z", R R R "z");
    check("\xC0\xAF\xE0\x9F\xBF\xF0\x8F\xBF\xBF", R R R R R R R R R);
    check("\xED\xA0\x80\xED\xBF\xBF", R R R R R R);
    check("\xF4\x90\x80\x80", R R R R);
}

static void nothing_behind_the_bytes_is_read(void **state)
{
    (void)state;
    assert_int_equal(wr_utf8_bytes("\xE2\x80\xAA", 2), 2 * 3); /* each is replaced */
}

static void a_cut_leaves_whole_characters(void **state)
{
    (void)state;
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
    static const size_t whole[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10 };
    for (size_t count = 0; count < sizeof whole / sizeof *whole; count++)
        assert_int_equal(wr_utf8_whole(text, count), whole[count]);
    assert_int_equal(wr_utf8_whole("\x80\x80\x80\x80\x80", 5), 5);
}

static void check_plain(const char *text, const char *expected)
{
    char shown[64];
    assert_true(strlen(text) < sizeof shown);
    memcpy(shown, text, strlen(text) + 1);
    wr_utf8_plain(shown);
    assert_string_equal(shown, expected);
}

static void what_a_terminal_shows_stays(void **state)
{
    (void)state;
    static const char text[] = "two lines,\ncaf\xC3\xA9 \xC2\xA0 \xE2\x80\xA9\xE2\x81\xA5 \xF0\x9F\x98\x80";
    check_plain(text, text);
    check_plain("", "");
}

static void what_acts_on_a_terminal_becomes_a_question_mark(void **state)
{
    (void)state;
    check_plain("\033[2J\r\t\a\x7F", "?[2J????");
    check_plain("a\xC2\x80z\xC2\x9F", "a?z?");
    check_plain("\xE2\x80\xAA\xE2\x80\xAEx\xE2\x81\xA6\xE2\x81\xA9", "??x??");
    check_plain("\x9B"
                "2J\xC3",
                "?2J?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_characters_stay),
        cmocka_unit_test(bytes_that_begin_no_character_are_replaced),
        cmocka_unit_test(truncated_overlong_and_surrogate_sequences_are_replaced),
        cmocka_unit_test(nothing_behind_the_bytes_is_read),
        cmocka_unit_test(a_cut_leaves_whole_characters),
        cmocka_unit_test(what_a_terminal_shows_stays),
        cmocka_unit_test(what_acts_on_a_terminal_becomes_a_question_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
