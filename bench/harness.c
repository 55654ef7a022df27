#include "bench.h"

#include "output/table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/* ---- threads ------------------------------------------------------------------------------------------------------ */

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    void (*work)(void *, unsigned);
    void *argument;
    unsigned number;
} worker;

static void *run_worker(void *argument)
{
    worker *w = argument;
    pthread_barrier_wait(w->start);
    w->work(w->argument, w->number);
    return NULL;
}

void bench_run_threads(unsigned threads, void (*work)(void *, unsigned), void *argument)
{
    worker all[BENCH_THREADS_MAX];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        all[i] = (worker){ .start = &start, .work = work, .argument = argument, .number = i };
        if (pthread_create(&all[i].thread, NULL, run_worker, &all[i]) != 0) {
            perror("weir-bench: pthread_create");
            exit(1);
        }
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&start);
}

/* ---- children ----------------------------------------------------------------------------------------------------- */

void *bench_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) return memory;
    perror("weir-bench: mmap");
    exit(1);
}

bool bench_isolated(const char *what, void (*work)(void *), void *argument)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        work(argument);
        fflush(NULL);
        _exit(0); /* skips the exit handlers of drivers and peers */
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("weir-bench: fork");
        return false;
    }
    if (WIFSIGNALED(status)) fprintf(stderr, "weir-bench: %s was ended by signal %d\n", what, WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status)) fprintf(stderr, "weir-bench: %s failed\n", what);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- targets ------------------------------------------------------------------------------------------------------ */

enum { VERDICTS_MAX = 64 };

typedef struct verdict {
    char what[96], unit[16];
    double figure, limit;
} verdict;

/* Shared: children add to it, one at a time. */
static struct verdicts {
    size_t count;
    verdict at[VERDICTS_MAX];
} *verdicts;

void bench_verdicts_init(void)
{
    verdicts = bench_shared(sizeof *verdicts);
}

void bench_judge(const char *what, double figure, double limit, const char *unit)
{
    if (verdicts->count == VERDICTS_MAX) return;
    verdict *v = &verdicts->at[verdicts->count++];
    v->figure = figure;
    v->limit = limit;
    snprintf(v->what, sizeof v->what, "%s", what);
    snprintf(v->unit, sizeof v->unit, "%s", unit);
}

void bench_verdicts(const bench_options *options)
{
    static const char *const titles[] = { "TARGET", "AT MOST", "MEASURED", "UNIT", "" };
    if (verdicts->count == 0) return;
    table t;
    table_init(&t, "lrrll");
    table_titles(&t, titles);
    for (size_t i = 0; i < verdicts->count; i++) {
        const verdict *v = &verdicts->at[i];
        table_cell(&t, "%s", v->what);
        table_cell(&t, "%.4g", v->limit);
        table_cell(&t, "%.4g", v->figure);
        table_cell(&t, "%s", v->unit);
        table_cell(&t, "%s", v->figure <= v->limit ? "met" : "not met");
    }
    printf("targets, back end %s\n", options->backend);
    table_print(&t, stdout);
    table_release(&t);
}
