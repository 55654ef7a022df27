/*
 * file: an output file that replaces the old one whole or not at all, also behind a link, which stays; "-" is stdout.
 * A signal that ends the command leaves nothing half-written behind.
 * Owner: the function that opened it, until output_commit or output_discard. One is open at a time.
 */
#ifndef WEIR_TOOLS_OUTPUT_FILE_H
#define WEIR_TOOLS_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct output_file {
    FILE *stream;
    const char *path; /* the caller's */
    char *target;     /* what is replaced: `path`, or what it leads to if it is a link */
    char *scratch;    /* written first, then renamed; NULL: the stream is `path` itself */
} output_file;

/* True for "-". NULL is no file. */
bool output_is_stdout(const char *path);

/* False: the reason was said on stderr; there is nothing to discard. */
bool output_open(const char *command, const char *path, output_file *file);

/* Flushes and puts the file in place. False, having said why: the old file is as it was. */
bool output_commit(const char *command, output_file *file);

void output_discard(output_file *file);

#endif
