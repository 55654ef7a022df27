/*
 * stress_support: shared by the threads of stress tests. Include after the cmocka headers.
 */
#ifndef WEIR_TESTS_STRESS_SUPPORT_H
#define WEIR_TESTS_STRESS_SUPPORT_H

#include "must.h"
#include "random_support.h"

#endif
