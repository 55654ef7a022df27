/*
 * oneDNN's engine and stream as a kind of handle: two threads must not use a stream at the same time, and making an
 * engine is not free. Each thread multiplies matrices with its own and checks the product. (oneDNN 2.)
 */
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        dnnl_status_t status_ = (call);                                                                                \
        if (status_ != dnnl_success) {                                                                                 \
            fprintf(stderr, "%s: %d\n", #call, (int)status_);                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

typedef struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} onednn;

static int create(void *user, int device, void **handle)
{
    (void)user, (void)device;
    onednn *made = malloc(sizeof *made);
    if (!made) return dnnl_out_of_memory;
    dnnl_status_t status = dnnl_engine_create(&made->engine, dnnl_cpu, 0);
    if (status != dnnl_success) goto fail;
    status = dnnl_stream_create(&made->stream, made->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) goto fail_engine;
    *handle = made;
    return dnnl_success;

fail_engine:
    (void)dnnl_engine_destroy(made->engine);
fail:
    free(made);
    return status;
}

static int destroy(void *user, void *handle)
{
    onednn *made = handle;
    (void)user;
    dnnl_status_t stream = dnnl_stream_destroy(made->stream), engine = dnnl_engine_destroy(made->engine);
    free(made);
    return stream != dnnl_success ? stream : engine;
}

/* The next owner starts only after the last one's work is over. */
static int reset(void *user, void *handle)
{
    (void)user;
    return dnnl_stream_wait(((onednn *)handle)->stream);
}

static weir_handle_kind dnnl;

/* ---- a thread's work --------------------------------------------------------------------------------------------- */

enum { N = 48, THREADS = 6, AT_ONCE = 3 };

static void multiply(onednn *own, float *a, float *b, float *product)
{
    const dnnl_dims_t dims = { N, N };
    dnnl_memory_desc_t md;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t matmul;
    float *data[3] = { a, b, product };
    dnnl_exec_arg_t args[3] = { { DNNL_ARG_SRC, NULL }, { DNNL_ARG_WEIGHTS, NULL }, { DNNL_ARG_DST, NULL } };
    CHECK(dnnl_memory_desc_init_by_tag(&md, 2, dims, dnnl_f32, dnnl_ab));
    CHECK(dnnl_matmul_desc_init(&desc, &md, &md, NULL, &md));
    CHECK(dnnl_primitive_desc_create(&pd, &desc, NULL, own->engine, NULL));
    CHECK(dnnl_primitive_create(&matmul, pd));
    for (int i = 0; i < 3; i++) CHECK(dnnl_memory_create(&args[i].memory, &md, own->engine, data[i]));
    CHECK(dnnl_primitive_execute(matmul, own->stream, 3, args));
    CHECK(dnnl_stream_wait(own->stream));
    for (int i = 0; i < 3; i++) CHECK(dnnl_memory_destroy(args[i].memory));
    CHECK(dnnl_primitive_destroy(matmul));
    CHECK(dnnl_primitive_desc_destroy(pd));
}

/* A matrix times this permutation is the matrix with its columns moved by `shift`. */
static void *work(void *argument)
{
    int *shift = argument, wrong = 0;
    float a[N * N], b[N * N] = { 0 }, product[N * N] = { 0 };
    void *own;
    for (int i = 0; i < N * N; i++) a[i] = (float)(i % 17);
    for (int i = 0; i < N; i++) b[i * N + (i + *shift) % N] = 1;
    WEIR_CHECK(weir_handle_get(dnnl, &own)); /* this thread's own */
    multiply(own, a, b, product);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (fabsf(product[i * N + (j + *shift) % N] - a[i * N + j]) > 1e-6f) wrong++;
    *shift = wrong;
    return NULL;
}

int main(void)
{
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "onednn", .create = create, .destroy = destroy,
                                  .reset = reset };
    int wrong = 0;
    WEIR_CHECK(weir_handle_kind_register(&ops, &dnnl));
    for (int first = 0; first < THREADS; first += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        int shifts[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            shifts[i] = first + i + 1;
            if (pthread_create(&threads[i], NULL, work, &shifts[i]) != 0) return 1;
        }
        for (int i = 0; i < AT_ONCE; i++) {
            pthread_join(threads[i], NULL);
            wrong += shifts[i];
        }
    }

    weir_handle_stats stats = { .size = sizeof stats };
    WEIR_CHECK(weir_handle_stats_get(dnnl, 0, &stats));
    printf("%d products, %d wrong elements; %llu engines and streams created, %llu taken over\n", THREADS, wrong,
           (unsigned long long)stats.created, (unsigned long long)stats.reuses);
    WEIR_CHECK(weir_close());
    return wrong || stats.created > AT_ONCE;
}
