/*
 * bench: what every benchmark shares. A benchmark runs the same work on weir and on its peers in one process, one
 * after the other, several rounds each, and shows the median with the spread.
 */
#ifndef WEIR_BENCH_BENCH_H
#define WEIR_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocator under test. `prepare` runs once per thread before timing; NULL where there is nothing to do. */
typedef struct bench_allocator {
    const char *name;
    void (*prepare)(unsigned thread);
    void *(*alloc)(size_t bytes);
    void (*release)(void *pointer);
} bench_allocator;

/* Loads a peer's malloc and free from its library; false when the library is not installed. */
bool bench_load_peer(const char *name, const char *const *libraries, const char *alloc, const char *release,
                     bench_allocator *out);

uint64_t bench_now_ns(void);

/* Sorts the samples. */
double bench_median(double *samples, size_t count);

/* Runs `work(argument, thread)` on so many threads, started together; nanoseconds from the first start to the last
 * end. */
uint64_t bench_run_threads(unsigned threads, void (*work)(void *argument, unsigned thread), void *argument);

/* The most threads to run, from --threads N (2 without); 0, with a message, for bad options. */
unsigned bench_threads_option(const char *bench, int argc, char **argv);

/* Commands of weir-bench: exit code as main's. */
int bench_alloc(int argc, char **argv);
int bench_handles(int argc, char **argv);

#endif
