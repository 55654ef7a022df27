/*
 * options: every setting once, in options.def. Read when the library opens: default < settings < environment.
 * Owner: the open library; immutable while it is open, so no lock.
 */
#ifndef WR_BASE_OPTIONS_H
#define WR_BASE_OPTIONS_H

#include "base/status.h"

#include <stdint.h>

typedef enum wr_option_source { WR_OPTION_DEFAULT, WR_OPTION_SETTINGS, WR_OPTION_ENVIRONMENT } wr_option_source;

typedef enum wr_option_id {
#define X(name, type, fallback, minimum, maximum, help) WR_OPTION_##name,
#include "base/options.def"
#undef X
    WR_OPTION_COUNT
} wr_option_id;

/* An option's value: SIZE and COUNT are in `number`, SHARE in `share`, CHOICE and TEXT in `text`. */
typedef struct wr_option_value {
    wr_option_source source;
    uint64_t number;
    double share;
    char text[128];
    char environment[40]; /* "WEIR_MEMORY_LIMIT" */
} wr_option_value;

typedef struct wr_options {
    wr_option_value value[WR_OPTION_COUNT];
} wr_options;

/* Fills all options. WEIR_ERR_OPTION names the first bad value, where it came from, its type and range. A variable that
 * starts with WEIR_ but names no option is refused too, with the nearest known name; WEIR_LIB_* are left to
 * backend/variables.h. `settings` may be NULL; it is refused if it is larger than known here and the excess is not all
 * zero. */
WR_CHECKED weir_status wr_options_read(wr_options *options, const weir_settings *settings);

/* As wr_options_read, with the environment given as an array of "NAME=value" (NULL-terminated): for tests. */
WR_CHECKED weir_status wr_options_read_from(wr_options *options, const weir_settings *settings,
                                            const char *const *environment);

/* Where a refused value came from: "WEIR_MEMORY_LIMIT", or "weir_settings". */
const char *wr_option_source_of(const wr_option_value *value);

/* Describes option `id` for weir_option_get(). */
void wr_options_describe(const wr_options *options, wr_option_id id, weir_option_info *out);

/* PyTorch's roundup_power2_divisions: one entry per power of two from 1 MiB to 64 GiB. "" is all zero. */
#define WR_ROUNDUP_ENTRIES 16
WR_CHECKED weir_status wr_options_parse_roundup(const char *text, uint32_t divisions[WR_ROUNDUP_ENTRIES]);

#endif
