/*
 * utf8: turns text of any bytes, such as file names, into valid UTF-8, or into what a terminal shows. No state.
 */
#ifndef WR_BASE_UTF8_H
#define WR_BASE_UTF8_H

#include <stddef.h>

/* The next character of the text from *at to `end`, which is not empty, in valid UTF-8; moves *at past it. *length: its
 * bytes, at most 4. A byte that begins no character becomes U+FFFD: so each byte does of what is cut off, overlong, a
 * surrogate or beyond Unicode. */
const char *wr_utf8_next(const char **at, const char *end, size_t *length);

/* Bytes of the whole text in valid UTF-8. */
size_t wr_utf8_bytes(const char *text, size_t count);

/* Makes text that quotes others safe to show on a terminal, in place: what would act there instead of being seen, and
 * each byte that is not UTF-8, becomes a question mark. Line breaks stay. */
void wr_utf8_plain(char *text);

/* How many of the first `count` bytes of UTF-8 remain without a character that was cut in two at the end. */
size_t wr_utf8_whole(const char *text, size_t count);

#endif
