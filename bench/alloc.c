/*
 * alloc: the cost of an allocation and its free, when no memory has to grow, on 1 to N threads, each on a stream of its
 * own; shared: all on one stream. pair: allocate and free, repeatedly. mix: with 64 live blocks, replace a random one
 * each time. used: a second stream of the thread's uses each block, too. handed: one of two threads allocates, and the
 * other one frees what it hands over.
 */
#include "compare.h"
#include "grow.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, BATCH = 200, LIVE = 64, HANDED_MOST = 1024, HANDED_AT_ONCE = 64 };

/* Random sizes: bench_random_power, bench_random_multiple. */
enum { POWERS = 0, MULTIPLES = 1 };

typedef enum load_kind { PAIR, MIX, USED, HANDED } load_kind;

/* Blocks on their way from one thread to another, which says so once for HANDED_AT_ONCE of them: what is measured is
 * the allocator, not the way. */
typedef struct belt {
    void *at[HANDED_MOST];
    atomic_uint_fast64_t made; /* so many were put there */
    atomic_bool over;          /* no more come */
    char between[128];         /* padding: the threads write in cache lines of their own */
    atomic_uint_fast64_t taken;
    char beyond[128];
} belt;

typedef struct load {
    const bench_peer *peer;
    const uint64_t *streams, *others; /* by thread; the second ones of the threads */
    size_t bytes;                     /* or POWERS, MULTIPLES */
    load_kind kind;
    bool shared;                  /* all threads are on the first stream */
    belt *belts;                  /* for each two threads */
    atomic_bool *refused;         /* an allocation was: what is measured is something else */
    double ns[BENCH_THREADS_MAX]; /* for one pair, by thread */
} load;

static size_t size_for(const load *l, uint32_t *random)
{
    switch (l->bytes) {
    case POWERS: return bench_random_power(random);
    case MULTIPLES: return bench_random_multiple(random);
    default: return l->bytes;
    }
}

static uint64_t stream_of(const load *l, unsigned thread)
{
    return l->streams[l->shared ? 0 : thread];
}

static void churn(const load *l, unsigned thread, void *live[LIVE], uint32_t *random)
{
    const uint64_t stream = stream_of(l, thread);
    for (int i = 0; i < BATCH; i++) {
        const uint32_t slot = l->kind == MIX ? bench_random(random) % LIVE : 0;
        if (live[slot]) l->peer->release(live[slot], stream);
        live[slot] = l->peer->alloc(size_for(l, random), stream);
        if (!live[slot]) atomic_store_explicit(l->refused, true, memory_order_relaxed);
        if (l->kind == USED && live[slot]) l->peer->use(live[slot], l->others[thread]);
    }
}

/* Even threads allocate on their stream, odd ones free. */
static uint64_t make_blocks(const load *l, belt *b, uint64_t stream)
{
    uint64_t made = 0;
    for (const uint64_t began = clock_now_ns(); clock_now_ns() - began < BENCH_ROUND_MS * UINT64_C(1000000);) {
        while (made - atomic_load_explicit(&b->taken, memory_order_acquire) > HANDED_MOST - HANDED_AT_ONCE)
            sched_yield();
        for (int i = 0; i < HANDED_AT_ONCE; i++) {
            void *block = l->peer->alloc(l->bytes, stream);
            if (!block) atomic_store_explicit(l->refused, true, memory_order_relaxed);
            b->at[made++ % HANDED_MOST] = block;
        }
        atomic_store_explicit(&b->made, made, memory_order_release);
    }
    atomic_store_explicit(&b->over, true, memory_order_release);
    return made;
}

static uint64_t take_blocks(const load *l, belt *b, uint64_t stream)
{
    for (uint64_t taken = 0;;) {
        const bool over = atomic_load_explicit(&b->over, memory_order_acquire);
        const uint64_t made = atomic_load_explicit(&b->made, memory_order_acquire);
        if (made == taken && over) return taken;
        if (made == taken) sched_yield();
        while (taken < made) {
            void *block = b->at[taken++ % HANDED_MOST];
            if (block) l->peer->release(block, stream);
            if (taken % HANDED_AT_ONCE == 0) atomic_store_explicit(&b->taken, taken, memory_order_release);
        }
    }
}

static void hand_over(load *l, unsigned thread)
{
    belt *b = &l->belts[thread / 2];
    const uint64_t stream = l->streams[thread - thread % 2];
    if (l->peer->enter) l->peer->enter(stream);
    const uint64_t began = clock_now_ns();
    const uint64_t pairs = thread % 2 == 0 ? make_blocks(l, b, stream) : take_blocks(l, b, stream);
    l->ns[thread] = (double)(clock_now_ns() - began) / (double)pairs;
}

static void run_load(void *argument, unsigned thread)
{
    load *l = argument;
    if (l->kind == HANDED) {
        hand_over(l, thread);
        return;
    }
    void *live[LIVE] = { NULL };
    uint32_t random = 2463534242u + thread;
    const uint64_t stream = stream_of(l, thread);
    if (l->peer->enter) l->peer->enter(stream);
    churn(l, thread, live, &random);
    const uint64_t began = clock_now_ns();
    uint64_t pairs = 0, took = 0;
    while (took < BENCH_ROUND_MS * UINT64_C(1000000)) {
        churn(l, thread, live, &random);
        pairs += BATCH;
        took = clock_now_ns() - began;
    }
    l->ns[thread] = (double)took / (double)pairs;
    for (int i = 0; i < LIVE; i++)
        if (live[i]) l->peer->release(live[i], stream);
}

static const struct {
    const char *name;
    size_t bytes;
    load_kind kind;
    bool shared;
} loads[] = { { "512 B pair", 512, PAIR, false },
              { "64 KiB pair", 64 << 10, PAIR, false },
              { "32 MiB pair", 32 << 20, PAIR, false },
              { "512 B mix", 512, MIX, false },
              { "random mix", POWERS, MIX, false },
              { "any size mix", MULTIPLES, MIX, false },
              { "64 KiB shared", 64 << 10, PAIR, true },
              { "random mix shared", POWERS, MIX, true },
              { "any size mix shared", MULTIPLES, MIX, true },
              { "64 KiB used", 64 << 10, USED, false },
              { "512 B handed", 512, HANDED, false },
              { "64 KiB handed", 64 << 10, HANDED, false } };

enum { LOADS = sizeof loads / sizeof loads[0], STEPS = 9 }; /* threads: 1, 2, 4 ... 256 */

/* `streams`: two for each thread that there may be. 0: such a load needs more threads, or more memory, or the peer
 * lacks it. */
static double measure(const bench_peer *peer, const uint64_t *streams, size_t which, unsigned threads)
{
    const load_kind kind = loads[which].kind;
    double rounds[ROUNDS];
    atomic_bool refused = false;
    if (kind == HANDED && threads < 2) return 0;
    if (kind == USED && (!peer->use || streams[0] == streams[threads])) return 0; /* or has too few streams */
    for (int r = 0; r < ROUNDS; r++) {
        load l = { .peer = peer,
                   .streams = streams,
                   .others = streams + threads,
                   .bytes = loads[which].bytes,
                   .kind = kind,
                   .shared = loads[which].shared,
                   .refused = &refused };
        l.belts = grow_new(threads / 2 + 1, sizeof *l.belts);
        bench_run_threads(threads, run_load, &l);
        rounds[r] = bench_median(l.ns, threads);
        free(l.belts);
        bench_pass_turn();
    }
    return atomic_load(&refused) ? 0 : bench_median(rounds, ROUNDS);
}

/* result[load * STEPS + step], nanoseconds of a pair. */
static void measure_all(const bench_peer *peer, void *result, const void *context)
{
    const bench_options *options = context;
    uint64_t streams[2 * BENCH_THREADS_MAX];
    double *ns = result;
    if (!peer->alloc) return;
    peer_streams(peer, (size_t)2 * options->threads, streams);
    for (size_t i = 0; i < LOADS; i++)
        for (unsigned step = 0; 1u << step <= options->threads; step++)
            ns[i * STEPS + step] = measure(peer, streams, i, 1u << step);
}

/* The worst of all pair loads with a stream for each thread. */
static double worst_pair(const player *weir, unsigned step)
{
    double worst = 0;
    for (size_t i = 0; i < LOADS; i++)
        if (loads[i].kind == PAIR && !loads[i].shared) worst = fmax(worst, compare_figure(weir, i * STEPS + step));
    return worst;
}

/* The worst ratio of all such loads of a kind. */
static double worst_ratio(load_kind kind, const player *weir, const player *peer, unsigned step)
{
    double worst = 0;
    for (size_t i = 0; i < LOADS; i++)
        if (loads[i].kind == kind && !loads[i].shared)
            worst = fmax(worst, compare_figure(weir, i * STEPS + step) / compare_figure(peer, i * STEPS + step));
    return worst;
}

static void judge_to_mimalloc(const player *weir, const player *peer, unsigned last)
{
    char what[96];
    bench_judge("alloc+free pair of 512 B, 1 thread, to mimalloc's", compare_figure(weir, 0) / compare_figure(peer, 0),
                2, "times");
    bench_judge("alloc+free of 64 live, 1 thread, to mimalloc's", worst_ratio(MIX, weir, peer, 0), 2, "times");
    snprintf(what, sizeof what, "alloc+free of 64 live, %u threads, to mimalloc's", 1u << last);
    if (last > 0) bench_judge(what, worst_ratio(MIX, weir, peer, last), 2, "times");
    snprintf(what, sizeof what, "free by another thread, %u threads, to mimalloc's", 1u << last);
    if (last > 0) bench_judge(what, worst_ratio(HANDED, weir, peer, last), 2, "times");
}

static void judge(const field *f, unsigned last)
{
    char what[96];
    if (!f->at[0].measured) return;
    bench_judge("alloc+free pair, hit, 1 thread, worst size", worst_pair(&f->at[0], 0), 20, "ns");
    snprintf(what, sizeof what, "alloc+free pair, hit, %u threads, worst size", 1u << last);
    if (last > 0) bench_judge(what, worst_pair(&f->at[0], last), 20, "ns");
    for (size_t p = 1; p < f->count; p++)
        if (strcmp(f->at[p].name, peer_mimalloc.name) == 0) judge_to_mimalloc(&f->at[0], &f->at[p], last);
}

bool bench_alloc(const bench_options *options)
{
    static const bench_peer *const on_host[] = { &peer_weir,         &peer_weir_implicit,
                                                 &peer_weir_in_pool, &peer_weir_from_pool,
                                                 &peer_libc,         &peer_mimalloc,
                                                 &peer_jemalloc,     NULL };
    static const bench_peer *const on_gpu[] = { &peer_weir,           &peer_weir_implicit, &peer_weir_in_pool,
                                                &peer_weir_from_pool, &peer_libc,          &peer_mimalloc,
                                                &peer_jemalloc,       &peer_async,         NULL };
    const field_plan plan = { .bench = "alloc",
                              .built_in = bench_on_host(options) ? on_host : on_gpu,
                              .in_turns = true,
                              .result_bytes = sizeof(double) * LOADS * STEPS,
                              .measure = measure_all,
                              .context = options };
    unsigned last = 0;
    compare c;
    field *f;
    const bool good = field_run(&f, &plan, options);
    printf("alloc+free, back end %s, ns per pair, median of %d rounds of %d ms\n", options->backend, ROUNDS,
           BENCH_ROUND_MS);
    compare_begin(&c, "load", f);
    for (size_t i = 0; i < LOADS; i++)
        for (unsigned step = 0; 1u << step <= options->threads; last = step++)
            compare_row(&c, loads[i].name, 1u << step, i * STEPS + step);
    compare_print(&c);
    judge(f, last);
    return good;
}
