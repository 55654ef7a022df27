#include "base/options.h"

#include "base/dl.h"
#include "base/sized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const nothing[] = { NULL };

/* In place of the C library's: as in a Turkish locale of one byte per letter, where a capital i has a dot. */
int toupper(int c)
{
    if (c == 'i') return 0xDD;
    return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c;
}

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

/* Reads one variable over `settings`. */
static weir_status read_one(wr_options *options, const weir_settings *settings, const char *variable)
{
    const char *const environment[] = { "PATH=/bin", variable, "HOME=/", NULL };
    return wr_options_read_from(options, settings, environment);
}

static void expect_refused(const weir_settings *settings, const char *variable, const char *const words[])
{
    wr_options options;
    assert_int_equal(read_one(&options, settings, variable), WEIR_ERR_OPTION);
    for (; *words != NULL; words++)
        if (strstr(weir_error_text(), *words) == NULL) fail_msg("no \"%s\" in: %s", *words, weir_error_text());
}

#define EXPECT_REFUSED(settings, variable, ...)                                                                        \
    expect_refused(settings, variable, (const char *const[]){ __VA_ARGS__, NULL })

static void defaults_are_those_of_the_table(void **state)
{
    (void)state;
    wr_options options;
    assert_int_equal(wr_options_read_from(&options, NULL, nothing), WEIR_OK);
    assert_string_equal(options.value[WR_OPTION_backend].text, "auto");
    assert_string_equal(options.value[WR_OPTION_policy].text, "weir");
    assert_int_equal(options.value[WR_OPTION_memory_limit].number, 0);
    assert_int_equal(options.value[WR_OPTION_host_devices].number, 1);
    assert_int_equal(options.value[WR_OPTION_host_memory].number, 80 * GIB);
    assert_int_equal(options.value[WR_OPTION_large_segment].number, 20 * MIB);
    assert_string_equal(options.value[WR_OPTION_roundup_power2_divisions].text, "");
    assert_true(options.value[WR_OPTION_gc_threshold].share == 0);
    assert_string_equal(options.value[WR_OPTION_log].text, "off");
    for (int id = 0; id < WR_OPTION_COUNT; id++) assert_int_equal(options.value[id].source, WR_OPTION_DEFAULT);
}

static void settings_beat_defaults(void **state)
{
    (void)state;
    wr_options options;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.memory_limit = 5 * GIB;
    settings.host_devices = 3;
    settings.gc_threshold = 0.5;
    settings.roundup_power2_divisions = "8";
    assert_int_equal(wr_options_read_from(&options, &settings, nothing), WEIR_OK);
    assert_string_equal(options.value[WR_OPTION_backend].text, "host");
    assert_int_equal(options.value[WR_OPTION_memory_limit].number, 5 * GIB);
    assert_int_equal(options.value[WR_OPTION_host_devices].number, 3);
    assert_true(options.value[WR_OPTION_gc_threshold].share == 0.5);
    assert_string_equal(options.value[WR_OPTION_roundup_power2_divisions].text, "8");
    assert_int_equal(options.value[WR_OPTION_backend].source, WR_OPTION_SETTINGS);
    assert_int_equal(options.value[WR_OPTION_gc_threshold].source, WR_OPTION_SETTINGS);
}

static void zero_members_keep_the_defaults(void **state)
{
    (void)state;
    wr_options options;
    weir_settings settings = WEIR_SETTINGS_INIT;
    assert_int_equal(wr_options_read_from(&options, &settings, nothing), WEIR_OK);
    for (int id = 0; id < WR_OPTION_COUNT; id++) assert_int_equal(options.value[id].source, WR_OPTION_DEFAULT);
    assert_int_equal(options.value[WR_OPTION_host_memory].number, 80 * GIB);
}

static void environment_beats_settings(void **state)
{
    (void)state;
    wr_options options;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.memory_limit = 5 * GIB;
    settings.history = 7;
    assert_int_equal(read_one(&options, &settings, "WEIR_MEMORY_LIMIT=1.5 GiB"), WEIR_OK);
    assert_int_equal(options.value[WR_OPTION_memory_limit].number, 3 * GIB / 2);
    assert_int_equal(options.value[WR_OPTION_memory_limit].source, WR_OPTION_ENVIRONMENT);
    assert_int_equal(options.value[WR_OPTION_history].number, 7);
    assert_int_equal(options.value[WR_OPTION_history].source, WR_OPTION_SETTINGS);
}

static void environment_reads_every_type(void **state)
{
    (void)state;
    wr_options options;
    const char *const environment[] = { "WEIR_BACKEND=hip",      "WEIR_HOST_DEVICES=64",
                                        "WEIR_GC_THRESHOLD=.75", "WEIR_LOG=debug",
                                        "WEIR_HOST_MEMORY=2MiB", "WEIR_ROUNDUP_POWER2_DIVISIONS=[1:2]",
                                        "WEIR_POLICY=torch",     NULL };
    assert_int_equal(wr_options_read_from(&options, NULL, environment), WEIR_OK);
    assert_string_equal(options.value[WR_OPTION_backend].text, "hip");
    assert_string_equal(options.value[WR_OPTION_policy].text, "torch");
    assert_string_equal(options.value[WR_OPTION_log].text, "debug");
    assert_int_equal(options.value[WR_OPTION_host_devices].number, 64);
    assert_int_equal(options.value[WR_OPTION_host_memory].number, 2 * MIB);
    assert_true(options.value[WR_OPTION_gc_threshold].share == 0.75);
    assert_string_equal(options.value[WR_OPTION_roundup_power2_divisions].text, "[1:2]");
}

static void the_process_environment_is_read(void **state)
{
    (void)state;
    wr_options options;
    assert_int_equal(setenv("WEIR_HISTORY", "1234", 1), 0);
    weir_status status = wr_options_read(&options, NULL);
    assert_int_equal(unsetenv("WEIR_HISTORY"), 0);
    assert_int_equal(status, WEIR_OK);
    assert_int_equal(options.value[WR_OPTION_history].number, 1234);
}

static void names_of_variables_are_the_same_in_every_locale(void **state)
{
    (void)state;
    wr_options options;
    char library[WR_DL_VARIABLE];
    assert_int_equal(read_one(&options, NULL, "WEIR_HISTORY=1234"), WEIR_OK);
    assert_int_equal(options.value[WR_OPTION_history].number, 1234);
    wr_dl_variable("hip", library);
    assert_string_equal(library, "WEIR_LIB_HIP");
}

static void library_paths_and_other_programs_variables_are_left_alone(void **state)
{
    (void)state;
    wr_options options;
    const char *const environment[] = { "WEIR_LIB_CUDSS=/opt/libcudss.so",
                                        "WEIR_LIBRARY=/opt/libweir.so",
                                        "WEIRD=1",
                                        "weir_log=x",
                                        "LOG=debug",
                                        "",
                                        NULL };
    assert_int_equal(wr_options_read_from(&options, NULL, environment), WEIR_OK);
}

static void an_absent_environment_is_fine(void **state)
{
    (void)state;
    wr_options options;
    assert_int_equal(wr_options_read_from(&options, NULL, NULL), WEIR_OK);
}

static void unknown_variables_are_refused_with_the_nearest_name(void **state)
{
    (void)state;
    EXPECT_REFUSED(NULL, "WEIR_MEMORY_LIMITS=4G", "WEIR_MEMORY_LIMITS", "nearest is WEIR_MEMORY_LIMIT;");
    EXPECT_REFUSED(NULL, "WEIR_BACKED=host", "nearest is WEIR_BACKEND;");
    EXPECT_REFUSED(NULL, "WEIR_HOST_MEM=1G", "nearest is WEIR_HOST_MEMORY;");
    EXPECT_REFUSED(NULL, "WEIR_log=off", "nearest is WEIR_LOG;");
    EXPECT_REFUSED(NULL, "WEIR_=1", "WEIR_ is not an option");
}

static void variables_of_others_are_left_to_them(void **state)
{
    (void)state;
    static const char *const others[] = { "WEIR_LIB_CUDSS=/x",
                                          "WEIR_LIBRARY=/x",
                                          "WEIR_ROOT=/x",
                                          "WEIR_DIR=/x",
                                          "WEIR_HOME=/x",
                                          "WEIR_SERVICE_HOST=10.0.0.11",
                                          "WEIR_SERVICE_PORT_GRPC=5",
                                          "WEIR_PORT=tcp://10.0.0.11:6379",
                                          "WEIR_PORT_6379_TCP_ADDR=10.0.0.11" };
    wr_options options;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(read_one(&options, NULL, others[i]), WEIR_OK);
    EXPECT_REFUSED(NULL, "WEIR_PORTS=1", "WEIR_PORTS is not an option");
    EXPECT_REFUSED(NULL, "WEIR_HOMES=1", "WEIR_HOMES is not an option");
}

static void an_endless_unknown_name_is_cut(void **state)
{
    (void)state;
    char variable[5000];
    memset(variable, 'X', sizeof variable);
    memcpy(variable, "WEIR_", 5);
    variable[sizeof variable - 1] = '\0';
    EXPECT_REFUSED(NULL, variable, "XXXX is not an option of weir; the nearest is WEIR_");
}

static void bad_values_name_option_value_source_and_range(void **state)
{
    (void)state;
    EXPECT_REFUSED(NULL, "WEIR_MEMORY_LIMIT=lots", "option memory_limit", "\"lots\"", "from WEIR_MEMORY_LIMIT",
                   "from 0 to 256TiB");
    EXPECT_REFUSED(NULL, "WEIR_HOST_MEMORY=1MiB", "option host_memory", "\"1MiB\"", "from 2MiB to 16TiB");
    EXPECT_REFUSED(NULL, "WEIR_HOST_DEVICES=65", "option host_devices", "\"65\"", "from 1 to 64");
    EXPECT_REFUSED(NULL, "WEIR_HOST_DEVICES=2k", "whole number from 1 to 64");
    EXPECT_REFUSED(NULL, "WEIR_HOST_DEVICES=-1", "\"-1\"", "from 1 to 64");
    EXPECT_REFUSED(NULL, "WEIR_HISTORY=99999999999999999999999", "from 0 to 1000000000");
    EXPECT_REFUSED(NULL, "WEIR_GC_THRESHOLD=1.5", "option gc_threshold", "\"1.5\"", "from 0 to 1");
    EXPECT_REFUSED(NULL, "WEIR_GC_THRESHOLD=80%", "\"80%\"");
    EXPECT_REFUSED(NULL, "WEIR_GC_THRESHOLD=.", "\".\"");
    EXPECT_REFUSED(NULL, "WEIR_GC_THRESHOLD=nan", "\"nan\"");
    EXPECT_REFUSED(NULL, "WEIR_BACKEND=metal", "\"metal\"", "auto|cuda|hip|host");
}

static void a_choice_is_a_whole_word(void **state)
{
    (void)state;
    EXPECT_REFUSED(NULL, "WEIR_BACKEND=cud", "\"cud\"");
    EXPECT_REFUSED(NULL, "WEIR_BACKEND=cuda|hip", "\"cuda|hip\"");
    EXPECT_REFUSED(NULL, "WEIR_BACKEND=hosts", "\"hosts\"");
    EXPECT_REFUSED(NULL, "WEIR_BACKEND=Host", "\"Host\"");
}

static void empty_values_are_no_values(void **state)
{
    (void)state;
    wr_options options;
    EXPECT_REFUSED(NULL, "WEIR_BACKEND=", "option backend", "\"\"");
    EXPECT_REFUSED(NULL, "WEIR_MEMORY_LIMIT=", "option memory_limit");
    EXPECT_REFUSED(NULL, "WEIR_HISTORY=", "option history");
    EXPECT_REFUSED(NULL, "WEIR_GC_THRESHOLD=", "option gc_threshold");
    EXPECT_REFUSED(NULL, "WEIR_LOG", "option log");
    assert_int_equal(read_one(&options, NULL, "WEIR_ROUNDUP_POWER2_DIVISIONS="), WEIR_OK);
}

static void overlong_text_is_refused(void **state)
{
    (void)state;
    char variable[300] = "WEIR_ROUNDUP_POWER2_DIVISIONS=";
    memset(variable + strlen(variable), ' ', 128);
    EXPECT_REFUSED(NULL, variable, "option roundup_power2_divisions", "at most 127 characters");
}

static void bad_settings_are_named_as_such(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.host_devices = 1000;
    EXPECT_REFUSED(&settings, "X=", "option host_devices", "\"1000\"", "from weir_settings", "from 1 to 64");

    settings = (weir_settings)WEIR_SETTINGS_INIT;
    settings.backend = "metal";
    EXPECT_REFUSED(&settings, "X=", "option backend", "\"metal\"", "from weir_settings");

    settings = (weir_settings)WEIR_SETTINGS_INIT;
    settings.large_segment = 1;
    EXPECT_REFUSED(&settings, "X=", "option large_segment", "\"1\"", "from 2MiB to 64GiB");
}

static void a_share_outside_0_to_1_is_refused(void **state)
{
    (void)state;
    double shares[] = { -0.1, 1.0001, NAN, INFINITY, -INFINITY };
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        weir_settings settings = WEIR_SETTINGS_INIT;
        settings.gc_threshold = shares[i];
        EXPECT_REFUSED(&settings, "X=", "option gc_threshold", "from weir_settings", "from 0 to 1");
    }
}

static void a_bad_roundup_names_its_source(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.roundup_power2_divisions = "3";
    EXPECT_REFUSED(&settings, "X=", "option roundup_power2_divisions", "\"3\" from weir_settings", "power of two");
    EXPECT_REFUSED(NULL, "WEIR_ROUNDUP_POWER2_DIVISIONS=[3:4]", "from WEIR_ROUNDUP_POWER2_DIVISIONS", "power of two");
}

static void failure_leaves_the_options_untouched(void **state)
{
    (void)state;
    wr_options options, before;
    memset(&options, 0x5a, sizeof options);
    before = options;
    assert_int_equal(read_one(&options, NULL, "WEIR_LOG=loud"), WEIR_ERR_OPTION);
    assert_memory_equal(&options, &before, sizeof options);
}

static void settings_of_an_older_program_are_read_as_far_as_they_go(void **state)
{
    (void)state;
    wr_options options;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    settings.memory_limit = 5 * GIB;
    settings.host_devices = 1000; /* past the end of the structure that the program knew */
    settings.size = offsetof(weir_settings, host_devices);
    assert_int_equal(wr_options_read_from(&options, &settings, nothing), WEIR_OK);
    assert_string_equal(options.value[WR_OPTION_backend].text, "host");
    assert_int_equal(options.value[WR_OPTION_memory_limit].number, 5 * GIB);
    assert_int_equal(options.value[WR_OPTION_host_devices].number, 1);

    settings.size = offsetof(weir_settings, policy);
    assert_int_equal(wr_options_read_from(&options, &settings, nothing), WEIR_OK);
    assert_string_equal(options.value[WR_OPTION_backend].text, "host");
    assert_int_equal(options.value[WR_OPTION_memory_limit].number, 0);
}

typedef struct newer_settings {
    weir_settings known;
    uint64_t more[2];
} newer_settings;

static void settings_may_be_as_much_larger_as_any_structure(void **state)
{
    (void)state;
    union {
        weir_settings known;
        unsigned char bytes[sizeof(weir_settings) + WR_SIZED_MORE_MAX];
    } settings = { .known = { .size = sizeof settings } };
    const char *const nothing[] = { NULL };
    wr_options options;
    assert_int_equal(wr_options_read_from(&options, &settings.known, nothing), WEIR_OK);
    settings.known.size += sizeof(uint64_t);
    assert_int_equal(wr_options_read_from(&options, &settings.known, nothing), WEIR_ERR_OPTION);
}

static void settings_of_a_newer_program_are_taken_when_the_tail_is_zero(void **state)
{
    (void)state;
    wr_options options;
    newer_settings settings = { .known = WEIR_SETTINGS_INIT };
    settings.known.size = sizeof settings;
    settings.known.history = 9;
    assert_int_equal(wr_options_read_from(&options, &settings.known, nothing), WEIR_OK);
    assert_int_equal(options.value[WR_OPTION_history].number, 9);

    settings.more[1] = 1;
    assert_int_equal(wr_options_read_from(&options, &settings.known, nothing), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "does not know"));
}

static void settings_without_a_size_are_refused(void **state)
{
    (void)state;
    size_t sizes[] = { 0, 1, sizeof(weir_settings *), sizeof(weir_settings) - 1, SIZE_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        weir_settings settings = { .size = sizes[i] };
        EXPECT_REFUSED(&settings, "X=", "WEIR_SETTINGS_INIT");
    }
}

static void check_description(const char *variable, wr_option_id id, const char *value)
{
    wr_options options;
    weir_option_info info = { .size = sizeof info };
    assert_int_equal(read_one(&options, NULL, variable), WEIR_OK);
    wr_options_describe(&options, id, &info);
    assert_string_equal(info.value, value);
    assert_int_equal(info.size, sizeof info);
}

static void descriptions_have_values_as_people_write_them(void **state)
{
    (void)state;
    check_description("X=", WR_OPTION_memory_limit, "0B");
    check_description("X=", WR_OPTION_host_memory, "80GiB");
    check_description("WEIR_MEMORY_LIMIT=20971521", WR_OPTION_memory_limit, "20971521B");
    check_description("WEIR_MEMORY_LIMIT=1.5GiB", WR_OPTION_memory_limit, "1536MiB");
    check_description("WEIR_MEMORY_LIMIT=256TiB", WR_OPTION_memory_limit, "256TiB");
    check_description("WEIR_HISTORY=1000000000", WR_OPTION_history, "1000000000");
    check_description("X=", WR_OPTION_gc_threshold, "0");
    check_description("WEIR_GC_THRESHOLD=0.000249", WR_OPTION_gc_threshold, "0.000249");
    check_description("WEIR_GC_THRESHOLD=0.80", WR_OPTION_gc_threshold, "0.8");
    check_description("WEIR_GC_THRESHOLD=1", WR_OPTION_gc_threshold, "1");
    check_description("WEIR_GC_THRESHOLD=0.0000001", WR_OPTION_gc_threshold, "0");
    check_description("WEIR_LOG=warn", WR_OPTION_log, "warn");
    check_description("WEIR_ROUNDUP_POWER2_DIVISIONS=[256:1,>:4]", WR_OPTION_roundup_power2_divisions, "[256:1,>:4]");
}

static void descriptions_name_option_variable_and_source(void **state)
{
    (void)state;
    wr_options options;
    weir_option_info info = { .size = sizeof info };
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.history = 5;
    assert_int_equal(read_one(&options, &settings, "WEIR_MEMORY_LIMIT=1g"), WEIR_OK);
    wr_options_describe(&options, WR_OPTION_memory_limit, &info);
    assert_string_equal(info.name, "memory_limit");
    assert_string_equal(info.environment, "WEIR_MEMORY_LIMIT");
    assert_string_equal(info.source, "environment");
    assert_true(strlen(info.help) > 0);
    wr_options_describe(&options, WR_OPTION_history, &info);
    assert_string_equal(info.source, "settings");
    wr_options_describe(&options, WR_OPTION_log, &info);
    assert_string_equal(info.source, "default");
}

static void check_roundup(const char *text, const uint32_t expected[WR_ROUNDUP_ENTRIES])
{
    uint32_t divisions[WR_ROUNDUP_ENTRIES];
    memset(divisions, 0xff, sizeof divisions);
    if (wr_options_parse_roundup(text, divisions) != WEIR_OK) fail_msg("\"%s\": %s", text, weir_error_text());
    for (int i = 0; i < WR_ROUNDUP_ENTRIES; i++)
        if (divisions[i] != expected[i]) fail_msg("\"%s\"[%d] is %u, not %u", text, i, divisions[i], expected[i]);
}

#define CHECK_ROUNDUP(text, ...) check_roundup(text, (const uint32_t[WR_ROUNDUP_ENTRIES]){ __VA_ARGS__ })

static void one_number_rounds_all_sizes(void **state)
{
    (void)state;
    CHECK_ROUNDUP("4", 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4);
    CHECK_ROUNDUP(" 16 ", 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16);
    CHECK_ROUNDUP("0", 0);
    CHECK_ROUNDUP("", 0);
}

static void the_first_key_covers_smaller_sizes(void **state)
{
    (void)state;
    CHECK_ROUNDUP("[8:2]", 2, 2, 2, 2);
    CHECK_ROUNDUP("[1:2]", 2);
}

static void the_arrow_covers_sizes_above_the_last_key(void **state)
{
    (void)state;
    CHECK_ROUNDUP("[256:1,512:2,>:4]", 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4);
    CHECK_ROUNDUP("[64:8,128:2,256:4,512:2,1024:4,>:1]", 8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1);
    CHECK_ROUNDUP("[32768:2,>:4]", 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2);
    CHECK_ROUNDUP("[>:4]", 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4);
}

static void sizes_between_keys_stay_off(void **state)
{
    (void)state;
    CHECK_ROUNDUP("[2:8,16:4]", 8, 8, 0, 0, 4);
    CHECK_ROUNDUP("[2:8,16:0,>:2]", 8, 8, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2);
}

static void keys_above_the_table_mean_its_last_entry(void **state)
{
    (void)state;
    CHECK_ROUNDUP("[1:1,65536:2]", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2);
    CHECK_ROUNDUP("[1:1,1048576:2]", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2);
}

static void roundup_takes_white_space_and_an_empty_list(void **state)
{
    (void)state;
    CHECK_ROUNDUP(" [ 2 : 8 , > : 0 ] ", 8, 8);
    CHECK_ROUNDUP("[]", 0);
}

static void an_invalid_roundup_is_refused_and_out_untouched(void **state)
{
    (void)state;
    static const char *const texts[] = { "3",
                                         "-4",
                                         "x",
                                         "4x",
                                         "4,4",
                                         "[",
                                         "[256",
                                         "[256:",
                                         "[256:1",
                                         "[256:1,",
                                         "[256:3]",
                                         "[3:4]",
                                         "[0:4]",
                                         "[:4]",
                                         "[256;1]",
                                         "[256:1]x",
                                         "[256:1 512:2x]",
                                         "[>4]",
                                         "[>:]",
                                         "[>:5]",
                                         "4294967296",
                                         "4294967300", /* 4 more than fits */
                                         "[8589934592:4]",
                                         "]",
                                         "[256:1]]" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        uint32_t divisions[WR_ROUNDUP_ENTRIES] = { 77 };
        if (wr_options_parse_roundup(texts[i], divisions) != WEIR_ERR_OPTION) fail_msg("took \"%s\"", texts[i]);
        assert_int_equal(divisions[0], 77);
    }
}

static void a_roundup_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    uint32_t divisions[WR_ROUNDUP_ENTRIES] = { 77 };
    char text[sizeof((wr_option_value *)0)->text + 1] = "";
    memset(text, '4', sizeof text - 1);
    assert_int_equal(wr_options_parse_roundup(text, divisions), WEIR_ERR_OPTION);
    assert_non_null(strstr(weir_error_text(), "longer than 127 characters"));
    assert_int_equal(divisions[0], 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(settings_beat_defaults),
        cmocka_unit_test(zero_members_keep_the_defaults),
        cmocka_unit_test(environment_beats_settings),
        cmocka_unit_test(environment_reads_every_type),
        cmocka_unit_test(the_process_environment_is_read),
        cmocka_unit_test(names_of_variables_are_the_same_in_every_locale),
        cmocka_unit_test(library_paths_and_other_programs_variables_are_left_alone),
        cmocka_unit_test(an_absent_environment_is_fine),
        cmocka_unit_test(unknown_variables_are_refused_with_the_nearest_name),
        cmocka_unit_test(variables_of_others_are_left_to_them),
        cmocka_unit_test(an_endless_unknown_name_is_cut),
        cmocka_unit_test(bad_values_name_option_value_source_and_range),
        cmocka_unit_test(a_choice_is_a_whole_word),
        cmocka_unit_test(empty_values_are_no_values),
        cmocka_unit_test(overlong_text_is_refused),
        cmocka_unit_test(bad_settings_are_named_as_such),
        cmocka_unit_test(a_share_outside_0_to_1_is_refused),
        cmocka_unit_test(a_bad_roundup_names_its_source),
        cmocka_unit_test(failure_leaves_the_options_untouched),
        cmocka_unit_test(settings_of_an_older_program_are_read_as_far_as_they_go),
        cmocka_unit_test(settings_may_be_as_much_larger_as_any_structure),
        cmocka_unit_test(settings_of_a_newer_program_are_taken_when_the_tail_is_zero),
        cmocka_unit_test(settings_without_a_size_are_refused),
        cmocka_unit_test(descriptions_have_values_as_people_write_them),
        cmocka_unit_test(descriptions_name_option_variable_and_source),
        cmocka_unit_test(one_number_rounds_all_sizes),
        cmocka_unit_test(the_first_key_covers_smaller_sizes),
        cmocka_unit_test(the_arrow_covers_sizes_above_the_last_key),
        cmocka_unit_test(sizes_between_keys_stay_off),
        cmocka_unit_test(keys_above_the_table_mean_its_last_entry),
        cmocka_unit_test(roundup_takes_white_space_and_an_empty_list),
        cmocka_unit_test(an_invalid_roundup_is_refused_and_out_untouched),
        cmocka_unit_test(a_roundup_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
