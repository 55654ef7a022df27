/*
 * handles: the cost of getting a library handle that exists already, with each thread on a stream of its own, or all on
 * the default stream, which libraries treat with less care. On the host back end the handle is a stand-in, and the
 * peers are what programs do without a pool.
 */
#include "compare.h"

#include <math.h>
#include <stdio.h>

enum { ROUNDS = 5, BATCH = 1000 };

static const bench_kind standin[] = { { "stand-in", BENCH_STANDIN_KIND } };
const bench_kind bench_vendor_kinds[BENCH_VENDOR_KINDS] = { { "cuSPARSE", WEIR_CUSPARSE },
                                                            { "cuBLAS", WEIR_CUBLAS },
                                                            { "cuSOLVER Dn", WEIR_CUSOLVER_DN },
                                                            { "cuDNN", WEIR_CUDNN } };

typedef struct load {
    const bench_peer *peer;
    const uint64_t *streams;
    weir_handle_kind kind;
    bool missing;
    double ns[BENCH_THREADS_MAX];
} load;

static void run_load(void *argument, unsigned thread)
{
    load *l = argument;
    const uint64_t stream = l->streams[thread];
    if (l->peer->enter) l->peer->enter(stream);
    void *volatile sink = l->peer->handle(l->kind, stream);
    if (!sink) {
        l->missing = true; /* all threads find the same */
        return;
    }
    for (int i = 0; i < BATCH; i++) sink = l->peer->handle(l->kind, stream);
    const uint64_t began = clock_now_ns();
    uint64_t gets = 0, took = 0;
    while (took < BENCH_ROUND_MS * UINT64_C(1000000)) {
        for (int i = 0; i < BATCH; i++) sink = l->peer->handle(l->kind, stream);
        gets += BATCH;
        took = clock_now_ns() - began;
    }
    l->ns[thread] = (double)took / (double)gets;
}

static double measure(const bench_peer *peer, const uint64_t *streams, weir_handle_kind kind, unsigned threads)
{
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        load l = { .peer = peer, .streams = streams, .kind = kind };
        bench_run_threads(threads, run_load, &l);
        if (l.missing) return 0;
        rounds[r] = bench_median(l.ns, threads);
        bench_pass_turn();
    }
    return bench_median(rounds, ROUNDS);
}

enum { STEPS = 9, STREAMS = 2 }; /* threads: 1, 2, 4 ... 256; streams: own, default */

static size_t place(size_t kind, size_t stream, unsigned step)
{
    return (kind * STREAMS + stream) * STEPS + step;
}

static const bench_kind *kinds_of(const bench_options *options, size_t *count)
{
    *count = bench_on_host(options) ? 1 : BENCH_VENDOR_KINDS;
    return bench_on_host(options) ? standin : bench_vendor_kinds;
}

static void measure_all(const bench_peer *peer, void *result, const void *context)
{
    const bench_options *options = context;
    uint64_t streams[STREAMS][BENCH_THREADS_MAX];
    double *ns = result;
    size_t count;
    const bench_kind *kinds = kinds_of(options, &count);
    if (!peer->handle) return;
    peer_streams(peer, options->threads, streams[0]);
    for (unsigned i = 0; i < options->threads; i++) streams[1][i] = peer->default_stream ? peer->default_stream() : 0;
    for (size_t k = 0; k < count; k++)
        for (size_t s = 0; s < STREAMS; s++)
            for (unsigned step = 0; 1u << step <= options->threads; step++)
                ns[place(k, s, step)] = measure(peer, streams[s], kinds[k].kind, 1u << step);
}

static void judge(const field *f, size_t kinds, unsigned last)
{
    static const char *const forms[] = { "explicit", "implicit" };
    static const double limits[] = { 10, 30 };
    char what[96];
    for (size_t form = 0; form < 2 && form < f->count && f->at[form].measured; form++) {
        double worst[2] = { 0 };
        for (size_t k = 0; k < kinds; k++)
            for (size_t s = 0; s < STREAMS; s++) {
                worst[0] = fmax(worst[0], compare_figure(&f->at[form], place(k, s, 0)));
                worst[1] = fmax(worst[1], compare_figure(&f->at[form], place(k, s, last)));
            }
        snprintf(what, sizeof what, "handle get, hit, %s, 1 thread, worst kind", forms[form]);
        bench_judge(what, worst[0], limits[form], "ns");
        snprintf(what, sizeof what, "handle get, hit, %s, %u threads, worst kind", forms[form], 1u << last);
        if (last > 0) bench_judge(what, worst[1], limits[form], "ns");
    }
}

bool bench_handles(const bench_options *options)
{
    static const char *const streams[STREAMS] = { "", ", default stream" };
    static const bench_peer *const on_host[] = { &peer_weir, &peer_weir_implicit, &peer_mutex_map, &peer_create, NULL };
    static const bench_peer *const on_gpu[] = { &peer_weir, &peer_weir_implicit, NULL };
    size_t count;
    const bench_kind *kinds = kinds_of(options, &count);
    const field_plan plan = { .bench = "handles",
                              .built_in = bench_on_host(options) ? on_host : on_gpu,
                              .in_turns = true,
                              .result_bytes = place(count, 0, 0) * sizeof(double),
                              .measure = measure_all,
                              .context = options };
    unsigned last = 0;
    compare c;
    field *f;
    const bool good = field_run(&f, &plan, options);
    printf("handle get, back end %s, ns per call, median of %d rounds of %d ms\n", options->backend, ROUNDS,
           BENCH_ROUND_MS);
    compare_begin(&c, "kind", f);
    for (size_t k = 0; k < count; k++)
        for (size_t s = 0; s < STREAMS; s++)
            for (unsigned step = 0; 1u << step <= options->threads; last = step++) {
                char what[64];
                snprintf(what, sizeof what, "%s%s", kinds[k].name, streams[s]);
                compare_row(&c, what, 1u << step, place(k, s, step));
            }
    compare_print(&c);
    judge(f, count, last);
    return good;
}
