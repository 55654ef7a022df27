/*
 * Handles of NVIDIA's libraries on a real GPU: computations with every kind whose library is present, from many
 * threads, and their cost in device memory. Give a test's name to run it alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gpu_support.h"
#include "vendor_work.h"

enum { THREADS = 16, ITERATIONS = 4 };

static uint64_t free_memory(void)
{
    weir_device_info info = { .size = sizeof info };
    assert_ok(weir_device_info_get(0, &info));
    return info.free_memory;
}

static uint64_t lost(uint64_t before, uint64_t after)
{
    return before > after ? (before - after) / MIB : 0;
}

static weir_handle_stats stats_of(weir_handle_kind kind)
{
    weir_handle_stats stats = { .size = sizeof stats };
    assert_ok(weir_handle_stats_get(kind, 0, &stats));
    return stats;
}

/* Skips the test when no library is here at all. */
static void need_libraries(void)
{
    const char *missing = vendor_find();
    if (missing != NULL) fail_msg("%s is not in the library that weir loaded", missing);
    for (size_t i = 0; i < WORKS; i++)
        if (vendor_has[works[i].kind]) return;
    print_message("skipped: none of NVIDIA's libraries was found: %s\n", weir_error_text());
    skip();
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* A thread with a stream of its own. All threads of a team have their handles before the first goes on. */
typedef struct member {
    worker worker;
    pthread_t thread;
    pthread_barrier_t *together;
    bool (*before)(worker *w), (*after)(worker *w);
} member;

static bool on_stream_of_its_own(member *m)
{
    worker *w = &m->worker;
    weir_stream_guard guard;
    ENSURE_WEIR(weir_stream_create(0, WEIR_PRIORITY_DEFAULT, &w->stream));
    ENSURE_WEIR(weir_stream_native(w->stream, &w->native));
    ENSURE_WEIR(weir_stream_enter(w->stream, &guard));
    const bool ready = m->before(w);
    pthread_barrier_wait(m->together);
    pthread_barrier_wait(m->together);
    STEP(ready && m->after(w));
    ENSURE_WEIR(weir_stream_leave(&guard));
    ENSURE_WEIR(weir_stream_destroy(w->stream));
    return true;
}

static void *member_main(void *argument)
{
    member *m = argument;
    if (!on_stream_of_its_own(m) && m->worker.failure[0] == '\0') failed(&m->worker, "failed without a text");
    return NULL;
}

static bool nothing(worker *w)
{
    (void)w;
    return true;
}

/* `between` runs on the calling thread while all members hold what `before` took. */
static void run_team(member *team, unsigned count, bool (*before)(worker *), void (*between)(void),
                     bool (*after)(worker *))
{
    static unsigned seed;
    pthread_barrier_t together;
    assert_int_equal(pthread_barrier_init(&together, NULL, count + 1), 0);
    for (unsigned i = 0; i < count; i++) {
        team[i] = (member){ .worker.seed = ++seed, .together = &together, .before = before, .after = after };
        assert_int_equal(pthread_create(&team[i].thread, NULL, member_main, &team[i]), 0);
    }
    pthread_barrier_wait(&together);
    if (between != NULL) between();
    pthread_barrier_wait(&together);
    for (unsigned i = 0; i < count; i++) assert_int_equal(pthread_join(team[i].thread, NULL), 0);
    pthread_barrier_destroy(&together);
    for (unsigned i = 0; i < count; i++)
        if (team[i].worker.failure[0] != '\0') fail_msg("thread %u of %u: %s", i, count, team[i].worker.failure);
}

static bool get_all(worker *w)
{
    for (size_t i = 0; i < WORKS; i++) {
        void *handle;
        if (vendor_has[works[i].kind]) ENSURE_WEIR(weir_handle_get(works[i].kind, &handle));
    }
    return true;
}

static bool run_all(worker *w)
{
    for (size_t i = 0; i < WORKS; i++)
        if (vendor_has[works[i].kind]) STEP(run_work(w, i));
    return true;
}

static bool run_all_again_and_again(worker *w)
{
    for (int i = 0; i < ITERATIONS; i++) STEP(run_all(w));
    return true;
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void every_kind_computes(void **state)
{
    (void)state;
    static member one[1];
    need_libraries();
    for (size_t i = 0; i < WORKS; i++) {
        weir_handle_kind_info info = { .size = sizeof info };
        if (weir_handle_kind_info_get(works[i].kind, &info) == WEIR_OK)
            print_message("%s %s: %s\n", info.name, info.version, info.library);
        else
            print_message("kind %d: left out: %.60s\n", works[i].kind, weir_error_text());
    }
    run_team(one, 1, nothing, NULL, run_all_again_and_again);
}

static void cudss_takes_its_memory_from_weir(void **state)
{
    (void)state;
    static worker w;
    weir_memory_stats before = { .size = sizeof before }, after = { .size = sizeof after };
    need_libraries();
    if (!vendor_has[WEIR_CUDSS]) skip();
    assert_ok(weir_stream_default(0, &w.stream));
    assert_ok(weir_stats_get(0, &before));
    if (!work_cudss(&w)) fail_msg("%s", w.failure);
    assert_ok(weir_stats_get(0, &after));
    const int64_t blocks = after.allocation[WEIR_STAT_ALL].added - before.allocation[WEIR_STAT_ALL].added;
    print_message("cudss: %lld blocks from weir, %d of them the program's own\n", (long long)blocks, w.block_count);
    assert_true(blocks > w.block_count);
    if (!free_all(&w)) fail_msg("%s", w.failure);
}

static void assert_one_handle_a_thread(uint64_t generation)
{
    for (size_t i = 0; i < WORKS; i++) {
        const weir_handle_kind kind = works[i].kind;
        if (!vendor_has[kind]) continue;
        const weir_handle_stats stats = stats_of(kind);
        print_message(
            "kind %d after %llu x 16 threads: live %llu, idle %llu, created %llu, hits %llu, reuses %llu, rebinds "
            "%llu, %llu MiB and %llu MiB of workspaces\n",
            kind, (unsigned long long)generation, (unsigned long long)stats.live, (unsigned long long)stats.idle,
            (unsigned long long)stats.created, (unsigned long long)stats.hits, (unsigned long long)stats.reuses,
            (unsigned long long)stats.rebinds, (unsigned long long)(stats.bytes / MIB),
            (unsigned long long)(stats.workspace_bytes / MIB));
        assert_int_equal(stats.created, THREADS);
        assert_int_equal(stats.live, THREADS);
        assert_int_equal(stats.idle, THREADS);
        assert_int_equal(stats.reuses, (generation - 1) * THREADS);
        assert_int_equal(stats.hits, generation * THREADS * ITERATIONS);
    }
    if (vendor_has[WEIR_CUBLAS]) assert_true(stats_of(WEIR_CUBLAS).workspace_bytes >= THREADS * 4 * MIB);
}

static void threads_compute_and_later_ones_take_their_handles_over(void **state)
{
    (void)state;
    static member team[THREADS];
    uint64_t live = 0, destroyed = 0;
    need_libraries();
    float first_numbers[FIRST_NUMBERS] = { 0 };
    for (uint64_t generation = 1; generation <= 2; generation++) {
        run_team(team, THREADS, get_all, NULL, run_all_again_and_again);
        assert_one_handle_a_thread(generation);
        if (generation == 1) memcpy(first_numbers, team[0].worker.first_numbers, sizeof first_numbers);
        for (int i = 0; i < THREADS; i++)
            assert_memory_equal(team[i].worker.first_numbers, first_numbers, sizeof first_numbers);
    }
    assert_ok(weir_validate(0));
    for (size_t i = 0; i < WORKS; i++) live += stats_of(works[i].kind).live;
    assert_ok(weir_handles_trim(0, 0, &destroyed));
    assert_int_equal(destroyed, live);
    for (size_t i = 0; i < WORKS; i++) {
        assert_int_equal(stats_of(works[i].kind).live, 0);
        assert_int_equal(stats_of(works[i].kind).workspace_bytes, 0);
    }
}

/* Memory that the libraries and the driver take once, mostly for code, stays with them: some 300 MiB on an H200. */
static void closing_gives_the_memory_back(void **state)
{
    (void)state;
    static member team[THREADS];
    uint64_t closed[2];
    need_libraries();
    if (sanitized()) skip();
    const uint64_t before = free_memory();
    for (int round = 0; round < 2; round++) {
        run_team(team, THREADS, get_all, NULL, run_all);
        const uint64_t used = free_memory();
        assert_ok(weir_close());
        open_weir(NULL);
        closed[round] = free_memory();
        print_message("memory below the start: in use %llu MiB, closed %llu MiB\n",
                      (unsigned long long)lost(before, used), (unsigned long long)lost(before, closed[round]));
    }
    assert_in_range(lost(before, closed[0]), 0, 600);
    assert_in_range(lost(closed[0], closed[1]), 0, 64);
}

static bool get_cublas_and_cusolver(worker *w)
{
    cublasHandle_t cublas;
    cusolverDnHandle_t cusolver;
    ENSURE_WEIR(weir_cublas(&cublas));
    ENSURE_WEIR(weir_cusolver_dn(&cusolver));
    return true;
}

static bool run_cublas_and_cusolver(worker *w)
{
    return work_cublas(w) && free_all(w) && work_cusolver_dn(w) && free_all(w);
}

static uint64_t free_with_handles;

static void look_at_memory(void)
{
    free_with_handles = free_memory();
}

static void memory_of_many_threads(void **state)
{
    (void)state;
    static member team[THREADS];
    need_libraries();
    if (!vendor_has[WEIR_CUBLAS] || !vendor_has[WEIR_CUSOLVER_DN]) skip();
    const uint64_t before = free_memory();
    run_team(team, THREADS, get_cublas_and_cusolver, look_at_memory, run_cublas_and_cusolver);
    const weir_handle_stats cublas = stats_of(WEIR_CUBLAS), cusolver = stats_of(WEIR_CUSOLVER_DN);
    print_message("memory 16 threads cublas+cusolver: %llu MiB\n", (unsigned long long)lost(before, free_with_handles));
    print_message(
        "  cublas %llu MiB and workspaces of %llu MiB, cusolver %llu MiB; after a product and a solve by each: "
        "%llu MiB\n",
        (unsigned long long)(cublas.bytes / MIB), (unsigned long long)(cublas.workspace_bytes / MIB),
        (unsigned long long)(cusolver.bytes / MIB), (unsigned long long)lost(before, free_memory()));
    assert_int_equal(cublas.live, THREADS);
    assert_int_equal(cusolver.live, THREADS);
}

#define handle_test(test) cmocka_unit_test_setup_teardown(test, open_weir, close_weir)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        handle_test(every_kind_computes),
        handle_test(cudss_takes_its_memory_from_weir),
        handle_test(threads_compute_and_later_ones_take_their_handles_over),
        handle_test(closing_gives_the_memory_back),
        handle_test(memory_of_many_threads),
    };
    const int missing = no_gpu();
    if (missing != 0) return missing;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
