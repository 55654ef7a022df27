#include "peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* NULL after reporting why. */
static const bench_peer *load(const bench_peer_file *file)
{
    if (file->variable[0] && setenv(file->variable, file->value, 1) != 0) return NULL;
    void *object = dlopen(file->path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object ? dlsym(object, "bench_peer_get") : NULL;
    if (!symbol) {
        fprintf(stderr, "weir-bench: peer %s is left out: %s\n", file->path, dlerror());
        return NULL;
    }
    bench_peer_getter get = NULL;
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from void * to a function pointer */
    const bench_peer *peer = get();
    if (peer->version == BENCH_PEER_VERSION) return peer;
    fprintf(stderr, "weir-bench: peer %s is left out: it was built for version %u of peer.h, but this is version %d\n",
            file->path, peer->version, BENCH_PEER_VERSION);
    return NULL;
}

void peer_streams(const bench_peer *peer, size_t count, uint64_t *streams)
{
    for (size_t i = 0; i < count; i++) streams[i] = peer->stream ? peer->stream() : 0;
}

typedef struct entry {
    const field_plan *plan;
    const bench_peer *built_in; /* or */
    const bench_peer_file *file;
    player *player;
} entry;

static void measure_one(void *argument)
{
    const entry *e = argument;
    player *p = e->player;
    const bench_peer *peer = e->built_in ? e->built_in : load(e->file);
    if (!peer) return;
    const bool variant = e->file && e->file->variable[0];
    snprintf(p->name, sizeof p->name, "%s%s%s", peer->name, variant ? ", " : "", variant ? e->file->value : "");
    const char *reason = peer->open ? peer->open() : NULL;
    if (reason) {
        fprintf(stderr, "weir-bench: %s is left out of %s: %s\n", peer->name, e->plan->bench, reason);
        return;
    }
    e->plan->measure(peer, p->result, e->plan->context);
    p->measured = true;
}

/* All peers that the plan asks for, each with a player of the field. */
static size_t enter_all(entry entries[FIELD_MAX], field *f, const field_plan *plan, const bench_options *options)
{
    size_t count = 0;
    for (const bench_peer *const *peer = plan->built_in; *peer && count < FIELD_MAX; peer++)
        entries[count++] = (entry){ .built_in = *peer };
    for (size_t i = 0; i < options->peer_count && count < FIELD_MAX; i++)
        if (plan->variants || !options->peers[i].variable[0]) entries[count++] = (entry){ .file = &options->peers[i] };
    for (size_t i = 0; i < count; i++) {
        entries[i].plan = plan;
        entries[i].player = &f->at[i];
        f->at[i].result = bench_shared(plan->result_bytes);
    }
    return count;
}

bool field_run(field **out, const field_plan *plan, const bench_options *options)
{
    field *f = *out = bench_shared(sizeof *f);
    entry entries[FIELD_MAX];
    void *arguments[FIELD_MAX];
    const size_t count = enter_all(entries, f, plan, options);
    for (size_t i = 0; i < count; i++) arguments[i] = &entries[i];
    bool good = true;
    if (plan->in_turns)
        good = bench_in_turns(plan->bench, measure_one, arguments, count);
    else
        for (size_t i = 0; i < count; i++) good &= bench_isolated(plan->bench, measure_one, arguments[i]);
    good &= f->at[0].measured; /* weir itself, without which nothing was compared */
    for (size_t i = 0; i < count; i++)
        if (f->at[i].measured || i == 0) f->at[f->count++] = f->at[i];
    return good;
}
