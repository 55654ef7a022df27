/*
 * costs: what making handles costs, in time, and in device memory by the driver's figure: N threads make one handle of
 * each kind, one thread after the other, and keep them. The first create in a process loads code that stays. For weir
 * and the library default, it also includes finding and loading the library; other peers come with it loaded.
 */
#include "output/table.h"
#include "peers.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#define MIB ((double)(1 << 20))

typedef struct cost {
    uint64_t made;
    double first_us, later_us[BENCH_THREADS_MAX];
    int64_t first_bytes, later_bytes;
} cost;

typedef struct outcome {
    cost kinds[BENCH_VENDOR_KINDS];
    int64_t total_bytes;
} outcome;

typedef struct team {
    outcome *out;
    const bench_peer *peer;
    const uint64_t *streams;
    pthread_mutex_t turn;
    pthread_barrier_t kind_done;
} team;

static void make_one(team *t, size_t kind, uint64_t stream)
{
    cost *c = &t->out->kinds[kind];
    const uint64_t before = t->peer->device_memory(), began = clock_now_ns();
    const bool made = t->peer->handle(bench_vendor_kinds[kind].kind, stream) != NULL;
    const double us = (double)(clock_now_ns() - began) / 1e3;
    const int64_t bytes = (int64_t)(t->peer->device_memory() - before);
    if (!made) return;
    if (c->made == 0) {
        c->first_us = us;
        c->first_bytes = bytes;
    } else {
        c->later_us[c->made - 1] = us;
        c->later_bytes += bytes;
    }
    c->made++;
}

static void make_all(void *argument, unsigned thread)
{
    team *t = argument;
    t->peer->enter(t->streams[thread]);
    for (size_t kind = 0; kind < BENCH_VENDOR_KINDS; kind++) {
        pthread_mutex_lock(&t->turn);
        make_one(t, kind, t->streams[thread]);
        pthread_mutex_unlock(&t->turn);
        pthread_barrier_wait(&t->kind_done);
    }
}

static void measure(const bench_peer *peer, void *result, const void *context)
{
    const bench_options *options = context;
    uint64_t streams[BENCH_THREADS_MAX];
    outcome *out = result;
    team t = { .out = out, .peer = peer, .streams = streams };
    if (!peer->handle || !peer->device_memory) return;
    peer_streams(peer, options->threads, streams);
    pthread_mutex_init(&t.turn, NULL);
    pthread_barrier_init(&t.kind_done, NULL, options->threads);
    peer->enter(streams[0]);
    const uint64_t before = peer->device_memory();
    bench_run_threads(options->threads, make_all, &t);
    out->total_bytes = (int64_t)(peer->device_memory() - before);
}

static int64_t bytes_of(const outcome *out, weir_handle_kind kind)
{
    for (size_t i = 0; i < BENCH_VENDOR_KINDS; i++)
        if (bench_vendor_kinds[i].kind == kind) return out->kinds[i].first_bytes + out->kinds[i].later_bytes;
    return 0;
}

static double cublas_and_cusolver_mib(const player *p)
{
    const outcome *out = p->result;
    return (double)(bytes_of(out, WEIR_CUBLAS) + bytes_of(out, WEIR_CUSOLVER_DN)) / MIB;
}

static double all_mib(const player *p)
{
    return (double)((const outcome *)p->result)->total_bytes / MIB;
}

static void show_kinds(const field *f)
{
    static const char *const titles[] = { "KIND",     "PEER",      "HANDLES",       "FIRST US",
                                          "LATER US", "FIRST MIB", "LATER MIB EACH" };
    table t;
    table_init(&t, "llrrrrr");
    table_titles(&t, titles);
    for (size_t kind = 0; kind < BENCH_VENDOR_KINDS; kind++)
        for (size_t i = 0; i < f->count; i++) {
            cost *c = &((outcome *)f->at[i].result)->kinds[kind];
            if (c->made < 2) continue;
            table_cell(&t, "%s", bench_vendor_kinds[kind].name);
            table_cell(&t, "%s", f->at[i].name);
            table_cell(&t, "%" PRIu64, c->made);
            table_cell(&t, "%.0f", c->first_us);
            table_cell(&t, "%.1f", bench_median(c->later_us, c->made - 1));
            table_cell(&t, "%.0f", (double)c->first_bytes / MIB);
            table_cell(&t, "%.1f", (double)c->later_bytes / MIB / (double)(c->made - 1));
        }
    table_print(&t, stdout);
    table_release(&t);
    putchar('\n');
}

static void show_totals(const field *f, unsigned threads)
{
    static const char *const titles[] = { "PEER", "CUBLAS+CUSOLVER MIB", "TO WEIR", "ALL KINDS MIB", "TO WEIR" };
    table t;
    printf("device memory of %u threads with a handle of each kind\n", threads);
    table_init(&t, "lrrrr");
    table_titles(&t, titles);
    for (size_t i = 0; i < f->count; i++) {
        const player *p = &f->at[i];
        table_cell(&t, "%s", p->name);
        table_cell(&t, "%.0f", cublas_and_cusolver_mib(p));
        table_cell(&t, "%.2f", cublas_and_cusolver_mib(p) / cublas_and_cusolver_mib(&f->at[0]));
        table_cell(&t, "%.0f", all_mib(p));
        table_cell(&t, "%.2f", all_mib(p) / all_mib(&f->at[0]));
    }
    table_print(&t, stdout);
    table_release(&t);
    putchar('\n');
}

bool bench_costs(const bench_options *options)
{
    static const bench_peer *const built_in[] = { &peer_weir, &peer_raw, NULL };
    const field_plan plan = {
        .bench = "costs", .built_in = built_in, .result_bytes = sizeof(outcome), .measure = measure, .context = options
    };
    char what[96];
    field *f;
    if (bench_on_host(options)) {
        puts("costs: left out: NVIDIA's libraries need a GPU; use --backend cuda\n");
        return true;
    }
    bool good = field_run(&f, &plan, options);
    good &= field_run(&f, &plan, options); /* this run counts: the first had to read the libraries' files from disk */
    puts("cost of making handles, kinds in this order, threads one after the other, device memory by the driver's "
         "figure");
    show_kinds(f);
    if (f->at[0].measured) show_totals(f, options->threads);
    snprintf(what, sizeof what, "device memory, %u threads x (cuBLAS + cuSOLVER)", options->threads);
    if (f->at[0].measured && cublas_and_cusolver_mib(&f->at[0]) > 0)
        bench_judge(what, cublas_and_cusolver_mib(&f->at[0]) / 1024, 0.6, "GiB");
    return good;
}
