/*
 * Handles of AMD's libraries: many threads make, bind, use and hand over handles of every kind whose library is
 * present, and the test provokes the ways in which these libraries end a process. On an AMD GPU the computed results
 * are checked. On the stand-in for libamdhip64, with AMD's own binaries or stand-ins of them, kernels do nothing, so
 * only the calls are checked. Give a test's name to run it alone, or --exit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assert_weir.h"
#include "weir/hip.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 16, GETS = 4, SIDE = 24, NUMBERS = 1024 };

static bool computes; /* there is a GPU */

/* ---- the stand-in, where there is one ---------------------------------------------------------------------------- */

static struct {
    void (*refuse_frees)(int code);
    unsigned long (*calls)(const char *name);
    unsigned long (*dead_streams)(void);
    void *free_memory; /* its hipFree */
} standin;             /* NULL: a real runtime */

static void find_standin(void)
{
    static const char *const names[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5" };
    for (int i = 0; i < 3; i++) {
        void *runtime = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        if (runtime == NULL) continue;
        *(void **)&standin.refuse_frees = dlsym(runtime, "standin_hip_refuse_frees");
        *(void **)&standin.calls = dlsym(runtime, "standin_hip_calls");
        *(void **)&standin.dead_streams = dlsym(runtime, "standin_hip_dead_streams");
        standin.free_memory = dlsym(runtime, "hipFree");
    }
    computes = standin.calls == NULL;
}

static unsigned long launches(void)
{
    static const char *const ways[] = { "hipLaunchKernel", "hipExtLaunchKernel", "hipModuleLaunchKernel",
                                        "hipExtModuleLaunchKernel" };
    unsigned long sum = 0;
    for (int i = 0; i < 4 && standin.calls != NULL; i++) sum += standin.calls(ways[i]);
    return sum;
}

/* ---- works ------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    weir_stream streams[2];
    pthread_t thread;
    pthread_barrier_t *together;
    char failure[512]; /* empty: none */
} worker;

static bool failed(worker *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(w->failure, sizeof w->failure, format, arguments);
    va_end(arguments);
    return false;
}

#define ENSURE(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) return failed(w, __VA_ARGS__);                                                               \
    } while (0)
#define ENSURE_WEIR(call)                                                                                              \
    do {                                                                                                               \
        if ((call) != WEIR_OK) return failed(w, "%s: %s", #call, weir_error_text());                                   \
    } while (0)

/* A function of the library that weir loaded for a kind; NULL: it does not have it. */
static void *function_of(weir_handle_kind kind, const char *name)
{
    weir_handle_kind_info info = { .size = sizeof info };
    if (weir_handle_kind_info_get(kind, &info) != WEIR_OK) return NULL;
    void *file = dlopen(info.library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return file != NULL ? dlsym(file, name) : NULL;
}

typedef int (*gemm)(void *handle, int, int, int m, int n, int k, const float *alpha, const float *a, int lda,
                    const float *b, int ldb, const float *beta, float *c, int ldc);

/* c = a b, of small integers, which are exact. */
static bool multiply(worker *w, weir_stream stream, weir_handle_kind kind, void *handle, const char *name)
{
    float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    const float one = 1, zero = 0;
    void *function = function_of(kind, name), *on_device[3];
    gemm multiply_on_device;
    if (function == NULL) return true; /* a stand-in of the library */
    memcpy(&multiply_on_device, &function, sizeof function);
    for (int i = 0; i < SIDE * SIDE; i++) a[i] = (float)(i % 7 - 3), b[i] = (float)(i % 5 - 2);
    for (int i = 0; i < 3; i++) ENSURE_WEIR(weir_alloc_on(sizeof a, stream, &on_device[i]));
    ENSURE_WEIR(weir_copy(on_device[0], a, sizeof a, stream));
    ENSURE_WEIR(weir_copy(on_device[1], b, sizeof b, stream));
    int code = multiply_on_device(handle, 111, 111, SIDE, SIDE, SIDE, &one, on_device[0], SIDE, on_device[1], SIDE,
                                  &zero, on_device[2], SIDE);
    ENSURE(code == 0 || !computes, "%s: %d", name, code); /* its kernels may not be installed for the stand-in */
    ENSURE_WEIR(weir_copy(c, on_device[2], sizeof c, stream));
    ENSURE_WEIR(weir_stream_synchronize(stream));
    for (int i = 0; i < 3; i++) ENSURE_WEIR(weir_free(on_device[i]));
    for (int i = 0; i < SIDE * SIDE && computes; i++) {
        float sum = 0;
        for (int l = 0; l < SIDE; l++) sum += a[i % SIDE + l * SIDE] * b[l + i / SIDE * SIDE];
        ENSURE(c[i] == sum, "%s: element %d is %g, not %g", name, i, (double)c[i], (double)sum);
    }
    return true;
}

static bool work_rocblas(worker *w, weir_stream stream, void *handle)
{
    return multiply(w, stream, WEIR_ROCBLAS, handle, "rocblas_sgemm");
}

static bool work_hipblas(worker *w, weir_stream stream, void *handle)
{
    return multiply(w, stream, WEIR_HIPBLAS, handle, "hipblasSgemm");
}

static bool work_rocrand(worker *w, weir_stream stream, void *handle)
{
    float numbers[NUMBERS];
    void *function = function_of(WEIR_ROCRAND, "rocrand_generate_uniform"), *on_device;
    int (*generate)(void *, float *, size_t);
    if (function == NULL) return true;
    memcpy(&generate, &function, sizeof function);
    ENSURE_WEIR(weir_alloc_on(sizeof numbers, stream, &on_device));
    int code = generate(handle, on_device, NUMBERS);
    ENSURE(code == 0, "rocrand_generate_uniform: %d", code);
    ENSURE_WEIR(weir_copy(numbers, on_device, sizeof numbers, stream));
    ENSURE_WEIR(weir_stream_synchronize(stream));
    ENSURE_WEIR(weir_free(on_device));
    double sum = 0;
    for (int i = 0; i < NUMBERS && computes; i++) {
        ENSURE(numbers[i] > 0 && numbers[i] <= 1, "rocrand: number %d is %g", i, (double)numbers[i]);
        sum += (double)numbers[i];
    }
    ENSURE(!computes || (sum > 0.45 * NUMBERS && sum < 0.55 * NUMBERS), "rocrand: the mean is %g", sum / NUMBERS);
    return true;
}

/* y[i] += 2 x at every third place; the two libraries have the function alike. */
static bool add_sparse(worker *w, weir_stream stream, weir_handle_kind kind, void *handle, const char *name)
{
    float x[SIDE], y[3 * SIDE], found[3 * SIDE];
    int places[SIDE];
    const float two = 2;
    void *function = function_of(kind, name), *on_device[3];
    int (*add)(void *, int, const float *, const float *, const int *, float *, int);
    if (function == NULL) return true;
    memcpy(&add, &function, sizeof function);
    for (int i = 0; i < 3 * SIDE; i++) y[i] = (float)i;
    for (int i = 0; i < SIDE; i++) x[i] = (float)(i + 1), places[i] = 3 * i;
    ENSURE_WEIR(weir_alloc_on(sizeof x, stream, &on_device[0]));
    ENSURE_WEIR(weir_alloc_on(sizeof places, stream, &on_device[1]));
    ENSURE_WEIR(weir_alloc_on(sizeof y, stream, &on_device[2]));
    ENSURE_WEIR(weir_copy(on_device[0], x, sizeof x, stream));
    ENSURE_WEIR(weir_copy(on_device[1], places, sizeof places, stream));
    ENSURE_WEIR(weir_copy(on_device[2], y, sizeof y, stream));
    int code = add(handle, SIDE, &two, on_device[0], on_device[1], on_device[2], 0);
    ENSURE(code == 0, "%s: %d", name, code);
    ENSURE_WEIR(weir_copy(found, on_device[2], sizeof found, stream));
    ENSURE_WEIR(weir_stream_synchronize(stream));
    for (int i = 0; i < 3; i++) ENSURE_WEIR(weir_free(on_device[i]));
    for (int i = 0; i < 3 * SIDE && computes; i++) {
        const float expected = y[i] + (i % 3 == 0 ? 2 * x[i / 3] : 0);
        ENSURE(found[i] == expected, "%s: element %d is %g, not %g", name, i, (double)found[i], (double)expected);
    }
    return true;
}

static bool work_rocsparse(worker *w, weir_stream stream, void *handle)
{
    return add_sparse(w, stream, WEIR_ROCSPARSE, handle, "rocsparse_saxpyi");
}

static bool work_hipsparse(worker *w, weir_stream stream, void *handle)
{
    return add_sparse(w, stream, WEIR_HIPSPARSE, handle, "hipsparseSaxpyi");
}

/* Every kind; `work` NULL: the handle is made and bound only. */
static const struct {
    weir_handle_kind kind;
    const char *get_stream; /* int f(handle, stream *): what the library thinks it is bound to */
    bool (*work)(worker *w, weir_stream stream, void *handle);
} kinds[] = {
    { WEIR_MIOPEN, "miopenGetStream", NULL },
    { WEIR_ROCBLAS, "rocblas_get_stream", work_rocblas },
    { WEIR_HIPBLAS, "hipblasGetStream", work_hipblas },
    { WEIR_HIPBLASLT, NULL, NULL },
    { WEIR_ROCSPARSE, "rocsparse_get_stream", work_rocsparse },
    { WEIR_HIPSPARSE, "hipsparseGetStream", work_hipsparse },
    { WEIR_HIPSOLVER, "hipsolverGetStream", NULL },
    { WEIR_ROCRAND, NULL, work_rocrand },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool has[KINDS];

/* ---- the library ------------------------------------------------------------------------------------------------- */

static int open_weir(void **state)
{
    (void)state;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "hip";
    assert_ok(weir_open(&settings));
    assert_ok(weir_device_set_current(0));
    return 0;
}

static int close_weir(void **state)
{
    (void)state;
    if (standin.refuse_frees != NULL) standin.refuse_frees(0);
    assert_ok(weir_close());
    return 0;
}

static weir_handle_stats stats_of(int i)
{
    weir_handle_stats stats = { .size = sizeof stats };
    assert_ok(weir_handle_stats_get(kinds[i].kind, 0, &stats));
    return stats;
}

static void need_libraries(void)
{
    bool any = false;
    for (int i = 0; i < KINDS; i++) {
        weir_handle_kind_info info = { .size = sizeof info };
        has[i] = weir_handle_kind_info_get(kinds[i].kind, &info) == WEIR_OK;
        any = any || has[i];
    }
    if (any) return;
    print_message("skipped: none of AMD's libraries was found: %s\n", weir_error_text());
    skip();
}

static void libraries_are_described(void **state)
{
    (void)state;
    need_libraries();
    for (int i = 0; i < KINDS; i++) {
        weir_handle_kind_info info = { .size = sizeof info };
        if (weir_handle_kind_info_get(kinds[i].kind, &info) == WEIR_OK)
            print_message("%s %s: %s\n", info.name, info.version, info.library);
        else
            print_message("kind %d: left out: %.100s\n", kinds[i].kind, weir_error_text());
    }
}

static bool bound_to(worker *w, int i, void *handle, weir_stream stream)
{
    void *function = kinds[i].get_stream != NULL ? function_of(kinds[i].kind, kinds[i].get_stream) : NULL;
    int (*get_stream)(void *, void **);
    void *native, *found = NULL;
    if (function == NULL) return true;
    memcpy(&get_stream, &function, sizeof function);
    ENSURE_WEIR(weir_stream_native(stream, &native));
    int code = get_stream(handle, &found);
    ENSURE(code == 0, "%s: %d", kinds[i].get_stream, code);
    ENSURE(found == native, "%s: %p, not %p", kinds[i].get_stream, found, native);
    return true;
}

static bool use(worker *w, int i)
{
    void *handle = NULL, *again = NULL;
    for (int s = 0; s < 2; s++) {
        ENSURE_WEIR(weir_handle_get_on(kinds[i].kind, w->streams[s], &handle));
        for (int n = 0; n < GETS; n++) {
            ENSURE_WEIR(weir_handle_get_on(kinds[i].kind, w->streams[s], &again));
            ENSURE(again == handle, "kind %d: another handle", kinds[i].kind);
        }
        if (!bound_to(w, i, handle, w->streams[s])) return false;
        if (kinds[i].work != NULL && !kinds[i].work(w, w->streams[s], handle)) return false;
    }
    return true;
}

static bool use_all(worker *w)
{
    ENSURE_WEIR(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w->streams[0]));
    ENSURE_WEIR(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w->streams[1]));
    for (int i = 0; i < KINDS; i++)
        if (has[i] && !use(w, i)) return false;
    return true;
}

/* All threads have their handles before the first ends. */
static void *work_in_thread(void *argument)
{
    worker *w = argument;
    const bool good = use_all(w);
    pthread_barrier_wait(w->together);
    for (int s = 0; s < 2 && good; s++)
        if (weir_stream_destroy(w->streams[s]) != WEIR_OK) failed(w, "%s", weir_error_text());
    return NULL;
}

static void run_team(void)
{
    static worker team[THREADS];
    pthread_barrier_t together;
    assert_int_equal(pthread_barrier_init(&together, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        team[i] = (worker){ .together = &together };
        assert_int_equal(pthread_create(&team[i].thread, NULL, work_in_thread, &team[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(team[i].thread, NULL), 0);
    pthread_barrier_destroy(&together);
    for (int i = 0; i < THREADS; i++)
        if (team[i].failure[0] != '\0') fail_msg("thread %d of %d: %s", i, THREADS, team[i].failure);
}

static void report(int i, int generation)
{
    const weir_handle_stats stats = stats_of(i);
    weir_handle_kind_info info = { .size = sizeof info };
    assert_ok(weir_handle_kind_info_get(kinds[i].kind, &info));
    print_message("%s after %d x %d threads: live %llu, created %llu, hits %llu, reuses %llu, rebinds %llu, %llu MiB, "
                  "%llu MiB of workspaces\n",
                  info.name, generation, THREADS, (unsigned long long)stats.live, (unsigned long long)stats.created,
                  (unsigned long long)stats.hits, (unsigned long long)stats.reuses, (unsigned long long)stats.rebinds,
                  (unsigned long long)(stats.bytes / MIB), (unsigned long long)(stats.workspace_bytes / MIB));
    assert_int_equal(stats.created, THREADS);
    assert_int_equal(stats.live, THREADS);
    assert_int_equal(stats.idle, THREADS);
    assert_int_equal(stats.reuses, (generation - 1) * THREADS);
    assert_int_equal(stats.hits, generation * THREADS * 2 * GETS);
}

static void threads_use_handles_and_later_ones_take_them_over(void **state)
{
    (void)state;
    uint64_t live = 0, destroyed = 0;
    need_libraries();
    const unsigned long launched = launches();
    for (int generation = 1; generation <= 2; generation++) {
        run_team();
        for (int i = 0; i < KINDS; i++)
            if (has[i]) report(i, generation);
    }
    if (standin.calls != NULL) print_message("kernels launched: %lu\n", launches() - launched);
    if (standin.dead_streams != NULL) assert_int_equal(standin.dead_streams(), 0);
    assert_ok(weir_validate(0));
    for (int i = 0; i < KINDS; i++) live += stats_of(i).live;
    assert_ok(weir_handles_trim(0, 0, &destroyed));
    assert_int_equal(destroyed, live);
    for (int i = 0; i < KINDS; i++) {
        assert_int_equal(stats_of(i).live, 0);
        assert_int_equal(stats_of(i).workspace_bytes, 0);
    }
}

static uint64_t free_memory(void)
{
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_info_get(0, &info));
    return info.free_memory;
}

static void memory_that_a_handle_takes_is_given_back(void **state)
{
    (void)state;
    need_libraries();
    for (int i = 0; i < KINDS; i++) {
        void *handle;
        weir_handle_kind_info info = { .size = sizeof info };
        if (!has[i]) continue;
        assert_ok(weir_handle_kind_info_get(kinds[i].kind, &info));
        const uint64_t before = free_memory();
        assert_ok(weir_handle_get(kinds[i].kind, &handle));
        const uint64_t with = free_memory();
        const weir_handle_stats stats = stats_of(i);
        print_message("%s: %llu MiB of the device by its create, %llu MiB of it in weir's workspace, now %llu MiB\n",
                      info.name, (unsigned long long)(stats.bytes / MIB),
                      (unsigned long long)(stats.workspace_bytes / MIB), (unsigned long long)((before - with) / MIB));
        assert_ok(weir_handle_release(kinds[i].kind, 0));
        assert_ok(weir_handles_trim(kinds[i].kind, 0, NULL));
        assert_ok(weir_empty_cache(0));
        if (!computes) assert_int_equal(free_memory(), before);
    }
}

/* ---- memory for MIOpen ------------------------------------------------------------------------------------------- */

static struct {
    int (*miopenCreateTensorDescriptor)(void **description);
    int (*miopenSet4dTensorDescriptor)(void *description, int type, int n, int c, int h, int w);
    int (*miopenDestroyTensorDescriptor)(void *description);
    int (*miopenCreateConvolutionDescriptor)(void **description);
    int (*miopenInitConvolutionDescriptor)(void *description, int mode, int pad_h, int pad_w, int stride_h,
                                           int stride_w, int dilation_h, int dilation_w);
    int (*miopenDestroyConvolutionDescriptor)(void *description);
    int (*miopenCreateConvProblem)(void **problem, void *description, int direction);
    int (*miopenSetProblemTensorDescriptor)(void *problem, int id, void *description);
    int (*miopenDestroyProblem)(void *problem);
    int (*miopenFindSolutions)(void *handle, void *problem, void *options, void **solutions, size_t *found,
                               size_t most);
    int (*miopenDestroySolution)(void *solution);
} miopen;

static bool find_miopen(void)
{
#define FIND(name)                                                                                                     \
    *(void **)&miopen.name = function_of(WEIR_MIOPEN, #name);                                                          \
    if (miopen.name == NULL) return false
    FIND(miopenCreateTensorDescriptor);
    FIND(miopenSet4dTensorDescriptor);
    FIND(miopenDestroyTensorDescriptor);
    FIND(miopenCreateConvolutionDescriptor);
    FIND(miopenInitConvolutionDescriptor);
    FIND(miopenDestroyConvolutionDescriptor);
    FIND(miopenCreateConvProblem);
    FIND(miopenSetProblemTensorDescriptor);
    FIND(miopenDestroyProblem);
    FIND(miopenFindSolutions);
    FIND(miopenDestroySolution);
#undef FIND
    return true;
}

#define miopen_ok(call) assert_int_equal(miopen.call, 0)

/* The search for the best convolution needs buffers, which MIOpen takes itself when the program gives none. */
static void miopen_takes_its_memory_from_weir(void **state)
{
    (void)state;
    static const int sizes[3][4] = { { 4, 64, 32, 32 }, { 64, 64, 1, 1 }, { 4, 64, 32, 32 } }; /* x, w, y */
    weir_memory_stats before = { .size = sizeof before }, after = { .size = sizeof after };
    void *handle, *tensors[3], *convolution, *problem, *solutions[8];
    size_t found = 0;
    need_libraries();
    if (!has[0] || !find_miopen()) skip();
    assert_ok(weir_handle_get(WEIR_MIOPEN, &handle));
    miopen_ok(miopenCreateConvolutionDescriptor(&convolution));
    miopen_ok(miopenInitConvolutionDescriptor(convolution, 0, 0, 0, 1, 1, 1, 1));
    miopen_ok(miopenCreateConvProblem(&problem, convolution, 0));
    for (int i = 0; i < 3; i++) {
        const int *s = sizes[i];
        miopen_ok(miopenCreateTensorDescriptor(&tensors[i]));
        miopen_ok(miopenSet4dTensorDescriptor(tensors[i], 1, s[0], s[1], s[2], s[3]));
        miopen_ok(miopenSetProblemTensorDescriptor(problem, i + 1, tensors[i]));
    }
    assert_ok(weir_stats_get(0, &before));
    int code = miopen.miopenFindSolutions(handle, problem, NULL, solutions, &found, 8);
    assert_ok(weir_stats_get(0, &after));
    print_message(
        "miopenFindSolutions: %d, %zu solutions, %lld blocks from weir, of %lld bytes\n", code, found,
        (long long)(after.allocation[WEIR_STAT_ALL].added - before.allocation[WEIR_STAT_ALL].added),
        (long long)(after.requested_bytes[WEIR_STAT_ALL].added - before.requested_bytes[WEIR_STAT_ALL].added));
    assert_true(after.allocation[WEIR_STAT_ALL].added > before.allocation[WEIR_STAT_ALL].added);
    assert_int_equal(after.allocation[WEIR_STAT_ALL].current, before.allocation[WEIR_STAT_ALL].current);
    if (computes) assert_true(code == 0 && found > 0); /* the stand-in does not compile kernels */
    for (size_t i = 0; i < found; i++) miopen_ok(miopenDestroySolution(solutions[i]));
    miopen_ok(miopenDestroyProblem(problem));
    for (int i = 0; i < 3; i++) miopen_ok(miopenDestroyTensorDescriptor(tensors[i]));
    miopen_ok(miopenDestroyConvolutionDescriptor(convolution));
}

/* ---- where these libraries end the process ----------------------------------------------------------------------- */

/* Whether AMD's own library, rather than a stand-in of it, takes its memory from the stand-in of the runtime. */
static bool on_standin(weir_handle_kind kind)
{
    return standin.free_memory != NULL && function_of(kind, "hipFree") == standin.free_memory;
}

/* rocBLAS and MIOpen abort when they cannot free, and hipBLASLt exits, so weir must not destroy their handles then. */
static void handles_are_kept_when_nothing_can_be_freed(void **state)
{
    (void)state;
    need_libraries();
    for (int i = 0; i < KINDS; i++) {
        const weir_handle_kind kind = kinds[i].kind;
        const bool ends_the_process = kind == WEIR_MIOPEN || kind == WEIR_ROCBLAS || kind == WEIR_HIPBLAS ||
                                      kind == WEIR_HIPBLASLT || kind == WEIR_HIPSOLVER;
        void *handle;
        if (!has[i] || !ends_the_process || !on_standin(kind)) continue;
        assert_ok(weir_handle_get(kind, &handle));
        assert_ok(weir_handle_release(kind, 0));
        standin.refuse_frees(719);
        assert_int_equal(weir_handles_trim(kind, 0, NULL), WEIR_ERR_LIBRARY);
        standin.refuse_frees(0);
        print_message("%s\n", weir_error_text());
    }
}

/* Why weir keeps such handles: a child destroys them all the same. rocBLAS survives while its workspace is weir's. */
static void libraries_end_the_process_when_a_destroy_cannot_free(void **state)
{
    (void)state;
    static const struct {
        weir_handle_kind kind;
        const char *destroy;
    } touchy[] = { { WEIR_MIOPEN, "miopenDestroy" },
                   { WEIR_ROCBLAS, "rocblas_destroy_handle" },
                   { WEIR_HIPBLAS, "hipblasDestroy" },
                   { WEIR_HIPBLASLT, "hipblasLtDestroy" },
                   { WEIR_HIPSOLVER, "hipsolverDestroy" } };
    need_libraries();
    for (size_t i = 0; i < sizeof touchy / sizeof touchy[0]; i++) {
        void *handle, *function;
        int (*destroy)(void *), ended = 0;
        weir_handle_kind_info info = { .size = sizeof info };
        if (weir_handle_kind_info_get(touchy[i].kind, &info) != WEIR_OK || !on_standin(touchy[i].kind)) continue;
        assert_ok(weir_handle_get(touchy[i].kind, &handle));
        function = function_of(touchy[i].kind, touchy[i].destroy);
        assert_non_null(function);
        memcpy(&destroy, &function, sizeof function);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(20);
            standin.refuse_frees(719);
            (void)destroy(handle);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &ended, 0), child);
        if (WIFSIGNALED(ended))
            print_message("%s: signal %d\n", touchy[i].destroy, WTERMSIG(ended));
        else
            print_message("%s: exit %d\n", touchy[i].destroy, WEXITSTATUS(ended));
        if (touchy[i].kind != WEIR_ROCBLAS)
            assert_true(WIFSIGNALED(ended) ? WTERMSIG(ended) == SIGABRT : WEXITSTATUS(ended) == 1);
    }
}

/* hipBLASLt exits when its create gets no memory. */
static void a_create_without_memory_is_an_error(void **state)
{
    (void)state;
    need_libraries();
    for (int i = 0; i < KINDS; i++) {
        const weir_handle_kind kind = kinds[i].kind;
        void *most, *handle = NULL;
        if (!has[i] || (kind != WEIR_HIPBLASLT && kind != WEIR_MIOPEN) || !on_standin(kind)) continue;
        assert_ok(weir_alloc(free_memory() / (2 * MIB) * (2 * MIB) - 16 * MIB, &most));
        assert_int_equal(weir_handle_get(kind, &handle), WEIR_ERR_LIBRARY);
        assert_non_null(strstr(weir_error_text(), "not enough device memory"));
        print_message("%s\n", weir_error_text());
        assert_ok(weir_free(most));
        assert_ok(weir_handle_get(kind, &handle));
        assert_ok(weir_handle_release(kind, 0));
        assert_ok(weir_handles_trim(kind, 0, NULL));
        assert_ok(weir_empty_cache(0));
    }
}

/* --exit: the process ends with handles in use and nothing closed. Whether it ends well is for the caller to see. */
static int leave_with_handles(void)
{
    for (int i = 0; i < KINDS; i++) {
        void *handle;
        if (weir_handle_get(kinds[i].kind, &handle) == WEIR_OK) print_message("kind %d is in use\n", kinds[i].kind);
    }
    return 0;
}

#define handle_test(test) cmocka_unit_test_setup_teardown(test, open_weir, close_weir)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        handle_test(libraries_are_described),
        handle_test(memory_that_a_handle_takes_is_given_back),
        handle_test(threads_use_handles_and_later_ones_take_them_over),
        handle_test(miopen_takes_its_memory_from_weir),
        handle_test(a_create_without_memory_is_an_error),
        handle_test(handles_are_kept_when_nothing_can_be_freed),
        handle_test(libraries_end_the_process_when_a_destroy_cannot_free),
    };
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "hip";
    weir_status status = weir_open(&settings);
    if (status == WEIR_ERR_NO_LIBRARY || status == WEIR_ERR_NO_DEVICE) {
        print_message("skipped: %s\n", weir_error_text());
        return 77;
    }
    if (argc > 1 && strcmp(argv[1], "--exit") == 0) return status == WEIR_OK ? leave_with_handles() : 1;
    if (status != WEIR_OK || weir_close() != WEIR_OK) {
        print_error("%s\n", weir_error_text());
        return 1;
    }
    find_standin();
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
