#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

static bool is_between(char byte, unsigned first, unsigned last)
{
    return (unsigned char)byte >= first && (unsigned char)byte <= last;
}

/* Bytes of a character with this first byte; 0: none begins so. */
static size_t length_by(char first)
{
    if (is_between(first, 0, 0x7F)) return 1;
    if (is_between(first, 0xC2, 0xDF)) return 2; /* 0xC0 and 0xC1 would be overlong */
    if (is_between(first, 0xE0, 0xEF)) return 3;
    return is_between(first, 0xF0, 0xF4) ? 4 : 0;
}

/* The second byte shows whether the character is overlong, a surrogate or beyond U+10FFFF. */
static bool can_follow(char second, char first)
{
    const unsigned lead = (unsigned char)first;
    return is_between(second,
                      lead == 0xE0   ? 0xA0
                      : lead == 0xF0 ? 0x90
                                     : 0x80,
                      lead == 0xED   ? 0x9F
                      : lead == 0xF4 ? 0x8F
                                     : 0xBF);
}

/* Bytes of the character at `text`; 0: none begins there. */
static size_t length_at(const char *text, size_t count)
{
    const size_t length = length_by(text[0]);
    if (length > count || (length > 1 && !can_follow(text[1], text[0]))) return 0;
    for (size_t i = 2; i < length; i++)
        if (!is_between(text[i], 0x80, 0xBF)) return 0;
    return length;
}

const char *wr_utf8_next(const char **at, const char *end, size_t *length)
{
    const char *text = *at;
    *length = length_at(text, (size_t)(end - text));
    *at += *length ? *length : 1;
    if (*length) return text;
    *length = sizeof replacement - 1;
    return replacement;
}

size_t wr_utf8_bytes(const char *text, size_t count)
{
    const char *end = text + count;
    size_t whole = 0, bytes;
    for (; text != end; whole += bytes) (void)wr_utf8_next(&text, end, &bytes);
    return whole;
}

size_t wr_utf8_whole(const char *text, size_t count)
{
    size_t back = 1;
    while (back < 4 && back < count && is_between(text[count - back], 0x80, 0xBF)) back++;
    return count && length_by(text[count - back]) > back ? count - back : count;
}

/* Control characters, C1 among them, and those that change the direction of writing. */
static bool acts(const char *character)
{
    const char *c = character;
    if (is_between(c[0], 0, 0x1F)) return c[0] != '\n';
    if (c[0] == '\x7F') return true;
    if (c[0] == '\xC2') return is_between(c[1], 0x80, 0x9F);
    if (c[0] != '\xE2') return false;
    return (c[1] == '\x80' && is_between(c[2], 0xAA, 0xAE)) || (c[1] == '\x81' && is_between(c[2], 0xA6, 0xA9));
}

void wr_utf8_plain(char *text)
{
    const char *end = text + strlen(text);
    char *to = text;
    for (const char *at = text; at != end;) {
        size_t bytes;
        const char *from = wr_utf8_next(&at, end, &bytes);
        if (from == replacement || acts(from)) {
            *to++ = '?';
            continue;
        }
        memmove(to, from, bytes);
        to += bytes;
    }
    *to = '\0';
}
