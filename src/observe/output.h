/*
 * output: writes bytes to a file, through a buffer. A plain file is written under a temporary name beside it and then
 * renamed, so that a reader never sees half of one; a symbolic link stays, and the file behind it is replaced. What is
 * not a plain file (a device, a pipe) is written in place, and what is open already (/dev/stdout) where its descriptor
 * is. Owner: the caller, until it is closed or abandoned. The first failure is kept, and reported at the end.
 */
#ifndef WR_OBSERVE_OUTPUT_H
#define WR_OBSERVE_OUTPUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Not on the stack: threads may have less room than this takes. */
typedef struct wr_output {
    int descriptor;
    int error; /* errno of the first failure; 0: none */
    size_t used;
    bool ours;         /* the descriptor is closed by us */
    char target[4096]; /* what is replaced: the path, or what the link there leads to */
    char beside[4096]; /* the file's temporary name; empty: it is written in place */
    char buffer[1 << 15];
} wr_output;

/* `call` is the name for error texts, here and in wr_output_close. */
WR_CHECKED weir_status wr_output_open(const char *call, const char *path, wr_output **out);
WR_CHECKED weir_status wr_output_to(int descriptor, wr_output **out);

void wr_output_write(wr_output *out, const void *bytes, size_t count);

/* Writes valid UTF-8, wr_utf8_bytes() of it: other bytes become U+FFFD. */
void wr_output_text(wr_output *out, const char *text, size_t count);

/* Flushes the buffer and renames the file (`path` as given to open; NULL: the caller's descriptor stays open). The
 * output is gone, also on failure. */
WR_CHECKED weir_status wr_output_close(wr_output *out, const char *call, const char *path);

/* Instead of closing: removes the unfinished file. */
void wr_output_abandon(wr_output *out);

static inline void wr_output_byte(wr_output *out, unsigned char byte)
{
    if (out->used == sizeof out->buffer)
        wr_output_write(out, &byte, 1);
    else
        out->buffer[out->used++] = (char)byte;
}

#endif
