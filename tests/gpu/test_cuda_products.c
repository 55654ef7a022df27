/*
 * What cuBLAS computes, on a real GPU with its work far behind: a few handles are handed from thread to thread and
 * from stream to stream, each with sums of a product in its workspace that the GPU has not begun yet. Two products that
 * share a workspace at a time, or one whose memory is used again too early, come out wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"

#include "contents.h"
#include "vendor.h"

/* So many more terms than results that cuBLAS divides the terms, and adds the parts up in the workspace. */
enum { ROWS = 64, TERMS = 16384, RESULTS = ROWS * ROWS };
enum { THREADS = 8, SHARED_STREAMS = 2, HANDLES = 3, MATRICES = 8, BEHIND = 16 };

static weir_stream shared[SHARED_STREAMS];
static float *matrices[MATRICES]; /* all elements of matrix i are i + 1 */

/* A product whose result is on its way to the host. */
typedef struct result {
    float *host;
    float expected;
    weir_stream stream;
} result;

static void expect(result *r)
{
    if (r->host == NULL) return;
    must(weir_stream_synchronize(r->stream) == WEIR_OK);
    for (int i = 0; i < RESULTS; i++) must(r->host[i] == r->expected);
    must(weir_pinned_free(r->host) == WEIR_OK);
    r->host = NULL;
}

static void queue_product(cublasHandle_t handle, weir_stream stream, result *r, uint32_t *random)
{
    const unsigned left = next_random(random) % MATRICES, right = next_random(random) % MATRICES;
    const float scale = (float)(1 + next_random(random) % 8), zero = 0;
    const size_t bytes = RESULTS * sizeof(float);
    void *product = NULL, *host = NULL;
    must(weir_alloc_on(bytes, stream, &product) == WEIR_OK);
    must(weir_pinned_alloc(bytes, WEIR_NUMA_ANY, &host) == WEIR_OK);
    if (next_random(random) % 8 == 0) queue_delay(stream, random);
    must(vendor.cublasSgemm_v2(handle, 0, 0, ROWS, ROWS, TERMS, &scale, matrices[left], ROWS, matrices[right], TERMS,
                               &zero, product, ROWS) == 0);
    must(weir_copy(host, product, bytes, stream) == WEIR_OK);
    must(weir_free(product) == WEIR_OK);
    *r = (result){ host, scale * TERMS * (float)((left + 1) * (right + 1)), stream };
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static unsigned steps(void)
{
    return sanitized() ? 50 : 1500;
}

static void use_lease(weir_stream stream, result *r, uint32_t *random)
{
    weir_lease lease = { 0 };
    must(weir_handle_borrow(WEIR_CUBLAS, stream, WEIR_FOREVER, &lease) == WEIR_OK);
    queue_product(weir_lease_handle(lease), stream, r, random);
    must(weir_handle_return(lease) == WEIR_OK);
}

/* From stream to stream, and given back now and then to whoever comes next. */
static void use_own(weir_stream stream, result *r, uint32_t *random)
{
    cublasHandle_t handle = NULL;
    must(weir_cublas_on(stream, &handle) == WEIR_OK);
    queue_product(handle, stream, r, random);
    if (next_random(random) % 16 == 0) must(weir_handle_release(WEIR_CUBLAS, 0) == WEIR_OK);
    if (next_random(random) % 64 == 0) must(weir_handles_trim(WEIR_CUBLAS, 0, NULL) == WEIR_OK);
}

typedef struct worker {
    pthread_t thread;
    uint32_t random;
    void (*use)(weir_stream stream, result *r, uint32_t *random);
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    result results[BEHIND] = { 0 };
    weir_stream own = { 0 };
    must(weir_device_set_current(0) == WEIR_OK);
    must(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &own) == WEIR_OK);
    for (unsigned i = 0; i < steps(); i++) {
        expect(&results[i % BEHIND]);
        w->use(random_stream(shared, SHARED_STREAMS, own, &w->random), &results[i % BEHIND], &w->random);
    }
    for (int i = 0; i < BEHIND; i++) expect(&results[i]);
    return NULL;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void make_matrices(void)
{
    enum { ELEMENTS = ROWS * TERMS };
    float *host = malloc(ELEMENTS * sizeof *host);
    assert_non_null(host);
    for (int i = 0; i < MATRICES; i++) {
        for (int element = 0; element < ELEMENTS; element++) host[element] = (float)(i + 1);
        matrices[i] = alloc_on(ELEMENTS * sizeof *host, shared[0]);
        assert_ok(weir_copy(matrices[i], host, ELEMENTS * sizeof *host, shared[0]));
        assert_ok(weir_stream_synchronize(shared[0]));
    }
    free(host);
}

static int begin(void **state)
{
    open_weir(state);
    contents_begin(1);
    for (int i = 0; i < SHARED_STREAMS; i++) assert_ok(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &shared[i]));
    const char *missing = vendor_find();
    if (missing != NULL) fail_msg("%s is not in the library that weir loaded", missing);
    if (vendor_has[WEIR_CUBLAS]) make_matrices();
    return 0;
}

static int end(void **state)
{
    assert_int_equal(contents_end(), 0);
    return close_valid(state);
}

static void run(void (*use)(weir_stream stream, result *r, uint32_t *random))
{
    worker workers[THREADS];
    if (!vendor_has[WEIR_CUBLAS]) {
        print_message("skipped: cuBLAS was not found\n");
        skip();
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ .random = i * 977 + 1, .use = use };
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

static void products_of_borrowed_handles_are_right(void **state)
{
    (void)state;
    weir_handle_stats stats = { .size = sizeof stats };
    assert_ok(weir_handle_budget_set(WEIR_CUBLAS, 0, HANDLES, 0));
    run(use_lease);
    assert_ok(weir_handle_stats_get(WEIR_CUBLAS, 0, &stats));
    assert_int_equal(stats.created, HANDLES);
}

static void products_of_threads_own_handles_are_right(void **state)
{
    (void)state;
    run(use_own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(products_of_borrowed_handles_are_right, begin, end),
        cmocka_unit_test_setup_teardown(products_of_threads_own_handles_are_right, begin, end),
    };
    const int missing = no_gpu();
    return missing != 0 ? missing : cmocka_run_group_tests_name("gpu_products", tests, NULL, NULL);
}
