/*
 * peers: who takes part, and how a benchmark is run on each of them in a process of its own: so contexts, loaded code,
 * cached memory and settings of one do not meet the next, and the driver's figures are of that one alone.
 */
#ifndef WEIR_BENCH_PEERS_H
#define WEIR_BENCH_PEERS_H

#include "bench.h"
#include "peer.h"

/* weir: with stream and device named at each call; with the thread's current ones; the first in a private pool that all threads
 * have entered; with PyTorch's placement rules. */
extern const bench_peer peer_weir, peer_weir_implicit, peer_weir_in_pool, peer_weir_from_pool, peer_weir_torch_rules;
/* cuMemAllocAsync on the device's default pool, which keeps what it has, as PyTorch uses it. */
extern const bench_peer peer_async;
/* The vendor's create functions, one handle per thread, everything left as the library has it. */
extern const bench_peer peer_raw;
/* What programs do without a pool: a map from thread to handle behind one mutex, and creating one per call. */
extern const bench_peer peer_mutex_map, peer_create;
extern const bench_peer peer_libc, peer_mimalloc, peer_jemalloc;

/* The back end that weir's peers open: "host" or "cuda". */
void peer_weir_backend(const char *backend);

typedef struct bench_kind {
    const char *name;
    weir_handle_kind kind;
} bench_kind;

/* The libraries whose handles every peer on a GPU has. */
#define BENCH_VENDOR_KINDS 4
extern const bench_kind bench_vendor_kinds[BENCH_VENDOR_KINDS];

/* A handle that is a KiB of host memory, and setting its stream. */
void *standin_create(void);
void standin_bind(void *handle, uint64_t stream);

/* So many streams of the peer's; 0 for those of a peer that has none. */
void peer_streams(const bench_peer *peer, size_t count, uint64_t *streams);

/* ---- everybody once ---- */

/* A peer that takes part in a benchmark, and what it came to. */
typedef struct player {
    char name[192];
    bool measured;
    void *result;
} player;

#define FIELD_MAX 16

/* The first is weir. Shared with the children that fill it. */
typedef struct field {
    player at[FIELD_MAX];
    size_t count;
} field;

typedef struct field_plan {
    const char *bench;
    const bench_peer *const *built_in; /* up to a NULL */
    bool variants;                     /* with the peers that change the environment, too */
    size_t result_bytes;
    /* In the peer's own process, with the peer open; fills the result, which is zeroed. */
    void (*measure)(const bench_peer *peer, void *result, const void *context);
    const void *context;
} field_plan;

/* Runs the plan on each peer in turn; false when a process did not come to its end. Who cannot be used here is left out,
 * with a message. */
bool field_run(field **out, const field_plan *plan, const bench_options *options);

#endif
