#include "observe/settings.h"

#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LARGE_SEGMENT_MIB = 20 };

static WR_PRINTF(2, 3) void add(wr_settings *to, const char *format, ...)
{
    const size_t used = strlen(to->config);
    char *at = to->config + used;
    const size_t room = sizeof to->config - used;
    va_list arguments;
    va_start(arguments, format);
    if (used) *at = ',';
    (void)vsnprintf(at + (used != 0), room - (used != 0), format, arguments);
    va_end(arguments);
}

void wr_settings_read(const wr_options *options, wr_settings *out)
{
    const wr_option_value *value = options->value;
    /* Rounded as the policies do, to the unit of their segments. */
    const uint64_t large = wr_round_up(value[WR_OPTION_large_segment].number, 2 * WR_MIB) / WR_MIB;
    const uint64_t rounding = value[WR_OPTION_max_non_split_rounding].number;
    weir_option_info threshold;
    *out = (wr_settings){ .policy = value[WR_OPTION_policy].text,
                          .max_split_size = value[WR_OPTION_max_split_size].number,
                          .gc_threshold = value[WR_OPTION_gc_threshold].share,
                          .divisions = value[WR_OPTION_roundup_power2_divisions].text };
    (void)!wr_options_parse_roundup(out->divisions, out->roundup);
    if (large != LARGE_SEGMENT_MIB) add(out, "large_segment_size_mb:%llu", (unsigned long long)large);
    if (out->max_split_size) add(out, "max_split_size_mb:%llu", (unsigned long long)(out->max_split_size / WR_MIB));
    if (rounding)
        add(out, "max_non_split_rounding_mb:%llu", (unsigned long long)(wr_round_up(rounding, WR_MIB) / WR_MIB));
    if (out->divisions[0]) add(out, "roundup_power2_divisions:%s", out->divisions);
    if (out->gc_threshold == 0) return;
    wr_options_describe(options, WR_OPTION_gc_threshold, &threshold);
    add(out, "garbage_collection_threshold:%s", threshold.value);
}
