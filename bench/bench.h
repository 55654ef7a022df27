/*
 * bench: what every benchmark shares. A benchmark runs the same work on weir and on its peers, several rounds each, and
 * shows medians, with ratios to weir. Where nobody needs the device alone, peers take turns round by round.
 *
 * This process opens no device. Work on a device runs in a child, so that nothing that one benchmark or peer leaves
 * behind (contexts, loaded code, cached memory, environment) affects the next.
 */
#ifndef WEIR_BENCH_BENCH_H
#define WEIR_BENCH_BENCH_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BENCH_PEER_FILES 8
#define BENCH_THREADS_MAX 256
#define BENCH_CHILDREN_MAX 16

/* --peer FILE[,VARIABLE=VALUE] */
typedef struct bench_peer_file {
    char path[512];
    char variable[64]; /* empty: none */
    char value[128];
} bench_peer_file;

typedef struct bench_options {
    unsigned threads; /* the most; all powers of two up to it are run */
    const char *backend;
    bench_peer_file peers[BENCH_PEER_FILES];
    size_t peer_count;
    char **traces;
    size_t trace_count;
    unsigned warm_up_ms; /* tails: how long each thread works before its calls count */
} bench_options;

static inline bool bench_on_host(const bench_options *options)
{
    return strcmp(options->backend, "host") == 0;
}

/* ---- measuring ---- */

/* How long each thread works in a round, at least. Threads that stop by the clock contend to the end, and a round is
 * long compared with other activity of the machine. */
enum { BENCH_ROUND_MS = 40 };

/* xorshift: the next of 2^32 - 1 numbers, of which 0 is none. */
static inline uint32_t bench_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* 512 B to 512 KiB: one of eleven powers of two, or one of 1,024 multiples of 512 B. */
static inline size_t bench_random_power(uint32_t *state)
{
    return (size_t)512 << bench_random(state) % 11;
}

static inline size_t bench_random_multiple(uint32_t *state)
{
    return (size_t)512 * (1 + bench_random(state) % 1024);
}

/* Sorts the samples. */
double bench_median(double *samples, size_t count);

/* Runs `work(argument, thread)` on `threads` threads, started together. */
void bench_run_threads(unsigned threads, void (*work)(void *argument, unsigned thread), void *argument);

/* ---- children ---- */

/* Zeroed memory that children share with their parent; never NULL, lives as long as the process. */
void *bench_shared(size_t bytes);

/* Runs `work(argument)` in a child; false after reporting that it did not complete. */
bool bench_isolated(const char *what, void (*work)(void *argument), void *argument);

/* The same for each argument in a child of its own, all alive at once, of which one works at a time: until it calls
 * bench_pass_turn() or is done. What slows the machine for a while then slows some rounds of all, not all of one. */
bool bench_in_turns(const char *what, void (*work)(void *argument), void *const *arguments, size_t count);

/* In a child, between two rounds: returns when the others have had their turn. */
void bench_pass_turn(void);

/* ---- targets ---- */

/* Compares a figure with the project's target, its upper limit; bench_verdicts shows all comparisons. */
void bench_judge(const char *what, double figure, double limit, const char *unit);
void bench_verdicts_init(void);
void bench_verdicts(const bench_options *options);

/* ---- the benchmarks: false when one could not run ---- */

bool bench_handles(const bench_options *options);
bool bench_costs(const bench_options *options);
bool bench_alloc(const bench_options *options);
bool bench_replay(const bench_options *options);
bool bench_tails(const bench_options *options);
bool bench_many(const bench_options *options);
bool bench_history(const bench_options *options);

#endif
