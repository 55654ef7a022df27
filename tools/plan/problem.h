/*
 * problem: what is planned. An arena is an address range of its own, with its blocks in the order of their allocation,
 * each with the steps of its life. A step is one allocation or one free in the arena.
 * Owner: the caller of problem_build, until problem_release. Immutable in between.
 */
#ifndef WEIR_TOOLS_PLAN_PROBLEM_H
#define WEIR_TOOLS_PLAN_PROBLEM_H

#include "script/script.h"

/* Sizes are rounded up to this, and offsets are multiples of it, as in the allocator. */
#define PLAN_ALIGNMENT ((uint64_t)512)

typedef struct arena_block {
    uint64_t bytes;      /* rounded */
    uint32_t start, end; /* live in steps [start, end) */
    uint32_t stream;     /* index into the arena's streams */
} arena_block;

typedef struct arena {
    int device;
    uint32_t pool; /* as script_stream's: 0 is the default pool */
    arena_block *blocks;
    size_t count, capacity;
    size_t residents; /* how many of the first blocks were made before the first event */
    uint32_t steps;
    uint32_t *streams; /* the script's indices, in the order of their first allocation here */
    size_t stream_count, stream_capacity;
    uint64_t total; /* bytes of all blocks */
} arena;

typedef struct problem {
    arena *arenas;
    size_t count, capacity;
    size_t devices; /* highest index + 1 */
    uint64_t hash;  /* of the sequence of allocations and frees, without addresses and times */
    uint64_t *live; /* by device: peak of the requested bytes, not rounded */
} problem;

/* Makes an arena for each pool; with `streams_apart`, one for each stream of each pool. False: error[] says what cannot
 * be planned and why, *out is empty. */
bool problem_build(const script *s, bool streams_apart, problem *out, char *error, size_t error_size);

void problem_release(problem *p);

#endif
