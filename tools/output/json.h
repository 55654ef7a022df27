/*
 * json: output of commands for other programs.
 */
#ifndef WEIR_TOOLS_OUTPUT_JSON_H
#define WEIR_TOOLS_OUTPUT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Ends the program unless `result` is 0: jansson lacks memory. */
void json_must(int result);

/* Adds a member and takes over `value`. Ends the program when memory runs out. */
void json_add(json_t *object, const char *name, json_t *value);

/* Adds an element, likewise. */
void json_push(json_t *array, json_t *value);

/* For numbers of bytes and the like. JSON integers are signed here, so larger values become the largest one. */
json_t *json_count(uint64_t value);

/* For numbers that name something: addresses, streams, ids of pools. Those from 2^63 on are negative, as PyTorch writes
 * them. */
json_t *json_name(uint64_t value);

/* `ratio` rounded to `digits` after the point; null when it is not a number. */
json_t *json_ratio(double ratio, int digits);

/* A text of any bytes, such as a file name: invalid UTF-8 becomes U+FFFD. */
json_t *json_text(const char *text);

/* Writes `value` and a newline to the file, or to stdout for "-". A file is replaced atomically. False: the reason was
 * reported on stderr. */
bool json_write(const char *command, const json_t *value, const char *path);

#endif
