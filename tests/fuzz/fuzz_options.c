/*
 * Feeds bytes to the option reader three ways: as an environment (one variable a line), as roundup text, and as a size.
 * Accepted values must be in range and must read back the same from their description.
 */
#include "base/options.h"
#include "base/size.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARIABLES = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Also with NDEBUG, unlike assert. */
static void must(int condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "broken: %s\n%s\n", what, weir_error_text());
    abort();
}

static void check_refusal(weir_status status)
{
    must(status == WEIR_ERR_OPTION, "refused with WEIR_ERR_OPTION");
    must(weir_error_text()[0] != '\0', "a refusal has a reason");
}

static void check_ranges(const wr_options *options)
{
    const wr_option_value *value = options->value;
    must(value[WR_OPTION_memory_limit].number <= (uint64_t)256 << 40, "memory_limit");
    must(value[WR_OPTION_host_devices].number >= 1 && value[WR_OPTION_host_devices].number <= 64, "host_devices");
    must(value[WR_OPTION_host_memory].number >= 2 * WR_MIB && value[WR_OPTION_host_memory].number <= (uint64_t)16 << 40,
         "host_memory");
    must(value[WR_OPTION_large_segment].number >= 2 * WR_MIB && value[WR_OPTION_large_segment].number <= 64 * WR_GIB,
         "large_segment");
    must(value[WR_OPTION_gc_threshold].share >= 0 && value[WR_OPTION_gc_threshold].share <= 1, "gc_threshold");
    must(value[WR_OPTION_history].number <= 1000000000, "history");

    uint32_t divisions[WR_ROUNDUP_ENTRIES];
    must(wr_options_parse_roundup(value[WR_OPTION_roundup_power2_divisions].text, divisions) == WEIR_OK,
         "an accepted roundup_power2_divisions parses");
}

static void check_reads_back(const wr_options *options)
{
    char variables[WR_OPTION_COUNT][200];
    const char *environment[WR_OPTION_COUNT + 1] = { NULL };
    for (int id = 0; id < WR_OPTION_COUNT; id++) {
        weir_option_info info = { .size = sizeof info };
        wr_options_describe(options, (wr_option_id)id, &info);
        snprintf(variables[id], sizeof variables[id], "%s=%s", info.environment, info.value);
        environment[id] = variables[id];
    }

    wr_options again;
    must(wr_options_read_from(&again, NULL, environment) == WEIR_OK, "a description reads back");
    for (int id = 0; id < WR_OPTION_COUNT; id++) {
        must(again.value[id].number == options->value[id].number, "the same number");
        must(fabs(again.value[id].share - options->value[id].share) <= 1e-6, "the same share");
        must(strcmp(again.value[id].text, options->value[id].text) == 0, "the same text");
    }
}

static void feed_environment(char *text)
{
    const char *environment[VARIABLES + 1] = { NULL };
    char *rest = text;
    for (int i = 0; i < VARIABLES && rest != NULL; i++) environment[i] = strsep(&rest, "\n");

    wr_options options;
    weir_status status = wr_options_read_from(&options, NULL, environment);
    if (status != WEIR_OK) {
        check_refusal(status);
        return;
    }
    check_ranges(&options);
    check_reads_back(&options);
}

static void feed_roundup(const char *text)
{
    uint32_t divisions[WR_ROUNDUP_ENTRIES];
    weir_status status = wr_options_parse_roundup(text, divisions);
    if (status != WEIR_OK) {
        check_refusal(status);
        return;
    }
    for (int i = 0; i < WR_ROUNDUP_ENTRIES; i++)
        must((divisions[i] & (divisions[i] - 1)) == 0, "a division is 0 or a power of two");
}

static void feed_size(const char *text)
{
    uint64_t bytes;
    if (!wr_size_parse(text, &bytes)) return;
    char buffer[WR_SIZE_TEXT];
    must(strlen(wr_size_format(bytes, buffer)) < WR_SIZE_TEXT, "a size has a text");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) return 0;
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    feed_roundup(text);
    feed_size(text);
    feed_environment(text);
    free(text);
    return 0;
}
