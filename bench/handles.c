/*
 * handles: the cost of getting a library handle when there is one: weir with the stream named (explicit), weir with
 * the thread's current device and stream (implicit), a map guarded by one mutex (what programs write today), and
 * creating and destroying a handle per call. The library is a stand-in whose handle is a malloc of 1 KiB, so the
 * last column is a floor: cublasCreate takes 150 us, not 150 ns.
 */
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

enum { ROUNDS = 7, GETS = 1000000, HANDLE_BYTES = 1024 };

static int make(void *user, int device, void **handle)
{
    (void)user, (void)device;
    *handle = calloc(1, HANDLE_BYTES);
    return *handle ? 0 : 1;
}

static int unmake(void *user, void *handle)
{
    (void)user;
    free(handle);
    return 0;
}

static int bind(void *user, void *handle, void *native_stream)
{
    (void)user;
    memcpy(handle, &native_stream, sizeof native_stream);
    return 0;
}

static weir_handle_kind kind;

static void *get_explicit(weir_stream stream)
{
    void *handle = NULL;
    WEIR_CHECK(weir_handle_get_on(kind, stream, &handle));
    return handle;
}

static void *get_implicit(weir_stream stream)
{
    void *handle = NULL;
    (void)stream;
    WEIR_CHECK(weir_handle_get(kind, &handle));
    return handle;
}

/* One mutex, a hash table from thread to handle, the stream set at each get. */
enum { SLOTS = 1024 };
static pthread_mutex_t map_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    pthread_t thread;
    void *handle;
} map[SLOTS];

static void *get_from_map(weir_stream stream)
{
    const pthread_t me = pthread_self();
    size_t slot = ((size_t)me >> 12) * 0x9E3779B97F4A7C15u >> 54;
    pthread_mutex_lock(&map_mutex);
    while (map[slot].handle && !pthread_equal(map[slot].thread, me)) slot = (slot + 1) % SLOTS;
    if (!map[slot].handle && make(NULL, 0, &map[slot].handle) == 0) map[slot].thread = me;
    void *handle = map[slot].handle;
    pthread_mutex_unlock(&map_mutex);
    void *native = NULL;
    memcpy(&native, &stream.id, sizeof native);
    bind(NULL, handle, native);
    return handle;
}

static void *get_created(weir_stream stream)
{
    void *handle = NULL, *native = NULL;
    memcpy(&native, &stream.id, sizeof native);
    if (make(NULL, 0, &handle) != 0) exit(1);
    bind(NULL, handle, native);
    unmake(NULL, handle);
    return NULL;
}

static const struct {
    const char *name;
    void *(*get)(weir_stream stream);
} ways[] = {
    { "explicit", get_explicit }, { "implicit", get_implicit }, { "mutex map", get_from_map }, { "create", get_created }
};

typedef struct load {
    void *(*get)(weir_stream stream);
    double ns[256];
} load;

static void run_load(void *argument, unsigned thread)
{
    load *l = argument;
    weir_stream stream;
    WEIR_CHECK(weir_stream_from_pool(WEIR_DEVICE_CURRENT, WEIR_PRIORITY_DEFAULT, &stream));
    WEIR_CHECK(weir_stream_set_current(stream));
    void *volatile sink = l->get(stream);
    const uint64_t began = bench_now_ns();
    for (int i = 0; i < GETS; i++) sink = l->get(stream);
    l->ns[thread] = (double)(bench_now_ns() - began) / GETS;
    (void)sink;
}

static double measure(void *(*get)(weir_stream), unsigned threads)
{
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        load l = { .get = get };
        bench_run_threads(threads, run_load, &l);
        rounds[r] = bench_median(l.ns, threads);
    }
    return bench_median(rounds, ROUNDS);
}

int bench_handles(int argc, char **argv)
{
    const unsigned most = bench_threads_option("handles", argc, argv);
    if (most == 0) return 2;
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    WEIR_CHECK(weir_open(&settings));
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "bench", .create = make, .destroy = unmake,
                                  .bind = bind };
    WEIR_CHECK(weir_handle_kind_register(&ops, &kind));
    printf("handle get, ns per call, median of %d rounds of %d gets\n%7s", ROUNDS, GETS, "threads");
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) printf(" %10s", ways[w].name);
    putchar('\n');
    for (unsigned threads = 1; threads <= most; threads *= 2) {
        printf("%7u", threads);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) printf(" %10.1f", measure(ways[w].get, threads));
        putchar('\n');
    }
    WEIR_CHECK(weir_close());
    return 0;
}
