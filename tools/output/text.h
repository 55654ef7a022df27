/*
 * text: words that came out of a file, as people may see them on a terminal. What would do something there instead of
 * being seen becomes a question mark: control characters, C1's and those that turn the direction of writing included,
 * and bytes that are no UTF-8.
 */
#ifndef WEIR_TOOLS_OUTPUT_TEXT_H
#define WEIR_TOOLS_OUTPUT_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* As much as fits with its end; no character is cut. Returns `to`. */
const char *text_plain(const char *text, char *to, size_t size);

/* Likewise of what lies before `end`, but as much of its end as fits, "..." before it. `size` is 5 or more. */
const char *text_tail(const char *text, const char *end, char *to, size_t size);

void text_print(FILE *out, const char *text);

/* Text of the command's own with such words in it, as names of files; its lines stay lines. */
void text_printf(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(FILE *out, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));

#endif
