/*
 * many: what an allocation costs while many blocks are live. replace: one block is freed, and one of another size
 * allocated. miss: every other block was freed, and a request is larger than all gaps between the rest, so that memory
 * must grow or be mapped together.
 */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 3, REPLACED = 2000, MISSES = 151 };

static const size_t live_counts[] = { 1000, 10000, 100000 };
enum { COUNTS = sizeof live_counts / sizeof live_counts[0], REPLACE = 0, MISS = COUNTS, RESULTS = 2 * COUNTS };

/* 128 KiB to 1.125 MiB: 100,000 blocks take 61 GiB, so memory is not short on devices of 80 GiB. */
static size_t any_size(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return ((size_t)128 << 10) + (size_t)512 * ((*random >> 8) % 2048);
}

static const size_t MISSED_BYTES = (size_t)16 << 20;

static void release_all(const bench_peer *peer, uint64_t stream, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (blocks[i]) peer->release(blocks[i], stream);
}

/* False: the device has no room for that many. */
static bool fill(const bench_peer *peer, uint64_t stream, void **blocks, size_t count, uint32_t *random)
{
    size_t i = 0;
    while (i < count && (blocks[i] = peer->alloc(any_size(random), stream))) i++;
    if (i < count) release_all(peer, stream, blocks, i);
    return i == count;
}

static double replace_some(const bench_peer *peer, uint64_t stream, void **blocks, size_t count, uint32_t *random)
{
    const uint64_t began = clock_now_ns();
    for (int i = 0; i < REPLACED; i++) {
        const size_t bytes = any_size(random), which = (*random >> 4) % count;
        if (blocks[which]) peer->release(blocks[which], stream);
        blocks[which] = peer->alloc(bytes, stream);
    }
    return (double)(clock_now_ns() - began) / REPLACED;
}

/* 0: a request was refused. */
static double miss(const bench_peer *peer, uint64_t stream, void **blocks, size_t count)
{
    void *large[MISSES] = { NULL };
    double ns[MISSES];
    bool good = true;
    for (size_t i = 0; i < count; i += 2) {
        if (blocks[i]) peer->release(blocks[i], stream);
        blocks[i] = NULL;
    }
    for (int i = 0; i < MISSES; i++) {
        const uint64_t began = clock_now_ns();
        large[i] = peer->alloc(MISSED_BYTES, stream);
        ns[i] = (double)(clock_now_ns() - began);
        good &= large[i] != NULL;
    }
    release_all(peer, stream, large, MISSES);
    return good ? bench_median(ns, MISSES) : 0;
}

/* result[REPLACE + i] and result[MISS + i], nanoseconds. Each round begins with nothing cached. */
static void measure_with(const bench_peer *peer, uint64_t stream, void **blocks, size_t i, double *result)
{
    double replaced[ROUNDS], missed[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        uint32_t random = 1 + (uint32_t)r;
        if (!fill(peer, stream, blocks, live_counts[i], &random)) return;
        replaced[r] = replace_some(peer, stream, blocks, live_counts[i], &random);
        missed[r] = miss(peer, stream, blocks, live_counts[i]);
        release_all(peer, stream, blocks, live_counts[i]);
        if (peer->empty) peer->empty();
    }
    result[REPLACE + i] = bench_median(replaced, ROUNDS);
    result[MISS + i] = bench_median(missed, ROUNDS);
}

static void measure_all(const bench_peer *peer, void *result, const void *context)
{
    uint64_t stream = 0;
    (void)context;
    if (!peer->alloc) return;
    void **blocks = malloc(live_counts[COUNTS - 1] * sizeof *blocks);
    if (!blocks) return;
    peer_streams(peer, 1, &stream);
    if (peer->enter) peer->enter(stream);
    for (size_t i = 0; i < COUNTS; i++) measure_with(peer, stream, blocks, i, result);
    free(blocks);
}

static void judge(const field *f)
{
    const player *weir = &f->at[0];
    const double few = compare_figure(weir, MISS), many = compare_figure(weir, MISS + COUNTS - 1);
    if (weir->measured && few > 0 && many > 0)
        bench_judge("a request that nothing fits, 100,000 live, to 1,000 live", many / few, 5, "times");
}

static void show(compare *c, const char *what, size_t first)
{
    char name[64];
    for (size_t i = 0; i < COUNTS; i++) {
        snprintf(name, sizeof name, "%s, %zu live", what, live_counts[i]);
        compare_row(c, name, 1, first + i);
    }
}

bool bench_many(const bench_options *options)
{
    static const bench_peer *const on_host[] = { &peer_weir, &peer_libc, &peer_mimalloc, &peer_jemalloc, NULL };
    static const bench_peer *const on_gpu[] = { &peer_weir, &peer_async, NULL };
    const field_plan plan = { .bench = "many",
                              .built_in = bench_on_host(options) ? on_host : on_gpu,
                              .result_bytes = sizeof(double) * RESULTS,
                              .measure = measure_all };
    compare c;
    field *f;
    const bool good = field_run(&f, &plan, options);
    printf("with many blocks live, back end %s, ns, median of %d rounds\n", options->backend, ROUNDS);
    compare_begin(&c, "what", f);
    show(&c, "replace by any size", REPLACE);
    show(&c, "request that nothing fits", MISS);
    compare_print(&c);
    judge(f);
    return good;
}
