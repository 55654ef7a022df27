/*
 * peer: another allocator's rules as a policy of weir replay, written from their published descriptions, on a simulated
 * driver. docs/policies.md says for each peer where its rules come from and how exact it is.
 *
 * Work on the device takes no time here, as in a replay without kernels: where a peer lets streams share, a block freed
 * on one stream is ready for another at once. A block that the recorded program freed while another stream still used
 * it is kept until that use ends; a peer with something like record_stream is told of both.
 *
 * One table per peer, in a file of its own; a new one needs a row in peers.c.
 */
#ifndef WEIR_TOOLS_REPLAY_PEERS_PEER_H
#define WEIR_TOOLS_REPLAY_PEERS_PEER_H

#include "replay/peers/driver.h"

#include <stddef.h>

/* A block in use. */
typedef struct peer_block {
    uint64_t address;
    void *node; /* the peer's */
} peer_block;

/* A setting of PyTorch's that a recording may have. */
typedef enum peer_recorded { PEER_NONE, PEER_LARGE_SEGMENT, PEER_MAX_SPLIT, PEER_NON_SPLIT_ROUNDING } peer_recorded;

typedef struct peer_option {
    const char *name, *about;
    uint64_t least, most, standard;
    bool bytes;             /* written as a size */
    const char *at_most;    /* another option, which this one must not exceed */
    peer_recorded recorded; /* if the option is not given, it takes that */
} peer_option;

enum { PEER_OPTIONS = 6 };
#define PEER_UNLIMITED (UINT64_C(1) << 60) /* more than any device has; sums of smaller sizes do not overflow */

typedef struct peer {
    const char *name, *about;
    peer_option options[PEER_OPTIONS]; /* unused ones have no name */
    bool torch;                        /* PyTorch's: requests are first rounded by the recorded divisions */

    /* `values` are those of the options, in order; they stay valid and constant until close. */
    void *(*open)(driver *d, const uint64_t *values);
    /* Releases everything; blocks may still be in use. */
    void (*close)(void *self);
    /* `bytes` is at least 1. False: out of memory, even after the peer has given back what it could. */
    bool (*alloc)(void *self, uint64_t bytes, uint32_t stream, peer_block *out);
    /* `stream` is the one the block was allocated on. */
    void (*free)(void *self, const peer_block *block, uint32_t stream);
    /* The program freed the block, but another stream uses it until end_use, which comes early when an allocation
     * fails: the peer waits for uses then. Both NULL: the program must keep the block that long, and `free` is called
     * then. */
    void (*begin_use)(void *self, const peer_block *block, uint32_t stream);
    void (*end_use)(void *self, const peer_block *block, uint32_t stream);
    /* Gives back all idle memory, but not that of private pools; NULL: the peer has no such call. */
    void (*empty)(void *self);
    /* The stream is in a private pool; said before anything else of it. Only empty_stream, then, gives back its idle
     * memory. Both NULL: the peer has no such pools. */
    void (*keep_stream)(void *self, uint32_t stream);
    void (*empty_stream)(void *self, uint32_t stream);
} peer;

/* A peer with its options, as asked for by "name" or "name:option=value,...". */
typedef struct peer_choice {
    const peer *peer;
    uint64_t values[PEER_OPTIONS];
    bool given[PEER_OPTIONS]; /* on the command line */
} peer_choice;

size_t peer_count(void);
const peer *peer_at(size_t index);
/* The peer of that name, up to a colon; NULL: none. */
const peer *peer_find(const char *text);

/* False: error[] says what is wrong with the options, and lists the valid ones. */
bool peer_choose(const char *text, peer_choice *out, char *error, size_t error_size);

extern const peer peer_torch_expandable, peer_async, peer_cub, peer_rmm_pool, peer_rmm_arena, peer_bfc, peer_tlsf,
    peer_cupy, peer_ggml, peer_gmlake;

#endif
