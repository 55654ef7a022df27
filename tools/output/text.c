#include "output/text.h"

#include "grow.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The length of the UTF-8 character in bytes; 0 when it is invalid. */
static size_t decode(const unsigned char *at, uint32_t *out)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 }; /* smaller values must use a shorter form */
    const size_t bytes = *at < 0x80 ? 1 : *at < 0xc0 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf8 ? 4 : 0;
    *out = bytes < 2 ? *at : *at & (0x7fU >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        *out = *out << 6 | (at[i] & 0x3fU);
    }
    const bool surrogate = *out >= 0xd800 && *out < 0xe000;
    return bytes && *out >= least[bytes] && *out < 0x110000 && !surrogate ? bytes : 0;
}

static bool is_seen(uint32_t character)
{
    if (character < ' ' || (character >= 0x7f && character < 0xa0)) return false;
    const bool turns = (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
    return !turns;
}

/* The next character as shown; *shown is its length in bytes. */
static const char *next(const char **at, size_t *shown)
{
    uint32_t character;
    const char *from = *at;
    const size_t bytes = decode((const unsigned char *)from, &character);
    *at += bytes ? bytes : 1;
    if (bytes && is_seen(character)) {
        *shown = bytes;
        return from;
    }
    *shown = 1;
    return "?";
}

static char *copy(const char *text, const char *end, char *to, size_t size)
{
    size_t used = 0;
    while (text < end) {
        size_t bytes;
        const char *from = next(&text, &bytes);
        if (used + bytes >= size) break;
        memcpy(to + used, from, bytes);
        used += bytes;
    }
    to[used] = '\0';
    return to;
}

const char *text_plain(const char *text, char *to, size_t size)
{
    return copy(text, text + strlen(text), to, size);
}

const char *text_tail(const char *text, const char *end, char *to, size_t size)
{
    static const char cut[] = "...";
    size_t shown = 0, bytes;
    for (const char *at = text; at < end; shown += bytes) next(&at, &bytes);
    if (shown < size) return copy(text, end, to, size);
    for (; shown + sizeof cut > size; shown -= bytes) next(&text, &bytes);
    copy(text, end, mempcpy(to, cut, sizeof cut - 1), size - (sizeof cut - 1));
    return to;
}

void text_printf(FILE *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_vprintf(out, format, arguments);
    va_end(arguments);
}

void text_vprintf(FILE *out, const char *format, va_list arguments)
{
    char *text, *rest, *line;
    if (vasprintf(&text, format, arguments) < 0) grow_stop(strlen(format), 1);
    for (rest = text; (line = strsep(&rest, "\n"));) {
        text_print(out, line);
        if (rest) putc('\n', out);
    }
    free(text);
}

void text_print(FILE *out, const char *text)
{
    while (*text) {
        size_t bytes;
        const char *from = next(&text, &bytes);
        fwrite(from, 1, bytes, out);
    }
}
