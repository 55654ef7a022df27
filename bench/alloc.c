/*
 * alloc: the cost of an allocation and its free, when nothing has to grow: weir on the host back end against malloc,
 * mimalloc and jemalloc, on 1 to N threads, each thread on a stream of its own.
 * pair: allocate, free, again. mix: 64 blocks live, a random one replaced each time.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

enum { ROUNDS = 5, PAIRS = 200000, LIVE = 64 }; /* pairs of all threads together */

static void weir_prepare(unsigned thread)
{
    weir_stream stream;
    (void)thread;
    /* Round robin over 32: up to that many threads have one each. */
    WEIR_CHECK(weir_stream_from_pool(WEIR_DEVICE_CURRENT, WEIR_PRIORITY_DEFAULT, &stream));
    WEIR_CHECK(weir_stream_set_current(stream));
}

static void *weir_take(size_t bytes)
{
    void *p = NULL;
    WEIR_CHECK(weir_alloc(bytes, &p));
    return p;
}

static void weir_give(void *pointer)
{
    WEIR_CHECK(weir_free(pointer));
}

typedef struct load {
    const bench_allocator *allocator;
    size_t bytes; /* 0: sizes of 512 B to 512 KiB at random */
    bool mix;
    int pairs;      /* per thread */
    double ns[256]; /* per thread, of one pair */
} load;

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static size_t size_for(const load *l, uint32_t *random)
{
    return l->bytes ? l->bytes : (size_t)512 << (next_random(random) % 11);
}

static void churn(const load *l, void *live[LIVE], uint32_t *random, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        const uint32_t slot = l->mix ? next_random(random) % LIVE : 0;
        if (live[slot]) l->allocator->release(live[slot]);
        live[slot] = l->allocator->alloc(size_for(l, random));
    }
}

static void run_load(void *argument, unsigned thread)
{
    load *l = argument;
    void *live[LIVE] = { NULL };
    uint32_t random = 2463534242u + thread;
    if (l->allocator->prepare) l->allocator->prepare(thread);
    churn(l, live, &random, l->pairs / 10);
    const uint64_t began = bench_now_ns();
    churn(l, live, &random, l->pairs);
    l->ns[thread] = (double)(bench_now_ns() - began) / l->pairs;
    for (int i = 0; i < LIVE; i++)
        if (live[i]) l->allocator->release(live[i]);
}

static double measure(const bench_allocator *allocator, size_t bytes, bool mix, unsigned threads)
{
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        load l = { .allocator = allocator, .bytes = bytes, .mix = mix, .pairs = PAIRS / (int)threads };
        bench_run_threads(threads, run_load, &l);
        rounds[r] = bench_median(l.ns, threads);
    }
    return bench_median(rounds, ROUNDS);
}

static const struct {
    const char *name;
    size_t bytes;
    bool mix;
} loads[] = { { "512 B pair", 512, false },
              { "64 KiB pair", 64 << 10, false },
              { "32 MiB pair", 32 << 20, false },
              { "512 B mix", 512, true },
              { "random mix", 0, true } };

int bench_alloc(int argc, char **argv)
{
    const unsigned most = bench_threads_option("alloc", argc, argv);
    if (most == 0) return 2;
    bench_allocator allocators[4] = { { "weir", weir_prepare, weir_take, weir_give },
                                      { "malloc", NULL, malloc, free } };
    size_t count = 2;
    static const char *const mimalloc[] = { "libmimalloc.so.2", "libmimalloc.so", NULL };
    static const char *const jemalloc[] = { "libjemalloc.so.2", NULL };
    count += bench_load_peer("mimalloc", mimalloc, "mi_malloc", "mi_free", &allocators[count]);
    count += bench_load_peer("jemalloc", jemalloc, "malloc", "free", &allocators[count]);

    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    WEIR_CHECK(weir_open(&settings));
    printf("alloc+free, ns per pair, median of %d rounds of %d pairs in all\n%-12s %7s", ROUNDS, PAIRS, "load",
           "threads");
    for (size_t a = 0; a < count; a++) printf(" %10s", allocators[a].name);
    putchar('\n');
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++)
        for (unsigned threads = 1; threads <= most; threads *= 2) {
            printf("%-12s %7u", loads[i].name, threads);
            for (size_t a = 0; a < count; a++) {
                printf(" %10.1f", measure(&allocators[a], loads[i].bytes, loads[i].mix, threads));
                fflush(stdout);
            }
            putchar('\n');
        }
    WEIR_CHECK(weir_close());
    return 0;
}
