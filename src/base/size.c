#include "base/size.h"

#include "base/ascii.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t') at++;
    return at;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Bytes of the unit at the end of the text, 0 when it is not a unit: "", "b", or k, m, g, t with "", "b", "i" or
 * "ib". */
static uint64_t parse_unit(const char *at)
{
    static const char letters[] = "kmgt";
    uint64_t unit = 1;
    char lower = wr_ascii_lower(*at);
    const char *letter = lower != '\0' ? strchr(letters, lower) : NULL;

    if (letter != NULL) {
        unit = (uint64_t)1 << (10 * (letter - letters + 1));
        at++;
        if (*at == 'i' || *at == 'I') at++;
    }
    if (*at == 'b' || *at == 'B') at++;
    return *skip_blanks(at) == '\0' ? unit : 0;
}

bool wr_size_parse(const char *text, uint64_t *bytes)
{
    const char *at = skip_blanks(text);
    if (!is_digit(*at)) return false;

    uint64_t whole = 0;
    for (; is_digit(*at); at++) {
        if (__builtin_mul_overflow(whole, 10, &whole)) return false;
        if (__builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole)) return false;
    }
    const char *point = at;
    if (*at == '.') {
        at++;
        if (!is_digit(*at)) return false;
        while (is_digit(*at)) at++;
    }

    uint64_t unit = parse_unit(skip_blanks(at));
    if (unit == 0) return false;
    if (unit == 1 && *point == '.') return false; /* no fractions of a byte */

    uint64_t fraction = 0; /* from the last digit to the first, rounding down: exact, unlike floating point */
    for (const char *digit = at - 1; digit > point; digit--)
        fraction = (fraction + (uint64_t)(*digit - '0') * unit) / 10;

    if (__builtin_mul_overflow(whole, unit, &whole)) return false;
    if (__builtin_add_overflow(whole, fraction, &whole)) return false;
    *bytes = whole;
    return true;
}

/* Two decimals, rounded half to even like printf; not by printf, whose decimal point follows the locale. */
static void format_in(uint64_t bytes, uint64_t unit, const char *name, char buffer[WR_SIZE_TEXT])
{
    uint64_t whole = bytes / unit;
    uint64_t scaled = bytes % unit * 100;
    uint64_t hundredths = scaled / unit;
    uint64_t rest = scaled % unit;

    if (rest * 2 > unit || (rest * 2 == unit && hundredths % 2 == 1)) hundredths++;
    if (hundredths == 100) {
        hundredths = 0;
        whole++;
    }
    snprintf(buffer, WR_SIZE_TEXT, "%" PRIu64 ".%02u %s", whole, (unsigned)hundredths, name);
}

/* As in PyTorch, a unit begins only above its power: 1 MiB is "1024.00 KiB". */
const char *wr_size_format(uint64_t bytes, char buffer[WR_SIZE_TEXT])
{
    if (bytes <= WR_KIB)
        snprintf(buffer, WR_SIZE_TEXT, "%" PRIu64 " bytes", bytes);
    else if (bytes <= WR_MIB)
        format_in(bytes, WR_KIB, "KiB", buffer);
    else if (bytes <= WR_GIB)
        format_in(bytes, WR_MIB, "MiB", buffer);
    else
        format_in(bytes, WR_GIB, "GiB", buffer);
    return buffer;
}
