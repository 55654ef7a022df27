/*
 * peers: the built-in peers, and running a benchmark on each peer in a process of its own. So contexts, loaded code,
 * cached memory and settings of one peer do not affect the next, and the driver's figures belong to one peer alone.
 */
#ifndef WEIR_BENCH_PEERS_H
#define WEIR_BENCH_PEERS_H

#include "bench.h"
#include "peer.h"

/* weir, in this order: with the stream named at each call; with the thread's current one; as the first, in a private
 * pool that all threads have entered; allocating from a private pool that is named; with PyTorch's placement rules. */
extern const bench_peer peer_weir, peer_weir_implicit, peer_weir_in_pool, peer_weir_from_pool, peer_weir_torch_rules;
/* cuMemAllocAsync on the device's default pool, which keeps its memory, as PyTorch uses it. */
extern const bench_peer peer_async;
/* The vendor's create functions, one handle per thread, with the library's defaults. */
extern const bench_peer peer_raw;
/* What programs do without a pool of handles: a map from thread to handle behind one mutex, and one create per call. */
extern const bench_peer peer_mutex_map, peer_create;
extern const bench_peer peer_libc, peer_mimalloc, peer_jemalloc;

/* The back end that weir's peers open: "host" or "cuda". */
void peer_weir_backend(const char *backend);

typedef struct bench_kind {
    const char *name;
    weir_handle_kind kind;
} bench_kind;

/* The libraries whose handles every peer on a GPU provides. */
#define BENCH_VENDOR_KINDS 4
extern const bench_kind bench_vendor_kinds[BENCH_VENDOR_KINDS];

/* Makes a handle, 1 KiB of host memory, and sets its stream. */
void *standin_create(void);
void standin_bind(void *handle, uint64_t stream);

/* Makes `count` streams of the peer; all 0 for a peer without streams. */
void peer_streams(const bench_peer *peer, size_t count, uint64_t *streams);

/* ---- the peers of a benchmark ---- */

/* A peer in a benchmark, and its result. */
typedef struct player {
    char name[192];
    bool measured;
    void *result;
} player;

#define FIELD_MAX BENCH_CHILDREN_MAX

/* The first is weir. Shared with the children that fill it. */
typedef struct field {
    player at[FIELD_MAX];
    size_t count;
} field;

typedef struct field_plan {
    const char *bench;
    const bench_peer *const *built_in; /* up to a NULL */
    bool variants;                     /* include peers that change the environment */
    bool in_turns;                     /* all peers are alive at once, and measure() calls bench_pass_turn() */
    size_t result_bytes;
    /* Runs in the peer's own process, with the peer open; fills the zeroed result. */
    void (*measure)(const bench_peer *peer, void *result, const void *context);
    const void *context;
} field_plan;

/* Runs the plan on each peer, one after the other or in turns; false when a process did not complete or weir could not
 * be measured. Other peers that cannot be used here are left out, with a message. */
bool field_run(field **out, const field_plan *plan, const bench_options *options);

#endif
