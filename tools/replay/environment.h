/*
 * environment: keeps variables from the library while it opens, which reads them once. Later sessions, and all else in
 * the process, find them as they were.
 * Owner: the caller, between the first environment_hide and environment_restore. One thread.
 */
#ifndef WEIR_TOOLS_REPLAY_ENVIRONMENT_H
#define WEIR_TOOLS_REPLAY_ENVIRONMENT_H

#include <stddef.h>

typedef struct environment {
    char **hidden; /* NAME=VALUE */
    size_t count, capacity;
} environment;

/* A variable that is not set is left so. */
void environment_hide(environment *e, const char *name);

/* All of the library's options, but for what it logs. */
void environment_hide_options(environment *e);

void environment_restore(environment *e);

#endif
