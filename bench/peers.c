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

typedef struct turn {
    const field_plan *plan;
    const bench_peer *built_in; /* or */
    const bench_peer_file *file;
    player *player;
} turn;

static void take_turn(void *argument)
{
    const turn *t = argument;
    player *p = t->player;
    const bench_peer *peer = t->built_in ? t->built_in : load(t->file);
    if (!peer) return;
    const bool variant = t->file && t->file->variable[0];
    snprintf(p->name, sizeof p->name, "%s%s%s", peer->name, variant ? ", " : "", variant ? t->file->value : "");
    const char *reason = peer->open ? peer->open() : NULL;
    if (reason) {
        fprintf(stderr, "weir-bench: %s is left out of %s: %s\n", peer->name, t->plan->bench, reason);
        return;
    }
    t->plan->measure(peer, p->result, t->plan->context);
    p->measured = true;
}

bool field_run(field **out, const field_plan *plan, const bench_options *options)
{
    field *f = *out = bench_shared(sizeof *f);
    bool good = true;
    turn t = { .plan = plan };
    const bench_peer *const *built_in = plan->built_in;
    for (size_t file = 0; f->count < FIELD_MAX;) {
        t.built_in = *built_in;
        if (*built_in)
            built_in++;
        else if (file < options->peer_count)
            t.file = &options->peers[file++];
        else
            break;
        if (t.file && t.file->variable[0] && !plan->variants) continue;
        t.player = &f->at[f->count];
        t.player->result = bench_shared(plan->result_bytes);
        good &= bench_isolated(plan->bench, take_turn, &t);
        if (t.player->measured || f->count == 0) f->count++;
    }
    return good;
}
