#include "base/options.h"

#include "base/ascii.h"
#include "base/edits.h"
#include "base/size.h"
#include "base/sized.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef enum option_type { TYPE_SIZE, TYPE_COUNT, TYPE_SHARE, TYPE_CHOICE, TYPE_TEXT } option_type;

/* A row of options.def; `minimum` and `maximum` are written like values. */
typedef struct option {
    const char *name;
    option_type type;
    const char *fallback, *minimum, *maximum, *help;
    size_t member; /* offset in weir_settings */
} option;

static const option table[WR_OPTION_COUNT] = {
#define X(name, type, fallback, minimum, maximum, help)                                                                \
    { #name, TYPE_##type, fallback, minimum, maximum, help, offsetof(weir_settings, name) },
#include "base/options.def"
#undef X
};

static bool parse_count(const char *text, uint64_t *count)
{
    uint64_t number = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(number, 10, &number)) return false;
        if (__builtin_add_overflow(number, (uint64_t)(*text - '0'), &number)) return false;
    }
    *count = number;
    return true;
}

/* "0.8", ".8", "1". Not by strtod, whose decimal point follows the locale. */
static bool parse_share(const char *text, double *share)
{
    double number = 0, scale = 1;
    bool digits = false, point = false;
    for (; *text != '\0'; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9') return false;
        digits = true;
        number = number * 10 + (*text - '0');
        if (point) scale *= 10;
        if (number > 1e15 || scale > 1e15) return false; /* beyond what a double holds exactly */
    }
    if (!digits) return false;
    *share = number / scale;
    return true;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (const char *word = choices; word != NULL; word = strchr(word, '|')) {
        if (*word == '|') word++;
        if (strcspn(word, "|") == length && strncmp(word, text, length) == 0) return true;
    }
    return false;
}

static bool number_in_range(const option *o, uint64_t number)
{
    uint64_t minimum = 0, maximum = 0;
    return wr_size_parse(o->minimum, &minimum) && wr_size_parse(o->maximum, &maximum) && number >= minimum &&
           number <= maximum;
}

static bool share_in_range(const option *o, double share)
{
    double minimum = 0, maximum = 0;
    return parse_share(o->minimum, &minimum) && parse_share(o->maximum, &maximum) && share >= minimum &&
           share <= maximum;
}

/* False when the text is not of the option's type or out of its range. */
static bool parse_value(const option *o, const char *text, wr_option_value *value)
{
    switch (o->type) {
    case TYPE_SIZE: return wr_size_parse(text, &value->number) && number_in_range(o, value->number);
    case TYPE_COUNT: return parse_count(text, &value->number) && number_in_range(o, value->number);
    case TYPE_SHARE: return parse_share(text, &value->share) && share_in_range(o, value->share);
    case TYPE_CHOICE:
        if (!is_choice(o->maximum, text)) return false;
        break;
    case TYPE_TEXT: break;
    }
    return (size_t)snprintf(value->text, sizeof value->text, "%s", text) < sizeof value->text;
}

const char *wr_option_source_of(const wr_option_value *value)
{
    return value->source == WR_OPTION_ENVIRONMENT ? value->environment : "weir_settings";
}

WR_CHECKED static weir_status refuse(const option *o, const wr_option_value *value, const char *found)
{
    const char *from = wr_option_source_of(value);
    switch (o->type) {
    case TYPE_SIZE:
        return wr_fail(WEIR_ERR_OPTION,
                       "option %s: \"%s\" from %s is not valid; give a size such as 4096, 512KiB, 20MiB or 1.5GiB, "
                       "from %s to %s",
                       o->name, found, from, o->minimum, o->maximum);
    case TYPE_COUNT:
        return wr_fail(WEIR_ERR_OPTION, "option %s: \"%s\" from %s is not valid; give a whole number from %s to %s",
                       o->name, found, from, o->minimum, o->maximum);
    case TYPE_SHARE:
        return wr_fail(WEIR_ERR_OPTION,
                       "option %s: \"%s\" from %s is not valid; give a share such as 0.8, from %s to %s", o->name,
                       found, from, o->minimum, o->maximum);
    case TYPE_CHOICE:
        return wr_fail(WEIR_ERR_OPTION, "option %s: \"%.100s\" from %s is not valid; give one of %s", o->name, found,
                       from, o->maximum);
    case TYPE_TEXT: break;
    }
    return wr_fail(WEIR_ERR_OPTION, "option %s: \"%.100s\" from %s is too long; give at most %zu characters", o->name,
                   found, from, sizeof value->text - 1);
}

WR_CHECKED static weir_status set_text(const option *o, const char *text, wr_option_value *value)
{
    if (!parse_value(o, text, value)) return refuse(o, value, text);
    if (o != &table[WR_OPTION_roundup_power2_divisions]) return WEIR_OK;

    uint32_t divisions[WR_ROUNDUP_ENTRIES];
    weir_status status = wr_options_parse_roundup(text, divisions);
    if (status != WEIR_OK) wr_fail_prefix("option %s: \"%s\" from %s: ", o->name, text, wr_option_source_of(value));
    return status;
}

WR_CHECKED static weir_status read_defaults(wr_options *options)
{
    for (int id = 0; id < WR_OPTION_COUNT; id++) {
        wr_option_value *value = &options->value[id];
        *value = (wr_option_value){ .source = WR_OPTION_DEFAULT };
        snprintf(value->environment, sizeof value->environment, "WEIR_%s", table[id].name);
        for (char *c = value->environment; *c != '\0'; c++) *c = wr_ascii_upper(*c);
        WR_TRY(set_text(&table[id], table[id].fallback, value));
    }
    return WEIR_OK;
}

WR_CHECKED static weir_status read_number_member(const option *o, const void *member, wr_option_value *value)
{
    uint64_t number;
    memcpy(&number, member, sizeof number);
    if (number == 0) return WEIR_OK;

    char found[24];
    snprintf(found, sizeof found, "%" PRIu64, number);
    value->source = WR_OPTION_SETTINGS;
    value->number = number;
    return number_in_range(o, number) ? WEIR_OK : refuse(o, value, found);
}

WR_CHECKED static weir_status read_share_member(const option *o, const void *member, wr_option_value *value)
{
    double share;
    memcpy(&share, member, sizeof share);
    if (share == 0) return WEIR_OK;

    char found[32];
    snprintf(found, sizeof found, "%g", share);
    char *comma = strchr(found, ','); /* of some locales */
    if (comma) *comma = '.';
    value->source = WR_OPTION_SETTINGS;
    value->share = share;
    return share_in_range(o, share) ? WEIR_OK : refuse(o, value, found);
}

WR_CHECKED static weir_status read_text_member(const option *o, const void *member, wr_option_value *value)
{
    const char *text;
    memcpy(&text, member, sizeof text);
    if (text == NULL) return WEIR_OK;
    value->source = WR_OPTION_SETTINGS;
    return set_text(o, text, value);
}

/* A program built against an older weir.h gives fewer members, one built against a newer weir.h more. None gives no
 * member at all: that is the size of a pointer to the structure, set by mistake. */
WR_CHECKED static weir_status check_settings_size(const weir_settings *settings)
{
    WR_ENSURE(settings->size > offsetof(weir_settings, backend) && settings->size % sizeof(uint64_t) == 0 &&
                  settings->size <= sizeof *settings + WR_SIZED_MORE_MAX,
              WEIR_ERR_OPTION,
              "weir_settings.size is %zu, which is not its size in any version; initialise it with WEIR_SETTINGS_INIT",
              settings->size);
    const size_t unknown = wr_sized_unknown(settings, settings->size, sizeof *settings);
    WR_ENSURE(unknown == 0, WEIR_ERR_OPTION,
              "weir_settings sets a member at byte %zu that this version of weir (%zu bytes) does not know; leave it "
              "zero or use a newer weir",
              unknown, sizeof *settings);
    return WEIR_OK;
}

WR_CHECKED static weir_status read_settings(wr_options *options, const weir_settings *settings)
{
    if (settings == NULL) return WEIR_OK;
    WR_TRY(check_settings_size(settings));

    for (int id = 0; id < WR_OPTION_COUNT; id++) {
        const option *o = &table[id];
        const char *member = (const char *)settings + o->member;
        wr_option_value *value = &options->value[id];
        if (o->member + sizeof(uint64_t) > settings->size) continue; /* every member has this size */

        switch (o->type) {
        case TYPE_SIZE:
        case TYPE_COUNT: WR_TRY(read_number_member(o, member, value)); break;
        case TYPE_SHARE: WR_TRY(read_share_member(o, member, value)); break;
        case TYPE_CHOICE:
        case TYPE_TEXT: WR_TRY(read_text_member(o, member, value)); break;
        }
    }
    return WEIR_OK;
}

WR_CHECKED static weir_status refuse_unknown(const wr_options *options, const char *name, size_t length)
{
    int nearest = 0;
    size_t least = SIZE_MAX;
    for (int id = 0; id < WR_OPTION_COUNT; id++) {
        size_t edits = wr_edits(name, length, options->value[id].environment);
        if (edits >= least) continue;
        least = edits;
        nearest = id;
    }
    return wr_fail(WEIR_ERR_OPTION,
                   "environment variable %.*s is not an option of weir; the nearest is %s; rename or unset it",
                   length < 100 ? (int)length : 100, name, options->value[nearest].environment);
}

WR_CHECKED static weir_status read_variable(wr_options *options, const char *variable)
{
    size_t length = strcspn(variable, "=");
    const char *text = variable[length] == '=' ? variable + length + 1 : "";

    for (int id = 0; id < WR_OPTION_COUNT; id++) {
        wr_option_value *value = &options->value[id];
        if (strlen(value->environment) != length || strncmp(value->environment, variable, length) != 0) continue;
        value->source = WR_OPTION_ENVIRONMENT;
        return set_text(&table[id], text, value);
    }
    return refuse_unknown(options, variable, length);
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Variables that others read: weir's back ends, the Python package, CMake and module systems; and those that Kubernetes
 * sets in each pod beside a service called "weir" (its page on services, "Environment variables"). */
static bool is_of_others(const char *variable)
{
    static const char *const begin[] = { "WEIR_LIB_",  "WEIR_LIBRARY=", "WEIR_ROOT=", "WEIR_DIR=",
                                         "WEIR_HOME=", "WEIR_SERVICE_", "WEIR_PORT=", "WEIR_PORT_" };
    for (size_t i = 0; i < sizeof begin / sizeof begin[0]; i++)
        if (starts_with(variable, begin[i])) return true;
    return false;
}

weir_status wr_options_read_from(wr_options *options, const weir_settings *settings, const char *const *environment)
{
    wr_options read;
    WR_TRY(read_defaults(&read));
    WR_TRY(read_settings(&read, settings));
    for (; environment != NULL && *environment != NULL; environment++) { /* environ is NULL after clearenv() */
        if (!starts_with(*environment, "WEIR_") || is_of_others(*environment)) continue;
        WR_TRY(read_variable(&read, *environment));
    }
    *options = read;
    return WEIR_OK;
}

weir_status wr_options_read(wr_options *options, const weir_settings *settings)
{
    return wr_options_read_from(options, settings, (const char *const *)environ);
}

/* In the largest unit that divides it, so that reading the text back gives the same number. */
static void describe_size(uint64_t bytes, char *out, size_t room)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, room, "%" PRIu64 "%s", bytes, units[unit]);
}

/* Six decimals at most, whatever the locale. */
static void describe_share(double share, char *out, size_t room)
{
    uint64_t millionths = (uint64_t)(share * 1e6 + 0.5);
    int length = snprintf(out, room, "%" PRIu64 ".%06" PRIu64, millionths / 1000000, millionths % 1000000);
    while (out[length - 1] == '0') out[--length] = '\0';
    if (out[length - 1] == '.') out[length - 1] = '\0';
}

void wr_options_describe(const wr_options *options, wr_option_id id, weir_option_info *out)
{
    static const char *const sources[] = { "default", "settings", "environment" };
    const wr_option_value *value = &options->value[id];

    out->name = table[id].name;
    out->environment = value->environment;
    out->help = table[id].help;
    out->source = sources[value->source];
    switch (table[id].type) {
    case TYPE_SIZE: describe_size(value->number, out->value, sizeof out->value); break;
    case TYPE_COUNT: snprintf(out->value, sizeof out->value, "%" PRIu64, value->number); break;
    case TYPE_SHARE: describe_share(value->share, out->value, sizeof out->value); break;
    case TYPE_CHOICE:
    case TYPE_TEXT: snprintf(out->value, sizeof out->value, "%s", value->text); break;
    }
}

/* PyTorch drops all white space first. False: too long. */
static bool drop_blanks(const char *text, char *out, size_t room)
{
    size_t length = 0;
    for (; *text != '\0'; text++) {
        if (isspace((unsigned char)*text)) continue;
        if (length + 1 == room) return false;
        out[length++] = *text;
    }
    out[length] = '\0';
    return true;
}

/* Parses a number at *at and moves *at past it. */
static bool take_number(const char **at, uint32_t *number)
{
    uint32_t value = 0;
    if (**at < '0' || **at > '9') return false;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (__builtin_mul_overflow(value, 10, &value)) return false;
        if (__builtin_add_overflow(value, (uint32_t)(**at - '0'), &value)) return false;
    }
    *number = value;
    return true;
}

static bool take(const char **at, char c)
{
    if (**at != c) return false;
    (*at)++;
    return true;
}

static bool is_power_of_two(uint32_t number)
{
    return number != 0 && (number & (number - 1)) == 0;
}

static void fill(uint32_t *divisions, int from, int to, uint32_t value)
{
    for (int i = from; i < to; i++) divisions[i] = value;
}

WR_CHECKED static weir_status take_division(const char **at, uint32_t *division)
{
    WR_ENSURE(take_number(at, division) && (*division == 0 || is_power_of_two(*division)), WEIR_ERR_OPTION,
              "divisions must be 0 or a power of two, as in 4 or [256:1,512:2,>:4]");
    return WEIR_OK;
}

/* The rest of "[256:1,512:2,>:4]" after the bracket. The first key covers smaller sizes too, '>' those above the last
 * key. */
WR_CHECKED static weir_status parse_list(const char *at, uint32_t divisions[WR_ROUNDUP_ENTRIES])
{
    int last = -1; /* entry of the last key */
    while (!take(&at, ']')) {
        bool above = take(&at, '>');
        uint32_t megabytes = 1, division;
        WR_ENSURE(above || (take_number(&at, &megabytes) && is_power_of_two(megabytes)), WEIR_ERR_OPTION,
                  "keys must be '>' or a power of two of MiB, as in [256:1,512:2,>:4]");
        WR_ENSURE(take(&at, ':'), WEIR_ERR_OPTION, "a ':' is missing after a key, as in [256:1,512:2,>:4]");
        WR_TRY(take_division(&at, &division));
        WR_ENSURE(take(&at, ',') || *at == ']', WEIR_ERR_OPTION,
                  "a ',' or ']' is missing after an entry, as in [256:1,512:2,>:4]");

        if (above) {
            fill(divisions, last < 0 ? 1 : last + 1, WR_ROUNDUP_ENTRIES, division);
            continue;
        }
        int entry = 31 - __builtin_clz(megabytes);
        if (entry > WR_ROUNDUP_ENTRIES - 1) entry = WR_ROUNDUP_ENTRIES - 1;
        fill(divisions, last < 0 ? 0 : entry, entry + 1, division);
        last = entry;
    }
    WR_ENSURE(*at == '\0', WEIR_ERR_OPTION, "\"%s\" is left over after the list", at);
    return WEIR_OK;
}

weir_status wr_options_parse_roundup(const char *text, uint32_t divisions[WR_ROUNDUP_ENTRIES])
{
    uint32_t parsed[WR_ROUNDUP_ENTRIES] = { 0 };
    char dense[sizeof((wr_option_value *)0)->text];
    WR_ENSURE(drop_blanks(text, dense, sizeof dense), WEIR_ERR_OPTION, "longer than %zu characters", sizeof dense - 1);

    const char *at = dense;
    if (take(&at, '[')) {
        WR_TRY(parse_list(at, parsed));
    } else if (*at != '\0') {
        uint32_t division;
        WR_TRY(take_division(&at, &division));
        WR_ENSURE(*at == '\0', WEIR_ERR_OPTION, "\"%s\" is left over after the number; write a list in brackets", at);
        fill(parsed, 0, WR_ROUNDUP_ENTRIES, division);
    }
    memcpy(divisions, parsed, sizeof parsed);
    return WEIR_OK;
}
