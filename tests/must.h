/*
 * must: a check for any thread and any program, with NDEBUG too; cmocka's assertions work only in the main thread.
 */
#ifndef WEIR_TESTS_MUST_H
#define WEIR_TESTS_MUST_H

#include "weir/weir.h"

#include <stdio.h>
#include <stdlib.h>

#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, weir_error_text());                     \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
