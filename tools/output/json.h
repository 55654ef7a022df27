/*
 * json: what a command says to other programs.
 */
#ifndef WEIR_TOOLS_OUTPUT_JSON_H
#define WEIR_TOOLS_OUTPUT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Adds a member; `value` is taken. Ends the program when memory is out. */
void json_add(json_t *object, const char *name, json_t *value);

/* Adds an element, likewise. */
void json_push(json_t *array, json_t *value);

/* Numbers of bytes and the like: JSON's integers are signed here, so what does not fit becomes the largest. */
json_t *json_count(uint64_t value);

/* `ratio` rounded to `digits` after the point; null when it is not a number. */
json_t *json_ratio(double ratio, int digits);

/* A text of any bytes, as file names are: what is no UTF-8 becomes U+FFFD. */
json_t *json_text(const char *text);

/* Writes `value` and a newline to the file, or to stdout for "-". A file is replaced whole or not at all. False: the
 * reason was said on stderr. */
bool json_write(const char *command, const json_t *value, const char *path);

#endif
