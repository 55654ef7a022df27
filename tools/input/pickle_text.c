#include "pickle_text.h"

#include <stdlib.h>
#include <string.h>

bool pickle_text_number(const uint8_t *text, size_t length, pickle_value *out, bool *wide)
{
    bool negative = length > 0 && text[0] == '-';
    size_t at = length > 0 && (text[0] == '-' || text[0] == '+');
    if (at == length) return false;

    uint64_t magnitude = 0;
    bool overflow = false;
    for (; at < length; at++) {
        unsigned digit = (unsigned)text[at] - '0';
        if (digit > 9) return false;
        overflow |= __builtin_mul_overflow(magnitude, (uint64_t)10, &magnitude);
        overflow |= __builtin_add_overflow(magnitude, (uint64_t)digit, &magnitude);
    }
    *wide = overflow || (negative && magnitude > (uint64_t)INT64_MAX + 1);
    if (*wide) return true;
    if (!negative && magnitude > INT64_MAX) {
        *out = (pickle_value){ .type = PICKLE_UINT, .big = magnitude };
        return true;
    }
    *out = (pickle_value){ .type = PICKLE_INT, .number = (int64_t)(negative ? 0 - magnitude : magnitude) };
    return true;
}

bool pickle_text_float(const uint8_t *text, size_t length, double *out)
{
    char copy[64];
    if (length == 0 || length >= sizeof copy) return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *end;
    *out = strtod(copy, &end);
    return end == copy + length;
}

/* The value of exactly `digits` hexadecimal digits. */
static bool hex_digits(const uint8_t *text, size_t left, size_t digits, uint32_t *out)
{
    if (left < digits) return false;
    uint32_t value = 0;
    for (size_t i = 0; i < digits; i++) {
        uint8_t c = text[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            value = value << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

static size_t put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

bool pickle_text_unicode(const uint8_t *text, size_t length, char *to, size_t *to_length)
{
    size_t written = 0;
    for (size_t at = 0; at < length;) {
        uint32_t code = text[at++]; /* Latin-1 unless escaped; a lone backslash stands for itself */
        if (code == '\\' && at < length && (text[at] == 'u' || text[at] == 'U')) {
            size_t digits = text[at] == 'u' ? 4 : 8;
            if (!hex_digits(text + at + 1, length - at - 1, digits, &code) || code > 0x10ffff) return false;
            at += 1 + digits;
        }
        written += put_utf8(to + written, code);
    }
    *to_length = written;
    return true;
}

/* What a one-letter escape stands for; 0: not an escape. */
static char simple_escape(uint8_t letter)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *found = letter ? strchr(letters, letter) : NULL;
    return found ? values[found - letters] : '\0';
}

bool pickle_text_quoted(const uint8_t *text, size_t length, char *to, size_t *to_length)
{
    if (length < 2 || (text[0] != '\'' && text[0] != '"') || text[length - 1] != text[0]) return false;
    size_t written = 0;
    for (size_t at = 1; at < length - 1;) {
        uint8_t c = text[at++];
        if (c == '\\') {
            if (at == length - 1) return false;
            c = text[at++];
            uint32_t code;
            if (c == 'x') {
                if (!hex_digits(text + at, length - 1 - at, 2, &code)) return false;
                at += 2;
                c = (uint8_t)code;
            } else if (!(c = (uint8_t)simple_escape(c))) {
                return false;
            }
        }
        to[written++] = (char)c;
    }
    *to_length = written;
    return true;
}
