/*
 * history: what recording and reading back cost. pair: allocate and free 512 B, three events, on 1 to N threads, each
 * on a stream of its own, with recording off, on, and on with the stacks of both calls. dump: a million events read
 * into memory, saved to a file, and in a snapshot with the blocks; also a snapshot of one pool without events, while a
 * million are recorded.
 */
#include "bench.h"

#include "weir/observe.h"
#include "weir/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 5, BATCH = 200, EVENTS_OF_PAIR = 3, CALLS_OF_PAIR = 2, STEPS = 9 }; /* threads: 1, 2, 4 ... 256 */
enum { DUMPED = 1000000, DUMP_THREADS = 4, DEPTH = 16, POOL_BLOCKS = 20, POOL_SNAPSHOTS = 201 };

typedef struct results {
    const bench_options *options;
    uint64_t history, stacks; /* stacks: frames of each */
    double pair[STEPS];
    double read, save, snapshot; /* milliseconds; the median */
    double pool;                 /* microseconds; the median */
} results;

typedef struct load {
    int deeper; /* calls to nest before the first allocation */
    weir_stream streams[BENCH_THREADS_MAX];
    double ns[BENCH_THREADS_MAX];
} load;

static void check(weir_status status)
{
    if (status == WEIR_OK) return;
    fprintf(stderr, "weir-bench: history: %s\n", weir_error_text());
    exit(1);
}

static void run_pairs(weir_stream stream, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        void *block = NULL;
        check(weir_alloc_on(512, stream, &block));
        check(weir_free(block));
    }
}

static void time_pairs(load *l, unsigned thread)
{
    uint64_t pairs = 0, took = 0;
    run_pairs(l->streams[thread], BATCH);
    const uint64_t began = clock_now_ns();
    while (took < BENCH_ROUND_MS * UINT64_C(1000000)) {
        run_pairs(l->streams[thread], BATCH);
        pairs += BATCH;
        took = clock_now_ns() - began;
    }
    l->ns[thread] = (double)took / (double)pairs;
}

/* Nests calls as deeply as a program does, so that no stack is shorter than the frames kept of it. */
static __attribute__((noinline)) void go_down(load *l, unsigned thread, int more)
{
    if (more)
        go_down(l, thread, more - 1);
    else
        time_pairs(l, thread);
    __asm__ volatile(""); /* no tail call */
}

static void run_load(void *argument, unsigned thread)
{
    load *l = argument;
    go_down(l, thread, l->deeper);
}

static void open_weir(const results *r, load *l)
{
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = r->options->backend;
    settings.history = r->history;
    settings.history_stacks = r->stacks;
    check(weir_open(&settings));
    for (unsigned i = 0; i < r->options->threads; i++) check(weir_stream_create(0, 0, &l->streams[i]));
}

static void measure_pairs(void *argument)
{
    results *r = argument;
    load l = { .deeper = r->stacks ? DEPTH : 0 };
    open_weir(r, &l);
    for (unsigned step = 0; 1u << step <= r->options->threads; step++) {
        double rounds[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            bench_run_threads(1u << step, run_load, &l);
            rounds[i] = bench_median(l.ns, 1u << step);
            bench_pass_turn();
        }
        r->pair[step] = bench_median(rounds, ROUNDS);
    }
    check(weir_close());
}

static void fill(void *argument, unsigned thread)
{
    const load *l = argument;
    run_pairs(l->streams[thread], DUMPED / EVENTS_OF_PAIR / DUMP_THREADS + BATCH);
}

static double milliseconds_since(uint64_t began)
{
    return (double)(clock_now_ns() - began) / 1e6;
}

/* Writes new files, since replacing one takes the system long. */
static void measure_million(results *r, const char *path)
{
    double read[ROUNDS], save[ROUNDS], snapshot[ROUNDS];
    weir_event *events = calloc(DUMPED, sizeof *events);
    if (!events) {
        perror("weir-bench: history: memory for what is read");
        exit(1);
    }
    for (int i = 0; i < ROUNDS; i++) {
        size_t count = 0;
        uint64_t began = clock_now_ns();
        check(weir_history_read(0, events, DUMPED, &count, NULL));
        read[i] = milliseconds_since(began);
        unlink(path);
        began = clock_now_ns();
        check(weir_history_save(path));
        save[i] = milliseconds_since(began);
        unlink(path);
        began = clock_now_ns();
        check(weir_snapshot_save(path, NULL));
        snapshot[i] = milliseconds_since(began);
        if (count != DUMPED) {
            fprintf(stderr, "weir-bench: history: %zu events were read where %d were recorded\n", count, DUMPED);
            exit(1);
        }
    }
    free(events);
    r->read = bench_median(read, ROUNDS);
    r->save = bench_median(save, ROUNDS);
    r->snapshot = bench_median(snapshot, ROUNDS);
}

static void measure_pool(results *r)
{
    static double us[POOL_SNAPSHOTS];
    weir_mempool_options in_pool = WEIR_MEMPOOL_OPTIONS_INIT;
    weir_snapshot_options options = WEIR_SNAPSHOT_OPTIONS_INIT;
    weir_mempool pool;
    void *block = NULL;
    in_pool.device = 0;
    check(weir_mempool_create(&in_pool, &pool));
    for (size_t i = 1; i <= POOL_BLOCKS; i++) check(weir_alloc_from(pool, i << 14, WEIR_STREAM_CURRENT, &block));
    options.device = 0;
    options.pool = &pool;
    options.without_history = true;
    const int nowhere = open("/dev/null", O_WRONLY);
    for (int i = 0; i < POOL_SNAPSHOTS; i++) {
        const uint64_t began = clock_now_ns();
        check(weir_snapshot_write(nowhere, &options));
        us[i] = milliseconds_since(began) * 1e3;
    }
    close(nowhere);
    r->pool = bench_median(us, POOL_SNAPSHOTS);
}

static void measure_dump(void *argument)
{
    results *r = argument;
    load l;
    char path[] = "/tmp/weir-bench-XXXXXX";
    const int file = mkstemp(path);
    bench_options options = *r->options;
    options.threads = DUMP_THREADS;
    results own = { .options = &options, .history = DUMPED };
    if (file < 0) {
        perror("weir-bench: history: a file in /tmp");
        exit(1);
    }
    close(file);
    open_weir(&own, &l);
    bench_run_threads(DUMP_THREADS, fill, &l);
    measure_million(r, path);
    measure_pool(r);
    unlink(path);
    check(weir_close());
}

bool bench_history(const bench_options *options)
{
    results *off = bench_shared(sizeof *off), *on = bench_shared(sizeof *on), *stacked = bench_shared(sizeof *stacked);
    off->options = on->options = stacked->options = options;
    on->history = stacked->history = 100000;
    stacked->stacks = DEPTH;
    void *const settings[] = { off, on, stacked };
    bool good = bench_in_turns("history", measure_pairs, settings, sizeof settings / sizeof settings[0]);
    good &= bench_isolated("history dump", measure_dump, on);
    if (!good) return false;
    printf("\nhistory, back end %s, median of %d rounds; stacks of %d frames\n\n"
           "%-10s %10s %10s %12s %14s %12s\n",
           options->backend, ROUNDS, DEPTH, "THREADS", "PAIR, OFF", "PAIR, ON", "PER EVENT", "WITH STACKS",
           "PER STACK");
    for (unsigned step = 0; 1u << step <= options->threads; step++)
        printf("%-10u %7.1f ns %7.1f ns %9.1f ns %11.1f ns %9.1f ns\n", 1u << step, off->pair[step], on->pair[step],
               (on->pair[step] - off->pair[step]) / EVENTS_OF_PAIR, stacked->pair[step],
               (stacked->pair[step] - on->pair[step]) / CALLS_OF_PAIR);
    printf("\n%d events of %d threads: read in %.1f ms, saved in %.1f ms, in a snapshot in %.1f ms\n", DUMPED,
           DUMP_THREADS, on->read, on->save, on->snapshot);
    printf("a pool of %d blocks, without events: in a snapshot in %.1f us\n\n", POOL_BLOCKS, on->pool);
    bench_judge("history, an event, 1 thread", (on->pair[0] - off->pair[0]) / EVENTS_OF_PAIR, 40, "ns");
    bench_judge("history, a million events read", on->read, 100, "ms");
    bench_judge("history, a million events saved", on->save, 100, "ms");
    bench_judge("history, a snapshot of one pool", on->pool, 100, "us");
    return true;
}
