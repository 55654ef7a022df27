/*
 * unsignalled: a write whose failure is an error and not the end of the program: for a pipe that nobody reads the
 * system sends SIGPIPE besides, for a file that would become larger than the process may write (ulimit -f) SIGXFSZ.
 * Both go to the thread that made the call. State: the caller's, for one call.
 */
#ifndef WR_BASE_UNSIGNALLED_H
#define WR_BASE_UNSIGNALLED_H

#include <signal.h>

typedef struct wr_unsignalled {
    sigset_t before, waiting;
} wr_unsignalled;

/* Blocks both signals in the calling thread. */
void wr_unsignalled_begin(wr_unsignalled *u);

/* With the call's errno, or 0: takes the signal away that came with it, unless one was pending already, and undoes the
 * blocking. Keeps errno. */
void wr_unsignalled_end(const wr_unsignalled *u, int error);

#endif
