/*
 * output: bytes into a file, through a buffer. A file named by a path, also by a link, which stays, is written beside
 * it and renamed, so that a reader never meets half of one; what is no plain file (a device, a pipe) is written as it
 * is. Owner: the caller, on its stack. The first failure is kept, and told at the end.
 */
#ifndef WR_OBSERVE_OUTPUT_H
#define WR_OBSERVE_OUTPUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct wr_output {
    int descriptor;
    int error; /* errno of the first failure; 0: none */
    size_t used;
    bool ours;         /* the descriptor */
    char target[4096]; /* what is replaced: the path, or what it leads to if it is a link */
    char beside[4096]; /* the file's name until it is complete; empty: it is written in its place */
    char buffer[1 << 15];
} wr_output;

/* `call` is for the messages of both. */
WR_CHECKED weir_status wr_output_open(wr_output *out, const char *call, const char *path);
void wr_output_to(wr_output *out, int descriptor);

void wr_output_write(wr_output *out, const void *bytes, size_t count);

/* What is no UTF-8 becomes U+FFFD: wr_utf8_bytes() in all. */
void wr_output_text(wr_output *out, const char *text, size_t count);

/* Writes what is left and puts the file in its place (`path` as given to open; NULL: the caller's descriptor stays open). */
WR_CHECKED weir_status wr_output_close(wr_output *out, const char *call, const char *path);

/* Instead: what there is of the file goes. */
void wr_output_abandon(wr_output *out);

static inline void wr_output_byte(wr_output *out, unsigned char byte)
{
    if (out->used == sizeof out->buffer)
        wr_output_write(out, &byte, 1);
    else
        out->buffer[out->used++] = (char)byte;
}

#endif
