/*
 * utf8: text of any bytes, as file names are, for readers that insist on UTF-8. No state.
 */
#ifndef WR_BASE_UTF8_H
#define WR_BASE_UTF8_H

#include <stddef.h>

/* What stands for the next character of the text from *at to `end`, which is not empty, and goes past it; *length: its
 * bytes, at most 4. That is the character itself, and U+FFFD for a byte that begins none: what is cut off, overlong, a
 * surrogate's or beyond Unicode becomes one for each of its bytes. */
const char *wr_utf8_next(const char **at, const char *end, size_t *length);

/* What stands for all of it, in bytes. */
size_t wr_utf8_bytes(const char *text, size_t count);

/* How many bytes of UTF-8 that was cut after `count` are left without a character that was cut in two. */
size_t wr_utf8_whole(const char *text, size_t count);

#endif
