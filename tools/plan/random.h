/*
 * random: a small generator, the same on every machine (xorshift64*). The state must not be 0.
 */
#ifndef WEIR_TOOLS_PLAN_RANDOM_H
#define WEIR_TOOLS_PLAN_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/* In [0, 1). */
static inline double random_share(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* In [0, count). */
static inline uint64_t random_below(uint64_t *state, uint64_t count)
{
    return (random_next(state) >> 32) * count >> 32;
}

/* A state for each of several independent streams of one seed; never 0. */
static inline uint64_t random_seed(uint64_t seed, uint64_t stream)
{
    uint64_t mixed = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (stream + 1) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 31) * UINT64_C(0x94d049bb133111eb);
    return mixed ? mixed : 1;
}

#endif
