#include "bench.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool bench_load_peer(const char *name, const char *const *libraries, const char *alloc, const char *release,
                     bench_allocator *out)
{
    for (; *libraries; libraries++) {
        void *library = dlopen(*libraries, RTLD_NOW | RTLD_LOCAL);
        if (!library) continue;
        void *a = dlsym(library, alloc), *r = dlsym(library, release);
        if (!a || !r) continue;
        *out = (bench_allocator){ .name = name };
        memcpy(&out->alloc, &a, sizeof a); /* ISO C has no cast from void * to a function pointer */
        memcpy(&out->release, &r, sizeof r);
        return true;
    }
    return false;
}

uint64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median(double *samples, size_t count)
{
    qsort(samples, count, sizeof *samples, by_value);
    return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start, *end;
    void (*work)(void *, unsigned);
    void *argument;
    unsigned number;
} worker;

static void *run_worker(void *argument)
{
    worker *w = argument;
    pthread_barrier_wait(w->start);
    w->work(w->argument, w->number);
    pthread_barrier_wait(w->end);
    return NULL;
}

uint64_t bench_run_threads(unsigned threads, void (*work)(void *, unsigned), void *argument)
{
    worker *all = calloc(threads, sizeof *all);
    pthread_barrier_t start, end;
    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        all[i] = (worker){ .start = &start, .end = &end, .work = work, .argument = argument, .number = i };
        if (pthread_create(&all[i].thread, NULL, run_worker, &all[i]) != 0) {
            perror("weir-bench: pthread_create");
            exit(1);
        }
    }
    pthread_barrier_wait(&start);
    const uint64_t began = bench_now_ns();
    pthread_barrier_wait(&end);
    const uint64_t took = bench_now_ns() - began;
    for (unsigned i = 0; i < threads; i++) pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&start);
    pthread_barrier_destroy(&end);
    free(all);
    return took;
}

unsigned bench_threads_option(const char *bench, int argc, char **argv)
{
    static const struct option options[] = { { "threads", required_argument, NULL, 't' }, { 0 } };
    long most = 2;
    for (int c; (c = getopt_long(argc, argv, "t:", options, NULL)) != -1;) {
        most = c == 't' ? strtol(optarg, NULL, 10) : 0;
        if (most >= 1 && most <= 256) continue;
        fprintf(stderr, "usage: weir-bench %s [--threads 1..256]\n", bench);
        return 0;
    }
    return (unsigned)most;
}
