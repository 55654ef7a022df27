#include "script/config.h"

#include "script/native.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MIB (UINT32_C(1) << 24) /* above any device's */

static void drop_blanks(const char *from, char *to)
{
    for (; *from; from++)
        if (!isspace((unsigned char)*from)) *to++ = *from;
    *to = '\0';
}

static bool take(const char **at, char c)
{
    if (**at != c) return false;
    (*at)++;
    return true;
}

/* Consumes a number. */
static bool take_count(const char **at, uint32_t *count)
{
    const char *first = *at;
    uint64_t number = 0;
    for (; **at >= '0' && **at <= '9' && number <= UINT32_MAX; (*at)++) number = number * 10 + (uint64_t)(**at - '0');
    *count = (uint32_t)number;
    return *at > first && number <= UINT32_MAX;
}

/* ---- divisions --------------------------------------------------------------------------------------------------- */

static unsigned log2_of(uint64_t number)
{
    return 63u - (unsigned)__builtin_clzll(number);
}

static unsigned class_of(uint64_t mib)
{
    return log2_of(mib) < CONFIG_CLASSES ? log2_of(mib) : CONFIG_CLASSES - 1;
}

static void fill(uint32_t *divisions, unsigned from, unsigned to, uint32_t value)
{
    for (unsigned i = from; i < to; i++) divisions[i] = value;
}

/* "1:4,2:8,>:4]": the first key also covers smaller sizes, '>' covers sizes above the last key; others stay off. */
static bool read_list(const char *at, uint32_t divisions[CONFIG_CLASSES])
{
    unsigned next = 0; /* the class after the last key's */
    while (!take(&at, ']')) {
        uint32_t key = 0, value;
        const bool above = take(&at, '>');
        if (!above && (!take_count(&at, &key) || key == 0)) return false;
        if (!take(&at, ':') || !take_count(&at, &value)) return false;
        if (!take(&at, ',') && *at != ']') return false;
        if (above) {
            fill(divisions, next ? next : 1, CONFIG_CLASSES, value);
            continue;
        }
        fill(divisions, next ? class_of(key) : 0, class_of(key) + 1, value);
        next = class_of(key) + 1;
    }
    return *at == '\0';
}

static bool read_divisions(const char *at, uint32_t divisions[CONFIG_CLASSES])
{
    uint32_t value;
    if (*at == '[') return read_list(at + 1, divisions);
    if (*at == '\0') return true;
    if (!take_count(&at, &value)) return false;
    fill(divisions, 0, CONFIG_CLASSES, value);
    return *at == '\0';
}

void config_roundup(const config *c, char out[CONFIG_ROUNDUP])
{
    const uint32_t *d = c->divisions;
    unsigned first = 0, last = CONFIG_CLASSES - 1;
    while (first < last && d[first + 1] == d[0]) first++;
    while (last > first && d[last - 1] == d[CONFIG_CLASSES - 1]) last--;
    if (first == last) {
        out[0] = '\0';
        if (d[0]) snprintf(out, CONFIG_ROUNDUP, "%" PRIu32, d[0]);
        return;
    }
    size_t used = 0;
    for (unsigned i = first; i < last; i++)
        used += (size_t)snprintf(out + used, CONFIG_ROUNDUP - used, "%c%u:%" PRIu32, used ? ',' : '[', 1U << i, d[i]);
    snprintf(out + used, CONFIG_ROUNDUP - used, ",>:%" PRIu32 "]", d[last]);
}

uint64_t config_round(const config *c, uint64_t bytes)
{
    if (bytes == 0) return 0;
    const uint64_t mib = bytes >> 20, floor = UINT64_C(1) << log2_of(bytes);
    const uint32_t divisions = c->divisions[mib ? class_of(mib) : 0];
    if (divisions < 2 || bytes <= NATIVE_UNIT * divisions || bytes == floor) return bytes;
    const uint64_t step = floor / divisions;
    return (bytes + step - 1) / step * step;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* Cuts "key:value" off the front; commas in brackets belong to the value. */
static char *take_pair(char **rest)
{
    char *pair = *rest, *at = pair;
    for (int depth = 0; *at && (*at != ',' || depth > 0); at++) depth += (*at == '[') - (*at == ']');
    *rest = at;
    if (*at) *(*rest)++ = '\0';
    return pair;
}

static void read_size(const char *at, uint64_t *bytes)
{
    uint32_t mib;
    if (take_count(&at, &mib) && *at == '\0' && mib && mib <= MOST_MIB) *bytes = (uint64_t)mib << 20;
}

static void read_fraction(const char *text, double *fraction)
{
    char *end;
    const double number = strtod(text, &end);
    if (end != text && *end == '\0' && number >= 0 && number <= 1) *fraction = number;
}

static void read_pair(const char *key, const char *value, config *out)
{
    if (strcmp(key, "large_segment_size_mb") == 0)
        read_size(value, &out->large_segment);
    else if (strcmp(key, "max_non_split_rounding_mb") == 0)
        read_size(value, &out->non_split_rounding);
    else if (strcmp(key, "per_process_memory_fraction") == 0)
        read_fraction(value, &out->memory_fraction);
    else if (strcmp(key, "expandable_segments") == 0)
        out->expandable |= strcmp(value, "True") == 0;
    else if (strcmp(key, "backend") == 0)
        out->other_backend = strcmp(value, "native") != 0;
}

void config_read(const trace_settings *recorded, config *out)
{
    char text[sizeof recorded->config], divisions[sizeof recorded->roundup_power2_divisions];
    const bool cut = strlen(recorded->config) + 1 == sizeof text;
    *out = (config){ .memory_fraction = 1, .expandable = recorded->expandable_segments };
    drop_blanks(recorded->roundup_power2_divisions, divisions);
    out->divisions_unread = !read_divisions(divisions, out->divisions);
    if (out->divisions_unread) fill(out->divisions, 0, CONFIG_CLASSES, 0);
    drop_blanks(recorded->config, text);
    for (char *rest = text; *rest;) {
        char *pair = take_pair(&rest), *colon = strchr(pair, ':');
        if (!colon || (cut && *rest == '\0')) continue;
        *colon = '\0';
        read_pair(pair, colon + 1, out);
    }
}
