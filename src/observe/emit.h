/*
 * emit: writes text and JSON into the caller's buffer, as snprintf does: what does not fit is counted, not kept. No
 * allocation, no lock.
 */
#ifndef WR_OBSERVE_EMIT_H
#define WR_OBSERVE_EMIT_H

#include "base/compiler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wr_emit {
    char *buffer;
    size_t capacity; /* of the buffer, with the terminating NUL */
    size_t length;   /* of the text so far, kept or not */
    bool follows;    /* JSON: the next value needs a comma */
} wr_emit;

void wr_emit_bytes(wr_emit *e, const char *bytes, size_t count);
void wr_emit_format(wr_emit *e, const char *format, ...) WR_PRINTF(2, 3);

/* Writes the terminating NUL, over the last character when there is no room for it. */
void wr_emit_finish(wr_emit *e);

/* JSON. `key`: the name of a member; NULL in an array. Bytes of a string that are not UTF-8 become U+FFFD. */
void wr_json_open(wr_emit *e, const char *key, char bracket); /* '{' or '[' */
void wr_json_close(wr_emit *e, char bracket);                 /* '}' or ']' */
void wr_json_string(wr_emit *e, const char *key, const char *text);
void wr_json_number(wr_emit *e, const char *key, int64_t number);
void wr_json_count(wr_emit *e, const char *key, uint64_t number);

#endif
