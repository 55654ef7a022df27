/*
 * random_support: pseudo-random numbers, the same in each run.
 */
#ifndef WEIR_TESTS_RANDOM_SUPPORT_H
#define WEIR_TESTS_RANDOM_SUPPORT_H

#include <stdint.h>

/* 24 bits. */
static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

#endif
