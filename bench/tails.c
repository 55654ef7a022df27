/*
 * tails: how long single calls take, not in the mean but the slowest of a hundred, a thousand and ten thousand, while 1
 * to N threads, each on a stream of its own, replace random ones of their live blocks. Rounds begin with nothing
 * allocated; --warm-up leaves out what a program's beginning takes. The first rows are the clock's own two calls: what
 * the machine does to any call.
 */
#include "compare.h"
#include "grow.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, BATCH = 200 };

/* Of requests: none, one, eleven powers of two, or any. */
typedef enum size_kind { CLOCK, EQUAL, POWERS, MULTIPLES, LARGE } size_kind;

static const struct {
    const char *name;
    size_kind sizes;
    unsigned live; /* blocks of a thread */
} loads[] = { { "the clock alone", CLOCK, 1 },
              { "512 B", EQUAL, 64 },
              { "512 B to 512 KiB, 11 sizes", POWERS, 64 },
              { "512 B to 512 KiB, any size", MULTIPLES, 64 },
              { "1 to 16 MiB, any size", LARGE, 64 } };
static const double parts[] = { 0.5, 0.99, 0.999, 0.9999 };
enum { LOADS = sizeof loads / sizeof loads[0], PARTS = sizeof parts / sizeof parts[0], STEPS = 9, LIVE_MOST = 64 };

/* ---- counts of calls by nanoseconds, 16 ranges from one power of two to the next --------------------------------- */

enum { STEPS_LOG2 = 4, RANGES = 40 << STEPS_LOG2 };

static unsigned range_of(uint64_t ns)
{
    if (ns < 1u << STEPS_LOG2) return (unsigned)ns;
    const unsigned log2 = 63u - (unsigned)__builtin_clzll(ns);
    const unsigned range = ((log2 - STEPS_LOG2) << STEPS_LOG2) + (unsigned)(ns >> (log2 - STEPS_LOG2));
    return range < RANGES ? range : RANGES - 1;
}

/* The most that is in the range. */
static double longest_in(unsigned range)
{
    if (range < 1u << STEPS_LOG2) return range;
    const unsigned shift = (range >> STEPS_LOG2) - 1, steps = (range & ((1u << STEPS_LOG2) - 1)) + (1u << STEPS_LOG2);
    return (double)(((uint64_t)(steps + 1) << shift) - 1);
}

static double longest_of(const uint64_t counts[RANGES], double part)
{
    uint64_t all = 0, seen = 0;
    unsigned range = 0;
    for (unsigned i = 0; i < RANGES; i++) all += counts[i];
    for (; range < RANGES - 1; range++) {
        seen += counts[range];
        if ((double)seen >= part * (double)all) break;
    }
    return longest_in(range);
}

/* ---- the load ---------------------------------------------------------------------------------------------------- */

typedef struct load {
    const bench_peer *peer;
    const uint64_t *streams;
    size_kind sizes;
    unsigned live, warm_up_ms;
    uint64_t (*counts)[RANGES]; /* by thread */
    atomic_bool *refused;       /* an allocation was: what is measured is something else */
} load;

static size_t size_for(size_kind sizes, uint32_t *random)
{
    switch (sizes) {
    case POWERS: return bench_random_power(random);
    case MULTIPLES: return bench_random_multiple(random);
    case LARGE: return ((size_t)1 << 20) + (size_t)512 * (bench_random(random) % 30720);
    default: return 512;
    }
}

static void count_since(uint64_t began, uint64_t *counts)
{
    counts[range_of(clock_now_ns() - began)]++;
}

static void replace_one(const load *l, uint64_t stream, void **block, uint32_t *random, uint64_t *counts)
{
    const size_t bytes = size_for(l->sizes, random);
    uint64_t began = clock_now_ns();
    if (*block) l->peer->release(*block, stream);
    count_since(began, counts);
    began = clock_now_ns();
    if (l->sizes != CLOCK) *block = l->peer->alloc(bytes, stream);
    count_since(began, counts);
    if (!*block && l->sizes != CLOCK) atomic_store_explicit(l->refused, true, memory_order_relaxed);
}

static void replace_for(const load *l, uint64_t stream, void **live, unsigned ms, uint32_t *random, uint64_t *counts)
{
    const uint64_t began = clock_now_ns();
    while (clock_now_ns() - began < ms * UINT64_C(1000000))
        for (unsigned i = 0; i < BATCH; i++)
            replace_one(l, stream, &live[bench_random(random) % l->live], random, counts);
}

static void run_load(void *argument, unsigned thread)
{
    const load *l = argument;
    const uint64_t stream = l->streams[thread];
    uint64_t *counts = l->counts[thread], *ignored = grow_new(RANGES, sizeof *ignored);
    void *live[LIVE_MOST] = { NULL };
    uint32_t random = 2463534242u + thread;
    if (l->peer->enter) l->peer->enter(stream);
    for (unsigned i = 0; i < 4 * l->live; i++) replace_one(l, stream, &live[i % l->live], &random, ignored);
    replace_for(l, stream, live, l->warm_up_ms, &random, ignored);
    replace_for(l, stream, live, BENCH_ROUND_MS, &random, counts);
    for (unsigned i = 0; i < l->live; i++)
        if (live[i]) l->peer->release(live[i], stream);
    free(ignored);
}

static size_t index_of(size_t which, unsigned step, size_t part)
{
    return (which * STEPS + step) * PARTS + part;
}

/* Leaves the results as they are, 0, where an allocation is refused. */
static void measure(const bench_peer *peer, const uint64_t *streams, size_t which, unsigned step, unsigned warm_up_ms,
                    double *result)
{
    const unsigned threads = 1u << step;
    atomic_bool refused = false;
    load l = { .peer = peer,
               .streams = streams,
               .sizes = loads[which].sizes,
               .live = loads[which].live,
               .warm_up_ms = warm_up_ms,
               .refused = &refused };
    l.counts = grow_new(threads, sizeof *l.counts);
    for (int r = 0; r < ROUNDS; r++) {
        bench_run_threads(threads, run_load, &l);
        bench_pass_turn();
    }
    for (unsigned t = 1; t < threads; t++)
        for (unsigned i = 0; i < RANGES; i++) l.counts[0][i] += l.counts[t][i];
    for (size_t p = 0; p < PARTS && !atomic_load(&refused); p++)
        result[index_of(which, step, p)] = longest_of(l.counts[0], parts[p]);
    free(l.counts);
}

static unsigned first_step(const bench_options *options)
{
    return options->warm_up_ms ? 31u - (unsigned)__builtin_clz(options->threads) : 0;
}

static void measure_all(const bench_peer *peer, void *result, const void *context)
{
    const bench_options *options = context;
    uint64_t streams[BENCH_THREADS_MAX];
    if (!peer->alloc) return;
    peer_streams(peer, options->threads, streams);
    for (size_t i = 0; i < LOADS; i++)
        for (unsigned step = first_step(options); 1u << step <= options->threads; step++)
            measure(peer, streams, i, step, options->warm_up_ms, result);
}

static void show(compare *c, size_t which, unsigned step)
{
    char name[96];
    for (size_t p = 0; p < PARTS; p++) {
        snprintf(name, sizeof name, "%s, %g %% within", loads[which].name, 100 * parts[p]);
        compare_row(c, name, 1u << step, index_of(which, step, p));
    }
}

bool bench_tails(const bench_options *options)
{
    static const bench_peer *const on_host[] = { &peer_weir, &peer_libc, &peer_mimalloc, &peer_jemalloc, NULL };
    static const bench_peer *const on_gpu[] = { &peer_weir, &peer_mimalloc, &peer_async, NULL };
    const field_plan plan = { .bench = "tails",
                              .built_in = bench_on_host(options) ? on_host : on_gpu,
                              .in_turns = true,
                              .result_bytes = sizeof(double) * LOADS * STEPS * PARTS,
                              .measure = measure_all,
                              .context = options };
    compare c;
    field *f;
    const bool good = field_run(&f, &plan, options);
    printf("single calls that allocate or free, back end %s, ns, %d rounds of %d ms after %u ms\n", options->backend,
           ROUNDS, BENCH_ROUND_MS, options->warm_up_ms);
    compare_begin(&c, "load", f);
    for (size_t i = 0; i < LOADS; i++)
        for (unsigned step = first_step(options); 1u << step <= options->threads; step++) show(&c, i, step);
    compare_print(&c);
    return good;
}
