/*
 * stress_support: shared by the threads of stress tests. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_STRESS_SUPPORT_H
#define WEIR_TESTS_STRESS_SUPPORT_H

#include "random_support.h"
#include "weir/weir.h"

#include <stdio.h>
#include <stdlib.h>

/* cmocka's assertions work only in the main thread. */
#define must(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, weir_error_text());                     \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
