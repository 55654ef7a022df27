/* How replays read a recorded allocator's settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "script/config.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static config of_text(const char *text)
{
    config c;
    trace_settings recorded = { .known = true };
    snprintf(recorded.config, sizeof recorded.config, "%s", text);
    config_read(&recorded, &c);
    return c;
}

static config of_divisions(const char *text)
{
    config c;
    trace_settings recorded = { .known = true };
    snprintf(recorded.roundup_power2_divisions, sizeof recorded.roundup_power2_divisions, "%s", text);
    config_read(&recorded, &c);
    return c;
}

static void assert_short(const char *text, const char *shortened)
{
    char out[CONFIG_ROUNDUP];
    const config c = of_divisions(text);
    config_roundup(&c, out);
    assert_string_equal(out, shortened);
    const config again = of_divisions(out);
    assert_memory_equal(again.divisions, c.divisions, sizeof c.divisions);
}

static void an_empty_text_sets_nothing(void **state)
{
    (void)state;
    const config c = of_text("");
    assert_true(c.large_segment == 0 && c.non_split_rounding == 0 && c.memory_fraction == 1);
    assert_false(c.expandable || c.other_backend || c.divisions_unread);
}

static void white_space_is_ignored(void **state)
{
    (void)state;
    const config c = of_text(" large_segment_size_mb : 3 2,\tper_process_memory_fraction: 0.25 ");
    assert_int_equal(c.large_segment, 32 * MIB);
    assert_true(c.memory_fraction == 0.25);
}

static void a_key_is_a_whole_word_and_commas_in_brackets_are_the_values(void **state)
{
    (void)state;
    const config c = of_text("roundup_power2_divisions:[1:4,2:8,large_segment_size_mb:64],not_large_segment_size_mb:64,"
                             "max_non_split_rounding_mb:200,expandable_segments:True,backend:cudaMallocAsync");
    assert_int_equal(c.large_segment, 0);
    assert_int_equal(c.non_split_rounding, 200 * MIB);
    assert_true(c.expandable && c.other_backend);
}

static void the_later_setting_wins(void **state)
{
    (void)state;
    assert_int_equal(of_text("large_segment_size_mb:32,large_segment_size_mb:64").large_segment, 64 * MIB);
}

static void invalid_values_are_ignored(void **state)
{
    (void)state;
    static const char *const texts[] = { "large_segment_size_mb:,backend:native",      "large_segment_size_mb:20MiB",
                                         "large_segment_size_mb:99999999999999999999", "large_segment_size_mb",
                                         ",,:,per_process_memory_fraction:1.5",        "per_process_memory_fraction:-1",
                                         "per_process_memory_fraction:x,]]][[[" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const config c = of_text(texts[i]);
        assert_int_equal(c.large_segment, 0);
        assert_true(c.memory_fraction == 1);
        assert_false(c.other_backend);
    }
}

static void the_last_setting_of_a_cut_text_is_ignored(void **state)
{
    (void)state;
    char text[sizeof((trace_settings *)0)->config + 2];
    const char end[] = ",large_segment_size_mb:128";
    memset(text, 'x', sizeof text);
    snprintf(text + sizeof text - sizeof end, sizeof end, "%s", end);
    assert_int_equal(of_text(text).large_segment, 0);
    assert_int_equal(of_text(text + 3).large_segment, 128 * MIB);
}

static void divisions_are_written_in_their_shortest_form(void **state)
{
    (void)state;
    assert_short("", "");
    assert_short("0", "");
    assert_short("4", "4");
    assert_short("[1:1024,2:1024,4:1024,8:1024,16:1024,32:1024,64:1024,128:1024,256:1024,512:1024,1024:1024,2048:1024,"
                 "4096:1024,8192:1024,16384:1024,32768:1024]",
                 "1024");
    assert_short("[4:2,8:0,>:16]", "[4:2,8:0,>:16]");
    assert_short("[1:4,2:4,4:8]", "[2:4,4:8,>:0]");
    assert_short("[>:4]", "[1:0,>:4]");
    assert_short("[ 1 : 4, 65536 : 2 ]",
                 "[1:4,2:0,4:0,8:0,16:0,32:0,64:0,128:0,256:0,512:0,1024:0,2048:0,4096:0,8192:0,16384:0,>:2]");
}

static void invalid_divisions_are_noticed(void **state)
{
    (void)state;
    static const char *const texts[] = { "x",      "4x",    "[",    "[1",      "[1:", "[1:4",
                                         "[1:4]x", "[0:4]", "[:4]", "[1:4,,]", "[>4]" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_true(of_divisions(texts[i]).divisions_unread);
}

static void requests_are_rounded_as_pytorch_rounds_them(void **state)
{
    (void)state;
    config c = of_divisions("4");
    assert_int_equal(config_round(&c, 0), 0);
    assert_int_equal(config_round(&c, 1200), 1200); /* not above 512 bytes times the divisions */
    assert_int_equal(config_round(&c, 2048), 2048);
    assert_int_equal(config_round(&c, 2049), 2560);
    assert_int_equal(config_round(&c, 4096), 4096);
    assert_int_equal(config_round(&c, 11 * MIB / 10), 5 * MIB / 4);
    c = of_divisions("[4:0,8:2,>:4]");
    assert_int_equal(config_round(&c, 5 * MIB), 5 * MIB);
    assert_int_equal(config_round(&c, 9 * MIB), 12 * MIB);
    assert_int_equal(config_round(&c, 17 * MIB), 20 * MIB);
    assert_int_equal(config_round(&c, (MIB << 20) + 1), (MIB << 20) + (MIB << 18));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_text_sets_nothing),
        cmocka_unit_test(white_space_is_ignored),
        cmocka_unit_test(a_key_is_a_whole_word_and_commas_in_brackets_are_the_values),
        cmocka_unit_test(the_later_setting_wins),
        cmocka_unit_test(invalid_values_are_ignored),
        cmocka_unit_test(the_last_setting_of_a_cut_text_is_ignored),
        cmocka_unit_test(divisions_are_written_in_their_shortest_form),
        cmocka_unit_test(invalid_divisions_are_noticed),
        cmocka_unit_test(requests_are_rounded_as_pytorch_rounds_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
