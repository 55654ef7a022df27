/*
 * progress: a progress line on stderr, only when that is a terminal.
 * Owner: the function that began it, which must end it before anything else is written to stderr.
 */
#ifndef WEIR_TOOLS_OUTPUT_PROGRESS_H
#define WEIR_TOOLS_OUTPUT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool shown;
    const char *what, *name; /* the caller's, until progress_end */
    uint64_t next_ns;        /* when the line may be drawn again */
} progress;

void progress_begin(progress *p, const char *what, const char *name);

/* `total` of 0: unknown. Draws at most ten times a second. */
void progress_update(progress *p, uint64_t done, uint64_t total);

/* The same, for those who call back with a pointer of the caller's. */
void progress_on(void *p, uint64_t done, uint64_t total);

/* Erases the line. */
void progress_end(progress *p);

#endif
