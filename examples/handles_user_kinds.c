/*
 * A library that weir has never heard of: CHOLMOD. Its functions take a cholmod_common, which holds settings and
 * workspace and must not be shared by threads. Registered as a kind, it is made once for each thread. Each thread here
 * factorises a Poisson problem of its own size and checks the solution.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <suitesparse/cholmod.h>
#include <weir/weir.h>

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static int create(void *user, int device, void **handle)
{
    (void)user, (void)device;
    cholmod_common *common = malloc(sizeof *common);
    if (!common) return CHOLMOD_OUT_OF_MEMORY;
    cholmod_start(common);
    *handle = common;
    return CHOLMOD_OK;
}

static int destroy(void *user, void *handle)
{
    (void)user;
    cholmod_finish(handle);
    free(handle);
    return CHOLMOD_OK;
}

/* The next thread finds default settings; allocated workspace stays. */
static int reset(void *user, void *handle)
{
    (void)user;
    return cholmod_defaults(handle) ? CHOLMOD_OK : CHOLMOD_INVALID;
}

static const char *error_text(void *user, int code)
{
    (void)user;
    switch (code) {
    case CHOLMOD_OUT_OF_MEMORY: return "CHOLMOD_OUT_OF_MEMORY";
    case CHOLMOD_INVALID: return "CHOLMOD_INVALID";
    default: return NULL; /* shown as a number */
    }
}

static weir_handle_kind cholmod;

/* ---- a thread's work --------------------------------------------------------------------------------------------- */

/* The five-point Laplacian of a square of `side` by `side` points, upper triangle. */
static cholmod_sparse *poisson(int side, cholmod_common *common)
{
    const size_t n = (size_t)side * (size_t)side;
    cholmod_triplet *t = cholmod_allocate_triplet(n, n, 3 * n, 1, CHOLMOD_REAL, common);
    if (!t) return NULL;
    int *row = t->i, *column = t->j;
    double *value = t->x;
    for (int k = 0; k < (int)n; k++) {
        const int neighbours[] = { k, k % side ? k - 1 : -1, k - side };
        for (int i = 0; i < 3; i++) {
            if (neighbours[i] < 0) continue;
            row[t->nnz] = neighbours[i];
            column[t->nnz] = k;
            value[t->nnz++] = i == 0 ? 4 : -1;
        }
    }
    cholmod_sparse *matrix = cholmod_triplet_to_sparse(t, 0, common);
    cholmod_free_triplet(&t, common);
    return matrix;
}

/* Largest component of b - A x, relative to that of b, which is all ones. */
static double solve(int side, cholmod_common *common)
{
    double one[2] = { 1, 0 }, minus_one[2] = { -1, 0 };
    cholmod_sparse *a = poisson(side, common);
    cholmod_dense *b = cholmod_ones(a->nrow, 1, CHOLMOD_REAL, common);
    cholmod_factor *factor = cholmod_analyze(a, common);
    cholmod_factorize(a, factor, common);
    cholmod_dense *x = cholmod_solve(CHOLMOD_A, factor, b, common);
    cholmod_sdmult(a, 0, minus_one, one, x, b, common);
    const double residual = cholmod_norm_dense(b, 0, common);
    cholmod_free_dense(&x, common);
    cholmod_free_factor(&factor, common);
    cholmod_free_dense(&b, common);
    cholmod_free_sparse(&a, common);
    return common->status == CHOLMOD_OK ? residual : HUGE_VAL;
}

enum { THREADS = 6, AT_ONCE = 3 };

typedef struct task {
    int side;
    double residual;
} task;

static void *work(void *argument)
{
    task *t = argument;
    void *common;
    WEIR_CHECK(weir_handle_get(cholmod, &common)); /* this thread's own */
    t->residual = solve(t->side, common);
    return NULL;
}

int main(void)
{
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "cholmod", .create = create,
                                  .destroy = destroy,   .reset = reset,    .error_text = error_text };
    int wrong = 0;
    WEIR_CHECK(weir_handle_kind_register(&ops, &cholmod));

    for (int first = 0; first < THREADS; first += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        task tasks[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            tasks[i] = (task){ .side = 20 + 10 * (first + i) };
            if (pthread_create(&threads[i], NULL, work, &tasks[i]) != 0) return 1;
        }
        for (int i = 0; i < AT_ONCE; i++) {
            pthread_join(threads[i], NULL);
            printf("%4d unknowns: residual %.1e\n", tasks[i].side * tasks[i].side, tasks[i].residual);
            if (!(tasks[i].residual < 1e-10)) wrong++;
        }
    }

    weir_handle_stats stats = { .size = sizeof stats };
    WEIR_CHECK(weir_handle_stats_get(cholmod, 0, &stats));
    printf("%d threads, %llu cholmod_common created, %llu taken over\n", THREADS, (unsigned long long)stats.created,
           (unsigned long long)stats.reuses);
    WEIR_CHECK(weir_close());
    return wrong || stats.created > AT_ONCE;
}
