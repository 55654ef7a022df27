#include "bench.h"

#include "output/table.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- threads ----------------------------------------------------------------------------------------------------- */

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

/* ---- children ---------------------------------------------------------------------------------------------------- */

void *bench_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) return memory;
    perror("weir-bench: mmap");
    exit(1);
}

/* The child's end of the connection to its parent. */
static int turns = -1;

/* Waits until the parent says that it is this child's turn. Without its parent it has nobody to work for. */
static void await_turn(void)
{
    char go;
    if (read(turns, &go, 1) != 1) _exit(1);
}

void bench_pass_turn(void)
{
    if (send(turns, "", 1, MSG_NOSIGNAL) != 1) _exit(1);
    await_turn();
}

typedef struct child {
    pid_t pid;
    int turns; /* the parent's end of the connection; -1: the child has ended */
} child;

static bool child_end(const char *what, child *c)
{
    int status = 0;
    close(c->turns);
    c->turns = -1;
    if (waitpid(c->pid, &status, 0) != c->pid) {
        perror("weir-bench: waitpid");
        return false;
    }
    if (WIFSIGNALED(status)) fprintf(stderr, "weir-bench: %s was ended by signal %d\n", what, WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status)) fprintf(stderr, "weir-bench: %s failed\n", what);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Lets the child work until it passes its turn. False: it has ended. */
static bool give_turn(const child *c)
{
    char passed;
    return send(c->turns, "", 1, MSG_NOSIGNAL) == 1 && read(c->turns, &passed, 1) == 1;
}

/* Of the children before it, the new one holds no connection: whose child has ended is seen by the connection's end. */
static bool child_begin(child *c, const child *before, size_t count, void (*work)(void *), void *argument)
{
    int ends[2];
    fflush(NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        perror("weir-bench: socketpair");
        return false;
    }
    *c = (child){ .pid = fork(), .turns = ends[0] };
    if (c->pid == 0) {
        for (size_t i = 0; i < count; i++) close(before[i].turns);
        close(ends[0]);
        turns = ends[1];
        await_turn();
        work(argument);
        fflush(NULL);
        _exit(0); /* skips the exit handlers of drivers and peers */
    }
    close(ends[1]);
    if (c->pid > 0) return true;
    perror("weir-bench: fork");
    close(ends[0]);
    return false;
}

bool bench_in_turns(const char *what, void (*work)(void *), void *const *arguments, size_t count)
{
    child children[BENCH_CHILDREN_MAX];
    size_t begun = 0, left;
    while (begun < count && child_begin(&children[begun], children, begun, work, arguments[begun])) begun++;
    bool good = begun == count;
    do {
        left = 0;
        for (size_t i = 0; i < begun; i++) {
            if (children[i].turns < 0) continue;
            if (give_turn(&children[i]))
                left++;
            else
                good &= child_end(what, &children[i]);
        }
    } while (left > 0);
    return good;
}

bool bench_isolated(const char *what, void (*work)(void *), void *argument)
{
    return bench_in_turns(what, work, &argument, 1);
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

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
