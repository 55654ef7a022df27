/*
 * vendor_work: a small computation for each of NVIDIA's libraries, with random sizes, checked against the CPU. Inputs
 * are small integers, so that products are exact in every precision. Handles, memory and copies are weir's, on the
 * worker's stream, which must be current. A work returns false and leaves a text when anything is wrong.
 *
 * From getting the handle to the library's last call, a work only queues, so a test may capture that part and replay it
 * (worker.begin, worker.end).
 */
#ifndef WEIR_TESTS_GPU_VENDOR_WORK_H
#define WEIR_TESTS_GPU_VENDOR_WORK_H

#include "vendor.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

enum { MOST = 48, MOST_ENTRIES = 5 * MOST, MOST_NUMBERS = 8192, MOST_BLOCKS = 16, FIRST_NUMBERS = 4 };

typedef struct worker worker;
struct worker {
    unsigned seed;
    weir_stream stream;
    void *native;
    void *blocks[MOST_BLOCKS]; /* of the current work */
    int block_count;
    bool has_drawn;
    float first_numbers[FIRST_NUMBERS]; /* the generator's first numbers */
    char failure[512];                  /* empty: none */
    /* Around the calls that may be captured; NULL: none. `output` is what they compute. */
    bool (*begin)(worker *w);
    bool (*end)(worker *w, void *output, size_t bytes);
    bool captures_solve_only; /* cuDSS: not the factorisation */
};

static bool failed(worker *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->failure, sizeof w->failure, format, arguments);
    va_end(arguments);
    return false;
}

#define ENSURE_WEIR(call)                                                                                              \
    do {                                                                                                               \
        if ((call) != WEIR_OK) return failed(w, "%s: %s", #call, weir_error_text());                                   \
    } while (0)
#define ENSURE_VENDOR(call)                                                                                            \
    do {                                                                                                               \
        const int code_ = vendor.call;                                                                                 \
        if (code_ != 0) return failed(w, "%d from %s", code_, #call);                                                  \
    } while (0)
#define ENSURE(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) return failed(w, __VA_ARGS__);                                                               \
    } while (0)
#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        if (!(call)) return false;                                                                                     \
    } while (0)

/* ---- numbers and memory ------------------------------------------------------------------------------------------ */

static int random_from(worker *w, int low, int high)
{
    return low + rand_r(&w->seed) % (high - low + 1);
}

static void random_integers(worker *w, double *out, int count)
{
    for (int i = 0; i < count; i++) out[i] = random_from(w, -4, 4);
}

static void narrow(float *out, const double *in, int count)
{
    for (int i = 0; i < count; i++) out[i] = (float)in[i];
}

/* Memory for the current work; not filled if `host` is NULL. */
static bool take(worker *w, const void *host, size_t bytes, void *out)
{
    void *block;
    ENSURE(w->block_count < MOST_BLOCKS, "a work takes more than %d blocks", MOST_BLOCKS);
    ENSURE_WEIR(weir_alloc(bytes, &block));
    if (block != NULL) w->blocks[w->block_count++] = block;
    if (host != NULL) ENSURE_WEIR(weir_copy(block, host, bytes, w->stream));
    memcpy(out, &block, sizeof block);
    return true;
}

static bool free_all(worker *w)
{
    while (w->block_count > 0) ENSURE_WEIR(weir_free(w->blocks[--w->block_count]));
    return true;
}

static bool fetch(worker *w, void *host, const void *device, size_t bytes)
{
    ENSURE_WEIR(weir_copy(host, device, bytes, w->stream));
    ENSURE_WEIR(weir_stream_synchronize(w->stream));
    return true;
}

static bool same(worker *w, const char *what, const double *found, const double *expected, int count)
{
    for (int i = 0; i < count; i++)
        ENSURE(fabs(found[i] - expected[i]) <= 1e-9 * (1 + fabs(expected[i])),
               "%s: element %d of %d is %.17g, not %.17g", what, i, count, found[i], expected[i]);
    return true;
}

static bool fetch_same(worker *w, const char *what, const double *device, const double *expected, int count)
{
    double found[MOST_NUMBERS];
    STEP(fetch(w, found, device, (size_t)count * sizeof found[0]));
    return same(w, what, found, expected, count);
}

static bool fetch_same_floats(worker *w, const char *what, const float *device, const double *expected, int count)
{
    float narrow_found[MOST_NUMBERS];
    double found[MOST_NUMBERS];
    STEP(fetch(w, narrow_found, device, (size_t)count * sizeof narrow_found[0]));
    for (int i = 0; i < count; i++) found[i] = narrow_found[i];
    return same(w, what, found, expected, count);
}

static bool begin_calls(worker *w)
{
    return w->begin == NULL || w->begin(w);
}

static bool end_calls(worker *w, void *output, size_t bytes)
{
    return w->end == NULL || w->end(w, output, bytes);
}

/* ---- dense ------------------------------------------------------------------------------------------------------- */

/* c = a b by columns; a is m x k, b is k x n. */
typedef struct product {
    int m, n, k;
    double a[MOST * MOST], b[MOST * MOST], c[MOST * MOST];
    float narrow_a[MOST * MOST], narrow_b[MOST * MOST];
} product;

static void random_product(worker *w, product *p)
{
    p->m = random_from(w, 1, MOST);
    p->n = random_from(w, 1, MOST);
    p->k = random_from(w, 1, MOST);
    random_integers(w, p->a, p->m * p->k);
    random_integers(w, p->b, p->k * p->n);
    narrow(p->narrow_a, p->a, p->m * p->k);
    narrow(p->narrow_b, p->b, p->k * p->n);
    for (int j = 0; j < p->n; j++)
        for (int i = 0; i < p->m; i++) {
            double sum = 0;
            for (int l = 0; l < p->k; l++) sum += p->a[i + l * p->m] * p->b[l + j * p->k];
            p->c[i + j * p->m] = sum;
        }
}

static bool work_cublas(worker *w)
{
    const float one = 1, zero = 0;
    const double double_one = 1, double_zero = 0;
    cublasHandle_t handle;
    product p;
    float *a, *b, *c;
    double *double_a, *double_b, *double_c;
    random_product(w, &p);
    STEP(take(w, p.narrow_a, sizeof p.narrow_a, &a) && take(w, p.narrow_b, sizeof p.narrow_b, &b));
    STEP(take(w, NULL, sizeof p.narrow_a, &c));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_cublas(&handle));
    ENSURE_VENDOR(cublasSgemm_v2(handle, 0, 0, p.m, p.n, p.k, &one, a, p.m, b, p.k, &zero, c, p.m));
    STEP(end_calls(w, c, sizeof p.narrow_a));
    STEP(fetch_same_floats(w, "cublasSgemm", c, p.c, p.m * p.n));
    STEP(take(w, p.a, sizeof p.a, &double_a) && take(w, p.b, sizeof p.b, &double_b));
    STEP(take(w, NULL, sizeof p.c, &double_c));
    STEP(begin_calls(w));
    ENSURE_VENDOR(cublasDgemm_v2(handle, 0, 0, p.m, p.n, p.k, &double_one, double_a, p.m, double_b, p.k, &double_zero,
                                 double_c, p.m));
    STEP(end_calls(w, double_c, sizeof p.c));
    return fetch_same(w, "cublasDgemm", double_c, p.c, p.m * p.n);
}

static bool work_cublaslt(worker *w)
{
    enum { WORKSPACE = 1 << 20 };
    const float one = 1, zero = 0;
    cublasLtHandle_t handle;
    product p;
    float *a, *b, *c;
    void *workspace, *multiply, *layout_a, *layout_b, *layout_c;
    random_product(w, &p);
    STEP(take(w, p.narrow_a, sizeof p.narrow_a, &a) && take(w, p.narrow_b, sizeof p.narrow_b, &b));
    STEP(take(w, NULL, sizeof p.narrow_a, &c) && take(w, NULL, WORKSPACE, &workspace));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_cublaslt(&handle));
    ENSURE_VENDOR(cublasLtMatmulDescCreate(&multiply, CUBLAS_COMPUTE_FLOAT, CUDA_FLOAT));
    ENSURE_VENDOR(cublasLtMatrixLayoutCreate(&layout_a, CUDA_FLOAT, (uint64_t)p.m, (uint64_t)p.k, p.m));
    ENSURE_VENDOR(cublasLtMatrixLayoutCreate(&layout_b, CUDA_FLOAT, (uint64_t)p.k, (uint64_t)p.n, p.k));
    ENSURE_VENDOR(cublasLtMatrixLayoutCreate(&layout_c, CUDA_FLOAT, (uint64_t)p.m, (uint64_t)p.n, p.m));
    ENSURE_VENDOR(cublasLtMatmul(handle, multiply, &one, a, layout_a, b, layout_b, &zero, c, layout_c, c, layout_c,
                                 NULL, workspace, WORKSPACE, w->native));
    STEP(end_calls(w, c, sizeof p.narrow_a));
    STEP(fetch_same_floats(w, "cublasLtMatmul", c, p.c, p.m * p.n));
    ENSURE_VENDOR(cublasLtMatrixLayoutDestroy(layout_a));
    ENSURE_VENDOR(cublasLtMatrixLayoutDestroy(layout_b));
    ENSURE_VENDOR(cublasLtMatrixLayoutDestroy(layout_c));
    ENSURE_VENDOR(cublasLtMatmulDescDestroy(multiply));
    return true;
}

static bool work_cusolver_dn(worker *w)
{
    const int n = random_from(w, 2, MOST);
    double matrix[MOST * MOST], x[MOST], right[MOST] = { 0 };
    cusolverDnHandle_t handle;
    double *a, *b, *first_a, *first_b, *workspace; /* factorising and solving overwrite a and b */
    int *pivots, *info, size, found[2];
    random_integers(w, matrix, n * n);
    random_integers(w, x, n);
    for (int i = 0; i < n; i++) matrix[i + i * n] = 5 * n; /* dominates its row: well conditioned */
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) right[i] += matrix[i + j * n] * x[j];
    STEP(take(w, matrix, sizeof matrix, &first_a) && take(w, right, sizeof right, &first_b));
    STEP(take(w, NULL, sizeof matrix, &a) && take(w, NULL, sizeof right, &b));
    STEP(take(w, NULL, MOST * sizeof(int), &pivots) && take(w, NULL, 2 * sizeof(int), &info));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_copy(a, first_a, sizeof matrix, w->stream));
    ENSURE_WEIR(weir_copy(b, first_b, sizeof right, w->stream));
    ENSURE_WEIR(weir_cusolver_dn_on(w->stream, &handle));
    ENSURE_VENDOR(cusolverDnDgetrf_bufferSize(handle, n, n, a, n, &size));
    STEP(take(w, NULL, (size_t)size * sizeof(double), &workspace));
    ENSURE_VENDOR(cusolverDnDgetrf(handle, n, n, a, n, workspace, pivots, info));
    ENSURE_VENDOR(cusolverDnDgetrs(handle, 0, n, 1, a, n, pivots, b, n, info + 1));
    STEP(end_calls(w, b, sizeof right));
    STEP(fetch(w, found, info, sizeof found));
    ENSURE(found[0] == 0 && found[1] == 0, "getrf says %d and getrs %d", found[0], found[1]);
    return fetch_same(w, "cusolverDnDgetrs", b, x, n);
}

/* ---- sparse ------------------------------------------------------------------------------------------------------ */

/* A square matrix by rows whose diagonal dominates, a vector and their product; on the host and the device. */
typedef struct sparse {
    int n, entries;
    int offsets[MOST + 1], indices[MOST_ENTRIES];
    double values[MOST_ENTRIES], x[MOST], right[MOST];
    int *device_offsets, *device_indices;
    double *device_values, *device_x, *device_right;
} sparse;

static bool random_sparse(worker *w, sparse *s)
{
    s->n = random_from(w, 3, MOST);
    s->entries = 0;
    random_integers(w, s->x, s->n);
    for (int row = 0; row < s->n; row++) {
        s->offsets[row] = s->entries;
        s->right[row] = 0;
        int others = random_from(w, 0, 4);
        for (int column = 0; column < s->n; column++) {
            const bool takes = column != row && others > 0 && random_from(w, 0, s->n) < 4;
            if (!takes && column != row) continue;
            if (takes) others--;
            const double value = takes ? random_from(w, 1, 2) : random_from(w, 10, 20);
            s->indices[s->entries] = column;
            s->values[s->entries++] = value;
            s->right[row] += value * s->x[column];
        }
    }
    s->offsets[s->n] = s->entries;
    STEP(take(w, s->offsets, sizeof s->offsets, &s->device_offsets));
    STEP(take(w, s->indices, sizeof s->indices, &s->device_indices));
    STEP(take(w, s->values, sizeof s->values, &s->device_values));
    return true;
}

static bool work_cusparse(worker *w)
{
    const double one = 1, zero = 0;
    cusparseHandle_t handle;
    sparse s;
    void *matrix, *x, *y, *buffer;
    size_t bytes = 0;
    STEP(random_sparse(w, &s) && take(w, s.x, sizeof s.x, &s.device_x));
    STEP(take(w, NULL, sizeof s.right, &s.device_right));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_cusparse(&handle));
    ENSURE_VENDOR(cusparseCreateCsr(&matrix, s.n, s.n, s.entries, s.device_offsets, s.device_indices, s.device_values,
                                    CUSPARSE_INT32, CUSPARSE_INT32, 0, CUDA_DOUBLE));
    ENSURE_VENDOR(cusparseCreateDnVec(&x, s.n, s.device_x, CUDA_DOUBLE));
    ENSURE_VENDOR(cusparseCreateDnVec(&y, s.n, s.device_right, CUDA_DOUBLE));
    ENSURE_VENDOR(cusparseSpMV_bufferSize(handle, 0, &one, matrix, x, &zero, y, CUDA_DOUBLE, 0, &bytes));
    STEP(take(w, NULL, bytes, &buffer));
    ENSURE_VENDOR(cusparseSpMV(handle, 0, &one, matrix, x, &zero, y, CUDA_DOUBLE, 0, buffer));
    STEP(end_calls(w, s.device_right, sizeof s.right));
    STEP(fetch_same(w, "cusparseSpMV", s.device_right, s.right, s.n));
    ENSURE_VENDOR(cusparseDestroySpMat(matrix));
    ENSURE_VENDOR(cusparseDestroyDnVec(x));
    ENSURE_VENDOR(cusparseDestroyDnVec(y));
    return true;
}

static bool work_cusolver_sp(worker *w)
{
    cusolverSpHandle_t handle;
    sparse s;
    void *description;
    int singularity = 0;
    STEP(random_sparse(w, &s) && take(w, s.right, sizeof s.right, &s.device_right));
    STEP(take(w, NULL, sizeof s.x, &s.device_x));
    ENSURE_VENDOR(cusparseCreateMatDescr(&description));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_cusolver_sp(&handle));
    ENSURE_VENDOR(cusolverSpDcsrlsvqr(handle, s.n, s.entries, description, s.device_values, s.device_offsets,
                                      s.device_indices, s.device_right, 1e-12, 0, s.device_x, &singularity));
    STEP(end_calls(w, s.device_x, sizeof s.x));
    ENSURE(singularity == -1, "csrlsvqr finds the matrix singular at %d", singularity);
    ENSURE_VENDOR(cusparseDestroyMatDescr(description));
    return fetch_same(w, "cusolverSpDcsrlsvqr", s.device_x, s.x, s.n);
}

static bool make_cudss_matrix(worker *w, const sparse *s, void **matrix)
{
    int major = 0, minor = 0, code;
    ENSURE_VENDOR(cudssGetProperty(0, &major));
    ENSURE_VENDOR(cudssGetProperty(1, &minor));
    void (*create)(void) = (void (*)(void))vendor.cudssMatrixCreateCsr;
    if (major == 0 && minor < 8)
        code = ((cudss_csr_7)create)(matrix, s->n, s->n, s->entries, s->device_offsets, NULL, s->device_indices,
                                     s->device_values, CUDA_INT32, CUDA_DOUBLE, 0, 0, 0);
    else
        code = ((cudss_csr_8)create)(matrix, s->n, s->n, s->entries, s->device_offsets, NULL, s->device_indices,
                                     s->device_values, CUDA_INT32, CUDA_INT32, CUDA_DOUBLE, 0, 0, 0);
    ENSURE(code == 0, "cudssMatrixCreateCsr of version %d.%d: %d", major, minor, code);
    return true;
}

static bool work_cudss(worker *w)
{
    cudssHandle_t handle;
    sparse s;
    void *config, *data, *matrix, *x, *right;
    STEP(random_sparse(w, &s) && take(w, s.right, sizeof s.right, &s.device_right));
    STEP(take(w, NULL, sizeof s.x, &s.device_x));
    ENSURE_WEIR(weir_cudss(&handle));
    ENSURE_VENDOR(cudssConfigCreate(&config));
    ENSURE_VENDOR(cudssDataCreate(handle, &data));
    STEP(make_cudss_matrix(w, &s, &matrix));
    ENSURE_VENDOR(cudssMatrixCreateDn(&x, s.n, 1, s.n, s.device_x, CUDA_DOUBLE, 0));
    ENSURE_VENDOR(cudssMatrixCreateDn(&right, s.n, 1, s.n, s.device_right, CUDA_DOUBLE, 0));
    ENSURE_VENDOR(cudssExecute(handle, CUDSS_ANALYSIS, config, data, matrix, x, right));
    if (!w->captures_solve_only) STEP(begin_calls(w));
    ENSURE_VENDOR(cudssExecute(handle, CUDSS_FACTORIZATION, config, data, matrix, x, right));
    if (w->captures_solve_only) STEP(begin_calls(w));
    ENSURE_VENDOR(cudssExecute(handle, CUDSS_SOLVE, config, data, matrix, x, right));
    STEP(end_calls(w, s.device_x, sizeof s.x));
    STEP(fetch_same(w, "cudssExecute", s.device_x, s.x, s.n));
    ENSURE_VENDOR(cudssMatrixDestroy(x));
    ENSURE_VENDOR(cudssMatrixDestroy(right));
    ENSURE_VENDOR(cudssMatrixDestroy(matrix));
    ENSURE_VENDOR(cudssDataDestroy(handle, data));
    ENSURE_VENDOR(cudssConfigDestroy(config));
    return true;
}

/* ---- convolution, permutation, random numbers -------------------------------------------------------------------- */

/* 3 x 3 filters over one image, padded: the size stays. Every index runs slowest first. */
typedef struct convolution {
    int channels, filters, height, width;
    double x[4 * 16 * 16], filter[4 * 4 * 9], y[4 * 16 * 16];
} convolution;

static double convolve_at(const convolution *c, int filter, int row, int column)
{
    double sum = 0;
    for (int channel = 0; channel < c->channels; channel++)
        for (int tap = 0; tap < 9; tap++) {
            const int i = row + tap / 3 - 1, j = column + tap % 3 - 1;
            if (i < 0 || i >= c->height || j < 0 || j >= c->width) continue;
            sum +=
                c->x[(channel * c->height + i) * c->width + j] * c->filter[(filter * c->channels + channel) * 9 + tap];
        }
    return sum;
}

static void random_convolution(worker *w, convolution *c)
{
    c->channels = random_from(w, 1, 4);
    c->filters = random_from(w, 1, 4);
    c->height = random_from(w, 4, 16);
    c->width = random_from(w, 4, 16);
    random_integers(w, c->x, c->channels * c->height * c->width);
    random_integers(w, c->filter, c->filters * c->channels * 9);
    double *y = c->y;
    for (int filter = 0; filter < c->filters; filter++)
        for (int row = 0; row < c->height; row++)
            for (int column = 0; column < c->width; column++) *y++ = convolve_at(c, filter, row, column);
}

static bool work_cudnn(worker *w)
{
    const float one = 1, zero = 0;
    cudnnHandle_t handle;
    convolution c;
    float narrow_x[sizeof c.x / sizeof c.x[0]], narrow_filter[sizeof c.filter / sizeof c.filter[0]];
    void *layout_x, *layout_y, *layout_filter, *description, *x, *filter, *workspace;
    float *y;
    size_t bytes = 0;
    random_convolution(w, &c);
    narrow(narrow_x, c.x, c.channels * c.height * c.width);
    narrow(narrow_filter, c.filter, c.filters * c.channels * 9);
    STEP(take(w, narrow_x, sizeof narrow_x, &x) && take(w, narrow_filter, sizeof narrow_filter, &filter));
    STEP(take(w, NULL, sizeof narrow_x, &y));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_cudnn(&handle));
    ENSURE_VENDOR(cudnnCreateTensorDescriptor(&layout_x));
    ENSURE_VENDOR(cudnnCreateTensorDescriptor(&layout_y));
    ENSURE_VENDOR(cudnnCreateFilterDescriptor(&layout_filter));
    ENSURE_VENDOR(cudnnCreateConvolutionDescriptor(&description));
    ENSURE_VENDOR(cudnnSetTensor4dDescriptor(layout_x, 0, 0, 1, c.channels, c.height, c.width));
    ENSURE_VENDOR(cudnnSetTensor4dDescriptor(layout_y, 0, 0, 1, c.filters, c.height, c.width));
    ENSURE_VENDOR(cudnnSetFilter4dDescriptor(layout_filter, 0, 0, c.filters, c.channels, 3, 3));
    ENSURE_VENDOR(cudnnSetConvolution2dDescriptor(description, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, 0));
    ENSURE_VENDOR(
        cudnnGetConvolutionForwardWorkspaceSize(handle, layout_x, layout_filter, description, layout_y, 0, &bytes));
    STEP(take(w, NULL, bytes, &workspace));
    ENSURE_VENDOR(cudnnConvolutionForward(handle, &one, layout_x, x, layout_filter, filter, description, 0, workspace,
                                          bytes, &zero, layout_y, y));
    STEP(end_calls(w, y, sizeof narrow_x));
    STEP(fetch_same_floats(w, "cudnnConvolutionForward", y, c.y, c.filters * c.height * c.width));
    ENSURE_VENDOR(cudnnDestroyConvolutionDescriptor(description));
    ENSURE_VENDOR(cudnnDestroyFilterDescriptor(layout_filter));
    ENSURE_VENDOR(cudnnDestroyTensorDescriptor(layout_y));
    ENSURE_VENDOR(cudnnDestroyTensorDescriptor(layout_x));
    return true;
}

static bool work_cutensor(worker *w)
{
    const float one = 1;
    const int m = random_from(w, 1, MOST), n = random_from(w, 1, MOST);
    const int64_t extents[] = { m, n }, turned[] = { n, m };
    const int32_t modes[] = { 'i', 'j' }, turned_modes[] = { 'j', 'i' };
    cutensorHandle_t handle;
    double in[MOST * MOST], out[MOST * MOST];
    float narrow_in[MOST * MOST], *a, *b;
    void *layout_a, *layout_b, *permutation, *preference, *plan;
    random_integers(w, in, m * n);
    narrow(narrow_in, in, m * n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) out[j + i * n] = in[i + j * m];
    STEP(take(w, narrow_in, sizeof narrow_in, &a) && take(w, NULL, sizeof narrow_in, &b));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_cutensor(&handle));
    ENSURE_VENDOR(cutensorCreateTensorDescriptor(handle, &layout_a, 2, extents, NULL, CUDA_FLOAT, 128));
    ENSURE_VENDOR(cutensorCreateTensorDescriptor(handle, &layout_b, 2, turned, NULL, CUDA_FLOAT, 128));
    ENSURE_VENDOR(cutensorCreatePermutation(handle, &permutation, layout_a, modes, CUTENSOR_IDENTITY, layout_b,
                                            turned_modes, vendor.cutensor_compute_float));
    ENSURE_VENDOR(cutensorCreatePlanPreference(handle, &preference, CUTENSOR_DEFAULT_ALGORITHM, 0));
    ENSURE_VENDOR(cutensorCreatePlan(handle, &plan, permutation, preference, 0));
    ENSURE_VENDOR(cutensorPermute(handle, plan, &one, a, b, w->native));
    STEP(end_calls(w, b, sizeof narrow_in));
    STEP(fetch_same_floats(w, "cutensorPermute", b, out, m * n));
    ENSURE_VENDOR(cutensorDestroyPlan(plan));
    ENSURE_VENDOR(cutensorDestroyPlanPreference(preference));
    ENSURE_VENDOR(cutensorDestroyOperationDescriptor(permutation));
    ENSURE_VENDOR(cutensorDestroyTensorDescriptor(layout_b));
    ENSURE_VENDOR(cutensorDestroyTensorDescriptor(layout_a));
    return true;
}

static bool work_curand(worker *w)
{
    const int count = random_from(w, MOST_NUMBERS / 2, MOST_NUMBERS);
    float numbers[MOST_NUMBERS], *device;
    curandGenerator_t generator;
    double sum = 0;
    STEP(take(w, NULL, sizeof numbers, &device));
    STEP(begin_calls(w));
    ENSURE_WEIR(weir_curand(&generator));
    ENSURE_VENDOR(curandGenerateUniform(generator, device, (size_t)count));
    STEP(end_calls(w, device, sizeof numbers));
    STEP(fetch(w, numbers, device, (size_t)count * sizeof numbers[0]));
    for (int i = 0; i < count; i++) {
        ENSURE(numbers[i] > 0 && numbers[i] <= 1, "random number %d is %g", i, (double)numbers[i]);
        sum += (double)numbers[i];
    }
    /* The mean of 4096 has a deviation of 0.0045. */
    ENSURE(fabs(sum / count - 0.5) < 0.03, "the mean of %d random numbers is %g", count, sum / count);
    if (!w->has_drawn) memcpy(w->first_numbers, numbers, sizeof w->first_numbers);
    w->has_drawn = true;
    return true;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static const struct {
    weir_handle_kind kind;
    bool (*run)(worker *w);
} works[] = {
    { WEIR_CUBLAS, work_cublas },
    { WEIR_CUBLASLT, work_cublaslt },
    { WEIR_CUSPARSE, work_cusparse },
    { WEIR_CUSOLVER_DN, work_cusolver_dn },
    { WEIR_CUSOLVER_SP, work_cusolver_sp },
    { WEIR_CUDNN, work_cudnn },
    { WEIR_CUDSS, work_cudss },
    { WEIR_CURAND, work_curand },
    { WEIR_CUTENSOR, work_cutensor },
};
enum { WORKS = sizeof works / sizeof works[0] };

static bool run_work(worker *w, size_t i)
{
    return works[i].run(w) && free_all(w);
}

#endif
