/*
 * file: an output file that replaces the old one atomically, also behind a link, which stays; "-" is stdout. A signal
 * that ends the command, or exit(), leaves nothing half-written behind.
 * Owner: the function that opened it, until output_commit or output_discard. One is open at a time.
 */
#ifndef WEIR_TOOLS_OUTPUT_FILE_H
#define WEIR_TOOLS_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct output_file {
    FILE *stream;
    const char *path; /* the caller's */
    char *target;     /* the file to replace: `path`, or what it leads to if it is a link */
    char *scratch;    /* written first, then renamed; NULL: the stream is `path` itself */
} output_file;

/* True for "-". `path` may be NULL. */
bool output_is_stdout(const char *path);

/* Whether both paths name one regular file, or would create the same one. */
bool output_is_one(const char *one, const char *other);

/* False: the reason was reported on stderr; there is nothing to discard. */
bool output_open(const char *command, const char *path, output_file *file);

/* Flushes the file and puts it in place. False after reporting why: the old file is unchanged. */
bool output_commit(const char *command, output_file *file);

void output_discard(output_file *file);

#endif
