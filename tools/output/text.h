/*
 * text: makes text from files safe to show on a terminal. Characters that would act there instead of being seen become
 * question marks: control characters, including C1 and those that change the direction of writing, and bytes that are
 * not UTF-8.
 */
#ifndef WEIR_TOOLS_OUTPUT_TEXT_H
#define WEIR_TOOLS_OUTPUT_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Copies as much as fits with a terminating NUL, without cutting a character. Returns `to`. */
const char *text_plain(const char *text, char *to, size_t size);

/* The same for the text before `end`, but keeps its last part, after "..." if it is cut. `size` is 5 or more. */
const char *text_tail(const char *text, const char *end, char *to, size_t size);

void text_print(FILE *out, const char *text);

/* For the command's own text with such words in it, as file names. Line breaks are kept. */
void text_printf(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(FILE *out, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));

#endif
